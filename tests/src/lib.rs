//! Helpers of the whole-system tests: the binary under test and a testbed that is gone when the test ends.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests start processes and read files

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The workspace's root folder.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// The `carmine` binary: `CARMINE_BIN`, or the one beside the test's own executable (scripts/test builds it first).
pub fn carmine_bin() -> PathBuf {
    if let Some(path) = std::env::var_os("CARMINE_BIN") {
        return path.into();
    }
    let bin = target_dir().join("carmine");
    assert!(
        bin.exists(),
        "{} is missing: run `cargo build -p carmine-cli` first (scripts/test does)",
        bin.display()
    );
    bin
}

/// The folder of the profile that the tests were built with: on a disk, which /tmp may not be (O_DIRECT).
fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has an executable");
    exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_path_buf()
}

/// Testbeds share two CPUs and the disk with each other: within one test binary they run one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A testbed in a fresh folder; dropping it stops every process and removes the folder.
pub struct Testbed {
    root: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Testbed {
    /// A fresh folder, nothing started.
    pub fn new() -> Testbed {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let root = tempfile::tempdir_in(target_dir()).expect("a folder on a disk");
        Testbed { root, _turn: turn }
    }

    /// A started testbed: `up` with these options.
    pub fn up(options: &[&str]) -> Testbed {
        let bed = Testbed::new();
        bed.ok("up", options);
        bed
    }

    /// The testbed's folder.
    pub fn dir(&self) -> PathBuf {
        self.root.path().join("bed")
    }

    /// Runs `carmine COMMAND --dir DIR ARGS`; at most two minutes.
    pub fn run(&self, command: &str, args: &[&str]) -> Output {
        let dir = self.dir();
        let mut all = vec![command, "--dir", dir.to_str().expect("UTF-8")];
        all.extend(args);
        run(&carmine_bin(), &all, Duration::from_secs(120))
    }

    /// The same, which must succeed; returns its standard output.
    pub fn ok(&self, command: &str, args: &[&str]) -> String {
        succeed(self.run(command, args), &format!("carmine {command} {args:?}"))
    }

    /// Runs Debian's `rados` against the testbed; at most two minutes.
    pub fn rados(&self, args: &[&str]) -> Output {
        let conf = self.dir().join("ceph.conf");
        let mut all = vec!["-c", conf.to_str().expect("UTF-8"), "-p", "bench"];
        all.extend(args);
        run(Path::new("rados"), &all, Duration::from_secs(120))
    }

    /// The same, which must succeed.
    pub fn rados_ok(&self, args: &[&str]) -> String {
        succeed(self.rados(args), &format!("rados {args:?}"))
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
        let gone = self.run("destroy", &[]);
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

/// Whether a program is installed; if not, says why the test is skipped.
pub fn installed(program: &str, package: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        eprintln!("SKIPPED: {program} is not installed (package {package})");
    }
    found
}
