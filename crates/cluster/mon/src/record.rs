//! The records of the monitor's state file, to the byte; the state that a file of them holds, and what it proves about both
//! files.
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
//! The newest MAP counts; those before it are for OSDs that were away ([`crate::history`]).
//!
//! All integers are little-endian. Generations and global ids end at [`NUMBER_MAX`]: the next one always exists.
//!
//! One append is under way at a time, so a power cut leaves at most one torn record, the last one. A file is read up to its
//! first bad record. Whether that one was torn or is damaged is told by what was written later: each record, and the mark in
//! the other file, says how much of which generation was durable before it.

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
const KIND_OPTIONS: u8 = 5;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// Opens a file. Of two files the one with the higher generation is the current one.
    Header { fsid: Uuid },
    /// Global ids below this one may be in use.
    Gid { next: u64 },
    /// A whole OSDMap as sent to clients (it carries its own epoch and checksum).
    Map(Vec<u8>),
    /// The options of clients. Those of an opening stand before its map.
    Options(Vec<u8>),
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

/// The head before a payload.
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
    /// The statement of the record's head at the start of `bytes`, whatever became of its payload.
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
            Self::Options(bytes) => (KIND_OPTIONS, bytes.clone()),
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
            KIND_OPTIONS => Self::Options(payload.to_vec()),
            KIND_MARK if payload.is_empty() => Self::Mark,
            _ => return None,
        };
        Some((record, head.durable, HEAD_BYTES + head.len))
    }
}

/// Where a file of the first version names itself, and how.
const FIRST_VERSION_AT: usize = 12;
const FIRST_VERSION: [u8; 8] = *b"crmmon\x00\x01";

/// The state in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) generation: u64,
    pub(crate) fsid: Uuid,
    pub(crate) next_gid: u64,
    /// The newest whole map.
    pub(crate) map: Vec<u8>,
    /// Those before it, oldest first.
    pub(crate) older: Vec<Vec<u8>>,
    /// The newest options of clients; empty if none were ever stored.
    pub(crate) options: Vec<u8>,
    /// Bytes of the records that say so.
    pub(crate) valid_bytes: usize,
}

/// The contents of a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reading {
    /// `None` if the three opening records are not all there.
    pub(crate) content: Option<Content>,
    /// Bytes of the good records at the front.
    pub(crate) good_bytes: usize,
    /// The newest state, of this file or the other one, that was durable according to the bytes after the good records.
    pub(crate) durable: Durable,
    /// The file is one of the first version, which is not read any more.
    pub(crate) is_first_version: bool,
}

impl Content {
    /// How much of which generation this is.
    pub(crate) fn reach(&self) -> Durable {
        Durable { generation: self.generation, bytes: self.valid_bytes as u64 }
    }
}

impl Reading {
    /// Reads a file's bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let (content, good_bytes) = match Record::decode(bytes) {
            Some((Record::Header { fsid }, Durable { generation, .. }, len)) => {
                read(bytes, (generation, fsid), len)
            }
            _ => (None, 0),
        };
        // A torn opening is proof as well, and has good records.
        let from = if content.is_some() { good_bytes } else { 0 };
        let proofs = (from..bytes.len()).filter_map(|at| Durable::decode(bytes.get(at..)?)).map(proven);
        let durable = proofs.max().unwrap_or_default();
        let is_first_version = bytes.get(FIRST_VERSION_AT..).is_some_and(|at| at.starts_with(&FIRST_VERSION));
        Self { content, good_bytes, durable, is_first_version }
    }
}

/// The state in a file that begins so, and the bytes of its good records.
fn read(bytes: &[u8], (generation, fsid): (u64, Uuid), header_bytes: usize) -> (Option<Content>, usize) {
    let mut good_bytes = header_bytes;
    let mut next = || {
        let (record, durable, len) = Record::decode(bytes.get(good_bytes..)?)?;
        let is_change = matches!(record, Record::Gid { .. } | Record::Map(_) | Record::Options(_));
        let is_ours = is_change && durable.generation == generation;
        good_bytes += if is_ours { len } else { 0 };
        is_ours.then_some(record)
    };
    let Some(Record::Gid { next: next_gid }) = next() else { return (None, good_bytes) };
    let (mut second, mut options) = (next(), Vec::new());
    if let Some(Record::Options(stored)) = second {
        (second, options) = (next(), stored);
    }
    let Some(Record::Map(map)) = second else { return (None, good_bytes) };
    let mut content = Content { generation, fsid, next_gid, map, older: Vec::new(), options, valid_bytes: 0 };
    while let Some(record) = next() {
        match record {
            Record::Gid { next } => content.next_gid = content.next_gid.max(next),
            Record::Map(map) => content.older.push(std::mem::replace(&mut content.map, map)),
            Record::Options(options) => content.options = options,
            Record::Header { .. } | Record::Mark => {}
        }
    }
    content.valid_bytes = good_bytes;
    (Some(content), good_bytes)
}

/// The state that a record's head proves. An opening is written when the generation before it is in force.
fn proven(head: Durable) -> Durable {
    match head {
        Durable { generation: 0 | 1, bytes: 0 } => Durable::default(),
        Durable { generation, bytes: 0 } => Durable { generation: generation - 1, bytes: HEAD_BYTES as u64 },
        head => head,
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
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Record::Options),
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

    const FSID: Uuid = Uuid([9; 16]);
    const GENERATION: u64 = 7;

    fn any_change() -> impl Strategy<Value = Record> {
        prop_oneof![
            (0..=1_u64 << 40).prop_map(|next| Record::Gid { next }),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Record::Map),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Record::Options),
        ]
    }

    fn opening() -> [Record; 3] {
        [Record::Header { fsid: FSID }, Record::Gid { next: 4096 }, Record::Map(b"first".to_vec())]
    }

    /// Each record alone in its append, but for the opening.
    fn encode(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        for (n, record) in records.iter().enumerate() {
            let opening = if matches!(records.get(2), Some(Record::Options(_))) { 4 } else { 3 };
            let bytes = if n < opening { 0 } else { out.len() as u64 };
            record.encode(Durable { generation: GENERATION, bytes }, &mut out);
        }
        out
    }

    /// End offset, next global id and map after each record.
    type States = Vec<(usize, u64, Vec<u8>)>;

    fn states(records: &[Record]) -> (Vec<u8>, States) {
        let (mut gid, mut map, mut out) = (0, Vec::new(), Vec::new());
        for (n, record) in records.iter().enumerate() {
            match record {
                Record::Header { .. } | Record::Mark | Record::Options(_) => {}
                Record::Gid { next } => gid = gid.max(*next),
                Record::Map(m) => map = m.clone(),
            }
            out.push((encode(&records[..=n]).len(), gid, map.clone()));
        }
        (encode(records), out)
    }

    proptest! {
        #[test]
        fn any_truncation_reopens_with_a_prefix(
            more in proptest::collection::vec(any_change(), 0..8), cut in any::<prop::sample::Index>(),
            garbage in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let records = [opening().to_vec(), more].concat();
            let (bytes, states) = states(&records);
            let cut = cut.index(bytes.len() + 1);
            let mut torn = bytes[..cut].to_vec();
            if cut < bytes.len() {
                torn.extend(garbage);
            }
            let expect = states.iter().enumerate().rev().find(|(n, (end, ..))| *end <= cut && *n >= 2);
            let reading = Reading::from_bytes(&torn);
            match (reading.content, expect) {
                (None, None) => {}
                // Garbage that happens to continue the torn record correctly may keep one record more.
                (Some(got), Some((n, _))) => {
                    let keeps = |s: &(usize, u64, Vec<u8>)| got.valid_bytes == s.0 && got.next_gid == s.1 && got.map == s.2;
                    prop_assert!(states[n..].iter().any(keeps), "{got:?} is no prefix");
                    prop_assert_eq!((got.generation, got.fsid), (GENERATION, FSID));
                    prop_assert!(reading.durable <= got.reach(), "a torn tail is taken for damage");
                }
                (got, expect) => prop_assert!(false, "{got:?} instead of {expect:?}"),
            }
        }

        #[test]
        fn a_flipped_bit_of_a_file_is_found(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut bytes = encode(&opening());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Reading::from_bytes(&bytes).content.is_none(), "a damaged opening was accepted");
        }

        #[test]
        fn damage_before_the_last_record_is_no_torn_tail(
            more in proptest::collection::vec(any_change(), 1..5), at in any::<prop::sample::Index>(), bit in 0..8u8,
        ) {
            let (mut bytes, states) = states(&[opening().to_vec(), more].concat());
            let at = at.index(states[states.len() - 2].0);
            bytes[at] ^= 1 << bit;
            let Reading { content, good_bytes, durable, .. } = Reading::from_bytes(&bytes);
            prop_assert!(good_bytes <= at);
            prop_assert!(content.is_none_or(|content| content.reach() < durable));
        }

        #[test]
        fn random_files_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Reading::from_bytes(&bytes);
        }
    }

    #[test]
    fn the_newest_options_count() {
        let [header, gid, map] = opening();
        let options = |text: &[u8]| Record::Options(text.to_vec());
        let found =
            |records: &[Record]| Reading::from_bytes(&encode(records)).content.map(|content| content.options);
        let first = [header, gid, options(b"first"), map];
        assert_eq!(found(&first), Some(b"first".to_vec()));
        assert_eq!(found(&[&first[..], &[options(b"second")]].concat()), Some(b"second".to_vec()));
        assert_eq!(found(&opening()), Some(Vec::new()));
        assert_eq!(found(&first[..3]), None, "an opening ends with its map");
    }

    #[test]
    fn a_torn_opening_proves_the_generation_before_it() {
        let whole = encode(&opening());
        let torn = Reading::from_bytes(&whole[..whole.len() - 1]);
        assert_eq!((torn.content, torn.durable.generation), (None, GENERATION - 1));
        let mut first = Vec::new();
        Record::Header { fsid: FSID }.encode(Durable { generation: 1, bytes: 0 }, &mut first);
        assert_eq!(Reading::from_bytes(&first).durable, Durable::default());
    }
}
