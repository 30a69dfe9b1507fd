//! Sets of metrics: a struct whose fields are metrics, each with a name that ends in its unit and a description.

use serde::{Deserialize, Serialize};

use crate::Histogram;
use crate::family::{Distribution, Sample};

/// A number that only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counter(u64);

impl Counter {
    #[inline]
    pub fn inc(&mut self) {
        self.add(1);
    }

    #[inline]
    pub fn add(&mut self, n: u64) {
        self.0 = self.0.wrapping_add(n);
    }

    pub fn get(&self) -> u64 {
        self.0
    }

    /// Takes over a value that is counted elsewhere (the reactor's statistics).
    pub fn set(&mut self, total: u64) {
        self.0 = total;
    }
}

/// A number that goes up and down; merging adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gauge(i64);

impl Gauge {
    pub fn add(&mut self, n: i64) {
        self.0 = self.0.wrapping_add(n);
    }

    pub fn set(&mut self, value: i64) {
        self.0 = value;
    }

    pub fn get(&self) -> i64 {
        self.0
    }
}

/// A number with a fraction that goes up and down, such as a utilisation; merging adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(f64);

impl Level {
    pub fn set(&mut self, value: f64) {
        self.0 = value;
    }

    pub fn get(&self) -> f64 {
        self.0
    }
}

/// What a metric's numbers mean when they are read twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// The word that Prometheus has for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Name (with its unit at the end) and description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    pub name: &'static str,
    pub kind: Kind,
    pub description: &'static str,
}

impl MetricInfo {
    /// What one of it is, by the word that its name has: `ns`, `ms`, `bytes`, `percent`; `count` for plain numbers.
    pub fn unit(&self) -> &'static str {
        let words = || self.name.rsplit('_');
        let named = ["ns", "ms", "bytes"].into_iter().find(|unit| words().any(|word| word == *unit));
        match named {
            Some(unit) => unit,
            None if words().next() == Some("utilization") => "percent",
            None => "count",
        }
    }
}

/// A field of a metric set.
pub trait Metric {
    const KIND: Kind;
    fn merge_from(&mut self, other: &Self);
    /// The metric for `dump_metrics`: a number, or for a histogram an object.
    fn to_json(&self) -> serde_json::Value;
    /// The metric for an exposition.
    fn sample(&self) -> Sample;
}

impl Metric for Counter {
    const KIND: Kind = Kind::Counter;

    fn merge_from(&mut self, other: &Self) {
        self.add(other.0);
    }

    fn to_json(&self) -> serde_json::Value {
        self.0.into()
    }

    fn sample(&self) -> Sample {
        Sample::Count(self.0)
    }
}

impl Metric for Level {
    const KIND: Kind = Kind::Gauge;

    fn merge_from(&mut self, other: &Self) {
        self.0 += other.0;
    }

    fn to_json(&self) -> serde_json::Value {
        self.0.into()
    }

    fn sample(&self) -> Sample {
        Sample::Level(self.0)
    }
}

impl Metric for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn merge_from(&mut self, other: &Self) {
        self.add(other.0);
    }

    fn to_json(&self) -> serde_json::Value {
        self.0.into()
    }

    fn sample(&self) -> Sample {
        Sample::Level(self.0 as f64)
    }
}

impl Metric for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn merge_from(&mut self, other: &Self) {
        self.merge(other);
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "count": self.count(), "mean": self.mean(), "min": self.min(), "max": self.max(),
            "p50": self.percentile(50.0), "p95": self.percentile(95.0),
            "p99": self.percentile(99.0), "p999": self.percentile(99.9),
        })
    }

    fn sample(&self) -> Sample {
        Sample::Histogram(Distribution::of(self))
    }
}

/// A struct made by [`crate::metric_set!`].
pub trait MetricSet {
    /// Every metric of the set, in order of declaration.
    fn describe() -> Vec<MetricInfo>;
    /// Adds another shard's numbers.
    fn merge_from(&mut self, other: &Self);
    /// `{"name": value, …}`
    fn to_json(&self) -> serde_json::Value;
    /// Calls back with every metric and its value.
    fn each(&self, visit: &mut dyn FnMut(MetricInfo, Sample));
}

/// Declares a struct of metrics. Doc comments of fields become descriptions; field names end in their units.
///
/// ```
/// use carmine_metrics::{Counter, Histogram, MetricSet, metric_set};
/// metric_set! {
///     /// What a shard counts.
///     pub struct ShardMetrics {
///         /// Client operations that were answered.
///         client_ops: Counter,
///         /// Time from a read's first byte to its reply.
///         read_latency_ns: Histogram,
///     }
/// }
/// let mut metrics = ShardMetrics::default();
/// metrics.client_ops.inc();
/// assert_eq!(metrics.to_json()["client_ops"], 1);
/// assert_eq!(ShardMetrics::describe()[0].description, "Client operations that were answered.");
/// ```
#[macro_export]
macro_rules! metric_set {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $( $(#[doc = $doc:literal])+ $field:ident : $kind:ty ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        $vis struct $name { $( $(#[doc = $doc])+ pub $field: $kind, )* }

        impl $crate::MetricSet for $name {
            fn describe() -> Vec<$crate::MetricInfo> {
                vec![$( $crate::MetricInfo {
                    name: stringify!($field),
                    kind: <$kind as $crate::Metric>::KIND,
                    description: concat!($($doc),+).trim_ascii(),
                }, )*]
            }

            fn merge_from(&mut self, other: &Self) {
                $( $crate::Metric::merge_from(&mut self.$field, &other.$field); )*
            }

            fn to_json(&self) -> $crate::__json::Value {
                let mut map = $crate::__json::Map::new();
                $( map.insert(stringify!($field).to_owned(), $crate::Metric::to_json(&self.$field)); )*
                $crate::__json::Value::Object(map)
            }

            fn each(&self, visit: &mut dyn FnMut($crate::MetricInfo, $crate::Sample)) {
                let mut infos = <Self as $crate::MetricSet>::describe().into_iter();
                $( if let Some(info) = infos.next() { visit(info, $crate::Metric::sample(&self.$field)); } )*
            }
        }
    };
}
