//! Counters, histograms and stage clocks: plain structs of one shard, without locks or atomics. A shard adds to its own;
//! a reader merges copies that the shards hand over.
//!
//! [`metric_set!`] declares a struct of metrics: their names, which end in units, their descriptions, how two shards'
//! values are merged, and how they are shown. [`Families`] collects the sets of several shards under one name each: the
//! one source of Prometheus text and of JSON.

mod family;
mod histogram;
mod set;
mod stage;

pub use family::{Distribution, Families, Family, Label, Sample, Series};
pub use histogram::{Histogram, SparseHistogram};
pub use set::{Gauge, Kind, Level, Max, Metric, MetricInfo, MetricSet, Sum};
pub use stage::{StageClock, StageClocks, StageStat};

#[doc(hidden)]
pub use serde_json as __json;
