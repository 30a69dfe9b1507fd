//! Carmine's own RADOS client: the sessions with monitor and manager, the objecter, and pools with their objects.
//!
//! It speaks Ceph's protocol, so it works with real monitors and OSDs too. Carmine's own extensions (one connection per
//! reactor, admin requests) are sent only to OSDs that are asked for them: see [`RouteMode`].
//!
//! Everything lives on one shard; a program with several shards makes one [`Client`] on each.
//!
//! Invariants: it knows no store and no OSD internals. Nothing that a peer sends panics. Operations in flight, their bytes
//! and the pauses between attempts are bounded.

mod access;
mod client;
mod error;
mod maps;
mod mgr;
mod mon;
mod objecter;
mod options;
mod pace;
mod pending;
mod pool;

pub use access::{Access, Credentials, Modes};
pub use client::Client;
pub use error::{ClientError, Result};
pub use mgr::{MgrHandler, MgrSession, Reporting};
pub use mon::{CommandReply, MonHandler, MonSession, NoHandler};
pub use objecter::{Output, Reply};
pub use options::{BYTES_IN_FLIGHT, OPS_IN_FLIGHT, OPS_IN_FLIGHT_MAX, Options, RouteMode};
pub use pool::{Cursor, ListPage, ObjectStat, Pool};
