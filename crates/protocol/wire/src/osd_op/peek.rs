//! Routing and admission without decoding.

use carmine_types::{Epoch, PgId};

use super::request::{PROLOGUE, VERSION_OTEL};
use super::{OP_BYTES, ops};
use crate::Decoder;

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

/// Bytes before the envelope of the locator in a front of version 8: up to the trace, the client's number, the time.
const LOCATOR_AT: usize = 87 + 4 + 8;
/// Most operations that a request may have. librbd asks for all snapshots of an image at once, with three operations or more for each.
pub const OPS_MAX: usize = 8 << 10;

/// Bytes that an operation on a whole object, whose length nobody knows yet, counts for: the largest object of most applications.
pub const WHOLE_OBJECT_BYTES: u64 = 4 << 20;
/// Bytes that the answer of an operation apart from plain data counts for: attributes, class methods, lists.
pub const ANSWER_BYTES: u64 = 256 << 10;

/// Bytes that an MOSDOp will hold in memory beside itself: what it reads, what it writes over and over, and copies of the
/// input of operations that are not plain. Where the length is not in the request it is [`WHOLE_OBJECT_BYTES`] or
/// [`ANSWER_BYTES`]. 0 for a request that does not decode.
#[inline]
pub fn peek_output(version: u16, front: &[u8]) -> u64 {
    let at = if version >= VERSION_OTEL { 87 } else { LOCATOR_AT };
    front.get(at..).and_then(|rest| reads(version, rest)).unwrap_or(0)
}

fn reads(version: u16, rest: &[u8]) -> Option<u64> {
    let mut d = Decoder::new(rest, "peek");
    if version >= VERSION_OTEL {
        d.envelope("trace context", 1).ok()?;
        d.array::<12>().ok()?;
    }
    d.array::<2>().ok()?; // versions of the locator
    d.blob().ok()?;
    d.blob().ok()?; // the name
    let count = usize::from(d.u16().ok()?).min(OPS_MAX);
    let mut bytes = 0_u64;
    for _ in 0..count {
        let op = d.array::<OP_BYTES>().ok()?;
        let mut op = Decoder::new(&op, "peek");
        let code = op.u16().ok()?;
        if is_without_output(code) {
            continue;
        }
        op.array::<12>().ok()?; // flags and offset
        let length = op.u64().ok()?;
        bytes = bytes.saturating_add(match code {
            ops::READ | ops::SPARSE_READ if length == 0 => WHOLE_OBJECT_BYTES,
            ops::READ | ops::SPARSE_READ | ops::CMPEXT | ops::WRITE_SAME => length,
            ops::COPY_FROM | ops::COPY_FROM2 => WHOLE_OBJECT_BYTES,
            _ => {
                op.array::<12>().ok()?; // the rest of the arguments
                ANSWER_BYTES + 2 * u64::from(op.u32().ok()?)
            }
        });
    }
    Some(bytes)
}

/// Operations that hold nothing beside their input.
fn is_without_output(code: u16) -> bool {
    matches!(
        code,
        ops::WRITE
            | ops::WRITE_FULL
            | ops::APPEND
            | ops::SET_ALLOC_HINT
            | ops::STAT
            | ops::ASSERT_VER
            | ops::TRUNCATE
            | ops::ZERO
            | ops::DELETE
            | ops::CREATE
    )
}
