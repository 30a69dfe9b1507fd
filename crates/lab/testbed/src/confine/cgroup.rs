//! Where a control group can be made, in version 2 or 1 of the kernel's interface, and what is written into its files.
//! Facts: the kernel's Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst and scheduler/sched-bwc.rst.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Result, TestbedError, failed};

/// Length of a period, the kernel's default, microseconds.
const PERIOD_US: u64 = 100_000;

/// A resource that a group limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Controller {
    /// CPU time.
    Cpu,
    /// CPU list.
    Cpuset,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
        }
    }
}

/// A folder in which groups with a controller can be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Base {
    pub(super) dir: PathBuf,
    pub(super) controller: Controller,
    /// Version of the interface, 1 or 2.
    pub(super) version: u8,
}

/// One line of `/proc/self/mountinfo` about a control group file system.
struct Mount {
    /// Which part of the hierarchy is mounted.
    root: String,
    at: PathBuf,
    version: u8,
    options: String,
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split_ascii_whitespace().skip(3);
    let (root, at) = (front.next()?.to_owned(), front.next()?);
    let mut back = back.split_ascii_whitespace();
    let version = match back.next()? {
        "cgroup2" => 2,
        "cgroup" => 1,
        _ => return None,
    };
    Some(Mount { root, at: at.into(), version, options: back.nth(1)?.to_owned() })
}

/// This process's group in the hierarchy of `controller`, as `/proc/self/cgroup` has it.
fn own_path(text: &str, version: u8, controller: Controller) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match version {
            2 => number == "0" && names.is_empty(),
            _ => names.split(',').any(|name| name == controller.name()),
        };
        ours.then(|| path.to_owned())
    })
}

/// A process's own groups by its `/proc/PID/cgroup`, one for each mounted hierarchy that may have `controller`; each with
/// the folder where the hierarchy begins.
fn own_groups(mountinfo: &str, own: &str, controller: Controller) -> Vec<(Base, PathBuf)> {
    let mounts = mountinfo.lines().filter_map(parse_mount);
    let fitting = mounts.filter(|m| m.version == 2 || m.options.split(',').any(|o| o == controller.name()));
    let group = |mount: Mount| {
        let path = own_path(own, mount.version, controller).unwrap_or_default();
        // In a container only a part of the hierarchy may be mounted.
        let below = Path::new(&path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        (Base { dir: mount.at.join(below), controller, version: mount.version }, mount.at)
    };
    fitting.map(group).collect()
}

/// Folders that may take a group with `controller`, best first: this process's own group and those above it.
fn candidates(mountinfo: &str, own: &str, controller: Controller) -> Vec<Base> {
    let upwards = |(base, top): (Base, PathBuf)| {
        let dirs = base.dir.ancestors().take_while(|dir| dir.starts_with(&top));
        dirs.map(|dir| Base { dir: dir.to_owned(), ..base.clone() }).collect::<Vec<_>>()
    };
    own_groups(mountinfo, own, controller).into_iter().flat_map(upwards).collect()
}

impl Base {
    /// Every folder that may do, best first.
    pub(super) fn all(controller: Controller) -> Vec<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        candidates(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), controller)
    }

    /// Gives groups below `dir` the controller (version 2; in version 1 they have it).
    fn enable(&self, dir: &Path) -> Result<()> {
        let name = self.controller.name();
        let has = |file: &str| {
            fs::read_to_string(dir.join(file)).unwrap_or_default().split_whitespace().any(|word| word == name)
        };
        if self.version == 1 || has("cgroup.subtree_control") {
            return Ok(());
        }
        if !has("cgroup.controllers") {
            return Err(failed!("{} has no controller `{name}`", dir.display()));
        }
        write(&dir.join("cgroup.subtree_control"), &format!("+{name}"))
    }

    /// Makes the testbed's group `name` in this folder; its own groups are made in that.
    pub(super) fn make_parent(&self, name: &str) -> Result<PathBuf> {
        self.enable(&self.dir)?;
        let dir = make(&self.dir.join(name))?;
        self.inherit_cpuset(&dir)?;
        self.enable(&dir)?;
        Ok(dir)
    }

    /// Makes a group below the testbed's that has `milli_cpus` thousandths of a CPU.
    pub(super) fn make_quota(&self, dir: &Path, milli_cpus: u32) -> Result<()> {
        make(dir)?;
        let quota_us = u64::from(milli_cpus) * PERIOD_US / 1000;
        match self.version {
            2 => write(&dir.join("cpu.max"), &format!("{quota_us} {PERIOD_US}")),
            _ => {
                write(&dir.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&dir.join("cpu.cfs_quota_us"), &quota_us.to_string())
            }
        }
    }

    /// Makes a group below the testbed's that has these CPUs.
    pub(super) fn make_cpuset(&self, dir: &Path, cpus: &str) -> Result<()> {
        make(dir)?;
        self.inherit_cpuset(dir)?;
        write(&dir.join("cpuset.cpus"), cpus)
    }

    /// In version 1 a new cpuset has neither CPUs nor memory, and takes no process until it has both.
    fn inherit_cpuset(&self, dir: &Path) -> Result<()> {
        if self.version != 1 || self.controller != Controller::Cpuset {
            return Ok(());
        }
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let parent = dir.parent().unwrap_or(dir).join(file);
            let value = fs::read_to_string(&parent).map_err(TestbedError::io("read", &parent))?;
            write(&dir.join(file), value.trim())?;
        }
        Ok(())
    }
}

fn make(dir: &Path) -> Result<PathBuf> {
    match fs::create_dir(dir) {
        // Left by a testbed that crashed: it is ours by its name.
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(TestbedError::io("create", dir)(e)),
        _ => Ok(dir.to_owned()),
    }
}

pub(super) fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).map_err(TestbedError::io("write", path))
}

/// Time that CPUs which had work for a process were denied to it by the CPU quota of its control group, nanoseconds since
/// the group was made, summed over CPUs; `None` where it has no quota.
pub fn throttled_ns(pid: u32) -> Option<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    own_groups(&mounts, &own, Controller::Cpu).iter().find_map(|(base, _)| {
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
        assert_eq!(dirs(Controller::Cpu), [&cpu[..], &unified[..]].concat());
        let cpuset = ["cpuset/x", "cpuset"].map(|d| format!("/sys/fs/cgroup/{d} v1"));
        assert_eq!(dirs(Controller::Cpuset), [&cpuset[..], &unified[..]].concat());
        assert_eq!(candidates("", "", Controller::Cpu), []);
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
