//! Counters, histograms and stage clocks: plain structs of one shard, without locks or atomics. A shard adds to its own;
//! whoever wants the whole merges copies that the shards hand over.
//!
//! [`metric_set!`] declares a struct of metrics whose doc comments are the descriptions and whose field names end in
//! their units, and gives it merging and a JSON dump. [`Families`] collects the sets of several shards under one name
//! each: the one source of Prometheus text and of JSON.

mod family;
mod histogram;
mod prometheus;
mod set;
mod stage;

pub use family::{Distribution, Families, Family, Label, Sample, Series};
pub use histogram::{Histogram, SparseHistogram};
pub use set::{Counter, Gauge, Kind, Level, Metric, MetricInfo, MetricSet};
pub use stage::{StageClock, StageClocks, StageStat};

#[doc(hidden)]
pub use serde_json as __json;
