//! The records of the monitor's state file, to the byte.
//!
//! ```text
//! record = u32 length of the payload     at most RECORD_BYTES_MAX
//!          u32 crc of the payload        raw crc32c(-1), as the next one
//!          u8  kind, 3 zero bytes
//!          u64 generation                of the file that the next number speaks of
//!          u64 durable bytes             so many bytes of that generation's file were durable before this was written
//!          u32 crc of the 28 bytes before
//!          payload
//! file   = HEADER record, GID record, MAP record, then any number of GID and MAP records,
//!          then one MARK at most, which speaks of the other file
//! ```
//! All integers are little-endian. Generations and global ids end at [`NUMBER_MAX`]: the next one always exists.
//! `content.rs` reads a file.

use carmine_types::{Uuid, crc32c};

/// First payload bytes of a HEADER record: names the format and its version.
const MAGIC: [u8; 8] = *b"crmmon\x00\x02";
/// Bytes before a record's payload.
pub(crate) const HEAD_BYTES: usize = 32;
/// Bytes of the head that its own checksum covers.
const HEAD_CHECKED_BYTES: usize = HEAD_BYTES - 4;
/// A map of 10,000 OSDs takes about 3 MB; a longer record is a damaged length.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;

/// Largest generation and global id: no monitor lives to count so far, so a larger one was never written.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> 1;

const KIND_HEADER: u8 = 1;
const KIND_GID: u8 = 2;
const KIND_MAP: u8 = 3;
const KIND_MARK: u8 = 4;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// Opens a file. Of two files the one with the higher generation is the current one.
    Header { fsid: Uuid },
    /// Global ids below this one may be in use.
    Gid { next: u64 },
    /// A whole OSDMap as sent to clients (it carries its own epoch and checksum).
    Map(Vec<u8>),
    /// Nothing but its head.
    Mark,
}

/// A generation of the state and how many bytes of its file are durable. Of two the greater one is the newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Durable {
    pub(crate) generation: u64,
    pub(crate) bytes: u64,
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::raw(u32::MAX, bytes)
}

/// A generation or a global id.
pub(crate) fn number(bytes: [u8; 8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes)).filter(|number| *number <= NUMBER_MAX)
}

/// What stands before a payload.
struct Head {
    len: usize,
    payload_crc: u32,
    kind: u8,
    durable: Durable,
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (checked, crc) = head.split_first_chunk::<HEAD_CHECKED_BYTES>()?;
        // First: who looks for heads at every byte of a file has no checksum to compute for most of them.
        let [.., 0, 0, 0] = checked[..12] else { return None };
        if checksum(checked).to_le_bytes() != *crc {
            return None;
        }
        let (len, rest) = checked.split_first_chunk::<4>()?;
        let (payload_crc, rest) = rest.split_first_chunk::<4>()?;
        let ([kind, 0, 0, 0], rest) = rest.split_first_chunk::<4>()? else { return None };
        let (generation, bytes) = rest.split_first_chunk::<8>()?;
        let len = u32::from_le_bytes(*len) as usize;
        let bytes = u64::from_le_bytes(<[u8; 8]>::try_from(bytes).ok()?);
        let durable = Durable { generation: number(*generation)?, bytes };
        let payload_crc = u32::from_le_bytes(*payload_crc);
        (len <= RECORD_BYTES_MAX).then_some(Self { len, payload_crc, kind: *kind, durable })
    }
}

impl Durable {
    /// What a record's head at the start of `bytes` says, whatever became of its payload.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Head::decode(bytes).map(|head| head.durable)
    }
}

impl Record {
    /// Appends the record's bytes to `out`.
    pub(crate) fn encode(&self, durable: Durable, out: &mut Vec<u8>) {
        let (kind, payload) = match self {
            Self::Header { fsid } => (KIND_HEADER, [MAGIC.as_slice(), &fsid.0].concat()),
            Self::Gid { next } => (KIND_GID, next.to_le_bytes().to_vec()),
            Self::Map(bytes) => (KIND_MAP, bytes.clone()),
            Self::Mark => (KIND_MARK, Vec::new()),
        };
        let at = out.len();
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&checksum(&payload).to_le_bytes());
        out.extend_from_slice(&[kind, 0, 0, 0]);
        out.extend_from_slice(&durable.generation.to_le_bytes());
        out.extend_from_slice(&durable.bytes.to_le_bytes());
        let crc = checksum(&out[at..]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&payload);
    }

    /// The record at the start of `bytes`, with its head's statement and its length; `None` if there is no whole, undamaged one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, Durable, usize)> {
        let head = Head::decode(bytes)?;
        let payload = bytes.get(HEAD_BYTES..)?.get(..head.len)?;
        if checksum(payload) != head.payload_crc {
            return None;
        }
        let record = match head.kind {
            KIND_HEADER => {
                let fsid = payload.strip_prefix(&MAGIC)?;
                Self::Header { fsid: Uuid(<[u8; 16]>::try_from(fsid).ok()?) }
            }
            KIND_GID => Self::Gid { next: number(<[u8; 8]>::try_from(payload).ok()?)? },
            KIND_MAP => Self::Map(payload.to_vec()),
            KIND_MARK if payload.is_empty() => Self::Mark,
            _ => return None,
        };
        Some((record, head.durable, HEAD_BYTES + head.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        prop_oneof![
            any::<[u8; 16]>().prop_map(|fsid| Record::Header { fsid: Uuid(fsid) }),
            (0..=NUMBER_MAX).prop_map(|next| Record::Gid { next }),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Record::Map),
            Just(Record::Mark),
        ]
    }

    proptest! {
        #[test]
        fn records_round_trip(record in any_record(), generation in 0..=NUMBER_MAX, bytes in any::<u64>()) {
            let durable = Durable { generation, bytes };
            let mut out = Vec::new();
            record.encode(durable, &mut out);
            let len = out.len();
            out.extend_from_slice(b"next");
            prop_assert_eq!(Record::decode(&out), Some((record, durable, len)));
            prop_assert_eq!(Durable::decode(&out[..HEAD_BYTES]), Some(durable));
        }

        #[test]
        fn a_flipped_bit_is_found(record in any_record(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut out = Vec::new();
            record.encode(Durable { generation: 3, bytes: 100 }, &mut out);
            let at = at.index(out.len());
            out[at] ^= 1 << bit;
            prop_assert_eq!(Record::decode(&out), None);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::decode(&bytes);
        }
    }
}
