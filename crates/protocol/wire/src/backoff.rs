//! OSD → client: hold back operations on a range of objects, and its end (PROTOCOL.md §6).

use carmine_types::{Epoch, PgId};

use crate::pgls::HObject;
use crate::{DecodeError, Decoder, Encoder, Front, Result, kinds};

/// The operation of a [`Backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BackoffOp {
    /// OSD: hold operations on the range, this one included.
    Block = 1,
    /// Client: done; same id and range.
    AckBlock = 2,
    /// OSD: resend what is held under this id.
    Unblock = 3,
}

/// MOSDBackoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub pg: PgId,
    pub shard: i8,
    pub epoch: Epoch,
    pub op: BackoffOp,
    pub id: u64,
    /// First object of the range.
    pub begin: HObject,
    /// End of the range, not part of it (except that begin = end is the one object).
    pub end: HObject,
}

impl Front for Backoff {
    const KIND: u16 = kinds::OSD_BACKOFF;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.spg(self.pg, self.shard);
        e.u32(self.epoch.0);
        e.u8(self.op as u8);
        e.u64(self.id);
        e.put(&self.begin);
        e.put(&self.end);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<Backoff> {
        let (pg, shard) = d.spg()?;
        let epoch = Epoch(d.u32()?);
        let op = match d.u8()? {
            1 => BackoffOp::Block,
            2 => BackoffOp::AckBlock,
            3 => BackoffOp::Unblock,
            op => return Err(DecodeError::BadValue { what: "backoff op", value: op.into() }),
        };
        Ok(Backoff { pg, shard, epoch, op, id: d.u64()?, begin: d.get()?, end: d.get()? })
    }
}
