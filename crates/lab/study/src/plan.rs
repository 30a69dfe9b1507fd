//! Plan files: what is to be varied, in which order, for how long.

mod axis;
mod expr;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use carmine_load::parse_millis;
use carmine_testbed::{TestbedError, refuse, usage};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::{Spanned, Table};

use crate::archive::Chart;
use crate::support::SPARE_REPEATS;

pub use axis::{AxisValue, Values, WORKLOADS, Workload, axes, axis, workload};
pub(crate) use axis::{resized, settle};
pub use carmine_testbed::spec::{Axis, Kind, Role};
pub use expr::Expr;

/// Most repeats: a typing error should not run for a year.
const REPEATS_MAX: u32 = 1000;
/// The same as that of `carmine compare`.
pub(crate) const TOLERANCE: f64 = 0.05;

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
    /// As the plan has them; arms of a comparison are mirrored even so.
    Fixed,
}

/// Points that are left out.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Exclude {
    /// All of these have one of their values …
    pub axes: Vec<Values>,
    /// … and all of these hold.
    pub when: Vec<Expr>,
}

impl TryFrom<Table> for Exclude {
    type Error = String;

    fn try_from(mut table: Table) -> Result<Exclude, String> {
        let when = match table.remove("when") {
            None => Vec::new(),
            Some(toml::Value::Array(list)) => list,
            Some(one) => vec![one],
        };
        let condition = |given: &toml::Value| {
            let text = given.as_str().ok_or("take a condition in quotes, or a list of them".to_owned());
            text.and_then(Expr::parse).map_err(|e| format!("when = {given}: {e}"))
        };
        let when: Vec<Expr> = when.iter().map(condition).collect::<Result<_, _>>()?;
        let axes = values_of(&table)?;
        if axes.is_empty() && when.is_empty() {
            return Err("it is empty; name axes, or when = \"condition\"".to_owned());
        }
        Ok(Exclude { axes, when })
    }
}

carmine_types::defaults! {
    /// A plan file.
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
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
        pub repeats: u32 = 1,
        /// Repeats more, at most, of points without an answer because other work spoilt some.
        pub spare_repeats: u32 = SPARE_REPEATS as u32,
        /// The difference (part of 1) that it is to tell from chance: the sweep stops when the machine drifts by more.
        pub tolerance: f64 = TOLERANCE,
        #[serde(deserialize_with = "time")]
        pub runtime: Duration = Duration::from_secs(30),
        #[serde(deserialize_with = "time")]
        pub ramp: Duration = Duration::from_secs(2),
        pub order: Order,
        pub seed: u64 = 1,
        /// Rest between two starts.
        #[serde(deserialize_with = "time")]
        pub pause: Duration,
        /// Points may share CPUs; they are marked SHARED and stay out of slopes.
        pub overprovisioned: bool,
        /// A curve stops when stdev/mean of latency reaches 0.5 or `latency_cap` is passed.
        pub early_exit: bool,
        #[serde(deserialize_with = "some_time")]
        pub latency_cap: Option<Duration>,
        /// `search_step`: the p99 that must not be passed.
        #[serde(deserialize_with = "some_time")]
        pub search_p99: Option<Duration>,
        #[serde(deserialize_with = "axes_in_order")]
        pub axes: Vec<Values>,
        /// Further sets of axes: the points of all cases are run. At least one; a plan without any has an empty one.
        #[serde(deserialize_with = "cases")]
        pub cases: Vec<Vec<Values>> = vec![Vec::new()],
        pub exclude: Vec<Exclude>,
        /// Axes of which [`Overrides::quick`] keeps some values only, in words.
        #[serde(skip)]
        pub thinned: Vec<String>,
        /// The text that it was read from.
        #[serde(skip)]
        pub text: String,
    }
}

/// Settings of the command line that replace those of the plan.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Take a quick look at a plan: windows of 2 s, one repeat, stores of 2 GiB, four values of long axes
    #[arg(long, help_heading = "Plan")]
    pub quick: bool,
    /// Shuffle configurations by this number instead of the plan's
    #[arg(long, value_name = "N", help_heading = "Plan")]
    pub seed: Option<u64>,
    /// Length of every window instead of the plan's, such as 10s or 5m; also the limit of ramps and pauses
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Plan")]
    pub runtime: Option<Duration>,
    /// Repeats of every configuration instead of the plan's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Plan")]
    pub repeats: Option<u32>,
    /// Values of an axis instead of the plan's, such as osd_size_bytes=512M or reactors=1,2; repeatable
    #[arg(long = "set", value_name = "AXIS=VALUE,…", value_parser = parse_axis, help_heading = "Plan")]
    pub axes: Vec<(String, Vec<String>)>,
    /// Stop a curve when stdev/mean of latency reaches 0.5 or latency exceeds the plan's latency_cap
    #[arg(long, help_heading = "Plan")]
    pub early_exit: bool,
    /// Also run points with too few CPUs; they are marked SHARED and left out of slopes
    #[arg(long, help_heading = "Plan")]
    pub overprovisioned: bool,
}

/// `AXIS=VALUE,VALUE`; a text is one value, since it may have commas.
fn parse_axis(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, values) =
        text.split_once('=').ok_or("write an axis with its values, such as reactors=1,2".to_owned())?;
    let known = axis(name).ok_or("no such axis; `carmine sweep --list` shows all axes".to_owned())?;
    let values = match known.kind {
        Kind::Text => vec![values.to_owned()],
        _ => values.split(',').map(|value| value.trim().to_owned()).collect(),
    };
    Ok((name.to_owned(), values))
}

fn parse_time(text: &str) -> Result<Duration, String> {
    parse_millis(text).map(Duration::from_millis)
}

/// A time, written as for loads.
fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = |e| D::Error::custom(format!("{e}; write a time as 30s, 500ms or 2m"));
    parse_time(&text).map_err(wrong)
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from).map(Some)
}

/// In the order of the file, which a table does not keep.
fn axes_in_order<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Values>, D::Error> {
    let given = BTreeMap::<Spanned<String>, toml::Value>::deserialize(from)?;
    let mut sorted: Vec<_> = given.iter().collect();
    sorted.sort_by_key(|(name, _)| name.span().start);
    let each = sorted.into_iter().map(|(name, value)| values_of_key(name.get_ref(), value));
    Ok(each.collect::<Result<Vec<_>, _>>().map_err(D::Error::custom)?.concat())
}

fn cases<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<Values>>, D::Error> {
    /// Parsed by itself, so that an error can name its place.
    #[derive(Deserialize)]
    #[serde(try_from = "Table")]
    struct Case(Vec<Values>);

    impl TryFrom<Table> for Case {
        type Error = String;

        fn try_from(table: Table) -> Result<Case, String> {
            values_of(&table).map(Case)
        }
    }

    let cases = Vec::<Case>::deserialize(from)?.into_iter().map(|case| case.0);
    Ok(cases.collect())
}

fn values_of(table: &Table) -> Result<Vec<Values>, String> {
    let each = table.iter().map(|(name, value)| values_of_key(name, value));
    Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
}

/// The values of one key. A dotted key, as of `peer_opt.NAME`, is a table to TOML.
fn values_of_key(name: &str, given: &toml::Value) -> Result<Vec<Values>, String> {
    match given {
        toml::Value::Table(inner) if name == "peer_opt" => {
            inner.iter().map(|(rest, value)| Values::parse(&format!("{name}.{rest}"), value)).collect()
        }
        value => Ok(vec![Values::parse(name, value)?]),
    }
}

impl Plan {
    /// Reads a plan. `file` is its name in errors, which begin with the place, the key and its value.
    ///
    /// # Errors
    /// It is no plan, or its values do not fit each other.
    pub fn parse(file: &str, text: &str) -> Result<Plan, TestbedError> {
        let error = |what: String, offset: usize| {
            let at = text.get(..offset).unwrap_or_default().matches('\n').count();
            // The line of the key with which the error begins, else that of the offset, with its text.
            let key = what.split([' ', ':', '.']).next().unwrap_or_default();
            let has_key = |line: &str| {
                line.trim_start()
                    .strip_prefix(key)
                    .is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
            };
            if let Some(more) = text.lines().skip(at).position(has_key) {
                return usage!("{file}:{}: {what}", at + more + 1);
            }
            let line = text.lines().nth(at).unwrap_or_default().trim();
            usage!("{file}:{}: {line}: {what}", at + 1)
        };
        let plan: Plan = toml::from_str(text)
            .map_err(|e| error(e.message().trim().to_owned(), e.span().map_or(0, |span| span.start)))?;
        let has_axes = toml::from_str::<Table>(text).is_ok_and(|table| table.contains_key("axes"));
        refuse!(!has_axes, "{file}: the plan has no [axes]: name the axes there, with their values");
        plan.check().map_err(|what| error(what, 0))?;
        Ok(Plan { text: text.to_owned(), ..plan })
    }

    /// Fails if values do not fit each other, or are out of their range.
    fn check(&self) -> Result<(), String> {
        fn within<T: PartialOrd + Display>(key: &str, n: T, range: RangeInclusive<T>) -> Result<(), String> {
            let wrong = || format!("{key} = {n}: take {} to {}", range.start(), range.end());
            if range.contains(&n) { Ok(()) } else { Err(wrong()) }
        }
        let name = &self.name;
        if name.is_empty() || name != &crate::archive::stem_word(name) {
            return Err(format!(
                "name = \"{name}\": take letters, digits, `.` and `-` only; files are named by it"
            ));
        }
        within("repeats", self.repeats, 1..=REPEATS_MAX)?;
        within("spare_repeats", self.spare_repeats, 0..=REPEATS_MAX)?;
        within("tolerance", self.tolerance, 0.001..=1.0)?;
        for (key, given) in [("compare", &self.compare), ("curve", &self.curve)] {
            if let Some(name) = given.as_ref().filter(|name| !self.has_axis(name)) {
                return Err(format!("{key} = \"{name}\": the plan has no axis {name}; add it to [axes]"));
            }
        }
        if self.has_axis("search_step") && self.search_p99.is_none() {
            return Err(
                "search_step: give the p99 that must not be passed, such as search_p99 = \"2ms\"".to_owned()
            );
        }
        for name in ["search_step", "rate_percent"] {
            if self.has_axis(name) && self.curve.as_deref() != Some(name) {
                return Err(format!("{name}: its points follow from each other; set curve = \"{name}\""));
            }
        }
        Ok(())
    }

    /// Reads a plan file.
    ///
    /// # Errors
    /// It cannot be read, or those of [`Plan::parse`].
    pub fn read(path: &Path) -> Result<Plan, TestbedError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path);
        Plan::parse(&file, &text.map_err(|e| usage!("{file}: cannot read the plan: {e}"))?)
    }

    /// The plan as the command line changes it.
    ///
    /// # Errors
    /// There is no such axis, or it does not take the value.
    pub fn with(mut self, overrides: &Overrides) -> Result<Plan, TestbedError> {
        let wrong = |what: String| usage!("command line: {what}");
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
            let values = Values::parse(name, &toml::Value::from(words.clone())).map_err(wrong)?;
            if !self.has_axis("peer") && (name == "peer_build" || name.starts_with("peer_opt.")) {
                return Err(wrong(format!("{name}: the plan measures no peer; add --peer ceph")));
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
    "recovery",
    "model",
    "encryption",
    "study-1",
    "study-2",
    "study-3",
    "study-4",
    "study-5",
];

/// The shipped plan of this name.
pub fn shipped(name: &str) -> Option<Result<Plan, TestbedError>> {
    let found = SHIPPED.iter().find(|plan| plan.name == name)?;
    Some(Plan::parse(&format!("{name}.toml (shipped)"), found.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_an_axis() {
        let parsed = |text| parse_axis(text).map(|(_, values)| values);
        assert_eq!(parsed("reactors=1, 2"), Ok(vec!["1".to_owned(), "2".to_owned()]));
        assert_eq!(parsed("osd_wrap=perf -e a,b"), Ok(vec!["perf -e a,b".to_owned()]));
        assert!(parsed("reactors").is_err() && parsed("disks=1").unwrap_err().contains("--list"));
    }
}
