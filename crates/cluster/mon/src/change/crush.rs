//! Rules of the CRUSH map.

use carmine_crush::classes;
use carmine_crush::edit::item_named;
use carmine_crush::tree::type_named;
use carmine_types::{UTime, errno};
use carmine_wire::crushmap::{CrushMap, Rule, RuleStep};
use carmine_wire::osdmap::consts::POOL_REPLICATED;
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::{Refusal, refuse};

/// Replicas that rules of Ceph 16 are for.
const SIZES: (u8, u8) = (1, 10);
/// Most rules: a pool names its rule in one byte.
const RULES_MAX: usize = 256;

/// A wish about rules.
#[derive(Clone, Debug)]
pub(crate) enum RuleEdit {
    /// Replicas go to different buckets of this type, or OSDs, below a root.
    Create {
        name: String,
        root: String,
        kind: String,
        /// Only devices of this class.
        class: Option<String>,
    },
    Rename {
        name: String,
        to: String,
    },
    Remove {
        name: String,
    },
}

/// The slot of a rule.
pub(crate) fn rule_of(crush: &CrushMap, name: &str) -> Option<i32> {
    crush.rule_names.iter().find(|(_, known)| *known == name).map(|(slot, _)| *slot)
}

pub(super) fn edit(map: &OsdMap, edit: &RuleEdit, now: UTime) -> Result<Option<Incremental>, Refusal> {
    let mut crush = CrushMap::clone(&map.crush);
    match edit {
        RuleEdit::Create { name, .. } if rule_of(&crush, name).is_some() => return Ok(None),
        RuleEdit::Create { name, root, kind, class } => {
            create(&mut crush, name, (root, class.as_deref()), kind)?
        }
        RuleEdit::Rename { name, to } => match (rule_of(&crush, name), rule_of(&crush, to)) {
            (None, Some(_)) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(refuse(errno::EEXIST, format!("destination rule name '{to}' already exists")));
            }
            (None, None) => {
                return Err(refuse(errno::ENOENT, format!("source rule name '{name}' does not exist")));
            }
            (Some(slot), None) => drop(crush.rule_names.insert(slot, to.clone())),
        },
        RuleEdit::Remove { name } => {
            let Some(slot) = rule_of(&crush, name) else { return Ok(None) };
            if map.pools.values().any(|pool| i32::from(pool.crush_rule) == slot) {
                return Err(refuse(errno::EBUSY, format!("crush ruleset {name} {slot} is in use")));
            }
            crush.rule_names.remove(&slot);
            if let Some(rule) = usize::try_from(slot).ok().and_then(|slot| crush.rules.get_mut(slot)) {
                *rule = None;
            }
            classes::forget_dead_classes(&mut crush);
        }
    }
    let mut inc = Incremental::next(map, now);
    inc.crush = crush.encode();
    Ok(Some(inc))
}

fn create(
    crush: &mut CrushMap,
    name: &str,
    (root, class): (&str, Option<&str>),
    kind: &str,
) -> Result<(), Refusal> {
    let mut take = item_named(crush, root)
        .ok_or_else(|| refuse(errno::ENOENT, format!("root item {root} does not exist")))?;
    let number =
        type_named(crush, kind).ok_or_else(|| refuse(errno::EINVAL, format!("unknown type {kind}")))?;
    if let Some(class) = class {
        let known = classes::class_of(crush, class);
        let known =
            known.ok_or_else(|| refuse(errno::EINVAL, format!("device class {class} does not exist")))?;
        let shadow = classes::shadow_of(crush, take, known);
        take = shadow
            .ok_or_else(|| refuse(errno::EINVAL, format!("root {root} has no devices with class {class}")))?;
    }
    let slot = crush.rules.iter().position(Option::is_none).unwrap_or(crush.rules.len());
    let ruleset = u8::try_from(slot).ok().filter(|_| slot < RULES_MAX);
    let ruleset = ruleset.ok_or_else(|| refuse(errno::ENOSPC, format!("there are {RULES_MAX} rules")))?;
    let choose = match number {
        0 => RuleStep::ChooseFirstn(0, 0),
        number => RuleStep::ChooseLeafFirstn(0, number),
    };
    let steps = vec![RuleStep::Take(take), choose, RuleStep::Emit];
    let rule = Rule { ruleset, kind: POOL_REPLICATED, min_size: SIZES.0, max_size: SIZES.1, steps };
    if slot == crush.rules.len() {
        crush.rules.push(None);
    }
    if let Some(place) = crush.rules.get_mut(slot) {
        *place = Some(rule);
    }
    crush.rule_names.insert(ruleset.into(), name.to_owned());
    Ok(())
}
