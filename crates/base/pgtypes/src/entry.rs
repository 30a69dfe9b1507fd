//! [`LogEntry`]: one entry of a PG's log.

use std::sync::Arc;

use carmine_codec::{DecodeError, Decoder, Encoder, Result, coded};
use carmine_types::{Eversion, LogOp, ObjectId, ReqId, UTime};

use crate::object;

coded! {
    /// One entry of a PG's log (pg_log_entry_t).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LogEntry {
        /// Version of this modification; unique and rising within the PG.
        pub version: Eversion,
        /// Version of the object before it; zero if it did not exist.
        pub prior: Eversion,
        /// The client's request, by which a resend is detected.
        pub reqid: ReqId = reqid,
        /// The object.
        pub oid: Arc<ObjectId> = object,
        /// The operation's effect on the object.
        pub op: LogOp = log_op,
        /// Version that clients see.
        pub user_version: u64,
        /// Result that the client was given (0 or a negative errno).
        pub result: i32,
        /// Time of the modification.
        pub mtime: UTime,
        /// Snap ids of the object's clones that it made, changed or removed.
        pub clones: Vec<u64>,
    }
}

impl LogEntry {
    /// The objects that it changed: the one that it names, and clones of that.
    pub fn objects(&self) -> impl Iterator<Item = Arc<ObjectId>> + '_ {
        let clones = self.clones.iter().map(|snap| Arc::new(ObjectId { snap: *snap, ..(*self.oid).clone() }));
        std::iter::once(Arc::clone(&self.oid)).chain(clones)
    }
}

mod reqid {
    use super::*;

    pub(super) const BYTES_MIN: usize = 8 + 4 + 8;

    pub(super) fn put(id: &ReqId, e: &mut Encoder<'_>) {
        e.u64(id.client);
        e.i32(id.inc);
        e.u64(id.tid);
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<ReqId> {
        Ok(ReqId { client: d.u64()?, inc: d.i32()?, tid: d.u64()? })
    }
}

mod log_op {
    use super::*;

    pub(super) const BYTES_MIN: usize = 1;

    pub(super) fn put(op: &LogOp, e: &mut Encoder<'_>) {
        e.u8(match op {
            LogOp::Modify => 1,
            LogOp::Delete => 2,
            LogOp::Error => 3,
        });
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<LogOp> {
        match d.u8()? {
            1 => Ok(LogOp::Modify),
            2 => Ok(LogOp::Delete),
            3 => Ok(LogOp::Error),
            value => Err(DecodeError::BadValue { what: "kind of a log entry", value: value.into() }),
        }
    }
}
