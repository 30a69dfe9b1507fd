//! [`Extents`]: ranges of an object's bytes.

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, Result};

/// Ranges of bytes that neither overlap nor touch, ascending (interval_set).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<(u64, u64)>);

impl Extents {
    /// One range; empty if `len` is 0. Clamped to the largest offset.
    #[must_use]
    pub fn from_range(off: u64, len: u64) -> Extents {
        let len = len.min(u64::MAX - off);
        Extents(if len == 0 { Vec::new() } else { vec![(off, len)] })
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Offsets and lengths, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Bytes in all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.iter().map(|(_, len)| len).sum()
    }

    /// Adds a range.
    pub fn insert(&mut self, off: u64, len: u64) {
        let Some((mut begin, mut end)) =
            Extents::from_range(off, len).iter().next().map(|(off, len)| (off, off + len))
        else {
            return;
        };
        // Ranges that overlap or touch the new one are merged with it.
        let first = self.0.partition_point(|(off, len)| off + len < begin);
        let behind = self.0.partition_point(|(off, _)| *off <= end);
        if let Some(joined) = self.0.get(first..behind).filter(|joined| !joined.is_empty()) {
            begin = begin.min(joined[0].0);
            end = joined.last().map_or(end, |(off, len)| end.max(off + len));
        }
        self.0.splice(first..behind, [(begin, end - begin)]);
    }

    /// Removes a range.
    pub fn remove(&mut self, off: u64, len: u64) {
        let end = off.saturating_add(len);
        let first = self.0.partition_point(|(begin, len)| begin + len <= off);
        let behind = self.0.partition_point(|(begin, _)| *begin < end);
        let Some(cut) = self.0.get(first..behind).filter(|cut| !cut.is_empty() && len > 0) else { return };
        let (left, right) = (cut[0], cut[cut.len() - 1]);
        let before = (left.0 < off).then(|| (left.0, off - left.0));
        let after = (right.0 + right.1 > end).then(|| (end, right.0 + right.1 - end));
        self.0.splice(first..behind, before.into_iter().chain(after));
    }

    /// The intersection of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Extents) -> Extents {
        let (mut all, mut a, mut b) = (Vec::new(), 0, 0);
        while let (Some(x), Some(y)) = (self.0.get(a), other.0.get(b)) {
            let (begin, end) = (x.0.max(y.0), (x.0 + x.1).min(y.0 + y.1));
            if begin < end {
                all.push((begin, end - begin));
            }
            if x.0 + x.1 <= y.0 + y.1 { a += 1 } else { b += 1 }
        }
        Extents(all)
    }

    /// Removes all ranges of `other`.
    pub fn subtract(&mut self, other: &Extents) {
        other.iter().for_each(|(off, len)| self.remove(off, len));
    }

    /// Adds all ranges of `other`.
    pub fn extend(&mut self, other: &Extents) {
        other.iter().for_each(|(off, len)| self.insert(off, len));
    }
}

impl Coded for Extents {
    const BYTES_MIN: usize = 4;

    fn put(&self, e: &mut Encoder<'_>) {
        self.0.put(e);
    }

    fn get(d: &mut Decoder<'_>) -> Result<Extents> {
        let ranges = <Vec<(u64, u64)>>::get(d)?;
        let mut from = Some(0);
        for (off, len) in &ranges {
            let is_next = from.is_some_and(|from| *off >= from) && *len > 0;
            // Touching ranges are refused, too: they would have been one.
            from = off.checked_add(*len).and_then(|end| end.checked_add(1));
            if !is_next || off.checked_add(*len).is_none() {
                return Err(DecodeError::BadValue { what: "range of bytes", value: *off });
            }
        }
        Ok(Extents(ranges))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(ranges: &Extents) -> Vec<bool> {
        let mut all = vec![false; 64];
        ranges.iter().for_each(|(off, len)| all[off as usize..(off + len) as usize].fill(true));
        all
    }

    fn some() -> impl Strategy<Value = Extents> {
        prop::collection::vec((0..40u64, 0..12u64), 0..8).prop_map(|ranges| {
            let mut all = Extents::default();
            ranges.into_iter().for_each(|(off, len)| all.insert(off, len));
            all
        })
    }

    proptest! {
        #[test]
        fn ranges_are_sets_of_bytes(a in some(), b in some(), off in 0..40u64, len in 0..12u64) {
            let apart = |ranges: &Extents| ranges.0.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0);
            let merge = |with: fn(bool, bool) -> bool, b: &Extents| -> Vec<bool> {
                filled(&a).into_iter().zip(filled(b)).map(|(a, b)| with(a, b)).collect()
            };
            let range = Extents::from_range(off, len);
            let mut more = a.clone();
            more.insert(off, len);
            prop_assert_eq!(filled(&more), merge(|a, b| a || b, &range));
            let mut less = a.clone();
            less.remove(off, len);
            prop_assert_eq!(filled(&less), merge(|a, b| a && !b, &range));
            let both = a.intersection(&b);
            prop_assert_eq!(filled(&both), merge(|a, b| a && b, &b));
            for ranges in [more, less, both] {
                prop_assert!(apart(&ranges), "{:?}", ranges);
                let coded = Encoder::collect(|e| e.put(&ranges));
                prop_assert_eq!(Decoder::all(&coded, "ranges", |d| d.get::<Extents>()), Ok(ranges));
            }
        }
    }

    #[test]
    fn odd_ranges_are_refused() {
        for ranges in [vec![(4u64, 0u64)], vec![(4, 4), (8, 1)], vec![(4, 4), (2, 1)], vec![(u64::MAX, 1)]] {
            let coded = Encoder::collect(|e| e.put(&ranges));
            assert!(Decoder::all(&coded, "ranges", |d| d.get::<Extents>()).is_err(), "{ranges:?}");
        }
        assert_eq!(Extents::from_range(u64::MAX - 1, 9).iter().collect::<Vec<_>>(), [(u64::MAX - 1, 1)]);
    }
}
