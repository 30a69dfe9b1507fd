//! Whether a CRUSH map that somebody made elsewhere can be a cluster's: the decoder takes any tree, and mapping copes with it, but a map
//! in force has a name for all that it has, no loops, and a size that the monitor can work with.

use std::collections::{BTreeMap, BTreeSet};

use carmine_wire::crushmap::{Bucket, BucketKind, CrushMap, Rule, RuleStep};

use crate::tree::BUCKETS_MAX;

/// Most items of all buckets together.
const ITEMS_MAX: usize = 1 << 17;
/// Most buckets between a root and a device: there are a dozen types.
const DEPTH_MAX: usize = 32;
/// Most steps of a rule.
const STEPS_MAX: usize = 128;
/// Most retries that the tunables or a rule may ask for.
const TRIES_MAX: u32 = 1000;
/// Longest name.
const NAME_BYTES_MAX: usize = 256;

/// Names the first thing for which a map cannot be in force.
///
/// # Errors
/// A sentence about it.
pub fn check(crush: &CrushMap) -> Result<(), String> {
    check_sizes(crush)?;
    check_names(crush)?;
    crush.buckets.iter().flatten().try_for_each(|bucket| check_bucket(crush, bucket))?;
    check_loops(crush)?;
    check_classes(crush)?;
    let rules = (0..).zip(&crush.rules);
    rules
        .filter_map(|(slot, rule)| Some((slot, rule.as_ref()?)))
        .try_for_each(|(slot, rule)| check_rule(crush, slot, rule))?;
    let t = &crush.tunables;
    match t.choose_total_tries.max(t.choose_local_tries).max(t.choose_local_fallback_tries) {
        tries if tries > TRIES_MAX => {
            Err(format!("the tunables ask for {tries} tries, and {TRIES_MAX} is the most"))
        }
        _ => Ok(()),
    }
}

/// What [`check`] needs to know of a limit that is passed.
fn most(what: &str, found: usize, limit: usize) -> Result<(), String> {
    if found > limit { Err(format!("{found} {what}, and {limit} is the most")) } else { Ok(()) }
}

fn check_sizes(crush: &CrushMap) -> Result<(), String> {
    most("buckets", crush.buckets.len(), BUCKETS_MAX)?;
    most(
        "items of buckets",
        crush.buckets.iter().flatten().map(|bucket| bucket.items.len()).sum(),
        ITEMS_MAX,
    )?;
    let plain = crush.buckets.iter().flatten().count().saturating_sub(crate::classes::shadows(crush).len());
    most("buckets with their shadows", plain.saturating_mul(crush.class_names.len() + 1), BUCKETS_MAX)?;
    most("bytes behind the map's known end", crush.tail.len(), 0)?;
    if crush.max_devices < 0 { Err(format!("max_devices is {}", crush.max_devices)) } else { Ok(()) }
}

fn check_names(crush: &CrushMap) -> Result<(), String> {
    let of_types = crush.type_names.values().map(|name| ("type", name));
    let of_items = crush.item_names.values().map(|name| ("item", name));
    let of_rules = crush.rule_names.values().map(|name| ("rule", name));
    let of_classes = crush.class_names.values().map(|name| ("class", name));
    let mut seen = BTreeSet::new();
    for (what, name) in of_types.chain(of_items).chain(of_rules).chain(of_classes) {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(format!("a {what} has the name {name:?}"));
        }
        if !seen.insert((what, name)) {
            return Err(format!("two {what}s have the name '{name}'"));
        }
    }
    match crush.type_names.contains_key(&0) {
        true => Ok(()),
        false => Err("no type is number 0, which devices have".to_owned()),
    }
}

fn check_bucket(crush: &CrushMap, bucket: &Bucket) -> Result<(), String> {
    let Some(name) = crush.item_name(bucket.id) else {
        return Err(format!("bucket {} has no name", bucket.id));
    };
    if bucket.kind_id == 0 || !crush.type_names.contains_key(&bucket.kind_id.into()) {
        return Err(format!("bucket '{name}' is of the type {}, which there is not", bucket.kind_id));
    }
    let is_known =
        |item: &&i32| **item < 0 && crush.bucket(**item).is_some() || (0..crush.max_devices).contains(*item);
    if let Some(item) = bucket.items.iter().find(|item| !is_known(item)) {
        return Err(format!("bucket '{name}' has the item {item}, which there is not"));
    }
    if bucket.items.iter().collect::<BTreeSet<_>>().len() < bucket.items.len() {
        return Err(format!("bucket '{name}' has an item twice"));
    }
    let count = bucket.items.len();
    let is_whole = match &bucket.kind {
        BucketKind::Uniform { .. } => true,
        BucketKind::List { weights, sums: others } | BucketKind::Straw { weights, straws: others } => {
            weights.len() == count && others.len() == count
        }
        // Its leaves are the odd nodes.
        BucketKind::Tree { nodes } => nodes.len() >= count * 2,
        BucketKind::Straw2 { weights } => weights.len() == count,
    };
    if is_whole {
        Ok(())
    } else {
        Err(format!("bucket '{name}' has {count} items and other numbers of weights"))
    }
}

/// Takes the buckets away whose items are all gone, level by level, until none is left or the rest is a loop.
fn check_loops(crush: &CrushMap) -> Result<(), String> {
    let mut left: BTreeMap<i32, usize> = BTreeMap::new();
    let mut above: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for bucket in crush.buckets.iter().flatten() {
        let buckets = bucket.items.iter().filter(|item| **item < 0);
        left.insert(bucket.id, buckets.clone().count());
        buckets.for_each(|item| above.entry(*item).or_default().push(bucket.id));
    }
    let mut level: Vec<i32> = left.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    for _ in 0..DEPTH_MAX {
        let mut next = Vec::new();
        for id in level {
            left.remove(&id);
            for parent in above.get(&id).into_iter().flatten() {
                let count = left.get_mut(parent);
                next.extend(count.and_then(|count| {
                    *count -= 1;
                    (*count == 0).then_some(*parent)
                }));
            }
        }
        level = next;
    }
    match left.keys().next_back() {
        None => Ok(()),
        Some(id) => {
            let name = crush.item_name(*id).unwrap_or_default();
            Err(format!("bucket '{name}' is below itself, or above more than {DEPTH_MAX} others"))
        }
    }
}

/// Shadows are buckets of their own, which no bucket that is no shadow has as an item.
fn check_classes(crush: &CrushMap) -> Result<(), String> {
    let shadows = crate::classes::shadows(crush);
    let is_right = |(bucket, own): (&i32, &BTreeMap<i32, i32>)| {
        let all = own
            .iter()
            .all(|(class, shadow)| crush.class_names.contains_key(class) && crush.bucket(*shadow).is_some());
        all && crush.bucket(*bucket).is_some() && !shadows.contains(bucket)
    };
    let is_apart = |bucket: &Bucket| {
        shadows.contains(&bucket.id) || !bucket.items.iter().any(|item| shadows.contains(item))
    };
    let named = crush.item_classes.values().all(|class| crush.class_names.contains_key(class));
    let is_once = crush.class_buckets.values().map(BTreeMap::len).sum::<usize>() == shadows.len();
    let is_whole = named && is_once && crush.class_buckets.iter().all(is_right);
    match is_whole && crush.buckets.iter().flatten().all(is_apart) {
        true => Ok(()),
        false => Err("the shadow trees are not those of the device classes".to_owned()),
    }
}

fn check_rule(crush: &CrushMap, slot: i32, rule: &Rule) -> Result<(), String> {
    let Some(name) = crush.rule_names.get(&slot) else { return Err(format!("rule {slot} has no name")) };
    if i32::from(rule.ruleset) != slot {
        return Err(format!("rule '{name}' is in the slot {slot} and of the ruleset {}", rule.ruleset));
    }
    most(&format!("steps in rule '{name}'"), rule.steps.len(), STEPS_MAX)?;
    for step in &rule.steps {
        let is_right = match *step {
            RuleStep::Take(item) => crush.bucket(item).is_some() || (0..crush.max_devices).contains(&item),
            RuleStep::ChooseFirstn(_, kind)
            | RuleStep::ChooseIndep(_, kind)
            | RuleStep::ChooseLeafFirstn(_, kind)
            | RuleStep::ChooseLeafIndep(_, kind) => crush.type_names.contains_key(&kind),
            RuleStep::SetChooseTries(n)
            | RuleStep::SetChooseLeafTries(n)
            | RuleStep::SetChooseLocalTries(n)
            | RuleStep::SetChooseLocalFallbackTries(n) => n <= TRIES_MAX as i32,
            RuleStep::Other { .. } => false,
            _ => true,
        };
        if !is_right {
            return Err(format!("rule '{name}' has the step {step:?}, which does not fit the map"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use carmine_types::OsdId;

    use super::*;
    use crate::build_simple_crush;
    use crate::classes::set_class;

    const ONE: u32 = 0x1_0000;

    fn three() -> CrushMap {
        let mut crush = build_simple_crush(&(0..3).map(|osd| (OsdId(osd), ONE)).collect::<Vec<_>>(), true);
        set_class(&mut crush, &[0, 2], Some("ssd"));
        crush
    }

    fn bucket(crush: &mut CrushMap, slot: usize) -> &mut Bucket {
        crush.buckets[slot].as_mut().unwrap()
    }

    fn wrong(change: impl FnOnce(&mut CrushMap)) -> String {
        let mut crush = three();
        change(&mut crush);
        check(&crush).unwrap_err()
    }

    fn give(crush: &mut CrushMap, slot: usize, item: i32) {
        let own = bucket(crush, slot);
        own.items.push(item);
        if let BucketKind::Straw2 { weights } = &mut own.kind {
            weights.push(ONE);
        }
    }

    #[test]
    fn maps_that_are_made_here_are_right() {
        assert_eq!(check(&three()), Ok(()));
    }

    #[test]
    fn each_hostile_map_is_refused_for_what_it_has() {
        assert!(wrong(|crush| give(crush, 1, -1)).contains("below itself"));
        assert!(wrong(|crush| give(crush, 1, -2)).contains("below itself"));
        assert!(wrong(|crush| give(crush, 1, -4711)).contains("the item -4711"));
        assert!(wrong(|crush| give(crush, 1, 3)).contains("the item 3"));
        assert!(wrong(|crush| give(crush, 1, 0)).contains("an item twice"));
        assert!(wrong(|crush| bucket(crush, 1).items.push(2)).contains("other numbers of weights"));
        assert!(wrong(|crush| bucket(crush, 1).kind_id = 77).contains("of the type 77"));
        assert!(wrong(|crush| drop(crush.item_names.remove(&-2))).contains("has no name"));
        assert!(wrong(|crush| drop(crush.item_names.insert(-3, "default".into()))).contains("two items"));
        assert!(wrong(|crush| drop(crush.type_names.remove(&0))).contains("number 0"));
        assert!(wrong(|crush| crush.max_devices = -1).contains("max_devices"));
        assert!(wrong(|crush| crush.buckets[1] = None).contains("the item -2"));
        assert!(wrong(|crush| crush.tail.push(0)).contains("known end"));
        assert!(wrong(|crush| crush.tunables.choose_total_tries = u32::MAX).contains("tries"));
        assert!(
            wrong(|crush| crush.class_buckets.get_mut(&-1).unwrap().extend([(0, -2)])).contains("shadow")
        );
        assert!(wrong(|crush| drop(crush.class_names.remove(&0))).contains("shadow"));
        assert!(wrong(|crush| crush.rules[0].as_mut().unwrap().ruleset = 9).contains("ruleset 9"));
        assert!(
            wrong(|crush| crush.rules[0].as_mut().unwrap().steps[0] = RuleStep::Take(-99))
                .contains("Take(-99)")
        );
        assert!(
            wrong(|crush| crush.rules[0].as_mut().unwrap().steps = vec![RuleStep::Emit; 1000])
                .contains("1000 steps")
        );
    }

    #[test]
    fn a_chain_may_be_deep_but_not_too_deep() {
        let chain = |depth: usize| {
            let mut crush = build_simple_crush(&[(OsdId(0), ONE)], true);
            for n in 0..depth {
                let id = crate::tree::add_bucket(&mut crush, &format!("b{n}"), 3).unwrap();
                give(&mut crush, (-1 - id) as usize, id + 1);
            }
            check(&crush)
        };
        assert_eq!(chain(DEPTH_MAX - 2), Ok(()));
        assert!(chain(DEPTH_MAX).unwrap_err().contains("more than"));
    }
}
