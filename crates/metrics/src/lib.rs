//! Counters, histograms and stage clocks: plain structs of one shard, without locks or atomics. A shard adds to its own;
//! whoever wants the whole merges copies that the shards hand over.
//!
//! [`metric_set!`] declares a struct of metrics whose doc comments are the descriptions and whose field names end in
//! their units, and gives it merging, a JSON dump and Prometheus text.

mod histogram;
mod prometheus;
mod set;
mod stage;

pub use histogram::{Histogram, SparseHistogram};
pub use prometheus::prometheus;
pub use set::{Counter, Gauge, Kind, Metric, MetricInfo, MetricSet};
pub use stage::{StageClock, StageClocks, StageStat};

#[doc(hidden)]
pub use serde_json as __json;
