//! Reading Linux: `/sys/devices/system/{cpu,node}` and the process's allowed CPUs.
#![allow(clippy::disallowed_methods, reason = "reading the live description is what this module is for")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::topology::RawCpu;
use crate::{CpuList, Topology, TopologyError};

pub(crate) fn detect(root: &Path) -> Result<Topology, TopologyError> {
    let cpu_dir = root.join("sys/devices/system/cpu");
    let online: CpuList = read(&cpu_dir.join("online"))?.parse()?;
    let nodes = node_of_cpu(&root.join("sys/devices/system/node"));
    let raw = online.iter().map(|cpu| read_cpu(&cpu_dir, cpu, &nodes)).collect();
    Topology::build("this machine".into(), true, raw, allowed(root))
}

/// A virtual machine or container may hide parts of this: what is missing falls back to one CPU per core, and to the
/// socket as NUMA node and L3 group.
fn read_cpu(cpu_dir: &Path, cpu: usize, nodes: &BTreeMap<usize, usize>) -> RawCpu {
    let dir = cpu_dir.join(format!("cpu{cpu}"));
    let socket = read_number(&dir.join("topology/physical_package_id")).unwrap_or(0);
    let siblings = read_list(&dir.join("topology/core_cpus_list"))
        .or_else(|| read_list(&dir.join("topology/thread_siblings_list")));
    // The lowest CPU of a group is a key that is the same for all its members.
    let core = siblings.and_then(|list| list.iter().next()).unwrap_or(cpu);
    let l3 = l3_cpus(&dir.join("cache")).and_then(|list| list.iter().next());
    // Socket numbers as L3 keys must not meet CPU numbers as keys.
    let l3 = l3.unwrap_or(crate::cpulist::CPU_NUMBER_MAX + 1 + socket);
    RawCpu { cpu, socket, node: nodes.get(&cpu).copied().unwrap_or(socket), l3, core }
}

/// The CPUs that share this CPU's L3.
fn l3_cpus(cache_dir: &Path) -> Option<CpuList> {
    (0..8)
        .map(|index| cache_dir.join(format!("index{index}")))
        .find(|dir| read_number(&dir.join("level")) == Some(3))
        .and_then(|dir| read_list(&dir.join("shared_cpu_list")))
}

fn node_of_cpu(node_dir: &Path) -> BTreeMap<usize, usize> {
    let online = read_list(&node_dir.join("online")).unwrap_or_default();
    let mut nodes = BTreeMap::new();
    for node in &online {
        let cpus = read_list(&node_dir.join(format!("node{node}/cpulist"))).unwrap_or_default();
        nodes.extend(cpus.iter().map(|cpu| (cpu, node)));
    }
    nodes
}

/// `Cpus_allowed_list` has cpusets and taskset in it.
fn allowed(root: &Path) -> Option<CpuList> {
    let status = read(&root.join("proc/self/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    line.parse().ok()
}

fn read(path: &Path) -> Result<String, TopologyError> {
    std::fs::read_to_string(path).map_err(|e| TopologyError::Sysfs {
        path: PathBuf::from(path).display().to_string(),
        why: e.to_string(),
    })
}

fn read_number(path: &Path) -> Option<usize> {
    read(path).ok()?.trim().parse().ok()
}

fn read_list(path: &Path) -> Option<CpuList> {
    read(path).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Two sockets x two cores x two threads, siblings numbered side by side as some virtual machines do.
    fn machine(root: &Path) {
        put(root, "sys/devices/system/cpu/online", "0-7\n");
        for cpu in 0..8 {
            let (socket, first) = (cpu / 4, cpu / 2 * 2);
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            put(root, &format!("{dir}/topology/physical_package_id"), &format!("{socket}\n"));
            put(root, &format!("{dir}/topology/core_cpus_list"), &format!("{first}-{}\n", first + 1));
            put(root, &format!("{dir}/cache/index0/level"), "1\n");
            put(root, &format!("{dir}/cache/index3/level"), "3\n");
            put(
                root,
                &format!("{dir}/cache/index3/shared_cpu_list"),
                &format!("{}-{}\n", socket * 4, socket * 4 + 3),
            );
        }
        put(root, "sys/devices/system/node/online", "0-1\n");
        put(root, "sys/devices/system/node/node0/cpulist", "0-3\n");
        put(root, "sys/devices/system/node/node1/cpulist", "4-7\n");
        put(root, "proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-5\n");
    }

    #[test]
    fn reads_a_captured_machine() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path());
        let t = Topology::detect_at(root.path()).unwrap();
        assert_eq!((t.sockets(), t.nodes(), t.l3_groups(), t.cores(), t.cpus().len()), (2, 2, 2, 4, 8));
        assert_eq!(t.allowed().to_string(), "0-5");
        assert_eq!((t.cpu(5).unwrap().core, t.cpu(5).unwrap().thread), (2, 1));
        assert!(t.summary().contains("6 allowed: 0-5"), "{}", t.summary());
    }

    #[test]
    fn missing_parts_fall_back() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "sys/devices/system/cpu/online", "0-1\n");
        let t = Topology::detect_at(root.path()).unwrap();
        assert_eq!((t.sockets(), t.nodes(), t.l3_groups(), t.cores()), (1, 1, 1, 2));
        let none = Topology::detect_at(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(none.contains("/nonexistent/sys") && none.contains("--topology"), "{none}");
    }

    #[test]
    fn this_machine_is_read() {
        let t = Topology::detect().unwrap();
        assert!(t.is_live() && !t.cpus().is_empty() && !t.allowed().is_empty());
    }
}
