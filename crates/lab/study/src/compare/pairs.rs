//! Which points belong together.

use std::collections::{BTreeMap, BTreeSet};

use super::{Measured, Refusal};
use crate::archive::Config;

/// Names of configurations that an error lists.
const NAMES_MAX: usize = 3;

/// Points of both arms with the same configuration but for what makes them arms.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// What this group's configuration has that others of the comparison have not, such as `reactors 2`; empty if there
    /// is one group only.
    pub name: String,
    /// (base, new) of the same turn, in order.
    pub pairs: Vec<(&'a Measured, &'a Measured)>,
    /// Points without a partner of the same turn: it failed.
    pub alone: usize,
}

type Turns<'a> = BTreeMap<u32, &'a Measured>;

/// Groups the points of two arms by configuration, leaving out the axes in `without`, and pairs them by turn.
///
/// # Errors
/// A configuration that only one arm has.
pub fn pair_up<'a>(
    base: (&str, &[&'a Measured]),
    new: (&str, &[&'a Measured]),
    without: &BTreeSet<&str>,
) -> Result<Vec<Group<'a>>, Refusal> {
    let (old, mut young) = (keyed(base.1, without), keyed(new.1, without));
    let names = names(old.values().chain(young.values()).map(|(config, _)| config));
    missing(&names, &old, &young).map_or(Ok(()), |found| Err(mixed(new.0, found)))?;
    missing(&names, &young, &old).map_or(Ok(()), |found| Err(mixed(base.0, found)))?;
    let mut groups = Vec::with_capacity(old.len());
    for (key, (config, old)) in old {
        let young = young.remove(&key).map(|(_, turns)| turns).unwrap_or_default();
        let pairs: Vec<_> =
            old.iter().filter_map(|(turn, base)| young.get(turn).map(|new| (*base, *new))).collect();
        let alone = old.len() + young.len() - 2 * pairs.len();
        groups.push(Group { name: names.of(&config), pairs, alone });
    }
    Ok(groups)
}

/// By configuration and turn. A key is the configuration as JSON, which is ordered by axis.
fn keyed<'a>(points: &[&'a Measured], without: &BTreeSet<&str>) -> BTreeMap<String, (Config, Turns<'a>)> {
    let mut groups: BTreeMap<String, (Config, Turns<'a>)> = BTreeMap::new();
    for point in points {
        let kept = point.config.0.iter().filter(|(axis, _)| !without.contains(axis.as_str()));
        let config = Config(kept.map(|(axis, value)| (axis.clone(), value.clone())).collect());
        let key = serde_json::to_string(&config).unwrap_or_default();
        groups.entry(key).or_insert_with(|| (config, Turns::new())).1.insert(point.turn, point);
    }
    groups
}

/// The axes that tell configurations apart.
struct Names(BTreeSet<String>);

fn names<'a>(configs: impl Iterator<Item = &'a Config> + Clone) -> Names {
    let axes: BTreeSet<&String> = configs.clone().flat_map(|c| c.0.keys()).collect();
    let varies = |axis: &str| configs.clone().map(|c| c.show(axis)).collect::<BTreeSet<_>>().len() > 1;
    Names(axes.into_iter().filter(|axis| varies(axis)).cloned().collect())
}

impl Names {
    fn of(&self, config: &Config) -> String {
        let shown = self.0.iter().filter_map(|axis| config.show(axis).map(|value| format!("{axis} {value}")));
        shown.collect::<Vec<_>>().join(" ")
    }
}

type Keyed<'a> = BTreeMap<String, (Config, Turns<'a>)>;

/// Names of configurations in `here` that `there` has not.
fn missing(names: &Names, here: &Keyed<'_>, there: &Keyed<'_>) -> Option<Vec<String>> {
    let found: Vec<String> = here
        .iter()
        .filter(|(key, _)| !there.contains_key(*key))
        .map(|(_, (config, _))| names.of(config))
        .collect();
    (!found.is_empty()).then_some(found)
}

fn mixed(side: &str, found: Vec<String>) -> Refusal {
    let named: Vec<String> = found.iter().take(NAMES_MAX).map(|name| format!("`{name}`")).collect();
    let more = if found.len() > NAMES_MAX { ", …" } else { "" };
    Refusal::Mixed { side: side.to_owned(), names: named.join(", ") + more, count: found.len() }
}
