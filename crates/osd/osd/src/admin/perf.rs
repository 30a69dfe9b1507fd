//! `perf dump` and `perf schema`: the counters of the OSD under Ceph's names, as far as they mean the same; everything else is in
//! `dump_metrics`. Both commands use one table, so that they show the same counters.

use std::rc::Rc;

use carmine_metrics::{Histogram, MetricSet};
use serde_json::{Map, Value, json};

use crate::metrics::ShardMetrics;
use crate::shard::OsdShard;

/// The only section.
const SECTION: &str = "osd";

/// The counters' inputs, of one shard or summed over several.
#[derive(Default)]
struct Sums {
    metrics: ShardMetrics,
    /// PGs with this OSD in their acting set.
    served: usize,
    /// PGs that it leads.
    led: usize,
    /// Operations in flight.
    busy: usize,
    /// Of the whole OSD: its map's epoch, and its store.
    epoch: u32,
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
}

impl Sums {
    fn shard(osd: &OsdShard) -> Sums {
        let pgs = osd.pgs.borrow();
        let mut busy = 0;
        pgs.values().for_each(|pg| pg.each_op(|_| busy += 1));
        Sums {
            metrics: osd.metrics_now(),
            served: pgs.values().filter(|pg| pg.peer.acting().contains(osd.config.id)).count(),
            led: pgs.values().filter(|pg| pg.peer.leads()).count(),
            busy,
            ..Sums::default()
        }
    }

    fn add(&mut self, other: &Sums) {
        self.metrics.merge_from(&other.metrics);
        self.served += other.served;
        self.led += other.led;
        self.busy += other.busy;
    }
}

/// The kind of a counter, with Ceph's number and words for it.
#[derive(Clone, Copy)]
enum Kind {
    /// A number that only grows.
    Count,
    /// A current value.
    Gauge,
    /// Seconds, and how many times they were added to.
    Time,
}

impl Kind {
    fn words(self) -> (u8, &'static str, &'static str) {
        match self {
            Kind::Count => (10, "counter", "integer"),
            Kind::Gauge => (2, "gauge", "integer"),
            Kind::Time => (5, "gauge", "real-integer-pair"),
        }
    }
}

struct Counter {
    name: &'static str,
    kind: Kind,
    description: &'static str,
    /// Ceph's short name, which only some counters have, and the priority: 10 is the highest.
    nick: &'static str,
    priority: u8,
    units: &'static str,
    value: fn(&Sums) -> Value,
}

const NONE: &str = "none";
const BYTES: &str = "bytes";

const fn counter(
    (name, kind, units): (&'static str, Kind, &'static str),
    (nick, priority): (&'static str, u8),
    description: &'static str,
    value: fn(&Sums) -> Value,
) -> Counter {
    Counter { name, kind, description, nick, priority, units, value }
}

/// Types, units, priorities and short names are those of a Ceph 16.2.15.
const COUNTERS: [Counter; 21] = [
    counter(("op", Kind::Count, NONE), ("ops", 10), "Operations of clients", |s| s.metrics.ops.into()),
    counter(("op_r", Kind::Count, NONE), ("", 5), "Reads of clients", |s| s.metrics.read_ops.into()),
    counter(("op_w", Kind::Count, NONE), ("", 5), "Writes of clients", |s| s.metrics.write_ops.into()),
    counter(("op_out_bytes", Kind::Count, BYTES), ("rd", 8), "Bytes that clients have read", |s| {
        s.metrics.read_bytes.into()
    }),
    counter(("op_r_out_bytes", Kind::Count, BYTES), ("", 5), "Bytes that reads have returned", |s| {
        s.metrics.read_bytes.into()
    }),
    counter(("op_in_bytes", Kind::Count, BYTES), ("wr", 8), "Bytes that clients have written", |s| {
        s.metrics.write_bytes.into()
    }),
    counter(("op_w_in_bytes", Kind::Count, NONE), ("", 5), "Bytes that writes have brought", |s| {
        s.metrics.write_bytes.into()
    }),
    counter(("subop", Kind::Count, NONE), ("", 0), "Operations for other OSDs", |s| {
        s.metrics.replica_ops.into()
    }),
    counter(("subop_w", Kind::Count, NONE), ("", 0), "Writes for other OSDs", |s| {
        s.metrics.replica_ops.into()
    }),
    counter(("op_latency", Kind::Time, NONE), ("l", 9), "Time of operations, the queues included", |s| {
        let mut both = s.metrics.read_latency_ns.clone();
        both.merge(&s.metrics.write_latency_ns);
        time(&both)
    }),
    counter(("op_r_latency", Kind::Time, NONE), ("", 5), "Time of reads, the queues included", |s| {
        time(&s.metrics.read_latency_ns)
    }),
    counter(("op_w_latency", Kind::Time, NONE), ("", 5), "Time of writes, the queues included", |s| {
        time(&s.metrics.write_latency_ns)
    }),
    counter(("op_wip", Kind::Gauge, NONE), ("", 5), "Operations that are not answered yet", |s| {
        s.busy.into()
    }),
    counter(("numpg", Kind::Gauge, NONE), ("pgs", 5), "Placement groups", |s| s.served.into()),
    counter(("numpg_primary", Kind::Gauge, NONE), ("", 0), "Placement groups that this OSD leads", |s| {
        s.led.into()
    }),
    counter(("numpg_replica", Kind::Gauge, NONE), ("", 0), "Placement groups that another OSD leads", |s| {
        s.served.saturating_sub(s.led).into()
    }),
    counter(("numpg_stray", Kind::Gauge, NONE), ("", 0), "Placement groups that wait to be removed", |_| {
        0.into()
    }),
    counter(("osd_map_epoch", Kind::Gauge, NONE), ("", 0), "Epoch of the map", |s| s.epoch.into()),
    counter(("stat_bytes", Kind::Gauge, BYTES), ("size", 5), "Size of the store", |s| s.total_bytes.into()),
    counter(("stat_bytes_used", Kind::Gauge, BYTES), ("used", 5), "Used space", |s| s.used_bytes.into()),
    counter(("stat_bytes_avail", Kind::Gauge, BYTES), ("", 0), "Free space", |s| s.free_bytes.into()),
];

/// A time in Ceph's format.
fn time(times: &Histogram) -> Value {
    let (count, sum_s) = (times.count(), times.sum() as f64 / 1e9);
    json!({ "avgcount": count, "sum": sum_s, "avgtime": if count == 0 { 0.0 } else { sum_s / count as f64 } })
}

/// All counters, or those in the question's section and with its name.
pub(super) async fn dump(osd: &Rc<OsdShard>, question: &Value) -> Value {
    let space = osd.store.statfs();
    let mut sums = Sums {
        epoch: osd.epoch().0,
        total_bytes: space.total,
        used_bytes: space.used,
        free_bytes: space.free,
        ..Sums::default()
    };
    osd.on_all(|osd| Sums::shard(osd)).await.iter().for_each(|part| sums.add(part));
    let is_asked = |parameter: &str, name: &str| {
        question[parameter].as_str().is_none_or(|asked| asked.is_empty() || asked == name)
    };
    let asked = COUNTERS.iter().filter(|counter| is_asked("counter", counter.name));
    let values: Map<String, Value> =
        asked.map(|counter| (counter.name.to_owned(), (counter.value)(&sums))).collect();
    match is_asked("logger", SECTION) && !values.is_empty() {
        true => json!({ SECTION: values }),
        false => json!({}),
    }
}

pub(super) fn schema() -> Value {
    let described = COUNTERS.iter().map(|counter| {
        let (number, metric_type, value_type) = counter.kind.words();
        let about = json!({
            "type": number,
            "metric_type": metric_type,
            "value_type": value_type,
            "description": counter.description,
            "nick": counter.nick,
            "priority": counter.priority,
            "units": counter.units,
        });
        (counter.name.to_owned(), about)
    });
    json!({ SECTION: described.collect::<Map<_, _>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_types_that_the_schema_says() {
        let (schema, sums) = (schema(), Sums::default());
        for counter in &COUNTERS {
            let (about, value) = (&schema[SECTION][counter.name], (counter.value)(&sums));
            match about["value_type"].as_str() {
                Some("integer") => assert!(value.is_u64(), "{}: {value}", counter.name),
                Some("real-integer-pair") => {
                    let has = |part: &str| value[part].is_number();
                    assert!(["avgcount", "sum", "avgtime"].into_iter().all(has), "{}: {value}", counter.name);
                }
                other => panic!("{}: {other:?}", counter.name),
            }
        }
        assert_eq!(schema[SECTION].as_object().map(Map::len), Some(COUNTERS.len()), "a name stands twice");
        let op = &schema[SECTION]["op"];
        assert_eq!(
            (&op["type"], &op["metric_type"], &op["nick"]),
            (&json!(10), &json!("counter"), &json!("ops"))
        );
    }
}
