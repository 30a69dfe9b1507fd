//! Client operations on objects: MOSDOp and MOSDOpReply (PROTOCOL.md §6).
//!
//! The payloads of a message's operations lie in its data segment, one after the other in their order; each
//! op tells the length of its own.

mod args;
pub mod flags;
mod op;
pub mod ops;
mod peek;
mod reply;
mod request;
mod watch;

pub use args::{
    AllocHint, AssertVer, Call, Checksum, CopyFrom, Extent, Notify, PgLs, Snap, Watch, WriteSame, Xattr,
};
pub use op::{OP_BYTES, OpList, OsdOp, payload_bytes, payload_ranges};
pub use peek::{ANSWER_BYTES, OPS_MAX, WHOLE_OBJECT_BYTES, peek, peek_output};
pub use reply::OsdReply;
pub use request::{Locator, OsdRequest};
pub use watch::{NotifyDone, WatchNotify, Watcher, encode_watchers};

#[cfg(test)]
mod tests;
