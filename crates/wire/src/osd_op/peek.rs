//! Routing without decoding.

use carmine_types::{Epoch, PgId};

use crate::Decoder;

/// The first seven bytes of every MOSDOp of version 8 or 9: the envelope of the spg (version 1, compat 1,
/// 18 bytes) and the version of the pg in it.
const PROLOGUE: [u8; 7] = [1, 1, 18, 0, 0, 0, 1];

/// PG, object hash, map epoch and request flags of an MOSDOp (versions 8 and 9), read at their fixed places
/// in the front. `None` if it is too short or does not start as these versions do.
#[inline]
pub fn peek(front: &[u8]) -> Option<(PgId, u32, Epoch, u32)> {
    // Offsets: pool 7, ps 15, (preferred 19), shard 23, hash 24, epoch 28, flags 32.
    let fixed: &[u8; 36] = front.first_chunk()?;
    if !fixed.starts_with(&PROLOGUE) {
        return None;
    }
    let mut d = Decoder::new(&fixed[PROLOGUE.len()..], "peek");
    let pg = PgId { pool: d.i64().ok()?, ps: d.u32().ok()? };
    d.array::<5>().ok()?;
    let (hash, epoch, flags) = (d.u32().ok()?, d.u32().ok()?, d.u32().ok()?);
    Some((pg, hash, Epoch(epoch), flags))
}
