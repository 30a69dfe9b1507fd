//! All topics: CPUs, their place, drives, network, the kernel's limits, this program. None of them fails.

mod cpus;
mod devices;
mod kernel;
mod placement;
mod program;

use carmine_topology::Device;

use crate::finding::{absent, ok};
use crate::machine::Machine;
use crate::{Finding, Options};

/// The things that a topic is about. A finding has no topic's name yet; `None`: there is nothing to judge.
enum Look {
    Machine(fn(&Machine<'_>) -> Option<Finding>),
    /// Each drive.
    Drives(fn(&Machine<'_>, &Device) -> Option<Finding>),
    /// Each drive and each interface; those without a finding are left out.
    Devices(fn(&Machine<'_>, &Device) -> Option<Finding>),
    /// Any number of findings.
    All(fn(&Machine<'_>) -> Vec<Finding>),
}

use Look::{All, Devices, Drives, Machine as One};

/// A topic's name, what it looks at, and the text about what is missing if it finds nothing (empty: then it is left out).
const TOPICS: [(&str, Look, &str); 35] = [
    ("CPU governor", All(cpus::governor), "no cpufreq: firmware or a hypervisor sets the frequency"),
    ("boost", One(cpus::boost), "no switch for boost frequencies"),
    ("tuned profile", One(cpus::tuned), "tuned is not installed"),
    ("C-states", One(cpus::c_states), "no cpuidle: a hypervisor or the firmware decides"),
    ("SMT", One(cpus::smt), "the kernel has no switch for it"),
    ("generator on an OSD's core", One(placement::siblings), "no testbed was named: give --dir"),
    ("NUMA distance", Devices(placement::numa), "one NUMA node: everything is equally near"),
    ("interrupts", Devices(placement::interrupts), "no drive and no interface with hardware"),
    ("IOMMU", One(devices::iommu), "off, or this machine has none"),
    ("I/O scheduler", Drives(devices::scheduler), NOT_SHOWN),
    ("multipath", All(devices::multipath), "no drive is used through it"),
    ("PCIe link", Devices(devices::pcie), "no device shows its link (virtual, or not PCIe)"),
    ("write cache", Drives(devices::write_cache), NOT_SHOWN),
    ("logical block size", Drives(devices::block_size), NOT_SHOWN),
    ("poll queues", One(devices::poll_queues), "no NVMe drive"),
    ("temperature", All(devices::temperature), "no sensor of a CPU or drive"),
    ("MTU", All(devices::mtu), "no interface is up; loopback carries 64 KiB frames"),
    ("congestion control", One(kernel::congestion_control), NOT_SHOWN),
    ("TCP tunables", One(kernel::tcp), "the kernel does not show them"),
    ("io_uring", One(kernel::io_uring), "the kernel does not show its version"),
    ("locked memory", One(kernel::locked_memory), "the kernel does not show the limit"),
    ("open files", One(kernel::open_files), "the kernel does not show the limit"),
    ("huge pages", One(kernel::huge_pages), "the kernel has no transparent huge pages"),
    ("CPU limit (cgroup)", One(placement::cpu_limit), "no control groups for CPU time are mounted"),
    ("allowed CPUs", One(placement::allowed_cpus), "the kernel does not show them"),
    ("other work", One(|m| Some(cpus::other_work(m, m.options.cpu_times.as_ref()?))), ""),
    ("steal", One(cpus::steal), "not a virtual machine, or the kernel does not show it"),
    ("clock source", One(kernel::clock), NOT_SHOWN),
    ("kernel mitigations", One(kernel::mitigations), "the kernel lists none"),
    ("build", One(|m| m.options.build.as_ref().map(program::profile)), ""),
    ("RocksDB's build", One(|m| m.options.build.as_ref().map(program::rocksdb)), ""),
    ("CRC32C", One(|m| m.options.build.as_ref().map(|_| program::crc(m))), ""),
    ("allocator", One(|m| m.options.build.as_ref().map(|build| ok(&*build.allocator))), ""),
    ("free space", All(program::space), "no folder was named: give --dir"),
    ("changed option", All(program::changed), ""),
];

/// The text for a file of the kernel that is missing.
const NOT_SHOWN: &str = "the kernel does not show it";

impl Look {
    fn at(&self, machine: &Machine<'_>, missing: &str) -> Vec<Finding> {
        let judge = |judge: fn(&Machine<'_>, &Device) -> Option<Finding>, device: &Device| {
            judge(machine, device).map(|found| found.on(&device.name))
        };
        let found: Vec<Finding> = match self {
            Look::Machine(look) => look(machine).into_iter().collect(),
            Look::Drives(_) if machine.drives.is_empty() => return vec![absent("no drive")],
            Look::Drives(look) => {
                let drives = machine.drives.iter();
                drives.map(|d| judge(*look, d).unwrap_or_else(|| absent(missing).on(&d.name))).collect()
            }
            Look::Devices(look) => {
                let devices = machine.drives.iter().chain(&machine.nics);
                devices.filter_map(|device| judge(*look, device)).collect()
            }
            Look::All(look) => look(machine),
        };
        if found.is_empty() && !missing.is_empty() { vec![absent(missing)] } else { found }
    }
}

/// Looks at everything. Files that cannot be read make their topic absent; nothing fails.
pub fn examine(options: &Options) -> Vec<Finding> {
    let machine = Machine::look(options);
    let name = |topic: &str, found: Finding| Finding { topic: topic.to_owned(), ..found };
    let topics = TOPICS.iter();
    topics
        .flat_map(|(topic, look, missing)| look.at(&machine, missing).into_iter().map(|f| name(topic, f)))
        .collect()
}

/// The word in brackets: the one that is chosen.
fn chosen(words: &str) -> Option<&str> {
    words.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}
