//! Where a topology comes from: Linux (`/sys/devices/system/{cpu,node}` and the process's allowed CPUs), or what `lscpu -p` printed elsewhere.
#![allow(
    clippy::disallowed_methods,
    reason = "reads the files of the machine, and the one that the user named"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::cpulist::CPU_NUMBER_MAX;
use crate::error::{refuse, wrong};
use crate::{Cpu, CpuList, Topology, TopologyError};

pub(crate) fn detect(root: &Path) -> Result<Topology, TopologyError> {
    let system = root.join("sys/devices/system");
    let online = system.join("cpu/online");
    let online: CpuList = match fs::read_to_string(&online) {
        Ok(text) => text.parse()?,
        Err(e) => {
            let path = online.display();
            return Err(wrong!(
                "cannot read the machine's topology: {path}: {e}; describe it with --topology FILE or 2x28x2 instead"
            ));
        }
    };
    let nodes = read::<CpuList>(&system.join("node/online")).unwrap_or_default();
    let cpus_of =
        |node| read::<CpuList>(&system.join(format!("node/node{node}/cpulist"))).unwrap_or_default();
    let nodes = nodes.iter().flat_map(|node| cpus_of(node).to_vec().into_iter().map(move |cpu| (cpu, node)));
    let nodes: BTreeMap<usize, usize> = nodes.collect();
    let cpus = online.iter().map(|cpu| read_cpu(&system.join(format!("cpu/cpu{cpu}")), cpu, &nodes));
    // It has cpusets and taskset in it.
    let allowed = fs::read_to_string(root.join("proc/self/status")).ok();
    let allowed = allowed.and_then(|status| {
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.parse().ok()
    });
    Topology::build("this machine".into(), true, cpus.collect(), allowed)
}

/// A virtual machine or container may hide parts of this: what is missing falls back to one CPU per core, and to the
/// socket as NUMA node and L3 group.
fn read_cpu(dir: &Path, cpu: usize, nodes: &BTreeMap<usize, usize>) -> Cpu {
    // The lowest CPU of a group is a key that is the same for all its members.
    let lowest = |file: &str| read::<CpuList>(&dir.join(file))?.iter().next();
    let socket = read(&dir.join("topology/physical_package_id")).unwrap_or(0);
    let core = lowest("topology/core_cpus_list").or_else(|| lowest("topology/thread_siblings_list"));
    let is_l3 = |index: &usize| read(&dir.join(format!("cache/index{index}/level"))) == Some(3);
    let l3 = (0..8).find(is_l3).and_then(|index| lowest(&format!("cache/index{index}/shared_cpu_list")));
    Cpu {
        cpu,
        socket,
        node: nodes.get(&cpu).copied().unwrap_or(socket),
        // Socket numbers as L3 keys must not meet CPU numbers as keys.
        l3: l3.unwrap_or(CPU_NUMBER_MAX + 1 + socket),
        core: core.unwrap_or(cpu),
        thread: 0,
    }
}

fn read<T: std::str::FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Reads what `lscpu -p` has printed on another machine.
pub(crate) fn from_file(path: &Path) -> Result<Topology, TopologyError> {
    let bad = |why: String| wrong!("topology file {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    parse(&text, &path.file_name().unwrap_or_default().to_string_lossy()).map_err(|e| bad(e.to_string()))
}

/// A line is `CPU,Core,Socket,Node,,L1d,L1i,L2,L3`, with colons between the caches in older versions; what a machine does not
/// report is empty, and the socket stands for it.
fn parse(text: &str, name: &str) -> Result<Topology, TopologyError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let mut seen = BTreeSet::new();
    let cpu = |line: &str| {
        let fields: Vec<Option<usize>> =
            line.split([',', ':']).map(|field| field.trim().parse().ok()).collect();
        let [Some(cpu), Some(core), Some(socket), node, _, .., l3] = fields[..] else {
            return Err(wrong!(
                "`{line}` is no line of `lscpu -p`, whose output on the other machine is needed"
            ));
        };
        refuse!(!seen.insert(cpu), "CPU {cpu} is described twice");
        refuse!(cpu > CPU_NUMBER_MAX, "CPU {cpu} is above {CPU_NUMBER_MAX}");
        Ok(Cpu { cpu, socket, node: node.unwrap_or(socket), l3: l3.unwrap_or(socket), core, thread: 0 })
    };
    let cpus = lines.map(cpu).collect::<Result<_, _>>()?;
    Topology::build(name.to_owned(), false, cpus, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lscpu_prints_is_a_machine() {
        let text =
            "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,0\n1,0,0,0,,0,0,0,0\n2,9,7,1,,9,9,9,5\n";
        let t = parse(text, "f").unwrap();
        assert_eq!((t.name.as_str(), t.sockets(), t.nodes(), t.cpu(1).unwrap().thread), ("f", 2, 2, 1));
        let hidden = parse("0,0,0,,,0,0,0,\n1,1,1,,,1:1:1:\n", "f").unwrap();
        assert_eq!((hidden.nodes(), hidden.cpu(1).unwrap().l3, hidden.count(|c| c.core)), (2, 1, 2));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("", "no usable CPU"),
            ("0,0", "`0,0` is no line"),
            ("x,0,0,0,,0,0,0,0", "lscpu -p"),
            ("0,0,0,0,,0,0,0,0\n0,1,0,0,,0,0,0,0", "CPU 0 is described twice"),
            ("70000,1,0,0,,0,0,0,0", "above 65535"),
        ] {
            let error = parse(text, "f").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

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
        assert_eq!((t.sockets(), t.count(|c| c.core), t.cpus().len()), (2, 4, 8));
        assert_eq!(t.allowed().to_string(), "0-5");
        assert_eq!((t.cpu(5).unwrap().core, t.cpu(5).unwrap().thread), (2, 1));
        assert!(
            t.summary().contains("2 NUMA nodes, 2 L3 groups") && t.summary().contains("6 allowed: 0-5"),
            "{}",
            t.summary()
        );
    }

    #[test]
    fn missing_parts_fall_back() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "sys/devices/system/cpu/online", "0-1\n");
        let t = Topology::detect_at(root.path()).unwrap();
        assert_eq!((t.sockets(), t.count(|c| c.core), t.cpus().len()), (1, 2, 2));
        let none = Topology::detect_at(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(none.contains("/nonexistent/sys") && none.contains("--topology"), "{none}");
    }

    #[test]
    fn this_machine_is_read() {
        let t = Topology::detect().unwrap();
        assert!(t.live && !t.cpus().is_empty() && !t.allowed().is_empty());
    }
}
