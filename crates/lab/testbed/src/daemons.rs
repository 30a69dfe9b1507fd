//! Starting daemons so that none is left behind when something goes wrong, and the command around each OSD (`--osd-wrap`), such as
//! perf, numactl or valgrind.
//!
//! A wrapper may turn into the OSD (`exec`, as numactl does) or start it as a child (as perf does). So the OSD's
//! process is not guessed from the wrapper's: the OSD writes its own record. Other processes that the wrapper has
//! started are recognised by a variable of their environment, [`MARK`], and are ended when the OSD is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carmine_types::OsdId;
use rustix::process::{Pid, Signal, getpgid};

use crate::error::{Result, fail_if, failed, usage};
use crate::files::{self, read_json, write_json};
use crate::layout::{Daemon, Layout};
use crate::network;
use crate::plan::Plan;
use crate::process::{self, KILL_LIMIT, Owned, ProcessId};
use crate::relay;
use crate::spec::NONE;
use crate::testbed::{Event, StartOptions};

/// Lines of a dead daemon's log that an error quotes.
const TAIL_LINES: usize = 20;
/// After this a daemon that was asked to stop is ended.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// The same for one of a start that has failed.
const FAILED_LIMIT: Duration = Duration::from_secs(3);
/// Time for a wrapper to end by itself after its OSD: `perf record` writes its file then.
const WRAPPER_LIMIT: Duration = Duration::from_secs(20);
/// Variable that everything a wrapper starts has: `CLUSTER/FOLDER/osd.N`.
const MARK: &str = "CARMINE_WRAPPED_OSD";
/// Stands for the OSD's number in a wrapper's words and in values of the environment.
const OSD_WORD: &str = "{osd}";
/// Time in which processes that a wrapper has left must end after SIGTERM.
const LEFT_LIMIT: Duration = Duration::from_secs(2);

/// Daemons started by this command. Dropped before [`Daemons::keep`], it ends them all.
pub(crate) struct Daemons {
    layout: Layout,
    running: Vec<Running>,
    /// OSDs that were given up.
    pub(crate) lost: Vec<Lost>,
}

/// An OSD that did not start, or that ended during the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The OSD; it does not run.
    pub osd: OsdId,
    /// How it ended, with the end of its log.
    pub why: String,
}

/// A daemon, and the process that was started for it: its own, or its wrapper's.
struct Running {
    daemon: Daemon,
    child: Owned,
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
        Self { layout: layout.clone(), running: Vec::new(), lost: Vec::new() }
    }

    /// Starts one daemon by the plan and records its identity in the folder.
    pub(crate) fn start(&mut self, plan: &Plan, programs: &Path, daemon: Daemon) -> Result<()> {
        // A record of an earlier process would be taken for the new one's.
        files::remove_file(&self.layout.pid_file(daemon))?;
        relay::start(&self.layout, plan, programs, daemon)?;
        let (osd, wrapped) = match daemon {
            Daemon::Mon(_) | Daemon::Mgr => (None, Vec::new()),
            Daemon::Osd(osd) => (Some(osd), words_for(&plan.osd_wrap, osd)),
        };
        let own = daemon.program_in(programs)?.into_os_string();
        let line = [wrapped.clone(), vec![own], arguments(&self.layout, daemon)].concat();
        let mut command = process::logged(&line[0], &self.layout.log(daemon))?;
        command.args(&line[1..]);
        command.envs(osd.map(|osd| env_for(&plan.osd_env, osd)).unwrap_or_default());
        let Some(osd) = osd.filter(|_| !wrapped.is_empty()) else {
            let child = network::within(plan, daemon, || process::spawn(&mut command))?;
            return self.adopt(daemon, child);
        };
        // In a wrapper the OSD writes its own record, whichever process it is. The wrapper does not leave the terminal's session:
        // a group of its own keeps Ctrl-C from it.
        let mark = mark(&plan.fsid, &self.layout, osd);
        command.envs([mark]).process_group(0);
        let child = network::within(plan, daemon, || process::spawn(&mut command))?;
        self.running.push(Running { daemon, child: Owned(child), id: None });
        Ok(())
    }

    /// Starts an OSD. If it does not start, the others are started without it.
    pub(crate) fn try_start(&mut self, plan: &Plan, programs: &Path, osd: OsdId) {
        if let Err(e) = self.start(plan, programs, Daemon::Osd(osd)) {
            self.give_up(osd, e.to_string());
        }
    }

    /// Ends what was started for an OSD, and continues without it.
    fn give_up(&mut self, osd: OsdId, mut why: String) {
        if let Err(e) = stop(&self.layout, &[Daemon::Osd(osd)], false) {
            why += &format!("\n{e}");
        }
        self.running.retain(|running| running.daemon != Daemon::Osd(osd));
        self.lost.push(Lost { osd, why });
    }

    /// Gives up the OSDs that have ended.
    ///
    /// # Errors
    /// The monitor or the manager has ended, or a record cannot be read.
    pub(crate) fn give_up_ended(&mut self) -> Result<()> {
        for (daemon, how) in self.ended()? {
            let death = self.death(daemon, &how);
            match daemon {
                Daemon::Mon(_) | Daemon::Mgr => return Err(death),
                Daemon::Osd(osd) => self.give_up(osd, death.to_string()),
            }
        }
        Ok(())
    }

    /// Gives up these OSDs, which had time enough.
    pub(crate) fn give_up_late(&mut self, late: &[OsdId], limit: Duration) {
        let how = format!("was not up within {} s", limit.as_secs());
        for osd in late {
            self.give_up(*osd, self.death(Daemon::Osd(*osd), &how).to_string());
        }
    }

    /// OSDs that were started and have not been given up.
    pub(crate) fn osds(&self) -> impl Iterator<Item = OsdId> {
        self.running.iter().filter_map(|running| match running.daemon {
            Daemon::Osd(osd) => Some(osd),
            Daemon::Mon(_) | Daemon::Mgr => None,
        })
    }

    /// The daemons that have ended, and how.
    fn ended(&mut self) -> Result<Vec<(Daemon, String)>> {
        let mut ended = Vec::new();
        for running in &mut self.running {
            if let Some(how) = running.ended(&self.layout)? {
                ended.push((running.daemon, how));
            }
        }
        Ok(ended)
    }

    /// Takes over a process that was just started and records its identity in the folder.
    ///
    /// # Errors
    /// It ended at once (the text quotes its log), or the record cannot be written.
    pub(crate) fn adopt(&mut self, daemon: Daemon, mut child: Child) -> Result<()> {
        let Some(id) = ProcessId::find(child.id() as i32) else {
            let status = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            return Err(self.death(daemon, &format!("ended at once ({status})")));
        };
        // Listed before the record is written: if that fails, the process is still ended.
        self.running.push(Running { daemon, child: Owned(child), id: Some(id.clone()) });
        write_json(&self.layout.pid_file(daemon), &id)
    }

    /// An error for a daemon that has ended or does not get ready, with the end of its log.
    pub(crate) fn death(&self, daemon: Daemon, how: &str) -> crate::TestbedError {
        let log = self.layout.log(daemon);
        match files::last_words(&log, TAIL_LINES) {
            said if said.is_empty() => failed!("{daemon} {how}; {} is empty", log.display()),
            said => failed!("{daemon} {how}; the end of {}:\n{said}", log.display()),
        }
    }

    /// Waits until `missing` names nothing any more, checking after each `pause`.
    ///
    /// # Errors
    /// One of them has ended, it is `end` (the text quotes the log of `daemon`), or the start is cancelled.
    pub(crate) fn wait(
        &mut self,
        mut missing: impl FnMut() -> Option<String>,
        daemon: Daemon,
        end: Instant,
        pause: Duration,
        start: &mut StartOptions<'_>,
    ) -> Result<()> {
        while let Some(what) = missing() {
            if let Some((daemon, how)) = self.ended()?.first() {
                return Err(self.death(*daemon, how));
            }
            fail_if!(start.cancel.load(Ordering::Relaxed), "interrupted");
            if Instant::now() > end {
                return Err(self.death(daemon, &format!("is not ready in time: still waiting for {what}")));
            }
            (start.events)(Event::Waiting(what));
            std::thread::sleep(pause);
        }
        Ok(())
    }

    /// Lets them run on after this command.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Running {
    /// How it ended, if it did. A wrapper may end before its daemon, which it may have put into the background.
    fn ended(&mut self, layout: &Layout) -> Result<Option<String>> {
        let mut status = self.child.0.try_wait().ok().flatten();
        if self.id.is_none() {
            self.id = read_json(&layout.pid_file(self.daemon))?;
        }
        if self.id.as_ref().is_some_and(|id| id.pid == self.child.0.id() as i32 && !id.alive()) {
            // It ended since the first look; the status of a zombie is available at once.
            status = status.or_else(|| self.child.0.wait().ok());
        }
        let is_dead = self.id.as_ref().map(|id| !id.alive());
        let how = status.map(|status| format!(" ({status})")).unwrap_or_default();
        let wrapper_left = || status.is_some() && marked(layout, &[self.daemon]).is_empty();
        Ok(match is_dead {
            Some(true) => Some(format!("has ended{how}")),
            None if wrapper_left() => Some(format!("was not started by its wrapper, which has ended{how}")),
            _ => None,
        })
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        let daemons: Vec<Daemon> = self.running.iter().map(|running| running.daemon).collect();
        let _ = stop(&self.layout, &daemons, false);
        // Also one whose record could not be written.
        self.running.clear();
        let runs = |mon| matches!(ProcessId::running(&self.layout, mon), Ok(Some(_)));
        if daemons.iter().any(|daemon| matches!(daemon, Daemon::Mon(_))) && !Daemon::mons().any(runs) {
            let _ = files::remove_file(&self.layout.mon_addr());
        }
    }
}

carmine_types::words! {
    /// How a daemon ended when it was asked to.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Stopped: "end of a daemon" {
        /// It did not run.
        NotRunning = "was not running",
        /// It stopped cleanly.
        Clean = "stopped",
        /// It had to be killed.
        Killed = "did not stop in time and was killed",
        /// It was killed, as requested.
        Crashed = "was killed",
    }
}

/// Stops `daemons` together: asks all, waits, ends those that do not answer, then their wrappers. Their records are removed.
/// Without `patience` they have a short time, and their wrappers have none.
///
/// # Errors
/// A record is damaged (guessing could hit a stranger), or a process does not end even after SIGKILL.
pub(crate) fn stop(layout: &Layout, daemons: &[Daemon], patience: bool) -> Result<Vec<(Daemon, Stopped)>> {
    let (limit, of_wrappers) =
        if patience { (STOP_LIMIT, WRAPPER_LIMIT) } else { (FAILED_LIMIT, Duration::ZERO) };
    let stopping = |daemon: &Daemon| -> Result<_> {
        let id = ProcessId::running(layout, *daemon)?;
        id.as_ref().map_or(Ok(()), |id| id.signal(Signal::TERM))?;
        Ok((*daemon, id))
    };
    let ids = daemons.iter().map(stopping).collect::<Result<Vec<_>>>()?;
    let end = Instant::now() + limit;
    let mut report = Vec::new();
    for (daemon, id) in ids {
        let how = match id {
            None => Stopped::NotRunning,
            Some(id) if id.wait_gone(end.saturating_duration_since(Instant::now())) => Stopped::Clean,
            Some(id) => {
                id.signal(Signal::KILL)?;
                let (hangs, pid) = (!id.wait_gone(KILL_LIMIT), id.pid);
                fail_if!(hangs, "{daemon} (process {pid}) survives SIGKILL: is its device dead?");
                Stopped::Killed
            }
        };
        files::remove_file(&layout.pid_file(daemon))?;
        report.push((daemon, how));
    }
    end_wrappers(layout, daemons, of_wrappers)?;
    Ok(report)
}

/// Ends daemons at once, as a crash would.
///
/// # Errors
/// Those of [`stop`].
pub(crate) fn kill(layout: &Layout, daemons: &[Daemon]) -> Result<Vec<(Daemon, Stopped)>> {
    let kill = |daemon: &Daemon| -> Result<_> {
        let id = ProcessId::running(layout, *daemon)?;
        id.as_ref().map_or(Ok(()), |id| id.signal(Signal::KILL))?;
        Ok((*daemon, if id.is_some() { Stopped::Crashed } else { Stopped::NotRunning }))
    };
    let killed = daemons.iter().map(kill).collect::<Result<_>>()?;
    stop(layout, daemons, false)?;
    Ok(killed)
}

/// The text of `--osd-wrap`, quoted as in a shell; the program becomes an absolute path, so that a later start from another
/// folder finds the same. `none` stays.
///
/// # Errors
/// Quotes that do not match, no word at all, or a program that does not exist.
pub(crate) fn found_wrapper(text: &str) -> Result<String> {
    if text.trim() == NONE {
        return Ok(NONE.to_owned());
    }
    let mut words = shlex::split(text)
        .ok_or_else(|| usage!("--osd-wrap {text}: a quote is not closed; write it as in a shell"))?;
    let Some(program) = words.first_mut() else {
        return Err(usage!("--osd-wrap is empty: name a command, or `none` to remove an earlier one"));
    };
    let path = which::which(&*program).map_err(|_| {
        usage!(
            "--osd-wrap {program}: there is no such program (in PATH if it is a name alone), or it is not executable; install \
             it, or check the path"
        )
    })?;
    *program = path.display().to_string();
    shlex::try_join(words.iter().map(String::as_str)).map_err(|e| usage!("--osd-wrap {text}: {e}"))
}

/// The words of `--osd-env`, sorted and each name once; the single word `none` gives none.
///
/// # Errors
/// A word without `=`, or without a name before it.
pub(crate) fn env_words(words: &[String]) -> Result<Vec<String>> {
    if words == [NONE] {
        return Ok(Vec::new());
    }
    let parse = |word: &String| match word.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok((name.to_owned(), word.clone())),
        _ => Err(usage!("--osd-env {word}: write NAME=VALUE (`NAME=` for an empty value)")),
    };
    let by_name = words.iter().map(parse).collect::<Result<BTreeMap<String, String>>>()?;
    Ok(by_name.into_values().collect())
}

/// The wrapper's command line before the OSD's own; none without a wrapper.
fn words_for(text: &str, osd: OsdId) -> Vec<OsString> {
    let words = if text == NONE { Vec::new() } else { shlex::split(text).unwrap_or_default() };
    words.iter().map(|word| fill_in(word, osd).into()).collect()
}

/// Variables that `--osd-env` adds to the environment of one OSD.
fn env_for(words: &[String], osd: OsdId) -> Vec<(OsString, OsString)> {
    let pairs = words.iter().filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.into(), fill_in(value, osd).into())).collect()
}

fn fill_in(word: &str, osd: OsdId) -> String {
    word.replace(OSD_WORD, &osd.0.to_string())
}

/// The variable that everything the wrapper of an OSD starts inherits. The folder's path begins with a slash.
fn mark(fsid: &str, layout: &Layout, osd: OsdId) -> (&'static str, String) {
    (MARK, format!("{fsid}{}/{osd}", layout.dir().display()))
}

/// Processes that the wrappers of these OSDs have started, they themselves and the OSDs among them.
fn marked(layout: &Layout, osds: &[Daemon]) -> Vec<ProcessId> {
    let ends: Vec<String> = osds.iter().map(|osd| format!("{}/{osd}", layout.dir().display())).collect();
    let has_mark = |dir: &Path| {
        // Readable for processes of the same user only; those of others are not ours.
        let environ = std::fs::read(dir.join("environ")).unwrap_or_default();
        let environ = String::from_utf8_lossy(&environ);
        let mark = environ.split('\0').find_map(|entry| entry.strip_prefix(MARK)?.strip_prefix('='));
        // It follows the cluster's id, which has no slash.
        let folder = mark.and_then(|mark| mark.get(mark.find('/')?..));
        folder.is_some_and(|folder| ends.iter().any(|end| end == folder))
    };
    let ours = process::all().filter(|(_, dir)| has_mark(dir));
    ours.filter_map(|(pid, _)| ProcessId::find(pid)).collect()
}

/// Ends what is left of wrappers after their OSDs have ended. The wrappers get `patience` to end by themselves; whatever
/// else they have started does not.
fn end_wrappers(layout: &Layout, osds: &[Daemon], patience: Duration) -> Result<()> {
    // A wrapper is started as the leader of a process group.
    let leads =
        |id: &&ProcessId| getpgid(Pid::from_raw(id.pid)).is_ok_and(|group| group.as_raw_pid() == id.pid);
    let end = Instant::now() + patience;
    let left = |end: Instant| end.saturating_duration_since(Instant::now());
    marked(layout, osds).iter().filter(leads).for_each(|wrapper| _ = wrapper.wait_gone(left(end)));
    let rest = marked(layout, osds);
    rest.iter().try_for_each(|process| process.signal(Signal::TERM))?;
    let end = Instant::now() + LEFT_LIMIT;
    let mut stay = rest.iter().filter(|process| !process.wait_gone(left(end)));
    stay.try_for_each(|process| process.signal(Signal::KILL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_in_a_shell_and_its_program_is_found() {
        let words = shlex::split(&found_wrapper("sh -c 'exec \"$@\"' {osd}").unwrap()).unwrap();
        assert!(words[0].starts_with('/') && words[0].ends_with("/sh"), "{words:?}");
        assert_eq!(words[1..], ["-c", "exec \"$@\"", "{osd}"]);
        let text = found_wrapper("sh -c 'exec \"$@\"' {osd}").unwrap();
        assert_eq!(words_for(&text, OsdId(7))[1..], ["-c", "exec \"$@\"", "7"]);
        assert_eq!(found_wrapper(&text).unwrap(), text, "a later start finds the same");
        assert!(found_wrapper("none").unwrap() == "none" && words_for("none", OsdId(7)).is_empty());
        for (text, part) in [
            ("", "is empty"),
            ("sh -c 'x", "quote"),
            ("no-such-program-here", "PATH"),
            ("/etc/passwd", "not executable"),
            ("./no/such", "./no/such"),
        ] {
            let error = found_wrapper(text).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn variables_need_a_name() {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let env = env_words(&words(&["C=", "A=0", "B=x=y", "A={osd}"])).unwrap();
        assert_eq!(env, ["A={osd}", "B=x=y", "C="]);
        assert_eq!(
            env_for(&env, OsdId(3))[..2],
            [("A", "3"), ("B", "x=y")].map(|(k, v)| (k.into(), v.into()))
        );
        assert!(env_words(&words(&["none"])).unwrap().is_empty());
        for bad in ["A", "=1", ""] {
            let error = env_words(&words(&[bad])).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("NAME=VALUE"), "{error}");
        }
    }

    #[test]
    fn what_a_wrapper_started_is_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        let fsid = format!("test-{}", std::process::id());
        let (osds, others) = ([Daemon::Osd(OsdId(3))], [Daemon::Osd(OsdId(13)), Daemon::MON]);
        let mark = mark(&fsid, &layout, OsdId(3));
        let mut child = std::process::Command::new("sleep").arg("60").envs([mark]).spawn().unwrap();
        // The variable is there from the exec on.
        let limit = Instant::now() + Duration::from_secs(60);
        while marked(&layout, &osds).is_empty() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(marked(&layout, &osds), [ProcessId::find(child.id() as i32).unwrap()]);
        assert_eq!(marked(&layout, &others), []);
        end_wrappers(&layout, &osds, Duration::ZERO).unwrap();
        assert_eq!(marked(&layout, &osds), []);
        child.wait().unwrap();
    }
}
