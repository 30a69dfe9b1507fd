//! `carmine sweep` end to end: points that crash, a sweep that is killed and goes on, nothing left behind.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use carmine_tests::{carmine_bin, run, skip};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(300);
/// CPU time by which a load of some depth is under way: connecting and looking for objects take a fraction of it.
const LOAD_TICKS: u64 = 20;

/// A plan, and the folder of its run. Dropped, it ends what a failed test may have left running: by its own folder.
struct Bed {
    root: TempDir,
}

impl Bed {
    fn new(axes: &str) -> Bed {
        let target = carmine_bin();
        let root = tempfile::tempdir_in(target.parent().unwrap()).unwrap();
        let text = format!(
            "name = \"small\"\nabout = \"a test\"\nchart = \"scaling\"\norder = \"fixed\"\nruntime = \"1s\"\nramp = \"100ms\"\n\n[axes]\n\
             osd_size_bytes = \"128M\"\nsize_bytes = \"16M\"\npgs = 8\n{axes}\n"
        );
        std::fs::write(root.path().join("plan.toml"), text).unwrap();
        Bed { root }
    }

    fn out(&self) -> PathBuf {
        self.root.path().join("run")
    }

    fn arguments(&self) -> Vec<String> {
        let path = |path: PathBuf| path.display().to_string();
        let plan = path(self.root.path().join("plan.toml"));
        vec!["sweep".into(), plan, "--overprovisioned".into(), "--out".into(), path(self.out())]
    }

    fn sweep(&self, more: &[&str]) -> Output {
        let arguments = self.arguments();
        let all: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        run(&carmine_bin(), &all, LIMIT)
    }

    /// The same in the background.
    fn start(&self) -> Child {
        let mut command = Command::new(carmine_bin());
        command.args(self.arguments()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn resume(&self) -> Output {
        run(&carmine_bin(), &["sweep", "--resume", "--out", &self.out().display().to_string()], LIMIT)
    }

    /// Waits until the load of a point has used the CPU for a while: it is under way.
    fn wait_for_load(&self) {
        let begin = Instant::now();
        let is_load = |line: &str| line.split('\0').nth(1) == Some("bench") && line.contains("--samples");
        let loads = || self.processes().into_iter().filter(|(_, line)| is_load(line));
        while !loads().any(|(pid, _)| cpu_ticks(pid) > LOAD_TICKS) {
            assert!(begin.elapsed() < LIMIT, "no point is loaded: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn json(&self, file: &str) -> Value {
        let text = std::fs::read_to_string(self.out().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        serde_json::from_str(&text).unwrap()
    }

    fn stems(&self) -> Vec<String> {
        let points = self.json("points.json");
        let points = points["points"].as_array().unwrap();
        points.iter().map(|point| point["stem"].as_str().unwrap().to_owned()).collect()
    }

    fn state(&self, stem: &str) -> Value {
        self.json(&format!("points/{stem}.state.json"))
    }

    /// Processes that have this run's folder on their command line.
    fn processes(&self) -> Vec<(i32, String)> {
        let folder = self.out().display().to_string();
        let line = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .map(|pid| (pid, line(pid)))
            .filter(|(_, line)| line.contains(&folder))
            .collect()
    }

    fn wait_for_none(&self) {
        let begin = Instant::now();
        while !self.processes().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "left over: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let pids: Vec<i32> = self.processes().into_iter().map(|(pid, _)| pid).collect();
        carmine_tests::kill_nine(&pids);
    }
}

/// User and system time of a process, in hundredths of a second.
fn cpu_ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn signal(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn exists(out: &Path, file: &str) {
    assert!(out.join(file).exists(), "{file} is missing");
}

#[test]
fn a_point_that_crashes_is_recorded_and_the_others_are_measured() {
    let bed = Bed::new("workload = [\"randread4k\", \"randwrite4k\"]\nosd_wrap = [\"none\", \"false\"]");
    let swept = bed.sweep(&["--zip"]);
    let (out, said) = (bed.out(), format!("{}{}", text(&swept.stdout), text(&swept.stderr)));
    assert_eq!(swept.status.code(), Some(1), "{said}");
    let stems = bed.stems();
    assert_eq!(stems.len(), 5, "four points and the first one again");
    for stem in &stems {
        let crashes = stem.contains("wrapfalse");
        let state = bed.state(stem);
        assert_eq!(state["state"], if crashes { "failed" } else { "done" }, "{state} {said}");
        assert_eq!(out.join(format!("points/{stem}.log")).exists(), crashes, "logs of failed points only");
        if crashes {
            assert!(state["error"].as_str().unwrap().starts_with("start: "), "{state}");
        } else {
            let result = bed.json(&format!("points/{stem}.json"));
            assert!(result["carmine"]["iops"].as_f64().unwrap() > 0.0);
            exists(&out, &format!("points/{stem}.samples.json"));
        }
    }
    let run = bed.json("run.json");
    assert_eq!((&run["complete"], &run["label"]), (&Value::Bool(true), &Value::from("smoke")));
    assert!(run["drift"].is_f64(), "{run}");
    for file in ["plan.toml", "points.dat", "commands.sh", "report.html", "report.md", "../run.zip"] {
        exists(&out, file);
    }
    let script = std::fs::read_to_string(out.join("commands.sh")).unwrap();
    assert!(
        script.contains("carmine bench --dir") && script.contains("# by hand: env CEPH_CONF="),
        "{script}"
    );
    assert!(!out.join("layouts").exists(), "the OSDs' data is removed");
    bed.wait_for_none();
}

#[test]
fn a_sweep_that_was_killed_goes_on_where_it_was() {
    let bed = Bed::new("reactors = [1, 2, 3]");
    let mut first = bed.start();
    let begin = Instant::now();
    let done = || {
        std::fs::read_dir(bed.out().join("points")).map_or(0, |list| {
            list.flatten()
                .filter(|entry| entry.file_name().to_string_lossy().ends_with(".state.json"))
                .count()
        })
    };
    while done() == 0 {
        assert!(begin.elapsed() < LIMIT, "the first point does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let stems = bed.stems();
    let before = bed.state(&stems[0]);
    assert!(!bed.json("run.json")["complete"].as_bool().unwrap());

    let again = bed.sweep(&[]);
    assert_eq!(again.status.code(), Some(2), "a run is not overwritten");
    let resumed = bed.resume();
    assert!(resumed.status.success(), "{}{}", text(&resumed.stdout), text(&resumed.stderr));
    assert_eq!(bed.state(&stems[0]), before, "what was measured is not measured again");
    for stem in &stems {
        assert_eq!(bed.state(stem)["state"], "done");
    }
    bed.wait_for_none();
}

#[test]
fn ctrl_c_stops_everything_and_the_run_goes_on_later() {
    let bed = Bed::new("reactors = [1, 2]\niodepth = 16\nseconds = 2");
    let first = bed.start();
    bed.wait_for_load();
    signal("-INT", first.id());
    let stopped = first.wait_with_output().unwrap();
    let said = text(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped; go on with: carmine sweep --resume"), "{said}");
    assert!(bed.processes().is_empty(), "left over: {:?}", bed.processes());
    assert!(!bed.json("run.json")["complete"].as_bool().unwrap());
    let stems = bed.stems();
    assert!(!bed.out().join(format!("points/{}.state.json", stems[0])).exists(), "it was not measured");
    let resumed = bed.resume();
    assert!(resumed.status.success(), "{}{}", text(&resumed.stdout), text(&resumed.stderr));
    // A run about scaling ends with its slope, or with the reason why there is none.
    let said = text(&resumed.stdout);
    assert!(
        said.contains("no answer, so no slope: it takes clean points at two sizes; 0 of 1 repeat clean"),
        "one repeat of 2 s: {said}"
    );
    for stem in &stems {
        let state = bed.state(stem);
        assert_eq!((&state["state"], &state["attempts"]), (&"done".into(), &1.into()), "{stem}");
    }
    bed.wait_for_none();
}

#[test]
fn an_osd_that_dies_under_the_load_fails_its_point_only() {
    let bed = Bed::new("workload = [\"randread4k\", \"randwrite4k\"]\niodepth = 16\nseconds = 2");
    let sweep = bed.start();
    bed.wait_for_load();
    let is_osd = |line: &str| line.split('\0').next().is_some_and(|program| program.ends_with("carmine-osd"));
    let osds: Vec<i32> =
        bed.processes().into_iter().filter(|(_, line)| is_osd(line)).map(|(pid, _)| pid).collect();
    assert_eq!(carmine_tests::kill_nine(&osds), 1);
    let ended = sweep.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
    let stems = bed.stems();
    let died = bed.state(&stems[0]);
    assert_eq!(died["state"], "failed", "{died}");
    assert!(died["error"].as_str().unwrap().contains("osd.0"), "{died}");
    let log = std::fs::read_to_string(bed.out().join(format!("points/{}.log", stems[0]))).unwrap();
    assert!(log.contains("died under the load") && log.contains("--- the end of osd.0.log"), "{log}");
    for stem in &stems[1..] {
        assert_eq!(bed.state(stem)["state"], "done", "{stem}");
    }
    assert!(bed.json("run.json")["complete"].as_bool().unwrap());
    bed.wait_for_none();
}

carmine_testkit::measures!(a_part_of_a_cpu_throttles_and_the_sweep_shows_how_long);

/// About 12 s. A container that may make no control groups skips it, and says so.
fn a_part_of_a_cpu_throttles_and_the_sweep_shows_how_long() {
    let bed = Bed::new("store = \"cyan\"\ncpus = [0.2, \"no-limit\"]\nconfine = \"quota\"\niodepth = 16");
    let swept = bed.sweep(&[]);
    let stems = bed.stems();
    let confined = stems.iter().find(|stem| stem.contains("cpus0.2")).expect("the stem has the axis");
    let free = stems.iter().find(|stem| stem.contains("no-limit")).expect("the point without a limit");
    let state = bed.state(confined);
    if let Some(why) = state["error"].as_str().filter(|why| why.contains("no control group")) {
        return skip(why);
    }
    assert!(swept.status.success(), "{}{}", text(&swept.stdout), text(&swept.stderr));
    let result = |stem: &str| bed.json(&format!("points/{stem}.json"))["carmine"].clone();
    let (throttled, whole) = (result(confined), result(free));
    let seconds = throttled["throttled_seconds"].as_f64().expect("a figure under a quota");
    let used = throttled["osds"][0]["cpu_seconds"]["kernel_total"].as_f64().unwrap();
    let window = throttled["window_seconds"].as_f64().unwrap();
    // How long depends on what else the machine does: an OSD that gets no CPU anyway is stopped less.
    assert!(seconds > 0.0, "an OSD under load with a fifth of a CPU: {seconds} of {window} s");
    assert!(used < 0.5 * window, "it used {used} s of CPU time in {window} s");
    assert!(whole["throttled_seconds"].is_null(), "without a limit there is no such time: {whole}");
    let report = std::fs::read_to_string(bed.out().join("report.md")).unwrap();
    assert!(report.contains("throttled (s)"), "{report}");
    bed.wait_for_none();
}

#[test]
fn a_dry_run_shows_points_and_starts_nothing() {
    let bed = Bed::new("reactors = [1, 2, 40]");
    let shown = run(
        &carmine_bin(),
        &[
            "sweep",
            &bed.root.path().join("plan.toml").display().to_string(),
            "--dry-run",
            "--topology",
            "1x4x1",
        ],
        LIMIT,
    );
    let said = text(&shown.stdout);
    assert!(shown.status.success(), "{said}{}", text(&shown.stderr));
    assert!(said.contains("2reactor") && said.contains("does not fit"), "{said}");
    assert!(!bed.out().exists());
    let parts = Bed::new("cpus = [0.5, 1]\nconfine = [\"quota\", \"cpuset\"]");
    let said = text(&parts.sweep(&["--dry-run"]).stdout);
    assert!(said.contains("cpus0.5") && said.contains("confine = cpuset; take confine = quota"), "{said}");
    let none = run(&carmine_bin(), &["sweep", "smoke", "--peer-build", "/nonexistent"], LIMIT);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("add --peer ceph"), "{}", text(&none.stderr));
    let out = bed.out().display().to_string();
    let build = ["sweep", "smoke", "--out", &out, "--peer", "ceph", "--peer-build", "/nonexistent"];
    let none = run(&carmine_bin(), &build, LIMIT);
    assert_eq!(none.status.code(), Some(2), "before anything is started");
    assert!(text(&none.stderr).contains("/nonexistent") && !bed.out().exists(), "{}", text(&none.stderr));
    let wrong = run(&carmine_bin(), &["sweep", "nonsense"], LIMIT);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("smoke"), "{}", text(&wrong.stderr));
}

#[test]
fn a_study_runs_on_a_small_machine_and_answers_or_says_what_it_needs() {
    let root = tempfile::tempdir_in(carmine_bin().parent().unwrap()).unwrap();
    let path = |name: &str| root.path().join(name).display().to_string();
    let made = run(&carmine_bin(), &["study", "3", "--out", &path("plan.toml")], LIMIT);
    assert!(made.status.success() && text(&made.stdout).contains("study       3: How many CPUs"), "{made:?}");
    let bounded = ["--set", "workload=randread4k", "--set", "iodepth=16", "--runtime", "1s"];
    let plan = path("plan.toml");
    let out = path("run");
    let words = [&["sweep", plan.as_str(), "--quick", "--out", out.as_str()], &bounded[..]].concat();
    let swept = run(&carmine_bin(), &words, LIMIT);
    let said = text(&swept.stdout);
    assert!(swept.status.success(), "{said}{}", text(&swept.stderr));
    let answer = said.lines().find(|line| line.starts_with("Study 3: How many")).expect("an answer");
    // One short window of each point answers nothing, and the first line says so.
    let told = answer.contains("? no answer: not measured: needs") || answer.contains("SMOKE 1");
    assert!(told && answer.contains("? no answer: ") && !said.contains("no limit is"), "{said}");
    let file: Value =
        serde_json::from_slice(&std::fs::read(root.path().join("run/run.json")).unwrap()).unwrap();
    assert_eq!((&file["study"], file["question"].as_str().unwrap().ends_with('?')), (&Value::from(3), true));
}

#[test]
fn a_sweep_that_can_not_have_its_space_or_time_is_refused_with_figures() {
    let bed = Bed::new("reactors = 1");
    let short = bed.sweep(&["--set", "osd_size_bytes=900000G", "--deadline", "1s"]);
    let said = text(&short.stderr);
    assert_eq!(short.status.code(), Some(2), "{said}");
    assert!(said.contains("disk: the stores") && said.contains("lower osd_size_bytes"), "{said}");
    assert!(said.contains("--deadline allows 1 s") && !bed.out().join("run.json").exists(), "{said}");
}
