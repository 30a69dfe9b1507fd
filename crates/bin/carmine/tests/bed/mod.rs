//! A testbed of a test, made with the real binary; none of it survives the test.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder in which nothing survives the test.
pub(crate) struct Bed {
    pub(crate) root: tempfile::TempDir,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.run(&["destroy"]);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.root.path().join("bed")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carmine"));
        command.args(&args[..1]).arg("--dir").arg(self.dir()).args(&args[1..]).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}{}", text(&out.stdout), text(&out.stderr));
        text(&out.stdout)
    }

    /// Runs a command that must fail with this code and name this.
    pub(crate) fn fails(&self, args: &[&str], code: i32, part: &str) {
        let out = self.run(args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(
            said.contains(part) && !said.contains("panicked"),
            "{args:?}: {said:?} does not name {part:?}"
        );
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["status", "--json"]).stdout).unwrap()
    }

    pub(crate) fn pid(&self, daemon: &str) -> i64 {
        let record: Value =
            serde_json::from_slice(&fs::read(self.dir().join(format!("run/{daemon}.json"))).unwrap())
                .unwrap();
        record["pid"].as_i64().unwrap()
    }

    /// Pids that have this folder on their command line.
    pub(crate) fn processes(&self) -> Vec<String> {
        let dir = self.dir().display().to_string();
        let named = |entry: &fs::DirEntry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            text(&line).split('\0').any(|arg| arg == dir)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter(named).map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }

    pub(crate) fn wait_for(&self, what: &str, done: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < end, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether all of a process has ended, perhaps unnoticed by its parent. One that ends has no command line any more, but holds its files.
pub(crate) fn is_gone(pid: i64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    threads == 0 || (threads == 1 && stat.contains(") Z "))
}

pub(crate) fn kill(signal: &str, pid: i64) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}
