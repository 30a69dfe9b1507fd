//! Helpers of the whole-system tests: the binary under test and a testbed that is gone when the test ends.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests start processes and read files

mod ceph;
pub mod fuzz;
pub mod hosts;
pub mod power;
pub mod sheet;
pub mod tools;
pub mod truth;
mod turns;
pub mod verified;

pub use carmine_testkit::{installed, skip};
pub use ceph::has_real_mon;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use turns::Turn;

/// The workspace's root folder.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// The programs that `carmine` starts from its own folder.
const DAEMONS: [&str; 2] = ["carmine-mon", "carmine-osd"];

/// The `carmine` binary: `CARMINE_BIN`, or the one beside the test's own executable (scripts/test builds it and the daemons
/// first).
pub fn carmine_bin() -> PathBuf {
    let bin = std::env::var_os("CARMINE_BIN").map_or_else(|| target_dir().join("carmine"), PathBuf::from);
    for file in DAEMONS.iter().map(|daemon| bin.with_file_name(daemon)).chain([bin.clone()]) {
        assert!(
            file.exists(),
            "{} is missing: run `cargo build -p carmine-cli -p carmine-osd-daemon -p carmine-mon-daemon` first (scripts/test \
             does)",
            file.display()
        );
    }
    bin
}

/// The folder of the profile that the tests were built with: on a disk, which /tmp may not be (O_DIRECT).
fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has an executable");
    exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_path_buf()
}

/// Where everything else on the machine is busy, too, a start may take minutes.
const UP_TIMEOUT: [&str; 2] = ["--timeout", "300"];
/// A command that takes longer hangs.
const COMMAND_LIMIT: Duration = Duration::from_secs(400);

/// A testbed in a fresh folder; dropping it stops every process and removes the folder.
pub struct Testbed {
    /// Files of the test.
    root: TempDir,
    dir: PathBuf,
    _turn: Arc<Turn>,
}

impl Testbed {
    /// A fresh folder, nothing started. Other tests may have one at the same time.
    pub fn new() -> Testbed {
        Testbed::with(Turn::shared(&target_dir()))
    }

    /// The same, with the testbed's folder in another one: on a drive of the test, say.
    pub fn inside(folder: &Path) -> Testbed {
        let mut bed = Testbed::new();
        bed.dir = folder.join("bed");
        bed
    }

    /// The same for a test that measures: no other testbed runs meanwhile.
    pub fn alone() -> Testbed {
        Testbed::with(Turn::alone(&target_dir()))
    }

    fn with(turn: impl Into<Arc<Turn>>) -> Testbed {
        let root = tempfile::tempdir_in(target_dir()).expect("a folder on a disk");
        Testbed { dir: root.path().join("bed"), root, _turn: turn.into() }
    }

    /// A started testbed: `up` with these options.
    pub fn up(options: &[&str]) -> Testbed {
        Testbed::new().start(options)
    }

    /// The same for a test that measures.
    pub fn up_alone(options: &[&str]) -> Testbed {
        Testbed::alone().start(options)
    }

    /// Another fresh folder, in the turn of this one: a test never waits for a second turn while it has one.
    pub fn second(&self) -> Testbed {
        Testbed::with(Arc::clone(&self._turn))
    }

    /// Two of them, for a test that measures one beside the other.
    pub fn two_up_alone(options: &[&str]) -> [Testbed; 2] {
        let first = Testbed::up_alone(options);
        let second = first.second().start(options);
        [first, second]
    }

    fn start(self, options: &[&str]) -> Testbed {
        self.ok("up", &[options, &UP_TIMEOUT].concat());
        self
    }

    /// The same, of processes that may have so many files open, their connections included.
    pub fn up_with_files(open_files: u32, options: &[&str]) -> Testbed {
        let bed = Testbed::new();
        let (dir, bin) = (bed.dir(), carmine_bin());
        let script = format!("ulimit -n {open_files}; exec \"$0\" \"$@\"");
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let (dir, bin) = (text(&dir), text(&bin));
        let args = [&["-c", &script, &bin, "up", "--dir", &dir], options, &UP_TIMEOUT].concat();
        succeed(run(Path::new("sh"), &args, COMMAND_LIMIT), &format!("carmine up {options:?}"));
        bed
    }

    /// The testbed's folder.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    /// Runs `carmine COMMAND --dir DIR ARGS`, for some minutes at most.
    pub fn run(&self, command: &str, args: &[&str]) -> Output {
        let dir = self.dir();
        let mut all = vec![command, "--dir", dir.to_str().expect("UTF-8")];
        all.extend(args);
        run(&carmine_bin(), &all, COMMAND_LIMIT)
    }

    /// Runs `carmine osd WORDS --dir DIR`.
    pub fn osd(&self, words: &[&str]) -> Output {
        let dir = self.dir();
        run(
            &carmine_bin(),
            &[&["osd"], words, &["--dir", dir.to_str().expect("UTF-8")]].concat(),
            COMMAND_LIMIT,
        )
    }

    /// Runs `carmine COMMAND --dir DIR ARGS`, which must succeed; returns its standard output.
    pub fn ok(&self, command: &str, args: &[&str]) -> String {
        succeed(self.run(command, args), &format!("carmine {command} {args:?}"))
    }
}

impl Testbed {
    /// Process of `mon`, `osd.0`, … as `up` wrote it down.
    pub fn pid(&self, daemon: &str) -> Option<i32> {
        let text = std::fs::read_to_string(self.dir().join("run").join(format!("{daemon}.json"))).ok()?;
        let record: serde_json::Value = serde_json::from_str(&text).ok()?;
        i32::try_from(record["pid"].as_i64()?).ok()
    }

    /// The monitor's log.
    pub fn mon_log(&self) -> String {
        std::fs::read_to_string(self.dir().join("mon.log")).expect("the monitor has a log")
    }

    /// Waits until the monitor has logged this after the first `from` bytes of its log; the time that it took.
    pub fn wait_for_mon_log(&self, from: usize, what: &str, limit: Duration) -> Duration {
        let begin = Instant::now();
        while !self.mon_log()[from..].contains(what) {
            assert!(begin.elapsed() < limit, "no {what:?} within {limit:?}: {}", &self.mon_log()[from..]);
            std::thread::sleep(Duration::from_millis(5));
        }
        begin.elapsed()
    }

    /// All daemons of the testbed, also those that a killed `up` could not write down: by the folder on their command line.
    pub fn pids(&self) -> Vec<i32> {
        self.pids_of(false)
    }

    /// As [`pids`](Testbed::pids), and those that a killed `up` has begun to start: until a process is the daemon it is to be,
    /// it looks like `up` itself.
    pub fn pids_and_starting(&self) -> Vec<i32> {
        self.pids_of(true)
    }

    fn pids_of(&self, and_up: bool) -> Vec<i32> {
        let dir = self.dir();
        let ours = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let program = words[0].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let is_daemon = DAEMONS.iter().any(|daemon| daemon.as_bytes() == program);
            let is_up = and_up && words.get(1).is_some_and(|word| *word == b"up");
            (is_daemon || is_up) && words.contains(&dir.as_os_str().as_encoded_bytes())
        };
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(ours).collect()
    }

    /// Runs a command again and again until its standard output is as wanted; returns that output.
    pub fn until(
        &self,
        limit: Duration,
        command: &str,
        args: &[&str],
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        let begin = Instant::now();
        loop {
            let said = String::from_utf8_lossy(&self.run(command, args).stdout).into_owned();
            if wanted(&said) {
                return said;
            }
            assert!(
                begin.elapsed() < limit,
                "carmine {command} {args:?} still says after {limit:?}:\n{said}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Sends a signal such as `-STOP` to processes of a testbed.
pub fn signal(pids: &[i32], name: &str) {
    let pids = pids.iter().map(ToString::to_string);
    assert!(Command::new("kill").arg(name).args(pids).status().expect("kill").success(), "kill {name}");
}

/// SIGKILL to processes of a testbed, all at once; returns how many of them there were, when they are gone. A pid whose process does not run
/// a program under test any more is a stranger's and is left alone.
pub fn kill_nine(pids: &[i32]) -> usize {
    let bin = carmine_bin().canonicalize().expect("the binary is a file");
    let programs = DAEMONS.iter().map(|daemon| bin.with_file_name(daemon)).chain([bin.clone()]);
    let programs: Vec<PathBuf> = programs.collect();
    let ours =
        |pid: &&i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| programs.contains(&exe));
    let ours: Vec<String> = pids.iter().filter(ours).map(ToString::to_string).collect();
    if !ours.is_empty() {
        // One may have ended by itself meanwhile: that is as good.
        let _ = Command::new("kill").arg("-9").args(&ours).stderr(Stdio::null()).status();
    }
    // On a busy machine a process with much memory takes its time to go.
    let begin = Instant::now();
    while let Some(pid) = ours.iter().find(|pid| !has_ended(pid)) {
        assert!(begin.elapsed() < Duration::from_secs(60), "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    ours.len()
}

/// The process is gone, or only waits to be reaped. A zombie with other threads is not: they may still hold files and locks.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with('X') || rest.starts_with('Z') && threads() <= 1)
}

/// A command that runs beside the test; dropped, it is killed.
pub struct Background {
    child: Option<Child>,
    out: tempfile::NamedTempFile,
    err: tempfile::NamedTempFile,
}

impl Background {
    /// Starts `carmine COMMAND --dir DIR ARGS`.
    pub fn start(bed: &Testbed, command: &str, args: &[&str]) -> Background {
        let dir = bed.dir();
        let mut all = vec![command, "--dir", dir.to_str().expect("UTF-8")];
        all.extend(args);
        Background::spawn(bed, &carmine_bin(), &all)
    }

    fn spawn(bed: &Testbed, program: &Path, args: &[&str]) -> Background {
        let file = || tempfile::NamedTempFile::new_in(bed.root.path()).expect("a file");
        let (out, err) = (file(), file());
        let to = |file: &tempfile::NamedTempFile| Stdio::from(file.reopen().expect("a file opens again"));
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(to(&out))
            .stderr(to(&err))
            .spawn()
            .unwrap_or_else(|e| panic!("{} does not start: {e}", program.display()));
        Background { child: Some(child), out, err }
    }

    /// True while it has not ended.
    pub fn runs(&self) -> bool {
        self.child.as_ref().is_some_and(|child| Path::new(&format!("/proc/{}/exe", child.id())).exists())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Returns what the process has printed so far: its standard output, then its standard error.
    pub fn said(&self) -> String {
        let read = |file: &tempfile::NamedTempFile| std::fs::read_to_string(file.path()).unwrap_or_default();
        read(&self.out) + &read(&self.err)
    }

    /// Waits for its end; past the limit it is killed and the test fails.
    pub fn wait(mut self, limit: Duration) -> Output {
        let begin = Instant::now();
        let mut child = self.child.take().expect("it is waited for once");
        loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                let read = |file: &tempfile::NamedTempFile| std::fs::read(file.path()).unwrap_or_default();
                return Output { status, stdout: read(&self.out), stderr: read(&self.err) };
            }
            if begin.elapsed() > limit {
                self.child = Some(child);
                panic!("a command in the background did not end within {limit:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(self) {}
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Default for Testbed {
    fn default() -> Self {
        Testbed::new()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if !self.dir().exists() {
            return;
        }
        if std::thread::panicking() {
            self.print_logs();
        }
        // Its cluster may be gone, if its OSDs have joined one.
        let gone = self.run("destroy", &["--yes-i-really-mean-it"]);
        if !gone.status.success() {
            eprintln!("destroy failed: {}", String::from_utf8_lossy(&gone.stderr));
        }
    }
}

impl Testbed {
    /// The end of every log, for a test that failed.
    fn print_logs(&self) {
        for entry in std::fs::read_dir(self.dir()).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|e| e == "log") {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(30).collect();
                eprintln!("--- {}", entry.path().display());
                tail.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}

/// Runs a program with a deadline; past it the program (started here) is killed by pid and the test fails.
pub fn run(program: &Path, args: &[&str], limit: Duration) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{} does not start: {e}", program.display()));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || read_all(out));
    let err = std::thread::spawn(move || read_all(err));
    let begin = Instant::now();
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if begin.elapsed() > limit && !late {
            late = true;
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let output =
        Output { status, stdout: out.join().unwrap_or_default(), stderr: err.join().unwrap_or_default() };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!late, "{} {args:?} did not end within {limit:?}; it said: {said}", program.display());
    output
}

fn read_all(pipe: Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

/// Standard output of a run that must have succeeded.
pub fn succeed(output: Output, what: &str) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what} failed with {}\nstdout: {out}\nstderr: {err}", output.status);
    out.into_owned()
}
