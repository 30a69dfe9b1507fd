//! Changes of a CRUSH map that the monitor makes: another weight of a device, a device that comes or goes. Buckets are straw2, the kind that
//! [`crate::build`] makes; one of another kind stays as it is.

use carmine_wire::crushmap::{Bucket, BucketKind, CrushMap};

use crate::build::TYPE_HOST;

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

/// Puts a device into the host of this name, which is made below the root `root` if there is none. False if the device has a
/// place already, or there is no such root or host of straw2.
pub fn add_device(
    crush: &mut CrushMap,
    (device, name): (i32, &str),
    weight: u32,
    host: &str,
    root: &str,
) -> bool {
    let has_place = crush.buckets.iter().flatten().any(|bucket| bucket.items.contains(&device));
    let Some(root) = item_named(crush, root) else { return false };
    if has_place || device < 0 {
        return false;
    }
    let host = match item_named(crush, host) {
        Some(host) => host,
        None => {
            let id = -1 - crush.buckets.len() as i32;
            let kind = BucketKind::Straw2 { weights: Vec::new() };
            let bucket = Bucket { id, kind_id: TYPE_HOST, hash: 0, weight: 0, items: Vec::new(), kind };
            if !insert(crush, root, id, 0) {
                return false;
            }
            crush.buckets.push(Some(bucket));
            crush.item_names.insert(id, host.to_owned());
            id
        }
    };
    if !insert(crush, host, device, 0) {
        return false;
    }
    crush.item_names.insert(device, name.to_owned());
    crush.max_devices = crush.max_devices.max(device + 1);
    reweight(crush, device, weight)
}

/// Puts an item behind the others of a bucket of straw2.
fn insert(crush: &mut CrushMap, bucket: i32, item: i32, weight: u32) -> bool {
    let found = crush.buckets.iter_mut().flatten().find(|own| own.id == bucket);
    let Some(Bucket { items, kind: BucketKind::Straw2 { weights }, .. }) = found else { return false };
    if weights.len() != items.len() {
        return false;
    }
    items.push(item);
    weights.push(weight);
    true
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
    fn a_device_that_went_comes_back_and_others_join() {
        let osds: Vec<_> = (0..3).map(|osd| (OsdId(osd), ONE)).collect();
        let (whole, mut crush) = (build_simple_crush(&osds, true), build_simple_crush(&osds, true));
        assert!(!add_device(&mut crush, (2, "osd.2"), ONE, "host-2", "default"), "it has its place");
        assert!(remove_device(&mut crush, 2));
        assert!(!add_device(&mut crush, (2, "osd.2"), ONE, "host-2", "elsewhere"));
        assert!(add_device(&mut crush, (2, "osd.2"), ONE, "host-2", "default"));
        assert_eq!(crush, whole);
        assert!(add_device(&mut crush, (3, "osd.3"), ONE, "host-3", "default"));
        let four: Vec<_> = (0..4).map(|osd| (OsdId(osd), ONE)).collect();
        assert_eq!(crush, build_simple_crush(&four, true));
        assert!(add_device(&mut crush, (4, "osd.4"), ONE / 2, "host-0", "default"));
        assert_eq!(weights(&crush)[..2], [4 * ONE + ONE / 2, ONE + ONE / 2]);
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
