//! The product of a plan's axes, with coupled values computed.

use std::collections::{BTreeMap, BTreeSet};

use carmine_testbed::{TestbedError, refuse, usage};
use carmine_topology::default_clients;
use serde_json::Value;

use super::{Dropped, Machine};
use crate::archive::Config;
use crate::plan::{AxisValue, Expr, Kind, Plan, Values, settle};

/// Most points of a plan, repeats not counted: a typing error should not fill the disk.
const CONFIGS_MAX: usize = 20_000;

/// Values of axes that the plan does not name.
const DEFAULTS: [(&str, &str); 8] = [
    ("osds", "1"),
    ("reactors", "1"),
    ("pool_size", "3 min osds"),
    ("iodepth", "1"),
    ("jobs", "1"),
    ("store", "blue"),
    ("balance", "default"),
    ("workload", "randread4k"),
];

/// A configuration, or why it is not run.
pub(super) type Tried = Result<Config, Dropped>;

/// All configurations in the plan's order, or why one of them can't be.
pub(super) fn configs(plan: &Plan, machine: &Machine) -> Result<Vec<Tried>, TestbedError> {
    let mut all: Vec<Tried> = Vec::new();
    for case in &plan.cases {
        let axes = axes_of(plan, case);
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

/// Axes with a single value that is computed from this axis, or from one computed from it: they are not varied by themselves.
pub(super) fn computed_of(plan: &Plan, axis: &str) -> BTreeSet<String> {
    let all: Vec<Values> = plan.cases.iter().flat_map(|case| axes_of(plan, case)).collect();
    let mut found = BTreeSet::from([axis.to_owned()]);
    loop {
        let is_more = |values: &&Values| match values.values.as_slice() {
            [AxisValue::Computed(expr)] => {
                !found.contains(&values.name) && expr.names().iter().any(|name| found.contains(name))
            }
            _ => false,
        };
        let more: Vec<String> = all.iter().filter(is_more).map(|values| values.name.clone()).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// The plan's axes with those of the case in their place or behind, and the defaults of those that neither has.
fn axes_of(plan: &Plan, case: &[Values]) -> Vec<Values> {
    let mut axes = plan.axes.clone();
    for of_case in case {
        match axes.iter_mut().find(|axis| axis.name == of_case.name) {
            Some(axis) => *axis = of_case.clone(),
            None => axes.push(of_case.clone()),
        }
    }
    for (name, text) in DEFAULTS {
        if !axes.iter().any(|axis| axis.name == name) {
            axes.extend(Values::parse(name, &toml::Value::from(text)));
        }
    }
    axes
}

type Chosen<'a> = Vec<(&'a Values, &'a AxisValue)>;

fn product<'a>(plan: &Plan, axes: &'a [Values]) -> Result<Vec<Chosen<'a>>, TestbedError> {
    let count = axes.iter().try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len()));
    let are_many = count.is_none_or(|n| n > CONFIGS_MAX);
    let what = "take fewer values";
    refuse!(are_many, "{}: its axes have more than {CONFIGS_MAX} combinations; {what}", plan.name);
    let mut all: Vec<Chosen<'a>> = vec![Vec::new()];
    for axis in axes {
        let longer = |row: &Chosen<'a>, value: &'a AxisValue| {
            row.iter().copied().chain([(axis, value)]).collect::<Chosen<'a>>()
        };
        all = all.iter().flat_map(|row| axis.values.iter().map(move |value| longer(row, value))).collect();
    }
    Ok(all)
}

/// Computes coupled values until none is left.
fn resolve(plan: &Plan, machine: &Machine, chosen: &Chosen<'_>) -> Result<Tried, TestbedError> {
    let mut config = Config::default();
    config.set("seconds", plan.runtime.as_secs_f64());
    let mut open: Vec<(&str, Kind, Expr)> = Vec::new();
    for (values, value) in chosen {
        match value {
            AxisValue::Fixed(value) => config.set(&values.name, value.clone()),
            AxisValue::Computed(expr) => open.push((&values.name, values.axis.kind, expr.clone())),
        }
    }
    while !open.is_empty() {
        let known = known(machine, &config);
        let ready =
            |(_, _, expr): &(&str, Kind, Expr)| expr.names().iter().all(|name| known.contains_key(name));
        let Some(at) = open.iter().position(ready) else {
            return Err(usage!("{}: {}", plan.name, stuck(&open, &known)));
        };
        let (name, kind, expr) = open.remove(at);
        let settled = expr.number(&known).and_then(|number| settle(number, kind));
        match settled {
            Ok(value) => config.set(name, value),
            Err(why) => {
                let why = format!("{name} = \"{}\": {why}", expr.text);
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
    let why = if cycle { "which is computed from it in turn" } else { "which is not an axis with a number" };
    format!(
        "{name} = \"{}\": it needs `{missing}`, {why}; there are also machine_cpus, room (CPUs for reactors), sockets and drives",
        expr.text
    )
}

/// Numbers that expressions can use.
fn known(machine: &Machine, config: &Config) -> BTreeMap<String, f64> {
    let mut known: BTreeMap<String, f64> =
        config.0.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    let cpus = machine.topology.allowed().len();
    // All but those that clients get if a plan does not say how many.
    let room = cpus.saturating_sub(default_clients(cpus)).max(1);
    // Or as many files as a pool of size 3 needs.
    let drives = machine.drives().unwrap_or(3);
    let sockets = machine.topology.sockets();
    for (name, n) in [("machine_cpus", cpus), ("room", room), ("sockets", sockets), ("drives", drives)] {
        known.insert(name.to_owned(), n as f64);
    }
    // No limit is as many CPUs as an OSD can have here.
    if config.get("cpus") == Some(&Value::from("no-limit"))
        && let Some(osds) = config.number("osds")
    {
        known.insert("cpus".to_owned(), (room as u64 / osds.max(1)).max(1) as f64);
    }
    known
}

fn excluded(plan: &Plan, machine: &Machine, config: Config) -> Result<Tried, TestbedError> {
    for rule in &plan.exclude {
        let mut hit = rule.axes.iter().all(|axis| {
            let is =
                |value: &AxisValue| matches!(value, AxisValue::Fixed(v) if config.get(&axis.name) == Some(v));
            axis.values.iter().any(is)
        });
        let known = known(machine, &config);
        for when in &rule.when {
            hit = hit && when.holds(&known).map_err(|e| usage!("{}: exclude: {e}", plan.name))?;
        }
        if hit {
            let axes = rule.axes.iter().map(|axis| axis.name.as_str());
            let why: Vec<&str> = axes.chain(rule.when.iter().map(|when| when.text.as_str())).collect();
            return Ok(Err(Dropped { config, word: "excluded", why: why.join(", ") }));
        }
    }
    Ok(Ok(config))
}
