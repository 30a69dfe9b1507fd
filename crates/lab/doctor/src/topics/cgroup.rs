//! Limits of CPU time and of CPUs around this process, in both versions of the kernel's control groups.
//! Facts: the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.

use carmine_topology::CpuList;

use crate::Finding;
use crate::machine::Machine;
use crate::source::{CPU_SCALING, HYPERCONVERGED};

const TIME: &str = "CPU limit (cgroup)";
const CPUS: &str = "allowed CPUs";
/// Length of a period where its file does not say, microseconds.
const PERIOD_US: f64 = 100_000.0;

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    vec![time(machine), cpus(machine)]
}

/// A hierarchy that limits CPU time, as it is mounted.
struct Hierarchy {
    /// 1 or 2.
    version: u8,
    /// Where it is mounted, below the root.
    at: String,
    /// Which part of it is mounted there.
    root: String,
}

/// A limit of a group.
struct Limit {
    cores: f64,
    /// Its file, below the root.
    file: String,
    /// What lifts it, written into that file.
    none: &'static str,
}

fn time(machine: &Machine<'_>) -> Finding {
    let mountinfo = machine.host.text("proc/self/mountinfo").unwrap_or_default();
    let hierarchies: Vec<Hierarchy> = mountinfo.lines().filter_map(hierarchy).collect();
    if hierarchies.is_empty() {
        return Finding::absent(TIME, "no control groups for CPU time are mounted");
    }
    // Every group from ours up to the root may have a limit: the smallest rules.
    let limits = hierarchies.iter().flat_map(|hierarchy| limits(machine, hierarchy));
    match limits.min_by(|a, b| a.cores.total_cmp(&b.cores)) {
        None => Finding::ok(TIME, "none"),
        Some(Limit { cores, file, none }) => Finding::warn(TIME, format!("{cores:.2} cores, by /{file}"))
            .better("no limit; confine by CPU lists instead (`up --cpus`)")
            .cost(
                "bursts need many cores for moments, so a hard limit hurts more than averages say; random writes were \
                 best without one",
                &format!("{CPU_SCALING}; {HYPERCONVERGED}"),
            )
            .command(format!("echo {none} > /{file}")),
    }
}

/// A line of `mountinfo`: `ID PARENT DEVICE ROOT AT OPTIONS … - TYPE SOURCE SUPER-OPTIONS`.
fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (front, back) = line.split_once(" - ")?;
    let (front, back): (Vec<&str>, Vec<&str>) = (front.split(' ').collect(), back.split(' ').collect());
    let version = match *back.first()? {
        "cgroup2" => 2,
        "cgroup" if back.get(2)?.split(',').any(|option| option == "cpu") => 1,
        _ => return None,
    };
    let below = |path: &str| path.trim_matches('/').to_owned();
    Some(Hierarchy { version, root: below(front.get(3)?), at: below(front.get(4)?) })
}

fn limits(machine: &Machine<'_>, hierarchy: &Hierarchy) -> Vec<Limit> {
    let own = machine.host.text("proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| own_group(line, hierarchy.version)).unwrap_or_default();
    // A container sees its own part as the root, whatever the path is.
    let inside = path.strip_prefix(&hierarchy.root).unwrap_or_default().trim_matches('/');
    let groups = std::iter::successors(Some(inside), |group| {
        (!group.is_empty()).then(|| group.rsplit_once('/').map_or("", |(above, _)| above))
    });
    groups.filter_map(|group| limit(machine, hierarchy, group)).collect()
}

/// The path in a line `NUMBER:CONTROLLERS:PATH`, if it is of the hierarchy of this version that limits CPU time.
fn own_group(line: &str, version: u8) -> Option<&str> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let fits = match version {
        2 => controllers.is_empty(),
        _ => controllers.split(',').any(|controller| controller == "cpu"),
    };
    fits.then(|| path.trim_matches('/'))
}

fn limit(machine: &Machine<'_>, hierarchy: &Hierarchy, group: &str) -> Option<Limit> {
    let dir = [hierarchy.at.as_str(), group].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
    let dir = dir.join("/");
    let (name, none) = if hierarchy.version == 2 { ("cpu.max", "max") } else { ("cpu.cfs_quota_us", "-1") };
    let file = format!("{dir}/{name}");
    let text = machine.host.text(&file)?;
    let mut words = text.split_whitespace();
    // `max` and -1 are no limit.
    let quota_us = words.next()?.parse::<f64>().ok().filter(|quota| *quota > 0.0)?;
    let period_us = match words.next() {
        Some(word) => word.parse().ok(),
        None => machine.host.number(format!("{dir}/cpu.cfs_period_us")).map(|us| us as f64),
    };
    Some(Limit { cores: quota_us / period_us.unwrap_or(PERIOD_US), file, none })
}

/// By a cpuset, or by who started this process.
fn cpus(machine: &Machine<'_>) -> Finding {
    let status = machine.host.text("proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed: Option<CpuList> = allowed.and_then(|list| list.trim().parse().ok());
    let online: Option<CpuList> =
        machine.host.text("sys/devices/system/cpu/online").and_then(|list| list.parse().ok());
    let (Some(allowed), Some(online)) = (allowed, online) else {
        return Finding::absent(CPUS, "not shown");
    };
    let usable = allowed.intersection(&online);
    if usable == online {
        return Finding::ok(CPUS, format!("all that are online: {online}"));
    }
    Finding::info(CPUS, format!("{usable}, while {online} are online: a cpuset, or taskset"))
        .better("all, or a testbed that is planned for these (it is: `carmine plan` shows them)")
        .command("for a cgroup: echo LIST > its cpuset.cpus; for one process: taskset -apc LIST PID")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    fn of(tree: &Tree) -> Finding {
        tree.find(examine).remove(0)
    }

    #[test]
    fn the_smallest_limit_above_us_rules() {
        assert_eq!(of(&Tree::new(&[])).severity, Severity::NotPresent);
        let tree = Tree::new(&[
            ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(of(&tree).severity, Severity::Ok);
        tree.put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        let found = of(&tree);
        assert_eq!(
            (found.severity, found.is.as_str()),
            (Severity::Warn, "1.50 cores, by /sys/fs/cgroup/a/cpu.max")
        );
    }

    /// As on a host with both versions: CPU time is limited by version 1, version 2 has no controller.
    #[test]
    fn version_1_beside_version_2() {
        let tree = Tree::new(&[
            (
                "proc/self/mountinfo",
                "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                 34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
            ),
            ("proc/self/cgroup", "3:cpuset:/x\n1:cpu,cpuacct:/pod/one\n0::/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/pod/one/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/pod/one/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(of(&tree).severity, Severity::Ok);
        tree.put("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "100000\n");
        tree.put("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "50000\n");
        let found = of(&tree);
        assert_eq!((found.severity, &found.is[..10]), (Severity::Warn, "2.00 cores"));
        assert_eq!(
            found.command.as_deref(),
            Some("echo -1 > /sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us")
        );
    }

    #[test]
    fn a_container_is_mounted_as_the_root() {
        let tree = Tree::new(&[
            ("proc/self/mountinfo", "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
            ("proc/self/cgroup", "0::/docker/abc\n"),
            ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ]);
        assert!(of(&tree).is.starts_with("0.50 cores, by /sys/fs/cgroup/cpu.max"));
        tree.put("proc/self/cgroup", "0::/../elsewhere\n");
        assert!(of(&tree).is.starts_with("0.50 cores"));
    }

    #[test]
    fn cpus_that_are_taken_away() {
        let of = |allowed: &str| {
            let status = format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n");
            let tree =
                Tree::new(&[("proc/self/status", &status), ("sys/devices/system/cpu/online", "0-3\n")]);
            tree.find(examine).remove(1)
        };
        assert_eq!(of("0-63").severity, Severity::Ok);
        let some = of("1-2");
        assert_eq!(some.severity, Severity::Info);
        assert!(some.is.starts_with("1-2, while 0-3"), "{}", some.is);
        assert_eq!(Tree::new(&[]).find(examine).remove(1).severity, Severity::NotPresent);
    }
}
