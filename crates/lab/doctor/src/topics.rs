//! All topics: CPUs, their place, drives, network, the kernel's limits, this program. None of them fails.

mod cpus;
mod devices;
mod kernel;
mod placement;
mod program;

use crate::finding::absent;
use crate::machine::Machine;
use crate::{Finding, Options};
pub use program::free_bytes;

/// Looks at the machine and says what it found, without the topic's name.
type Look = fn(&Machine<'_>) -> Vec<Finding>;

const TOPICS: [(&str, Look); 34] = [
    ("CPU governor", cpus::governor),
    ("boost", |m| vec![cpus::boost(m)]),
    ("tuned profile", |m| vec![cpus::tuned(m)]),
    ("C-states", |m| vec![cpus::c_states(m)]),
    ("SMT", |m| vec![cpus::smt(m)]),
    ("generator on an OSD's core", |m| vec![placement::siblings(m)]),
    ("NUMA distance", placement::numa),
    ("interrupts", |m| {
        or_absent(m.each_device(placement::interrupts), "no drive and no interface with hardware")
    }),
    ("IOMMU", |m| vec![devices::iommu(m)]),
    ("I/O scheduler", |m| or_absent(m.each_drive(devices::scheduler), "no drive")),
    ("multipath", |m| or_absent(devices::multipath(m), "no drive is used through it")),
    ("PCIe link", |m| {
        or_absent(m.each_device(devices::pcie), "no device tells its link (virtual, or not PCIe)")
    }),
    ("write cache", |m| or_absent(m.each_drive(devices::write_cache), "no drive")),
    ("logical block size", |m| or_absent(m.each_drive(devices::block_size), "no drive")),
    ("poll queues", |m| vec![devices::poll_queues(m)]),
    ("temperature", |m| or_absent(devices::temperature(m), "no sensor of a CPU or drive")),
    ("MTU", |m| or_absent(devices::mtu(m), "no interface is up; loopback carries 64 KiB frames")),
    ("TCP tunables", |m| vec![kernel::tcp(m)]),
    ("io_uring", |m| vec![kernel::io_uring(m)]),
    ("locked memory", |m| vec![kernel::locked_memory(m)]),
    ("open files", |m| vec![kernel::open_files(m)]),
    ("huge pages", |m| vec![kernel::huge_pages(m)]),
    ("CPU limit (cgroup)", |m| vec![placement::cpu_limit(m)]),
    ("allowed CPUs", |m| vec![placement::allowed_cpus(m)]),
    ("other work", |m| m.options.cpu_times.iter().map(|times| cpus::other_work(m, times)).collect()),
    ("steal", |m| vec![cpus::steal(m)]),
    ("clock source", |m| vec![kernel::clock(m)]),
    ("kernel mitigations", |m| vec![kernel::mitigations(m)]),
    ("build", |m| m.options.build.iter().map(program::profile).collect()),
    ("RocksDB's build", |m| m.options.build.iter().map(program::rocksdb).collect()),
    ("CRC32C", |m| m.options.build.iter().map(|_| program::crc(m)).collect()),
    ("allocator", |m| m.options.build.iter().map(|build| crate::finding::ok(&*build.allocator)).collect()),
    ("free space", |m| or_absent(program::space(m), "no folder was named: give --dir")),
    ("changed option", program::changed),
];

/// Looks at everything. Files that cannot be read make their topic absent; nothing fails.
pub fn examine(options: &Options) -> Vec<Finding> {
    let machine = Machine::look(options);
    let name = |topic: &str, found: Finding| Finding { topic: topic.to_owned(), ..found };
    TOPICS
        .iter()
        .flat_map(|(topic, look)| look(&machine).into_iter().map(move |found| name(topic, found)))
        .collect()
}

/// The findings, or one that says that there is nothing to judge.
fn or_absent(found: Vec<Finding>, what: &str) -> Vec<Finding> {
    if found.is_empty() { vec![absent(what)] } else { found }
}

/// The word in brackets: the one that is chosen.
fn chosen(words: &str) -> Option<&str> {
    words.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}
