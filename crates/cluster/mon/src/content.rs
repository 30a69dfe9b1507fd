//! What a state file says, and what it proves about what both files once said.
//!
//! One append is under way at a time, so a power cut leaves at most one torn record, the last one. A file is read up to its
//! first bad record. Whether that one was torn or is damaged is told by what was written later: each record, and the mark in
//! the other file, says how much of which generation was durable before it.

use carmine_types::Uuid;

use crate::legacy;
use crate::record::{Durable, HEAD_BYTES, Record};

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
    /// The file is one of the first version.
    pub(crate) is_legacy: bool,
}

/// What a file's first record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opening {
    pub(crate) generation: u64,
    pub(crate) fsid: Uuid,
    pub(crate) is_legacy: bool,
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
                let same = |(record, durable, len): (Record, Durable, usize)| {
                    (durable.generation == generation).then_some((record, len))
                };
                read(bytes, Opening { generation, fsid, is_legacy: false }, len, |bytes| {
                    Record::decode(bytes).and_then(same)
                })
            }
            _ => match legacy::header(bytes) {
                Some((opening, len)) => read(bytes, opening, len, legacy::record),
                None => (None, 0),
            },
        };
        // A torn opening is proof as well, and has good records.
        let from = if content.is_some() { good_bytes } else { 0 };
        let proofs = (from..bytes.len()).filter_map(|at| Durable::decode(bytes.get(at..)?)).map(proven);
        let durable = proofs.chain(legacy::durable(bytes, good_bytes)).max().unwrap_or_default();
        Self { content, good_bytes, durable }
    }
}

/// The state in a file that begins so, and the bytes of its good records.
fn read(
    bytes: &[u8],
    opening: Opening,
    header_bytes: usize,
    decode: impl Fn(&[u8]) -> Option<(Record, usize)>,
) -> (Option<Content>, usize) {
    let mut good_bytes = header_bytes;
    let mut next = || {
        let (record, len) = decode(bytes.get(good_bytes..)?)?;
        let is_change = matches!(record, Record::Gid { .. } | Record::Map(_));
        good_bytes += if is_change { len } else { 0 };
        is_change.then_some(record)
    };
    let (Some(Record::Gid { next: next_gid }), Some(Record::Map(map))) = (next(), next()) else {
        return (None, good_bytes);
    };
    let Opening { generation, fsid, is_legacy } = opening;
    let mut content = Content { generation, fsid, next_gid, map, valid_bytes: 0, is_legacy };
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
    use carmine_types::crc32c;
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

    /// The same file as the first version wrote it.
    fn encode_legacy(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        for record in records {
            let (kind, payload) = match record {
                Record::Header { fsid } => {
                    (1, [b"crmmon\x00\x01", GENERATION.to_le_bytes().as_slice(), &fsid.0].concat())
                }
                Record::Gid { next } => (2, next.to_le_bytes().to_vec()),
                Record::Map(map) => (3, map.clone()),
                Record::Mark => unreachable!("the first version has no marks"),
            };
            let len = (payload.len() as u32).to_le_bytes();
            let crc = crc32c::raw(crc32c::raw(u32::MAX, &[&[kind], len.as_slice()].concat()), &payload);
            out.extend([len, crc.to_le_bytes(), [kind, 0, 0, 0]].concat());
            out.extend(payload);
        }
        out
    }

    /// End offset, next global id and map after each record.
    type States = Vec<(usize, u64, Vec<u8>)>;

    fn states(records: &[Record], encode: fn(&[Record]) -> Vec<u8>) -> (Vec<u8>, States) {
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

    fn encoders() -> impl Strategy<Value = fn(&[Record]) -> Vec<u8>> {
        prop_oneof![Just(encode as fn(&[Record]) -> Vec<u8>), Just(encode_legacy as fn(&[Record]) -> Vec<u8>)]
    }

    proptest! {
        #[test]
        fn any_truncation_reopens_with_a_prefix(
            more in proptest::collection::vec(any_change(), 0..8), cut in any::<prop::sample::Index>(),
            garbage in proptest::collection::vec(any::<u8>(), 0..40), encode in encoders(),
        ) {
            let records = [opening().to_vec(), more].concat();
            let (bytes, states) = states(&records, encode);
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
        fn a_flipped_bit_is_found(at in any::<prop::sample::Index>(), bit in 0..8u8, encode in encoders()) {
            let mut bytes = encode(&opening());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Reading::of(&bytes).content.is_none(), "a damaged opening was accepted");
        }

        #[test]
        fn damage_before_the_last_record_is_no_torn_tail(
            more in proptest::collection::vec(any_change(), 1..5), at in any::<prop::sample::Index>(), bit in 0..8u8,
        ) {
            let (mut bytes, states) = states(&[opening().to_vec(), more].concat(), encode);
            let at = at.index(states[states.len() - 2].0);
            bytes[at] ^= 1 << bit;
            let Reading { content, good_bytes, durable } = Reading::of(&bytes);
            prop_assert!(good_bytes <= at);
            prop_assert!(content.is_none_or(|content| content.reach() < durable));
        }

        #[test]
        fn damage_in_the_first_version_is_found_where_lengths_lead_past_it(
            more in proptest::collection::vec(any_change(), 1..5), at in any::<prop::sample::Index>(), bit in 0..8u8,
        ) {
            let (mut bytes, states) = states(&[opening().to_vec(), more].concat(), encode_legacy);
            let at = at.index(states[states.len() - 2].0);
            let begins = states.iter().map(|state| state.0).rev().find(|end| *end <= at).unwrap_or_default();
            prop_assume!(at - begins >= 4);
            bytes[at] ^= 1 << bit;
            let Reading { content, durable, .. } = Reading::of(&bytes);
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
