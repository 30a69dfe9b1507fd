//! Replication and peering between OSDs. Kinds 0x8001 to 0x800a.
//!
//! Every message begins with the same 28 bytes, the [`Head`]: pool i64, seed u32, epoch u32, interval u32, attempt u64. So a receiver
//! finds the PG (and by it the owning reactor) without decoding the rest: [`peek_pg`].
//!
//! | kind | message | from | answered by |
//! |---|---|---|---|
//! | 0x8001 | [`RepOp`]: one log entry and its transaction; bulk data in the data segment | primary | [`RepAck`], when durable |
//! | 0x8002 | [`RepAck`]: everything up to this version is durable here | replica | |
//! | 0x8003 | [`PgQuery`]: a new interval begins; say what you have | primary | [`PgNotify`] |
//! | 0x8004 | [`PgNotify`]: info, and the log if it differs from the primary's | replica | |
//! | 0x8005 | [`PgRepair`]: your copy will be changed behind its log: mark it so (and empty it) | primary | [`PgAck`] |
//! | 0x8006 | [`PushObject`]: a piece of an object, or its removal | primary | [`PgAck`] |
//! | 0x8007 | [`PgActivate`]: the log from now on; the copy is whole | primary | [`PgAck`] |
//! | 0x8008 | [`PgAck`]: done (durable), or an errno | replica | |
//! | 0x8009 | [`PgRead`]: bytes of an object, of which a block is damaged here | any member | [`PgData`] |
//! | 0x800a | [`PgData`]: the bytes, in the data segment | any member | |
//!
//! Requests of peering carry a transaction id in the message header; the answer echoes it. Byte strings are a u32 length
//! and the bytes; versions are u64 version, u32 epoch, as Ceph writes them.

mod entry;
mod peering;
#[cfg(test)]
mod tests;

use entry::object;
pub use entry::{RepEntry, RepTxn};
pub use peering::{PgAck, PgActivate, PgNotify, PgQuery, PgRepair, PushObject};

use carmine_codec::{Coded, coded};
use carmine_types::{Epoch, Eversion, ObjectId, PgId};
use smallvec::SmallVec;

use super::VERSION;
use crate::header::message;
use crate::{Decoder, Encoder, Result};

/// First kind of this module.
pub const KIND_FIRST: u16 = 0x8001;
/// Last kind reserved for this module.
pub const KIND_LAST: u16 = 0x800f;

coded! {
    /// The beginning of every message.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Head {
        pub pg: PgId = bare_pg,
        /// The sender's map when it sent this.
        pub epoch: Epoch,
        /// The primary's epoch at which the interval began for it. A replica takes nothing of another interval than the one
        /// of the last [`PgQuery`] it answered.
        pub interval: Epoch,
        /// Counts the primary's attempts to activate the PG since its process started. Within an interval a replica takes
        /// nothing of an earlier attempt than the one of the last [`PgQuery`] it answered.
        pub attempt: u64,
    }
}

/// A PG's pool and seed, without Ceph's version and its unused field.
mod bare_pg {
    use super::*;

    pub(super) const BYTES_MIN: usize = 12;

    #[inline]
    pub(super) fn put(pg: &PgId, e: &mut Encoder<'_>) {
        e.i64(pg.pool);
        e.u32(pg.ps);
    }

    #[inline]
    pub(super) fn get(d: &mut Decoder<'_>) -> Result<PgId> {
        Ok(PgId { pool: d.i64()?, ps: d.u32()? })
    }
}

/// The PG that any message of this module is about; `None` if the front is too short to be one.
pub fn peek_pg(front: &[u8]) -> Option<PgId> {
    let mut d = Decoder::new(front, "replication head");
    d.get::<Head>().ok().map(|head| head.pg)
}

message! {
    /// Primary to replica: apply this entry, the next one of the PG's log.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RepOp: REP_OP, VERSION, compat VERSION, then with_pool {
        pub head: Head,
        /// Log entries up to and with this version may go; zero: keep all.
        pub trim_to: Eversion,
        pub entry: RepEntry,
        pub txn: SmallVec<[RepTxn; 2]> = steps,
    }
}

impl RepOp {
    fn with_pool(mut self) -> RepOp {
        self.entry.oid.pool = self.head.pg.pool;
        self
    }
}

mod steps {
    use super::*;

    pub(super) const BYTES_MIN: usize = 4;

    #[inline]
    pub(super) fn put(steps: &[RepTxn], e: &mut Encoder<'_>) {
        e.count(steps.len());
        RepTxn::put_items(steps, e);
    }

    #[inline]
    pub(super) fn get(d: &mut Decoder<'_>) -> Result<SmallVec<[RepTxn; 2]>> {
        let count = d.count(RepTxn::BYTES_MIN)?;
        let mut steps = SmallVec::new();
        for _ in 0..count {
            steps.push(d.get()?);
        }
        Ok(steps)
    }
}

message! {
    /// Replica to primary: every entry up to and with `version` is durable here. With a negative `result` nothing was
    /// applied, and `version` is the last entry that was.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RepAck: REP_ACK, VERSION, compat VERSION {
        pub head: Head,
        pub version: Eversion,
        pub result: i32,
    }
}

message! {
    /// One member of the acting set to another: give me `len` bytes at `off` of your copy of this object.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgRead: PG_READ, VERSION, compat VERSION, then with_pool {
        pub head: Head,
        pub off: u64,
        /// At most 1 MiB.
        pub len: u32,
        pub oid: ObjectId = object,
    }
}

impl PgRead {
    fn with_pool(mut self) -> PgRead {
        self.oid.pool = self.head.pg.pool;
        self
    }
}

message! {
    /// The answer; the bytes are in the data segment, less what lies behind the end of the object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgData: PG_DATA, VERSION, compat VERSION {
        pub head: Head,
        /// 0, or an errno: then there are no bytes.
        pub result: i32,
    }
}
