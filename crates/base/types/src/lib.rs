//! The small values every crate of Carmine speaks in: ids, versions, names of objects, and the two hash
//! families (CRC32C, rjenkins) that Ceph's formats are built on. No I/O, no logging, no time.
#![forbid(unsafe_code)]

pub mod crc32c;
mod defaults;
pub mod errno;
mod ids;
mod object;
pub mod rjenkins;
mod storage;
mod time;
mod uuid;
mod version;
mod words;

pub use errno::Errno;
pub use ids::{Epoch, NO_OSD, NO_SHARD, OsdId, PgId, SpgId};
pub use object::{NO_GENERATION, ObjectId, SNAP_DIR, SNAP_HEAD};
pub use storage::{FlushMode, READAHEAD_BYTES, StoreKind};
pub use time::UTime;
pub use uuid::Uuid;
pub use version::{Eversion, LogOp, ReqId};
pub use words::{UnknownWord, counted};
