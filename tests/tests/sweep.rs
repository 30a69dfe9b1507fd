//! `carmine sweep` end to end: points that crash, a sweep that is killed and goes on, nothing left behind.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use carmine_tests::{carmine_bin, run};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(80);

/// A plan, and the folder of its run. Dropped, it ends what a failed test may have left running: by its own folder.
struct Bed {
    root: TempDir,
}

impl Bed {
    fn new(axes: &str) -> Bed {
        let target = carmine_bin();
        let root = tempfile::tempdir_in(target.parent().unwrap()).unwrap();
        let text = format!(
            "name = \"small\"\nabout = \"a test\"\norder = \"fixed\"\nruntime = \"1s\"\nramp = \"100ms\"\n\n[axes]\n\
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
            assert!(begin.elapsed() < Duration::from_secs(10), "left over: {:?}", self.processes());
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
    assert!(script.contains("carmine bench --dir") && script.contains("# fio --name="), "{script}");
    assert!(!out.join("layouts").exists(), "the OSDs' data is removed");
    bed.wait_for_none();
}

#[test]
fn a_sweep_that_was_killed_goes_on_where_it_was() {
    let bed = Bed::new("reactors = [1, 2, 3]");
    let mut first = Command::new(carmine_bin())
        .args(bed.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
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
    let out = bed.out().display().to_string();
    let resumed = run(&carmine_bin(), &["sweep", "--resume", "--out", &out], LIMIT);
    assert!(resumed.status.success(), "{}{}", text(&resumed.stdout), text(&resumed.stderr));
    assert_eq!(bed.state(&stems[0]), before, "what was measured is not measured again");
    for stem in &stems {
        assert_eq!(bed.state(stem)["state"], "done");
    }
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
    let wrong = run(&carmine_bin(), &["sweep", "nonsense"], LIMIT);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("smoke"), "{}", text(&wrong.stderr));
}
