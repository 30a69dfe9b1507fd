//! Changes of a CRUSH map that the monitor makes: another weight of a device, a device that goes. Buckets are straw2, the kind that
//! [`crate::build`] makes; one of another kind stays as it is.

use carmine_wire::crushmap::{Bucket, BucketKind, CrushMap};

/// Gives a device another weight (16.16), and its ancestors theirs. False if no straw2 bucket has it.
pub fn reweight(crush: &mut CrushMap, device: i32, weight: u32) -> bool {
    edit(crush, device, |weights, _, at| {
        if let Some(slot) = weights.get_mut(at) {
            *slot = weight;
        }
    })
}

/// Takes a device out of its bucket, with its name and class. False if no straw2 bucket has it.
pub fn remove_device(crush: &mut CrushMap, device: i32) -> bool {
    crush.item_names.remove(&device);
    crush.item_classes.remove(&device);
    edit(crush, device, |weights, items, at| {
        items.remove(at);
        weights.remove(at);
    })
}

/// Edits the place of `item` in every bucket that has it, and then the weights of the buckets above.
fn edit(
    crush: &mut CrushMap,
    item: i32,
    mut change: impl FnMut(&mut Vec<u32>, &mut Vec<i32>, usize),
) -> bool {
    let mut changed = Vec::new();
    for bucket in crush.buckets.iter_mut().flatten() {
        changed.extend(edit_in(bucket, item, &mut change));
    }
    let is_found = !changed.is_empty();
    // No tree is deeper than it has buckets, and one with a cycle ends as well.
    for _ in 0..crush.buckets.len() {
        let mut next = Vec::new();
        for (id, weight) in changed {
            let set = |weights: &mut Vec<u32>, _: &mut Vec<i32>, at: usize| {
                if let Some(slot) = weights.get_mut(at) {
                    *slot = weight;
                }
            };
            next.extend(crush.buckets.iter_mut().flatten().filter_map(|bucket| edit_in(bucket, id, set)));
        }
        changed = next;
    }
    is_found
}

/// Edits the place of `item` in a bucket; the bucket's id and new weight, if it has the item.
fn edit_in(
    bucket: &mut Bucket,
    item: i32,
    mut change: impl FnMut(&mut Vec<u32>, &mut Vec<i32>, usize),
) -> Option<(i32, u32)> {
    let at = bucket.items.iter().position(|own| *own == item)?;
    let BucketKind::Straw2 { weights } = &mut bucket.kind else { return None };
    if weights.len() != bucket.items.len() {
        return None;
    }
    change(weights, &mut bucket.items, at);
    bucket.weight = weights.iter().fold(0, |sum: u32, weight| sum.saturating_add(*weight));
    Some((bucket.id, bucket.weight))
}

#[cfg(test)]
mod tests {
    use carmine_types::OsdId;

    use super::*;
    use crate::build_simple_crush;

    const ONE: u32 = 0x1_0000;

    fn weights(crush: &CrushMap) -> Vec<u32> {
        crush.buckets.iter().flatten().map(|bucket| bucket.weight).collect()
    }

    #[test]
    fn weights_add_up_after_each_change() {
        let osds: Vec<_> = (0..3).map(|osd| (OsdId(osd), ONE)).collect();
        let mut crush = build_simple_crush(&osds, true);
        assert_eq!(weights(&crush), [3 * ONE, ONE, ONE, ONE]);
        assert!(reweight(&mut crush, 1, ONE / 2));
        assert_eq!(weights(&crush), [2 * ONE + ONE / 2, ONE, ONE / 2, ONE]);
        assert_eq!(crush.bucket(-1).unwrap().item_weight(1), ONE / 2);
        assert!(remove_device(&mut crush, 2));
        assert_eq!(weights(&crush), [ONE + ONE / 2, ONE, ONE / 2, 0]);
        assert!(!reweight(&mut crush, 2, ONE) && !remove_device(&mut crush, 7));
        assert_eq!(crush.item_name(2), None);
        assert_eq!(CrushMap::decode(&crush.encode()), Ok(crush));
    }

    #[test]
    fn a_cycle_of_buckets_ends() {
        let mut crush = build_simple_crush(&[(OsdId(0), ONE)], true);
        if let Some(Some(host)) = crush.buckets.get_mut(1) {
            host.items.push(-1);
            host.kind = BucketKind::Straw2 { weights: vec![ONE, ONE] };
        }
        assert!(reweight(&mut crush, 0, 2 * ONE));
    }
}
