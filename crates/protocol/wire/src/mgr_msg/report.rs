//! MMgrReport: a daemon's counters and what makes it unhealthy.

use std::collections::BTreeMap;

use carmine_codec::coded;

use crate::Encoder;
use crate::header::messages;

messages! {
    /// MMgrReport v9: daemon → manager.
    pub struct MgrReport: MGR_REPORT, 9, compat 1 {
        /// Without its type: `0` of `osd.0`.
        pub name: String,
        /// Counters of which it tells from now on in this session, ascending by path.
        pub declare: Vec<CounterType>,
        /// The values of all declared counters, ascending by path ([`pack`]).
        pub values: Vec<u8>,
        /// Paths of counters of which it tells no longer.
        pub undeclare: Vec<String>,
        /// Empty for an OSD.
        pub service: String,
        /// Of a service, if it has changed.
        pub status: Option<BTreeMap<String, String>>,
        /// An OSD always tells both that it has.
        pub health: Vec<HealthMetric>,
        /// Its options, if they have changed. A map of answers about an OSD's clients follows; nobody reads it.
        pub config: Vec<u8> [u32],
        /// What a daemon's long tasks are doing.
        pub tasks: Option<BTreeMap<String, String>>,
        pub metrics: Option<MetricReport>,
    }
}

coded! {
    /// The declaration of a counter (`PerfCounterType`).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct CounterType: versioned "perf counter type", 3, compat 1, oldest 3 {
        /// Section and name: `osd.op_w`.
        pub path: String,
        pub description: String,
        /// Short name of the column in `ceph daemonperf`.
        pub nick: String,
        /// Bits of [`counter_kind`].
        pub kind: u8,
        /// 10 is the highest.
        pub priority: u8,
        /// One of [`counter_unit`].
        pub unit: u8,
    }
}

/// Bits of [`CounterType::kind`].
pub mod counter_kind {
    /// Nanoseconds.
    pub const TIME: u8 = 1;
    pub const U64: u8 = 2;
    /// It comes with the number of values in it: [`CounterValue::Average`](super::CounterValue::Average).
    pub const AVERAGE: u8 = 4;
    /// It only grows.
    pub const COUNTER: u8 = 8;
}

/// Values of [`CounterType::unit`].
pub mod counter_unit {
    pub const BYTES: u8 = 0;
    pub const NONE: u8 = 1;
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterValue {
    Number(u64),
    /// Of a kind with [`counter_kind::AVERAGE`].
    Average {
        sum_ns: u64,
        count: u64,
    },
}

/// [`MgrReport::values`]: the manager knows by the declarations which value is whose.
#[must_use]
pub fn pack(values: impl IntoIterator<Item = CounterValue>) -> Vec<u8> {
    Encoder::collect(|e| {
        e.envelope(1, 1, |e| {
            for value in values {
                match value {
                    CounterValue::Number(number) => e.u64(number),
                    // Ceph counts before and after it adds to the sum, and sends both counts; ours are one.
                    CounterValue::Average { sum_ns, count } => {
                        [sum_ns, count, count].into_iter().for_each(|number| e.u64(number));
                    }
                }
            }
        });
    })
}

coded! {
    /// Something of which the manager makes a health check (`DaemonHealthMetric`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HealthMetric: versioned "daemon health metric", 1, compat 1, oldest 1 {
        /// [`HealthMetric::SLOW_OPS`] or [`HealthMetric::PENDING_CREATING_PGS`].
        pub kind: u8,
        pub count: u32,
        /// The age of the oldest.
        pub oldest_s: u32,
    }
}

impl HealthMetric {
    /// Operations that take too long.
    pub const SLOW_OPS: u8 = 0;
    /// PGs that the OSD does not make because it has too many.
    pub const PENDING_CREATING_PGS: u8 = 1;
}

coded! {
    /// Answers to the manager's questions in MMgrConfigure (`MetricReportMessage`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MetricReport {
        /// 0: those of an OSD.
        pub kind: u32,
        pub osd: OsdMetrics,
    }
}

coded! {
    /// `OSDMetricPayload`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OsdMetrics: versioned "osd metric payload", 1, compat 1, oldest 1 {
        /// Number of answers; those that follow are not read.
        pub answers: u32,
    }
}
