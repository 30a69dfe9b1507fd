//! Messages between the monitor and its clients (ceph-protocol.md §2). The `Front` implementations hold the
//! layouts; data segments (command input and output) travel beside the fronts.

mod command;
mod config;
mod fs_map;
mod get_version;
mod maps;
mod mgr_map;
mod paxos;
mod pool_op;
mod pool_stats;
mod statfs;
mod subscribe;

pub use command::{Command, CommandAck};
pub use config::ConfigMsg;
pub use fs_map::FsMapMsg;
pub use get_version::{GetVersion, GetVersionReply};
pub use maps::{GetMap, MonMapMsg, OsdMapMsg};
pub use mgr_map::MgrMapMsg;
pub use pool_op::{PoolOp, PoolOpReply};
pub use pool_stats::{GetPoolStats, GetPoolStatsReply};
pub use statfs::{StatFs, StatFsReply};
pub use subscribe::{ONETIME, Subscribe, Subscription};

#[cfg(test)]
mod tests;
