//! [`LogEntry`]: one entry of a PG's log.

use std::sync::Arc;

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, Result};
use carmine_types::{Eversion, LogOp, ObjectId, ReqId, UTime};

use crate::object;

/// One entry of a PG's log (pg_log_entry_t).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Version of this modification; unique and rising within the PG.
    pub version: Eversion,
    /// Version of the object before it; zero if it did not exist, or if nothing changed (`LogOp::Error`). In an answer that a merge
    /// copied into its log: see [`Self::given_version`].
    pub prior: Eversion,
    /// The client's request, by which a resend is detected.
    pub reqid: ReqId,
    /// The object.
    pub oid: Arc<ObjectId>,
    /// The operation's effect on the object.
    pub op: LogOp,
    /// Version that clients see.
    pub user_version: u64,
    /// Result that the client was given (0 or a negative errno).
    pub result: i32,
    /// Time of the modification.
    pub mtime: UTime,
    /// Snap ids of the object's clones that it made, changed or removed.
    pub clones: Box<[u64]>,
    /// Results and outputs of its operations, if the client asked for those of a write (Ceph's `op_returns`): a resend gets them
    /// again.
    pub returned: Option<Arc<Returned>>,
}

/// Few entries have clones or outputs. A log has thousands of entries: each is as long as one with a list of clones alone was.
const _: () = assert!(size_of::<LogEntry>() <= 112);

/// Result and output of each operation of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returned(pub Box<[(i32, Box<[u8]>)]>);

impl Returned {
    /// Memory, about, in bytes, with the allocator's overhead.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        const ALLOCATION: usize = 16;
        let outputs: usize = self.0.iter().map(|(_, output)| output.len() + ALLOCATION).sum();
        2 * (ALLOCATION + size_of::<Returned>()) + size_of_val(&*self.0) + outputs
    }
}

/// A bit of the byte of the operation's effect: what was returned follows at the end.
const HAS_RETURNED: u8 = 0x80;

impl Coded for LogEntry {
    const BYTES_MIN: usize = 12 + 12 + reqid::BYTES_MIN + object::BYTES_MIN + 1 + 8 + 4 + 8 + 4;

    #[inline]
    fn put(&self, e: &mut Encoder<'_>) {
        e.put(&self.version);
        e.put(&self.prior);
        reqid::put(&self.reqid, e);
        object::put(&self.oid, e);
        e.u8(log_op::byte(self.op) | if self.returned.is_some() { HAS_RETURNED } else { 0 });
        e.u64(self.user_version);
        e.i32(self.result);
        e.utime(self.mtime);
        e.put(&self.clones);
        if let Some(returned) = &self.returned {
            e.vec(&returned.0, |e, (result, output)| {
                e.i32(*result);
                e.blob(output);
            });
        }
    }

    #[inline]
    fn get(d: &mut Decoder<'_>) -> Result<LogEntry> {
        let (version, prior, reqid, oid) = (d.get()?, d.get()?, reqid::get(d)?, object::get(d)?);
        let byte = d.u8()?;
        let op = log_op::of_byte(byte & !HAS_RETURNED)?;
        let (user_version, result, mtime, clones) = (d.u64()?, d.i32()?, d.utime()?, d.get()?);
        let returned = match byte & HAS_RETURNED {
            0 => None,
            _ => Some(Arc::new(Returned(d.vec(4 + 4, |d| Ok((d.i32()?, d.blob()?.into())))?.into()))),
        };
        Ok(LogEntry { version, prior, reqid, oid, op, user_version, result, mtime, clones, returned })
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

    pub(super) fn byte(op: LogOp) -> u8 {
        match op {
            LogOp::Modify => 1,
            LogOp::Delete => 2,
            LogOp::Error => 3,
        }
    }

    pub(super) fn of_byte(byte: u8) -> Result<LogOp> {
        match byte {
            1 => Ok(LogOp::Modify),
            2 => Ok(LogOp::Delete),
            3 => Ok(LogOp::Error),
            value => Err(DecodeError::BadValue { what: "kind of a log entry", value: value.into() }),
        }
    }
}
