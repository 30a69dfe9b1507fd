//! Starting daemons so that none is left behind when something goes wrong.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carmine_types::OsdId;

use crate::error::{Result, failed};
use crate::files;
use crate::layout::{Daemon, DaemonPrograms, Layout};
use crate::plan::Plan;
use crate::process::{self, ProcessId};
use crate::testbed::{Event, StartOptions};
use crate::wrap::{self, Wrapper};

/// Lines of a dead daemon's log that an error quotes.
const TAIL_LINES: usize = 20;
/// After this a daemon that was asked to stop is ended.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// The same for one of a start that has failed.
const FAILED_LIMIT: Duration = Duration::from_secs(3);
/// A killed process is gone at once, unless it hangs in the kernel (a dead device).
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Time for a wrapper to end by itself after its OSD: `perf record` writes its file then.
const WRAPPER_LIMIT: Duration = Duration::from_secs(20);

/// Daemons started by this command. Dropped before [`Daemons::keep`], it ends them all.
pub(crate) struct Daemons {
    layout: Layout,
    running: Vec<Started>,
    kept: bool,
}

/// A daemon, and the process that was started for it: its own, or its wrapper's.
struct Started {
    daemon: Daemon,
    child: Child,
    /// `None` until a daemon in a wrapper has written its record.
    id: Option<ProcessId>,
}

/// Command line of a daemon, after the program.
pub(crate) fn arguments(layout: &Layout, daemon: Daemon) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["--dir".into(), layout.dir().as_os_str().to_owned()];
    if let Daemon::Osd(OsdId(id)) = daemon {
        args.extend(["--id".into(), id.to_string().into()]);
    }
    args
}

impl Daemons {
    /// None yet; `layout` is the folder that records them.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone(), running: Vec::new(), kept: false }
    }

    /// Starts one daemon by the plan and records its identity in the folder.
    pub(crate) fn start(&mut self, plan: &Plan, programs: &DaemonPrograms, daemon: Daemon) -> Result<()> {
        // A record of an earlier life would be taken for the new one's.
        files::remove_file(&self.layout.pid_file(daemon))?;
        let (log, own) = (self.layout.log(daemon), programs.of(daemon)?);
        let (osd, wrapped) = match daemon {
            Daemon::Mon => (None, Vec::new()),
            Daemon::Osd(osd) => (Some(osd), wrap::words_for(&plan.osd_wrap, osd)),
        };
        let line: Vec<OsString> =
            wrapped.iter().cloned().chain([own.into()]).chain(arguments(&self.layout, daemon)).collect();
        let mut command = process::logged(&line[0], &log)?;
        command.args(&line[1..]);
        command.envs(osd.map(|osd| wrap::env_for(&plan.osd_env, osd)).unwrap_or_default());
        let Some(osd) = osd.filter(|_| !wrapped.is_empty()) else {
            return self.adopt(daemon, process::spawn(&mut command)?);
        };
        // In a wrapper the OSD writes its own record, whichever process it is. The wrapper does not leave the terminal's session:
        // a group of its own keeps Ctrl-C from it.
        let mut wrapper = Wrapper::new(&plan.fsid, osd);
        wrapper.store(&self.layout)?;
        let child = process::spawn(command.envs([wrapper.mark()]).process_group(0))?;
        wrapper.process = ProcessId::of(child.id() as i32);
        self.running.push(Started { daemon, child, id: None });
        wrapper.store(&self.layout)
    }

    /// Takes over a process that was just started and records its identity in the folder.
    ///
    /// # Errors
    /// It ended at once (the text quotes its log), or the record cannot be written.
    pub(crate) fn adopt(&mut self, daemon: Daemon, mut child: Child) -> Result<()> {
        let Some(id) = ProcessId::of(child.id() as i32) else {
            let status = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            return Err(self.death(daemon, &format!("ended at once ({status})")));
        };
        // Listed before the record is written: if that fails, the process is still ended.
        self.running.push(Started { daemon, child, id: Some(id.clone()) });
        id.store(&self.layout.pid_file(daemon))
    }

    /// An error for a daemon that has ended or does not get ready, with the end of its log.
    pub(crate) fn death(&self, daemon: Daemon, how: &str) -> crate::TestbedError {
        let log = self.layout.log(daemon);
        match files::last_words(&log, TAIL_LINES) {
            said if said.is_empty() => failed!("{daemon} {how}; {} is empty", log.display()),
            said => failed!("{daemon} {how}; the end of {}:\n{said}", log.display()),
        }
    }

    /// An error that quotes the log if one of them has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        for at in 0..self.running.len() {
            if let Some(how) = self.running[at].ended(&self.layout)? {
                return Err(self.death(self.running[at].daemon, &how));
            }
        }
        Ok(())
    }

    /// Waits until `missing` names nothing any more, looking after each `pause`.
    ///
    /// # Errors
    /// One of them ends, it is `end`, or the start is cancelled.
    pub(crate) fn wait(
        &mut self,
        daemon: Daemon,
        start: &mut StartOptions<'_>,
        end: Instant,
        pause: Duration,
        mut missing: impl FnMut() -> Option<String>,
    ) -> Result<()> {
        while let Some(what) = missing() {
            self.check()?;
            if start.cancel.load(Ordering::Relaxed) {
                return Err(failed!("interrupted"));
            }
            if Instant::now() > end {
                return Err(self.death(daemon, &format!("is not ready in time: still waiting for {what}")));
            }
            (start.events)(Event::Waiting(what));
            std::thread::sleep(pause);
        }
        Ok(())
    }

    /// Lets them run on after this command.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Started {
    /// How it ended, if it did. A wrapper may end before its daemon: it may have put that into the background.
    fn ended(&mut self, layout: &Layout) -> Result<Option<String>> {
        let mut status = self.child.try_wait().ok().flatten();
        if self.id.is_none() {
            self.id = ProcessId::load(&layout.pid_file(self.daemon))?;
        }
        if self.id.as_ref().is_some_and(|id| id.pid == self.child.id() as i32 && !id.alive()) {
            // It ended since the first look; a zombie tells its status at once.
            status = status.or_else(|| self.child.wait().ok());
        }
        Ok(match (&self.id, status) {
            (Some(id), None) if !id.alive() => Some("has ended".to_owned()),
            (Some(id), Some(status)) if !id.alive() => Some(format!("has ended ({status})")),
            (None, Some(status)) if !Wrapper::of(layout, self.daemon)?.is_some_and(|w| w.works()) => {
                Some(format!("was not started by its wrapper, which has ended ({status})"))
            }
            _ => None,
        })
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let daemons: Vec<Daemon> = self.running.iter().map(|started| started.daemon).collect();
        let _ = stop(&self.layout, &daemons, false);
        // Also one whose record could not be written.
        for Started { child, .. } in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        if daemons.contains(&Daemon::Mon) {
            let _ = files::remove_file(&self.layout.mon_addr());
        }
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

/// Stops `daemons` together: asks all, waits, ends those that do not answer, then their wrappers. Their records are removed.
/// Without `patience` they have a short time, and their wrappers none.
///
/// # Errors
/// A record is damaged (guessing could hit a stranger), or a process does not even end by SIGKILL.
pub(crate) fn stop(layout: &Layout, daemons: &[Daemon], patience: bool) -> Result<Vec<(Daemon, Stopped)>> {
    let (limit, of_wrappers) =
        if patience { (STOP_LIMIT, WRAPPER_LIMIT) } else { (FAILED_LIMIT, Duration::ZERO) };
    let mut ids = Vec::new();
    for &daemon in daemons {
        let id = ProcessId::running(layout, daemon)?;
        id.as_ref().map_or(Ok(()), ProcessId::terminate)?;
        ids.push((daemon, id));
    }
    let end = Instant::now() + limit;
    let mut report = Vec::new();
    for (daemon, id) in ids {
        let how = match id {
            None => Stopped::NotRunning,
            Some(id) if id.wait_gone(end.saturating_duration_since(Instant::now())) => Stopped::Clean,
            Some(id) => {
                id.kill()?;
                if !id.wait_gone(KILL_LIMIT) {
                    let pid = id.pid;
                    return Err(failed!(
                        "{daemon} (process {pid}) does not even end by SIGKILL: is its device dead?"
                    ));
                }
                Stopped::Killed
            }
        };
        if let Some(wrapper) = Wrapper::of(layout, daemon)? {
            wrapper.end(layout, of_wrappers)?;
        }
        files::remove_file(&layout.pid_file(daemon))?;
        report.push((daemon, how));
    }
    Ok(report)
}
