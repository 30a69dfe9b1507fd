//! The small values every crate of Carmine speaks in: ids, versions, names of objects, and the hash
//! families (CRC32C, rjenkins, xxHash) that Ceph's formats and operations are built on. No I/O, no logging, no time.
#![forbid(unsafe_code)]

mod auth;
pub mod crc32c;
pub mod errno;
mod ids;
mod mutation;
mod object;
pub mod rjenkins;
mod storage;
mod uuid;
mod words;
pub mod xxhash;

pub use auth::{AuthKind, MsMode};
pub use errno::Errno;
pub use ids::{Epoch, Eversion, LogOp, NO_OSD, NO_SHARD, OsdId, PgId, ReqId, ScrubStamp, SpgId, UTime};
pub use mutation::{is_mutated, is_unasserted};
pub use object::{NO_GENERATION, ObjectId, SNAP_DIR, SNAP_HEAD};
#[doc(hidden)]
pub use serde;
pub use storage::{FlushMode, IoPath, MonKind, READAHEAD_BYTES, StoreKind};
pub use uuid::Uuid;
pub use words::{UnknownWord, columns, counted};
