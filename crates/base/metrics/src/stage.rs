//! Stage clocks: where an operation's time goes, from its first byte to its reply.

use serde::{Deserialize, Serialize};

/// The clock of one operation: laps between stages. Times are the reactor's monotonic nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct StageClock {
    start_ns: u64,
    lap_ns: u64,
}

impl StageClock {
    pub fn start(now_ns: u64) -> StageClock {
        StageClock { start_ns: now_ns, lap_ns: now_ns }
    }

    /// Time since the last lap (or the start), and starts the next.
    #[inline]
    pub fn lap(&mut self, now_ns: u64) -> u64 {
        let ns = now_ns.saturating_sub(self.lap_ns);
        self.lap_ns = now_ns;
        ns
    }

    /// Time since the start.
    pub fn total(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns)
    }
}

/// The record of a stage: cheap enough for every operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStat {
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
}

impl StageStat {
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn merge(&mut self, other: &StageStat) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Mean in ns, 0 when nothing was recorded.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 }
    }
}

/// The stages of one shard's operations, by index (an enum's `as usize`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageClocks<const N: usize> {
    names: [&'static str; N],
    stages: [StageStat; N],
}

impl<const N: usize> StageClocks<N> {
    pub fn new(names: [&'static str; N]) -> Self {
        StageClocks { names, stages: [StageStat::default(); N] }
    }

    /// Ends the running stage of `clock` as stage number `stage`; numbers beyond the last are ignored.
    #[inline]
    pub fn lap(&mut self, clock: &mut StageClock, stage: usize, now_ns: u64) {
        self.record(stage, clock.lap(now_ns));
    }

    /// Counts `ns` as stage number `stage`.
    #[inline]
    pub fn record(&mut self, stage: usize, ns: u64) {
        if let Some(stat) = self.stages.get_mut(stage) {
            stat.record(ns);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, others) in self.stages.iter_mut().zip(&other.stages) {
            mine.merge(others);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &StageStat)> {
        self.names.iter().copied().zip(&self.stages)
    }

    /// `{"stage": {"count": …, "sum_ns": …, "max_ns": …, "mean_ns": …}, …}`
    pub fn to_json(&self) -> serde_json::Value {
        let stages = self.iter().map(|(name, stat)| {
            let value = serde_json::json!({
                "count": stat.count, "sum_ns": stat.sum_ns, "max_ns": stat.max_ns, "mean_ns": stat.mean_ns(),
            });
            (name.to_owned(), value)
        });
        serde_json::Value::Object(stages.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_add_up_to_the_total() {
        let mut clocks = StageClocks::new(["decode", "store", "reply"]);
        let mut clock = StageClock::start(100);
        clocks.lap(&mut clock, 0, 110);
        clocks.lap(&mut clock, 1, 150);
        clocks.lap(&mut clock, 2, 151);
        clocks.lap(&mut clock, 7, 151);
        let sum: u64 = clocks.iter().map(|(_, stat)| stat.sum_ns).sum();
        assert_eq!((sum, clock.total(151)), (51, 51));
        let mut twice = clocks.clone();
        twice.merge(&clocks);
        assert_eq!(
            twice.to_json()["store"],
            serde_json::json!({"count":2,"sum_ns":80,"max_ns":40,"mean_ns":40.0})
        );
    }
}
