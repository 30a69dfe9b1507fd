//! A folder with a plan, which one command at a time works on: a testbed's or a peer's.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use carmine_types::OsdId;
use fs_err as fs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::daemons::{Stopped, arguments, stop};
use crate::error::{Result, TestbedError, failed, refuse, usage};
use crate::layout::{Daemon, Layout};
use crate::peer::PeerPlan;
use crate::plan::{PLAN_FORMAT, Plan};
use crate::process::{self, ProcessId};
use crate::{confine, files, places};

/// A plan that is kept in a folder.
pub trait FolderPlan: Serialize + DeserializeOwned {
    /// Its file in the folder.
    const FILE: &'static str;
    /// The word for a thing that is planned so.
    const WHAT: &'static str;
    /// The command whose subcommands start, stop and destroy it.
    const COMMAND: &'static str;

    /// The part that every plan has.
    fn base(&self) -> &Plan;
}

/// The files of all plans.
const PLAN_FILES: [&str; 2] = [Plan::FILE, PeerPlan::FILE];

/// A folder with a plan, locked by this command.
#[derive(Debug)]
pub struct Bed<P> {
    pub(crate) layout: Layout,
    pub(crate) plan: P,
    _lock: File,
}

impl<P> Bed<P> {
    /// Paths of its files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Stops all processes that have left a name in the folder, or whose command line names it; the data stays.
    ///
    /// # Errors
    /// A daemon does not end.
    pub fn stop(&self) -> Result<Vec<(Daemon, Stopped)>> {
        restore_records(&self.layout)?;
        let osds: Vec<Daemon> = osds_in(&self.layout).into_iter().map(Daemon::Osd).collect();
        let mut report = stop(&self.layout, &osds, true)?;
        report.extend(stop(&self.layout, &[Daemon::Mon], true)?);
        files::remove_file(&self.layout.mon_addr())?;
        confine::remove(&self.layout)?;
        Ok(report)
    }

    /// Stops all processes and removes all files that were made, by their names; a file that was not made here stays, and so
    /// does the folder then. Named devices are not touched.
    ///
    /// # Errors
    /// Another version made it: that one knows what there is to remove.
    pub fn destroy(self) -> Result<()> {
        for plan in PLAN_FILES {
            refuse_other_format(&self.layout.dir().join(plan))?;
        }
        self.stop()?;
        self.remove_files()?;
        let _ = fs::remove_dir(self.layout.dir());
        Ok(())
    }

    pub(crate) fn remove_files(&self) -> Result<()> {
        let layout = &self.layout;
        for id in osds_in(layout) {
            places::remove_db(layout, id)?;
            places::remove_wal(layout, id)?;
            // There are no more shared block files than OSDs. Its folder goes last: it tells that there is this OSD.
            let others = [layout.admin_socket(id), layout.log(Daemon::Osd(id)), layout.device_file(id.0)];
            others.iter().try_for_each(|file| files::remove_file(file))?;
            files::remove_dir(&layout.osd_dir(id))?;
        }
        files::remove_dir(&layout.mon_dir())?;
        files::remove_dir(&layout.run_dir())?;
        // The plan goes last but one: until then an interrupted removal can be repeated.
        let last =
            ["monmap", "mon.a.log", "mon.log", "ceph.conf"].into_iter().chain(PLAN_FILES).chain(["lock"]);
        last.into_iter().try_for_each(|name| files::remove_file(&layout.dir().join(name)))
    }
}

impl<P: FolderPlan> Bed<P> {
    /// Takes an empty or absent folder, writes the plan there and lets `fill` make the rest. If that fails, what was made is
    /// removed again.
    pub(crate) fn make(layout: &Layout, plan: P, fill: impl FnOnce(&mut Self) -> Result<()>) -> Result<Self> {
        refuse_used_folder(layout.dir(), P::WHAT)?;
        let existed = layout.dir().exists();
        fs::create_dir_all(layout.dir())?;
        let layout = Layout::new(layout.dir())?;
        let lock = lock(&layout)?;
        // Another command may have been quicker.
        refuse_used_folder(layout.dir(), P::WHAT)?;
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

    /// Makes the folders in which its processes and stores live.
    pub(crate) fn make_folders(&self) -> Result<()> {
        let stores = (0..self.plan.base().osds()).map(|id| self.layout.osd_dir(OsdId(id)));
        let mut folders = stores.chain([self.layout.run_dir(), self.layout.mon_dir()]);
        Ok(folders.try_for_each(fs::create_dir_all)?)
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
        restore_records(&layout)?;
        Ok(Some(Self { layout, plan, _lock: lock }))
    }

    /// The plan.
    pub fn plan(&self) -> &P {
        &self.plan
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
        if !self.plan.base().complete {
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
        let (what, command, dir) = (P::WHAT, P::COMMAND, self.layout.dir().display());
        let (running, missing) = self.parts()?;
        let runs = missing.is_empty();
        refuse!(runs, "the {what} in {dir} already runs; see `{command} status --dir {dir}`");
        if !running.is_empty() {
            let names = running.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(failed!(
                "of the {what} in {dir} these still run: {names}; `{command} down --dir {dir}` stops them, then \
                 `{command} up --dir {dir}` starts all"
            ));
        }
        Ok(())
    }

    /// The daemons that run and those that do not.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn parts(&self) -> Result<(Vec<Daemon>, Vec<Daemon>)> {
        let running = running(&self.layout, &self.plan)?;
        let all = daemons_of(self.plan.base().osds());
        let missing = all.into_iter().filter(|daemon| !running.contains(daemon)).collect();
        Ok((running, missing))
    }
}

/// Reads the plan of a folder; `None` if there is none.
///
/// # Errors
/// It cannot be read, is damaged, or has another format.
pub(crate) fn load<P: FolderPlan>(layout: &Layout) -> Result<Option<P>> {
    let path = layout.dir().join(P::FILE);
    refuse_other_format(&path)?;
    files::read_json(&path)
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
    for daemon in daemons_of(plan.base().osds()) {
        list.extend(ProcessId::running(layout, daemon)?.map(|_| daemon));
    }
    Ok(list)
}

/// Takes the lock that is held while a command starts, stops or removes a testbed, or says who else may hold it. The folder must
/// exist. The kernel releases it with the process, so a killed command leaves no stale lock. Daemons do not inherit it (the file
/// is close-on-exec).
fn lock(layout: &Layout) -> Result<File> {
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
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let name = entry?.file_name();
        refuse!(
            name != "lock",
            "{} is not empty (it has {}) and holds no {what}: name another folder with --dir; nothing was changed",
            dir.display(),
            name.display()
        );
    }
    Ok(())
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// Fails if a plan can be read so far that it is of another format.
fn refuse_other_format(path: &Path) -> Result<()> {
    match files::read_json(path) {
        Ok(Some(Format { format })) if format != PLAN_FORMAT => Err(failed!(
            "{} has format {format}, this carmine reads {PLAN_FORMAT}: use the carmine that made it",
            path.display()
        )),
        _ => Ok(()),
    }
}

/// The daemons of this number of OSDs, OSDs first: the order in which they are stopped.
pub(crate) fn daemons_of(osds: u32) -> Vec<Daemon> {
    (0..osds).map(|id| Daemon::Osd(OsdId(id))).chain([Daemon::Mon]).collect()
}

/// A testbed whose plan cannot be read, with its folder locked: its files and its processes are still known by name, so it can be
/// stopped and removed.
pub type Ruin = Bed<Damage>;

/// Why a plan cannot be read.
#[derive(Debug)]
pub struct Damage(String);

impl Ruin {
    /// Opens the folder of a testbed without a readable plan: one that is damaged, or one that is missing while daemons run.
    /// `None` for any other folder.
    ///
    /// # Errors
    /// Another command works on the folder.
    pub fn open(layout: Layout) -> Result<Option<Self>> {
        let why = match load::<Plan>(&layout) {
            Ok(Some(_)) => return Ok(None),
            Ok(None) if find_strays(&layout).is_empty() => return Ok(None),
            Ok(None) => format!("{} is missing", layout.plan().display()),
            Err(e) => e.to_string(),
        };
        let _lock = lock(&layout)?;
        Ok(Some(Self { layout, plan: Damage(why), _lock }))
    }

    /// Why its plan cannot be read.
    pub fn why(&self) -> &str {
        &self.plan.0
    }
}

/// Numbers of the OSDs that have left a name in the folder.
fn osds_in(layout: &Layout) -> BTreeSet<OsdId> {
    let folders = [layout.dir().to_path_buf(), layout.run_dir()];
    let entries = folders.into_iter().flat_map(fs::read_dir).flatten().flatten();
    let number = |name: String| name.strip_prefix("osd.")?.split('.').next()?.parse().ok().map(OsdId);
    entries.filter_map(|entry| number(entry.file_name().into_string().ok()?)).collect()
}

/// The daemons of this folder that run. A process is one of them if its command line is the one that a daemon of this very
/// folder is started with, and its program has the name of the daemon's.
fn find_strays(layout: &Layout) -> Vec<(Daemon, ProcessId)> {
    let strays = process::all().filter_map(|(pid, dir)| {
        // The identity first: if the pid is reused after this, the identity matches no process.
        let id = ProcessId::of(pid)?;
        let daemon = daemon_of(layout, &dir)?;
        id.alive().then_some((daemon, id))
    });
    strays.collect()
}

fn daemon_of(layout: &Layout, process: &Path) -> Option<Daemon> {
    let line = fs::read(process.join("cmdline")).ok()?;
    let words: Vec<&[u8]> = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
    let daemon = match words.as_slice() {
        [_, b"--dir", _] => Daemon::Mon,
        [_, b"--dir", _, b"--id", number] => {
            Daemon::Osd(OsdId(std::str::from_utf8(number).ok()?.parse().ok()?))
        }
        _ => return None,
    };
    let is_ours = words[1..].iter().copied().eq(arguments(layout, daemon).iter().map(|word| word.as_bytes()));
    // A process of another user shows no name here; it cannot be signalled either, and the error says so.
    let program = fs::read_link(process.join("exe")).ok();
    // The name of a file that was replaced since ends in " (deleted)".
    let is_daemon = program.is_none_or(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(daemon.program()))
    });
    (is_ours && is_daemon).then_some(daemon)
}

/// Writes the records of daemons anew that run and have none, or a damaged one.
///
/// # Errors
/// A record cannot be written.
fn restore_records(layout: &Layout) -> Result<()> {
    for (daemon, id) in find_strays(layout) {
        let path = layout.pid_file(daemon);
        if !ProcessId::load(&path).is_ok_and(|record| record.is_some_and(|record| record.alive())) {
            fs::create_dir_all(layout.run_dir())?;
            id.store(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_other_things_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("bed")).unwrap();
        refuse_used_folder(layout.dir(), "testbed").unwrap();
        fs::create_dir(layout.dir()).unwrap();
        let _lock = lock(&layout).unwrap();
        refuse_used_folder(layout.dir(), "testbed").expect("a lock alone is nothing");
        fs::write(layout.dir().join("thesis.tex"), "").unwrap();
        let error = refuse_used_folder(layout.dir(), "peer").unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("thesis.tex"), "{error}");
        assert!(error.to_string().contains("holds no peer"), "{error}");
    }

    #[test]
    fn a_damaged_or_other_plan_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        let read = |text| {
            fs::write(layout.plan(), text).unwrap();
            load::<Plan>(&layout).unwrap_err().to_string()
        };
        assert!(load::<Plan>(&layout).unwrap().is_none());
        assert!(read("{\"format\": 2").contains("damaged"));
        assert!(read("{\"format\": 3}").contains("has format 3, this carmine reads 2"));
    }
}
