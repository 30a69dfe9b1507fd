//! A machine that is only described: the expansion on it is the same everywhere.

use carmine_study::expand::Machine;
use carmine_topology::Topology;

/// A machine of sockets x cores x threads, such as `2x28x2`.
pub(crate) fn described(shape: &str) -> Machine {
    Machine { topology: Topology::from_short(shape).unwrap(), devices: Vec::new() }
}
