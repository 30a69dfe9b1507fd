//! The product of a plan's axes, with coupled values computed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Dropped;
use super::machine::Machine;
use crate::archive::Config;
use crate::plan::{AxisValue, Expr, Kind, Plan, PlanError, Values, axis, settle};

/// Most points of a plan, repeats not counted: a typing error should not fill the disk.
const CONFIGS_MAX: usize = 20_000;

/// Values of axes that the plan does not name.
const DEFAULTS: [(&str, &str); 5] =
    [("osds", "1"), ("reactors", "1"), ("pool_size", "3 min osds"), ("iodepth", "1"), ("jobs", "1")];

/// Words of axes that the plan does not name.
const DEFAULT_WORDS: [(&str, &str); 3] =
    [("store", "blue"), ("balance", "default"), ("workload", "randread4k")];

/// All configurations in the plan's order, or why one of them can't be.
pub(super) fn configs(plan: &Plan, machine: &Machine) -> Result<Vec<Result<Config, Dropped>>, PlanError> {
    let mut all: Vec<Result<Config, Dropped>> = Vec::new();
    for case in &plan.cases {
        let axes = merged(&plan.axes, case);
        for chosen in product(plan, &axes)? {
            let config = match resolve(plan, machine, &chosen)? {
                Ok(config) => excluded(plan, machine, config)?,
                Err(dropped) => Err(dropped),
            };
            // Coupled axes can give the same configuration twice.
            if !all.contains(&config) {
                all.push(config);
            }
        }
    }
    Ok(all)
}

/// Axes with a single value that is computed of this axis, or of one that is computed of it: they are not varied by themselves.
pub(super) fn computed_of(plan: &Plan, axis: &str) -> BTreeSet<String> {
    let given = plan.axes.iter().chain(plan.cases.iter().flatten());
    let computed = given.filter_map(|values| match values.values.as_slice() {
        [AxisValue::Computed(expr)] => Some((values.name.as_str(), expr.names().to_vec())),
        _ => None,
    });
    let defaults = DEFAULTS.into_iter().filter(|(name, _)| !plan.has_axis(name));
    let parsed = defaults.filter_map(|(name, text)| Some((name, Expr::parse(text).ok()?.names().to_vec())));
    let all: Vec<(&str, Vec<String>)> = computed.chain(parsed).collect();
    let mut found = BTreeSet::from([axis.to_owned()]);
    loop {
        let more = all
            .iter()
            .filter(|(name, needs)| !found.contains(*name) && needs.iter().any(|n| found.contains(n)));
        let more: Vec<String> = more.map(|(name, _)| (*name).to_owned()).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// The plan's axes with those of the case in their place or behind.
fn merged<'a>(axes: &'a [Values], case: &'a [Values]) -> Vec<&'a Values> {
    let of_case = |axis: &Values| case.iter().find(|other| other.name == axis.name);
    let more = case.iter().filter(|other| !axes.iter().any(|axis| axis.name == other.name));
    axes.iter().map(|axis| of_case(axis).unwrap_or(axis)).chain(more).collect()
}

type Chosen<'a> = Vec<(&'a Values, &'a AxisValue)>;

fn product<'a>(plan: &Plan, axes: &[&'a Values]) -> Result<Vec<Chosen<'a>>, PlanError> {
    let count = axes.iter().try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len()));
    if count.is_none_or(|n| n > CONFIGS_MAX) {
        return Err(
            plan.error(format!("its axes have more than {CONFIGS_MAX} combinations; take fewer values"))
        );
    }
    let mut all: Vec<Chosen<'a>> = vec![Vec::new()];
    for axis in axes {
        let longer = |row: &Chosen<'a>, value: &'a AxisValue| {
            row.iter().copied().chain([(*axis, value)]).collect::<Chosen<'a>>()
        };
        all = all.iter().flat_map(|row| axis.values.iter().map(move |value| longer(row, value))).collect();
    }
    Ok(all)
}

/// Computes coupled values until none is left.
fn resolve(
    plan: &Plan,
    machine: &Machine,
    chosen: &Chosen<'_>,
) -> Result<Result<Config, Dropped>, PlanError> {
    let mut config = Config::default();
    let mut open: Vec<(&str, Kind, Expr)> = Vec::new();
    for (values, value) in chosen {
        match value {
            AxisValue::Fixed(value) => config.set(&values.name, value.clone()),
            AxisValue::Computed(expr) => open.push((&values.name, values.axis.kind, expr.clone())),
        }
    }
    let given = |name: &str| chosen.iter().any(|(values, _)| values.name == name);
    for (name, word) in DEFAULT_WORDS.into_iter().filter(|(name, _)| !given(name)) {
        config.set(name, word);
    }
    for (name, text) in DEFAULTS.into_iter().filter(|(name, _)| !given(name)) {
        let kind = axis(name).map_or(Kind::Float, |axis| axis.kind);
        open.push((name, kind, Expr::parse(text).map_err(|e| plan.error(e))?));
    }
    if !given("seconds") {
        config.set("seconds", plan.runtime.as_secs_f64());
    }
    while !open.is_empty() {
        let known = known(machine, &config);
        let ready =
            |(_, _, expr): &(&str, Kind, Expr)| expr.names().iter().all(|name| known.contains_key(name));
        let Some(at) = open.iter().position(ready) else {
            return Err(plan.error(stuck(&open, &known)));
        };
        let (name, kind, expr) = open.remove(at);
        let settled = expr.number(&known).and_then(|number| settle(number, kind));
        match settled {
            Ok(value) => config.set(name, value),
            Err(why) => {
                let why = format!("{name} = \"{}\": {why}", expr.text());
                return Ok(Err(Dropped { config, word: "does not fit", why }));
            }
        }
    }
    Ok(Ok(config))
}

fn stuck(open: &[(&str, Kind, Expr)], known: &BTreeMap<String, f64>) -> String {
    let Some((name, _, expr)) = open.first() else { return String::new() };
    let missing = expr.names().iter().find(|n| !known.contains_key(*n)).cloned().unwrap_or_default();
    let cycle = open.iter().any(|(other, ..)| *other == missing);
    let why =
        if cycle { "which is computed of it in turn" } else { "which is no axis of the plan with a number" };
    format!(
        "{name} = \"{}\": it needs `{missing}`, {why}; there are also machine_cpus, room (CPUs for reactors), sockets and drives",
        expr.text()
    )
}

/// Numbers that expressions can use.
fn known(machine: &Machine, config: &Config) -> BTreeMap<String, f64> {
    let mut known: BTreeMap<String, f64> =
        config.0.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    for (name, value) in [
        ("machine_cpus", machine.cpus()),
        ("room", machine.room()),
        ("sockets", machine.topology.sockets()),
        ("drives", machine.drives()),
    ] {
        known.insert(name.to_owned(), value as f64);
    }
    // No limit is as many CPUs as an OSD can have here.
    if config.get("cpus") == Some(&Value::from("no-limit"))
        && let Some(osds) = config.number("osds")
    {
        known.insert("cpus".to_owned(), (machine.room() as u64 / osds.max(1)).max(1) as f64);
    }
    known
}

fn excluded(plan: &Plan, machine: &Machine, config: Config) -> Result<Result<Config, Dropped>, PlanError> {
    for rule in &plan.exclude {
        let mut hit = rule.axes.iter().all(|axis| {
            let is =
                |value: &AxisValue| matches!(value, AxisValue::Fixed(v) if config.get(&axis.name) == Some(v));
            axis.values.iter().any(is)
        });
        let known = known(machine, &config);
        for when in &rule.when {
            hit = hit && when.holds(&known).map_err(|e| plan.error(format!("exclude: {e}")))?;
        }
        if hit {
            let axes = rule.axes.iter().map(|axis| axis.name.as_str());
            let why: Vec<&str> = axes.chain(rule.when.iter().map(Expr::text)).collect();
            return Ok(Err(Dropped { config, word: "excluded", why: why.join(", ") }));
        }
    }
    Ok(Ok(config))
}
