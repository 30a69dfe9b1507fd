//! Confinement of the OSDs (`--confine`): how many CPUs each may have, and how that is enforced.
//!
//! `cpuset`: each OSD has N CPUs and no others; its reactors are pinned to the first of them, its aliens to the rest. The
//! OSD's own affinity is enough for that; where a cgroup with a cpuset can be made it is made, too, since the kernel's
//! helper threads (io_uring's workers) obey that one.
//!
//! `quota`: as a container's CPU limit: a cgroup gives each OSD N CPUs' worth of time in every 100 ms over whatever CPUs
//! it runs on. Reactors keep their pins; once the time is used up the kernel stops all of the OSD until the next period.
//! What it lost so is told by [`throttled_ns`].

mod cgroup;
mod groups;

use std::fmt;

use carmine_topology::{CpuList, Grid, OsdRow};
use serde::{Deserialize, Serialize};

use crate::error::{Result, usage};
use crate::spec::Wish;

pub use cgroup::throttled_ns;
pub use groups::enter;
pub(crate) use groups::{prepare, remove};

/// A thousandth of a CPU: what quotas count in.
const MILLI: f64 = 1000.0;
/// Least quota: the kernel takes no less than 1 ms of a period of 100 ms.
const QUOTA_MILLI_CPUS_MIN: u32 = 10;

carmine_types::words! {
    /// What `--confine` takes.
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

/// What `--confine-cpus` takes.
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
        if text == "none" {
            return Ok(Self::NoLimit);
        }
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        number
            .map(Self::Cpus)
            .ok_or_else(|| usage!("`{text}`: write a number of CPUs, such as 2 or 1.5, or none"))
    }
}

/// Confinement of every OSD of a testbed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
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
    /// The confinement that is asked for, if any is; `machine_cpus` are the CPUs that this process may use.
    ///
    /// # Errors
    /// One of the two options without the other, or a number that this kind or machine does not have.
    pub(crate) fn wished(wish: &Wish, machine_cpus: usize) -> Result<Option<Self>> {
        let cpus = match (wish.confine, wish.confine_cpus) {
            (None, None) => return Ok(None),
            (Some(ConfineKind::None), None | Some(ConfineCpus::NoLimit))
            | (_, Some(ConfineCpus::NoLimit)) => {
                return Ok(Some(Self::None));
            }
            (None | Some(ConfineKind::None), Some(ConfineCpus::Cpus(n))) => {
                return Err(usage!("--confine-cpus {n}: say how with --confine cpuset or --confine quota"));
            }
            (Some(_), None) => {
                return Err(usage!(
                    "--confine: say how many CPUs each OSD may have with --confine-cpus (`none`: no limit)"
                ));
            }
            (Some(_), Some(ConfineCpus::Cpus(n))) => n,
        };
        match wish.confine {
            Some(ConfineKind::Quota) => quota(cpus, machine_cpus).map(Some),
            _ if cpus.fract() > 0.0 => Err(usage!(
                "--confine-cpus {cpus}: a cpuset has whole CPUs; take a whole number, or --confine quota"
            )),
            _ => Ok(Some(Self::Cpuset { cpus: cpus as usize })),
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
            "--confine-cpus {cpus}: {machine_cpus} CPUs are all that may be used here; lower it, or take `none`"
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
            Self::Cpuset { cpus } => write!(f, "cpuset, {cpus} CPUs per OSD"),
            Self::Quota { milli_cpus } => {
                write!(f, "quota, {} CPUs of time per OSD", f64::from(*milli_cpus) / MILLI)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wished(kind: Option<&str>, cpus: Option<&str>) -> Result<Option<Confine>> {
        let wish = Wish {
            confine: kind.map(|k| k.parse().expect(k)),
            confine_cpus: cpus.map(|c| c.parse()).transpose()?,
            ..Wish::default()
        };
        Confine::wished(&wish, 4)
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
        let some = |c| Some(c);
        assert_eq!(wished(None, None).unwrap(), None);
        assert_eq!(wished(Some("cpuset"), Some("2")).unwrap(), some(Confine::Cpuset { cpus: 2 }));
        assert_eq!(wished(Some("quota"), Some("1.5")).unwrap(), some(Confine::Quota { milli_cpus: 1500 }));
        for (kind, cpus) in [(Some("quota"), Some("none")), (Some("none"), None), (None, Some("none"))] {
            assert_eq!(wished(kind, cpus).unwrap(), some(Confine::None), "{kind:?} {cpus:?}");
        }
        for (kind, cpus, part) in [
            (Some("cpuset"), None, "--confine-cpus"),
            (None, Some("2"), "--confine cpuset"),
            (Some("none"), Some("2"), "--confine quota"),
            (Some("cpuset"), Some("1.5"), "whole CPUs"),
            (Some("quota"), Some("5"), "4 CPUs are all"),
            (Some("quota"), Some("0.001"), "at least 0.01"),
            (Some("quota"), Some("-1"), "`-1`"),
            (Some("quota"), Some("nan"), "`nan`"),
        ] {
            let error = wished(kind, cpus).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{part}: {error}");
        }
    }
}
