//! Changes of the tree: buckets that come, go and move, and the places of items in them. The shadow trees of device classes are none of this:
//! [`crate::classes::rebuild_shadows`] makes them anew from what is left here.
//!
//! An item may be in several buckets ("linked"), but never below itself.

use std::collections::{BTreeMap, BTreeSet};

use carmine_wire::crushmap::{Bucket, BucketKind, CrushMap, RuleStep};

use crate::classes::{free_id, put, shadows};
use crate::edit::{edit_in, item_named, raise};

/// The place of an item: the names of buckets by those of their types.
pub type Location = BTreeMap<String, String>;

/// Most buckets of a map, shadows included.
pub const BUCKETS_MAX: usize = 1 << 14;

/// Why a tree stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// Nothing of the location is a bucket of the type that it names.
    NoPlace,
    /// The item would be below itself.
    Loop,
    /// The bucket has items.
    NotEmpty,
    /// A rule takes the bucket.
    InUse,
    /// One of the buckets is of an older kind than straw2: it stays as it is.
    NotStraw2,
    /// There are [`BUCKETS_MAX`].
    TooMany,
}

/// The number of a type of buckets, or of devices: 0.
pub fn type_named(crush: &CrushMap, name: &str) -> Option<i32> {
    crush.type_names.iter().find(|(_, own)| *own == name).map(|(number, _)| *number)
}

/// Makes an empty bucket that is below nothing.
///
/// # Errors
/// If there are too many.
pub fn add_bucket(crush: &mut CrushMap, name: &str, kind_id: u16) -> Result<i32, TreeError> {
    let id = free_id(crush, &BTreeMap::new());
    if id < -(BUCKETS_MAX as i32) {
        return Err(TreeError::TooMany);
    }
    let kind = BucketKind::Straw2 { weights: Vec::new() };
    put(crush, Bucket { id, kind_id, hash: 0, weight: 0, items: Vec::new(), kind });
    crush.item_names.insert(id, name.to_owned());
    Ok(id)
}

/// Whether an item is in the lowest bucket that a location names, as far as Ceph looks.
pub fn is_at(crush: &CrushMap, item: i32, at: &Location) -> bool {
    let lowest = places(crush, at).into_iter().next();
    let bucket = lowest.and_then(|(_, name)| crush.bucket(item_named(crush, &name)?));
    bucket.is_some_and(|bucket| bucket.items.contains(&item))
}

/// The buckets that a location names, the lowest types first.
fn places(crush: &CrushMap, at: &Location) -> Vec<(u16, String)> {
    let named = crush.type_names.iter().filter(|(kind, _)| **kind > 0);
    let found = named.filter_map(|(kind, name)| Some((u16::try_from(*kind).ok()?, at.get(name)?.clone())));
    found.collect()
}

/// Puts an item of this weight into the lowest bucket of a location. Buckets that there are not are made, up to the first that there is.
///
/// # Errors
/// If there is no such place.
pub fn insert(crush: &mut CrushMap, item: i32, weight: u32, at: &Location) -> Result<(), TreeError> {
    let mut below = item;
    for (kind, name) in places(crush, at) {
        let known = item_named(crush, &name);
        let bucket = match known {
            Some(known) if crush.bucket(known).is_none_or(|bucket| bucket.kind_id != kind) => {
                return Err(TreeError::NoPlace);
            }
            Some(known) => known,
            None => add_bucket(crush, &name, kind)?,
        };
        if is_below(crush, bucket, item) {
            return Err(TreeError::Loop);
        }
        append(crush, bucket, below, weight)?;
        below = bucket;
        if known.is_some() {
            return Ok(());
        }
    }
    if below == item { Err(TreeError::NoPlace) } else { Ok(()) }
}

/// Moves an item from wherever it is, with its weight.
///
/// # Errors
/// If there is no such place: then the map is half changed.
pub fn move_to(crush: &mut CrushMap, item: i32, at: &Location) -> Result<(), TreeError> {
    let weight = weight_of(crush, item);
    detach(crush, item, None)?;
    insert(crush, item, weight, at)
}

/// The weight of an item where it is, or of a bucket by itself.
pub fn weight_of(crush: &CrushMap, item: i32) -> u32 {
    let in_bucket =
        |bucket: &Bucket| Some(bucket.item_weight(bucket.items.iter().position(|own| *own == item)?));
    match crush.bucket(item) {
        Some(bucket) => bucket.weight,
        None => crush.buckets.iter().flatten().find_map(in_bucket).unwrap_or(0),
    }
}

/// Takes an item out of all buckets, or of those at and below `under`; whether it was in any.
///
/// # Errors
/// If a bucket cannot be changed.
pub fn detach(crush: &mut CrushMap, item: i32, under: Option<i32>) -> Result<bool, TreeError> {
    let parents: Vec<i32> = parents(crush, item)
        .into_iter()
        .filter(|parent| under.is_none_or(|under| is_below(crush, *parent, under)))
        .collect();
    for parent in &parents {
        change(crush, *parent, item, |weights, items, at| {
            items.remove(at);
            weights.remove(at);
        })?;
    }
    Ok(!parents.is_empty())
}

/// The buckets that have an item, shadows left out.
pub fn parents(crush: &CrushMap, item: i32) -> Vec<i32> {
    let shadows = shadows(crush);
    let all = crush.buckets.iter().flatten().filter(|bucket| !shadows.contains(&bucket.id));
    all.filter(|bucket| bucket.items.contains(&item)).map(|bucket| bucket.id).collect()
}

/// Removes a bucket that is empty and that no rule takes.
///
/// # Errors
/// If it is not so.
pub fn remove_bucket(crush: &mut CrushMap, bucket: i32) -> Result<(), TreeError> {
    check_unused(crush, bucket)?;
    if crush.bucket(bucket).is_some_and(|bucket| !bucket.items.is_empty()) {
        return Err(TreeError::NotEmpty);
    }
    detach(crush, bucket, None)?;
    crush.item_names.remove(&bucket);
    if let Some(place) =
        crush.buckets.iter_mut().find(|place| place.as_ref().is_some_and(|own| own.id == bucket))
    {
        *place = None;
    }
    Ok(())
}

/// A bucket that a rule takes, itself or a shadow of it, has to stay.
///
/// # Errors
/// If a rule takes it.
pub fn check_unused(crush: &CrushMap, bucket: i32) -> Result<(), TreeError> {
    let is_shadow = |item: &i32| {
        crush.class_buckets.get(&bucket).is_some_and(|shadows| shadows.values().any(|shadow| shadow == item))
    };
    let takes = |step: &RuleStep| matches!(step, RuleStep::Take(item) if *item == bucket || is_shadow(item));
    let is_taken = crush.rules.iter().flatten().any(|rule| rule.steps.iter().any(takes));
    if is_taken { Err(TreeError::InUse) } else { Ok(()) }
}

/// Gives all devices at and below a bucket this weight.
///
/// # Errors
/// If a bucket cannot be changed.
pub fn reweight_below(crush: &mut CrushMap, bucket: i32, weight: u32) -> Result<(), TreeError> {
    for id in below(crush, bucket) {
        let items = crush.bucket(id).map(|own| own.items.clone()).unwrap_or_default();
        for device in items.into_iter().filter(|item| *item >= 0) {
            set_weight(crush, id, device, weight)?;
        }
    }
    Ok(())
}

/// Makes every bucket weigh as much as its items, from the devices up.
///
/// # Errors
/// If a bucket cannot be changed.
pub fn reweight_all(crush: &mut CrushMap) -> Result<(), TreeError> {
    let all: Vec<(i32, i32, u32)> = crush
        .buckets
        .iter()
        .flatten()
        .flat_map(|bucket| {
            bucket.items.iter().enumerate().map(|(at, item)| (bucket.id, *item, bucket.item_weight(at)))
        })
        .filter(|(_, item, _)| *item >= 0)
        .collect();
    all.into_iter().try_for_each(|(bucket, device, weight)| set_weight(crush, bucket, device, weight))
}

/// Makes buckets of the kind straw straw2, with the same weights.
pub fn straw_to_straw2(crush: &mut CrushMap) {
    for bucket in crush.buckets.iter_mut().flatten() {
        if let BucketKind::Straw { weights, .. } = &mut bucket.kind {
            bucket.kind = BucketKind::Straw2 { weights: std::mem::take(weights) };
        }
    }
}

/// Lets two buckets change places and names: each has the other's items then. False if one is below the other.
///
/// # Errors
/// If a bucket above cannot be changed.
pub fn swap(crush: &mut CrushMap, one: i32, other: i32) -> Result<bool, TreeError> {
    if is_below(crush, one, other) || is_below(crush, other, one) {
        return Ok(false);
    }
    let (Some(first), Some(second)) = (crush.bucket(one).cloned(), crush.bucket(other).cloned()) else {
        return Ok(false);
    };
    let swapped = |own: &Bucket, new: &Bucket| Bucket { id: own.id, kind_id: own.kind_id, ..new.clone() };
    put(crush, swapped(&first, &second));
    put(crush, swapped(&second, &first));
    let names = (crush.item_names.remove(&one), crush.item_names.remove(&other));
    crush.item_names.extend(names.0.map(|name| (other, name)));
    crush.item_names.extend(names.1.map(|name| (one, name)));
    raise(crush, BTreeMap::from([(one, second.weight), (other, first.weight)]));
    Ok(true)
}

/// Whether `item` is `top`, or below it.
pub fn is_below(crush: &CrushMap, item: i32, top: i32) -> bool {
    item == top
        || below(crush, top)
            .iter()
            .any(|id| *id == item || crush.bucket(*id).is_some_and(|b| b.items.contains(&item)))
}

/// A bucket and all below it, each once.
fn below(crush: &CrushMap, top: i32) -> BTreeSet<i32> {
    let (mut found, mut next) = (BTreeSet::new(), vec![top]);
    while let Some(id) = next.pop() {
        if let Some(bucket) = crush.bucket(id).filter(|_| found.insert(id)) {
            next.extend(bucket.items.iter().filter(|item| **item < 0));
        }
    }
    found
}

/// Puts an item behind the others of a bucket, and weighs what is above.
fn append(crush: &mut CrushMap, bucket: i32, item: i32, weight: u32) -> Result<(), TreeError> {
    let found = crush.buckets.iter_mut().flatten().find(|own| own.id == bucket);
    let Some(Bucket { items, kind: BucketKind::Straw2 { weights }, .. }) = found else {
        return Err(TreeError::NotStraw2);
    };
    if !items.contains(&item) {
        items.push(item);
        weights.push(weight);
    }
    set_weight(crush, bucket, item, weight)
}

fn set_weight(crush: &mut CrushMap, bucket: i32, item: i32, weight: u32) -> Result<(), TreeError> {
    change(crush, bucket, item, |weights, _, at| {
        if let Some(slot) = weights.get_mut(at) {
            *slot = weight;
        }
    })
}

/// Changes the place of an item in one bucket, and weighs what is above.
fn change(
    crush: &mut CrushMap,
    bucket: i32,
    item: i32,
    change: impl FnOnce(&mut Vec<u32>, &mut Vec<i32>, usize),
) -> Result<(), TreeError> {
    let found = crush.buckets.iter_mut().flatten().find(|own| own.id == bucket);
    let (id, weight) = found.and_then(|own| edit_in(own, item, change)).ok_or(TreeError::NotStraw2)?;
    raise(crush, BTreeMap::from([(id, weight)]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use carmine_types::OsdId;
    use proptest::prelude::*;

    use super::*;
    use crate::build_simple_crush;
    use crate::check::check;
    use crate::classes::{rebuild_shadows, set_class};

    const ONE: u32 = 0x1_0000;

    fn three() -> CrushMap {
        build_simple_crush(&(0..3).map(|osd| (OsdId(osd), ONE)).collect::<Vec<_>>(), true)
    }

    fn at(place: &[(&str, &str)]) -> Location {
        place.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect()
    }

    fn named<'a>(crush: &'a CrushMap, name: &str) -> &'a Bucket {
        crush.bucket(item_named(crush, name).unwrap()).unwrap()
    }

    #[test]
    fn a_bucket_moves_with_what_is_below_it() {
        let mut crush = three();
        let rack = add_bucket(&mut crush, "r1", 3).unwrap();
        assert_eq!(move_to(&mut crush, rack, &at(&[("root", "default")])), Ok(()));
        assert_eq!(move_to(&mut crush, -2, &at(&[("rack", "r1")])), Ok(()));
        assert_eq!((named(&crush, "r1").items.clone(), named(&crush, "r1").weight), (vec![-2], ONE));
        assert_eq!(
            (named(&crush, "default").items.clone(), named(&crush, "default").weight),
            (vec![-3, -4, rack], 3 * ONE)
        );
        assert!(is_at(&crush, -2, &at(&[("rack", "r1"), ("root", "elsewhere")])));
        assert!(!is_at(&crush, -2, &at(&[("root", "default")])) && !is_at(&crush, -2, &at(&[])));
        assert_eq!(move_to(&mut crush.clone(), -1, &at(&[("rack", "r1")])), Err(TreeError::Loop));
        assert_eq!(move_to(&mut crush.clone(), rack, &at(&[("rack", "r1")])), Err(TreeError::Loop));
        assert_eq!(move_to(&mut crush.clone(), rack, &at(&[("nosuch", "r1")])), Err(TreeError::NoPlace));
        assert_eq!(move_to(&mut crush.clone(), rack, &at(&[("host", "default")])), Err(TreeError::NoPlace));
        assert_eq!(check(&crush), Ok(()));
    }

    #[test]
    fn buckets_on_the_way_are_made_up_to_the_first_that_there_is() {
        let mut crush = three();
        move_to(&mut crush, 0, &at(&[("host", "new"), ("rack", "r"), ("root", "default"), ("region", "x")]))
            .unwrap();
        assert_eq!(named(&crush, "new").items, [0]);
        let region = item_named(&crush, "x").unwrap();
        assert_eq!((named(&crush, "x").weight, named(&crush, "default").items.last()), (ONE, Some(&region)));
        assert_eq!(named(&crush, "host-0").weight, 0);
        assert_eq!(check(&crush), Ok(()));
    }

    #[test]
    fn links_and_weights_of_linked_items() {
        let mut crush = three();
        let root = add_bucket(&mut crush, "second", 11).unwrap();
        insert(&mut crush, -2, ONE, &at(&[("root", "second")])).unwrap();
        assert_eq!(parents(&crush, -2), [-1, root]);
        reweight_below(&mut crush, root, 2 * ONE).unwrap();
        assert_eq!((named(&crush, "default").weight, named(&crush, "second").weight), (4 * ONE, 2 * ONE));
        assert_eq!(detach(&mut crush, -2, Some(root)), Ok(true));
        assert_eq!(detach(&mut crush, -2, Some(root)), Ok(false));
        assert_eq!((parents(&crush, -2), named(&crush, "second").weight), (vec![-1], 0));
        assert_eq!(remove_bucket(&mut crush, -1), Err(TreeError::InUse));
        assert_eq!(remove_bucket(&mut crush, -2), Err(TreeError::NotEmpty));
        assert_eq!(remove_bucket(&mut crush, root), Ok(()));
        assert_eq!((crush.bucket(root), item_named(&crush, "second")), (None, None));
    }

    #[test]
    fn a_shadow_that_a_rule_takes_keeps_its_bucket() {
        let mut crush = three();
        set_class(&mut crush, &[0], Some("ssd"));
        let shadow = crate::classes::shadow_of(&crush, -1, 0).unwrap();
        crush.rules[0].as_mut().unwrap().steps[0] = RuleStep::Take(shadow);
        assert_eq!(check_unused(&crush, -1), Err(TreeError::InUse));
        assert_eq!(check_unused(&crush, -2), Ok(()));
    }

    #[test]
    fn swapped_buckets_have_each_other_s_items_and_names() {
        let mut crush = three();
        let rack = add_bucket(&mut crush, "new", 1).unwrap();
        insert(&mut crush, 2, 3 * ONE, &at(&[("host", "new")])).unwrap();
        assert_eq!(swap(&mut crush, rack, -2), Ok(true));
        assert_eq!((item_named(&crush, "new"), item_named(&crush, "host-0")), (Some(-2), Some(rack)));
        assert_eq!(
            (crush.bucket(-2).unwrap().items.clone(), named(&crush, "default").weight),
            (vec![2], 5 * ONE)
        );
        assert_eq!(swap(&mut crush, -1, -2), Ok(false));
    }

    #[test]
    fn older_kinds_of_buckets_stay_as_they_are() {
        let mut crush = three();
        crush.buckets[1].as_mut().unwrap().kind = BucketKind::Uniform { item_weight: ONE };
        assert_eq!(move_to(&mut crush.clone(), 0, &at(&[("host", "host-1")])), Err(TreeError::NotStraw2));
        assert_eq!(move_to(&mut crush, 1, &at(&[("host", "host-0")])), Err(TreeError::NotStraw2));
    }

    proptest! {
        /// Whatever is moved, linked, removed and weighed, the map stays one that can be in force, and weights add up.
        #[test]
        fn no_row_of_changes_makes_a_bad_map(steps in prop::collection::vec((0u8..7, -9i32..3, 0usize..6, 1u32..5), 1..30)) {
            let kinds = [("host", "host-1"), ("rack", "r0"), ("row", "w0"), ("root", "default"), ("root", "other"), ("rack", "r1")];
            let mut crush = three();
            set_class(&mut crush, &[0, 2], Some("ssd"));
            for (what, item, place, weight) in steps {
                let mut next = crush.clone();
                let item = if shadows(&next).contains(&item) { -1 } else { item };
                let (place, exists) = (at(&[kinds[place]]), item >= 0 || next.bucket(item).is_some());
                let done = match what {
                    0 | 1 if exists => move_to(&mut next, item, &place),
                    2 if exists => { let weight = weight_of(&next, item); insert(&mut next, item, weight, &place) }
                    3 if exists && item < 0 => remove_bucket(&mut next, item),
                    4 => reweight_below(&mut next, item, weight * ONE),
                    5 => detach(&mut next, item, None).map(drop),
                    _ => reweight_all(&mut next),
                };
                if done.is_ok() {
                    rebuild_shadows(&mut next);
                    crush = next;
                    prop_assert_eq!(check(&crush), Ok(()));
                    for bucket in crush.buckets.iter().flatten() {
                        let sum: u32 = (0..bucket.items.len()).map(|at| bucket.item_weight(at)).sum();
                        prop_assert_eq!(bucket.weight, sum);
                        for (at, item) in bucket.items.iter().enumerate() {
                            let own = crush.bucket(*item).map_or(bucket.item_weight(at), |own| own.weight);
                            prop_assert_eq!(bucket.item_weight(at), own);
                        }
                    }
                }
            }
            prop_assert_eq!(CrushMap::decode(&crush.encode()), Ok(crush));
        }
    }
}
