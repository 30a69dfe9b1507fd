//! A testbed whose plan cannot be read: its files and its processes are still known by name, so it can be stopped and removed.
//! And daemons whose records are lost or damaged, found by their command lines.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use carmine_types::OsdId;

use crate::daemons::arguments;
use crate::error::{Result, TestbedError, failed};
use crate::folder::{FolderPlan, has_other_format, lock, remove_files, stop_daemons};
use crate::layout::{Daemon, Layout};
use crate::plan::Plan;
use crate::process::ProcessId;
use crate::testbed::load_plan;

/// Such a testbed, with its folder locked.
#[derive(Debug)]
pub struct Ruin {
    layout: Layout,
    why: String,
    _lock: File,
}

impl Ruin {
    /// Opens the folder of a testbed without a readable plan: one that is damaged, or one that is missing while daemons run.
    /// `None` for any other folder.
    ///
    /// # Errors
    /// Another command works on the folder.
    pub fn open(layout: Layout) -> Result<Option<Self>> {
        let why = match load_plan(&layout) {
            Ok(Some(_)) => return Ok(None),
            Ok(None) if find_strays(&layout).is_empty() => return Ok(None),
            Ok(None) => format!("{} is missing", layout.plan().display()),
            Err(e) => e.to_string(),
        };
        let lock = lock(&layout)?;
        Ok(Some(Self { layout, why, _lock: lock }))
    }

    /// Paths of its files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Why its plan cannot be read.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Numbers of the OSDs that have left a name in the folder.
    fn osds(&self) -> BTreeSet<OsdId> {
        let names = [self.layout.dir(), &self.layout.run_dir()].map(names_in).concat();
        names.iter().filter_map(|name| number(name.strip_prefix("osd.")?)).map(OsdId).collect()
    }

    /// Stops all processes; the data stays.
    ///
    /// # Errors
    /// A daemon does not end.
    pub fn stop(&self) -> Result<Vec<(Daemon, crate::Stopped)>> {
        restore_records(&self.layout)?;
        let daemons: Vec<Daemon> = self.osds().into_iter().map(Daemon::Osd).chain([Daemon::Mon]).collect();
        stop_daemons(&self.layout, &daemons)
    }

    /// Stops all processes and removes what a testbed makes, by its name.
    ///
    /// # Errors
    /// Another version made it: that one knows what there is to remove.
    pub fn destroy(self) -> Result<()> {
        if has_other_format(&self.layout.plan(), Plan::FORMAT) {
            return Err(failed!("{}", self.why));
        }
        self.stop()?;
        let names = names_in(self.layout.dir());
        let devices = names.iter().filter_map(|name| name.strip_prefix("device.")?.parse().ok());
        let devices = devices.map(|device| self.layout.device_file(device));
        remove_files(&self.layout, Plan::FILE, self.osds(), devices)?;
        let _ = fs::remove_dir(self.layout.dir());
        Ok(())
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The number before the first dot.
fn number(name: &str) -> Option<u32> {
    name.split('.').next()?.parse().ok()
}

/// The daemons of this folder that run. A process is one of them if its command line is the one that a daemon of this very
/// folder is started with, and its program has the name of the daemon's.
fn find_strays(layout: &Layout) -> Vec<(Daemon, ProcessId)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        // The identity first: if the pid is reused after this, the identity matches no process.
        let id = ProcessId::of(pid)?;
        let daemon = daemon_of(layout, &Path::new("/proc").join(pid.to_string()))?;
        id.alive().then_some((daemon, id))
    })
    .collect()
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
pub(crate) fn restore_records(layout: &Layout) -> Result<()> {
    for (daemon, id) in find_strays(layout) {
        let path = layout.pid_file(daemon);
        if !ProcessId::load(&path).is_ok_and(|record| record.is_some_and(|record| record.alive())) {
            fs::create_dir_all(layout.run_dir()).map_err(TestbedError::io("create", &layout.run_dir()))?;
            id.store(&path)?;
        }
    }
    Ok(())
}
