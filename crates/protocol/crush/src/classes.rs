//! Device classes: a word for the kind of drive that a device is, and a shadow tree for each word, which has only its devices. A rule
//! that takes the root of a shadow tree chooses among these alone.

use std::collections::{BTreeMap, BTreeSet};

use carmine_wire::crushmap::{Bucket, BucketKind, CrushMap, RuleStep};

use crate::edit::drop_unfit_args;

/// The number of a class.
pub fn class_of(crush: &CrushMap, name: &str) -> Option<i32> {
    crush.class_names.iter().find(|(_, own)| *own == name).map(|(id, _)| *id)
}

/// The name of the class of a device or a shadow bucket.
pub fn class_name(crush: &CrushMap, item: i32) -> Option<&str> {
    crush.class_names.get(crush.item_classes.get(&item)?).map(String::as_str)
}

/// The shadow of a bucket with the devices of a class.
pub fn shadow_of(crush: &CrushMap, bucket: i32, class: i32) -> Option<i32> {
    crush.class_buckets.get(&bucket)?.get(&class).copied()
}

/// The buckets that are shadows of others.
pub fn shadows(crush: &CrushMap) -> BTreeSet<i32> {
    crush.class_buckets.values().flat_map(|shadows| shadows.values().copied()).collect()
}

/// The rules that choose among the devices of a class: their slots.
pub fn rules_of(crush: &CrushMap, class: i32) -> Vec<i32> {
    let takes = |step: &RuleStep| matches!(step, RuleStep::Take(item) if *item < 0 && crush.item_classes.get(item) == Some(&class));
    let all = (0..).zip(&crush.rules);
    let using = all.filter(|(_, rule)| rule.as_ref().is_some_and(|rule| rule.steps.iter().any(takes)));
    using.map(|(slot, _)| slot).collect()
}

/// The number that the next new class gets.
pub fn next_class(crush: &CrushMap) -> i32 {
    crush.class_names.keys().next_back().map_or(0, |last| last + 1)
}

/// Makes a class, if there is none of this name; its number.
pub fn create_class(crush: &mut CrushMap, name: &str) -> i32 {
    if let Some(known) = class_of(crush, name) {
        return known;
    }
    let id = next_class(crush);
    crush.class_names.insert(id, name.to_owned());
    rebuild_shadows(crush);
    id
}

/// Removes a class, also from its devices. The caller knows that no rule needs it.
pub fn remove_class(crush: &mut CrushMap, class: i32) {
    crush.class_names.remove(&class);
    crush.item_classes.retain(|_, own| *own != class);
    rebuild_shadows(crush);
}

/// Gives a class another name.
pub fn rename_class(crush: &mut CrushMap, class: i32, name: &str) {
    crush.class_names.insert(class, name.to_owned());
    rebuild_shadows(crush);
}

/// Gives devices a class, or none. Classes without devices and rules go, as in Ceph.
pub fn set_class(crush: &mut CrushMap, devices: &[i32], class: Option<&str>) {
    let class = class.map(|name| create_class(crush, name));
    for device in devices {
        match class {
            Some(class) => crush.item_classes.insert(*device, class),
            None => crush.item_classes.remove(device),
        };
    }
    forget_dead_classes(crush);
}

/// Removes classes that no device has and no rule needs.
pub fn forget_dead_classes(crush: &mut CrushMap) {
    let is_used = |class: &i32| {
        let mut devices = crush.item_classes.iter().filter(|(item, _)| **item >= 0);
        devices.any(|(_, own)| own == class) || !rules_of(crush, *class).is_empty()
    };
    let dead: Vec<i32> = crush.class_names.keys().filter(|class| !is_used(class)).copied().collect();
    for class in dead {
        crush.class_names.remove(&class);
    }
    rebuild_shadows(crush);
}

/// Makes the shadow trees those of the classes and buckets as they are now. A shadow that was there keeps its id: rules name it.
pub fn rebuild_shadows(crush: &mut CrushMap) {
    let old = std::mem::take(&mut crush.class_buckets);
    for shadow in old.values().flat_map(|shadows| shadows.values()) {
        crush.item_names.remove(shadow);
        crush.item_classes.remove(shadow);
        if let Some(slot) = slot_of(*shadow).and_then(|slot| crush.buckets.get_mut(slot)) {
            *slot = None;
        }
    }
    let buckets: Vec<i32> = crush.buckets.iter().flatten().map(|bucket| bucket.id).collect();
    for (class, name) in crush.class_names.clone() {
        for bucket in &buckets {
            let known = old.get(bucket).and_then(|shadows| shadows.get(&class)).copied();
            let id = known.unwrap_or_else(|| free_id(crush, &old));
            crush.class_buckets.entry(*bucket).or_default().insert(class, id);
            crush.item_classes.insert(id, class);
            let named = crush.item_names.get(bucket).map_or_else(|| format!("bucket{bucket}"), String::clone);
            crush.item_names.insert(id, format!("{named}~{name}"));
        }
        let weights = weights_of(crush, class, buckets.len());
        for bucket in &buckets {
            fill(crush, *bucket, class, &weights);
        }
    }
    while crush.buckets.last().is_some_and(Option::is_none) {
        crush.buckets.pop();
    }
    drop_unfit_args(crush);
}

fn slot_of(bucket: i32) -> Option<usize> {
    usize::try_from(-1i64 - i64::from(bucket)).ok()
}

/// The first id that no bucket has, nor had.
pub(crate) fn free_id(crush: &CrushMap, old: &BTreeMap<i32, BTreeMap<i32, i32>>) -> i32 {
    let kept: BTreeSet<i32> = old.values().flat_map(|shadows| shadows.values().copied()).collect();
    let given =
        |id: &i32| crush.item_classes.contains_key(id) || crush.bucket(*id).is_some() || kept.contains(id);
    (1..).map(|n: i32| -n).find(|id| !given(id)).unwrap_or(i32::MIN)
}

pub(crate) fn put(crush: &mut CrushMap, bucket: Bucket) {
    let Some(slot) = slot_of(bucket.id) else { return };
    if slot >= crush.buckets.len() {
        crush.buckets.resize(slot + 1, None);
    }
    if let Some(place) = crush.buckets.get_mut(slot) {
        *place = Some(bucket);
    }
}

/// The weight of the devices of a class below each bucket, and that of those devices.
fn weights_of(crush: &CrushMap, class: i32, depth: usize) -> BTreeMap<i32, u32> {
    let shadows = shadows(crush);
    let mut weights = BTreeMap::new();
    // No tree is deeper than it has buckets, and one with a cycle ends as well.
    for _ in 0..=depth {
        let before = weights.clone();
        for bucket in crush.buckets.iter().flatten().filter(|bucket| !shadows.contains(&bucket.id)) {
            let of = |(at, item): (usize, &i32)| own_weight(crush, bucket, at, *item, class, &weights);
            let sum = bucket.items.iter().enumerate().map(of).fold(0, u32::saturating_add);
            weights.insert(bucket.id, sum);
        }
        if weights == before {
            break;
        }
    }
    weights
}

fn own_weight(
    crush: &CrushMap,
    bucket: &Bucket,
    at: usize,
    item: i32,
    class: i32,
    below: &BTreeMap<i32, u32>,
) -> u32 {
    match item {
        0.. if crush.item_classes.get(&item) == Some(&class) => bucket.item_weight(at),
        0.. => 0,
        _ => below.get(&item).copied().unwrap_or(0),
    }
}

/// Gives the shadow of a bucket its items.
fn fill(crush: &mut CrushMap, bucket: i32, class: i32, below: &BTreeMap<i32, u32>) {
    let (Some(shadow), Some(original)) = (shadow_of(crush, bucket, class), crush.bucket(bucket)) else {
        return;
    };
    let (mut items, mut weights) = (Vec::new(), Vec::new());
    for (at, item) in original.items.iter().enumerate() {
        let own = match *item {
            0.. => Some(*item).filter(|item| crush.item_classes.get(item) == Some(&class)),
            item => shadow_of(crush, item, class),
        };
        items.extend(own);
        weights.extend(own.map(|_| own_weight(crush, original, at, *item, class, below)));
    }
    let weight = weights.iter().fold(0, |sum: u32, weight| sum.saturating_add(*weight));
    let (kind_id, hash) = (original.kind_id, original.hash);
    put(crush, Bucket { id: shadow, kind_id, hash, weight, items, kind: BucketKind::Straw2 { weights } });
}

#[cfg(test)]
mod tests {
    use carmine_types::OsdId;

    use super::*;
    use crate::build_simple_crush;

    const ONE: u32 = 0x1_0000;

    fn three() -> CrushMap {
        build_simple_crush(&(0..3).map(|osd| (OsdId(osd), ONE)).collect::<Vec<_>>(), true)
    }

    /// Name, weight and items of each shadow.
    fn shown(crush: &CrushMap) -> Vec<(String, u32, Vec<i32>)> {
        let shadows = shadows(crush).into_iter().rev().filter_map(|id| crush.bucket(id));
        shadows.map(|b| (crush.item_names[&b.id].clone(), b.weight, b.items.clone())).collect()
    }

    #[test]
    fn a_class_has_a_tree_of_its_devices() {
        let (plain, mut crush) = (three(), three());
        set_class(&mut crush, &[0, 2], Some("ssd"));
        let host = |n: u32, weight, items| (format!("host-{n}~ssd"), weight, items);
        let expected = [
            ("default~ssd".to_owned(), 2 * ONE, vec![-6, -7, -8]),
            host(0, ONE, vec![0]),
            host(1, 0, vec![]),
            host(2, ONE, vec![2]),
        ];
        assert_eq!(shown(&crush), expected);
        assert_eq!(CrushMap::decode(&crush.encode()).as_ref(), Ok(&crush));
        assert_eq!(
            (class_name(&crush, 2), class_name(&crush, 1), class_name(&crush, -6)),
            (Some("ssd"), None, Some("ssd"))
        );
        rename_class(&mut crush, 0, "fast");
        assert_eq!(shown(&crush)[0].0, "default~fast");
        set_class(&mut crush, &[0, 2], None);
        assert_eq!(crush, plain);
    }

    #[test]
    fn shadows_keep_their_ids_and_classes_that_a_rule_needs_stay() {
        let mut crush = three();
        set_class(&mut crush, &[0], Some("ssd"));
        let root = shadow_of(&crush, -1, 0).unwrap();
        crush.rules[0].as_mut().unwrap().steps[0] = RuleStep::Take(root);
        set_class(&mut crush, &[1], Some("hdd"));
        assert!(crate::edit::reweight(&mut crush, 0, 3 * ONE));
        set_class(&mut crush, &[2], Some("ssd"));
        assert_eq!(shadow_of(&crush, -1, 0), Some(root));
        assert_eq!(crush.bucket(root).unwrap().weight, 4 * ONE);
        assert_eq!(rules_of(&crush, 0), [0]);
        set_class(&mut crush, &[0, 1, 2], None);
        assert_eq!(crush.class_names, BTreeMap::from([(0, "ssd".to_owned())]));
        assert_eq!(crush.bucket(root).unwrap().weight, 0);
        assert_eq!(create_class(&mut crush, "new"), 1);
        remove_class(&mut crush, 1);
        assert_eq!(crush.class_names.len(), 1);
    }
}
