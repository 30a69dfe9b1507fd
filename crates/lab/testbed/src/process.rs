//! Processes of a testbed: started apart from the terminal, known by pid *and* start time.
//!
//! A pid alone may have been given to a stranger since; with the start time from `/proc` (clock ticks
//! after boot, plus the boot id) it names one process for ever, so a stranger is never signalled.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fs_err::{self as fs, OpenOptions};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde::{Deserialize, Serialize};

use crate::error::{Result, TestbedError, failed};
use crate::layout::{Daemon, Layout};

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

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
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

impl ProcessId {
    /// Identity of the running process `pid`; `None` if it does not exist (or is a zombie).
    pub fn of(pid: i32) -> Option<Self> {
        let (state, start_ticks) = proc_stat(pid)?;
        (state != 'Z' && state != 'X').then(|| Self { pid, start_ticks, boot_id: boot_id() })
    }

    /// True while this very process runs. A zombie counts as dead: it holds no file and no port.
    pub fn alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now == *self)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.alive()) else { return Ok(()) };
        match kill_process(pid, signal) {
            Err(e) if e != rustix::io::Errno::SRCH => Err(failed!("cannot signal process {}: {e}", self.pid)),
            _ => Ok(()),
        }
    }

    /// The process of a daemon by its record, if it runs.
    pub fn running(layout: &Layout, daemon: Daemon) -> Result<Option<Self>> {
        Ok(Self::load(&layout.pid_file(daemon))?.filter(Self::alive))
    }

    /// Asks the process to stop cleanly (SIGTERM).
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Ends the process at once (SIGKILL).
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
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

    /// Writes the record at `path`.
    pub fn store(&self, path: &Path) -> Result<()> {
        crate::files::write_json(path, self)
    }

    /// Reads the record at `path`; `None` if there is none. A damaged record is an error: guessing could
    /// leave a process behind.
    pub fn load(path: &Path) -> Result<Option<Self>> {
        crate::files::read_json(path)
    }
}

/// A command that runs in /, appends its standard output and error to `log`, and has no standard input. A daemon leaves the
/// terminal's session itself (see [`detach`]).
pub(crate) fn logged(program: impl AsRef<OsStr>, log: &Path) -> Result<Command> {
    let out = OpenOptions::new().create(true).append(true).open(log)?.into_parts().0;
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).current_dir("/");
    Ok(command)
}

/// Starts a command.
///
/// # Errors
/// The text names the program.
pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(TestbedError::io("start", command.get_program()))
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

/// Called next by a daemon: writes its own record down. Whoever started it may not know its process (a wrapper lies in
/// between), or may have died meanwhile.
///
/// # Errors
/// If the same daemon runs already.
pub fn record_own(layout: &Layout, daemon: Daemon) -> Result<()> {
    let own = ProcessId::of(std::process::id() as i32)
        .ok_or_else(|| failed!("/proc does not show this process"))?;
    let path = layout.pid_file(daemon);
    match ProcessId::load(&path)?.filter(|other| *other != own && other.alive()) {
        Some(other) => {
            Err(failed!("{daemon} of {} already runs as process {}", layout.dir().display(), other.pid))
        }
        None => own.store(&path),
    }
}

/// Restricts this process (and every thread that it starts later) to `cpus`; nothing for an empty list.
pub fn restrict_to(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    const MAX: usize = rustix::thread::CpuSet::MAX_CPU;
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        if cpu >= MAX {
            return Err(failed!("CPU {cpu} is beyond the {MAX} that can be named"));
        }
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| failed!("cannot run on CPUs {cpus:?}: {e}; does this container own them?"))
}

/// Lets this process open as many files as the system allows it (the hard limit), and returns how many that are. Shells give
/// 1,024 by habit, for the sake of old programs; an OSD has a file for each table of its key-value store and each connection.
pub fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Everybody may raise it so far. If not, what is returned says it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(now).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_pid_and_start_time() {
        let me = ProcessId::of(std::process::id() as i32).unwrap();
        assert!(me.alive());
        let stranger = ProcessId { start_ticks: me.start_ticks + 1, ..me.clone() };
        assert!(!stranger.alive());
        stranger.kill().unwrap(); // must not hit this test
        let other_boot = ProcessId { boot_id: "x".into(), ..me };
        assert!(!other_boot.alive());
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = Command::new("true").spawn().unwrap();
        let id = child.id() as i32;
        let end = Instant::now() + Duration::from_secs(5);
        while ProcessId::of(id).is_some() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(ProcessId::of(id).is_none());
        child.wait().unwrap();
    }

    #[test]
    fn ends_a_child() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        id.terminate().unwrap();
        assert!(id.wait_gone(Duration::from_secs(5)));
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
}
