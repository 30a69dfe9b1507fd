//! Ceph's own programs, for a peer and for a testbed with a real monitor.

pub(crate) mod conf;
pub(crate) mod mon;
pub(crate) mod programs;

pub(crate) use mon::{CephMons, LEADER, choose_ports, is_of_quorum, mon_state};
pub(crate) use programs::line_of;
pub use programs::{Allocator, Flavour, Programs};
