//! Weights of a CRUSH map that the monitor changes, and devices that go; [`crate::tree`] has the changes of places. Buckets are straw2, the
//! kind that [`crate::build`] makes; one of another kind stays as it is.

use std::collections::BTreeMap;

use carmine_wire::crushmap::{Bucket, BucketKind, ChooseArg, CrushMap};

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

/// The device or bucket of this name.
pub fn item_named(crush: &CrushMap, name: &str) -> Option<i32> {
    crush.item_names.iter().find(|(_, own)| *own == name).map(|(item, _)| *item)
}

/// Edits the place of `item` in every bucket that has it, and then the weights of the buckets above.
fn edit(
    crush: &mut CrushMap,
    item: i32,
    mut change: impl FnMut(&mut Vec<u32>, &mut Vec<i32>, usize),
) -> bool {
    let mut changed = BTreeMap::new();
    for bucket in crush.buckets.iter_mut().flatten() {
        changed.extend(edit_in(bucket, item, &mut change));
    }
    let is_found = !changed.is_empty();
    raise(crush, changed);
    is_found
}

/// Gives buckets these weights where they are items of others, and these the sums, up to the roots.
pub(crate) fn raise(crush: &mut CrushMap, mut changed: BTreeMap<i32, u32>) {
    // No tree is deeper than it has buckets, and one with a cycle ends as well.
    for _ in 0..crush.buckets.len() {
        let mut next = BTreeMap::new();
        for (id, weight) in changed {
            let set = |weights: &mut Vec<u32>, _: &mut Vec<i32>, at: usize| {
                if let Some(slot) = weights.get_mut(at) {
                    *slot = weight;
                }
            };
            next.extend(crush.buckets.iter_mut().flatten().filter_map(|bucket| edit_in(bucket, id, set)));
        }
        if next.is_empty() {
            return;
        }
        changed = next;
    }
}

/// Forgets weight sets of buckets that have another number of items than they were made for.
pub(crate) fn drop_unfit_args(crush: &mut CrushMap) {
    let sizes: Vec<usize> =
        crush.buckets.iter().map(|bucket| bucket.as_ref().map_or(0, |own| own.items.len())).collect();
    let fits = |slot: &u32, arg: &mut ChooseArg| {
        let size = sizes.get(*slot as usize).copied().unwrap_or(0);
        arg.weight_sets.iter().all(|set| set.len() == size) && (arg.ids.is_empty() || arg.ids.len() == size)
    };
    crush.choose_args.values_mut().for_each(|args| args.retain(fits));
}

/// Edits the place of `item` in a bucket; the bucket's id and new weight, if it has the item.
pub(crate) fn edit_in(
    bucket: &mut Bucket,
    item: i32,
    change: impl FnOnce(&mut Vec<u32>, &mut Vec<i32>, usize),
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
