//! Drives and network interfaces: the NUMA node of each, and the CPUs on which its interrupts land.
//! Facts: the kernel's Documentation/ABI/testing/sysfs-bus-pci, core-api/irq/irq-affinity.rst and ABI/stable/sysfs-block.
#![allow(clippy::disallowed_methods, reason = "reads the files of the machine")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::CpuList;

/// Block devices that are not drives.
const NO_DRIVES: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd"];

carmine_types::words! {
    /// What a device does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DeviceKind: "kind of device" {
        /// Holds data.
        Drive = "drive",
        /// A network interface.
        Nic = "nic",
    }
}

/// A drive or a network interface with hardware of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// As in `/sys/block` or `/sys/class/net`: `nvme0n1`, `eth0`.
    pub name: String,
    pub kind: DeviceKind,
    /// NUMA node, numbered as [`crate::Cpu::node`]; `None` if the firmware does not say.
    pub node: Option<usize>,
    /// CPUs on which its interrupts land; empty if none has come yet, or for a described drive with a queue for each CPU.
    pub interrupts: CpuList,
    /// A drive with a queue for each CPU: a completion interrupts the CPU that asked for it, and no other.
    pub queue_per_cpu: bool,
}

impl DeviceKind {
    /// The folder of all devices of this kind, below the root.
    fn class(self) -> &'static str {
        match self {
            DeviceKind::Drive => "sys/block",
            DeviceKind::Nic => "sys/class/net",
        }
    }
}

impl Device {
    /// Its folder below the root.
    #[must_use]
    pub fn dir(&self) -> String {
        format!("{}/{}", self.kind.class(), self.name)
    }
}

/// The devices of a machine, in its files.
#[derive(Clone, Debug)]
pub struct Hardware {
    root: PathBuf,
    /// Numbers of the interrupts that have come at least once.
    interrupts: BTreeSet<String>,
}

impl Hardware {
    /// Looks below `root`, which is `/` or a folder with captured `sys` and `proc`. Files that cannot be read count as empty.
    #[must_use]
    pub fn at(root: &Path) -> Hardware {
        let text = fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
        // `NUMBER: COUNT-OF-CPU0 COUNT-OF-CPU1 … NAMES`
        let has_come = |line: &str| {
            let (number, rest) = line.split_once(':')?;
            let mut counts = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
            counts.any(|count| count > 0).then(|| number.trim().to_owned())
        };
        Hardware { root: root.to_path_buf(), interrupts: text.lines().filter_map(has_come).collect() }
    }

    /// The names in a folder below the root, the shortest first; none if it cannot be read.
    #[must_use]
    pub fn list(&self, path: &Path) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable_by_key(|name| (name.len(), name.clone()));
        names
    }

    /// The file or folder `name` of the hardware behind the device whose folder is `dir` (`sys/block/nvme0n1`): of itself, or of the
    /// nearest bus device around it.
    #[must_use]
    pub fn file(&self, dir: &str, name: &str) -> Option<PathBuf> {
        let dir = format!("{dir}/device");
        // The namespace of a drive with several ports belongs to a subsystem, which lists its controllers.
        let controllers = || self.list(Path::new(&dir)).into_iter().filter(|entry| is_controller(entry));
        let of_controller = |nvme| self.find_up(&format!("{dir}/{nvme}"), name);
        self.find_up(&dir, name).or_else(|| controllers().find_map(of_controller))
    }

    /// The first of `path` (its links resolved) and the folders around it that has an entry `name`.
    fn find_up(&self, path: &str, name: &str) -> Option<PathBuf> {
        let (start, root) = (self.root.join(path).canonicalize().ok()?, self.root.canonicalize().ok()?);
        let inside = start.ancestors().take_while(|at| at.starts_with(&root) && *at != root);
        inside.map(|at| at.join(name)).find(|found| found.exists())
    }

    /// The interrupts of a device that have come at least once, each with the CPUs that take it.
    #[must_use]
    pub fn interrupts(&self, dir: &str) -> Vec<(String, CpuList)> {
        let Some(folder) = self.file(dir, "msi_irqs") else { return Vec::new() };
        let with_cpus = |irq: String| {
            let file = |name: &str| fs::read_to_string(self.root.join(format!("proc/irq/{irq}/{name}"))).ok();
            let cpus = file("effective_affinity_list").filter(|cpus| !cpus.trim().is_empty());
            let cpus = cpus.or_else(|| file("smp_affinity_list"))?.parse().ok()?;
            Some((irq, cpus))
        };
        let come = self.list(&folder).into_iter().filter(|irq| self.interrupts.contains(irq));
        come.filter_map(with_cpus).collect()
    }

    /// All devices of a machine with this number of CPUs, drives first, and of a kind those with the shortest names first. Leaves
    /// out loopback and bridges, which have no hardware. Numbers nodes as Linux does.
    #[must_use]
    pub fn devices(&self, cpus: usize) -> Vec<Device> {
        let is_hardware = |kind: DeviceKind, name: &str| match kind {
            DeviceKind::Drive => !NO_DRIVES.iter().any(|no| name.starts_with(no)),
            DeviceKind::Nic => self.root.join(kind.class()).join(name).join("device").exists(),
        };
        let device = |kind: DeviceKind, name: String| {
            let dir = format!("{}/{name}", kind.class());
            let node = self.file(&dir, "numa_node").and_then(|path| fs::read_to_string(path).ok());
            let interrupts = self.interrupts(&dir).iter().flat_map(|(_, cpus)| cpus.iter()).collect();
            // -1 is "not known".
            let node = node.and_then(|node| node.trim().parse().ok());
            let queues = self.list(Path::new(&format!("{dir}/mq"))).len();
            let queue_per_cpu = kind == DeviceKind::Drive && queues >= cpus;
            Device { name, kind, node, interrupts, queue_per_cpu }
        };
        let all_of = |kind: &DeviceKind| {
            let names = self.list(Path::new(kind.class())).into_iter();
            names.filter(|name| is_hardware(*kind, name)).map(|name| device(*kind, name)).collect::<Vec<_>>()
        };
        DeviceKind::ALL.iter().flat_map(all_of).collect()
    }
}

/// `nvme0`, but not `nvme0n1` or `nvme0c0n1`.
fn is_controller(entry: &str) -> bool {
    entry.strip_prefix("nvme").is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}
