//! Helpers of this crate's tests.

use std::fmt::Debug;

use carmine_types::ObjectId;
use proptest::prelude::*;

use crate::{Front, Header2};

/// Encodes and decodes, and sees that no proper part of the bytes decodes as well.
pub(crate) fn round_trip<T: Front + PartialEq + Debug>(value: T) {
    let front = value.to_front();
    let header = T::header();
    assert_eq!(T::from_front(&header, &front).as_ref(), Ok(&value));
    for cut in [0, front.len() / 2, front.len().saturating_sub(1)] {
        assert!(cut == front.len() || T::from_front(&header, &front[..cut]).is_err());
    }
}

/// Decodes bytes of any meaning, in all versions.
pub(crate) fn any_bytes<T: Front>(bytes: &[u8]) {
    for version in T::OLDEST..=T::VERSION + 1 {
        let _ = T::from_front(&Header2 { version, ..T::header() }, bytes);
    }
}

pub(crate) fn object() -> impl Strategy<Value = ObjectId> {
    any::<(i64, u32, [Vec<u8>; 3], u64)>().prop_map(|(pool, hash, [nspace, key, name], snap)| ObjectId {
        nspace: nspace.into(),
        key: key.into(),
        name: name.into(),
        snap,
        ..ObjectId::cursor(pool, hash)
    })
}
