//! The control groups of a running testbed: made before its OSDs start, joined by each of them, removed when they have
//! ended. Their record in the folder is written before they are made, so that a crash leaves nothing unknown.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carmine_types::OsdId;
use serde::{Deserialize, Serialize};

use super::Confine;
use super::cgroup::{Base, Controller, write};
use crate::error::{Result, failed, usage};
use crate::files;
use crate::layout::Layout;
use crate::plan::Plan;

/// A group is busy until the kernel has buried its last process.
const REMOVE_LIMIT: Duration = Duration::from_secs(2);

/// The groups of a testbed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Groups {
    base: Base,
    /// The testbed's own group, in which each OSD has one.
    dir: PathBuf,
}

impl Groups {
    fn osd_dir(&self, osd: OsdId) -> PathBuf {
        self.dir.join(osd.to_string())
    }
}

fn load(layout: &Layout) -> Result<Option<Groups>> {
    files::read_json(&layout.confine_file())
}

/// Makes the groups that the plan needs; the text says how the OSDs are confined. Call it before they start.
///
/// # Errors
/// A quota for which no group can be made (a usage error that says what to do).
pub(crate) fn prepare(layout: &Layout, plan: &Plan) -> Result<Option<String>> {
    remove(layout)?;
    let controller = match plan.confine {
        Confine::None => return Ok(None),
        Confine::Cpuset { .. } => Controller::Cpuset,
        Confine::Quota { .. } => Controller::Cpu,
    };
    let mut tried = Vec::new();
    for base in Base::all(controller) {
        let version = base.version;
        match make(layout, plan, &base) {
            Ok(()) => return Ok(Some(format!("{} (cgroup v{version})", plan.confine))),
            Err(error) => {
                remove(layout)?;
                tried.push(error.to_string());
            }
        }
    }
    match plan.confine {
        Confine::Quota { .. } => Err(usage!(
            "--confine quota: no control group with CPU time can be made here ({}): run as root outside of a \
             container, or as `systemd-run --user --scope -p Delegate=yes carmine up …`, or take --confine cpuset",
            tried.last().map_or("no cgroup file system is mounted", String::as_str)
        )),
        _ => Ok(Some(format!("{} (affinity alone: no cgroup could be made)", plan.confine))),
    }
}

fn make(layout: &Layout, plan: &Plan, base: &Base) -> Result<()> {
    let name = format!("carmine-{}", plan.fsid);
    let groups = Groups { base: base.clone(), dir: base.dir.join(&name) };
    files::write_json(&layout.confine_file(), &groups)?;
    base.make_parent(&name)?;
    for (row, osd) in plan.grid.osds.iter().zip((0..plan.osds()).map(OsdId)) {
        let dir = groups.osd_dir(osd);
        match plan.confine {
            Confine::Quota { milli_cpus } => base.make_quota(&dir, milli_cpus)?,
            _ => {
                let cpus = row.reactor_cpus().into_iter().collect::<carmine_topology::CpuList>();
                base.make_cpuset(&dir, &cpus.union(&row.aliens.cpus).to_string())?;
            }
        }
    }
    Ok(())
}

/// Moves this process, which must not have started threads yet, into the group of its OSD, if there is one.
///
/// # Errors
/// The group is gone, or may not be joined.
pub fn enter(layout: &Layout, osd: OsdId) -> Result<()> {
    match load(layout)? {
        Some(groups) => write(&groups.osd_dir(osd).join("cgroup.procs"), &std::process::id().to_string()),
        None => Ok(()),
    }
}

/// Removes the groups of a testbed whose OSDs have ended, also those of a start that crashed.
///
/// # Errors
/// A process is still in one of them.
pub(crate) fn remove(layout: &Layout) -> Result<()> {
    let Some(groups) = load(layout)? else { return Ok(()) };
    // Only groups can be folders here: their files vanish with them.
    let entries = fs::read_dir(&groups.dir).into_iter().flatten().flatten();
    let below = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let end = Instant::now() + REMOVE_LIMIT;
    for dir in below.chain([groups.dir.clone()]) {
        while let Err(e) = fs::remove_dir(&dir) {
            if e.kind() == std::io::ErrorKind::NotFound {
                break;
            }
            if Instant::now() > end {
                return Err(failed!(
                    "cannot remove the control group {} ({e}): which process is in its cgroup.procs?",
                    dir.display()
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    files::remove_file(&layout.confine_file())
}
