//! A PG log entry and the steps of a write, on the wire.

use carmine_codec::{Coded, coded};
use carmine_types::{Eversion, LogOp, ObjectId, ReqId, UTime};

use crate::{DecodeError, Decoder, Encoder, Result};

coded! {
    /// One change of one object, or a request that changed nothing.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RepEntry {
        pub version: Eversion,
        /// Version of the object before this change; zero if it did not exist.
        pub prior: Eversion,
        pub reqid: ReqId = reqid,
        pub user_version: u64,
        pub mtime: UTime,
        /// Result that a resend of the request is answered with.
        pub result: i32,
        /// What was done.
        pub op: LogOp = log_op,
        /// Its pool is that of the message's PG: it is not sent.
        pub oid: ObjectId = object,
    }
}

const _: () = assert!(RepEntry::BYTES_MIN == 89);

/// A request's id, without Ceph's envelope.
mod reqid {
    use super::*;

    pub(super) const BYTES_MIN: usize = 20;

    #[inline]
    pub(super) fn put(reqid: &ReqId, e: &mut Encoder<'_>) {
        e.u64(reqid.client);
        e.i32(reqid.inc);
        e.u64(reqid.tid);
    }

    #[inline]
    pub(super) fn get(d: &mut Decoder<'_>) -> Result<ReqId> {
        Ok(ReqId { client: d.u64()?, inc: d.i32()?, tid: d.u64()? })
    }
}

mod log_op {
    use super::*;

    pub(super) const BYTES_MIN: usize = 1;

    #[inline]
    pub(super) fn put(op: &LogOp, e: &mut Encoder<'_>) {
        e.u8(match op {
            LogOp::Modify => 0,
            LogOp::Delete => 1,
            LogOp::Error => 2,
        });
    }

    #[inline]
    pub(super) fn get(d: &mut Decoder<'_>) -> Result<LogOp> {
        match d.u8()? {
            0 => Ok(LogOp::Modify),
            1 => Ok(LogOp::Delete),
            2 => Ok(LogOp::Error),
            value => Err(DecodeError::BadValue { what: "log entry kind", value: value.into() }),
        }
    }
}

/// An object's id without its pool, which is that of the message's PG: the message puts it in.
pub(super) mod object {
    use super::*;

    pub(in super::super) const BYTES_MIN: usize = 4 + 8 + 3 * 4;

    #[inline]
    pub(in super::super) fn put(oid: &ObjectId, e: &mut Encoder<'_>) {
        e.u32(oid.hash);
        e.u64(oid.snap);
        e.blob(&oid.nspace);
        e.blob(&oid.key);
        e.blob(&oid.name);
    }

    #[inline]
    pub(in super::super) fn get(d: &mut Decoder<'_>) -> Result<ObjectId> {
        let (hash, snap) = (d.u32()?, d.u64()?);
        let (nspace, key, name) = (d.blob()?.into(), d.blob()?.into(), d.blob()?.into());
        Ok(ObjectId { pool: 0, hash, nspace, key, name, snap })
    }
}

/// A step of a write's transaction, on the object of its log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepTxn {
    /// The object exists from now on.
    Touch,
    /// `len` bytes, the next ones of the data segment, go to `off`.
    Write {
        off: u64,
        len: u64,
    },
    Zero {
        off: u64,
        len: u64,
    },
    Truncate {
        size: u64,
    },
    Remove,
    /// `len` bytes, the next ones of the data segment, go to `off` of the object that keeps the attributes.
    AttrsWrite {
        off: u64,
        len: u64,
    },
    /// That object goes.
    AttrsRemove,
}

impl Coded for RepTxn {
    /// Code, offset, length.
    const BYTES_MIN: usize = 17;

    #[inline]
    fn put(&self, e: &mut Encoder<'_>) {
        let (code, off, len) = match *self {
            RepTxn::Touch => (1, 0, 0),
            RepTxn::Write { off, len } => (2, off, len),
            RepTxn::Zero { off, len } => (3, off, len),
            RepTxn::Truncate { size } => (4, size, 0),
            RepTxn::Remove => (5, 0, 0),
            RepTxn::AttrsWrite { off, len } => (6, off, len),
            RepTxn::AttrsRemove => (7, 0, 0),
        };
        e.u8(code);
        e.u64(off);
        e.u64(len);
    }

    #[inline]
    fn get(d: &mut Decoder<'_>) -> Result<RepTxn> {
        let (code, off, len) = (d.u8()?, d.u64()?, d.u64()?);
        Ok(match code {
            1 => RepTxn::Touch,
            2 => RepTxn::Write { off, len },
            3 => RepTxn::Zero { off, len },
            4 => RepTxn::Truncate { size: off },
            5 => RepTxn::Remove,
            6 => RepTxn::AttrsWrite { off, len },
            7 => RepTxn::AttrsRemove,
            value => return Err(DecodeError::BadValue { what: "transaction step", value: value.into() }),
        })
    }
}
