//! Processes of a testbed: started apart from the terminal, known by pid *and* start time; and commands that are waited for.
//!
//! A pid alone may have been given to a stranger since; together with the start time from `/proc` (clock ticks
//! after boot, plus the boot id) it names one process for ever, so a stranger is never signalled.
//!
//! A command that is waited for is bounded in time, and has a process group of its own, so that what hangs is ended with all
//! that it started.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use fs_err::{self as fs, OpenOptions};
use nix::sched::{CpuSet, sched_setaffinity};
use rustix::fs::Mode;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, kill_process_group, setrlimit,
};
use serde::{Deserialize, Serialize};

use crate::error::{Result, failed};
use crate::files::{self, read_json, write_json};
use crate::layout::{Daemon, Layout};

/// A command that was asked to stop has this long to clean up.
const TERM_LIMIT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// A killed process is gone at once, unless it hangs in the kernel (a dead device).
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);
const KILL_POLL: Duration = Duration::from_millis(1);
/// Lines of its output that a failure quotes.
const TAIL_LINES: usize = 6;
/// Bytes of its output that are searched for its error.
const SAID_BYTES: u64 = 64 << 10;

/// Identity of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`: start time in clock ticks since boot.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id` at the start.
    pub boot_id: String,
}

/// Read once: it cannot change while this process runs, and a measured window asks for it again and again.
fn boot_id() -> &'static str {
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    BOOT_ID.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
    })
}

/// State letter and start time of a process, if it exists.
fn proc_stat(pid: i32) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name stands in brackets and may hold spaces and brackets itself: cut after the last one.
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// True while other threads than the first are there: the first may be a zombie while they still hold files and locks.
fn has_threads(pid: i32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
}

impl ProcessId {
    /// Identity of the running process `pid`; `None` if it does not exist (or is a zombie).
    pub fn find(pid: i32) -> Option<Self> {
        let (state, start_ticks) = proc_stat(pid)?;
        let gone = state == 'X' || (state == 'Z' && !has_threads(pid));
        (!gone).then(|| Self { pid, start_ticks, boot_id: boot_id().to_owned() })
    }

    /// True while this very process runs. A zombie counts as dead: it holds no file and no port.
    pub fn alive(&self) -> bool {
        Self::find(self.pid).is_some_and(|now| now == *self)
    }

    /// Signals the process, if it still runs.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.alive()) else { return Ok(()) };
        match kill_process(pid, signal) {
            Err(e) if e != rustix::io::Errno::SRCH => Err(failed!("cannot signal process {}: {e}", self.pid)),
            _ => Ok(()),
        }
    }

    /// The process of a daemon by its record, if it runs. A damaged record is an error: guessing could leave a process behind.
    pub fn running(layout: &Layout, daemon: Daemon) -> Result<Option<Self>> {
        Ok(read_json(&layout.pid_file(daemon))?.filter(Self::alive))
    }

    /// Waits until the process is gone; false if it still runs after `limit`.
    pub fn wait_gone(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.alive() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// A command that runs in /, appends its standard output and error to `log`, and has no standard input. A daemon leaves the
/// terminal's session itself (see [`detach`]).
pub(crate) fn logged(program: impl AsRef<OsStr>, log: &Path) -> Result<Command> {
    let out = OpenOptions::new().create(true).append(true).mode(0o600).open(log)?.into_parts().0;
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).current_dir("/");
    Ok(command)
}

/// A program that is ended when this is dropped.
#[derive(Debug)]
pub struct Owned(pub Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // A process that has ended keeps its number until it has been waited for, so no stranger is killed.
        let _ = self.0.kill();
        let end = Instant::now() + KILL_LIMIT;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(KILL_POLL);
        }
    }
}

/// Starts a command.
///
/// # Errors
/// The text names the program.
pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|e| failed!("cannot start {}: {e}", command.get_program().display()))
}

/// Starts a command confined to `cpus`: a child inherits the affinity of the thread that starts it, so a thread of its
/// own is confined for it.
///
/// # Errors
/// The CPUs may not be used, or the program does not start.
pub fn spawn_on(command: &mut Command, cpus: &[usize]) -> Result<Child> {
    let start = || restrict_to(cpus).and_then(|()| spawn(command));
    std::thread::scope(|scope| scope.spawn(start).join())
        .unwrap_or_else(|_| Err(failed!("the thread that starts a program has died")))
}

/// The folders of all processes in `/proc`, by pid.
pub(crate) fn all() -> impl Iterator<Item = (i32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// Called first by a daemon: leaves the terminal's session, so that Ctrl-C and hang-up in the terminal
/// that started the testbed do not end it. Harmless if it already leads a session.
pub fn detach() {
    let _ = rustix::process::setsid();
}

/// Writes the record of the daemon that calls it. The process that started the daemon may not know it (a wrapper may be in
/// between), or may have died meanwhile.
///
/// # Errors
/// If the same daemon runs already.
pub fn record_own(layout: &Layout, daemon: Daemon) -> Result<()> {
    let own = ProcessId::find(std::process::id() as i32)
        .ok_or_else(|| failed!("/proc does not show this process"))?;
    match ProcessId::running(layout, daemon)?.filter(|other| *other != own) {
        Some(other) => {
            Err(failed!("{daemon} of {} already runs as process {}", layout.dir().display(), other.pid))
        }
        None => write_json(&layout.pid_file(daemon), &own),
    }
}

/// Restricts this process (and every thread that it starts later) to `cpus`; nothing for an empty list.
pub fn restrict_to(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    let allowed = cpus.iter().try_for_each(|cpu| set.set(*cpu));
    allowed
        .and_then(|()| sched_setaffinity(nix::unistd::Pid::from_raw(0), &set))
        .map_err(|e| failed!("cannot run on CPUs {cpus:?}: {e}; does this container own them?"))
}

/// What this process makes is its user's alone: stores, the monitor's state, sockets of administration.
pub fn keep_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// A crash of this process leaves no core file, in which its keys would be. One byte is a limit that the kernel obeys for files and for
/// programs that take cores (`core_pattern`); it ignores zero for these.
pub fn leave_no_core() {
    let limit = getrlimit(Resource::Core);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(1), ..limit });
}

/// Lets this process open as many files as the system allows it (the hard limit), and returns how many that are. Shells give
/// 1,024 by default, for the sake of old programs; an OSD has a file for each table of its key-value store and each connection.
pub fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Every process may raise it that far. If it fails, the returned number shows it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(now).unwrap_or(usize::MAX)
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With exit code 0.
    Ok,
    /// With another exit code, or past its limit: how, and the end of its output.
    Failed(String),
    /// `cancel` was set.
    Cancelled,
}

/// Waits for a line, and becomes the command: it gets none if its runner dies before it has written the record.
const ONCE_RECORDED: &str = r#"read -r go && exec "$@" </dev/null"#;

/// Runs a command line to its end; its output is added to `log`. Past `limit`, or when `cancel` is set, its group gets SIGTERM and
/// after 15 s SIGKILL. While it runs, `record` names its process, so that [`end_recorded`] can end it if this process is killed.
///
/// # Errors
/// If the shell that becomes the command can't be started, or the record can't be written.
pub fn run_bounded(
    line: &[OsString],
    log: &Path,
    limit: Duration,
    cancel: Option<&AtomicBool>,
    record: &Path,
) -> Result<Ended> {
    let before = log.metadata().map_or(0, |meta| meta.len());
    let mut shell = logged("sh", log)?;
    shell.args(["-c", ONCE_RECORDED, "sh"]).args(line).stdin(Stdio::piped()).process_group(0);
    let mut child = spawn(&mut shell)?;
    let id = ProcessId::find(child.id() as i32).ok_or_else(|| failed!("the shell of a command has ended"))?;
    write_json(record, &id)?;
    // A shell that does not read it has ended, and is waited for.
    let _ = child.stdin.take().map(|mut go| go.write_all(b"go\n"));
    let ended = match wait(&mut child, limit, cancel, &mut || ()) {
        Ended::Failed(how) => Ended::Failed(format!("{how}: {}", said(log, before))),
        other => other,
    };
    files::remove_file(record)?;
    Ok(ended)
}

/// Runs a tool to its end within `limit`; `told` gets each line of its standard output. If it fails, the answer says how, with its errors.
///
/// # Errors
/// It does not start, or `cancel` was set.
pub(crate) fn run_tool(
    mut tool: Command,
    limit: Duration,
    cancel: Option<&AtomicBool>,
    told: &mut dyn FnMut(String),
) -> Result<Option<(String, String)>> {
    tool.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut tool)?;
    let (out, errors) = (lines_of(child.stdout.take()), lines_of(child.stderr.take()));
    let ended = wait(&mut child, limit, cancel, &mut || out.try_iter().for_each(&mut *told));
    out.iter().for_each(told);
    match ended {
        Ended::Ok => Ok(None),
        Ended::Failed(how) => Ok(Some((how, errors.iter().collect::<Vec<_>>().join("\n")))),
        Ended::Cancelled => Err(failed!("interrupted")),
    }
}

/// Reads a pipe on a thread of its own: a full one would stop the tool.
fn lines_of(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n'));
        for line in lines.map_while(std::io::Result::ok) {
            // Nobody listens any more if the tool has left a child behind that still writes.
            let _ = tell.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    told
}

/// Waits for a child, and calls `look` meanwhile.
fn wait(child: &mut Child, limit: Duration, cancel: Option<&AtomicBool>, look: &mut dyn FnMut()) -> Ended {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ended::Ok,
            Ok(Some(status)) => return Ended::Failed(status.to_string()),
            Ok(None) => {}
            Err(e) => return Ended::Failed(format!("cannot be waited for: {e}")),
        }
        if cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            end_child(child);
            return Ended::Cancelled;
        }
        if begin.elapsed() >= limit {
            end_child(child);
            return Ended::Failed(format!("did not end within {} s", limit.as_secs()));
        }
        look();
        std::thread::sleep(POLL);
    }
}

/// Its error with what that quotes (the end of a daemon's log), or else the end of its output, on one line. The log may
/// have the output of commands before, which wrote its first `from` bytes.
fn said(log: &Path, from: u64) -> String {
    let text = files::end_of(log, from, SAID_BYTES);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // Take the first error: the text that it quotes may have errors of its own.
    let error = lines.iter().position(|line| line.starts_with("error: "));
    let (error, rest) = error.map_or((None, &lines[..]), |at| (lines.get(at), &lines[at + 1..]));
    let end = &rest[rest.len().saturating_sub(TAIL_LINES)..];
    error.into_iter().chain(end).copied().collect::<Vec<_>>().join("; ").replace(":; ", ": ")
}

/// Its group can't be a stranger's: a child keeps its number until it has been waited for.
fn end_child(child: &mut Child) {
    if let Some(id) = ProcessId::find(child.id() as i32) {
        end_group(&id);
    }
    // Children that it leaves behind.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Asks a process and its group to end, and ends them if they do not.
fn end_group(id: &ProcessId) {
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(group) = Pid::from_raw(id.pid) {
            let _ = kill_process_group(group, signal);
        }
        if id.wait_gone(TERM_LIMIT) {
            break;
        }
    }
}

/// Ends the command that `record` names, and its group, if its runner was killed and it still runs.
pub fn end_recorded(record: &Path) -> Result<()> {
    if let Some(id) = read_json(record)?.filter(ProcessId::alive) {
        end_group(&id);
    }
    files::remove_file(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_pid_and_start_time() {
        let me = ProcessId::find(std::process::id() as i32).unwrap();
        assert!(me.alive());
        let stranger = ProcessId { start_ticks: me.start_ticks + 1, ..me.clone() };
        assert!(!stranger.alive());
        stranger.signal(Signal::KILL).unwrap(); // must not hit this test
        let other_boot = ProcessId { boot_id: "x".into(), ..me };
        assert!(!other_boot.alive());
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = Command::new("true").spawn().unwrap();
        let id = child.id() as i32;
        let end = Instant::now() + Duration::from_secs(60);
        while ProcessId::find(id).is_some() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(ProcessId::find(id).is_none());
        child.wait().unwrap();
    }

    #[test]
    fn ends_a_child() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::find(child.id() as i32).unwrap();
        id.signal(Signal::TERM).unwrap();
        assert!(id.wait_gone(Duration::from_secs(60)));
        child.wait().unwrap();
    }

    #[test]
    fn a_child_is_confined_and_its_parent_is_not() {
        let before = std::thread::available_parallelism().unwrap();
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).stdout(Stdio::piped());
        let said = spawn_on(&mut command, &[0]).unwrap().wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout).split_whitespace().last(), Some("0"));
        assert_eq!(std::thread::available_parallelism().unwrap(), before);
    }

    fn run(script: &str, limit_ms: u64, cancel: Option<&AtomicBool>) -> (Ended, Duration) {
        let dir = tempfile::tempdir().unwrap();
        let line = ["sh", "-c", script].map(OsString::from);
        let begin = Instant::now();
        let (log, record) = (dir.path().join("log"), dir.path().join("record"));
        let ended = run_bounded(&line, &log, Duration::from_millis(limit_ms), cancel, &record).unwrap();
        assert!(!record.exists());
        (ended, begin.elapsed())
    }

    #[test]
    fn exit_codes_and_what_was_said() {
        assert_eq!(run("true", 60_000, None).0, Ended::Ok);
        let Ended::Failed(why) = run("echo no space; exit 3", 60_000, None).0 else { panic!() };
        assert!(why.contains('3') && why.contains("no space"), "{why}");
        let script = "echo working; echo 'error: osd.0 has ended (signal: 6); the end of osd.0.log:'; \
                      for n in 1 2 3 4 5 6 7 8; do echo error: line $n; done; exit 1";
        let Ended::Failed(why) = run(script, 60_000, None).0 else { panic!() };
        let all = "exit status: 1: error: osd.0 has ended (signal: 6); the end of osd.0.log: error: line 3; ";
        assert!(why.starts_with(all) && why.ends_with("error: line 8"), "{why}");
    }

    #[test]
    fn what_commands_before_said_is_not_its_error() {
        let dir = tempfile::tempdir().unwrap();
        let (log, record) = (dir.path().join("log"), dir.path().join("record"));
        std::fs::write(&log, "error: an old one\n").unwrap();
        let line = ["sh", "-c", "echo nothing works; exit 1"].map(OsString::from);
        let ended = run_bounded(&line, &log, Duration::from_secs(60), None, &record).unwrap();
        assert_eq!(ended, Ended::Failed("exit status: 1: nothing works".into()));
    }

    #[test]
    fn what_hangs_is_ended_with_its_children() {
        let marker = tempfile::tempdir().unwrap();
        let file = marker.path().join("child");
        let script = format!("sleep 60 & echo $! > {}; wait", file.display());
        let (ended, took) = run(&script, 500, None);
        assert!(matches!(ended, Ended::Failed(why) if why.contains("did not end")));
        assert!(took < Duration::from_secs(50));
        let child: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let gone = ProcessId::find(child).is_none_or(|id| id.wait_gone(Duration::from_secs(60)));
        assert!(gone, "process {child} is left over");
    }

    #[test]
    fn cancelled() {
        let (ended, took) = run("sleep 60", 60_000, Some(&AtomicBool::new(true)));
        assert_eq!(ended, Ended::Cancelled);
        assert!(took < Duration::from_secs(50));
    }

    #[test]
    fn nothing_begins_before_its_record_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (log, began) = (dir.path().join("log"), dir.path().join("began"));
        let line = ["touch".into(), began.clone().into_os_string()];
        let record = dir.path().join("missing/record");
        run_bounded(&line, &log, Duration::from_secs(60), None, &record).unwrap_err();
        std::thread::sleep(Duration::from_millis(300));
        assert!(!began.exists());
    }

    #[test]
    fn what_a_killed_runner_left_is_ended_by_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let line = ["sleep", "60"].map(OsString::from);
        let mut child = logged(&line[0], &dir.path().join("log")).unwrap();
        let mut child = spawn(child.args(&line[1..]).process_group(0)).unwrap();
        let record = dir.path().join("record");
        write_json(&record, &ProcessId::find(child.id() as i32).unwrap()).unwrap();
        end_recorded(&record).unwrap();
        assert!(!child.wait().unwrap().success() && !record.exists());
        end_recorded(&record).unwrap();
    }
}
