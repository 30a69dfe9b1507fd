//! Metrics of many shards under one name each: what is shown to the outside.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{Histogram, Kind, MetricInfo, MetricSet};

/// Upper bounds within a power of ten at which a distribution is cut: fine enough to interpolate a percentile within 20 %.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
/// The lowest bound is ten of these: 10 µs for times in nanoseconds.
const FIRST_UNIT: u64 = 1_000;
/// Powers of ten that are cut: from 10 µs to 10 s for times in nanoseconds. Above is the rest.
const DECADES: u32 = 6;

/// One label and its value.
pub type Label = (&'static str, String);

/// A value as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Sample {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Level(f64),
    /// Of a histogram.
    Histogram(Distribution),
}

/// A histogram cut at fixed bounds, so that the difference of two readings is a histogram of the time between.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// (upper bound, values up to it), ascending and cumulative; values above the last bound are only in `count`.
    pub buckets: Vec<(u64, u64)>,
    /// Sum of all values.
    pub sum: u64,
    /// Number of values.
    pub count: u64,
}

impl Distribution {
    /// Cuts `histogram`. A value counts below a bound if its bucket (0.1 % wide) ends there or earlier.
    pub fn from_histogram(histogram: &Histogram) -> Distribution {
        let sparse = histogram.to_sparse();
        let mut values = sparse.buckets.iter().peekable();
        let mut below = 0;
        let bounds = (0..DECADES).flat_map(|d| STEPS.map(|step| step * FIRST_UNIT * 10_u64.pow(d)));
        let buckets = bounds.map(|bound| {
            while let Some((_, n)) = values.next_if(|(value, _)| *value <= bound + bound / 1_000) {
                below += n;
            }
            (bound, below)
        });
        Distribution { buckets: buckets.collect(), sum: sparse.sum, count: sparse.count }
    }
}

/// One shard's value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Which shard, and what else tells it from the others.
    pub labels: Vec<Label>,
    /// Its value.
    pub sample: Sample,
}

/// A metric with the values of all shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Name, kind and description.
    pub info: MetricInfo,
    /// In the order in which they were added.
    pub series: Vec<Series>,
}

/// All metrics of a process, in the order of their first appearance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Families(Vec<Family>);

impl Families {
    /// Adds every metric that `set` shows, with these labels.
    pub fn add_set<S: MetricSet>(&mut self, labels: &[Label], set: &S) {
        set.each(&mut |info, sample| self.add(info, labels.to_vec(), sample));
    }

    /// Adds one value.
    pub fn add(&mut self, info: MetricInfo, labels: Vec<Label>, sample: Sample) {
        self.family(info).series.push(Series { labels, sample });
    }

    /// Adds the values of another shard.
    pub fn merge(&mut self, other: Families) {
        for family in other.0 {
            self.family(family.info).series.extend(family.series);
        }
    }

    fn family(&mut self, info: MetricInfo) -> &mut Family {
        let at = self.0.iter().position(|family| family.info.name == info.name).unwrap_or_else(|| {
            self.0.push(Family { info, series: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Family> {
        self.0.iter()
    }

    /// The metrics whose names begin with `prefix`, described:
    /// `[{"name": …, "kind": …, "unit": …, "description": …, "values": [{"shard": "0", "value": …}, …]}, …]`.
    pub fn describe_json(&self, prefix: &str) -> Value {
        let families = self.0.iter().filter(|family| family.info.name.starts_with(prefix)).map(|family| {
            json!({
                "name": family.info.name,
                "kind": family.info.kind.name(),
                "unit": family.info.unit(),
                "description": family.info.description,
                "values": family.series.iter().map(Series::to_json).collect::<Vec<_>>(),
            })
        });
        Value::Array(families.collect())
    }

    /// One object per value, as Crimson's `dump_metrics` has them: `[{"NAME": {"shard": "0", "value": …}}, …]`.
    pub fn flat_json(&self) -> Value {
        let flat = |family: &Family| -> Vec<Value> {
            family.series.iter().map(|series| json!({ family.info.name: series.to_json() })).collect()
        };
        Value::Array(self.0.iter().flat_map(flat).collect())
    }
}

impl Series {
    fn to_json(&self) -> Value {
        let labels = self.labels.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into()));
        let mut map: serde_json::Map<String, Value> = labels.collect();
        map.insert("value".to_owned(), self.sample.to_json());
        Value::Object(map)
    }
}

impl Sample {
    fn to_json(&self) -> Value {
        match self {
            Sample::Count(count) => (*count).into(),
            Sample::Level(level) => (*level).into(),
            Sample::Histogram(d) => {
                let bucket = |(le, count): &(u64, u64)| json!({ "le": le, "count": count });
                json!({
                    "sum": d.sum, "count": d.count,
                    "buckets": d.buckets.iter().map(bucket).collect::<Vec<_>>(),
                })
            }
        }
    }

    /// The value of a field of this name as `info` shows it: its name tells the unit.
    pub fn in_unit_of(self, info: &MetricInfo, field: &str) -> Sample {
        match self {
            Sample::Count(ns) if field.ends_with("_ns") && info.unit() == "ms" => {
                Sample::Count(ns / 1_000_000)
            }
            other => other,
        }
    }

    /// The kind of metric that has such values.
    pub fn fits(&self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Sample::Count(_), Kind::Counter)
                | (Sample::Level(_), Kind::Gauge)
                | (Sample::Histogram(_), Kind::Histogram)
        )
    }
}

// Prometheus' text format (version 0.0.4) of metrics.

impl Families {
    /// Renders all metrics. Every value carries `labels` (such as `("osd", "0")`) before its own.
    pub fn prometheus(&self, labels: &[(&str, String)]) -> String {
        let mut text = String::new();
        for family in self.iter() {
            let (name, kind, unit) = (family.info.name, family.info.kind.name(), family.info.unit());
            let description = escape_help(family.info.description);
            // Writing to a String does not fail.
            let _ = writeln!(text, "# HELP {name} {description} Unit: {unit}.\n# TYPE {name} {kind}");
            family.series.iter().for_each(|series| render(&mut text, name, labels, series));
        }
        text
    }
}

fn render(text: &mut String, name: &str, common: &[(&str, String)], series: &Series) {
    let labels = |more: Option<String>| {
        let all = common.iter().chain(&series.labels).map(|(name, value)| pair(name, value));
        let all: Vec<String> = all.chain(more.map(|bound| pair("le", &bound))).collect();
        if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
    };
    match &series.sample {
        Sample::Count(count) => {
            let _ = writeln!(text, "{name}{} {count}", labels(None));
        }
        Sample::Level(level) => {
            let _ = writeln!(text, "{name}{} {level}", labels(None));
        }
        Sample::Histogram(d) => {
            for (bound, count) in &d.buckets {
                let _ = writeln!(text, "{name}_bucket{} {count}", labels(Some(bound.to_string())));
            }
            let _ = writeln!(text, "{name}_bucket{} {}", labels(Some("+Inf".into())), d.count);
            let _ = writeln!(text, "{name}_sum{} {}", labels(None), d.sum);
            let _ = writeln!(text, "{name}_count{} {}", labels(None), d.count);
        }
    }
}

fn pair(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Descriptions are doc comments: one line each.
fn escape_help(description: &str) -> String {
    description.split_whitespace().collect::<Vec<_>>().join(" ").replace('\\', "\\\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Families, Gauge, Histogram, Level, Max, MetricSet, Sum, metric_set};

    metric_set! {
        /// A test's metrics.
        struct Sampled: "osd" {
            /// Operations answered.
            ops: Sum,
            /// Share of time.
            utilization: Level,
            /// Time in the kernel.
            busy_ns: Sum => "osd_cpu_busy_ms",
            /// Commits of the process.
            commits: Max => "kv_commits",
            /// Operations that the kernel holds.
            held: Gauge => _,
            /// Latency.
            latency_ns: Histogram,
        }
    }

    fn two_shards() -> Families {
        let mut all = Families::default();
        for shard in 0..2_u64 {
            let mut set = Sampled::default();
            set.ops += 3 + shard;
            set.utilization = 12.5;
            set.busy_ns = 5_999_999;
            set.commits = 7;
            set.held = 2;
            set.latency_ns.record(40_000);
            set.latency_ns.record(20_000_000_000);
            let mut own = Families::default();
            own.add_set(&[("shard", shard.to_string())], &set);
            all.merge(own);
        }
        all
    }

    #[test]
    fn shards_share_a_family() {
        let all = two_shards();
        let ops = all.iter().find(|family| family.info.name == "osd_ops").unwrap();
        assert_eq!(ops.series.len(), 2);
        assert_eq!(ops.series[1].sample, Sample::Count(4));
        assert!(all.iter().all(|family| family.series.iter().all(|s| s.sample.fits(family.info.kind))));
    }

    #[test]
    fn units_come_from_the_names() {
        let all = two_shards();
        let units: Vec<&str> = all.iter().map(|family| family.info.unit()).collect();
        assert_eq!(units, ["count", "percent", "ms", "count", "ns"]);
    }

    #[test]
    fn a_counter_that_is_declared_appears_everywhere() {
        let mut set = Sampled { ops: 3, busy_ns: 5_999_999, commits: 7, held: 2, ..Sampled::default() };
        set.merge_from(&Sampled { ops: 4, busy_ns: 1, commits: 6, held: 1, ..Sampled::default() });
        assert_eq!((set.ops, set.busy_ns, set.commits, set.held), (7, 6_000_000, 7, 3));
        let raw = set.to_json();
        assert_eq!((&raw["ops"], &raw["busy_ns"], &raw["held"]), (&json!(7), &json!(6_000_000), &json!(3)));
        let mut shown = Families::default();
        shown.add_set(&[("shard", "0".to_owned())], &set);
        let text = shown.prometheus(&[]);
        for line in [
            "# HELP osd_ops Operations answered. Unit: count.",
            "# TYPE kv_commits counter",
            "kv_commits{shard=\"0\"} 7",
            "osd_cpu_busy_ms{shard=\"0\"} 6",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert!(!text.contains("held"), "{text}");
        let described = shown.describe_json("osd_cpu")[0].clone();
        assert_eq!((&described["unit"], &described["kind"]), (&json!("ms"), &json!("counter")));
        assert_eq!(described["description"], "Time in the kernel.");
        assert_eq!(shown.flat_json()[0], json!({ "osd_ops": { "shard": "0", "value": 7 } }));
    }

    #[test]
    fn a_prefix_selects() {
        let all = two_shards();
        let chosen = all.describe_json("osd_cpu");
        assert_eq!(chosen.as_array().unwrap().len(), 1);
        assert_eq!(chosen[0]["values"][1], json!({ "shard": "1", "value": 5 }));
        assert_eq!(all.describe_json("nothing"), json!([]));
        assert_eq!(all.flat_json()[1], json!({ "osd_ops": { "shard": "1", "value": 4 } }));
    }

    #[test]
    fn a_distribution_keeps_every_value() {
        let mut histogram = Histogram::new();
        (1..=1_000_u64).for_each(|us| histogram.record(us * 1_000));
        histogram.record(60_000_000_000);
        let d = Distribution::from_histogram(&histogram);
        let at = |le| d.buckets.iter().find(|(bound, _)| *bound == le).unwrap().1;
        assert_eq!((at(10_000), at(100_000), at(700_000), at(70_000_000_000 / 10)), (10, 100, 700, 1_000));
        assert_eq!((d.count, d.sum), (1_001, histogram.sum() as u64));
        assert!(d.buckets.is_sorted());
    }

    metric_set! {
        /// A test's metrics.
        struct Shown: "osd" {
            /// Operations
            /// answered.
            ops: Sum,
            /// Bytes held.
            held_bytes: Gauge,
            /// Latency.
            latency_ns: Histogram,
        }
    }

    fn shown() -> Families {
        let mut one = Shown::default();
        one.ops += 2;
        one.held_bytes = 3;
        one.latency_ns.record(12_000);
        let mut two = one.clone();
        two.merge_from(&one);
        let mut families = Families::default();
        for (shard, set) in [(0, &one), (1, &two)] {
            families.add_set(&[("shard", shard.to_string())], set);
        }
        families
    }

    #[test]
    fn renders_every_shard_under_one_heading() {
        let text = shown().prometheus(&[("osd", "1".to_owned())]);
        for line in [
            "# HELP osd_ops Operations answered. Unit: count.",
            "# HELP osd_held_bytes Bytes held. Unit: bytes.",
            "# TYPE osd_latency_ns histogram",
            "osd_ops{osd=\"1\",shard=\"0\"} 2",
            "osd_ops{osd=\"1\",shard=\"1\"} 4",
            "osd_held_bytes{osd=\"1\",shard=\"1\"} 6",
            "osd_latency_ns_bucket{osd=\"1\",shard=\"1\",le=\"10000\"} 0",
            "osd_latency_ns_bucket{osd=\"1\",shard=\"1\",le=\"15000\"} 2",
            "osd_latency_ns_bucket{osd=\"1\",shard=\"1\",le=\"+Inf\"} 2",
            "osd_latency_ns_sum{osd=\"1\",shard=\"1\"} 24000",
            "osd_latency_ns_count{osd=\"1\",shard=\"1\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert_eq!(text.matches("# TYPE osd_ops ").count(), 1);
        assert!(shown().prometheus(&[]).contains("\nosd_ops{shard=\"0\"} 2\n"));
    }

    #[test]
    fn labels_cannot_break_out() {
        let text = shown().prometheus(&[("name", "a\"}\n".to_owned())]);
        assert!(text.contains("osd_ops{name=\"a\\\"}\\n\",shard=\"0\"} 2\n"), "{text}");
    }
}
