//! Where a microsecond goes: the CPU time and the waiting of each stage of an operation.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::profile::Profile;
use crate::report::show;
use crate::verdict::Place;
use crate::window::MetricsWindow;

carmine_types::words! {
    /// A stage of an operation in the OSDs, in its order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Stage: "stage" {
        /// The kernel takes bytes from a socket.
        Receive = "receive",
        /// Frames and messages are read and decoded.
        Frame = "frame",
        /// The PG is found, and the operation goes to its reactor.
        Route = "route",
        /// The PG orders, checks and executes.
        Pg = "pg",
        /// The object store: onodes, blocks, checksums.
        Store = "store",
        /// The log of the store, and RocksDB behind it.
        Log = "log",
        /// The kernel reads, writes and flushes the drive.
        Device = "device",
        /// Work for other copies.
        Replicas = "replicas",
        /// Answers are written.
        Reply = "reply",
        /// The kernel puts bytes into a socket.
        Send = "send",
        /// The reactor itself: tasks, timers, its ring, spinning and falling asleep.
        Reactor = "reactor",
    }
}

/// The stage and the place whose waiting each of an OSD's clocks is; see `osd/src/metrics.rs`.
const CLOCKS: [(&str, Stage, Place); 5] = [
    ("queue", Stage::Pg, Place::Queue),
    ("execute", Stage::Store, Place::Store),
    ("store", Stage::Log, Place::Log),
    ("replicate", Stage::Replicas, Place::Replicas),
    ("reply", Stage::Reply, Place::Reply),
];
/// Counts of a shard that are shown for each operation: the name, and where the shard has it.
const COUNTS: [(&str, &str); 5] = [
    ("enters", "/reactor/enters"),
    ("bytes copied", "/reactor/bytes_copied"),
    ("allocations", "/reactor/allocations"),
    ("hops", "/osd/op_hops"),
    ("flushes", "/store/flushes"),
];

/// Samples of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageShare {
    pub stage: Stage,
    /// Of all samples.
    pub percent: f64,
}

/// A stage of a mean operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageCost {
    pub stage: Stage,
    /// CPU time of all OSDs; `None` without a profile.
    pub cpu_ns: Option<f64>,
    /// Time from the stage's beginning to its end. It includes the wait for the drive: in `store` for a read, in `log` for a write.
    pub wait_us: Option<f64>,
}

/// The object `carmine.stages` of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stages {
    pub stages: Vec<StageCost>,
    /// CPU time that is no stage's.
    pub unattributed_ns: Option<f64>,
    /// The rest of the client's mean latency: sockets, the network and the client.
    pub outside_us: Option<f64>,
    /// Counts of the OSDs for each client operation.
    pub per_op: Vec<(String, f64)>,
}

impl Stages {
    /// The stages of `ops` operations with a mean latency of `latency_us` and `cpu_us` of the OSDs' CPU time each.
    pub(crate) fn new(
        profile: Option<&Profile>,
        metrics: &[MetricsWindow],
        (ops, latency_us, cpu_us): (f64, Option<f64>, Option<f64>),
    ) -> Stages {
        let shares = profile.map(|profile| &*profile.stages).filter(|shares| !shares.is_empty());
        let whole = cpu_us.map(|us| us * 10.0).zip(shares);
        let cpu_ns = |stage| {
            let (per_percent, shares) = whole?;
            Some(shares.iter().find(|share| share.stage == stage).map_or(0.0, |s| s.percent * per_percent))
        };
        let wait_us = |stage| {
            let (clock, ..) = CLOCKS.iter().find(|(_, of, _)| *of == stage)?;
            clock_us(metrics, clock, ops)
        };
        let costs = Stage::ALL.iter().map(|stage| StageCost {
            stage: *stage,
            cpu_ns: cpu_ns(*stage),
            wait_us: wait_us(*stage),
        });
        let stages: Vec<StageCost> =
            costs.filter(|cost| cost.cpu_ns > Some(0.0) || cost.wait_us > Some(0.0)).collect();
        let waited: f64 = stages.iter().filter_map(|cost| cost.wait_us).sum();
        let per_op =
            COUNTS.iter().filter_map(|(name, at)| Some(((*name).to_owned(), sum(metrics, at)? / ops)));
        Stages {
            unattributed_ns: whole.map(|(per_percent, shares)| {
                per_percent * (100.0 - shares.iter().map(|share| share.percent).sum::<f64>()).max(0.0)
            }),
            outside_us: latency_us.filter(|_| waited > 0.0).map(|us| us - waited),
            per_op: per_op.collect(),
            stages,
        }
    }

    /// The stages as lines of a table.
    pub(crate) fn lines(&self) -> Vec<String> {
        let show = |figure| show(figure, 1);
        let all: f64 = self.stages.iter().filter_map(|cost| cost.cpu_ns).chain(self.unattributed_ns).sum();
        let row = |name: &str, cpu_ns: Option<f64>, wait_us| {
            let part = cpu_ns.filter(|_| all > 0.0).map(|ns| 100.0 * ns / all);
            format!("{name:<13} {:>12} {:>6} {:>12}", show(cpu_ns), show(part), show(wait_us))
        };
        let mut lines = vec![format!("{:<13} {:>12} {:>6} {:>12}", "stage", "CPU ns/op", "%", "elapsed us")];
        lines.extend(self.stages.iter().map(|cost| row(cost.stage.word(), cost.cpu_ns, cost.wait_us)));
        lines.extend([
            row("unattributed", self.unattributed_ns, None),
            row("outside OSDs", None, self.outside_us),
        ]);
        let counts = self.per_op.iter().map(|(name, count)| format!("{name} {count:.2}"));
        lines.push(format!("per op    {}", counts.collect::<Vec<_>>().join(", ")));
        lines
    }
}

/// Microseconds for each of `ops` operations on a clock of the OSDs; `None` if no OSD has it.
fn clock_us(metrics: &[MetricsWindow], clock: &str, ops: f64) -> Option<f64> {
    Some(sum(metrics, &format!("/stages/{clock}/sum_ns"))? / ops / 1e3)
}

/// The places where the mean latency of `ops` operations passes, in µs; empty for OSDs without clocks.
pub(crate) fn places_us(metrics: &[MetricsWindow], ops: f64, latency_us: f64) -> Vec<(Place, f64)> {
    let inside = CLOCKS.iter().filter_map(|(clock, _, place)| Some((*place, clock_us(metrics, clock, ops)?)));
    let mut places: Vec<(Place, f64)> = inside.filter(|(_, us)| us.is_finite()).collect();
    if !places.is_empty() {
        let inside_us: f64 = places.iter().map(|(_, us)| us).sum();
        places.push((Place::Outside, (latency_us - inside_us).max(0.0)));
    }
    places
}

/// The sum over all shards of what the window added to a figure; `None` if no shard has it.
fn sum(metrics: &[MetricsWindow], at: &str) -> Option<f64> {
    let shards = metrics.iter().filter_map(|osd| osd.difference.get("shards")?.as_array()).flatten();
    let figures = shards.filter_map(|shard| shard.pointer(at).and_then(Value::as_f64));
    figures.reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::profile::ProfileMode;

    fn window() -> MetricsWindow {
        let clock = |ns: u64| json!({"count": 100, "sum_ns": ns});
        let shard = json!({
            "stages": {"queue": clock(100_000), "execute": clock(2_000_000), "store": clock(0), "replicate": clock(0), "reply": clock(50_000)},
            "reactor": {"enters": 50, "bytes_copied": 1000}, "osd": {"op_hops": 0},
        });
        MetricsWindow { osd: 0, difference: json!({"shards": [shard, shard]}), ..MetricsWindow::default() }
    }

    #[test]
    fn stages_add_up_to_the_cpu_time_and_to_the_latency() {
        let share = |stage, percent| StageShare { stage, percent };
        let profile = Profile {
            stages: vec![share(Stage::Device, 60.0), share(Stage::Pg, 38.0)],
            ..Profile::missing(ProfileMode::OnCpu, String::new())
        };
        let stages = Stages::new(Some(&profile), &[window()], (200.0, Some(30.0), Some(5.0)));
        let cost = |stage| stages.stages.iter().find(|cost| cost.stage == stage).copied();
        assert_eq!(cost(Stage::Device).unwrap().cpu_ns, Some(3000.0));
        assert_eq!(
            cost(Stage::Pg).unwrap(),
            StageCost { stage: Stage::Pg, cpu_ns: Some(1900.0), wait_us: Some(1.0) }
        );
        assert_eq!(cost(Stage::Store).unwrap().wait_us, Some(20.0));
        assert_eq!(cost(Stage::Log), None, "a stage without anything is left out");
        assert!((stages.unattributed_ns.unwrap() - 100.0).abs() < 1e-6);
        assert_eq!(stages.outside_us, Some(8.5));
        let per_op = |name: &str| stages.per_op.iter().find(|(of, _)| of == name).map(|(_, count)| *count);
        assert_eq!((per_op("enters"), per_op("hops"), per_op("flushes")), (Some(0.5), Some(0.0), None));
        let text = stages.lines().join("\n");
        for part in [
            "pg                  1900.0   38.0          1.0",
            "unattributed         100.0    2.0",
            "enters 0.50, bytes",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_latency_passes_in_the_stages_and_outside() {
        let places = places_us(&[window()], 200.0, 30.0);
        let us = |place| places.iter().find(|(of, _)| *of == place).map(|(_, us)| *us);
        assert_eq!((us(Place::Store), us(Place::Outside)), (Some(20.0), Some(8.5)));
        assert!(places_us(&[], 200.0, 30.0).is_empty(), "a peer has no clocks");
    }

    #[test]
    fn without_a_profile_there_are_clocks_and_counts() {
        let stages = Stages::new(None, &[window()], (200.0, None, Some(5.0)));
        assert!(stages.stages.iter().all(|cost| cost.cpu_ns.is_none()));
        assert_eq!((stages.unattributed_ns, stages.outside_us), (None, None));
        assert!(!stages.per_op.is_empty());
        assert_eq!(Stages::new(None, &[], (0.0, None, None)), Stages::default(), "a peer");
    }
}
