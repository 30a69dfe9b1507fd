//! The OSD: placement groups on reactors, clients' operations, replication, peering and recovery.
//!
//! A message arrives on the shard that serves its connection (`dispatch`), hops to the shard that owns its PG if that is
//! another one, waits there for its map and for an active PG (`pg`), is queued on its object (`pg/op/object`), is executed
//! (`pg/op/exec`), and if it writes (`pg/op/write`): gets its version, goes to the store and to the replicas (`pg/copies/backend`) in one
//! step and is answered when it is durable everywhere. Maps come in on shard 0 (`join`, `maps`), which also watches other OSDs
//! (`heartbeat`); a new acting set begins an interval, in which `carmine-peering` makes the copies equal (`pg/peer/shell` and
//! `pg/recovery/push`, answered by `pg/peer/follow`).
//!
//! Invariants: a PG is touched by its shard only; this crate makes no system calls and reaches the monitor only through
//! `carmine-client`'s session; nothing that a client or a peer sends causes a panic.

mod admin;
mod auth;
mod by_pg;
mod caps;
mod clients;
mod cls;
mod config;
mod damage;
mod dispatch;
mod error;
mod for_each;
mod heartbeat;
mod join;
mod kinds;
mod live;
mod local;
mod maps;
pub mod messages;
mod metrics;
mod mgr;
mod networks;
mod nothing;
mod op;
mod options;
mod peers;
mod pg;
mod place;
mod room;
mod shard;
mod slow;
mod start;
mod stats;
mod watch;

pub use admin::{AdminAnswer, AdminHook};
pub use auth::caps_of;
pub use config::{Gates, LogLimits, OsdConfig, PG_LOG_BYTES, RecoveryOptions, ScrubOptions};
pub use damage::report_damage;
pub use heartbeat::HeartbeatConfig;
pub use join::leave;
pub use live::{measure_load, serve_admin_socket, serve_http};
pub use local::LocalPgs;
pub use op::LocalReply;
pub use options::RunOptions;
pub use place::CrushPlace;
pub use shard::OsdShard;
pub use start::{OsdError, run};
