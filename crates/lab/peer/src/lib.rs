//! A baseline to compare with: a Ceph cluster on loopback, started from its own binaries.
//!
//! One folder holds one peer: a monitor and OSDs, without a manager and without authentication. It gets the same block
//! files, pool, PGs and CPUs as a Carmine testbed, so that the same client can load both. Processes are known by pid and
//! start time, and a start that fails leaves none behind, as in `carmine-testbed`, whose guard this uses.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the controller runs outside the reactors: it deals in files, processes and wall-clock limits"
)]

mod admin;
mod allocator;
mod block;
mod command;
mod conf;
mod contrast;
mod flags;
mod launch;
mod make;
mod peer;
mod plan;
mod programs;
mod ready;
mod settings;
mod status;

pub use allocator::Allocator;
pub use contrast::{Contrast, contrast};
pub use launch::spawn_on;
pub use make::fresh_uuid;
pub use peer::{Peer, load_plan, monitor, require_plan};
pub use plan::{PEER_FORMAT, PeerPlan, PeerWish};
pub use programs::{Flavour, Programs};
pub use status::{About, PeerOsd, PeerStatus, about, status};
