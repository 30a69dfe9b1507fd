//! The control groups of a running testbed, in version 2 or 1 of the kernel's interface: made before its OSDs start, joined by
//! each of them, removed when they have ended. Their record in the folder is written before they are made, so that a crash
//! leaves nothing unknown.
//! Facts: the kernel's Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst and scheduler/sched-bwc.rst.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carmine_types::OsdId;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::{Confine, cpus_of};
use crate::error::{Result, failed, usage};
use crate::files;
use crate::layout::Layout;
use crate::plan::Plan;

/// Length of a period, the kernel's default, microseconds.
const PERIOD_US: u64 = 100_000;
/// A group is busy until the kernel has buried its last process.
const REMOVE_LIMIT: Duration = Duration::from_secs(2);

/// The record of a testbed's groups.
#[derive(Serialize, Deserialize)]
struct Groups {
    /// The testbed's own group, in which each OSD has one.
    dir: PathBuf,
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
    let confinement = plan.confinement();
    let controller = match confinement {
        Confine::None => return Ok(None),
        Confine::Cpuset { .. } => "cpuset",
        Confine::Quota { .. } => "cpu",
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut why = "no cgroup file system is mounted".to_owned();
    for base in candidates(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), controller) {
        match base.make_all(layout, plan) {
            Ok(()) => return Ok(Some(format!("{confinement} (cgroup v{})", base.version))),
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
    let Some(groups) = load(layout)? else { return Ok(()) };
    let procs = groups.dir.join(osd.to_string()).join("cgroup.procs");
    Ok(fs::write(procs, std::process::id().to_string())?)
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
            if e.kind() == ErrorKind::NotFound {
                break;
            }
            if Instant::now() > end {
                return Err(failed!("a control group stays ({e}): which process is in its cgroup.procs?"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    files::remove_file(&layout.confine_file())
}

/// A folder in which groups with a controller can be made.
#[derive(Clone, Debug)]
struct Base {
    dir: PathBuf,
    /// Where its hierarchy begins.
    top: PathBuf,
    controller: &'static str,
    /// Version of the interface, 1 or 2.
    version: u8,
}

/// A process's own groups by its `/proc/PID/cgroup`, one for each mounted hierarchy that may have `controller`.
fn own_groups(mountinfo: &str, own: &str, controller: &'static str) -> Vec<Base> {
    let named = |list: &str| list.split(',').any(|name| name == controller);
    let group = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split_ascii_whitespace().skip(3);
        let (root, top) = (front.next()?, PathBuf::from(front.next()?));
        let mut back = back.split_ascii_whitespace();
        let version = match back.next()? {
            "cgroup2" => 2,
            "cgroup" if named(back.nth(1)?) => 1,
            _ => return None,
        };
        let path = own.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            let is_own = if version == 2 { names.is_empty() } else { named(names) };
            is_own.then_some(path)
        });
        // In a container only a part of the hierarchy may be mounted.
        let below = Path::new(path.unwrap_or_default()).strip_prefix(root).unwrap_or(Path::new(""));
        Some(Base { dir: top.join(below), top, controller, version })
    };
    mountinfo.lines().filter_map(group).collect()
}

/// Folders that may take a group with `controller`, best first: this process's own group and those above it.
fn candidates(mountinfo: &str, own: &str, controller: &'static str) -> Vec<Base> {
    let upwards = |base: Base| {
        let dirs = base.dir.ancestors().take_while(|dir| dir.starts_with(&base.top));
        dirs.map(|dir| Base { dir: dir.to_owned(), ..base.clone() }).collect::<Vec<_>>()
    };
    own_groups(mountinfo, own, controller).into_iter().flat_map(upwards).collect()
}

impl Base {
    /// Makes the testbed's group in this folder, and in that one for each OSD.
    fn make_all(&self, layout: &Layout, plan: &Plan) -> Result<()> {
        let dir = self.dir.join(format!("carmine-{}", plan.fsid));
        files::write_json(&layout.confine_file(), &Groups { dir: dir.clone() })?;
        self.enable(&self.dir)?;
        self.make(&dir)?;
        self.enable(&dir)?;
        let quota_us = |milli_cpus: u32| u64::from(milli_cpus) * PERIOD_US / 1000;
        for (row, osd) in plan.grid.osds.iter().zip((0..).map(OsdId)) {
            let limits = match (plan.confinement(), self.version) {
                (Confine::Quota { milli_cpus: cpus }, 2) => {
                    vec![("cpu.max", format!("{} {PERIOD_US}", quota_us(cpus)))]
                }
                (Confine::Quota { milli_cpus: cpus }, _) => vec![
                    ("cpu.cfs_period_us", PERIOD_US.to_string()),
                    ("cpu.cfs_quota_us", quota_us(cpus).to_string()),
                ],
                _ => vec![("cpuset.cpus", cpus_of(row).to_string())],
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
        if !has("cgroup.controllers") {
            return Err(failed!("{} has no controller `{name}`", dir.display()));
        }
        Ok(fs::write(dir.join("cgroup.subtree_control"), format!("+{name}"))?)
    }

    /// Makes a group. In version 1 a new cpuset has neither CPUs nor memory, and takes no process until it has both.
    fn make(&self, dir: &Path) -> Result<()> {
        match fs::create_dir(dir) {
            // Left by a testbed that crashed: it is ours by its name.
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
    own_groups(&mounts, &own, "cpu").iter().find_map(|base| {
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

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:30 /docker/ab /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
        broken line";
    const OWN: &str = "3:cpuset:/docker/ab/x\n1:cpu,cpuacct:/a/b\n0::/user.slice/s\n";

    #[test]
    fn folders_from_the_own_group_upwards() {
        let dirs = |controller| {
            let bases = candidates(MOUNTS, OWN, controller);
            bases.iter().map(|b| format!("{} v{}", b.dir.display(), b.version)).collect::<Vec<_>>()
        };
        let unified = ["unified/user.slice/s", "unified/user.slice", "unified"]
            .map(|d| format!("/sys/fs/cgroup/{d} v2"));
        let cpu = ["cpu/a/b", "cpu/a", "cpu"].map(|d| format!("/sys/fs/cgroup/{d} v1"));
        assert_eq!(dirs("cpu"), [&cpu[..], &unified[..]].concat());
        let cpuset = ["cpuset/x", "cpuset"].map(|d| format!("/sys/fs/cgroup/{d} v1"));
        assert_eq!(dirs("cpuset"), [&cpuset[..], &unified[..]].concat());
        assert!(candidates("", "", "cpu").is_empty());
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
