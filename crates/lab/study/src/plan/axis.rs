//! The axes that a plan can vary, and their values as a plan gives them.

use carmine_load::{Arrivals, Route, Rw, parse_bytes, show_bytes};
use carmine_testbed::spec::{Axis, Kind, Role, count, place_axes, tuning_axes};
use serde_json::Value;

use super::expr::Expr;

const fn axis_of(name: &'static str, role: Role, kind: Kind, about: &'static str) -> Axis {
    Axis { name, option: "", role, kind, about }
}

const fn layout(name: &'static str, kind: Kind, about: &'static str) -> Axis {
    axis_of(name, Role::Layout, kind, about)
}

const fn start(name: &'static str, kind: Kind, about: &'static str) -> Axis {
    axis_of(name, Role::Start, kind, about)
}

const fn load(name: &'static str, kind: Kind, about: &'static str) -> Axis {
    axis_of(name, Role::Load, kind, about)
}

/// A number from 0 on.
const fn from_0(max: u64) -> Kind {
    Kind::Count { min: 0, max }
}

/// Axes that are not the option of `up` with the same value, but for `peer_opt.*`.
const OTHERS: &[Axis] = &[
    layout("fill", from_0(90), "percentage of the store that is written in advance"),
    layout(
        "age",
        from_0(1000),
        "rounds of random writes of 64K in advance, each of as many bytes as are filled; the same in every store",
    ),
    layout("object_size_bytes", Kind::Bytes, "bytes of an object, instead of 4M"),
    layout("peer", Kind::Word(&["none", "ceph", "ceph-tuned"]), "the cluster to measure; none is Carmine"),
    layout(
        "peer_build",
        Kind::Text,
        "folder of a Ceph build to be the peer, instead of the installed packages",
    ),
    start("cpus", CPUS, "CPUs that each OSD may use; parts of one, such as 0.5, with confine = quota"),
    start("confine", Kind::Word(&["none", "cpuset", "quota"]), "how `cpus` is enforced"),
    start(
        "smt",
        Kind::Word(&["off", "on"]),
        "reactors on whole cores only, or on both threads of half as many",
    ),
    load("workload", Kind::Word(WORKLOADS), "load by the studies' names"),
    load("read_percent", from_0(100), "percentage of reads of a mixed load (randrw4k), instead of 50"),
    load("bs_bytes", Kind::Bytes, "bytes of an operation, instead of the workload's"),
    load(
        "bssplit",
        Kind::Text,
        "operations of several lengths, such as 4k/60:64k/40, or none; reads, writes with a comma",
    ),
    load(
        "random_distribution",
        Kind::Text,
        "popularity of blocks: random, zipf:THETA, pareto:H, normal:DEVIATION, zoned:OPS/SIZE:OPS/SIZE",
    ),
    load("iodepth", count(16_384), "operations in flight of each job"),
    load(
        "jobs",
        count(1024),
        "jobs (rados-bench: processes), each with its own connections; 16 threads a client CPU at most",
    ),
    load("load_hosts", from_0(64), "hosts of sweep --load-hosts that the jobs are dealt to; 0 is this host"),
    load("processes", count(1024), "processes that the jobs are dealt to (fio-rados, fio-rbd)"),
    load("size_bytes", Kind::Bytes, "bytes that the load spreads over"),
    load("volumes", count(1024), "rbd images that the load spreads over (fio-rbd)"),
    load("objects", count(1 << 22), "objects of 4 MiB that the load spreads over"),
    load("route", Kind::Word(Route::WORDS), "connections of the client"),
    load("rate_iops", Kind::Float, "arrivals per second (open loop)"),
    load(
        "rate_percent",
        from_0(1000),
        "arrivals in percent of the capacity; 0 measures the capacity, closed loop",
    ),
    load(
        "search_step",
        from_0(40),
        "step of the search for the highest rate under search_p99; 0 measures the capacity",
    ),
    load("arrivals", Kind::Word(Arrivals::WORDS), "open loop: evenly spaced or independent"),
    load("cache", Kind::Word(&["cold", "onode-warm", "cached"]), "state of the OSDs' caches"),
    load(
        "client",
        Kind::Word(&["own", "fio-rbd", "fio-rados", "rados-bench", "in-process"]),
        "load generator; in-process: inside the OSD, with a job on each reactor",
    ),
    load(
        "osd_out",
        Kind::Word(&["none", "last"]),
        "OSD that is taken out when the window begins, so that others get its data",
    ),
    load("profile", PROFILE, "flamegraph of the OSDs, taken before the window where perf works"),
    load("seconds", count(86_400), "length of the window, instead of the plan's runtime"),
    axis_of("step", Role::Label, from_0(10_000), "number of a step in a fixed order"),
];

const CPUS: Kind = Kind::CpusOr { max: 4096, word: "no-limit" };
const PROFILE: Kind = Kind::Word(&["none", "oncpu", "offcpu"]);

/// All axes, but for `peer_opt.*`.
pub fn axes() -> impl Iterator<Item = &'static Axis> {
    place_axes().chain(tuning_axes()).chain(OTHERS)
}

/// Settings of a peer are axes, too: `peer_opt.NAME`.
const PEER_OPTION: Axis = layout("peer_opt.*", Kind::Text, "an option of the peer's configuration");

/// The axis of this name.
pub fn axis(name: &str) -> Option<Axis> {
    if name.strip_prefix("peer_opt.").is_some_and(|rest| !rest.is_empty()) {
        return Some(PEER_OPTION);
    }
    axes().find(|axis| axis.name == name).copied()
}

/// Names of all workloads: order, direction, and bytes of an operation.
pub const WORKLOADS: &[&str] = &[
    "randread4k",
    "randwrite4k",
    "randrw4k",
    "randread4m",
    "seqread64k",
    "seqwrite64k",
    "seqread4m",
    "seqwrite4m",
];

/// A mix of operations with a block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    pub rw: Rw,
    pub bs_bytes: u64,
}

/// The workload of this name.
pub fn workload(name: &str) -> Option<Workload> {
    let name = WORKLOADS.iter().find(|known| **known == name)?;
    let (kind, size) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
    let rw = kind.strip_prefix("seq").unwrap_or(kind).parse().ok()?;
    Some(Workload { rw, bs_bytes: parse_bytes(size).ok()? })
}

/// A workload's name with operations of this many bytes: `randread64k` is `randread4k` with 64K.
pub(crate) fn resized(name: &str, bs_bytes: u64) -> String {
    let kind = name.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
    let unit = if bs_bytes.is_multiple_of(1 << 10) { "" } else { "b" };
    format!("{kind}{}{unit}", show_bytes(bs_bytes))
}

/// Least part of a CPU: the kernel's quotas go no lower.
const CPUS_MIN: f64 = 0.01;

/// One value: given, or to be computed from other axes.
#[derive(Clone, Debug, PartialEq)]
pub enum AxisValue {
    Fixed(Value),
    Computed(Expr),
}

impl std::fmt::Display for AxisValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AxisValue::Fixed(Value::String(text)) => f.write_str(text),
            AxisValue::Fixed(value) => value.fmt(f),
            AxisValue::Computed(expr) => f.write_str(&expr.text),
        }
    }
}

/// The values of one axis, in the plan's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// The axis' name; for `peer_opt.*` the whole name.
    pub name: String,
    pub axis: Axis,
    pub values: Vec<AxisValue>,
}

impl Values {
    /// Reads a list or a single value; the error says what the axis takes.
    pub(crate) fn parse(name: &str, given: &toml::Value) -> Result<Values, String> {
        let axis = axis(name).ok_or_else(|| {
            format!("{name} = {given}: no such axis; `carmine sweep --list` shows all axes")
        })?;
        let list = match given {
            toml::Value::Array(list) if list.is_empty() => {
                return Err(format!("{name} = []: give at least one value"));
            }
            toml::Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let one = |given: &toml::Value| {
            one(axis.kind, given).map_err(|why| format!("{name} = {given}: {why} ({})", axis.about()))
        };
        let values = list.iter().map(one).collect::<Result<_, _>>()?;
        Ok(Values { name: name.to_owned(), axis, values })
    }
}

fn one(kind: Kind, given: &toml::Value) -> Result<AxisValue, String> {
    use toml::Value::{Boolean, Float, Integer, String as Text};
    let fixed = match (given, kind) {
        (Text(text), Kind::Text) => Value::from(text.as_str()),
        (Text(text), Kind::Word(words)) if words.contains(&text.as_str()) => Value::from(text.as_str()),
        (Text(text), Kind::WordOrAuto(words)) if text == "auto" || words.contains(&text.as_str()) => {
            Value::from(text.as_str())
        }
        (Text(text), Kind::CpusOr { word, .. }) if text == word => Value::from(word),
        (_, Kind::Word(_) | Kind::WordOrAuto(_)) => return Err(takes(kind)),
        (Integer(_) | Float(_) | Boolean(_), Kind::Text) => Value::from(given.to_string()),
        (Text(text), Kind::Bytes) if parse_bytes(text).is_ok() => {
            Value::from(parse_bytes(text).unwrap_or_default())
        }
        (Text(text), kind) => {
            let expr = Expr::parse(text).map_err(|e| format!("{}; {e}", takes(kind)))?;
            return Ok(AxisValue::Computed(expr));
        }
        (Integer(number), kind) => settle(*number as f64, kind)?,
        (Float(number), Kind::Float | Kind::CpusOr { .. }) => settle(*number, kind)?,
        (_, kind) => return Err(takes(kind)),
    };
    Ok(AxisValue::Fixed(fixed))
}

fn takes(kind: Kind) -> String {
    match kind {
        Kind::Count { min, max } => {
            format!("take a whole number from {min} to {max}, or an expression such as \"2 * osds\"")
        }
        Kind::CpusOr { max, word } => {
            format!("take a number from {CPUS_MIN} to {max}, \"{word}\", or an expression")
        }
        Kind::PowerOfTwo { max } => {
            format!("take a power of two up to {max}, or an expression such as \"100 * osds\"")
        }
        Kind::Bytes => "take bytes such as 4096, \"64K\" or \"1G\", or an expression".to_owned(),
        Kind::Float => "take a number above 0, or an expression".to_owned(),
        Kind::Word(words) => format!("take one of {}", words.join(", ")),
        Kind::WordOrAuto(words) => format!("take one of auto, {}", words.join(", ")),
        Kind::Text => "take a text".to_owned(),
    }
}

/// Whole CPUs as a whole number, so that `1` and `1.0` are one point; else rounded to thousandths, which quotas count in.
fn cpus(number: f64) -> Value {
    let milli = (number * 1e3).round();
    if milli % 1e3 == 0.0 { Value::from((milli / 1e3) as u64) } else { Value::from(milli / 1e3) }
}

/// A number as the axis wants it: rounded, within its range.
pub(crate) fn settle(number: f64, kind: Kind) -> Result<Value, String> {
    let whole = |min: u64, max: u64| {
        let rounded = number.round();
        if rounded < min as f64 || rounded > max as f64 {
            return Err(format!("{number} is out of range; {}", takes(kind)));
        }
        Ok(Value::from(rounded as u64))
    };
    match kind {
        Kind::Count { min, max } => whole(min, max),
        Kind::CpusOr { max, .. } if number >= CPUS_MIN && number <= max as f64 => Ok(cpus(number)),
        Kind::Bytes => whole(1, 1 << 60),
        Kind::PowerOfTwo { max } if number >= 0.5 && number <= max as f64 * 1.4 => {
            Ok(Value::from(1_u64 << (number.log2().round().max(0.0) as u32)))
        }
        Kind::Float if number > 0.0 && number.is_finite() => Ok(Value::from(number)),
        _ => Err(format!("{number} is out of range; {}", takes(kind))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_named_by_what_runs() {
        let names = [512, 4 << 10, 64 << 10, 1 << 20, 6 << 10].map(|bytes| resized("randread4k", bytes));
        assert_eq!(names, ["randread512b", "randread4k", "randread64k", "randread1m", "randread6k"]);
        // The same load has the same name, whatever it is made of.
        for one in WORKLOADS {
            let Workload { rw, bs_bytes } = workload(one).unwrap();
            for other in WORKLOADS.iter().filter(|other| workload(other).unwrap().rw == rw) {
                assert_eq!(resized(other, bs_bytes), *one);
            }
        }
        let seq = workload("seqread64k").unwrap();
        assert_eq!((seq.rw, seq.bs_bytes), (Rw::Read, 64 << 10));
    }

    fn parse(name: &str, text: &str) -> Result<Values, String> {
        let table: toml::Table = format!("x = {text}").parse().unwrap();
        Values::parse(name, &table["x"])
    }

    fn fixed(name: &str, text: &str) -> Vec<Value> {
        let values = parse(name, text).unwrap().values;
        values.into_iter().map(|v| if let AxisValue::Fixed(v) = v { v } else { panic!("{v:?}") }).collect()
    }

    #[test]
    fn lists_single_values_words_and_sizes() {
        assert_eq!(fixed("osds", "[1, 3]"), [1, 3]);
        assert_eq!(fixed("osds", "2"), [2]);
        assert_eq!(fixed("cpus", "[1, \"no-limit\"]"), [Value::from(1), Value::from("no-limit")]);
        let some = [Value::from(0.5), Value::from(2), Value::from(1.333)];
        assert_eq!(fixed("cpus", "[0.5, 2.0, 1.3333]"), some, "whole ones are whole numbers");
        assert_eq!(fixed("osd_memory_bytes", "\"2G\""), [2_u64 << 30]);
        assert_eq!(fixed("store", "\"cyan\""), ["cyan"]);
        assert_eq!(fixed("rate_iops", "[0.5, 100]"), [0.5, 100.0]);
        assert_eq!(fixed("peer_opt.osd_op_num_shards", "8"), ["8"]);
        assert!(matches!(&parse("pgs", "\"100 * osds\"").unwrap().values[0], AxisValue::Computed(_)));
    }

    #[test]
    fn powers_of_two_are_rounded_to_the_nearest() {
        let pgs = axis("pgs").unwrap().kind;
        for (given, got) in
            [(100.0, 128), (300.0, 256), (1.0, 1), (0.6, 1), (64.0, 64), (90.0, 64), (91.0, 128)]
        {
            assert_eq!(settle(given, pgs), Ok(Value::from(got)), "{given}");
        }
        assert!(settle(1e9, pgs).is_err() && settle(0.0, pgs).is_err());
    }

    #[test]
    fn wrong_values_say_what_to_take() {
        for (name, text, part) in [
            ("osds", "0", "1 to 1024"),
            ("osds", "[]", "at least one"),
            ("osds", "true", "whole number"),
            ("store", "\"sea\"", "cyan, null, blue"),
            ("pgs", "\"100 * (osds\"", "expression"),
            ("rate_iops", "-1", "above 0"),
            ("cpus", "0.001", "0.01 to 4096"),
            ("cpus", "nan", "0.01 to 4096"),
            ("reactors", "0.5", "whole number"),
        ] {
            let error = parse(name, text).unwrap_err();
            assert!(error.contains(part) && error.starts_with(name), "{error}");
        }
    }
}
