//! A folder with a plan, on which one command works at a time: a testbed's or a peer's.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::TryLockError;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use carmine_types::OsdId;
use fs_err::{self as fs, File, OpenOptions};
use serde_json::Value;

use crate::ceph::line_of;
use crate::daemons::{Stopped, arguments, stop};
use crate::error::{Result, TestbedError, fail_if, failed, refuse, usage};
use crate::layout::{Daemon, Layout, MONS_MAX};
use crate::plan::{PLAN_FORMAT, Plan};
use crate::process::{self, ProcessId};
use crate::testbed::StartOptions;
use crate::{confine, files, network, peer, places};

carmine_types::words! {
    /// The kind of cluster in a folder.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum BedKind: "kind of testbed" {
        /// Carmine's OSDs.
        Testbed = "testbed",
        /// A real Ceph.
        Peer = "peer",
    }
}

impl BedKind {
    /// The command whose subcommands start, stop and destroy it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Testbed => "carmine",
            Self::Peer => "carmine peer",
        }
    }

    /// The file of its plan.
    fn plan(self, layout: &Layout) -> PathBuf {
        layout.dir().join(format!("{self}.json"))
    }
}

/// A folder that this command has locked. Its files and its processes are known by name, so they can be stopped and removed also
/// if there is no plan, or one that cannot be read.
#[derive(Debug)]
pub struct Folder {
    layout: Layout,
    _lock: File,
}

/// A folder with a plan, locked by this command.
#[derive(Debug)]
pub struct Testbed {
    /// Where it is.
    pub folder: Folder,
    pub(crate) plan: Plan,
}

impl Folder {
    /// Opens a folder's cluster of this kind. Second: why its plan cannot be read.
    ///
    /// # Errors
    /// There is nothing, or another command works on the folder.
    pub fn open(kind: BedKind, layout: Layout) -> Result<(Self, Option<String>)> {
        let is_of_peer = kind == BedKind::Peer || BedKind::Peer.plan(&layout).exists();
        let damage = match load(kind, &layout) {
            Ok(Some(_)) => None,
            Ok(None) if is_of_peer || find_strays(&layout).is_empty() => {
                return Err(no_plan(kind, &layout));
            }
            Ok(None) => Some(format!("{} is missing", kind.plan(&layout).display())),
            Err(e) => Some(e.to_string()),
        };
        Ok((Self::lock(layout)?, damage))
    }

    /// Takes the lock that is held while a command starts, stops or removes a testbed, or says who else may hold it. The folder must
    /// exist. The kernel releases it with the process, so a killed command leaves no stale lock. Daemons do not inherit it (the file
    /// is close-on-exec).
    fn lock(layout: Layout) -> Result<Self> {
        let path = layout.lock();
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { layout, _lock: file }),
            Err(TryLockError::WouldBlock) => Err(failed!(
                "another carmine command is working on {} (it holds {}): wait for it, or end it",
                layout.dir().display(),
                path.display()
            )),
            Err(TryLockError::Error(e)) => Err(failed!("cannot lock {}: {e}", path.display())),
        }
    }

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
        for daemons in [vec![Daemon::Mgr], Daemon::mons().collect()] {
            let stopped = stop(&self.layout, &daemons, true)?;
            // Few testbeds have a manager, or more than one monitor; OSDs that have joined a cluster have neither.
            let has_mon = self.layout.mon_dir(0).exists();
            let is_told =
                |(daemon, how): &_| *daemon == Daemon::MON && has_mon || *how != Stopped::NotRunning;
            report.extend(stopped.into_iter().filter(is_told));
        }
        files::remove_file(&self.layout.mon_addr())?;
        network::remove(&self.layout)?;
        confine::remove(&self.layout)?;
        Ok(report)
    }

    /// Stops all processes and removes all files that were made, by their names; a file that was not made here stays, and so
    /// does the folder then. Named devices are not touched.
    ///
    /// # Errors
    /// Another version made it, and only that one knows what to remove.
    pub fn destroy(self) -> Result<()> {
        BedKind::ALL.iter().try_for_each(|kind| refuse_other_format(&kind.plan(&self.layout)))?;
        self.stop()?;
        self.remove_files()?;
        let _ = fs::remove_dir(self.layout.dir());
        Ok(())
    }

    pub(crate) fn remove_files(&self) -> Result<()> {
        let layout = &self.layout;
        for id in osds_in(layout) {
            places::remove_parts(layout, id)?;
            // There are no more shared block files than OSDs. Its folder goes last, since it shows that this OSD exists.
            let others = [layout.admin_socket(id), layout.log(Daemon::Osd(id)), layout.device_file(id.0)];
            others.iter().try_for_each(|file| files::remove_file(file))?;
            files::remove_dir(&layout.osd_dir(id))?;
        }
        for mon in 0..MONS_MAX {
            files::remove_dir(&layout.mon_dir(mon))?;
            files::remove_file(&layout.log(Daemon::Mon(mon)))?;
        }
        files::remove_dir(&layout.run_dir())?;
        self.remove_keys()?;
        // The plan is removed last but one: until then an interrupted removal can be repeated.
        let last = ["monmap", "mon.a.log", "mgr.log", "ceph.conf", "testbed.json", "peer.json", "lock"];
        last.iter().try_for_each(|name| files::remove_file(&layout.dir().join(name)))
    }

    /// Removes the keyrings that the testbed made, and those that its administrator put into the folder.
    fn remove_keys(&self) -> Result<()> {
        let files = fs::read_dir(self.layout.dir())?.collect::<std::io::Result<Vec<_>>>()?;
        let is_keyring =
            |name: &str| name == "keyring" || name.starts_with("ceph.") && name.ends_with(".keyring");
        let keyrings = files.iter().filter(|file| file.file_name().to_str().is_some_and(is_keyring));
        keyrings.map(|file| file.path()).try_for_each(|path| files::remove_file(&path))
    }
}

impl Testbed {
    /// Makes a new testbed in an empty or absent folder: plan, store folders, stores. If that fails, what was made is
    /// removed again.
    pub fn create(layout: &Layout, plan: Plan, wipe: bool, start: &mut StartOptions<'_>) -> Result<Self> {
        refuse_used_folder(layout.dir(), plan.kind())?;
        let existed = layout.dir().exists();
        fs::create_dir_all(layout.dir())?;
        let folder = Folder::lock(Layout::new(layout.dir())?)?;
        // Another command may have been quicker.
        refuse_used_folder(layout.dir(), plan.kind())?;
        let mut bed = Self { folder, plan };
        let filled = bed.write_plan().and_then(|()| match bed.plan.kind() {
            BedKind::Testbed if bed.plan.joined.is_some() => bed.fill_joined(wipe, start),
            BedKind::Testbed => bed.fill(wipe, start),
            BedKind::Peer => peer::fill(&mut bed, wipe, start),
        });
        if let Err(e) = filled {
            bed.folder.remove_files()?;
            if !existed {
                let _ = fs::remove_dir(layout.dir());
            }
            return Err(e);
        }
        Ok(bed)
    }

    /// Makes the folders in which its processes and stores live.
    pub(crate) fn make_folders(&self) -> Result<()> {
        let (layout, osds) = (self.layout(), self.plan.osd_ids());
        fs::create_dir_all(layout.run_dir())?;
        let of_mons = self.plan.mon_numbers().map(|mon| layout.mon_dir(mon));
        osds.map(|id| layout.osd_dir(id)).chain(of_mons).try_for_each(files::private_dir)
    }

    /// Opens an existing one; `None` if the folder holds none.
    ///
    /// # Errors
    /// Another command works on it, or its plan is damaged.
    pub fn open(kind: BedKind, layout: Layout) -> Result<Option<Self>> {
        if load(kind, &layout)?.is_none() {
            return Ok(None);
        }
        let folder = Folder::lock(layout)?;
        // Read again under the lock: another command may have changed it meanwhile.
        let Some(plan) = load(kind, &folder.layout)? else { return Ok(None) };
        restore_records(&folder.layout)?;
        Ok(Some(Self { folder, plan }))
    }

    /// Opens an existing one.
    ///
    /// # Errors
    /// There is none; also those of [`Testbed::open`].
    pub fn open_existing(kind: BedKind, layout: Layout) -> Result<Self> {
        let none = no_plan(kind, &layout);
        Self::open(kind, layout)?.ok_or(none)
    }

    /// Paths of its files.
    pub fn layout(&self) -> &Layout {
        &self.folder.layout
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes over a revised plan for the next start.
    pub fn set_plan(&mut self, plan: Plan) -> Result<()> {
        self.plan = plan;
        self.write_plan()
    }

    pub(crate) fn write_plan(&self) -> Result<()> {
        files::write_json(&self.plan.kind().plan(self.layout()), &self.plan)
    }

    /// Fails unless it is whole and none of its processes runs.
    pub fn require_stopped(&self) -> Result<()> {
        let (kind, dir) = (self.plan.kind(), self.layout().dir().display());
        let command = kind.command();
        fail_if!(
            !self.plan.complete,
            "{dir}: an earlier `{command} up` was interrupted while it made this {kind}; `{command} destroy --dir {dir}` removes it"
        );
        self.require_nothing_runs()
    }

    pub(crate) fn require_nothing_runs(&self) -> Result<()> {
        let (kind, dir) = (self.plan.kind(), self.layout().dir().display());
        let (command, (running, missing)) = (kind.command(), self.parts()?);
        refuse!(
            self.plan.osd_ids().next().is_none(),
            "all OSDs of {dir} were removed: `carmine osd add --dir {dir}` makes another one, `carmine destroy --dir {dir}` removes the rest"
        );
        refuse!(missing.is_empty(), "the {kind} in {dir} already runs; see `{command} status --dir {dir}`");
        let names = running.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        fail_if!(
            !running.is_empty(),
            "the {kind} in {dir} still has running processes: {names}; `{command} down --dir {dir}` stops them, then \
             `{command} up --dir {dir}` starts all"
        );
        Ok(())
    }

    /// The daemons that run and those that do not.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn parts(&self) -> Result<(Vec<Daemon>, Vec<Daemon>)> {
        let (mut running, mut missing) = (Vec::new(), Vec::new());
        for daemon in self.plan.daemons() {
            let runs = ProcessId::running(self.layout(), daemon)?.is_some();
            if runs { &mut running } else { &mut missing }.push(daemon);
        }
        Ok((running, missing))
    }
}

/// Reads the plan of a folder; `None` if there is none of this kind.
///
/// # Errors
/// It cannot be read, is damaged, or has another format.
pub fn load(kind: BedKind, layout: &Layout) -> Result<Option<Plan>> {
    let path = kind.plan(layout);
    refuse_other_format(&path)?;
    files::read_json(&path)
}

/// Reads the plan of a folder that must have one.
///
/// # Errors
/// There is none; also those of [`load`].
pub(crate) fn require(kind: BedKind, layout: &Layout) -> Result<Plan> {
    load(kind, layout)?.ok_or_else(|| no_plan(kind, layout))
}

fn no_plan(kind: BedKind, layout: &Layout) -> TestbedError {
    let (dir, command) = (layout.dir().display(), kind.command());
    usage!("there is no {kind} in {dir}: start one with `{command} up --dir {dir}`")
}

/// Fails if something new cannot be made in this folder because there is something in it. Worth calling before work that
/// takes hours.
///
/// # Errors
/// Names what is there.
pub fn refuse_used_folder(dir: &Path, kind: BedKind) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let name = entry?.file_name();
        refuse!(
            name != "lock",
            "{} is not empty (it has {}) and holds no {kind}: name another folder with --dir; nothing was changed",
            dir.display(),
            name.display()
        );
    }
    Ok(())
}

/// Fails if the plan can be read well enough to show that it has another format.
fn refuse_other_format(path: &Path) -> Result<()> {
    let plan: Option<Value> = files::read_json(path).unwrap_or_default();
    let format = plan.and_then(|plan| plan["format"].as_u64()).unwrap_or(PLAN_FORMAT);
    fail_if!(
        format != PLAN_FORMAT,
        "{} has format {format}, this carmine reads {PLAN_FORMAT}: use the carmine that made it",
        path.display()
    );
    Ok(())
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
    let line = |words: Vec<OsString>| words.iter().flat_map(|w| [w.as_bytes(), b"\0"].concat()).collect();
    let own = osds_in(layout).into_iter().map(Daemon::Osd).chain([Daemon::MON]);
    let own = own.map(|daemon| (daemon, daemon.program(), arguments(layout, daemon)));
    let of_ceph = Daemon::mons().chain([Daemon::Mgr]).map(|daemon| {
        let (program, words) = line_of(layout, daemon);
        (daemon, program, words)
    });
    let lines = own.chain(of_ceph).map(|(daemon, program, words)| (daemon, program, line(words)));
    let lines: Vec<(Daemon, &str, Vec<u8>)> = lines.collect();
    let daemon_of = |process: &Path| {
        let line = fs::read(process.join("cmdline")).ok()?;
        let arguments = &line[line.iter().position(|byte| *byte == 0)? + 1..];
        let (daemon, program, _) = lines.iter().find(|(.., expected)| expected == arguments)?;
        // A process of another user shows no name here; it cannot be signalled either, and the error will say so. The name of a
        // file that was replaced since ends in " (deleted)".
        let name = fs::read_link(process.join("exe")).ok();
        let name = name.as_ref().and_then(|path| Some(path.file_name()?.to_string_lossy()));
        name.is_none_or(|name| name.starts_with(program)).then_some(*daemon)
    };
    let strays = process::all().filter_map(|(pid, dir)| {
        // The identity first: if the pid is reused after this, the identity matches no process.
        let id = ProcessId::find(pid)?;
        let daemon = daemon_of(&dir)?;
        id.alive().then_some((daemon, id))
    });
    strays.collect()
}

/// Rewrites the records of running daemons that have none, or a damaged one.
///
/// # Errors
/// A record cannot be written.
fn restore_records(layout: &Layout) -> Result<()> {
    for (daemon, id) in find_strays(layout) {
        if !matches!(ProcessId::running(layout, daemon), Ok(Some(_))) {
            fs::create_dir_all(layout.run_dir())?;
            files::write_json(&layout.pid_file(daemon), &id)?;
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
        refuse_used_folder(layout.dir(), BedKind::Testbed).unwrap();
        fs::create_dir(layout.dir()).unwrap();
        let _lock = Folder::lock(layout.clone()).unwrap();
        refuse_used_folder(layout.dir(), BedKind::Testbed).expect("a lock alone is nothing");
        fs::write(layout.dir().join("thesis.tex"), "").unwrap();
        let error = refuse_used_folder(layout.dir(), BedKind::Peer).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("thesis.tex"), "{error}");
        assert!(error.to_string().contains("holds no peer"), "{error}");
    }

    #[test]
    fn a_damaged_or_other_plan_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        let read = |text| {
            fs::write(layout.plan(), text).unwrap();
            load(BedKind::Testbed, &layout).unwrap_err().to_string()
        };
        assert!(load(BedKind::Testbed, &layout).unwrap().is_none());
        assert!(read("{\"format\": 2").contains("damaged"));
        assert!(read("{\"format\": 3}").contains("has format 3, this carmine reads 2"));
    }

    #[test]
    fn an_absent_plan_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        assert!(load(BedKind::Peer, &layout).unwrap().is_none());
        let error = require(BedKind::Peer, &layout).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("carmine peer up --dir"), "{error}");
    }
}
