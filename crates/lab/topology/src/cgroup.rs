//! Control groups of a process, as far as this process can see them.
//! Facts: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cgroups.rst.

use std::path::{Path, PathBuf};

/// A control group in a mounted hierarchy.
#[derive(Clone, Debug)]
pub struct ControlGroup {
    /// Its folder.
    pub dir: PathBuf,
    /// Version of the kernel's interface, 1 or 2.
    pub version: u8,
    /// Where its hierarchy begins.
    top: PathBuf,
}

impl ControlGroup {
    /// The groups of a process by its `/proc/PID/cgroup`, one for each hierarchy of `/proc/self/mountinfo` that may have
    /// `controller`.
    pub fn own(mountinfo: &str, own: &str, controller: &str) -> Vec<ControlGroup> {
        let named = |list: &str| list.split(',').any(|name| name == controller);
        // `ID PARENT DEVICE ROOT AT OPTIONS … - TYPE SOURCE SUPER-OPTIONS`
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
            // `NUMBER:CONTROLLERS:PATH`; version 2 names no controller.
            let path = own.lines().find_map(|line| {
                let (names, path) = line.split_once(':')?.1.split_once(':')?;
                let is_own = if version == 2 { names.is_empty() } else { named(names) };
                is_own.then_some(path)
            });
            // In a container only a part of the hierarchy may be mounted.
            let below = Path::new(path.unwrap_or_default()).strip_prefix(root).unwrap_or(Path::new(""));
            Some(ControlGroup { dir: top.join(below), version, top })
        };
        mountinfo.lines().filter_map(group).collect()
    }

    /// The folders of this group and of those above it, as far as they are mounted.
    pub fn upwards(&self) -> impl Iterator<Item = &Path> {
        self.dir.ancestors().take_while(|dir| dir.starts_with(&self.top))
    }
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
            let groups = ControlGroup::own(MOUNTS, OWN, controller);
            let named = |group: &ControlGroup| {
                let version = group.version;
                group.upwards().map(|dir| format!("{} v{version}", dir.display())).collect::<Vec<_>>()
            };
            groups.iter().flat_map(named).collect::<Vec<_>>()
        };
        let unified = ["unified/user.slice/s", "unified/user.slice", "unified"]
            .map(|d| format!("/sys/fs/cgroup/{d} v2"));
        let cpu = ["cpu/a/b", "cpu/a", "cpu"].map(|d| format!("/sys/fs/cgroup/{d} v1"));
        assert_eq!(dirs("cpu"), [&cpu[..], &unified[..]].concat());
        let cpuset = ["cpuset/x", "cpuset"].map(|d| format!("/sys/fs/cgroup/{d} v1"));
        assert_eq!(dirs("cpuset"), [&cpuset[..], &unified[..]].concat());
        assert!(ControlGroup::own("", "", "cpu").is_empty());
    }
}
