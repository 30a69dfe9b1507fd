//! Random changes of an object, around the places where stores go wrong.

use carmine_reactor::Payload;
use carmine_store::TxnOp;
use carmine_types::{Eversion, ObjectId, UTime};
use proptest::prelude::*;

use super::noise;

/// One change of one object.
#[derive(Clone, Debug)]
pub enum Change {
    Touch,
    Write { off: u64, len: usize, seed: u64 },
    Zero { off: u64, len: u64 },
    Truncate { size: u64 },
    Remove,
    SetMeta(u64),
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

pub fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => Just(Change::Touch),
        8 => (place(), length(), any::<u64>()).prop_map(|(off, len, seed)| Change::Write { off, len: len as usize, seed }),
        3 => (place(), length()).prop_map(|(off, len)| Change::Zero { off, len }),
        3 => place().prop_map(|size| Change::Truncate { size }),
        1 => Just(Change::Remove),
        2 => any::<u64>().prop_map(Change::SetMeta),
    ]
}

impl Change {
    /// The same in an object of at most about `bytes`.
    #[must_use]
    pub fn within(self, bytes: u64) -> Change {
        match self {
            Change::Write { off, len, seed } => {
                Change::Write { off: off % bytes, len: len % (bytes as usize / 2), seed }
            }
            Change::Zero { off, len } => Change::Zero { off: off % bytes, len },
            Change::Truncate { size } => Change::Truncate { size: size % bytes },
            other => other,
        }
    }

    /// What it is for a store.
    pub fn op(&self, oid: &ObjectId) -> TxnOp {
        let oid = oid.clone();
        match *self {
            Change::Touch => TxnOp::Touch { oid },
            Change::Write { off, len, seed } => {
                // In pieces, as messages arrive.
                let bytes = noise(seed, len);
                let (a, b) = bytes.split_at(len / 3);
                let mut data = Payload::new();
                data.push(a.to_vec().into());
                data.push(b.to_vec().into());
                TxnOp::Write { oid, off, data, crc: None }
            }
            Change::Zero { off, len } => TxnOp::Zero { oid, off, len },
            Change::Truncate { size } => TxnOp::Truncate { oid, size },
            Change::Remove => TxnOp::Remove { oid },
            Change::SetMeta(n) => TxnOp::SetMeta {
                oid,
                version: Eversion::new(1, n),
                user_version: n,
                mtime: UTime { sec: n as u32, nsec: 1 },
            },
        }
    }
}
