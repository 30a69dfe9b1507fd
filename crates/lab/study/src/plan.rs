//! Plan files: what is to be varied, in which order, for how long.

mod axis;
mod expr;

use std::path::Path;
use std::time::Duration;

use carmine_load::parse_millis;
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use crate::archive::Chart;

pub(crate) use axis::settle;
pub use axis::{AxisValue, Values, WORKLOADS, Workload, axes, axis, workload};
pub use carmine_testbed::spec::{Axis, Kind, Role};
pub use expr::Expr;

/// A plan that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}{}: {what}", if *line > 0 { format!(":{line}") } else { String::new() })]
pub struct PlanError {
    /// Name of the file, or of the shipped plan.
    pub file: String,
    /// From 1; 0 if it concerns the whole plan.
    pub line: usize,
    /// The mistake and its remedy, beginning with the key and its value.
    pub what: String,
}

/// Most repeats: a typing error should not run for a year.
const REPEATS_MAX: u32 = 1000;
/// As that of `carmine compare`.
const TOLERANCE: f64 = 0.05;

/// The quick form: axes with their values, the window, and how many values an axis keeps.
const QUICK_AXES: [(&str, &str); 2] = [("osd_size_bytes", "2G"), ("size_bytes", "64M")];
const QUICK_RUNTIME: Duration = Duration::from_secs(2);
const QUICK_VALUES: usize = 4;

/// In which order configurations are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By the seed, in rounds: every configuration once, then every one again.
    #[default]
    Shuffled,
    /// As the plan has them; arms of a comparison are mirrored all the same.
    Fixed,
}

/// Points that are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Exclude {
    /// All of these have one of their values …
    pub axes: Vec<Values>,
    /// … and all of these hold.
    pub when: Vec<Expr>,
}

/// A plan file.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub name: String,
    /// Its subject, in a line.
    pub about: String,
    /// Number of the study that it is, and the question that its archive answers.
    pub study: Option<u8>,
    pub question: String,
    pub chart: Chart,
    /// The axis whose values are compared, run side by side.
    pub compare: Option<String>,
    /// The axis of a response-latency curve: run in this order without a restart between.
    pub curve: Option<String>,
    pub repeats: u32,
    /// The difference (part of 1) that it is to tell from chance: the sweep stops when the machine drifts by more.
    pub tolerance: f64,
    pub runtime: Duration,
    pub ramp: Duration,
    pub order: Order,
    pub seed: u64,
    /// Rest between two starts.
    pub pause: Duration,
    /// Points may share CPUs; they are marked SHARED and stay out of slopes.
    pub overprovisioned: bool,
    /// A curve stops when stdev/mean of latency reaches 0.5 or `latency_cap` is passed.
    pub early_exit: bool,
    pub latency_cap: Option<Duration>,
    /// `search_step`: the p99 that must not be passed.
    pub search_p99: Option<Duration>,
    pub axes: Vec<Values>,
    /// Further sets of axes: the points of all cases are run. At least one; a plan without any has an empty one.
    pub cases: Vec<Vec<Values>>,
    pub exclude: Vec<Exclude>,
    /// Axes of which [`Overrides::quick`] keeps some values only, in words.
    pub thinned: Vec<String>,
    /// The text that it was read from.
    pub text: String,
}

/// Settings of the command line that replace those of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Short windows, small stores, one repeat, and of long axes four values: what a plan gives can be looked at in minutes.
    pub quick: bool,
    pub seed: Option<u64>,
    /// Ramps and pauses are no longer than it, either.
    pub runtime: Option<Duration>,
    pub repeats: Option<u32>,
    pub early_exit: bool,
    pub overprovisioned: bool,
    /// Axes and their values, such as of `peer` and `client`.
    pub axes: Vec<(String, Vec<String>)>,
}

type Table = Spanned<toml::Table>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Spanned<String>,
    #[serde(default)]
    about: String,
    study: Option<u8>,
    #[serde(default)]
    question: String,
    #[serde(default)]
    chart: Chart,
    compare: Option<Spanned<String>>,
    curve: Option<Spanned<String>>,
    repeats: Option<Spanned<u32>>,
    tolerance: Option<Spanned<f64>>,
    runtime: Option<Spanned<String>>,
    ramp: Option<Spanned<String>>,
    #[serde(default)]
    order: Order,
    #[serde(default = "one")]
    seed: u64,
    pause: Option<Spanned<String>>,
    #[serde(default)]
    overprovisioned: bool,
    #[serde(default)]
    early_exit: bool,
    latency_cap: Option<Spanned<String>>,
    search_p99: Option<Spanned<String>>,
    axes: Spanned<std::collections::BTreeMap<Spanned<String>, Spanned<toml::Value>>>,
    #[serde(default)]
    cases: Vec<Table>,
    #[serde(default)]
    exclude: Vec<Table>,
}

fn one() -> u64 {
    1
}

/// The text being read, for errors.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, offset: usize, what: impl Into<String>) -> PlanError {
        let line = self.text.get(..offset).map_or(0, |head| head.matches('\n').count() + 1);
        PlanError { file: self.file.to_owned(), line, what: what.into() }
    }

    fn duration(
        &self,
        key: &str,
        given: &Option<Spanned<String>>,
        default: &str,
    ) -> Result<Duration, PlanError> {
        let text = given.as_ref().map_or(default, |given| given.get_ref().as_str());
        let offset = given.as_ref().map_or(0, |given| given.span().start);
        let wrong =
            |e| self.error(offset, format!("{key} = \"{text}\": {e}; write a time as 30s, 500ms or 2m"));
        parse_millis(text).map(Duration::from_millis).map_err(wrong)
    }

    fn maybe(&self, key: &str, given: &Option<Spanned<String>>) -> Result<Option<Duration>, PlanError> {
        given.as_ref().map(|_| self.duration(key, given, "0")).transpose()
    }

    fn values(&self, offset: usize, name: &str, given: &toml::Value) -> Result<Values, PlanError> {
        let known = axis(name).ok_or_else(|| {
            self.error(
                offset,
                format!("{name} = {given}: no such axis; `carmine sweep --list` shows all axes"),
            )
        })?;
        Values::parse(name, known, given).map_err(|what| self.error(offset, what))
    }

    /// The values of one key. A dotted key, as of `peer_opt.NAME`, is a table to TOML.
    fn key(&self, offset: usize, name: &str, given: &toml::Value) -> Result<Vec<Values>, PlanError> {
        match given {
            toml::Value::Table(inner) if name == "peer_opt" => inner
                .iter()
                .map(|(rest, value)| self.values(offset, &format!("{name}.{rest}"), value))
                .collect(),
            value => Ok(vec![self.values(offset, name, value)?]),
        }
    }

    fn table(&self, table: &Table) -> Result<Vec<Values>, PlanError> {
        let mut all = Vec::new();
        for (name, value) in table.get_ref() {
            all.extend(self.key(table.span().start, name, value)?);
        }
        Ok(all)
    }
}

impl Plan {
    /// Reads a plan. `file` is its name in errors.
    pub fn parse(file: &str, text: &str) -> Result<Plan, PlanError> {
        let source = Source { file, text };
        let raw: Raw = toml::from_str(text)
            .map_err(|e| source.error(e.span().map_or(0, |span| span.start), e.message().trim()))?;
        check_name(&source, &raw.name)?;
        let cases = raw.cases.iter().map(|table| source.table(table)).collect::<Result<Vec<_>, _>>()?;
        let plan = Plan {
            about: raw.about.clone(),
            study: raw.study,
            question: raw.question.clone(),
            chart: raw.chart,
            repeats: in_range(&source, "repeats", &raw.repeats, 1..=REPEATS_MAX, 1)?,
            tolerance: in_range(&source, "tolerance", &raw.tolerance, 0.001..=1.0, TOLERANCE)?,
            runtime: source.duration("runtime", &raw.runtime, "30s")?,
            ramp: source.duration("ramp", &raw.ramp, "2s")?,
            order: raw.order,
            seed: raw.seed,
            pause: source.duration("pause", &raw.pause, "0s")?,
            overprovisioned: raw.overprovisioned,
            early_exit: raw.early_exit,
            latency_cap: source.maybe("latency_cap", &raw.latency_cap)?,
            search_p99: source.maybe("search_p99", &raw.search_p99)?,
            axes: axes_of(&source, &raw)?,
            cases: if cases.is_empty() { vec![Vec::new()] } else { cases },
            exclude: raw.exclude.iter().map(|table| exclude(&source, table)).collect::<Result<_, _>>()?,
            compare: raw.compare.as_ref().map(|name| name.get_ref().clone()),
            curve: raw.curve.as_ref().map(|name| name.get_ref().clone()),
            name: raw.name.into_inner(),
            thinned: Vec::new(),
            text: text.to_owned(),
        };
        for (key, given) in [("compare", &raw.compare), ("curve", &raw.curve)] {
            if let Some(given) = given.as_ref().filter(|given| !plan.has_axis(given.get_ref())) {
                let name = given.get_ref();
                let what = format!("{key} = \"{name}\": the plan has no axis {name}; add it to [axes]");
                return Err(source.error(given.span().start, what));
            }
        }
        plan.check_search(&source)?;
        Ok(plan)
    }

    /// Reads a plan file.
    pub fn read(path: &Path) -> Result<Plan, PlanError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Plan::parse(&file, &text),
            Err(e) => Err(PlanError { file, line: 0, what: format!("cannot read the plan: {e}") }),
        }
    }

    /// An error that concerns the plan as a whole.
    pub(crate) fn error(&self, what: String) -> PlanError {
        PlanError { file: self.name.clone(), line: 0, what }
    }

    /// The plan as the command line changes it.
    pub fn with(mut self, overrides: &Overrides) -> Result<Plan, PlanError> {
        let mut axes = overrides.axes.clone();
        if overrides.quick {
            self.thin();
            let small = QUICK_AXES.map(|(name, value)| (name.to_owned(), vec![value.to_owned()]));
            axes.splice(0..0, small);
        }
        self.seed = overrides.seed.unwrap_or(self.seed);
        let quick = overrides.quick.then_some(QUICK_RUNTIME);
        if let Some(runtime) = overrides.runtime.or(quick) {
            (self.runtime, self.ramp, self.pause) =
                (runtime, self.ramp.min(runtime), self.pause.min(runtime));
        }
        let repeats = if overrides.quick { 1 } else { self.repeats };
        self.repeats = overrides.repeats.unwrap_or(repeats).clamp(1, REPEATS_MAX);
        self.early_exit |= overrides.early_exit;
        self.overprovisioned |= overrides.overprovisioned;
        for (name, words) in &axes {
            let source = Source { file: "command line", text: "" };
            let values = source.values(0, name, &toml::Value::from(words.clone()))?;
            if !self.has_axis("peer") && (name == "peer_build" || name.starts_with("peer_opt.")) {
                return Err(source.error(0, format!("{name}: the plan measures no peer; add --peer ceph")));
            }
            self.axes.retain(|axis| axis.name != *name);
            self.cases.iter_mut().for_each(|case| case.retain(|axis| axis.name != *name));
            self.axes.push(values);
        }
        Ok(self)
    }

    /// Keeps the first two, the middle and the last value of long axes, but for those that are compared.
    fn thin(&mut self) {
        let compared = self.compare.clone();
        let long = self.axes.iter_mut().chain(self.cases.iter_mut().flatten());
        for axis in
            long.filter(|axis| axis.values.len() > QUICK_VALUES && Some(&axis.name) != compared.as_ref())
        {
            let all = std::mem::take(&mut axis.values);
            let last = all.len() - 1;
            axis.values = [0, 1, last / 2, last].into_iter().map(|at| all[at].clone()).collect();
            let kept: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
            let kept = format!("{} keeps {} of {} values", axis.name, kept.join(", "), all.len());
            if !self.thinned.contains(&kept) {
                self.thinned.push(kept);
            }
        }
    }

    /// True if some case has the axis.
    pub fn has_axis(&self, name: &str) -> bool {
        self.axes.iter().chain(self.cases.iter().flatten()).any(|axis| axis.name == name)
    }

    fn check_search(&self, source: &Source<'_>) -> Result<(), PlanError> {
        if self.has_axis("search_step") && self.search_p99.is_none() {
            return Err(source
                .error(0, "search_step: say the p99 that must not be passed, such as search_p99 = \"2ms\""));
        }
        for name in ["search_step", "rate_percent"] {
            if self.has_axis(name) && self.curve.as_deref() != Some(name) {
                return Err(source
                    .error(0, format!("{name}: its points follow from each other; set curve = \"{name}\"")));
            }
        }
        Ok(())
    }
}

fn check_name(source: &Source<'_>, name: &Spanned<String>) -> Result<(), PlanError> {
    let text = name.get_ref();
    if text.is_empty() || text != &crate::archive::stem_word(text) {
        let what =
            format!("name = \"{text}\": take letters, digits, `.` and `-` only; files are named by it");
        return Err(source.error(name.span().start, what));
    }
    Ok(())
}

fn in_range<T: Copy + PartialOrd + std::fmt::Display>(
    source: &Source<'_>,
    key: &str,
    given: &Option<Spanned<T>>,
    range: std::ops::RangeInclusive<T>,
    default: T,
) -> Result<T, PlanError> {
    match given {
        Some(n) if !range.contains(n.get_ref()) => {
            let what = format!("{key} = {}: take {} to {}", n.get_ref(), range.start(), range.end());
            Err(source.error(n.span().start, what))
        }
        given => Ok(given.as_ref().map_or(default, |n| *n.get_ref())),
    }
}

/// In the order of the file, which a table does not keep.
fn axes_of(source: &Source<'_>, raw: &Raw) -> Result<Vec<Values>, PlanError> {
    let mut sorted: Vec<_> = raw.axes.get_ref().iter().collect();
    sorted.sort_by_key(|(name, _)| name.span().start);
    let mut all = Vec::new();
    for (name, value) in sorted {
        all.extend(source.key(name.span().start, name.get_ref(), value.get_ref())?);
    }
    Ok(all)
}

fn exclude(source: &Source<'_>, table: &Table) -> Result<Exclude, PlanError> {
    let offset = table.span().start;
    let mut rest = table.clone();
    let when = match rest.get_mut().remove("when") {
        None => Vec::new(),
        Some(toml::Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    let condition = |given: &toml::Value| {
        let text = given.as_str().ok_or("take a condition in quotes, or a list of them".to_owned());
        text.and_then(Expr::parse).map_err(|e| source.error(offset, format!("when = {given}: {e}")))
    };
    let when: Vec<Expr> = when.iter().map(condition).collect::<Result<_, _>>()?;
    let axes = source.table(&rest)?;
    if axes.is_empty() && when.is_empty() {
        return Err(source.error(offset, "[[exclude]] says nothing: name axes, or when = \"condition\""));
    }
    Ok(Exclude { axes, when })
}

/// A plan by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! plans {
    ($($name:literal),+ $(,)?) => {
        /// All shipped plans, in the order of `--list`.
        pub const SHIPPED: &[Shipped] =
            &[$(Shipped { name: $name, text: include_str!(concat!("../plans/", $name, ".toml")) }),+];
    };
}

plans![
    "smoke",
    "cores-per-osd",
    "split-the-cores",
    "placement",
    "reactors",
    "curve",
    "open-loop",
    "like-for-like",
    "weak-scale",
    "qd1",
    "stores",
    "pgs",
    "latency-target",
    "hysteresis",
    "study-1",
    "study-2",
    "study-3",
    "study-4",
    "study-5",
];

/// The shipped plan of this name.
pub fn shipped(name: &str) -> Option<Result<Plan, PlanError>> {
    let found = SHIPPED.iter().find(|plan| plan.name == name)?;
    Some(Plan::parse(&format!("{name}.toml (shipped)"), found.text))
}
