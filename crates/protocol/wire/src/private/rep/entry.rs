//! A PG log entry on the wire.

use carmine_types::{Eversion, LogOp, ObjectId, ReqId, UTime};

use crate::{DecodeError, Decoder, Encoder, Result};

/// Smallest encoding of an entry, with empty strings.
pub(super) const ENTRY_BYTES_MIN: usize = 12 + 12 + 20 + 8 + 8 + 4 + 1 + OBJECT_BYTES_MIN;
/// Smallest encoding of an object's id.
const OBJECT_BYTES_MIN: usize = 4 + 8 + 3 * 4;

/// One change of one object, or a request that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepEntry {
    pub version: Eversion,
    /// Version of the object before this change; zero if it did not exist.
    pub prior: Eversion,
    pub reqid: ReqId,
    /// Its pool is that of the message's PG: it is not sent.
    pub oid: ObjectId,
    /// What was done.
    pub op: LogOp,
    pub user_version: u64,
    /// Result that a resend of the request is answered with.
    pub result: i32,
    pub mtime: UTime,
}

impl RepEntry {
    pub(super) fn encode(&self, e: &mut Encoder<'_>) {
        e.eversion(self.version);
        e.eversion(self.prior);
        e.u64(self.reqid.client);
        e.i32(self.reqid.inc);
        e.u64(self.reqid.tid);
        e.u64(self.user_version);
        e.utime(self.mtime);
        e.i32(self.result);
        e.u8(match self.op {
            LogOp::Modify => 0,
            LogOp::Delete => 1,
            LogOp::Error => 2,
        });
        object(e, &self.oid);
    }

    pub(super) fn decode(d: &mut Decoder<'_>, pool: i64) -> Result<RepEntry> {
        let (version, prior) = (d.eversion()?, d.eversion()?);
        let reqid = ReqId { client: d.u64()?, inc: d.i32()?, tid: d.u64()? };
        let (user_version, mtime, result) = (d.u64()?, d.utime()?, d.i32()?);
        let op = match d.u8()? {
            0 => LogOp::Modify,
            1 => LogOp::Delete,
            2 => LogOp::Error,
            value => return Err(DecodeError::BadValue { what: "log entry kind", value: value.into() }),
        };
        let oid = decode_object(d, pool)?;
        Ok(RepEntry { version, prior, reqid, oid, op, user_version, result, mtime })
    }
}

/// Writes an object's id without its pool.
pub(super) fn object(e: &mut Encoder<'_>, oid: &ObjectId) {
    e.u32(oid.hash);
    e.u64(oid.snap);
    e.blob(&oid.nspace);
    e.blob(&oid.key);
    e.blob(&oid.name);
}

/// Reads what [`object`] wrote.
pub(super) fn decode_object(d: &mut Decoder<'_>, pool: i64) -> Result<ObjectId> {
    let (hash, snap) = (d.u32()?, d.u64()?);
    let (nspace, key, name) = (d.blob()?.into(), d.blob()?.into(), d.blob()?.into());
    Ok(ObjectId { pool, hash, nspace, key, name, snap })
}
