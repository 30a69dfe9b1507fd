//! The figures that Carmine's OSDs report of themselves at both ends of a window, with any load generator.

use anyhow::{Context as _, Result};
use carmine_load::window::{MetricsWindow, OsdWindow, ReactorWindow, Window};
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// The questions to an OSD: its metrics, and the PGs of each reactor.
pub(crate) const QUESTIONS: [&str; 2] = [r#"{"prefix":"dump_metrics"}"#, r#"{"prefix":"status"}"#];

/// The answers of an OSD; null if it gave none.
#[derive(Clone, Debug, Default)]
pub(crate) struct OsdDump {
    /// `shards[]`, each with `reactor` (the reactor's statistics), and counters of the store and the OSD by name, wherever they
    /// are in a shard.
    pub(crate) metrics: Value,
    /// PGs of each reactor.
    pgs: Vec<u32>,
}

impl OsdDump {
    /// Reads the answers to [`QUESTIONS`].
    pub(crate) fn parse([metrics, status]: [&str; 2]) -> Result<OsdDump> {
        let json = |text: &str| serde_json::from_str::<Value>(text).context("the answer is not JSON");
        let pgs = serde_json::from_value(json(status)?["pgs_per_reactor"].take()).unwrap_or_default();
        Ok(OsdDump { metrics: json(metrics)?, pgs })
    }
}

fn shards(metrics: &Value) -> &[Value] {
    metrics["shards"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Adds the OSDs' metrics at the beginning and the end of the window to the kernel's. Missing values stay unknown.
pub(crate) fn add_dumps(window: &mut Window, before: &[OsdDump], after: &[OsdDump]) {
    for (osd, (before, after)) in window.osds.iter_mut().zip(before.iter().zip(after)) {
        let difference = difference(&before.metrics, &after.metrics);
        if !before.metrics.is_null() {
            add_clocks(osd, &difference, after);
        }
        let (start, end) = (before.metrics.clone(), after.metrics.clone());
        window.metrics.push(MetricsWindow { osd: osd.id, start, end, difference });
    }
}

fn add_clocks(osd: &mut OsdWindow, difference: &Value, end: &OsdDump) {
    let grown = shards(difference);
    let reactors = grown.iter().zip(shards(&end.metrics)).zip(0..);
    osd.reactors =
        reactors.filter_map(|((grown, now), shard)| reactor(shard, grown, now, &end.pgs)).collect();
    osd.feeder_ns = difference.pointer("/kv/feeder_cpu_ns").and_then(Value::as_u64);
    osd.device_reads = sum(grown, "device_reads");
    osd.client_ops = sum(grown, "ops");
    osd.hopped_ops = sum(grown, "hopped_ops");
    osd.wire_bytes = wire_bytes(grown);
}

/// Bytes that came in, and bytes that went out to anybody but other OSDs, which count those as coming in.
fn wire_bytes(grown: &[Value]) -> Option<u64> {
    let sent = sum(grown, "sent_bytes")?.saturating_sub(sum(grown, "sent_to_osds_bytes")?);
    Some(sum(grown, "received_bytes")? + sent)
}

/// A reactor's four clocks are made of the kernel's and its own, so that one of them may fall by this much.
const JITTER_NS: i64 = 10_000_000;

fn reactor(shard: u32, grown: &Value, now: &Value, pgs: &[u32]) -> Option<ReactorWindow> {
    let mut clocks = grown.get("reactor")?.clone();
    for clock in clocks.as_object_mut()?.values_mut() {
        if clock.as_i64().is_some_and(|ns| (-JITTER_NS..0).contains(&ns)) {
            *clock = 0.into();
        }
    }
    // A counter that fell has begun anew: nothing is known about the time in between.
    let clocks = ReactorWindow::deserialize(clocks).ok()?;
    let tid = now["reactor"]["tid"].as_u64().and_then(|tid| u32::try_from(tid).ok()).unwrap_or(0);
    Some(ReactorWindow { shard, tid, pgs: pgs.get(shard as usize).copied(), ..clocks })
}

/// `end` less `start`, number by number; for a histogram that leaves only its counts, its sum and what follows from them.
pub(crate) fn difference(start: &Value, end: &Value) -> Value {
    match (start, end) {
        (Value::Object(old), Value::Object(new)) => {
            let grown = new.iter().map(|(key, now)| match old.get(key) {
                Some(old) if key != "le" => (key.clone(), difference(old, now)),
                _ => (key.clone(), now.clone()),
            });
            let mut grown: Map<String, Value> = grown.collect();
            if new.contains_key("p50") || new.contains_key("buckets") {
                between(old, new, &mut grown);
            }
            Value::Object(grown)
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            Value::Array(old.iter().zip(new).map(|(old, now)| difference(old, now)).collect())
        }
        (Value::Number(old), Value::Number(now)) => match (old.as_i64(), now.as_i64()) {
            (Some(old), Some(now)) => Value::from(now.saturating_sub(old)),
            _ => Value::from(now.as_f64().unwrap_or(0.0) - old.as_f64().unwrap_or(0.0)),
        },
        _ => end.clone(),
    }
}

/// Percentiles of a histogram in a dump.
const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p95", 95.0), ("p99", 99.0), ("p999", 99.9)];

/// Corrects what cannot be subtracted: the mean follows from the counts, percentiles from the buckets, if there are any.
fn between(old: &Map<String, Value>, new: &Map<String, Value>, grown: &mut Map<String, Value>) {
    let number = |map: &Map<String, Value>, name: &str| map.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let sum = |map| number(map, "mean") * number(map, "count");
    let mean = (sum(new) - sum(old)) / (number(new, "count") - number(old, "count"));
    grown.entry("mean").and_modify(|value| *value = mean.into());
    ["min", "max"]
        .into_iter()
        .chain(PERCENTILES.map(|(name, _)| name))
        .for_each(|name| _ = grown.remove(name));
    let counted = [Value::Object(grown.clone())];
    let known = PERCENTILES
        .into_iter()
        .filter_map(|(name, at)| Some((name.to_owned(), percentile(&counted, at)?.into())));
    grown.extend(known);
}

/// A percentile of several histograms together, interpolated within their buckets (`le`: upper bound, `count`: values up to it).
pub(crate) fn percentile(histograms: &[Value], percent: f64) -> Option<f64> {
    let sum = |place: &str| histograms.iter().filter_map(|one| one.pointer(place)?.as_f64()).sum::<f64>();
    let rank = sum("/count") * percent / 100.0;
    let (mut low, mut below) = (0.0, 0.0);
    for (at, bucket) in histograms.first()?["buckets"].as_array()?.iter().enumerate() {
        let Some(high) = bucket["le"].as_f64() else { break };
        let upto = sum(&format!("/buckets/{at}/count"));
        if upto >= rank && upto > below {
            return Some(low + (high - low) * (rank - below) / (upto - below));
        }
        (low, below) = (high, upto);
    }
    (rank > 0.0).then_some(low)
}

/// Sum of a counter over the shards, `None` if none has it.
fn sum(shards: &[Value], name: &str) -> Option<u64> {
    shards.iter().filter_map(|shard| find(shard, name)).reduce(|sum, n| sum + n)
}

fn find(value: &Value, name: &str) -> Option<u64> {
    let map = value.as_object()?;
    map.get(name).and_then(Value::as_u64).or_else(|| map.values().find_map(|inner| find(inner, name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dump(busy: u64, reads: u64) -> Value {
        let shard = |tid: u64| {
            json!({"reactor": {"tid": tid, "busy_ns": busy, "spin_ns": 5, "sleep_ns": 6, "wait_ns": 7, "hops_sent": busy},
                   "net": {"sent_bytes": busy, "sent_to_osds_bytes": reads, "received_bytes": 2 * busy},
                   "store": {"blue": {"device_reads": reads}}})
        };
        json!({"shards": [shard(11), shard(12)], "kv": {"feeder_cpu_ns": busy}})
    }

    fn window(start: Value, end: Value) -> OsdWindow {
        let mut window = Window { osds: vec![OsdWindow::default()], ..Window::default() };
        let status = json!({"pgs_per_reactor": [3, 4]});
        let dump = |metrics: Value| OsdDump::parse([&metrics.to_string(), &status.to_string()]).unwrap();
        let [start, end] = [start, end].map(|metrics| [dump(metrics)]);
        add_dumps(&mut window, &start, &end);
        window.osds.remove(0)
    }

    #[test]
    fn differences_of_two_dumps() {
        let window = window(dump(100, 4), dump(110, 9));
        assert_eq!(window.device_reads, Some(10));
        assert_eq!((window.hopped_ops, window.feeder_ns), (None, Some(10)));
        // Two shards, each 10 sent (5 of them to OSDs) and 20 received.
        assert_eq!(window.wire_bytes, Some(2 * (10 - 5 + 20)));
        let r = &window.reactors[1];
        assert_eq!((r.shard, r.tid, r.busy_ns, r.spin_ns, r.hops, r.pgs), (1, 12, 10, 0, 10, Some(4)));
    }

    #[test]
    fn a_clock_that_falls_a_little_is_no_restart() {
        let fallen = window(dump(110, 4), dump(100, 9));
        assert_eq!(fallen.reactors.iter().map(|reactor| reactor.busy_ns).collect::<Vec<_>>(), [0, 0]);
        assert!(window(dump(20_000_000, 4), dump(100, 9)).reactors.is_empty(), "it began anew");
    }

    #[test]
    fn differences_keep_the_shape() {
        let start = json!({"shard": 1, "a": {"n": 5, "f": 1.5, "s": "x"}, "list": [1, 2], "short": [1]});
        let end =
            json!({"shard": 1, "a": {"n": 3, "f": 2.0, "s": "y", "new": 7}, "list": [4, 2], "short": [1, 2]});
        let want = json!({"shard": 0, "a": {"n": -2, "f": 0.5, "s": "y", "new": 7}, "list": [3, 0], "short": [1, 2]});
        assert_eq!(difference(&start, &end), want);
    }

    #[test]
    fn a_histogram_of_the_time_between_has_no_percentiles_of_all_time() {
        let summary = |count: u64, mean: f64, p50: u64| json!({"count": count, "mean": mean, "min": 1, "max": 900, "p50": p50, "p95": 8, "p99": 9, "p999": 9});
        // 10 slow ones at first, then 30 fast ones: the median falls, and nothing gives the median of the time in between.
        let between = difference(&summary(10, 500.0, 500), &summary(40, 200.0, 100));
        assert_eq!(between, json!({"count": 30, "mean": 100.0}));
        let buckets = |count: u64, upto: [u64; 2]| {
            let buckets = json!([{"le": 100, "count": upto[0]}, {"le": 200, "count": upto[1]}]);
            json!({"sum": 100 * count, "count": count, "buckets": buckets})
        };
        let between = difference(&buckets(10, [0, 10]), &buckets(30, [10, 30]));
        let want = json!({
            "sum": 2000, "count": 20, "buckets": [{"le": 100, "count": 10}, {"le": 200, "count": 20}],
            "p50": 100.0, "p95": 190.0, "p99": 198.0, "p999": 199.8,
        });
        assert_eq!(between, want);
        let same = difference(&buckets(10, [0, 10]), &buckets(10, [0, 10]));
        assert!(same["count"] == 0 && same.get("p50").is_none(), "{same}");
    }

    #[test]
    fn strange_dumps_are_empty() {
        for dump in [json!(null), json!({"shards": 3}), json!({"shards": [{"reactor": {"busy_ns": "x"}}, 4]})]
        {
            assert_eq!(window(dump.clone(), dump), OsdWindow::default());
        }
        assert_eq!(window(json!(null), dump(100, 4)), OsdWindow::default(), "asked at one end only");
    }
}
