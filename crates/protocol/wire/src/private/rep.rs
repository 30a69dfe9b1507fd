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
mod op;
mod peering;
mod read;
#[cfg(test)]
mod tests;

pub use entry::RepEntry;
pub use op::{RepAck, RepOp, RepTxn};
pub use peering::{PgAck, PgActivate, PgNotify, PgQuery, PgRepair, PushObject};
pub use read::{PgData, PgRead};

use carmine_types::{Epoch, PgId};

use crate::{Decoder, Encoder, Result};

/// First kind of this module.
pub const KIND_FIRST: u16 = 0x8001;
/// Last kind reserved for this module.
pub const KIND_LAST: u16 = 0x800f;

/// What every message begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub pg: PgId,
    /// The sender's map when it sent this.
    pub epoch: Epoch,
    /// The primary's epoch at which the interval began for it. A replica takes nothing of another interval than the one
    /// of the last [`PgQuery`] it answered.
    pub interval: Epoch,
    /// Counts the primary's attempts to activate the PG since its process started. Within an interval a replica takes
    /// nothing of an earlier attempt than the one of the last [`PgQuery`] it answered.
    pub attempt: u64,
}

impl Head {
    pub(crate) fn encode(&self, e: &mut Encoder<'_>) {
        e.i64(self.pg.pool);
        e.u32(self.pg.ps);
        e.u32(self.epoch.0);
        e.u32(self.interval.0);
        e.u64(self.attempt);
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Head> {
        let pg = PgId { pool: d.i64()?, ps: d.u32()? };
        Ok(Head { pg, epoch: Epoch(d.u32()?), interval: Epoch(d.u32()?), attempt: d.u64()? })
    }
}

/// The PG that any message of this module is about; `None` if the front is too short to be one.
pub fn peek_pg(front: &[u8]) -> Option<PgId> {
    let mut d = Decoder::new(front, "replication head");
    Head::decode(&mut d).ok().map(|head| head.pg)
}
