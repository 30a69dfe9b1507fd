//! The client against a cluster made of a few hundred lines, in the simulator and over loopback; and against a real Ceph.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod basics;
mod common;
mod fake;
mod fake_osd;
mod faults;
#[path = "../shared/mon.rs"]
mod mon;
mod real_ceph;
mod routes;
