//! CHECKSUM of a range of an object: one for the whole range, or one for each chunk (`rados_checksum` of librados).

use carmine_reactor::Payload;
use carmine_types::xxhash::{Xxh32, Xxh64};
use carmine_types::{crc32c, errno};
use carmine_wire::osd_op::{Checksum, OsdOp, flags::checksum};

use super::Operation;
use crate::error::{OpError, refuse_if};
use crate::pg::op::exec::ObjectState;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// The input is the initial value of each checksum; the output is their number and the checksums.
pub(super) async fn step(operation: Operation<'_>, state: &ObjectState<'_>) -> Result<Payload, OpError> {
    let Operation { objects, client, op, input } = operation;
    let wanted = op.checksum();
    let Some(len) = len_of(&wanted, state.size)? else { return Ok(Payload::new()) };
    let start = Sum::new(wanted.kind, &input.to_vec())?;
    if len == 0 {
        // An empty range has no checksums.
        return Ok(Payload::from(0u32.to_le_bytes().to_vec()));
    }
    let chunk = if wanted.chunk_bytes == 0 { len } else { wanted.chunk_bytes.into() };
    let output = (len / chunk).saturating_mul(size_of::<u64>() as u64);
    refuse_if(output > state.left, errno::EMSGSIZE)?;
    client.acquire_for(objects.osd, output).await;
    let out = ((len / chunk) as u32).to_le_bytes().to_vec();
    let mut sums = Sums { now: start.clone(), start, chunk, left: chunk, out };
    let (mut at, end) = (wanted.offset, wanted.offset + len);
    while at < end {
        let piece = state.bytes(objects, &OsdOp::read(at, PIECE_BYTES.min(end - at))).await?;
        if piece.is_empty() {
            return Err(OpError::because(errno::EIO, format_args!("nothing at {at} of {end}")));
        }
        sums.add(&piece);
        at += piece.len() as u64;
        objects.osd.shard.yield_now().await;
    }
    Ok(Payload::from(sums.out))
}

/// Bytes to read; `None` beyond the end of the object, where Ceph answers with nothing.
fn len_of(wanted: &Checksum, size: u64) -> Result<Option<u64>, OpError> {
    let Checksum { offset, length, chunk_bytes, .. } = *wanted;
    let is_odd = |length: u64| chunk_bytes != 0 && !length.is_multiple_of(chunk_bytes.into());
    refuse_if(is_odd(length) || chunk_bytes != 0 && length == 0, errno::EINVAL)?;
    if (offset, length) == (0, 0) {
        return Ok(Some(size));
    }
    if offset >= size {
        return Ok(None);
    }
    let length = length.min(size - offset);
    if is_odd(length) { Err(OpError::new(errno::EINVAL)) } else { Ok(Some(length)) }
}

/// Checksums of chunk after chunk.
struct Sums {
    start: Sum,
    now: Sum,
    chunk: u64,
    /// Bytes of the chunk still to be read.
    left: u64,
    out: Vec<u8>,
}

impl Sums {
    fn add(&mut self, piece: &Payload) {
        for bytes in piece {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (head, behind) = rest.split_at(self.left.min(rest.len() as u64) as usize);
                self.now.add(head);
                self.left -= head.len() as u64;
                if self.left == 0 {
                    self.now.write(&mut self.out);
                    (self.now, self.left) = (self.start.clone(), self.chunk);
                }
                rest = behind;
            }
        }
    }
}

#[derive(Clone)]
enum Sum {
    Crc32c(u32),
    Xxh32(Xxh32),
    Xxh64(Xxh64),
}

impl Sum {
    /// A checksum whose initial value is the beginning of `init`.
    fn new(kind: u8, init: &[u8]) -> Result<Sum, OpError> {
        let short = || init.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let long = || init.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let sum = match kind {
            checksum::XXHASH32 => short().map(|seed| Sum::Xxh32(Xxh32::new(seed))),
            checksum::XXHASH64 => long().map(|seed| Sum::Xxh64(Xxh64::new(seed))),
            checksum::CRC32C => short().map(Sum::Crc32c),
            _ => None,
        };
        sum.ok_or(OpError::new(errno::EINVAL))
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            Sum::Crc32c(crc) => *crc = crc32c::raw(*crc, bytes),
            Sum::Xxh32(hash) => hash.add(bytes),
            Sum::Xxh64(hash) => hash.add(bytes),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Sum::Crc32c(crc) => out.extend(crc.to_le_bytes()),
            Sum::Xxh32(hash) => out.extend(hash.finish().to_le_bytes()),
            Sum::Xxh64(hash) => out.extend(hash.finish().to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(offset: u64, length: u64, chunk_bytes: u32) -> Result<Option<u64>, OpError> {
        len_of(&Checksum { offset, length, chunk_bytes, kind: 0 }, 1024)
    }

    /// As Ceph 16.2.15 answers for an object of 1,024 bytes.
    #[test]
    fn ranges_are_cut_and_refused_as_in_ceph() {
        assert_eq!(len(0, 0, 0), Ok(Some(1024)));
        assert_eq!(len(0, 1024, 512), Ok(Some(1024)));
        assert_eq!(len(1016, 16, 8), Ok(Some(8)));
        assert_eq!(len(1000, 100, 0), Ok(Some(24)));
        for (offset, length, chunk) in [(1020, 16, 8), (0, 0, 8), (0, 15, 8)] {
            assert_eq!(len(offset, length, chunk), Err(OpError::new(errno::EINVAL)));
        }
        assert_eq!(len(1024, 16, 8), Ok(None));
        assert_eq!(len(5000, 0, 0), Ok(None));
        assert_eq!(len(5, 0, 0), Ok(Some(0)));
    }
}
