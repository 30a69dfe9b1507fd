//! Confinement of the OSDs (`--confine`): how many CPUs each may have, and how that is enforced.
//!
//! `cpuset`: each OSD has N CPUs and no others; its reactors are pinned to the first of them, its aliens to the rest. The
//! OSD's own affinity is enough for that; where a cgroup with a cpuset can be made it is made, too, since the kernel's
//! helper threads (io_uring's workers) obey that one.
//!
//! `quota`: as a container's CPU limit: a cgroup gives each OSD N CPUs' worth of time in every 100 ms over whatever CPUs
//! it runs on. Reactors keep their pins; once the time is used up the kernel stops all of the OSD until the next period.
//! [`throttled_ns`] tells the time that it lost so.

mod cgroup;

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use carmine_topology::{CpuList, Grid, OsdRow};
use carmine_types::{OsdId, counted};
use serde::{Deserialize, Serialize};

use crate::error::{Result, failed, usage};
use crate::files;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::spec::{NONE, TestbedSpec};
use cgroup::{Base, Controller, write};

pub use cgroup::throttled_ns;

/// A group is busy until the kernel has buried its last process.
const REMOVE_LIMIT: Duration = Duration::from_secs(2);
/// A thousandth of a CPU: what quotas count in.
const MILLI: f64 = 1000.0;
/// Least quota: the kernel takes no less than 1 ms of a period of 100 ms.
const QUOTA_MILLI_CPUS_MIN: u32 = 10;

carmine_types::words! {
    /// A value of `--confine`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ConfineKind: "confinement" {
        /// No limit.
        None = "none",
        /// A list of CPUs for each OSD.
        Cpuset = "cpuset",
        /// CPU time for each OSD.
        Quota = "quota",
    }
}

/// A value of `--confine-cpus`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ConfineCpus {
    /// The point "no limit" of a series.
    NoLimit,
    /// CPUs of each OSD.
    Cpus(f64),
}

impl std::str::FromStr for ConfineCpus {
    type Err = crate::TestbedError;
    fn from_str(text: &str) -> Result<Self> {
        if text == NONE {
            return Ok(Self::NoLimit);
        }
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        number
            .map(Self::Cpus)
            .ok_or_else(|| usage!("`{text}`: write a number of CPUs, such as 2 or 1.5, or none"))
    }
}

impl fmt::Display for ConfineCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => f.write_str(NONE),
            Self::Cpus(cpus) => cpus.fmt(f),
        }
    }
}

/// Confinement of every OSD of a testbed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Confine {
    /// No limit.
    #[default]
    None,
    /// CPUs of its own.
    Cpuset {
        /// How many.
        cpus: usize,
    },
    /// CPU time.
    Quota {
        /// Thousandths of a CPU.
        milli_cpus: u32,
    },
}

impl Confine {
    /// The confinement of a specification; `machine_cpus` are the CPUs that this process may use.
    ///
    /// # Errors
    /// One of the two options without the other, or a number that this kind or machine does not have.
    pub(crate) fn of(spec: &TestbedSpec, machine_cpus: usize) -> Result<Self> {
        match (spec.confine, spec.confine_cpus) {
            (ConfineKind::None, Some(ConfineCpus::Cpus(n))) => {
                Err(usage!("--confine-cpus {n}: say how with --confine cpuset or --confine quota"))
            }
            (ConfineKind::None, _) | (_, Some(ConfineCpus::NoLimit)) => Ok(Self::None),
            (_, None) => Err(usage!(
                "--confine: say how many CPUs each OSD may have with --confine-cpus (`none`: no limit)"
            )),
            (ConfineKind::Quota, Some(ConfineCpus::Cpus(cpus))) => quota(cpus, machine_cpus),
            (ConfineKind::Cpuset, Some(ConfineCpus::Cpus(cpus))) if cpus.fract() > 0.0 => Err(usage!(
                "--confine-cpus {cpus}: a cpuset has whole CPUs; take a whole number, or --confine quota"
            )),
            (ConfineKind::Cpuset, Some(ConfineCpus::Cpus(cpus))) => Ok(Self::Cpuset { cpus: cpus as usize }),
        }
    }

    /// Cores that the OSDs of `grid` have: their distinct CPUs; under a quota each OSD has no more than its time.
    pub(crate) fn cores(self, grid: &Grid) -> f64 {
        let cpus = grid.allocated_cpus().len() as f64;
        let Self::Quota { milli_cpus } = self else { return cpus };
        let own = |osd: &OsdRow| osd.reactor_cpus().into_iter().collect::<CpuList>().union(&osd.aliens.cpus);
        let each = |osd: &OsdRow| (own(osd).len() as f64).min(f64::from(milli_cpus) / MILLI);
        grid.osds.iter().map(each).sum::<f64>().min(cpus)
    }

    /// CPUs of each OSD's cpuset.
    pub(crate) fn cpuset(self) -> Option<usize> {
        match self {
            Self::Cpuset { cpus } => Some(cpus),
            _ => None,
        }
    }
}

fn quota(cpus: f64, machine_cpus: usize) -> Result<Confine> {
    if cpus > machine_cpus as f64 {
        return Err(usage!(
            "--confine-cpus {cpus}: here no more than {} may be used; lower it, or take `none`",
            counted(machine_cpus, "CPU")
        ));
    }
    let milli_cpus = (cpus * MILLI).round() as u32;
    if milli_cpus < QUOTA_MILLI_CPUS_MIN {
        return Err(usage!(
            "--confine-cpus {cpus}: a quota is at least {}",
            f64::from(QUOTA_MILLI_CPUS_MIN) / MILLI
        ));
    }
    Ok(Confine::Quota { milli_cpus })
}

impl fmt::Display for Confine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no limit"),
            Self::Cpuset { cpus } => write!(f, "cpuset, {} per OSD", counted(*cpus, "CPU")),
            Self::Quota { milli_cpus } => {
                write!(f, "quota, {} CPUs of time per OSD", f64::from(*milli_cpus) / MILLI)
            }
        }
    }
}

/// The control groups of a running testbed: made before its OSDs start, joined by each of them, removed when they have ended.
/// Their record in the folder is written before they are made, so that a crash leaves nothing unknown.
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
    let controller = match plan.confinement() {
        Confine::None => return Ok(None),
        Confine::Cpuset { .. } => Controller::Cpuset,
        Confine::Quota { .. } => Controller::Cpu,
    };
    let mut tried = Vec::new();
    for base in Base::all(controller) {
        let version = base.version;
        match make(layout, plan, &base) {
            Ok(()) => return Ok(Some(format!("{} (cgroup v{version})", plan.confinement()))),
            Err(error) => {
                remove(layout)?;
                tried.push(error.to_string());
            }
        }
    }
    match plan.confinement() {
        Confine::Quota { .. } => Err(usage!(
            "--confine quota: no control group with CPU time can be made here ({}): run as root outside of a \
             container, or as `systemd-run --user --scope -p Delegate=yes carmine up …`, or take --confine cpuset",
            tried.last().map_or("no cgroup file system is mounted", String::as_str)
        )),
        _ => Ok(Some(format!("{} (affinity alone: no cgroup could be made)", plan.confinement()))),
    }
}

fn make(layout: &Layout, plan: &Plan, base: &Base) -> Result<()> {
    let name = format!("carmine-{}", plan.fsid);
    let groups = Groups { base: base.clone(), dir: base.dir.join(&name) };
    files::write_json(&layout.confine_file(), &groups)?;
    base.make_parent(&name)?;
    for (row, osd) in plan.grid.osds.iter().zip((0..plan.osds()).map(OsdId)) {
        let dir = groups.osd_dir(osd);
        match plan.confinement() {
            Confine::Quota { milli_cpus } => base.make_quota(&dir, milli_cpus)?,
            _ => {
                let cpus = row.reactor_cpus().into_iter().collect::<CpuList>();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn confined(kind: Option<&str>, cpus: Option<&str>) -> Result<Confine> {
        let spec = TestbedSpec {
            confine: kind.map_or(ConfineKind::None, |k| k.parse().expect(k)),
            confine_cpus: cpus.map(|c| c.parse()).transpose()?,
            ..TestbedSpec::default()
        };
        Confine::of(&spec, 4)
    }

    #[test]
    fn a_quota_is_what_is_allocated() {
        use carmine_topology::{PlanRequest, Topology};
        let grid = |osds, reactors, overprovisioned| {
            let request = PlanRequest { osds, reactors, overprovisioned, ..PlanRequest::default() };
            Grid::plan(&Topology::from_short("1x8x1").unwrap(), &request).unwrap()
        };
        let quota = |milli_cpus| Confine::Quota { milli_cpus };
        assert_eq!(Confine::None.cores(&grid(2, 2, false)), 4.0);
        assert_eq!(quota(1500).cores(&grid(2, 2, false)), 3.0, "1.5 of each OSD's 2 CPUs");
        assert_eq!(quota(4000).cores(&grid(2, 2, false)), 4.0, "no more than its CPUs");
        assert_eq!(quota(4000).cores(&grid(8, 4, true)), 8.0, "no more than all CPUs, which OSDs share");
    }

    #[test]
    fn both_options_make_a_confinement() {
        assert_eq!(confined(Some("cpuset"), Some("2")).unwrap(), Confine::Cpuset { cpus: 2 });
        assert_eq!(confined(Some("quota"), Some("1.5")).unwrap(), Confine::Quota { milli_cpus: 1500 });
        for (kind, cpus) in [(Some("quota"), Some("none")), (Some("none"), None), (None, Some("none"))] {
            assert_eq!(confined(kind, cpus).unwrap(), Confine::None, "{kind:?} {cpus:?}");
        }
        for (kind, cpus, part) in [
            (Some("cpuset"), None, "--confine-cpus"),
            (None, Some("2"), "--confine cpuset"),
            (Some("none"), Some("2"), "--confine quota"),
            (Some("cpuset"), Some("1.5"), "whole CPUs"),
            (Some("quota"), Some("5"), "no more than 4 CPUs"),
            (Some("quota"), Some("0.001"), "at least 0.01"),
            (Some("quota"), Some("-1"), "`-1`"),
            (Some("quota"), Some("nan"), "`nan`"),
        ] {
            let error = confined(kind, cpus).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{part}: {error}");
        }
    }
}
