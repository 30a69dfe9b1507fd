//! Where a topology comes from: Linux (`/sys/devices/system/{cpu,node}` and the process's allowed CPUs), or a description in TOML.
#![allow(
    clippy::disallowed_methods,
    reason = "reads the files of the machine, and the one that the user named"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::cpulist::CPU_NUMBER_MAX;
use crate::error::wrong;
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: Option<String>,
    shape: Option<String>,
    allowed: Option<CpuList>,
    #[serde(default)]
    cpus: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    cpu: usize,
    socket: usize,
    /// NUMA node; the socket when left out.
    node: Option<usize>,
    /// L3 group, numbered machine-wide; the socket when left out.
    l3: Option<usize>,
    /// Core, numbered machine-wide: CPUs with the same core are SMT siblings.
    core: usize,
}

pub(crate) fn from_file(path: &Path) -> Result<Topology, TopologyError> {
    let bad = |why: String| wrong!("topology file {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    parse(&text, &path.file_name().unwrap_or_default().to_string_lossy()).map_err(|e| bad(e.to_string()))
}

fn parse(text: &str, default_name: &str) -> Result<Topology, TopologyError> {
    let described: Description = toml::from_str(text).map_err(|e| wrong!("{e}"))?;
    let cpus = match (described.shape, described.cpus.is_empty()) {
        (Some(shape), true) => Topology::from_short(&shape)?.cpus().to_vec(),
        (Some(_), false) => return Err(wrong!("has both `shape` and `[[cpus]]`; keep one")),
        (None, true) => {
            return Err(wrong!("describes no CPU; give `shape = \"2x28x2\"` or `[[cpus]]` entries"));
        }
        (None, false) => entries(described.cpus)?,
    };
    let name = described.name.unwrap_or_else(|| default_name.to_owned());
    Topology::build(name, false, cpus, described.allowed)
}

fn entries(cpus: Vec<Entry>) -> Result<Vec<Cpu>, TopologyError> {
    let mut seen = BTreeSet::new();
    let entry = |Entry { cpu, socket, node, l3, core }| {
        if !seen.insert(cpu) {
            return Err(wrong!("CPU {cpu} is described twice"));
        }
        if cpu > CPU_NUMBER_MAX {
            return Err(wrong!("CPU {cpu} is above {CPU_NUMBER_MAX}"));
        }
        let (node, l3) = (node.unwrap_or(socket), l3.unwrap_or(socket));
        Ok(Cpu { cpu, socket, node, l3, core, thread: 0 })
    };
    cpus.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_and_explicit_lists() {
        let t = parse("name = \"big\"\nshape = \"1x8x8x2\"\nallowed = \"0-31\"", "f").unwrap();
        assert_eq!((t.name.as_str(), t.cpus().len(), t.allowed().len()), ("big", 128, 32));
        let text = "[[cpus]]\ncpu=0\nsocket=0\ncore=0\n[[cpus]]\ncpu=1\nsocket=0\ncore=0\n[[cpus]]\ncpu=2\nsocket=7\ncore=9";
        let t = parse(text, "f").unwrap();
        assert_eq!((t.name.as_str(), t.sockets(), t.cores(), t.cpu(1).unwrap().thread), ("f", 2, 2, 1));
    }

    #[test]
    fn says_what_is_wrong() {
        let twice = "[[cpus]]\ncpu=0\nsocket=0\ncore=0\n[[cpus]]\ncpu=0\nsocket=0\ncore=1";
        for (text, part) in [
            ("", "describes no CPU"),
            ("shape = \"2\"", "`2`"),
            ("colour = 1", "colour"),
            (twice, "CPU 0 is described twice"),
            ("shape = \"1x2x1\"\nallowed = \"7\"", "no usable CPU"),
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
        assert_eq!((t.sockets(), t.cores(), t.cpus().len()), (2, 4, 8));
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
        assert_eq!((t.sockets(), t.cores(), t.cpus().len()), (1, 2, 2));
        let none = Topology::detect_at(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(none.contains("/nonexistent/sys") && none.contains("--topology"), "{none}");
    }

    #[test]
    fn this_machine_is_read() {
        let t = Topology::detect().unwrap();
        assert!(t.live && !t.cpus().is_empty() && !t.allowed().is_empty());
    }
}
