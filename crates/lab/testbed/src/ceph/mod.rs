//! Ceph's own programs, for a peer and for a testbed with a real monitor.

pub(crate) mod conf;
pub(crate) mod mon;
pub(crate) mod programs;

pub(crate) use mon::{CephMon, free_port, mon_leads};
pub use programs::{Allocator, Flavour, Programs};
