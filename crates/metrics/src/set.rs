//! Sets of metrics: a struct whose fields are metrics, each with a name that ends in its unit and a description.

use serde::{Deserialize, Serialize};

use crate::Histogram;

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

/// What a metric's numbers mean when they are read twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Name (with its unit at the end) and description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    pub name: &'static str,
    pub kind: Kind,
    pub description: &'static str,
}

/// A field of a metric set.
pub trait Metric {
    const KIND: Kind;
    fn merge_from(&mut self, other: &Self);
    /// The metric for `dump_metrics`: a number, or for a histogram an object.
    fn to_json(&self) -> serde_json::Value;
    /// (suffix with labels, value) samples for Prometheus.
    fn samples(&self) -> Vec<(String, f64)>;
}

impl Metric for Counter {
    const KIND: Kind = Kind::Counter;

    fn merge_from(&mut self, other: &Self) {
        self.add(other.0);
    }

    fn to_json(&self) -> serde_json::Value {
        self.0.into()
    }

    fn samples(&self) -> Vec<(String, f64)> {
        vec![(String::new(), self.0 as f64)]
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

    fn samples(&self) -> Vec<(String, f64)> {
        vec![(String::new(), self.0 as f64)]
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

    fn samples(&self) -> Vec<(String, f64)> {
        let quantiles = [0.5, 0.95, 0.99, 0.999];
        let mut samples: Vec<(String, f64)> = quantiles
            .iter()
            .map(|q| (format!("{{quantile=\"{q}\"}}"), self.percentile(q * 100.0) as f64))
            .collect();
        samples.push(("_sum".into(), self.sum() as f64));
        samples.push(("_count".into(), self.count() as f64));
        samples
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
    /// Calls back with every metric and its samples.
    fn each(&self, visit: &mut dyn FnMut(MetricInfo, Vec<(String, f64)>));
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

            fn each(&self, visit: &mut dyn FnMut($crate::MetricInfo, Vec<(String, f64)>)) {
                let mut infos = <Self as $crate::MetricSet>::describe().into_iter();
                $( if let Some(info) = infos.next() { visit(info, $crate::Metric::samples(&self.$field)); } )*
            }
        }
    };
}
