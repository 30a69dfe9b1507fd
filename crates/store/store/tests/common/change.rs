//! Random changes of an object, around the places where stores go wrong.

use carmine_pgtypes::{ObjectChange, Step};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Eversion, ObjectId, UTime};
use proptest::prelude::*;

use super::noise;

/// One change of one object.
#[derive(Clone, Debug)]
pub enum Change {
    /// The bytes are [`noise`], so that a failure prints in a line.
    Write { off: u64, len: usize, seed: u64 },
    /// It becomes a copy of this object.
    Clone { from: u8 },
    /// Any other step.
    Step(Step),
}

/// Places around the borders of blocks and of pieces of the block map, and any.
pub fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0u64..9000,
        2 => (0u64..30).prop_map(|block| block * 4096),
        1 => 250_000u64..270_000,
        1 => Just(262_144u64),
        1 => 0u64..600_000,
    ]
}

pub fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0u64..200,
        3 => Just(4096u64),
        2 => (1u64..20).prop_map(|blocks| blocks * 4096),
        2 => 0u64..20_000,
        1 => 0u64..300_000,
    ]
}

/// Names of xattrs and omap keys: few, so that they meet, and with the bytes at which orders and prefixes go wrong.
pub fn key() -> impl Strategy<Value = Box<[u8]>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..3)
        .prop_map(Vec::into_boxed_slice)
}

/// Values of xattrs and omap keys: short ones, some that do not fit a block, and a few that fit into no group of the log.
fn value() -> impl Strategy<Value = Bytes> {
    let len = prop_oneof![54 => 0usize..40, 6 => 0usize..6000, 1 => 0usize..30_000];
    (any::<u64>(), len).prop_map(|(seed, len)| noise(seed, len).into())
}

fn data_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Touch),
        3 => (place(), length()).prop_map(|(off, len)| Step::Zero { off, len }),
        3 => place().prop_map(|size| Step::Truncate { size }),
        1 => Just(Step::Remove),
        2 => any::<u64>().prop_map(|n| Step::SetMeta {
            version: Eversion::new(1, n),
            user_version: n,
            mtime: UTime { sec: n as u32, nsec: 1 },
        }),
    ]
}

fn attribute_step() -> impl Strategy<Value = Step> {
    use prop::collection::vec;
    prop_oneof![
        3 => (key(), value()).prop_map(|(name, value)| Step::SetXattr { name, value }),
        2 => key().prop_map(|name| Step::RemoveXattr { name }),
        1 => key().prop_map(|prefix| Step::ClearXattrs { prefix }),
        4 => vec((key(), value()), 0..6).prop_map(|entries| Step::SetOmap { entries }),
        1 => value().prop_map(|header| Step::SetOmapHeader { header }),
        2 => vec(key(), 0..4).prop_map(|keys| Step::RemoveOmap { keys }),
        2 => (key(), key()).prop_map(|(from, to)| Step::RemoveOmapRange { from, to }),
        1 => Just(Step::ClearOmap),
    ]
}

pub fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (place(), length(), any::<u64>()).prop_map(|(off, len, seed)| Change::Write { off, len: len as usize, seed }),
        10 => data_step().prop_map(Change::Step),
        10 => attribute_step().prop_map(Change::Step),
    ]
}

/// The same, and clones of one of `objects` objects.
pub fn change_or_clone(objects: u8) -> impl Strategy<Value = Change> {
    prop_oneof![6 => change(), 1 => (0..objects).prop_map(|from| Change::Clone { from })]
}

impl Change {
    /// The same in an object of at most about `bytes`.
    #[must_use]
    pub fn within(self, bytes: u64) -> Change {
        match self {
            Change::Write { off, len, seed } => {
                Change::Write { off: off % bytes, len: len % (bytes as usize / 2), seed }
            }
            Change::Step(Step::Zero { off, len }) => Change::Step(Step::Zero { off: off % bytes, len }),
            Change::Step(Step::Truncate { size }) => Change::Step(Step::Truncate { size: size % bytes }),
            other => other,
        }
    }

    /// The same as a store takes it.
    pub fn to_change(&self, oid: &ObjectId) -> ObjectChange {
        self.with_sources(oid, super::oid)
    }

    /// The same where objects are copied that `source` names.
    pub fn with_sources(&self, oid: &ObjectId, source: impl Fn(u8) -> ObjectId) -> ObjectChange {
        let step = match self {
            Change::Step(step) => step.clone(),
            Change::Clone { from } => Step::CloneFrom { from: source(*from).into() },
            Change::Write { off, len, seed } => {
                // In pieces, as messages arrive.
                let bytes = noise(*seed, *len);
                let (a, b) = bytes.split_at(len / 3);
                let mut data = Payload::new();
                data.push(a.to_vec().into());
                data.push(b.to_vec().into());
                Step::Write { off: *off, data }
            }
        };
        super::only(oid, step)
    }
}
