//! Comparisons that guard the rest of a request.

use std::cmp::Ordering;

use crate::error::{OpError, refuse_if};
use carmine_reactor::Payload;
use carmine_types::errno;
use carmine_wire::osd_op::{Xattr, flags::compare};

/// Whether the comparison holds for values that relate like this.
fn holds(cmp_op: u8, given_to_stored: Ordering) -> Result<bool, OpError> {
    Ok(match cmp_op {
        compare::EQ => given_to_stored == Ordering::Equal,
        compare::NE => given_to_stored != Ordering::Equal,
        compare::GT => given_to_stored == Ordering::Greater,
        compare::GTE => given_to_stored != Ordering::Less,
        compare::LT => given_to_stored == Ordering::Less,
        compare::LTE => given_to_stored != Ordering::Greater,
        _ => return Err(OpError::new(errno::EINVAL)),
    })
}

/// CMP_XATTR: numbers are stored as decimal text; a missing attribute counts as empty, or 0.
pub(in crate::pg) fn xattr(how: &Xattr, given: &[u8], stored: &[u8]) -> Result<(), OpError> {
    let order = match how.cmp_mode {
        compare::MODE_STRING => given.cmp(stored),
        compare::MODE_U64 => {
            let given = given
                .first_chunk()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .ok_or(OpError::new(errno::EINVAL))?;
            given.cmp(&number(stored))
        }
        _ => return Err(OpError::new(errno::EINVAL)),
    };
    refuse_if(!holds(how.cmp_op, order)?, errno::ECANCELED)
}

/// The number given by the leading decimal digits.
fn number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |n: u64, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

/// The comparison of an OMAP_CMP: Ceph knows only three of them.
pub(in crate::pg) fn omap_op(cmp_op: i32) -> Result<u8, OpError> {
    let known = u8::try_from(cmp_op).ok().filter(|op| [compare::EQ, compare::LT, compare::GT].contains(op));
    known.ok_or(OpError::new(errno::EINVAL))
}

/// One value of OMAP_CMP, which compares the stored one with the given one.
pub(in crate::pg) fn omap(cmp_op: u8, given: &[u8], stored: &[u8]) -> Result<(), OpError> {
    refuse_if(!holds(cmp_op, stored.cmp(given))?, errno::ECANCELED)
}

/// CMPEXT: bytes beyond the end of the object are zeros. The errno gives the offset of the first difference.
pub(in crate::pg) fn extent(given: &Payload, stored: &Payload) -> Result<(), OpError> {
    /// The highest errno: offsets of differences are added to it.
    const ERRNO_MAX: i32 = 4095;
    match difference(given, stored) {
        None => Ok(()),
        Some(at) => Err(OpError::new(-ERRNO_MAX - i32::try_from(at).unwrap_or(i32::MAX - ERRNO_MAX))),
    }
}

/// The first byte that differs, without a copy of either: they may be long.
fn difference(given: &Payload, stored: &Payload) -> Option<usize> {
    let mut begin = 0;
    for chunk in given {
        let mut rest = chunk.as_slice();
        for piece in &stored.slice(begin, chunk.len()) {
            let (mine, behind) = rest.split_at_checked(piece.len())?;
            if mine != piece.as_slice() {
                let same = mine.iter().zip(piece.iter()).take_while(|(mine, stored)| mine == stored).count();
                return Some(begin + chunk.len() - rest.len() + same);
            }
            rest = behind;
        }
        if let Some(at) = rest.iter().position(|byte| *byte != 0) {
            return Some(begin + chunk.len() - rest.len() + at);
        }
        begin += chunk.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cmp(cmp_op: u8, cmp_mode: u8, given: &[u8], stored: &[u8]) -> Result<(), OpError> {
        xattr(&Xattr { cmp_op, cmp_mode, ..Xattr::default() }, given, stored)
    }

    #[test]
    fn the_given_value_is_on_the_left() {
        assert_eq!(cmp(compare::GT, compare::MODE_STRING, b"b", b"a"), Ok(()));
        assert_eq!(cmp(compare::GT, compare::MODE_STRING, b"a", b"a"), Err(OpError::new(errno::ECANCELED)));
        assert_eq!(cmp(compare::LTE, compare::MODE_STRING, b"a", b"a"), Ok(()));
        assert_eq!(cmp(compare::LT, compare::MODE_U64, &9u64.to_le_bytes(), b"10"), Ok(()));
        assert_eq!(
            cmp(compare::NE, compare::MODE_U64, &0u64.to_le_bytes(), b""),
            Err(OpError::new(errno::ECANCELED))
        );
        assert_eq!(cmp(compare::EQ, compare::MODE_U64, b"short", b""), Err(OpError::new(errno::EINVAL)));
        assert_eq!(cmp(0, compare::MODE_STRING, b"", b""), Err(OpError::new(errno::EINVAL)));
        assert_eq!(cmp(compare::EQ, 9, b"", b""), Err(OpError::new(errno::EINVAL)));
    }

    #[test]
    fn omap_values_are_on_the_right() {
        assert_eq!(omap(compare::GT, b"a", b"b"), Ok(()));
        assert_eq!(omap(compare::EQ, b"a", b"b"), Err(OpError::new(errno::ECANCELED)));
        assert_eq!(omap_op(compare::LT.into()), Ok(compare::LT));
        for unknown in [-1, compare::NE.into(), compare::GTE.into(), compare::LTE.into(), 257] {
            assert_eq!(omap_op(unknown), Err(OpError::new(errno::EINVAL)), "{unknown}");
        }
    }

    #[test]
    fn the_first_difference_is_told() {
        let extent = |given: &[u8], stored: &[u8]| extent(&payload(given, 99), &payload(stored, 99));
        assert_eq!(extent(b"abc", b"abcd"), Ok(()));
        assert_eq!(extent(b"abc", b"abd"), Err(OpError::new(-4097)));
        assert_eq!(extent(b"ab\0", b"ab"), Ok(()));
        assert_eq!(extent(b"x", b""), Err(OpError::new(-4095)));
    }

    /// In chunks of so many bytes.
    fn payload(bytes: &[u8], chunk: usize) -> Payload {
        let mut payload = Payload::new();
        bytes.chunks(chunk).for_each(|chunk| payload.push(chunk.to_vec().into()));
        payload
    }

    proptest! {
        #[test]
        fn chunks_make_no_difference(
            given in prop::collection::vec(0u8..2, 0..20),
            stored in prop::collection::vec(0u8..2, 0..20),
            chunks in (1usize..6, 1usize..6),
        ) {
            let zeros = stored.iter().chain(std::iter::repeat(&0));
            let first = given.iter().zip(zeros).position(|(given, stored)| given != stored);
            prop_assert_eq!(difference(&payload(&given, chunks.0), &payload(&stored, chunks.1)), first);
        }
    }
}
