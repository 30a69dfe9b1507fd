//! [`LogEntry`]: one entry of a PG's log.

use std::sync::Arc;

use carmine_codec::{DecodeError, Decoder, Encoder, Result};
use carmine_types::{Eversion, LogOp, ObjectId, ReqId, UTime};

use crate::object::{decode_object, encode_object};

/// One entry of a PG's log (pg_log_entry_t).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Version of this modification; unique and rising within the PG.
    pub version: Eversion,
    /// Version of the object before it; zero if it did not exist.
    pub prior: Eversion,
    /// The client's request, by which a resend is detected.
    pub reqid: ReqId,
    /// The object.
    pub oid: Arc<ObjectId>,
    /// What was done.
    pub op: LogOp,
    /// Version that clients see.
    pub user_version: u64,
    /// Result that the client was given (0 or a negative errno).
    pub result: i32,
    /// Time of the modification.
    pub mtime: UTime,
}

impl LogEntry {
    /// Bytes of the shortest encoding.
    pub const BYTES_MIN: usize = 12 + 12 + 20 + 8 + 8 + 4 + 1 + 29 + 3 * 4;

    /// Appends the encoding.
    pub fn encode(&self, e: &mut Encoder<'_>) {
        e.eversion(self.version);
        e.eversion(self.prior);
        e.u64(self.reqid.client);
        e.i32(self.reqid.inc);
        e.u64(self.reqid.tid);
        e.u64(self.user_version);
        e.utime(self.mtime);
        e.i32(self.result);
        e.u8(match self.op {
            LogOp::Modify => 1,
            LogOp::Delete => 2,
            LogOp::Error => 3,
        });
        encode_object(e, &self.oid);
    }

    /// Reads what [`LogEntry::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes are no entry.
    pub fn decode(d: &mut Decoder<'_>) -> Result<LogEntry> {
        let (version, prior) = (d.eversion()?, d.eversion()?);
        let reqid = ReqId { client: d.u64()?, inc: d.i32()?, tid: d.u64()? };
        let (user_version, mtime, result) = (d.u64()?, d.utime()?, d.i32()?);
        let op = match d.u8()? {
            1 => LogOp::Modify,
            2 => LogOp::Delete,
            3 => LogOp::Error,
            value => return Err(DecodeError::BadValue { what: "kind of a log entry", value: value.into() }),
        };
        let oid = Arc::new(decode_object(d)?);
        Ok(LogEntry { version, prior, reqid, oid, op, user_version, result, mtime })
    }
}
