//! An OSD's own clocks, from its `dump_metrics`.

use carmine_load::window::{OsdWindow, ReactorWindow};
use serde_json::Value;

/// Counters of an OSD at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdClocks {
    reactors: Vec<ReactorWindow>,
    feeder_ns: Option<u64>,
    device_reads: Option<u64>,
    hopped_ops: Option<u64>,
    wire_bytes: Option<u64>,
}

/// Reads a `dump_metrics` answer: `shards[]`, each with `reactor` (the reactor's statistics), and counters of the store
/// and the OSD by name, wherever they are in a shard. What is missing stays unknown.
pub fn clocks(dump: &Value) -> OsdClocks {
    let shards = dump.get("shards").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    OsdClocks {
        reactors: shards.iter().zip(0..).filter_map(|(shard, at)| reactor(shard, at)).collect(),
        feeder_ns: dump.pointer("/kv/feeder_cpu_ns").and_then(Value::as_u64),
        device_reads: sum(shards, "device_reads"),
        hopped_ops: sum(shards, "hopped_ops"),
        wire_bytes: wire_bytes(shards),
    }
}

/// What came in, and what went out to anybody but other OSDs: those count it as coming in.
fn wire_bytes(shards: &[Value]) -> Option<u64> {
    let sent = sum(shards, "sent_bytes")?.saturating_sub(sum(shards, "sent_to_osds_bytes")?);
    Some(sum(shards, "received_bytes")? + sent)
}

fn reactor(shard: &Value, at: u32) -> Option<ReactorWindow> {
    let stats = shard.get("reactor")?;
    let number = |name: &str| stats.get(name).or_else(|| shard.get(name)).and_then(Value::as_u64);
    Some(ReactorWindow {
        shard: at,
        tid: number("tid").and_then(|tid| u32::try_from(tid).ok()).unwrap_or(0),
        busy_ns: number("busy_ns")?,
        spin_ns: number("spin_ns")?,
        sleep_ns: number("sleep_ns")?,
        wait_ns: number("wait_ns")?,
        hops: number("hops_sent").unwrap_or(0),
        buf_fallbacks: number("buf_fallbacks").unwrap_or(0),
        bytes_copied: number("bytes_copied").unwrap_or(0),
        pgs: None,
    })
}

/// Every number of `end` less the one at the same place of `start`; numbers that fell (gauges) become negative, new ones
/// stay. Everything else is as in `end`.
pub fn difference(start: &Value, end: &Value) -> Value {
    match (start, end) {
        (Value::Object(old), Value::Object(new)) => {
            let none = Value::Null;
            let pairs =
                new.iter().map(|(key, now)| (key.clone(), difference(old.get(key).unwrap_or(&none), now)));
            Value::Object(pairs.collect())
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

/// Sum of a counter over the shards, `None` if none has it.
fn sum(shards: &[Value], name: &str) -> Option<u64> {
    let found: Vec<u64> = shards.iter().filter_map(|shard| find(shard, name)).collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

fn find(value: &Value, name: &str) -> Option<u64> {
    let Value::Object(map) = value else { return None };
    match map.get(name).and_then(Value::as_u64) {
        Some(number) => Some(number),
        None => map.values().find_map(|inner| find(inner, name)),
    }
}

impl OsdClocks {
    /// Puts what happened since `before` into a window.
    pub fn add_to(&self, before: &OsdClocks, window: &mut OsdWindow) {
        let since = |now: Option<u64>, old: Option<u64>| Some(now?.saturating_sub(old?));
        window.feeder_ns = since(self.feeder_ns, before.feeder_ns);
        window.device_reads = since(self.device_reads, before.device_reads);
        window.hopped_ops = since(self.hopped_ops, before.hopped_ops);
        window.wire_bytes = since(self.wire_bytes, before.wire_bytes);
        window.reactors =
            self.reactors.iter().zip(&before.reactors).map(|(now, old)| reactor_since(now, old)).collect();
    }
}

fn reactor_since(now: &ReactorWindow, old: &ReactorWindow) -> ReactorWindow {
    let since = |counter: fn(&ReactorWindow) -> u64| counter(now).saturating_sub(counter(old));
    ReactorWindow {
        shard: now.shard,
        tid: now.tid,
        busy_ns: since(|r| r.busy_ns),
        spin_ns: since(|r| r.spin_ns),
        sleep_ns: since(|r| r.sleep_ns),
        wait_ns: since(|r| r.wait_ns),
        hops: since(|r| r.hops),
        buf_fallbacks: since(|r| r.buf_fallbacks),
        bytes_copied: since(|r| r.bytes_copied),
        pgs: now.pgs,
    }
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

    #[test]
    fn differences_of_two_dumps() {
        let mut window = OsdWindow::default();
        clocks(&dump(110, 9)).add_to(&clocks(&dump(100, 4)), &mut window);
        assert_eq!(window.device_reads, Some(10));
        assert_eq!((window.hopped_ops, window.feeder_ns), (None, Some(10)));
        // Two shards, each 10 sent (5 of them to OSDs) and 20 received.
        assert_eq!(window.wire_bytes, Some(2 * (10 - 5 + 20)));
        let r = &window.reactors[1];
        assert_eq!((r.shard, r.tid, r.busy_ns, r.spin_ns, r.hops), (1, 12, 10, 0, 10));
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
    fn strange_dumps_are_empty() {
        for dump in [json!(null), json!({"shards": 3}), json!({"shards": [{"reactor": {"busy_ns": "x"}}, 4]})]
        {
            assert_eq!(clocks(&dump), OsdClocks::default());
        }
    }
}
