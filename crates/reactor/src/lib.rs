//! carmine-reactor
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod buf;
mod config;
mod crc;
mod file;
mod group;
mod net;
mod runtime;
mod shard;
pub mod sim;
mod stats;
pub mod sync;

pub use buf::{Buf, Bytes, Chunk, Payload};
pub use config::{Config, DEFAULT_SPIN_US, PollPolicy, PollPolicyError};
pub use file::{File, FileOptions};
pub use group::Group;
pub use net::{Listener, Socket, TcpStream};
pub use runtime::{Reactors, Stopper, block_on};
pub use shard::{Shard, ShardId};
pub use stats::ReactorStats;
