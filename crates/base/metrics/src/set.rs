//! Sets of metrics: a struct whose fields are metrics, each with a name that ends in its unit and a description.

use crate::Histogram;
use crate::family::{Distribution, Sample};

/// Metric: a `u64` that only grows. The values of two shards add up.
#[derive(Clone, Copy, Debug)]
pub enum Sum {}

/// Metric: a `u64` of the whole process that only grows and that each shard reports: of two shards the larger value counts.
#[derive(Clone, Copy, Debug)]
pub enum Max {}

/// Metric: a `u64` that goes up and down. The values of two shards add up.
#[derive(Clone, Copy, Debug)]
pub enum Gauge {}

/// Metric: an `f64` that goes up and down, such as a utilisation. The values of two shards add up.
#[derive(Clone, Copy, Debug)]
pub enum Level {}

/// The kind of a metric, which tells how two readings of it relate.
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

/// Name (with its unit at the end) and description of a metric, as they are shown outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    pub name: &'static str,
    pub kind: Kind,
    pub description: &'static str,
}

impl MetricInfo {
    /// The metric's unit, from the word in its name: `ns`, `ms`, `bytes`, `percent`; `count` for plain numbers.
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

/// The type of a field of a metric set: how its value is kept, merged and shown.
pub trait Metric {
    /// The field's own type.
    type Value;
    const KIND: Kind;
    /// Adds another shard's value.
    fn merge(value: &mut Self::Value, other: &Self::Value);
    /// The value for `dump_metrics`: a number, or for a histogram an object.
    fn to_json(value: &Self::Value) -> serde_json::Value;
    /// The value for an exposition.
    fn sample(value: &Self::Value) -> Sample;
}

/// Implements [`Metric`] for a number.
macro_rules! number {
    ($metric:ty, $value:ty, $kind:ident, $merge:expr, $sample:expr) => {
        impl Metric for $metric {
            type Value = $value;
            const KIND: Kind = Kind::$kind;

            #[allow(clippy::redundant_closure_call)] // the closures are the table below
            fn merge(value: &mut $value, other: &$value) {
                *value = $merge(*value, *other);
            }

            fn to_json(value: &$value) -> serde_json::Value {
                (*value).into()
            }

            #[allow(clippy::redundant_closure_call)]
            fn sample(value: &$value) -> Sample {
                $sample(*value)
            }
        }
    };
}

number!(Sum, u64, Counter, u64::wrapping_add, Sample::Count);
number!(Max, u64, Counter, u64::max, Sample::Count);
number!(Gauge, u64, Gauge, u64::wrapping_add, |value| Sample::Level(value as f64));
number!(Level, f64, Gauge, |a: f64, b: f64| a + b, Sample::Level);

impl Metric for Histogram {
    type Value = Histogram;
    const KIND: Kind = Kind::Histogram;

    fn merge(value: &mut Histogram, other: &Histogram) {
        value.merge(other);
    }

    fn to_json(value: &Histogram) -> serde_json::Value {
        serde_json::json!({
            "count": value.count(), "mean": value.mean(), "min": value.min(), "max": value.max(),
            "p50": value.percentile(50.0), "p95": value.percentile(95.0),
            "p99": value.percentile(99.0), "p999": value.percentile(99.9),
        })
    }

    fn sample(value: &Histogram) -> Sample {
        Sample::Histogram(Distribution::from_histogram(value))
    }
}

/// A struct made by [`crate::metric_set!`].
pub trait MetricSet {
    /// Adds another shard's numbers.
    fn merge_from(&mut self, other: &Self);
    /// `{"FIELD": value, …}`
    fn to_json(&self) -> serde_json::Value;
    /// Calls back with every metric that is shown, and its value.
    fn each(&self, visit: &mut dyn FnMut(MetricInfo, Sample));
}

/// Declares a struct of metrics: the one place that a new counter needs.
///
/// A field's type is a [`Metric`]; its doc comment is the description that users see. Outside, a field is shown as
/// `PREFIX_FIELD`, or under the name after `=>`; `=> _` leaves it to JSON, for values that are shown in another way. A
/// field in nanoseconds (`_ns`) with a shown name in milliseconds (`_ms`) is converted.
///
/// ```
/// use carmine_metrics::{Families, Histogram, MetricSet, Sum, metric_set};
/// metric_set! {
///     /// The work of a shard.
///     pub struct Work: "osd" {
///         /// Client operations that were answered.
///         client_ops: Sum,
///         /// CPU time.
///         busy_ns: Sum => "osd_cpu_busy_ms",
///         /// Time from a read's first byte to its reply.
///         read_latency_ns: Histogram,
///     }
/// }
/// let mut work = Work::default();
/// work.client_ops += 1;
/// assert_eq!(work.to_json()["client_ops"], 1);
/// let mut shown = Families::default();
/// shown.add_set(&[], &work);
/// assert!(shown.prometheus(&[]).contains("# HELP osd_client_ops Client operations that were answered. Unit: count."));
/// ```
#[macro_export]
macro_rules! metric_set {
    ($(#[$meta:meta])* $vis:vis struct $name:ident : $prefix:literal {
        $( $(#[doc = $doc:literal])+ $field:ident : $metric:ty $(=> $shown:tt)? ),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        $vis struct $name { $( $(#[doc = $doc])+ pub $field: <$metric as $crate::Metric>::Value, )* }

        impl $crate::MetricSet for $name {
            fn merge_from(&mut self, other: &Self) {
                $( <$metric as $crate::Metric>::merge(&mut self.$field, &other.$field); )*
            }

            fn to_json(&self) -> $crate::__json::Value {
                let mut map = $crate::__json::Map::new();
                $( map.insert(
                    stringify!($field).to_owned(),
                    <$metric as $crate::Metric>::to_json(&self.$field),
                ); )*
                $crate::__json::Value::Object(map)
            }

            fn each(&self, visit: &mut dyn FnMut($crate::MetricInfo, $crate::Sample)) {
                $( $crate::__show!(visit, $field, $crate::MetricInfo {
                    name: concat!($prefix, "_", stringify!($field)),
                    kind: <$metric as $crate::Metric>::KIND,
                    description: concat!($($doc),+).trim_ascii(),
                }, <$metric as $crate::Metric>::sample(&self.$field) $(, $shown)?); )*
            }
        }
    };
}

/// How one field of [`metric_set!`] is shown.
#[doc(hidden)]
#[macro_export]
macro_rules! __show {
    ($visit:ident, $field:ident, $info:expr, $sample:expr, _) => {};
    ($visit:ident, $field:ident, $info:expr, $sample:expr) => {
        $visit($info, $sample)
    };
    ($visit:ident, $field:ident, $info:expr, $sample:expr, $shown:literal) => {
        let info = $crate::MetricInfo { name: $shown, ..$info };
        $visit(info, $sample.in_unit_of(&info, stringify!($field)))
    };
}
