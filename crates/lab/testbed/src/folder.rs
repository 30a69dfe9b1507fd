//! A folder with a plan, which one command at a time works on: a testbed's or a peer's.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use carmine_types::OsdId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::daemons::{Stopped, stop};
use crate::error::{Result, TestbedError, failed, usage};
use crate::layout::{Daemon, Layout};
use crate::process::ProcessId;
use crate::{confine, files, places, ruin};

/// A plan that is kept in a folder.
pub trait FolderPlan: Serialize + DeserializeOwned {
    /// Number of its format; another one is refused.
    const FORMAT: u32;
    /// Its file in the folder.
    const FILE: &'static str;
    /// The word for a thing that is planned so.
    const WHAT: &'static str;
    /// The command whose subcommands start, stop and destroy it.
    const COMMAND: &'static str;

    /// OSD processes.
    fn osds(&self) -> u32;

    /// True once all that it needs on disk is made.
    fn is_complete(&self) -> bool;

    /// Files in the folder that are made beside those of every plan.
    fn own_files(&self, layout: &Layout) -> Vec<PathBuf>;
}

/// A folder with a plan, locked by this command.
#[derive(Debug)]
pub struct Bed<P> {
    pub(crate) layout: Layout,
    pub(crate) plan: P,
    _lock: File,
}

impl<P: FolderPlan> Bed<P> {
    /// Takes an empty or absent folder, writes the plan there and lets `fill` make the rest. If that fails, what was made is
    /// removed again.
    pub(crate) fn make(layout: &Layout, plan: P, fill: impl FnOnce(&mut Self) -> Result<()>) -> Result<Self> {
        let (layout, lock, existed) = take_new(layout, P::WHAT)?;
        let mut bed = Self { layout, plan, _lock: lock };
        if let Err(e) = bed.write_plan().and_then(|()| fill(&mut bed)) {
            bed.remove_files()?;
            if !existed {
                let _ = fs::remove_dir(bed.layout.dir());
            }
            return Err(e);
        }
        Ok(bed)
    }

    /// Opens an existing one; `None` if the folder holds none.
    ///
    /// # Errors
    /// Another command works on it, or its plan is damaged.
    pub fn open(layout: Layout) -> Result<Option<Self>> {
        if load::<P>(&layout)?.is_none() {
            return Ok(None);
        }
        let lock = lock(&layout)?;
        // Read again under the lock: another command may have changed it meanwhile.
        let Some(plan) = load(&layout)? else { return Ok(None) };
        ruin::restore_records(&layout)?;
        Ok(Some(Self { layout, plan, _lock: lock }))
    }

    /// The plan.
    pub fn plan(&self) -> &P {
        &self.plan
    }

    /// Paths of its files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes over a revised plan for the next start.
    pub fn set_plan(&mut self, plan: P) -> Result<()> {
        self.plan = plan;
        self.write_plan()
    }

    pub(crate) fn write_plan(&self) -> Result<()> {
        files::write_json(&self.layout.dir().join(P::FILE), &self.plan)
    }

    /// Fails unless it is whole and nothing of it runs.
    pub fn require_stopped(&self) -> Result<()> {
        if !self.plan.is_complete() {
            return Err(failed!(
                "{dir}: an earlier `{0} up` was interrupted while it made this {1}; `{0} destroy --dir {dir}` removes it",
                P::COMMAND,
                P::WHAT,
                dir = self.layout.dir().display()
            ));
        }
        self.require_nothing_runs()
    }

    pub(crate) fn require_nothing_runs(&self) -> Result<()> {
        let (running, dir) = (running(&self.layout, &self.plan)?, self.layout.dir().display());
        if running.len() == daemons_of(self.plan.osds()).len() {
            return Err(usage!(
                "the {} in {dir} already runs; see `{} status --dir {dir}`",
                P::WHAT,
                P::COMMAND
            ));
        }
        if !running.is_empty() {
            let names: Vec<String> = running.iter().map(ToString::to_string).collect();
            let (what, command, names) = (P::WHAT, P::COMMAND, names.join(", "));
            return Err(failed!(
                "of the {what} in {dir} these still run: {names}; `{command} down --dir {dir}` stops them, then \
                 `{command} up --dir {dir}` starts all"
            ));
        }
        Ok(())
    }

    /// Stops all processes; the data stays.
    pub fn stop(&mut self) -> Result<Vec<(Daemon, Stopped)>> {
        stop_daemons(&self.layout, &daemons_of(self.plan.osds()))
    }

    /// Stops all processes and removes all files that were made; a file that was not made here stays, and so does
    /// the folder then. Named devices are not touched.
    pub fn destroy(mut self) -> Result<()> {
        self.stop()?;
        self.remove_files()?;
        let _ = fs::remove_dir(self.layout.dir());
        Ok(())
    }

    pub(crate) fn remove_files(&self) -> Result<()> {
        let osds = (0..self.plan.osds()).map(OsdId);
        remove_files(&self.layout, P::FILE, osds, self.plan.own_files(&self.layout))
    }
}

/// Reads the plan of a folder; `None` if there is none.
///
/// # Errors
/// It cannot be read, is damaged, or has another format.
pub(crate) fn load<P: FolderPlan>(layout: &Layout) -> Result<Option<P>> {
    read_plan(&layout.dir().join(P::FILE), P::FORMAT)
}

/// Reads the plan of a folder that must have one.
pub(crate) fn require<P: FolderPlan>(layout: &Layout) -> Result<P> {
    load(layout)?.ok_or_else(|| {
        let dir = layout.dir().display();
        usage!("there is no {} in {dir}: start one with `{} up --dir {dir}`", P::WHAT, P::COMMAND)
    })
}

/// The daemons that run now.
pub fn running<P: FolderPlan>(layout: &Layout, plan: &P) -> Result<Vec<Daemon>> {
    let mut list = Vec::new();
    for daemon in daemons_of(plan.osds()) {
        list.extend(ProcessId::running(layout, daemon)?.map(|_| daemon));
    }
    Ok(list)
}

/// Removes the files of every plan with these OSDs, and `others`.
pub(crate) fn remove_files(
    layout: &Layout,
    plan_file: &str,
    osds: impl IntoIterator<Item = OsdId>,
    others: impl IntoIterator<Item = PathBuf>,
) -> Result<()> {
    for id in osds {
        places::remove_db(layout, id)?;
        places::remove_wal(layout, id)?;
        files::remove_dir(&layout.osd_dir(id))?;
        files::remove_file(&layout.admin_socket(id))?;
        files::remove_file(&layout.log(Daemon::Osd(id)))?;
    }
    files::remove_dir(&layout.mon_dir())?;
    files::remove_dir(&layout.run_dir())?;
    // The plan goes last but one: until then an interrupted removal can be repeated.
    let last = [layout.log(Daemon::Mon), layout.ceph_conf(), layout.dir().join(plan_file), layout.lock()];
    others.into_iter().chain(last).try_for_each(|file| files::remove_file(&file))
}

/// Takes the lock that is held while a command starts, stops or removes a testbed, or says who else may hold it. The folder must
/// exist. The kernel releases it with the process, so a killed command leaves no stale lock. Daemons do not inherit it (the file
/// is close-on-exec).
pub(crate) fn lock(layout: &Layout) -> Result<File> {
    let path = layout.lock();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(TestbedError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(failed!(
            "another carmine command is working on {} (it holds {}): wait for it, or end it",
            layout.dir().display(),
            path.display()
        )),
        Err(TryLockError::Error(e)) => Err(TestbedError::io("lock", &path)(e)),
    }
}

/// Fails if something new cannot be made in this folder because there is something in it. Worth asking before work that
/// takes hours. `what` is a testbed or a peer.
///
/// # Errors
/// Names what is there.
pub fn refuse_used_folder(dir: &Path, what: &str) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(TestbedError::io("read", dir))?,
    };
    for entry in entries {
        let name = entry.map_err(TestbedError::io("read", dir))?.file_name();
        if name != "lock" {
            return Err(usage!(
                "{} is not empty (it has {}) and holds no {what}: name another folder with --dir; nothing was changed",
                dir.display(),
                name.display()
            ));
        }
    }
    Ok(())
}

/// Takes a folder for something new: makes it if there is none, and locks it. The flag tells whether it existed.
///
/// # Errors
/// There is something in it, or another command works on it.
fn take_new(layout: &Layout, what: &str) -> Result<(Layout, File, bool)> {
    refuse_used_folder(layout.dir(), what)?;
    let existed = layout.dir().exists();
    fs::create_dir_all(layout.dir()).map_err(TestbedError::io("create", layout.dir()))?;
    let layout = Layout::new(layout.dir())?;
    let lock = lock(&layout)?;
    // Another command may have been quicker.
    refuse_used_folder(layout.dir(), what)?;
    Ok((layout, lock, existed))
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// True if a plan can be read so far that it is of another format.
pub(crate) fn has_other_format(path: &Path, format: u32) -> bool {
    files::read_json::<Format>(path).is_ok_and(|found| found.is_some_and(|found| found.format != format))
}

fn read_plan<P: DeserializeOwned>(path: &Path, format: u32) -> Result<Option<P>> {
    match files::read_json::<Format>(path)? {
        None => Ok(None),
        Some(Format { format: other }) if other != format => Err(failed!(
            "{} has format {other}, this carmine reads {format}: use the carmine that made it",
            path.display()
        )),
        Some(_) => files::read_json(path),
    }
}

/// The daemons of so many OSDs, OSDs first: the order in which they are stopped.
pub(crate) fn daemons_of(osds: u32) -> Vec<Daemon> {
    (0..osds).map(|id| Daemon::Osd(OsdId(id))).chain([Daemon::Mon]).collect()
}

/// Stops these: OSDs first, then the monitor, and what confined them.
pub(crate) fn stop_daemons(layout: &Layout, daemons: &[Daemon]) -> Result<Vec<(Daemon, Stopped)>> {
    let (osds, mon): (Vec<_>, Vec<_>) = daemons.iter().copied().partition(|d| *d != Daemon::Mon);
    let mut report = stop(layout, &osds)?;
    report.extend(stop(layout, &mon)?);
    files::remove_file(&layout.mon_addr())?;
    confine::remove(layout)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_other_things_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("bed")).unwrap();
        assert!(!take_new(&layout, "testbed").unwrap().2);
        assert!(take_new(&layout, "testbed").unwrap().2, "a lock alone is nothing");
        fs::write(layout.dir().join("thesis.tex"), "").unwrap();
        let error = take_new(&layout, "peer").unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("thesis.tex"), "{error}");
        assert!(error.to_string().contains("holds no peer"), "{error}");
    }

    #[test]
    fn a_damaged_or_other_plan_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let read = || read_plan::<serde_json::Value>(&path, 1);
        assert!(read().unwrap().is_none());
        fs::write(&path, "{\"format\": 1").unwrap();
        assert!(read().unwrap_err().to_string().contains("damaged"));
        fs::write(&path, "{\"format\": 2}").unwrap();
        assert!(read().unwrap_err().to_string().contains("has format 2, this carmine reads 1"));
        fs::write(&path, "{\"format\": 1, \"x\": 5}").unwrap();
        assert_eq!(read().unwrap().unwrap()["x"], 5);
    }
}
