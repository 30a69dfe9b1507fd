//! The model: a list of CPUs, each with its socket, node, L3 group, core and thread rank, and the devices beside them. It comes
//! from Linux (`/sys/devices/system/{cpu,node}` and the process's allowed CPUs), from what `lscpu -p` or `lstopo` wrote elsewhere,
//! or from a shape.
#![allow(
    clippy::disallowed_methods,
    reason = "reads the files of the machine, and the one that the user named"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::cpulist::{CPU_NUMBER_MAX, refuse, wrong};
use crate::devices::Hardware;
use crate::shape::{Attached, Shape};
use crate::{CpuList, Device, DeviceKind, TopologyError, lstopo};

/// One logical CPU. All indices but `cpu` are dense and machine-wide (core 28 may be the first of socket 1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Linux's CPU number.
    pub cpu: usize,
    pub socket: usize,
    /// NUMA node.
    pub node: usize,
    /// L3 cache group; the socket where a machine reports no L3.
    pub l3: usize,
    /// Physical core; SMT siblings have the same.
    pub core: usize,
    /// Rank among the siblings of the core, 0 for the lowest CPU number.
    pub thread: usize,
}

/// A machine's CPUs in ascending order of their number; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub(crate) name: String,
    /// It describes the machine on which this process runs.
    pub live: bool,
    cpus: Vec<Cpu>,
    allowed: CpuList,
    devices: Vec<Device>,
}

impl Topology {
    /// Reads this machine, and the CPUs this process may use.
    pub fn detect() -> Result<Topology, TopologyError> {
        Self::detect_at(Path::new("/"))
    }

    /// Like [`Self::detect`] with another root: `ROOT/sys/devices/system/...` and `ROOT/proc/self/status`.
    pub fn detect_at(root: &Path) -> Result<Topology, TopologyError> {
        let system = root.join("sys/devices/system");
        let path = system.join("cpu/online");
        let online = fs::read_to_string(&path).map_err(|e| {
            let path = path.display();
            wrong!(
                "cannot read the machine's topology: {path}: {e}; describe it with --topology FILE or 2x28x2 instead"
            )
        })?;
        let list = |name: &str| read::<CpuList>(&system.join(name)).unwrap_or_default();
        let cpus_of = |node| list(&format!("node/node{node}/cpulist")).to_vec();
        let nodes = list("node/online").to_vec().into_iter();
        let nodes = nodes.flat_map(|node| cpus_of(node).into_iter().map(move |cpu| (cpu, node))).collect();
        let online = online.parse::<CpuList>()?.to_vec().into_iter();
        let cpus = online.map(|cpu| read_cpu(&system.join(format!("cpu/cpu{cpu}")), cpu, &nodes));
        let cpus: Vec<Cpu> = cpus.collect();
        // This mask includes cpusets and taskset.
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")?.parse().ok());
        let found = Hardware::at(root).devices(cpus.len());
        // One of a node's CPUs stands for it until the nodes are numbered anew.
        let on_node = |node: usize| cpus.iter().find(|cpu| cpu.node == node).map(|cpu| cpu.cpu);
        let near: Vec<Option<usize>> = found.iter().map(|device| on_node(device.node?)).collect();
        let machine = Self::build("this machine".into(), true, cpus, allowed)?;
        // Firmware need not say where a device is if there is one place only.
        let alone = (machine.nodes() == 1).then_some(0);
        let node = |near: Option<usize>| near.and_then(|cpu| Some(machine.cpu(cpu)?.node)).or(alone);
        let devices = found.into_iter().zip(near).map(|(device, near)| Device { node: node(near), ..device });
        let devices = devices.collect();
        Ok(Topology { devices, ..machine })
    }

    /// A regular machine from `2x28x2` (sockets x cores x threads) or `1x8x8x2` (with L3 groups second; cores are
    /// then per group), and parts such as `:l3=8:drives=8:eth0@node1`, as `shape.rs` describes them.
    pub fn from_short(text: &str) -> Result<Topology, TopologyError> {
        let shape: Shape = text.parse()?;
        let machine = Self::build(text.to_owned(), false, shape.cpus(), None)?;
        let devices = shape.attached.devices(&machine);
        devices
            .and_then(|devices| machine.with_devices(devices))
            .map_err(|e| wrong!("topology shape `{text}`: {e}"))
    }

    /// Reads the value of `--topology`: a short form or else the path of a file with the output of `lscpu -p` or
    /// `lstopo --of xml`, which may be followed by the parts of a short form that describe devices.
    pub fn from_arg(text: &str) -> Result<Topology, TopologyError> {
        let (machine, parts) = text.split_once(':').unwrap_or((text, ""));
        if machine.contains('x') && machine.chars().all(|c| c.is_ascii_digit() || c == 'x') {
            return Self::from_short(text);
        }
        if Path::new(text).exists() {
            return from_file(Path::new(text));
        }
        let attached = Attached::parse(parts.split(':').filter(|part| !part.is_empty()))?;
        let machine = from_file(Path::new(machine))?;
        let devices = attached.devices(&machine)?;
        machine.with_devices(devices)
    }

    /// The same machine with these devices besides its own, drives first.
    ///
    /// # Errors
    /// A name that two devices have.
    pub(crate) fn with_devices(mut self, devices: Vec<Device>) -> Result<Topology, TopologyError> {
        for device in devices {
            let name = &device.name;
            refuse!(
                self.devices.iter().any(|other| other.name == *name),
                "`{name}`: two devices have this name; choose another one"
            );
            self.devices.push(device);
        }
        self.devices.sort_by_key(|device| device.kind == DeviceKind::Nic);
        Ok(self)
    }

    /// Makes a machine of CPUs whose places have any distinct keys: gives these dense indices (in order of their lowest CPU) and
    /// ranks siblings.
    pub(crate) fn build(
        name: String,
        live: bool,
        mut cpus: Vec<Cpu>,
        allowed: Option<CpuList>,
    ) -> Result<Topology, TopologyError> {
        cpus.sort_by_key(|c| c.cpu);
        let places: [fn(&mut Cpu) -> &mut usize; 4] =
            [|c| &mut c.socket, |c| &mut c.node, |c| &mut c.l3, |c| &mut c.core];
        for place in places {
            let mut seen = BTreeMap::new();
            for key in cpus.iter_mut().map(place) {
                let next = seen.len();
                *key = *seen.entry(*key).or_insert(next);
            }
        }
        let mut siblings = BTreeMap::<usize, usize>::new();
        for cpu in &mut cpus {
            let rank = siblings.entry(cpu.core).or_default();
            cpu.thread = *rank;
            *rank += 1;
        }
        let all: CpuList = cpus.iter().map(|c| c.cpu).collect();
        let allowed = allowed.map_or_else(|| all.clone(), |list| list.intersection(&all));
        refuse!(allowed.is_empty(), "topology {name} has no usable CPU");
        Ok(Topology { name, live, cpus, allowed, devices: Vec::new() })
    }

    /// Every CPU, ascending.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPU with this number.
    pub fn cpu(&self, cpu: usize) -> Option<&Cpu> {
        self.cpus.iter().find(|c| c.cpu == cpu)
    }

    /// All CPU numbers.
    pub fn all(&self) -> CpuList {
        self.cpus.iter().map(|c| c.cpu).collect()
    }

    /// CPUs this process may run on (cpuset, taskset); all of them for a description without `allowed`.
    pub fn allowed(&self) -> &CpuList {
        &self.allowed
    }

    /// Drives, then network interfaces.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The drives.
    pub fn drives(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.kind == DeviceKind::Drive)
    }

    pub fn sockets(&self) -> usize {
        self.count(|c| c.socket)
    }

    /// NUMA nodes.
    pub fn nodes(&self) -> usize {
        self.count(|c| c.node)
    }

    pub(crate) fn count(&self, key: fn(&Cpu) -> usize) -> usize {
        self.cpus.iter().map(key).collect::<BTreeSet<_>>().len()
    }

    /// One line for people: name and counts.
    pub fn summary(&self) -> String {
        let nouns = ["socket", "NUMA node", "L3 group", "core", "CPU"];
        let places: [fn(&Cpu) -> usize; 5] = [|c| c.socket, |c| c.node, |c| c.l3, |c| c.core, |c| c.cpu];
        let parts: Vec<String> =
            nouns.iter().zip(places).map(|(noun, place)| counted(self.count(place), noun)).collect();
        let some = self.allowed.len() < self.cpus.len();
        let allowed = some.then(|| format!(" ({} allowed: {})", self.allowed.len(), self.allowed));
        format!("{}: {}{}", self.name, parts.join(", "), allowed.unwrap_or_default())
    }
}

/// A virtual machine or container may hide parts of this: if they are missing, each CPU is a core, and the socket stands for the
/// NUMA node and the L3 group.
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

fn read<T: FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Reads what `lscpu -p` or `lstopo --of xml` has written on another machine.
fn from_file(path: &Path) -> Result<Topology, TopologyError> {
    let bad = |why: String| wrong!("topology file {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let machine = if lstopo::is_xml(&text) { lstopo::parse(&text, &name) } else { parse(&text, &name) };
    machine.map_err(|e| bad(e.to_string()))
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
                "`{line}` is not a line of `lscpu -p`; give its output on the other machine, or that of `lstopo --of xml`"
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
    fn short_form_numbers_like_linux() {
        let t = Topology::from_short("2x28x2").unwrap();
        assert_eq!((t.sockets(), t.count(|c| c.core), t.cpus().len()), (2, 56, 112));
        let second = t.cpu(28).unwrap();
        assert_eq!((second.socket, second.core, second.thread), (1, 28, 0));
        let sibling = t.cpu(56).unwrap();
        assert_eq!((sibling.socket, sibling.core, sibling.thread), (0, 0, 1));
    }

    #[test]
    fn short_form_with_l3_groups() {
        let t = Topology::from_short("1x8x8x2").unwrap();
        assert_eq!((t.sockets(), t.count(|c| c.core), t.cpus().len()), (1, 64, 128));
        assert_eq!((t.cpu(8).unwrap().l3, t.cpu(64 + 63).unwrap().l3), (1, 7));
    }

    #[test]
    fn bad_shapes_are_named() {
        for text in ["2x28", "0x1x1", "ax1x1", "1x1x1x1x1", "60000x60000x2", "", "18446744073709551615x2x2"] {
            let error = Topology::from_short(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn what_lscpu_prints_is_a_machine() {
        let text =
            "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,0\n1,0,0,0,,0,0,0,0\n2,9,7,1,,9,9,9,5\n";
        let t = parse(text, "f").unwrap();
        assert_eq!(
            (t.name.as_str(), t.sockets(), t.count(|c| c.node), t.cpu(1).unwrap().thread),
            ("f", 2, 2, 1)
        );
        let hidden = parse("0,0,0,,,0,0,0,\n1,1,1,,,1:1:1:\n", "f").unwrap();
        assert_eq!(
            (hidden.count(|c| c.node), hidden.cpu(1).unwrap().l3, hidden.count(|c| c.core)),
            (2, 1, 2)
        );
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("", "no usable CPU"),
            ("0,0", "`0,0` is not a line"),
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

    /// As on a server: drives on either node, one without a word about it, and a NIC whose interrupts land on two CPUs.
    #[test]
    fn devices_have_nodes_and_interrupts() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path());
        for (device, node, irqs) in [
            ("sys/block/nvme0n1", "1", &["30", "31"][..]),
            ("sys/block/nvme1n1", "-1", &["32"]),
            ("sys/class/net/eth0", "0", &["40", "41", "42"]),
        ] {
            put(root.path(), &format!("{device}/device/numa_node"), node);
            irqs.iter().for_each(|irq| put(root.path(), &format!("{device}/device/msi_irqs/{irq}"), "msix"));
        }
        put(root.path(), "sys/block/loop0/size", "1");
        put(root.path(), "sys/class/net/lo/mtu", "65536");
        (0..8).for_each(|queue| put(root.path(), &format!("sys/block/nvme0n1/mq/{queue}/cpu_list"), "0"));
        let counts = "  CPU0 CPU1\n 30: 1 0 PCI a\n 31: 0 7 PCI b\n 32: 0 0 PCI c\n 40: 0 9 PCI d\n 41: 3 0 PCI e\n 42: 0 0 f\n";
        put(root.path(), "proc/interrupts", counts);
        for (irq, cpus) in [("30", "0"), ("31", "5"), ("32", "6"), ("40", "2"), ("42", "7")] {
            put(root.path(), &format!("proc/irq/{irq}/effective_affinity_list"), cpus);
        }
        put(root.path(), "proc/irq/41/effective_affinity_list", "");
        put(root.path(), "proc/irq/41/smp_affinity_list", "3");
        let t = Topology::detect_at(root.path()).unwrap();
        let row = |d: &Device| format!("{} {:?} {} {}", d.name, d.node, d.interrupts, d.queue_per_cpu);
        let rows: Vec<String> = t.devices().iter().map(row).collect();
        assert_eq!(rows, ["nvme0n1 Some(1) 0,5 true", "nvme1n1 None  false", "eth0 Some(0) 2-3 false"]);
        assert_eq!(t.drives().count(), 2);
    }

    #[test]
    fn a_captured_file_can_be_given_devices() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "cpus", "0,0,0,0,,0,0,0,0\n1,1,1,1,,1,1,1,1\n");
        let arg = |parts: &str| Topology::from_arg(&format!("{}{parts}", root.path().join("cpus").display()));
        let nodes: Vec<_> = arg(":drives=2").unwrap().devices().iter().map(|d| d.node).collect();
        assert_eq!(nodes, [Some(0), Some(1)]);
        assert!(arg("").unwrap().devices().is_empty());
        for (parts, part) in [(":l3=8", "`l3=8`"), (":eth0@node2", "0 to 1"), ("none", "cpusnone")] {
            let error = arg(parts).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
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
