//! The state of a peer, and how it describes itself in results.

use carmine_testbed::process::ProcessId;
use carmine_testbed::{Daemon, Layout, Result};
use carmine_types::OsdId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::allocator::Allocator;
use crate::contrast::{Contrast, contrast};
use crate::flags::build_flags;
use crate::peer::{monitor, require_plan};
use crate::plan::PeerPlan;
use crate::programs::{Flavour, Programs};
use crate::ready::{is_active, is_clean, mon_leads};
use crate::settings::osd_settings;

/// One OSD of a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerOsd {
    /// Its number.
    pub id: u32,
    /// The running process.
    pub pid: Option<i32>,
    /// Up in its own map.
    pub up: bool,
    /// CPUs that it is confined to.
    pub cpus: Vec<usize>,
}

/// A peer now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its folder.
    pub dir: String,
    /// `running`, `stopped`, `degraded` or `incomplete`.
    pub state: String,
    /// Address of the monitor.
    pub mon_addr: String,
    /// Process of the monitor.
    pub mon_pid: Option<i32>,
    /// The OSDs.
    pub osds: Vec<PeerOsd>,
    /// PGs that are active and clean; `None` unless something runs.
    pub pgs_clean: Option<u32>,
    /// What it is.
    pub about: About,
    /// The plan.
    pub plan: PeerPlan,
}

/// What a peer is, for results (`carmine.peer`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// `ceph`.
    pub kind: String,
    /// The version line of its OSD.
    pub version: String,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Folder of the build; the installed packages when absent.
    pub build: Option<PathBuf>,
    /// How it was built, as far as that can be found out.
    pub build_flags: BTreeMap<String, String>,
    /// What the OSDs allocate memory with.
    pub allocator: Allocator,
    /// `stock` or `tuned`.
    pub profile: String,
    /// All settings of the OSDs that differ from Ceph's defaults because of the profile or the user.
    pub settings: BTreeMap<String, String>,
    /// `osd_memory_target`, bytes.
    pub osd_memory_bytes: u64,
    /// What each side leaves undone.
    pub contrast: Contrast,
}

/// Describes a peer.
///
/// # Errors
/// Its programs are gone.
pub fn about(plan: &PeerPlan) -> Result<About> {
    let programs = Programs::find(plan.build.as_deref())?;
    Ok(About {
        kind: "ceph".into(),
        version: plan.version.clone(),
        flavour: plan.flavour,
        build: plan.build.clone(),
        build_flags: build_flags(plan.build.as_deref()),
        allocator: Allocator::of(&programs),
        profile: plan.profile().into(),
        settings: osd_settings(plan),
        osd_memory_bytes: plan.osd_memory_bytes,
        contrast: contrast(plan),
    })
}

fn pid(layout: &Layout, daemon: Daemon) -> Result<Option<i32>> {
    Ok(ProcessId::load(&layout.pid_file(daemon))?.filter(ProcessId::alive).map(|id| id.pid))
}

/// Looks at the peer in a folder. Takes no lock and changes nothing.
///
/// # Errors
/// The folder holds none, or a record in it is damaged.
pub fn status(layout: &Layout) -> Result<PeerStatus> {
    let plan = require_plan(layout)?;
    let mon_pid = pid(layout, Daemon::Mon)?;
    let mut osds = Vec::new();
    for id in 0..plan.osds() {
        let pid = pid(layout, Daemon::Osd(OsdId(id)))?;
        let up = pid.is_some() && is_active(layout, OsdId(id));
        osds.push(PeerOsd { id, pid, up, cpus: plan.osd_cpus(id) });
    }
    let something_runs = mon_pid.is_some() || osds.iter().any(|osd| osd.pid.is_some());
    let pgs_clean =
        something_runs.then(|| (0..plan.pgs).filter(|pg| is_clean(layout, plan.osds(), *pg)).count() as u32);
    let whole = mon_pid.is_some()
        && mon_leads(layout)
        && osds.iter().all(|osd| osd.up)
        && pgs_clean == Some(plan.pgs);
    let state = match (plan.complete, something_runs, whole) {
        (false, _, _) => "incomplete",
        (true, false, _) => "stopped",
        (true, true, true) => "running",
        (true, true, false) => "degraded",
    };
    Ok(PeerStatus {
        dir: layout.dir().display().to_string(),
        state: state.into(),
        mon_addr: monitor(&plan).to_string(),
        mon_pid,
        osds,
        pgs_clean,
        about: about(&plan)?,
        plan,
    })
}
