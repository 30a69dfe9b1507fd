//! Starting daemons so that none is left behind when something goes wrong.

use std::ffi::OsString;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use carmine_types::OsdId;

use crate::error::{Result, failed};
use crate::files;
use crate::layout::{Daemon, Layout};
use crate::process::{self, ProcessId};

/// Lines of a dead daemon's log that an error quotes.
const TAIL_LINES: usize = 12;
/// After this a daemon that was asked to stop is ended.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(30);
/// A killed process is gone at once, unless it hangs in the kernel (a dead device).
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Daemons started by this command. Dropped before [`Daemons::keep`], it ends them all.
pub struct Daemons {
    layout: Layout,
    running: Vec<(Daemon, Child, ProcessId)>,
    kept: bool,
}

/// Command line of a daemon, after the program.
pub(crate) fn arguments(layout: &Layout, daemon: Daemon) -> Vec<OsString> {
    let mut args: Vec<OsString> = match daemon {
        Daemon::Mon => vec!["mon".into()],
        Daemon::Osd(_) => vec!["osd".into()],
    };
    args.extend(["--dir".into(), layout.dir().as_os_str().to_owned()]);
    if let Daemon::Osd(OsdId(id)) = daemon {
        args.extend(["--id".into(), id.to_string().into()]);
    }
    args
}

impl Daemons {
    /// None yet; `layout` is the folder that records them.
    pub fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone(), running: Vec::new(), kept: false }
    }

    /// Starts one daemon of the `carmine` program and records its identity in the folder.
    pub(crate) fn start(&mut self, program: &Path, daemon: Daemon) -> Result<()> {
        let log = self.layout.log(daemon);
        let child = process::spawn(program, &arguments(&self.layout, daemon), &log)?;
        self.adopt(daemon, child)
    }

    /// Takes over a process that was just started and records its identity in the folder.
    ///
    /// # Errors
    /// It ended at once (the text quotes its log), or the record cannot be written.
    pub fn adopt(&mut self, daemon: Daemon, mut child: Child) -> Result<()> {
        let Some(id) = ProcessId::of(child.id() as i32) else {
            let _ = child.wait();
            return Err(self.death(daemon, "ended at once"));
        };
        // Listed before the record is written: if that fails, the process is still ended.
        self.running.push((daemon, child, id.clone()));
        id.store(&self.layout.pid_file(daemon))
    }

    fn death(&self, daemon: Daemon, how: &str) -> crate::TestbedError {
        let log = self.layout.log(daemon);
        let tail = files::tail(&log, TAIL_LINES);
        failed!("{daemon} {how}; the end of {}:\n{tail}", log.display())
    }

    /// An error that quotes the log if one of them has ended.
    pub fn check(&mut self) -> Result<()> {
        for at in 0..self.running.len() {
            let (daemon, child, _) = &mut self.running[at];
            let daemon = *daemon;
            if let Ok(Some(status)) = child.try_wait() {
                return Err(self.death(daemon, &format!("has ended ({status})")));
            }
        }
        Ok(())
    }

    /// Lets them run on after this command.
    pub fn keep(mut self) {
        self.kept = true;
    }

    /// An error for a daemon that runs but does not get ready.
    pub fn stuck(&self, daemon: Daemon, what: &str) -> crate::TestbedError {
        self.death(daemon, what)
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for (_, _, id) in &self.running {
            let _ = id.terminate();
        }
        let end = std::time::Instant::now() + Duration::from_secs(3);
        for (daemon, child, id) in &mut self.running {
            let left = end.saturating_duration_since(std::time::Instant::now());
            if !id.wait_gone(left) {
                let _ = id.kill();
            }
            let _ = child.wait();
            let _ = files::remove_file(&self.layout.pid_file(*daemon));
        }
        let _ = files::remove_file(&self.layout.mon_addr());
    }
}

/// How a daemon ended when it was asked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// It was not running.
    NotRunning,
    /// It stopped cleanly.
    Clean,
    /// It had to be killed.
    Killed,
}

/// Stops `daemons` together: asks all, waits, ends those that do not answer. Their records are removed.
///
/// # Errors
/// A record is damaged (guessing could hit a stranger), or a process does not even end by SIGKILL.
pub fn stop(layout: &Layout, daemons: &[Daemon]) -> Result<Vec<(Daemon, Stopped)>> {
    let mut ids = Vec::new();
    for &daemon in daemons {
        let id = ProcessId::load(&layout.pid_file(daemon))?;
        let running = id.as_ref().is_some_and(ProcessId::alive);
        if let Some(id) = &id {
            id.terminate()?;
        }
        ids.push((daemon, id.filter(|_| running)));
    }
    let end = std::time::Instant::now() + STOP_LIMIT;
    let mut report = Vec::new();
    for (daemon, id) in ids {
        let how = match id {
            None => Stopped::NotRunning,
            Some(id) if id.wait_gone(end.saturating_duration_since(std::time::Instant::now())) => {
                Stopped::Clean
            }
            Some(id) => {
                id.kill()?;
                if !id.wait_gone(KILL_LIMIT) {
                    return Err(failed!(
                        "{daemon} (process {}) does not even end by SIGKILL: is its device dead?",
                        id.pid
                    ));
                }
                Stopped::Killed
            }
        };
        files::remove_file(&layout.pid_file(daemon))?;
        report.push((daemon, how));
    }
    Ok(report)
}
