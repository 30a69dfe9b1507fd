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

use std::fmt;
use std::str::FromStr;

use carmine_topology::{CpuList, Grid, OsdRow};
use carmine_types::counted;

use crate::error::{Result, usage};
use crate::spec::{NONE, TestbedSpec};

pub use cgroup::{enter, throttled_ns};
pub(crate) use cgroup::{prepare, remove};

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

impl FromStr for ConfineCpus {
    type Err = crate::TestbedError;
    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<f64>() {
            _ if text == NONE => Ok(Self::NoLimit),
            Ok(cpus) if cpus.is_finite() && cpus > 0.0 => Ok(Self::Cpus(cpus)),
            _ => Err(usage!("`{text}`: write a number of CPUs, such as 2 or 1.5, or none")),
        }
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
        let cpus = match (spec.confine, spec.confine_cpus) {
            (ConfineKind::None, Some(ConfineCpus::Cpus(n))) => {
                return Err(usage!("--confine-cpus {n}: say how with --confine cpuset or --confine quota"));
            }
            (ConfineKind::None, _) | (_, Some(ConfineCpus::NoLimit)) => return Ok(Self::None),
            (_, None) => {
                return Err(usage!(
                    "--confine: say how many CPUs each OSD may have with --confine-cpus (`none`: no limit)"
                ));
            }
            (_, Some(ConfineCpus::Cpus(cpus))) => cpus,
        };
        let milli_cpus = (cpus * MILLI).round() as u32;
        match spec.confine {
            ConfineKind::Quota if cpus > machine_cpus as f64 => Err(usage!(
                "--confine-cpus {cpus}: here no more than {} may be used; lower it, or take `none`",
                counted(machine_cpus, "CPU")
            )),
            ConfineKind::Quota if milli_cpus < QUOTA_MILLI_CPUS_MIN => {
                let least = f64::from(QUOTA_MILLI_CPUS_MIN) / MILLI;
                Err(usage!("--confine-cpus {cpus}: a quota is at least {least}"))
            }
            ConfineKind::Quota => Ok(Self::Quota { milli_cpus }),
            _ if cpus.fract() > 0.0 => Err(usage!(
                "--confine-cpus {cpus}: a cpuset has whole CPUs; take a whole number, or --confine quota"
            )),
            _ => Ok(Self::Cpuset { cpus: cpus as usize }),
        }
    }

    /// Cores that the OSDs of `grid` have: their distinct CPUs; under a quota each OSD has no more than its time.
    pub(crate) fn cores(self, grid: &Grid) -> f64 {
        let cpus = grid.allocated_cpus().len() as f64;
        let Self::Quota { milli_cpus } = self else { return cpus };
        let each = |osd: &OsdRow| (cpus_of(osd).len() as f64).min(f64::from(milli_cpus) / MILLI);
        grid.osds.iter().map(each).sum::<f64>().min(cpus)
    }

    /// CPUs of each OSD's cpuset.
    pub(crate) fn cpuset(self) -> Option<usize> {
        if let Self::Cpuset { cpus } = self { Some(cpus) } else { None }
    }
}

/// The CPUs of an OSD's reactors and aliens.
fn cpus_of(osd: &OsdRow) -> CpuList {
    osd.reactor_cpus().into_iter().chain(&osd.aliens.cpus).collect()
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
