//! Prometheus text format (version 0.0.4) of a metric set.

use std::fmt::Write as _;

use crate::{Kind, MetricSet};

/// Renders `set`; every metric is named `PREFIX_NAME` and carries `labels` (`osd="0"`, or nothing).
pub fn prometheus<S: MetricSet>(set: &S, prefix: &str, labels: &str) -> String {
    let mut text = String::new();
    set.each(&mut |info, samples| {
        let name = format!("{prefix}_{}", info.name);
        let kind = match info.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "summary",
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", info.description.replace('\n', " "));
        for (suffix, value) in samples {
            let (suffix, own) = match suffix.strip_prefix('{') {
                Some(own) => ("", own.trim_end_matches('}')),
                None => (suffix.as_str(), ""),
            };
            let all: Vec<&str> = [labels, own].into_iter().filter(|l| !l.is_empty()).collect();
            let braces = if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) };
            let _ = writeln!(text, "{name}{suffix}{braces} {value}");
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Gauge, Histogram, metric_set};

    metric_set! {
        /// A test's metrics.
        struct Sample {
            /// Operations
            /// answered.
            ops: Counter,
            /// Bytes held.
            held_bytes: Gauge,
            /// Latency.
            latency_ns: Histogram,
        }
    }

    #[test]
    fn renders_and_merges() {
        let mut one = Sample::default();
        one.ops.add(2);
        one.held_bytes.set(-3);
        one.latency_ns.record(1000);
        let mut two = one.clone();
        two.merge_from(&one);
        let text = prometheus(&two, "carmine", "osd=\"1\"");
        for line in [
            "# HELP carmine_ops Operations answered.",
            "# TYPE carmine_latency_ns summary",
            "carmine_ops{osd=\"1\"} 4",
            "carmine_held_bytes{osd=\"1\"} -6",
            "carmine_latency_ns{osd=\"1\",quantile=\"0.5\"} 1000",
            "carmine_latency_ns_count{osd=\"1\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert!(prometheus(&two, "c", "").contains("\nc_ops 4\n"));
    }
}
