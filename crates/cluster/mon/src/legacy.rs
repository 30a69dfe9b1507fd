//! State files of the first version, which are read once: the monitor rewrites its state at every start.
//!
//! ```text
//! record = u32 length of the payload
//!          u32 crc                       raw crc32c(-1) of kind, length and payload
//!          u8  kind, 3 zero bytes
//!          payload                       a HEADER's has the generation between magic and fsid
//! ```

use carmine_types::{Uuid, crc32c};

use crate::content::Opening;
use crate::record::{Durable, NUMBER_MAX, RECORD_BYTES_MAX, Record, number};

const MAGIC: [u8; 8] = *b"crmmon\x00\x01";
const HEAD_BYTES: usize = 12;

/// Kind, payload and length of the record at the start of `bytes`.
fn decode(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [len @ .., c0, c1, c2, c3, kind, 0, 0, 0] = *head else { return None };
    let bytes = u32::from_le_bytes(len) as usize;
    let payload = rest.get(..bytes).filter(|_| bytes <= RECORD_BYTES_MAX)?;
    let [l0, l1, l2, l3] = len;
    let crc = crc32c::raw(crc32c::raw(u32::MAX, &[kind, l0, l1, l2, l3]), payload);
    (crc == u32::from_le_bytes([c0, c1, c2, c3])).then_some((kind, payload, HEAD_BYTES + bytes))
}

/// The generation that opens a file, and the length of the record that tells it.
pub(crate) fn header(bytes: &[u8]) -> Option<(Opening, usize)> {
    let (1, payload, len) = decode(bytes)? else { return None };
    let (generation, fsid) = payload.strip_prefix(&MAGIC)?.split_first_chunk::<8>()?;
    let fsid = Uuid(<[u8; 16]>::try_from(fsid).ok()?);
    Some((Opening { generation: number(*generation)?, fsid, is_legacy: true }, len))
}

/// A record behind the first one, and its length.
pub(crate) fn record(bytes: &[u8]) -> Option<(Record, usize)> {
    let (kind, payload, len) = decode(bytes)?;
    let record = match kind {
        2 => Record::Gid { next: number(<[u8; 8]>::try_from(payload).ok()?)? },
        3 => Record::Map(payload.to_vec()),
        _ => return None,
    };
    Some((record, len))
}

/// The proof that the record at `bad` was durable: a good one behind it. Only that one is looked for which the length of the
/// bad one leads to; records tell nothing of each other here. A file whose header is bad as well may be the newest of all.
pub(crate) fn durable(bytes: &[u8], bad: usize) -> Option<Durable> {
    let len = bytes.get(bad..)?.first_chunk::<4>()?;
    let behind = bad.checked_add(HEAD_BYTES)?.checked_add(u32::from_le_bytes(*len) as usize)?;
    record(bytes.get(behind..)?)?;
    let generation = header(bytes).map_or(NUMBER_MAX, |(opening, _)| opening.generation);
    Some(Durable { generation, bytes: bad as u64 + 1 })
}
