//! The client against a cluster in the same process, in the simulator and over loopback, and against a real Ceph.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod real_ceph;
