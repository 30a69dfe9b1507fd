//! The instrument is right about what limits a load: each limiter is made on purpose, and the verdict must name it. Each
//! attempt takes a few seconds; the machine may be busy with other things, so there are three, with their reasons.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use carmine_tests::{Testbed, carmine_bin, installed, skip};
use serde_json::Value;

const ATTEMPTS: usize = 3;
/// CPU of the OSD's reactor, and of the generator.
const OSD_CPU: &str = "0";
const CLIENT_CPU: &str = "1";
const ONE_OSD: &[&str] =
    &["--osds", "1", "--size", "1", "--reactors", "1", "--cpus", OSD_CPU, "--client-cpus", CLIENT_CPU];

/// Tries until `attempt` finds nothing wrong.
fn retry(attempt: impl Fn() -> Result<(), String>) {
    let mut reasons = Vec::new();
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(()) => return,
            Err(reason) => reasons.push(reason),
        }
    }
    panic!("{ATTEMPTS} attempts failed:\n{}", reasons.join("\n"));
}

/// A process that only takes CPU time, for at most 30 s.
struct Burner(Child);

impl Burner {
    fn on(cpu: &str) -> Burner {
        let words = ["-c", cpu, "timeout", "30", "sh", "-c", "while :; do :; done"];
        let child =
            Command::new("taskset").args(words).stdout(Stdio::null()).spawn().expect("taskset (util-linux)");
        Burner(child)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        // `timeout` passes the signal on to the shell; SIGKILL it could not.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn up(store: &str, more: &[&str]) -> Testbed {
    let mut options = ONE_OSD.to_vec();
    options.extend(["--store", store]);
    options.extend(more);
    Testbed::up_alone(&options)
}

fn result_file(bed: &Testbed) -> PathBuf {
    bed.dir().parent().expect("a parent").join("result.json")
}

/// The object `carmine` of a short bench. `wrap` runs before the program's name, such as `nice -n 19`.
fn bench(bed: &Testbed, wrap: &[&str], args: &[&str]) -> Value {
    let file = result_file(bed);
    let _ = fs::remove_file(&file);
    let bin = carmine_bin();
    let mut words: Vec<&str> = wrap.to_vec();
    let dir = bed.dir();
    words.extend([bin.to_str().expect("UTF-8"), "bench", "--dir", dir.to_str().expect("UTF-8")]);
    words.extend(["--size", "32m", "--json", file.to_str().expect("UTF-8")]);
    words.extend(args);
    let out =
        Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output().expect("the bench starts");
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = fs::read_to_string(&file).expect("a result");
    serde_json::from_str::<Value>(&text).expect("JSON")["carmine"].take()
}

fn wants_verdict(result: &Value, want: &str) -> Result<(), String> {
    let seen = format!("{}: {}; {}", result["verdict"], result["verdict_reason"], result["marks"]);
    if result["verdict"] == want { Ok(()) } else { Err(format!("{want} was made, seen was {seen}")) }
}

fn wants_mark(result: &Value, word: &str, part: &str) -> Result<(), String> {
    let marks = result["marks"].as_array().cloned().unwrap_or_default();
    let texts = marks.iter().filter_map(Value::as_str);
    let found = texts.clone().any(|mark| mark.starts_with(word) && mark.contains(part));
    if found { Ok(()) } else { Err(format!("no mark {word} ({part}) in {:?}", texts.collect::<Vec<_>>())) }
}

/// Most of these need a CPU for the OSD and another for the generator.
fn two_cpus() -> bool {
    let enough = std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2);
    if !enough {
        skip("this needs two CPUs");
    }
    enough
}

#[test]
fn a_burner_beside_the_osd_is_noise() {
    if !two_cpus() {
        return;
    }
    // A reactor that always spins always wants its CPU.
    let bed = up("cyan", &["--poll", "poll"]);
    retry(|| {
        let _burners = [Burner::on(OSD_CPU), Burner::on(OSD_CPU)];
        let result = bench(&bed, &[], &["--rw", "randread", "--iodepth", "16", "--runtime", "1500ms"]);
        wants_mark(&result, "NOISY", "reactors were ready but without a CPU")
    });
}

#[test]
fn a_throttled_generator_is_the_limit() {
    if !two_cpus() {
        return;
    }
    let bed = up("cyan", &[]);
    retry(|| {
        let _burners = [Burner::on(CLIENT_CPU), Burner::on(CLIENT_CPU)];
        let args = ["--rw", "randread", "--iodepth", "32", "--runtime", "1500ms"];
        wants_verdict(&bench(&bed, &["nice", "-n", "19"], &args), "CLIENT")
    });
}

/// Four processes of fio on one CPU: no thread of theirs is always busy, and the CPU is.
#[test]
fn a_stock_client_that_fills_its_cpu_is_the_limit() {
    if !two_cpus() || !installed("fio", "fio") || !installed("rbd", "ceph-common") {
        return;
    }
    let bed = up("cyan", &[]);
    retry(|| {
        let wide = ["--numjobs", "4", "--processes", "4", "--volumes", "4", "--iodepth", "64"];
        let fio = ["--client", "fio-rbd", "--rw", "randread", "--runtime", "3", "--ramp", "1"];
        wants_verdict(&bench(&bed, &[], &[&fio[..], &wide].concat()), "CLIENT")
    });
}

#[test]
fn a_reactor_that_owns_all_pgs_is_an_imbalance() {
    let reactors = ["--osds", "1", "--size", "1", "--store", "cyan", "--pgs", "1", "--reactors", "2"];
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // With fewer CPUs the generator shares one, and no verdict but SHARED is honest: the mark must still be there.
    let placed: &[&str] =
        if cpus >= 4 { &["--cpus", "0,1", "--client-cpus", "2-3"] } else { &["--overprovisioned"] };
    let bed = Testbed::up_alone(&[&reactors, placed].concat());
    retry(|| {
        let jobs = if cpus >= 4 { "2" } else { "1" };
        let args = ["--rw", "randread", "--iodepth", "64", "--numjobs", jobs, "--runtime", "1500ms"];
        let result = bench(&bed, &[], &args);
        wants_mark(&result, "IMBALANCED", "a reactor owns 1 PG, the mean is 0.5")?;
        wants_verdict(&result, if cpus >= 4 { "IMBALANCED" } else { "SHARED" })
    });
}

/// Reads per second of the drive under a folder are limited for the processes that are put in here. cgroup v2 or v1,
/// whichever has the controller.
struct SlowDrive {
    group: PathBuf,
}

/// Writes a file that exists: where there is no controller, no plain file must take its place.
fn write_there(file: &Path, text: &str) -> bool {
    let file = fs::File::options().write(true).open(file);
    file.and_then(|mut file| file.write_all(text.as_bytes())).is_ok()
}

impl SlowDrive {
    /// `None` where there is no such controller, or no right to use it.
    fn new(folder: &Path, reads_per_s: u32) -> Option<SlowDrive> {
        let number = fs::metadata(folder).ok()?.dev();
        // glibc's gnu_dev_major and gnu_dev_minor.
        let (major, minor) =
            (number >> 8 & 0xfff | number >> 32 & !0xfff, number & 0xff | number >> 12 & !0xff);
        let name = format!("carmine-test-{}", std::process::id());
        let ways = [
            ("/sys/fs/cgroup", "io.max", format!("{major}:{minor} riops={reads_per_s}")),
            (
                "/sys/fs/cgroup/blkio",
                "blkio.throttle.read_iops_device",
                format!("{major}:{minor} {reads_per_s}"),
            ),
        ];
        for (root, file, text) in ways {
            let drive = SlowDrive { group: Path::new(root).join(&name) };
            if fs::create_dir(&drive.group).is_ok() && write_there(&drive.group.join(file), &text) {
                return Some(drive);
            }
        }
        None
    }

    fn put(&self, pid: i32) {
        assert!(write_there(&self.group.join("cgroup.procs"), &pid.to_string()), "{pid} can't be moved");
    }
}

impl Drop for SlowDrive {
    fn drop(&mut self) {
        // Processes that are still in it keep it; they go with the testbed, and an empty group harms nobody.
        let root = self.group.parent().unwrap_or(Path::new("/"));
        let pids = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        pids.lines().for_each(|pid| {
            write_there(&root.join("cgroup.procs"), pid);
        });
        let _ = fs::remove_dir(&self.group);
    }
}

#[test]
fn a_slow_drive_is_the_limit() {
    if !two_cpus() {
        return;
    }
    let bed = up("blue", &["--osd-size", "256M", "--sparse"]);
    let baseline = bed.dir().parent().expect("a parent").join("baseline.json");
    let baseline = baseline.to_str().expect("UTF-8");
    let load = ["--rw", "randread", "--iodepth", "8", "--runtime", "1500ms"];
    // The objects are written before the drive is slow.
    bench(&bed, &[], &["--rw", "randread", "--runtime", "100ms"]);
    let Some(drive) = SlowDrive::new(&bed.dir(), 300) else {
        skip(
            "no control group can limit block devices: run as root, with cgroup v2's controller io (or v1's blkio)",
        );
        return;
    };
    drive.put(bed.pid("osd.0").expect("a running OSD"));
    let limited = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", drive.group.display());
    retry(|| {
        let (bin, dir) = (carmine_bin(), bed.dir());
        let mut words = vec!["-c", &limited, "sh", bin.to_str().expect("UTF-8"), "baseline"];
        words.extend([
            "--dir",
            dir.to_str().expect("UTF-8"),
            "--size",
            "32m",
            "--ramp",
            "200ms",
            "--json",
            baseline,
        ]);
        words.extend(load);
        let out = Command::new("sh").args(&words).output().expect("a shell");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut args = vec!["--baseline", baseline];
        args.extend(load);
        let result = bench(&bed, &[], &args);
        wants_verdict(&result, "DEVICE")
            .map_err(|e| format!("{e}; {} IOPS, baseline {}", result["iops"], result["baseline"]))
    });
}
