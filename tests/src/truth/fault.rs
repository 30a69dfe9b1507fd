//! Faults: how each is made, and the words that name it. All of them fit a machine with two CPUs.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use super::setup::{Group, Neighbour};
use crate::{Testbed, carmine_bin, run};

/// CPU of the OSD's reactor, and of the generator.
const OSD_CPU: &str = "0";
const CLIENT_CPU: &str = "1";
/// Reads per second that a slow drive gives.
const SLOW_DRIVE_IOPS: u32 = 300;
/// A file on the OSD's drive that is not the OSD's.
const OTHER_BYTES: u64 = 256 << 20;
/// Time in which a neighbour is at work.
const SETTLES: Duration = Duration::from_millis(800);
/// A run takes a few seconds; the machine may be busy with other things.
const LIMIT: Duration = Duration::from_secs(120);
/// The word for a run of a control that is called nothing else.
pub const CLEAN: &str = "clean";
/// The word for a run that ended with an error: it counts as one that was named wrongly.
const FAILED: &str = "FAILED";

/// A fault that is put in on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub name: &'static str,
    /// The words that name it correctly.
    pub expected: &'static [&'static str],
    /// How it is made, for the table.
    pub what: &'static str,
    /// Options of `carmine up`, beside one OSD with one copy on [`OSD_CPU`].
    up: &'static [&'static str],
    /// Options of `carmine bench`.
    load: &'static [&'static str],
    /// Two busy processes run on this CPU during each window.
    busy_cpu: Option<&'static str>,
    /// The generator has the lowest priority.
    nice: bool,
    /// The drive under the testbed's folder is slow.
    slow_drive: bool,
    /// Each run has a baseline.
    baseline: bool,
    /// Another client reads from the OSD during each window, or another program from its drive.
    beside: Option<Beside>,
    /// The generator has so many milliseconds of CPU time in every 100.
    quota_ms: Option<u32>,
    /// Programs that must be installed, with their packages.
    needs: &'static [(&'static str, &'static str)],
    /// Options of `up` and `bench` without the fault, where it is made by them.
    clean: Option<(&'static [&'static str], &'static [&'static str])>,
}

/// Work that is not the load's.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Client,
    Dd,
}

const PLAIN: Fault = Fault {
    name: "",
    expected: &[],
    what: "",
    up: &["--store", "cyan"],
    load: &[],
    busy_cpu: None,
    nice: false,
    slow_drive: false,
    baseline: false,
    beside: None,
    quota_ms: None,
    needs: &[],
    clean: None,
};

/// Options of `up` and of `bench` that make no fault.
const CYAN: &[&str] = &["--store", "cyan"];
const QUEUED: &[&str] = &["--rw", "randread", "--iodepth", "16"];

/// Every fault, in the order of the table.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "busy-neighbour",
        expected: &["CONTENDED"],
        what: "two busy processes on the CPU of the only reactor, which always polls",
        up: &["--store", "cyan", "--poll", "poll"],
        load: QUEUED,
        busy_cpu: Some(OSD_CPU),
        ..PLAIN
    },
    Fault {
        name: "throttled-generator",
        expected: &["QD"],
        what: "open loop: 5,000 arrivals a second, of which the OSD could serve many times as many",
        load: &["--rw", "randread", "--iodepth", "64", "--rate", "5000"],
        clean: Some((CYAN, &["--rw", "randread", "--iodepth", "64"])),
        ..PLAIN
    },
    Fault {
        name: "saturated-client",
        expected: &["CLIENT"],
        what: "our generator, one thread with the lowest priority on a CPU with two busy processes",
        // At 32 the generator is nearly saturated by itself.
        load: QUEUED,
        busy_cpu: Some(CLIENT_CPU),
        nice: true,
        ..PLAIN
    },
    Fault {
        name: "saturated-fio",
        expected: &["CLIENT"],
        what: "fio with the engine rbd: four processes on the one client CPU, which they fill",
        load: &[
            "--client",
            "fio-rbd",
            "--rw",
            "randread",
            "--iodepth",
            "64",
            "--numjobs",
            "4",
            "--processes",
            "4",
            "--volumes",
            "4",
            "--ramp",
            "1",
        ],
        needs: &[("fio", "fio"), ("rbd", "ceph-common")],
        clean: Some((CYAN, QUEUED)),
        ..PLAIN
    },
    Fault {
        name: "slow-drive",
        expected: &["DEVICE"],
        what: "the OSD's drive gives 300 reads a second (a cgroup's limit), in its baseline, too",
        up: &["--store", "blue", "--osd-size", "256M", "--sparse"],
        load: &["--rw", "randread", "--iodepth", "8"],
        slow_drive: true,
        baseline: true,
        ..PLAIN
    },
    Fault {
        name: "shallow-drive",
        expected: &["QD"],
        what: "one operation at a time, which reaches what the drive does at that depth, and not what it does at others",
        up: &["--store", "blue", "--osd-size", "256M", "--sparse"],
        load: &["--rw", "randrw", "--iodepth", "1"],
        baseline: true,
        clean: Some((
            &["--store", "blue", "--osd-size", "256M", "--sparse"],
            &["--rw", "randrw", "--iodepth", "128"],
        )),
        ..PLAIN
    },
    Fault {
        name: "second-client",
        expected: &["CONTENDED"],
        what: "another client reads from the same OSD",
        load: QUEUED,
        beside: Some(Beside::Client),
        ..PLAIN
    },
    Fault {
        name: "drive-neighbour",
        expected: &["CONTENDED"],
        what: "`dd` reads from the OSD's drive",
        up: &["--store", "blue", "--osd-size", "256M", "--sparse"],
        load: QUEUED,
        beside: Some(Beside::Dd),
        ..PLAIN
    },
    Fault {
        name: "generator-quota",
        expected: &["CLIENT"],
        what: "a cgroup gives the generator 10 ms of CPU time in every 100 ms",
        load: QUEUED,
        quota_ms: Some(10),
        ..PLAIN
    },
    Fault {
        name: "skewed-pgs",
        expected: &["IMBALANCED", "SHARED+IMBALANCED"],
        what: "two reactors, one PG; with two CPUs the client shares one of them, so the verdict is SHARED and a mark names the PGs",
        up: &["--store", "cyan", "--reactors", "2", "--pgs", "1", "--cpus", "0,1", "--overprovisioned"],
        load: &["--rw", "randread", "--iodepth", "64"],
        clean: Some((CYAN, QUEUED)),
        ..PLAIN
    },
    Fault {
        name: "quota",
        expected: &["QUOTA"],
        what: "a cgroup gives the OSD 30 ms of CPU time in every 100 ms",
        up: &["--store", "cyan", "--confine", "quota", "--confine-cpus", "0.3"],
        load: &["--rw", "randread", "--iodepth", "64"],
        clean: Some((CYAN, QUEUED)),
        ..PLAIN
    },
    Fault {
        name: "hot-reactor",
        expected: &["OSD", "IMBALANCED"],
        what: "the only reactor spends three quarters of its busy time in a loop that was put into it",
        up: &["--store", "cyan", "--osd-env", "CARMINE_TEST_SLOWDOWN_PERCENT=75"],
        load: &["--rw", "randread", "--iodepth", "256"],
        clean: Some((CYAN, &["--rw", "randread", "--iodepth", "1"])),
        ..PLAIN
    },
];

/// A running testbed with a fault.
pub struct Faulty {
    fault: Fault,
    bed: Testbed,
    /// The limit of the OSD's drive, or of the generator's CPU time.
    limit: Option<Group>,
}

/// The verdict of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The limiter that the result names.
    pub word: String,
    /// Its reason and the marks.
    pub why: String,
    /// The words of the marks, but for SMOKE: the windows are short.
    pub marks: Vec<String>,
}

impl Fault {
    /// The fault of this name.
    pub fn named(name: &str) -> Option<&'static Fault> {
        FAULTS.iter().find(|fault| fault.name == name)
    }

    /// The same testbed and load without the fault: a run of it is [`CLEAN`] if neither verdict nor marks tell of one.
    #[must_use]
    pub fn control(&self) -> Fault {
        let (up, load) = self.clean.unwrap_or((self.up, self.load));
        Fault {
            up,
            load,
            busy_cpu: None,
            nice: false,
            slow_drive: false,
            beside: None,
            quota_ms: None,
            needs: &[],
            ..*self
        }
    }

    /// The word of a control's run.
    pub fn word_of_control(&self, seen: &Seen) -> String {
        if seen.marks.is_empty() && !self.is_named_by(seen) {
            return CLEAN.to_owned();
        }
        [&seen.word].into_iter().chain(&seen.marks).map(String::as_str).collect::<Vec<_>>().join("+")
    }

    /// The verdict names this fault.
    pub fn is_named_by(&self, seen: &Seen) -> bool {
        self.expected.contains(&seen.word.as_str())
    }

    /// Starts a testbed with it.
    ///
    /// # Errors
    /// The reason why it cannot be started, such as a program that this machine lacks.
    pub fn start(&self) -> Result<Faulty, String> {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if cpus < 2 {
            return Err("it takes two CPUs".to_owned());
        }
        if let Some((program, package)) = self.needs.iter().find(|(program, _)| !is_installed(program)) {
            return Err(format!("{program} is not installed: apt-get install {package}"));
        }
        let bed = Testbed::alone();
        let one = ["--osds", "1", "--size", "1"];
        let place = if self.up.contains(&"--cpus") {
            &[][..]
        } else {
            &["--cpus", OSD_CPU, "--client-cpus", CLIENT_CPU]
        };
        let out = bed.run("up", &[&one[..], place, self.up].concat());
        if !out.status.success() {
            return Err(format!("carmine up: {}", last_line(&out)));
        }
        // The objects are written before anything is slow.
        let faulty = Faulty { fault: *self, bed, limit: None };
        let seen = faulty.bench(&["--rw", "randread"], Duration::from_millis(100), &[]);
        seen.map_err(|error| format!("carmine bench: {error}"))?;
        if matches!(self.beside, Some(Beside::Dd)) {
            let bytes = std::fs::File::create(faulty.bed.file("other")).and_then(|mut file| {
                std::io::copy(&mut std::io::Read::take(std::io::repeat(7), OTHER_BYTES), &mut file)?;
                file.sync_all()
            });
            bytes.map_err(|error| format!("a file on the OSD's drive: {error}"))?;
        }
        let lacks = |what: &str, v2: &str, v1: &str| {
            format!(
                "no control group can limit {what}: run as root, with cgroup v2's controller {v2} (or v1's {v1})"
            )
        };
        let limit = match self.quota_ms {
            Some(ms) => Some(Group::cpu_quota(ms).ok_or_else(|| lacks("CPU time", "cpu", "cpu"))?),
            None if self.slow_drive => {
                let drive = Group::slow_drive(&faulty.bed.dir(), SLOW_DRIVE_IOPS)
                    .ok_or_else(|| lacks("block devices", "io", "blkio"))?;
                drive.put(faulty.bed.pid("osd.0").ok_or("the OSD does not run")?);
                Some(drive)
            }
            None => None,
        };
        Ok(Faulty { limit, ..faulty })
    }
}

impl Faulty {
    /// Measures once, with the fault in place.
    pub fn run(&self, window: Duration) -> Seen {
        let fault = &self.fault;
        let limit = self.limit.as_ref().map(Group::wrap);
        let limit: Vec<&str> = limit.iter().flatten().map(String::as_str).collect();
        let wrap: Vec<&str> = match fault.quota_ms {
            Some(_) => limit.clone(),
            None if fault.nice => vec!["nice", "-n", "19"],
            None => Vec::new(),
        };
        let baseline = if fault.baseline { self.baseline(window, &limit).map(Some) } else { Ok(None) };
        let busy = fault.busy_cpu.map(|cpu| [Neighbour::busy(cpu), Neighbour::busy(cpu)]);
        let beside = fault.beside.map(|beside| self.start_beside(beside));
        let measured = baseline.and_then(|file| {
            let baseline: Vec<&str> = file.iter().flat_map(|file| ["--baseline", file.as_str()]).collect();
            self.bench(&[fault.load, &baseline].concat(), window, &wrap)
        });
        drop((busy, beside));
        match measured {
            Ok(result) => seen(&result),
            Err(why) => Seen { word: FAILED.to_owned(), why, marks: Vec::new() },
        }
    }

    /// The object `carmine` of a bench, or its error. `wrap` comes before the program's name.
    fn bench(&self, load: &[&str], window: Duration, wrap: &[&str]) -> Result<Value, String> {
        let file = self.bed.file("result.json");
        let _ = std::fs::remove_file(&file);
        self.carmine("bench", &[load, &["--json", &file]].concat(), window, wrap)?;
        let text = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
        let mut result: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        Ok(result["carmine"].take())
    }

    /// A baseline with the drive's limit; the name of its file.
    fn baseline(&self, window: Duration, wrap: &[&str]) -> Result<String, String> {
        let file = self.bed.file("baseline.json");
        let more = ["--ramp", "200ms", "--json", &file];
        self.carmine("baseline", &[self.fault.load, &more].concat(), window, wrap)?;
        Ok(file)
    }

    /// Starts work that is not the load's, on the generator's CPU.
    fn start_beside(&self, beside: Beside) -> Neighbour {
        let (bin, dir) = (carmine_bin(), self.bed.dir());
        let [bin, dir] = [&bin, &dir].map(|path| path.to_str().expect("UTF-8"));
        let bench = "exec \"$0\" bench --dir \"$1\" --rw randread --size 32m --iodepth 16 --runtime 25";
        let dd = "while :; do dd if=\"$1\" of=/dev/null bs=1M iflag=direct; done";
        let neighbour = match beside {
            Beside::Client => Neighbour::start(CLIENT_CPU, &bench.replace("$0", bin), &[dir]),
            Beside::Dd => Neighbour::start(CLIENT_CPU, dd, &[&self.bed.file("other")]),
        };
        std::thread::sleep(SETTLES);
        neighbour
    }

    fn carmine(&self, command: &str, args: &[&str], window: Duration, wrap: &[&str]) -> Result<(), String> {
        let (bin, dir, window) = (carmine_bin(), self.bed.dir(), format!("{}ms", window.as_millis()));
        let own = [bin.to_str().expect("UTF-8"), command, "--dir", dir.to_str().expect("UTF-8")];
        let words = [wrap, &own, &["--size", "32m", "--runtime", &window], args].concat();
        let out = run(Path::new(words[0]), &words[1..], LIMIT);
        if out.status.success() { Ok(()) } else { Err(last_line(&out)) }
    }
}

fn seen(result: &Value) -> Seen {
    let marks = || result["marks"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let reason = result["verdict_reason"].as_str().unwrap_or_default();
    let verdict = result["verdict"].as_str().unwrap_or(FAILED);
    // Where CPUs are shared, no other verdict is honest, and only marks can say more.
    let more = marks().any(|mark| mark.starts_with("IMBALANCED:")) && verdict == "SHARED";
    Seen {
        word: if more { "SHARED+IMBALANCED".to_owned() } else { verdict.to_owned() },
        why: [reason].into_iter().chain(marks()).collect::<Vec<_>>().join("; "),
        marks: marks().filter_map(mark_word).collect(),
    }
}

/// The word in capitals that a mark begins with.
fn mark_word(mark: &str) -> Option<String> {
    let word = mark.split_once(':')?.0;
    let is_word = word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase());
    (is_word && word != "SMOKE").then(|| word.to_owned())
}

fn last_line(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    text.lines().last().unwrap_or_default().to_owned()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_is_clean_without_marks_and_without_the_faults_word() {
        let fault = Fault::named("busy-neighbour").unwrap();
        let seen = |word: &str, marks: &[&str]| {
            let result = serde_json::json!({"verdict": word, "verdict_reason": "because", "marks": marks, "shared": false});
            fault.control().word_of_control(&seen(&result))
        };
        assert_eq!(seen("QD", &["SMOKE: short", "a remark without a word"]), CLEAN);
        assert_eq!(seen("CONTENDED", &[]), "CONTENDED");
        assert_eq!(seen("QD", &["NOISY: others"]), "QD+NOISY");
    }

    #[test]
    fn no_control_has_a_fault() {
        for fault in FAULTS {
            let control = fault.control();
            let is_inside = control.quota_ms.is_some() || control.beside.is_some() || control.slow_drive;
            assert!(!is_inside && control.busy_cpu.is_none() && !control.nice, "{}", fault.name);
            let is_same = (control.up, control.load) == (fault.up, fault.load);
            let is_outside = fault.quota_ms.is_some()
                || fault.beside.is_some()
                || fault.slow_drive
                || fault.busy_cpu.is_some();
            assert!(is_same == is_outside, "{}: its options make it", fault.name);
        }
    }
}
