//! `blue`: data on a block file or device, copy-on-write and checksummed; metadata in a [`Kv`](crate::Kv).
//!
//! The life of a write: `Blue::submit` (shard/submit.rs) applies it to the cached onodes. Its data goes out on the ring
//! (shard/queue.rs), and at the same time a group with all waiting transactions, as they are encoded, goes into the shard's lane
//! of the log (shard/logging.rs). One flush covers both; then the transactions are acknowledged. Some time later the key-value
//! store is fed (shard/feeding.rs, shard/commit_log.rs), and the lane is trimmed when the key-value store has made that durable.
//! A mount replays what the key-value store lacks (mount/replay.rs), up to where the log and the data that it refers to are
//! complete. So no metadata ever points to data that could get lost, and what is durable is a prefix of each shard's
//! transactions.
//!
//! Each module uses those above it only: `device` (files, labels, space), `meta` (the index, its keys and values), `log`
//! (groups and lanes), `objects` (onodes, and what a transaction does to them), `shard` (a reactor's part of a mounted
//! store), `mount` (mkfs, mount and replay, checks and repairs).

mod device;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod log;
mod meta;
mod mount;
mod objects;
mod shard;

pub use device::data::{Place, Places, Slice};
pub use device::label::Label;
#[cfg(any(test, feature = "fuzz"))]
pub use fuzz::{decode_any, decode_seeds};
pub use log::scan::ReplayReport;
pub use meta::dump::{Dumped, DumpedExtent, dump};
pub use meta::index::{KvIndex, MetaIndex};
pub use meta::keys::PREFIX_PG_LOG;
pub use mount::fsck::{FsckReport, fsck};
pub use mount::mkfs::{Fill, MkfsOptions, Progress, mkfs};
pub use mount::move_log::{Expanded, LogMove, NewLog, expand, move_log};
pub use mount::repair::{Labels, labels, repair};
pub use shard::shared::{BlueShared, MountOptions};

pub(crate) use shard::Blue;
pub(crate) use shard::load::Prepared;
