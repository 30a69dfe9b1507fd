//! `perf dump`, `perf schema`, and what the manager is told: the counters of the OSD under Ceph's names, as far as they mean the same;
//! everything else is in `dump_metrics`. All use one table, so that they show the same counters.

use std::rc::Rc;

use carmine_metrics::{Histogram, MetricSet};
use carmine_wire::mgr_msg::{CounterType, CounterValue, counter_kind as kind, counter_unit as unit};
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
    served: u64,
    /// PGs that it leads.
    led: u64,
    /// Operations in flight.
    busy: u64,
    /// Of the whole OSD: its map's epoch, and its store.
    epoch: u64,
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
}

impl Sums {
    fn shard(osd: &OsdShard) -> Sums {
        let pgs = osd.pgs.borrow();
        let mut sums = Sums { metrics: osd.metrics_now(), ..Sums::default() };
        for pg in pgs.values() {
            pg.each_op(|_| sums.busy += 1);
            sums.served += u64::from(pg.peer.acting().contains(osd.config.id));
            sums.led += u64::from(pg.peer.leads());
        }
        sums
    }

    fn add(&mut self, other: &Sums) {
        self.metrics.merge_from(&other.metrics);
        self.served += other.served;
        self.led += other.led;
        self.busy += other.busy;
    }
}

/// A counter: its name, its unit, Ceph's short name, which only some have, its priority (10 is the highest), a description, and
/// its value. Types, units, priorities and short names are those of a Ceph 16.2.15.
type Counter<T> = (&'static str, &'static str, &'static str, u8, &'static str, fn(&Sums) -> T);

const NONE: &str = "none";
const BYTES: &str = "bytes";

/// Kinds of counters.
const COUNT: u8 = kind::U64 | kind::COUNTER;
const GAUGE: u8 = kind::U64;
const TIME: u8 = kind::TIME | kind::AVERAGE;

/// Numbers that only grow.
const COUNTS: [Counter<u64>; 10] = [
    ("op", NONE, "ops", 10, "Operations of clients", |s| s.metrics.ops),
    ("op_r", NONE, "", 5, "Reads of clients", |s| s.metrics.read_ops),
    ("op_w", NONE, "", 5, "Writes of clients", |s| s.metrics.write_ops),
    ("op_out_bytes", BYTES, "rd", 8, "Bytes that clients have read", |s| s.metrics.read_bytes),
    ("op_r_out_bytes", BYTES, "", 5, "Bytes that reads have returned", |s| s.metrics.read_bytes),
    ("op_in_bytes", BYTES, "wr", 8, "Bytes that clients have written", |s| s.metrics.write_bytes),
    ("op_w_in_bytes", NONE, "", 5, "Bytes that writes have brought", |s| s.metrics.write_bytes),
    ("subop", NONE, "", 0, "Operations for other OSDs", |s| s.metrics.replica_ops),
    ("subop_w", NONE, "", 0, "Writes for other OSDs", |s| s.metrics.replica_ops),
    ("recovery_ops", NONE, "rop", 8, "Objects that were copied to other OSDs", |s| s.metrics.objects_pushed),
];

/// Current values.
const GAUGES: [Counter<u64>; 9] = [
    ("op_wip", NONE, "", 5, "Operations that are not answered yet", |s| s.busy),
    ("numpg", NONE, "pgs", 5, "Placement groups", |s| s.served),
    ("numpg_primary", NONE, "", 0, "Placement groups that this OSD leads", |s| s.led),
    ("numpg_replica", NONE, "", 0, "Placement groups that another OSD leads", |s| {
        s.served.saturating_sub(s.led)
    }),
    ("numpg_stray", NONE, "", 0, "Placement groups that wait to be removed", |_| 0),
    ("osd_map_epoch", NONE, "", 0, "Epoch of the map", |s| s.epoch),
    ("stat_bytes", BYTES, "size", 5, "Size of the store", |s| s.total_bytes),
    ("stat_bytes_used", BYTES, "used", 5, "Used space", |s| s.used_bytes),
    ("stat_bytes_avail", BYTES, "", 0, "Free space", |s| s.free_bytes),
];

/// Times of operations, and how many they are of.
const TIMES: [Counter<Histogram>; 3] = [
    ("op_latency", NONE, "l", 9, "Time of operations, the queues included", |s| {
        let mut both = s.metrics.read_latency_ns.clone();
        both.merge(&s.metrics.write_latency_ns);
        both
    }),
    ("op_r_latency", NONE, "", 5, "Time of reads, the queues included", |s| {
        s.metrics.read_latency_ns.clone()
    }),
    ("op_w_latency", NONE, "", 5, "Time of writes, the queues included", |s| {
        s.metrics.write_latency_ns.clone()
    }),
];

/// A time in Ceph's format.
fn time(times: &Histogram) -> Value {
    let (count, sum_s) = (times.count(), times.sum() as f64 / 1e9);
    json!({ "avgcount": count, "sum": sum_s, "avgtime": if count == 0 { 0.0 } else { sum_s / count as f64 } })
}

/// The inputs of the whole OSD.
async fn sums(osd: &OsdShard) -> Sums {
    let space = osd.store.statfs();
    let mut sums = Sums {
        epoch: osd.epoch().0.into(),
        total_bytes: space.total,
        used_bytes: space.used,
        free_bytes: space.free,
        ..Sums::default()
    };
    osd.on_all(|osd| Sums::shard(osd)).await.iter().for_each(|part| sums.add(part));
    sums
}

/// All counters, or those in the question's section and with its name.
pub(super) async fn dump(osd: &Rc<OsdShard>, question: &Value) -> Value {
    let sums = sums(osd).await;
    let is_asked = |parameter: &str, name: &str| {
        question[parameter].as_str().is_none_or(|asked| asked.is_empty() || asked == name)
    };
    let numbers = COUNTS.iter().chain(&GAUGES).map(|(name, .., value)| (*name, json!(value(&sums))));
    let times = TIMES.iter().map(|(name, .., value)| (*name, time(&value(&sums))));
    let asked = numbers.chain(times).filter(|(name, _)| is_asked("counter", name));
    let values: Map<String, Value> = asked.map(|(name, value)| (name.to_owned(), value)).collect();
    match is_asked("logger", SECTION) && !values.is_empty() {
        true => json!({ SECTION: values }),
        false => json!({}),
    }
}

pub(super) fn schema() -> Value {
    let counts = COUNTS.iter().map(|counter| described(counter, (COUNT, "counter", "integer")));
    let gauges = GAUGES.iter().map(|counter| described(counter, (GAUGE, "gauge", "integer")));
    let times = TIMES.iter().map(|counter| described(counter, (TIME, "gauge", "real-integer-pair")));
    json!({ SECTION: counts.chain(gauges).chain(times).collect::<Map<_, _>>() })
}

/// A counter without its value, with Ceph's number and words for its kind.
fn described<T>(
    counter: &Counter<T>,
    (number, metric_type, value_type): (u8, &str, &str),
) -> (String, Value) {
    let (name, units, nick, priority, description, _) = *counter;
    let about = json!({
        "type": number, "metric_type": metric_type, "value_type": value_type, "description": description,
        "nick": nick, "priority": priority, "units": units,
    });
    (name.to_owned(), about)
}

/// The declaration and the value of each counter, as the manager receives them, ascending by path.
pub(crate) async fn counters(osd: &OsdShard) -> Vec<(CounterType, CounterValue)> {
    let sums = sums(osd).await;
    let number = |counter: &Counter<u64>| CounterValue::Number((counter.5)(&sums));
    let average = |counter: &Counter<Histogram>| {
        let times = (counter.5)(&sums);
        CounterValue::Average { sum_ns: u64::try_from(times.sum()).unwrap_or(u64::MAX), count: times.count() }
    };
    let counts = COUNTS.iter().map(|counter| (declared(counter, COUNT), number(counter)));
    let gauges = GAUGES.iter().map(|counter| (declared(counter, GAUGE), number(counter)));
    let times = TIMES.iter().map(|counter| (declared(counter, TIME), average(counter)));
    let mut all: Vec<_> = counts.chain(gauges).chain(times).collect();
    all.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
    all
}

fn declared<T>(counter: &Counter<T>, kind: u8) -> CounterType {
    let (name, units, nick, priority, description, _) = *counter;
    CounterType {
        path: format!("{SECTION}.{name}"),
        description: description.to_owned(),
        nick: nick.to_owned(),
        kind,
        priority,
        unit: if units == BYTES { unit::BYTES } else { unit::NONE },
    }
}
