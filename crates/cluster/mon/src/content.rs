//! What a state file says, and what it proves about what both files once said.
//!
//! One append is under way at a time, so a power cut leaves at most one torn record, the last one. A file is read up to its
//! first bad record. Whether that one was torn or is damaged is told by what was written later: each record, and the mark in
//! the other file, says how much of which generation was durable before it.

use carmine_types::Uuid;

use crate::record::{Durable, HEAD_BYTES, Record};

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
    /// Bytes of the records that say so.
    pub(crate) valid_bytes: usize,
}

/// What was found in a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reading {
    /// `None` if the three opening records are not all there.
    pub(crate) content: Option<Content>,
    /// Bytes of the good records at the front.
    pub(crate) good_bytes: usize,
    /// The newest state, of this file or the other one, that was durable according to what is behind the good records.
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
    pub(crate) fn of(bytes: &[u8]) -> Self {
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
        let is_change = matches!(record, Record::Gid { .. } | Record::Map(_));
        let is_ours = is_change && durable.generation == generation;
        good_bytes += if is_ours { len } else { 0 };
        is_ours.then_some(record)
    };
    let (Some(Record::Gid { next: next_gid }), Some(Record::Map(map))) = (next(), next()) else {
        return (None, good_bytes);
    };
    let mut content = Content { generation, fsid, next_gid, map, valid_bytes: 0 };
    while let Some(record) = next() {
        match record {
            Record::Gid { next } => content.next_gid = content.next_gid.max(next),
            Record::Map(map) => content.map = map,
            Record::Header { .. } | Record::Mark => {}
        }
    }
    content.valid_bytes = good_bytes;
    (Some(content), good_bytes)
}

/// What a record's head proves. An opening is written when the generation before it is in force.
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

    const FSID: Uuid = Uuid([9; 16]);
    const GENERATION: u64 = 7;

    fn any_change() -> impl Strategy<Value = Record> {
        prop_oneof![
            (0..=1_u64 << 40).prop_map(|next| Record::Gid { next }),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Record::Map),
        ]
    }

    fn opening() -> [Record; 3] {
        [Record::Header { fsid: FSID }, Record::Gid { next: 4096 }, Record::Map(b"first".to_vec())]
    }

    /// Each record alone in its append, but for the opening.
    fn encode(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        for (n, record) in records.iter().enumerate() {
            let bytes = if n < 3 { 0 } else { out.len() as u64 };
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
                Record::Header { .. } | Record::Mark => {}
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
            let reading = Reading::of(&torn);
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
        fn a_flipped_bit_is_found(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut bytes = encode(&opening());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Reading::of(&bytes).content.is_none(), "a damaged opening was accepted");
        }

        #[test]
        fn damage_before_the_last_record_is_no_torn_tail(
            more in proptest::collection::vec(any_change(), 1..5), at in any::<prop::sample::Index>(), bit in 0..8u8,
        ) {
            let (mut bytes, states) = states(&[opening().to_vec(), more].concat());
            let at = at.index(states[states.len() - 2].0);
            bytes[at] ^= 1 << bit;
            let Reading { content, good_bytes, durable, .. } = Reading::of(&bytes);
            prop_assert!(good_bytes <= at);
            prop_assert!(content.is_none_or(|content| content.reach() < durable));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Reading::of(&bytes);
        }
    }

    #[test]
    fn a_torn_opening_proves_the_generation_before_it() {
        let whole = encode(&opening());
        let torn = Reading::of(&whole[..whole.len() - 1]);
        assert_eq!((torn.content, torn.durable.generation), (None, GENERATION - 1));
        let mut first = Vec::new();
        Record::Header { fsid: FSID }.encode(Durable { generation: 1, bytes: 0 }, &mut first);
        assert_eq!(Reading::of(&first).durable, Durable::default());
    }
}
