//! The embedded monitor: the map authority of one machine. It serves stock Ceph 16 clients (maps,
//! subscriptions, pool operations, commands) and Carmine's own OSDs (by Ceph's messages, and a report of their
//! space and PGs).
//!
//! One reactor, one process, no quorum: consensus among several monitors is out of its scope. Whoever
//! outgrows one machine runs Ceph's own monitors. See `mon/commit.rs` for how a change of the map comes about, and
//! `record.rs` for the state file to the byte.
//!
//! It never answers with an epoch that it does not deliver, never lets a request wait for ever, and never
//! tells anybody of a map that is not on disk.
#![forbid(unsafe_code)]
// For the JSON of a whole map in one expression.
#![recursion_limit = "512"]

mod accept;
mod auth;
mod change;
mod command;
mod config;
mod creating;
mod error;
mod failure;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod history;
mod log;
mod mon;
mod option_log;
mod options;
mod osds;
mod pacing;
mod push;
mod record;
mod report;
mod session;
mod state;
mod stats;
#[cfg(test)]
mod testing;
mod tick;

pub use auth::AuthConfig;
pub use config::{DownLimits, InitialCluster, InitialPool, MapRules, MonConfig};
pub use error::MonError;
#[cfg(any(test, feature = "fuzz"))]
pub use fuzz::{decode_state, state_seeds, take_crush};
pub use mon::Mon;
