//! The places of a machine's CPUs, and their assignment: sockets, NUMA nodes, L3 groups, cores, SMT siblings, drives and network
//! interfaces are read from Linux ([`Topology::detect`]) or from a description ([`Topology::from_short`],
//! [`Topology::from_arg`]), and [`Grid::plan`] deals the CPUs to OSD reactors, alien threads and clients.
//!
//! A plan is a pure function of its topology and request, so a plan for another machine is made here the same way.

mod cgroup;
mod cpulist;
mod devices;
mod grid;
mod lstopo;
mod place;
mod plan;
mod shape;
mod topology;

pub use cgroup::ControlGroup;
pub use cpulist::{CpuList, TopologyError};
pub use devices::{Device, DeviceKind, Hardware};
pub use grid::{AlienHome, ClientSlot, Disturbed, Floating, Grid, OsdRow, ReactorSlot};
pub use place::default_clients;
pub use plan::{ClientCpus, PlanRequest, Strategy};
pub use topology::{Cpu, Topology};
