//! Confinement of the OSDs (`--confine`): how many CPUs each may have, and how that is enforced.
//!
//! `cpuset`: each OSD has N CPUs and no others; its reactors are pinned to the first of them, its aliens to the rest. The
//! OSD's own affinity is enough for that; where a cgroup with a cpuset can be made it is made, too, since the kernel's
//! helper threads (io_uring's workers) obey that one.
//!
//! `quota`: as a container's CPU limit: a cgroup gives each OSD N CPUs' worth of time in every 100 ms over whatever CPUs
//! it runs on. Reactors keep their pins; once the time is used up the kernel stops all of the OSD until the next period.
//! [`throttled_ns`] returns the time that it lost in this way.
//!
//! The control groups are made, in version 2 or 1 of the kernel's interface, before the OSDs start, joined by each of them, and
//! removed when they have ended. Their record in the folder is written before they are made, so that a crash leaves no unknown
//! group.
//! Facts: the kernel's Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst and scheduler/sched-bwc.rst.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use carmine_topology::{ControlGroup, CpuList, Grid, OsdRow};
use carmine_types::{OsdId, counted};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{Result, fail_if, refuse, usage};
use crate::files::{self, read_json, write_json};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::spec::{NONE, TestbedSpec};

/// Least quota: the kernel takes no less than 1 ms of a period of 100 ms.
const QUOTA_CPUS_MIN: f64 = 0.01;
/// Length of a period, the kernel's default, microseconds.
const PERIOD_US: f64 = 100_000.0;
/// A group is busy until the kernel has buried its last process.
const REMOVE_LIMIT: Duration = Duration::from_secs(2);

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

carmine_types::as_text!(ConfineCpus);

/// Confinement of every OSD of a testbed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Confine {
    /// The kind of limit.
    pub kind: ConfineKind,
    /// CPUs of each OSD; without meaning if there is no limit.
    pub cpus: f64,
}

impl Confine {
    /// No limit.
    pub const NONE: Self = Self { kind: ConfineKind::None, cpus: 0.0 };

    /// The confinement of a specification; `machine_cpus` are the CPUs that this process may use.
    ///
    /// # Errors
    /// One of the two options without the other, or a number that this kind or machine does not have.
    pub(crate) fn from_spec(spec: &TestbedSpec, machine_cpus: usize) -> Result<Self> {
        let kind = spec.confine;
        let cpus = match (kind, spec.confine_cpus) {
            (ConfineKind::None, Some(ConfineCpus::Cpus(n))) => {
                Err(usage!("--confine-cpus {n}: say how with --confine cpuset or --confine quota"))
            }
            (ConfineKind::None, _) | (_, Some(ConfineCpus::NoLimit)) => return Ok(Self::NONE),
            (_, None) => Err(usage!(
                "--confine: say how many CPUs each OSD may have with --confine-cpus (`none`: no limit)"
            )),
            (_, Some(ConfineCpus::Cpus(cpus))) => Ok(cpus),
        }?;
        let is_quota = kind == ConfineKind::Quota;
        refuse!(
            is_quota && cpus > machine_cpus as f64,
            "--confine-cpus {cpus}: no more than {} may be used here; lower it, or take `none`",
            counted(machine_cpus, "CPU")
        );
        let is_little = is_quota && cpus < QUOTA_CPUS_MIN;
        refuse!(is_little, "--confine-cpus {cpus}: a quota is at least {QUOTA_CPUS_MIN}");
        let whole = "take a whole number, or --confine quota";
        refuse!(!is_quota && cpus.fract() > 0.0, "--confine-cpus {cpus}: a cpuset has whole CPUs; {whole}");
        Ok(Self { kind, cpus })
    }

    /// Cores that the OSDs of `grid` have: their distinct CPUs; under a quota each OSD has no more than its time.
    pub(crate) fn cores(self, grid: &Grid) -> f64 {
        let limit = if self.kind == ConfineKind::Quota { self.cpus } else { f64::INFINITY };
        let each = |osd: &OsdRow| (cpus_of(osd).len() as f64).min(limit);
        grid.osds.iter().map(each).sum::<f64>().min(grid.allocated_cpus().len() as f64)
    }

    /// CPUs of each OSD's cpuset.
    pub(crate) fn cpuset(self) -> Option<usize> {
        (self.kind == ConfineKind::Cpuset).then_some(self.cpus as usize)
    }
}

/// The CPUs of an OSD's reactors and aliens.
fn cpus_of(osd: &OsdRow) -> CpuList {
    osd.reactor_cpus().into_iter().chain(osd.aliens.cpus.iter()).collect()
}

impl fmt::Display for Confine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.cpus) {
            (ConfineKind::None, _) => f.write_str("no limit"),
            (ConfineKind::Cpuset, cpus) => write!(f, "cpuset, {} per OSD", counted(cpus as usize, "CPU")),
            (ConfineKind::Quota, cpus) => write!(f, "quota, {cpus} CPUs of time per OSD"),
        }
    }
}

/// The record of a testbed's groups.
#[derive(Serialize, Deserialize)]
struct Groups {
    /// The testbed's own group, in which each OSD has one.
    dir: PathBuf,
}

/// Makes the groups that the plan needs; the text says how the OSDs are confined. Call it before they start.
///
/// # Errors
/// A quota for which no group can be made (a usage error that says what to do).
pub(crate) fn prepare(layout: &Layout, plan: &Plan) -> Result<Option<String>> {
    remove(layout)?;
    let confinement = plan.confinement();
    let controller = match confinement.kind {
        ConfineKind::None => return Ok(None),
        ConfineKind::Cpuset => "cpuset",
        ConfineKind::Quota => "cpu",
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut why = "no cgroup file system is mounted".to_owned();
    let own = ControlGroup::own(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), controller);
    // Best first: this process's own group, then those above it.
    for (version, dir) in own.iter().flat_map(|group| group.upwards().map(|dir| (group.version, dir))) {
        match (Base { dir, controller, version }).make_all(layout, plan) {
            Ok(()) => return Ok(Some(format!("{confinement} (cgroup v{version})"))),
            Err(error) => why = error.to_string(),
        }
        remove(layout)?;
    }
    if controller == "cpuset" {
        return Ok(Some(format!("{confinement} (affinity alone: no cgroup could be made)")));
    }
    Err(usage!(
        "--confine quota: no control group with CPU time can be made here ({why}): run as root outside of a container, or as \
         `systemd-run --user --scope -p Delegate=yes carmine up …`, or take --confine cpuset"
    ))
}

/// Moves this process, which must not have started threads yet, into the group of its OSD, if there is one.
///
/// # Errors
/// The group is gone, or may not be joined.
pub fn enter(layout: &Layout, osd: OsdId) -> Result<()> {
    let Some(groups) = read_json::<Groups>(&layout.confine_file())? else { return Ok(()) };
    let procs = groups.dir.join(osd.to_string()).join("cgroup.procs");
    Ok(fs::write(procs, std::process::id().to_string())?)
}

/// Removes the groups of a testbed whose OSDs have ended, also those of a start that crashed.
///
/// # Errors
/// A process is still in one of them.
pub(crate) fn remove(layout: &Layout) -> Result<()> {
    let Some(groups) = read_json::<Groups>(&layout.confine_file())? else { return Ok(()) };
    // Only groups can be folders here: their files vanish with them.
    let entries = fs::read_dir(&groups.dir).into_iter().flatten().flatten();
    let below = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let end = Instant::now() + REMOVE_LIMIT;
    for dir in below.chain([groups.dir.clone()]) {
        while let Err(e) = fs::remove_dir(&dir) {
            if e.kind() == ErrorKind::NotFound {
                break;
            }
            let stays = Instant::now() > end;
            fail_if!(stays, "a control group stays ({e}): which process is in its cgroup.procs?");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    files::remove_file(&layout.confine_file())
}

/// A folder in which groups with a controller can be made.
struct Base<'a> {
    dir: &'a Path,
    controller: &'static str,
    /// Version of the interface, 1 or 2.
    version: u8,
}

impl Base<'_> {
    /// Makes the testbed's group in this folder, and in that one for each OSD.
    fn make_all(&self, layout: &Layout, plan: &Plan) -> Result<()> {
        let dir = self.dir.join(format!("carmine-{}", plan.identity()));
        write_json(&layout.confine_file(), &Groups { dir: dir.clone() })?;
        self.enable(self.dir)?;
        self.make(&dir)?;
        self.enable(&dir)?;
        for (row, osd) in plan.grid.osds.iter().zip(plan.numbers()) {
            let quota_us = (plan.confinement().cpus * PERIOD_US).round();
            let limits = match (self.controller, self.version) {
                ("cpuset", _) => vec![("cpuset.cpus", cpus_of(row).to_string())],
                (_, 2) => vec![("cpu.max", format!("{quota_us} {PERIOD_US}"))],
                _ => vec![
                    ("cpu.cfs_period_us", PERIOD_US.to_string()),
                    ("cpu.cfs_quota_us", quota_us.to_string()),
                ],
            };
            let dir = dir.join(osd.to_string());
            self.make(&dir)?;
            limits.into_iter().try_for_each(|(file, value)| fs::write(dir.join(file), value))?;
        }
        Ok(())
    }

    /// Gives groups below `dir` the controller (version 2; in version 1 they have it).
    fn enable(&self, dir: &Path) -> Result<()> {
        let name = self.controller;
        let has = |file: &str| {
            fs::read_to_string(dir.join(file)).unwrap_or_default().split_whitespace().any(|word| word == name)
        };
        if self.version == 1 || has("cgroup.subtree_control") {
            return Ok(());
        }
        fail_if!(!has("cgroup.controllers"), "{} has no controller `{name}`", dir.display());
        Ok(fs::write(dir.join("cgroup.subtree_control"), format!("+{name}"))?)
    }

    /// Makes a group. In version 1 a new cpuset has neither CPUs nor memory, and takes no process until it has both.
    fn make(&self, dir: &Path) -> Result<()> {
        match fs::create_dir(dir) {
            // Left by a testbed that crashed: its name shows that it is ours.
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e.into()),
            _ => {}
        }
        if self.version == 1 && self.controller == "cpuset" {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let value = fs::read_to_string(dir.parent().unwrap_or(dir).join(file))?;
                fs::write(dir.join(file), value.trim())?;
            }
        }
        Ok(())
    }
}

/// Time that CPUs which had work for a process were denied to it by the CPU quota of its control group, nanoseconds since
/// the group was made, summed over CPUs; `None` where it has no quota.
pub fn throttled_ns(pid: u32) -> Option<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    ControlGroup::own(&mounts, &own, "cpu").iter().find_map(|base| {
        let read = |file: &str| fs::read_to_string(base.dir.join(file)).ok();
        let limited = match base.version {
            2 => !read("cpu.max")?.starts_with("max"),
            _ => !read("cpu.cfs_quota_us")?.starts_with('-'),
        };
        if limited { parse_throttled_ns(&read("cpu.stat")?) } else { None }
    })
}

/// Nanoseconds that a group was stopped, out of its `cpu.stat`.
fn parse_throttled_ns(text: &str) -> Option<u64> {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    field("throttled_time").or_else(|| Some(field("throttled_usec")?.saturating_mul(1000)))
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
        Confine::from_spec(&spec, 4)
    }

    #[test]
    fn a_quota_is_what_is_allocated() {
        use carmine_topology::{PlanRequest, Topology};
        let grid = |osds, reactors, overprovisioned| {
            let request = PlanRequest { osds, reactors, overprovisioned, ..PlanRequest::default() };
            Grid::plan(&Topology::from_short("1x8x1").unwrap(), &request).unwrap()
        };
        let quota = |cpus| Confine { kind: ConfineKind::Quota, cpus };
        assert_eq!(Confine::NONE.cores(&grid(2, 2, false)), 4.0);
        assert_eq!(quota(1.5).cores(&grid(2, 2, false)), 3.0, "1.5 of each OSD's 2 CPUs");
        assert_eq!(quota(4.0).cores(&grid(2, 2, false)), 4.0, "no more than its CPUs");
        assert_eq!(quota(4.0).cores(&grid(8, 4, true)), 8.0, "no more than all CPUs, which OSDs share");
    }

    #[test]
    fn both_options_make_a_confinement() {
        assert_eq!(
            confined(Some("cpuset"), Some("2")).unwrap(),
            Confine { kind: ConfineKind::Cpuset, cpus: 2.0 }
        );
        assert_eq!(
            confined(Some("quota"), Some("1.5")).unwrap(),
            Confine { kind: ConfineKind::Quota, cpus: 1.5 }
        );
        for (kind, cpus) in [(Some("quota"), Some("none")), (Some("none"), None), (None, Some("none"))] {
            assert_eq!(confined(kind, cpus).unwrap(), Confine::NONE, "{kind:?} {cpus:?}");
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

    #[test]
    fn both_forms_of_cpu_stat() {
        let v1 = "nr_periods 10\nnr_throttled 4\nthrottled_time 123456789\n";
        let v2 = "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 123456\nnr_bursts 0\n";
        assert_eq!(parse_throttled_ns(v1), Some(123_456_789));
        assert_eq!(parse_throttled_ns(v2), Some(123_456_000));
        assert_eq!(parse_throttled_ns("usage_usec 5\n"), None);
    }
}
