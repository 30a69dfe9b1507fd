//! Sets of snapshot ids: `interval_set` of Ceph.

/// Half-open ranges of snapshot ids as `(start, length)`, ascending: Ceph's `interval_set`.
pub type IntervalSet = Vec<(u64, u64)>;

/// Whether `set`, ascending and without overlaps, has this id. It takes a binary search.
pub fn contains(set: &IntervalSet, id: u64) -> bool {
    let at = set.partition_point(|(start, _)| *start <= id);
    at.checked_sub(1).and_then(|at| set.get(at)).is_some_and(|(start, len)| id - start < *len)
}

/// The ids that are in both.
pub fn intersection(a: &IntervalSet, b: &IntervalSet) -> IntervalSet {
    subtract(a, &subtract(a, b))
}

/// Both sets' ranges, merged where they touch; the ends are at most `u64::MAX`.
pub fn union(a: &IntervalSet, b: &IntervalSet) -> IntervalSet {
    let cut = |(start, len): &(u64, u64)| (*start, (*len).min(u64::MAX - start));
    let mut all: Vec<(u64, u64)> = a.iter().chain(b).map(cut).filter(|(_, len)| *len > 0).collect();
    all.sort_unstable();
    let mut merged: IntervalSet = Vec::with_capacity(all.len());
    for (start, len) in all {
        match merged.last_mut() {
            Some((s, l)) if *s + *l >= start => *l = (*l).max(start + len - *s),
            _ => merged.push((start, len)),
        }
    }
    merged
}

/// The part of `a` that is not in `b`.
pub fn subtract(a: &IntervalSet, b: &IntervalSet) -> IntervalSet {
    let (a, b) = (union(a, &Vec::new()), union(b, &Vec::new()));
    let mut left = Vec::with_capacity(a.len());
    let mut holes = b.iter().map(|(start, len)| (*start, start + len)).peekable();
    for (start, len) in a {
        let (mut at, end) = (start, start + len);
        while let Some(&(hole, hole_end)) = holes.peek() {
            if hole >= end {
                break;
            }
            if hole > at {
                left.push((at, hole - at));
            }
            at = at.max(hole_end);
            if hole_end > end {
                // It may reach into the next range.
                break;
            }
            holes.next();
        }
        if at < end {
            left.push((at, end - at));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_its_range_only() {
        let set = vec![(1, 2), (10, 1), (u64::MAX, 1)];
        let found: Vec<u64> = (0..20).filter(|id| contains(&set, *id)).collect();
        assert_eq!(found, [1, 2, 10]);
        assert!(contains(&set, u64::MAX) && !contains(&set, u64::MAX - 1) && !contains(&vec![], 0));
        assert_eq!(intersection(&vec![(1, 10)], &vec![(3, 2), (8, 9)]), vec![(3, 2), (8, 3)]);
        assert_eq!(intersection(&vec![(1, 10)], &vec![]), vec![]);
    }

    #[test]
    fn interval_sets() {
        assert_eq!(union(&vec![(1, 2), (10, 1)], &vec![(3, 1), (11, 4)]), vec![(1, 3), (10, 5)]);
        assert_eq!(subtract(&vec![(1, 10)], &vec![(3, 2), (8, 9)]), vec![(1, 2), (5, 3)]);
        assert_eq!(subtract(&vec![(1, 2)], &vec![(1, 2)]), vec![]);
        assert_eq!(union(&vec![(u64::MAX, 9), (u64::MAX - 1, 9)], &vec![]), vec![(u64::MAX - 1, 1)]);
        assert_eq!(subtract(&vec![(0, 4), (6, 4)], &vec![(2, 5), (9, 1)]), vec![(0, 2), (7, 2)]);
    }

    #[test]
    fn subtraction_of_many() {
        let odd: IntervalSet = (0..2000).map(|i| (4 * i, 2)).collect();
        let other: IntervalSet = (0..2000).map(|i| (4 * i + 1, 2)).collect();
        assert_eq!(subtract(&odd, &other).len(), 2000);
    }
}
