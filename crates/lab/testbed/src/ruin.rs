//! A testbed whose plan cannot be read. Its files and its processes are still known by name, so it
//! can be stopped and removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use carmine_types::OsdId;

use crate::error::{Result, failed};
use crate::folder::{FolderLock, FolderPlan, has_other_format, remove_files, stop_daemons};
use crate::layout::{Daemon, Layout};
use crate::plan::Plan;
use crate::stray;
use crate::testbed::load_plan;

/// Such a testbed, with its folder locked.
#[derive(Debug)]
pub struct Ruin {
    layout: Layout,
    why: String,
    _lock: FolderLock,
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
            Ok(None) if stray::find(&layout).is_empty() => return Ok(None),
            Ok(None) => format!("{} is missing", layout.plan().display()),
            Err(e) => e.to_string(),
        };
        let lock = FolderLock::take(&layout)?;
        Ok(Some(Self { layout, why, _lock: lock }))
    }

    /// Paths of its files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What is wrong with its plan.
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
        stray::restore_records(&self.layout)?;
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
