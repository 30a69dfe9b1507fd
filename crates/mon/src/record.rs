//! The records of the monitor's state file, to the byte.
//!
//! ```text
//! record = u32 length of the payload     at most RECORD_BYTES_MAX
//!          u32 crc                       raw crc32c(-1) of kind, length and payload
//!          u8  kind, 3 zero bytes
//!          payload
//! file   = HEADER record, GID record, MAP record, then any number of GID and MAP records
//! ```
//! All integers are little-endian. Generations and global ids end at [`NUMBER_MAX`]: the next one always exists.
//! A file is valid up to its first bad record: what follows was never acknowledged to anyone (a torn tail) and is
//! cut off at the next open.

use carmine_types::{Uuid, crc32c};

/// First payload bytes of a HEADER record: names the format and its version.
const MAGIC: [u8; 8] = *b"crmmon\x00\x01";
/// Bytes before a record's payload.
pub(crate) const RECORD_HEAD_BYTES: usize = 12;
/// A map of 10,000 OSDs takes about 3 MB; a longer record is a damaged length.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;

/// Largest generation and global id: no monitor lives to count so far, so a larger one was never written.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> 1;

const KIND_HEADER: u8 = 1;
const KIND_GID: u8 = 2;
const KIND_MAP: u8 = 3;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// Opens a file. Of two files the one with the higher generation is the current one.
    Header { generation: u64, fsid: Uuid },
    /// Global ids below this one may be in use.
    Gid { next: u64 },
    /// A whole OSDMap as sent to clients (it carries its own epoch and checksum).
    Map(Vec<u8>),
}

fn checksum(kind: u8, payload: &[u8]) -> u32 {
    let mut head = [0; 5];
    head[0] = kind;
    head[1..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    crc32c::raw(crc32c::raw(u32::MAX, &head), payload)
}

fn number(bytes: [u8; 8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes)).filter(|number| *number <= NUMBER_MAX)
}

impl Record {
    /// Appends the record's bytes to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, payload) = match self {
            Self::Header { generation, fsid } => {
                let mut p = MAGIC.to_vec();
                p.extend_from_slice(&generation.to_le_bytes());
                p.extend_from_slice(&fsid.0);
                (KIND_HEADER, p)
            }
            Self::Gid { next } => (KIND_GID, next.to_le_bytes().to_vec()),
            Self::Map(bytes) => (KIND_MAP, bytes.clone()),
        };
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&checksum(kind, &payload).to_le_bytes());
        out.extend_from_slice(&[kind, 0, 0, 0]);
        out.extend_from_slice(&payload);
    }

    /// The record at the start of `bytes` and its length; `None` if there is no whole, undamaged one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>()?;
        let [l0, l1, l2, l3, c0, c1, c2, c3, kind, 0, 0, 0] = *head else { return None };
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if len > RECORD_BYTES_MAX {
            return None;
        }
        let payload = rest.get(..len)?;
        if checksum(kind, payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return None;
        }
        let record = match kind {
            KIND_HEADER => {
                let body = payload.strip_prefix(&MAGIC)?;
                let (generation, fsid) = body.split_first_chunk::<8>()?;
                Self::Header {
                    generation: number(*generation)?,
                    fsid: Uuid(<[u8; 16]>::try_from(fsid).ok()?),
                }
            }
            KIND_GID => Self::Gid { next: number(<[u8; 8]>::try_from(payload).ok()?)? },
            KIND_MAP => Self::Map(payload.to_vec()),
            _ => return None,
        };
        Some((record, RECORD_HEAD_BYTES + len))
    }
}

/// What a state file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) generation: u64,
    pub(crate) fsid: Uuid,
    pub(crate) next_gid: u64,
    /// The newest whole map.
    pub(crate) map: Vec<u8>,
    /// Bytes of the valid prefix.
    pub(crate) valid_bytes: usize,
}

impl Content {
    /// Reads a file's bytes up to its first bad record. `None` if the three opening records are not all
    /// there: then the file was never completed and never used.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut at = 0;
        let mut next = || {
            let (record, len) = Record::decode(bytes.get(at..)?)?;
            at += len;
            Some((record, at))
        };
        let Some((Record::Header { generation, fsid }, _)) = next() else { return None };
        let Some((Record::Gid { next: next_gid }, _)) = next() else { return None };
        let Some((Record::Map(map), valid_bytes)) = next() else { return None };
        let mut content = Self { generation, fsid, next_gid, map, valid_bytes };
        while let Some((record, end)) = next() {
            match record {
                Record::Header { .. } => break,
                Record::Gid { next } => content.next_gid = content.next_gid.max(next),
                Record::Map(map) => content.map = map,
            }
            content.valid_bytes = end;
        }
        Some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        prop_oneof![
            (0..=NUMBER_MAX).prop_map(|next| Record::Gid { next }),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Record::Map),
        ]
    }

    fn opening() -> Vec<Record> {
        vec![
            Record::Header { generation: 7, fsid: Uuid([9; 16]) },
            Record::Gid { next: 4096 },
            Record::Map(b"first".to_vec()),
        ]
    }

    /// End offset, next global id and map after each record.
    type States = Vec<(usize, u64, Vec<u8>)>;

    fn states(records: &[Record]) -> (Vec<u8>, States) {
        let (mut bytes, mut gid, mut map, mut out) = (Vec::new(), 0, Vec::new(), Vec::new());
        for record in records {
            record.encode(&mut bytes);
            match record {
                Record::Header { .. } => {}
                Record::Gid { next } => gid = gid.max(*next),
                Record::Map(m) => map = m.clone(),
            }
            out.push((bytes.len(), gid, map.clone()));
        }
        (bytes, out)
    }

    proptest! {
        #[test]
        fn records_round_trip(record in any_record()) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let len = bytes.len();
            bytes.extend_from_slice(b"next");
            prop_assert_eq!(Record::decode(&bytes), Some((record, len)));
        }

        #[test]
        fn any_truncation_reopens_with_a_prefix(
            more in proptest::collection::vec(any_record(), 0..8), cut in any::<prop::sample::Index>(),
            garbage in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut records = opening();
            records.extend(more);
            let (bytes, states) = states(&records);
            let cut = cut.index(bytes.len() + 1);
            let mut torn = bytes[..cut].to_vec();
            if cut < bytes.len() {
                torn.extend(garbage);
            }
            let expect = states.iter().enumerate().rev().find(|(n, (end, ..))| *end <= cut && *n >= 2);
            match (Content::read(&torn), expect) {
                (None, None) => {}
                // Garbage that happens to continue the torn record correctly may keep one record more.
                (Some(got), Some((n, _))) => {
                    let keeps = |s: &(usize, u64, Vec<u8>)| got.valid_bytes == s.0 && got.next_gid == s.1 && got.map == s.2;
                    prop_assert!(states[n..].iter().any(keeps), "{got:?} is no prefix");
                    prop_assert_eq!(got.generation, 7);
                }
                (got, expect) => prop_assert!(false, "{got:?} instead of {expect:?}"),
            }
        }

        #[test]
        fn a_flipped_bit_is_found(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let (mut bytes, states) = states(&opening());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Content::read(&bytes).is_none(), "a damaged opening of {} bytes was accepted", states[2].0);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Content::read(&bytes);
            let _ = Record::decode(&bytes);
        }
    }
}
