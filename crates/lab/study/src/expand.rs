//! Plan → points in the order in which they run.

mod cells;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carmine_topology::{Grid, Topology, default_clients};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::archive::{Comparison, Config, Point, PointKind, stem, stem_word};
use crate::commands::{files_bytes, is_durable, is_peer, size_bytes};
use crate::lists::distinct as each_once;
use crate::plan::{AxisValue, Expr, Kind, Plan, PlanError, Role, Values, axis, settle};
pub use cells::Confound;
use cells::{Cell, Unit, units};
pub(crate) use cells::{aspects, follows_from};
pub use show::{dry_run, fitted, show_duration, show_plan, summary};

/// The machine that a plan is to run on, or another one that is only looked at.
#[derive(Clone, Debug)]
pub struct Machine {
    pub topology: Topology,
    /// Devices that were named for the OSDs; none: files in each layout's folder. Named devices are made anew for each
    /// layout, so that layouts can't lie beside each other.
    pub devices: Vec<String>,
    /// The grid that `carmine up` would make of its options; an error says why it would not.
    pub place: fn(&Topology, &[String]) -> Result<Grid, String>,
}

/// A point with what is known before it runs.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    pub point: Point,
    /// The placement on CPUs; a peer gets those that Carmine would have.
    pub grid: Grid,
    #[serde(rename = "estimate_s", serialize_with = "seconds")]
    pub estimate: Duration,
}

fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

/// A configuration that is not run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dropped {
    pub config: Config,
    /// `does not fit`, `can not be done`, `identical` or `excluded`.
    #[serde(rename = "reason")]
    pub word: &'static str,
    pub why: String,
}

/// All points of a plan on a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Expansion {
    pub points: Vec<Planned>,
    pub dropped: Vec<Dropped>,
    pub comparison: Option<Comparison>,
    /// Differences between arms that are not the compared axis.
    pub confounds: Vec<Confound>,
    /// All points and the making of their layouts.
    #[serde(rename = "estimate_s", serialize_with = "seconds")]
    pub estimate: Duration,
    /// Block files of all layouts, bytes.
    pub disk_bytes: u64,
    /// Memory of the point that needs most of it: its OSDs', and the data that a store in memory holds.
    pub memory_bytes: u64,
}

/// Makes the points of a plan. Fails if an expression has no value, or nothing is left that could be run.
pub fn expand(plan: &Plan, machine: &Machine) -> Result<Expansion, PlanError> {
    let all = configs(plan, machine)?;
    let (cells, dropped) = cells::cells(plan, machine, all);
    if cells.is_empty() {
        let why = match dropped.as_slice() {
            [] => " it has no points".to_owned(),
            all => format!("\n{}", show::reasons(all).join("\n")),
        };
        return Err(plan.error(format!("nothing of the plan can be run on this machine:{why}")));
    }
    // A study whose arms do not fit beside each other compares nothing.
    let arms = Some(arms(&cells)).filter(|arms| arms.len() > 1);
    let comparison = plan.compare.clone().zip(arms).map(|(axis, arms)| Comparison { axis, arms });
    let points = points(plan, machine, &cells);
    let mut seen = BTreeSet::new();
    let layouts = points.iter().filter(|planned| seen.insert(&planned.point.layout));
    let layouts: Vec<&Config> = layouts.map(|planned| &planned.point.config).collect();
    let on_files = machine.devices.is_empty();
    Ok(Expansion {
        confounds: cells::confounds(plan, &cells),
        estimate: points.iter().map(|p| p.estimate).chain(layouts.iter().map(|c| layout_time(c))).sum(),
        disk_bytes: layouts.iter().filter(|_| on_files).map(|config| files_bytes(config)).sum(),
        memory_bytes: points.iter().map(|p| memory_bytes(&p.point.config)).max().unwrap_or(0),
        points,
        dropped,
        comparison,
    })
}

// Points with their names, their layouts, and how long they will take.

/// Names of the arms, in the plan's order.
fn arms(cells: &[Cell]) -> Vec<String> {
    each_once(cells.iter().flat_map(|cell| &cell.arms).filter_map(|arm| arm.name.clone()))
}

/// The first point is run again at least so often, as planned: a drift is found while there is something to save.
const AGAIN_EVERY: Duration = Duration::from_secs(30 * 60);

/// All points in order, and between them and at the end the first one again.
fn points(plan: &Plan, machine: &Machine, cells: &[Cell]) -> Vec<Planned> {
    let varying = varying(cells);
    // Points of different arms belong together when cell, repeat and place on the curve are the same.
    let mut pairs: BTreeMap<(usize, u32, Option<String>), u32> = BTreeMap::new();
    let mut all: Vec<Planned> = Vec::new();
    let mut since_first = Duration::ZERO;
    let mut before: Option<Unit> = None;
    for unit in units(plan, machine, cells) {
        let arm = &cells[unit.cell].arms[unit.arm];
        // Arms of a cell stay side by side.
        let is_break =
            before.replace(unit).is_some_and(|old| (old.cell, old.repeat) != (unit.cell, unit.repeat));
        if is_break && since_first >= AGAIN_EVERY && may_be_again(machine, &all) {
            again(&mut all, plan, &varying);
            since_first = Duration::ZERO;
        }
        for (at, fitting) in arm.points.iter().enumerate() {
            let config = &fitting.config;
            let along = plan.curve.as_ref().and_then(|axis| config.show(axis));
            let next = pairs.len() as u32;
            let pair = *pairs.entry((unit.cell, unit.repeat, along)).or_insert(next);
            let point = Point {
                index: all.len(),
                stem: stem(config, &varying, unit.repeat),
                kind: PointKind::Point,
                arm: arm.name.clone(),
                curve: plan.curve.as_ref().map(|axis| curve_name(config, &varying, axis)),
                repeat: unit.repeat,
                pair: plan.compare.as_ref().map(|_| pair),
                layout: layout_name(config),
                config: config.clone(),
            };
            let estimate = point_time(plan, config, at == 0);
            since_first += estimate;
            all.push(Planned { point, grid: fitting.grid.clone(), estimate });
        }
    }
    distinct(&mut all);
    again(&mut all, plan, &varying);
    all
}

/// Named devices hold one layout: that of the first point would have to be made again.
fn may_be_again(machine: &Machine, all: &[Planned]) -> bool {
    let layout = |planned: Option<&Planned>| planned.map(|planned| planned.point.layout.clone());
    machine.devices.is_empty() || layout(all.first()) == layout(all.last())
}

/// Axes that have more than one value among the points.
fn varying(cells: &[Cell]) -> Vec<String> {
    let mut configs = cells.iter().flat_map(|c| &c.arms).flat_map(|a| &a.points).map(|p| &p.config);
    let Some(first) = configs.next() else { return Vec::new() };
    let varying: BTreeSet<&str> = configs.flat_map(|config| first.differences(config)).collect();
    varying.into_iter().map(str::to_owned).collect()
}

/// The axes that vary, without the one that runs along the curve. Repeats of a curve have the same name.
fn curve_name(config: &Config, varying: &[String], along: &str) -> String {
    let others = varying.iter().filter(|name| *name != along);
    let parts: Vec<String> =
        others.filter_map(|name| Some(format!("{name}={}", config.show(name)?))).collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(" ") }
}

/// Two values can look the same in a file name.
fn distinct(all: &mut [Planned]) {
    let mut seen = BTreeSet::new();
    for Planned { point, .. } in all {
        if !seen.insert(point.stem.clone()) {
            point.stem += &format!("_n{}", point.index);
            seen.insert(point.stem.clone());
        }
    }
}

fn again(all: &mut Vec<Planned>, plan: &Plan, varying: &[String]) {
    let Some(first) = all.first().cloned() else { return };
    let times = all.iter().filter(|planned| planned.point.kind == PointKind::Again).count();
    let number = if times > 0 { (times + 1).to_string() } else { String::new() };
    let stem = stem(&first.point.config, varying, 0);
    let point = Point {
        index: all.len(),
        stem: format!("{stem}_again{number}"),
        kind: PointKind::Again,
        arm: None,
        curve: None,
        pair: None,
        ..first.point
    };
    let estimate = point_time(plan, &point.config, true);
    all.push(Planned { point, grid: first.grid, estimate });
}

/// The folder that a configuration uses: every axis that needs another one is in its name.
pub fn layout_name(config: &Config) -> String {
    let show = |name: &str| stem_word(&config.show(name).unwrap_or_default());
    let mut text = format!("{}_{}osd_size{}", show("store"), show("osds"), show("pool_size"));
    for (name, value) in &config.0 {
        let head = matches!(name.as_str(), "store" | "osds" | "pool_size");
        let word = config.show(name).unwrap_or_default();
        // Settings of a peer make no other folder of Carmine's own.
        let of_peer = name == "peer_build" || name.starts_with("peer_opt.");
        let plain = name == "peer" && value == "none" || of_peer && !is_peer(config);
        if !head && !plain && axis(name).is_some_and(|axis| axis.role == Role::Layout) {
            text.push_str(&format!("_{}{}", stem_word(name), stem_word(&word)));
        }
    }
    text
}

/// The part of a configuration for which the OSDs are started anew: everything but the load and labels.
pub(crate) fn start_key(config: &Config) -> Config {
    config.only(|name| axis(name).is_some_and(|axis| matches!(axis.role, Role::Layout | Role::Start)))
}

/// Bytes per second that a drive takes while layouts are made.
const FILL_BYTES_PER_S: f64 = 300e6;
/// The same of random writes of 64K.
const AGE_BYTES_PER_S: f64 = 100e6;
/// Stop and start of the processes.
const RESTART_S: f64 = 3.0;
/// Connecting, finding the objects, writing the result.
const AROUND_LOAD_S: f64 = 1.5;
/// `carmine up` gives an OSD so much if it is not told.
const OSD_MEMORY_BYTES: u64 = 1 << 30;
/// Both baselines, for every new load.
const BASELINE_S: f64 = 6.0;

fn point_time(plan: &Plan, config: &Config, restart: bool) -> Duration {
    let window = config.float("seconds").unwrap_or_default() + plan.ramp.as_secs_f64();
    let start = if restart { RESTART_S + BASELINE_S + plan.pause.as_secs_f64() } else { 0.0 };
    Duration::from_secs_f64(window + AROUND_LOAD_S + start)
}

/// Memory of a point's OSDs; the data of a store in memory is beside what an OSD is told to take.
fn memory_bytes(config: &Config) -> u64 {
    let osds = config.number("osds").unwrap_or(1);
    let held = if config.text("store") == Some("cyan") && !is_peer(config) { size_bytes(config) } else { 0 };
    let each = config.number("osd_memory_bytes").unwrap_or(OSD_MEMORY_BYTES)
        + config.number("data_cache_bytes").unwrap_or(0);
    osds * each + held * config.number("pool_size").unwrap_or(1)
}

/// The time in which a layout is made.
fn layout_time(config: &Config) -> Duration {
    if !is_durable(config) {
        return Duration::from_secs_f64(RESTART_S);
    }
    let device = files_bytes(config);
    let data = size_bytes(config) * config.number("pool_size").unwrap_or(1);
    let filled = device * config.number("fill").unwrap_or(0) / 100;
    let aged_s = data.max(filled) as f64 * config.float("age").unwrap_or(0.0) / AGE_BYTES_PER_S;
    let filled_s = (device + data + filled) as f64 / FILL_BYTES_PER_S;
    Duration::from_secs_f64(2.0 * RESTART_S + aged_s + filled_s)
}

// The product of a plan's axes, with coupled values computed.

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

/// All configurations in the plan's order, or why one of them can't be.
fn configs(plan: &Plan, machine: &Machine) -> Result<Vec<Result<Config, Dropped>>, PlanError> {
    let mut all: Vec<Result<Config, Dropped>> = Vec::new();
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

/// Axes with a single value that is computed of this axis, or of one that is computed of it: they are not varied by themselves.
fn computed_of(plan: &Plan, axis: &str) -> BTreeSet<String> {
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

type Pick<'a> = Vec<(&'a Values, &'a AxisValue)>;

fn product<'a>(plan: &Plan, axes: &'a [Values]) -> Result<Vec<Pick<'a>>, PlanError> {
    let count = axes.iter().try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len()));
    if count.is_none_or(|n| n > CONFIGS_MAX) {
        return Err(
            plan.error(format!("its axes have more than {CONFIGS_MAX} combinations; take fewer values"))
        );
    }
    let mut all: Vec<Pick<'a>> = vec![Vec::new()];
    for axis in axes {
        let longer = |row: &Pick<'a>, value: &'a AxisValue| {
            row.iter().copied().chain([(axis, value)]).collect::<Pick<'a>>()
        };
        all = all.iter().flat_map(|row| axis.values.iter().map(move |value| longer(row, value))).collect();
    }
    Ok(all)
}

/// Computes coupled values until none is left.
fn resolve(plan: &Plan, machine: &Machine, chosen: &Pick<'_>) -> Result<Result<Config, Dropped>, PlanError> {
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
    let cpus = machine.topology.allowed().len();
    // All but those that clients get where a plan does not say how many.
    let room = cpus.saturating_sub(default_clients(cpus)).max(1);
    // The named devices, or as many files as a pool of size 3 needs.
    let drives = if machine.devices.is_empty() { 3 } else { machine.devices.len() };
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
