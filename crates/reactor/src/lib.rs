//! carmine-reactor
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod alien;
pub mod buf;
mod call;
mod clock;
mod config;
mod driver;
mod exec;
mod file;
mod group;
mod handle;
mod mailbox;
mod net;
mod op;
mod runtime;
mod shard;
mod shared;
pub mod sim;
mod stats;
pub mod sync;
mod sys;
mod timer;
mod turn;

pub use buf::{Buf, Bytes, Chunk, Payload};
pub use config::{Config, DEFAULT_SPIN_US, PollPolicy, PollPolicyError};
pub use file::{File, FileOptions};
pub use group::Group;
pub use net::{Listener, Socket, TcpStream};
pub use runtime::{Reactors, Stopper, block_on};
pub use shard::{Shard, ShardId};
pub use stats::ReactorStats;
