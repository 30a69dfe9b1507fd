//! One file per topic. Each looks at the machine and says what it found; none of them fails.

mod block_size;
mod boost;
mod build;
mod c_states;
mod cgroup;
mod changed;
mod clock;
mod governor;
mod huge_pages;
mod interrupts;
mod io_uring;
mod iommu;
mod limits;
mod mitigations;
mod mtu;
mod multipath;
mod numa;
mod pcie;
mod poll_queues;
mod scheduler;
mod siblings;
mod smt;
mod space;
mod steal;
mod tcp;
mod temperature;
mod tuned;
mod write_cache;

use crate::Finding;
use crate::machine::Machine;

/// A topic.
pub(crate) type Topic = fn(&Machine<'_>) -> Vec<Finding>;

/// All topics: CPUs, their place, drives, network, the kernel's limits, this program.
pub(crate) const ALL: [Topic; 28] = [
    governor::examine,
    boost::examine,
    tuned::examine,
    c_states::examine,
    smt::examine,
    siblings::examine,
    numa::examine,
    interrupts::examine,
    iommu::examine,
    scheduler::examine,
    multipath::examine,
    pcie::examine,
    write_cache::examine,
    block_size::examine,
    poll_queues::examine,
    temperature::examine,
    mtu::examine,
    tcp::examine,
    io_uring::examine,
    limits::examine,
    huge_pages::examine,
    cgroup::examine,
    steal::examine,
    clock::examine,
    mitigations::examine,
    build::examine,
    space::examine,
    changed::examine,
];
