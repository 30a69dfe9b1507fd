//! Prometheus' text format (version 0.0.4) of metrics.

use std::fmt::Write as _;

use crate::{Families, Sample, Series};

impl Families {
    /// Renders all metrics. Every value carries `labels` (such as `("osd", "0")`) before its own.
    pub fn prometheus(&self, labels: &[(&str, String)]) -> String {
        let mut text = String::new();
        for family in self.iter() {
            let (name, kind, unit) = (family.info.name, family.info.kind.name(), family.info.unit());
            let description = escape_help(family.info.description);
            // Writing to a String does not fail.
            let _ = writeln!(text, "# HELP {name} {description} Unit: {unit}.\n# TYPE {name} {kind}");
            family.series.iter().for_each(|series| render(&mut text, name, labels, series));
        }
        text
    }
}

fn render(text: &mut String, name: &str, common: &[(&str, String)], series: &Series) {
    let labels = |more: Option<String>| {
        let all = common.iter().chain(&series.labels).map(|(name, value)| pair(name, value));
        let all: Vec<String> = all.chain(more.map(|bound| pair("le", &bound))).collect();
        if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
    };
    match &series.sample {
        Sample::Count(count) => {
            let _ = writeln!(text, "{name}{} {count}", labels(None));
        }
        Sample::Level(level) => {
            let _ = writeln!(text, "{name}{} {level}", labels(None));
        }
        Sample::Histogram(d) => {
            for (bound, count) in &d.buckets {
                let _ = writeln!(text, "{name}_bucket{} {count}", labels(Some(bound.to_string())));
            }
            let _ = writeln!(text, "{name}_bucket{} {}", labels(Some("+Inf".into())), d.count);
            let _ = writeln!(text, "{name}_sum{} {}", labels(None), d.sum);
            let _ = writeln!(text, "{name}_count{} {}", labels(None), d.count);
        }
    }
}

fn pair(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Descriptions are doc comments: one line each.
fn escape_help(description: &str) -> String {
    description.split_whitespace().collect::<Vec<_>>().join(" ").replace('\\', "\\\\")
}

#[cfg(test)]
mod tests {
    use crate::{Families, Gauge, Histogram, MetricSet, Sum, metric_set};

    metric_set! {
        /// A test's metrics.
        struct Shown: "osd" {
            /// Operations
            /// answered.
            ops: Sum,
            /// Bytes held.
            held_bytes: Gauge,
            /// Latency.
            latency_ns: Histogram,
        }
    }

    fn shown() -> Families {
        let mut one = Shown::default();
        one.ops += 2;
        one.held_bytes = 3;
        one.latency_ns.record(12_000);
        let mut two = one.clone();
        two.merge_from(&one);
        let mut families = Families::default();
        for (shard, set) in [(0, &one), (1, &two)] {
            families.add_set(&[("shard", shard.to_string())], set);
        }
        families
    }

    #[test]
    fn renders_every_shard_under_one_heading() {
        let text = shown().prometheus(&[("osd", "1".to_owned())]);
        for line in [
            "# HELP osd_ops Operations answered. Unit: count.",
            "# HELP osd_held_bytes Bytes held. Unit: bytes.",
            "# TYPE osd_latency_ns histogram",
            "osd_ops{osd=\"1\",shard=\"0\"} 2",
            "osd_ops{osd=\"1\",shard=\"1\"} 4",
            "osd_held_bytes{osd=\"1\",shard=\"1\"} 6",
            "osd_latency_ns_bucket{osd=\"1\",shard=\"1\",le=\"10000\"} 0",
            "osd_latency_ns_bucket{osd=\"1\",shard=\"1\",le=\"15000\"} 2",
            "osd_latency_ns_bucket{osd=\"1\",shard=\"1\",le=\"+Inf\"} 2",
            "osd_latency_ns_sum{osd=\"1\",shard=\"1\"} 24000",
            "osd_latency_ns_count{osd=\"1\",shard=\"1\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert_eq!(text.matches("# TYPE osd_ops ").count(), 1);
        assert!(shown().prometheus(&[]).contains("\nosd_ops{shard=\"0\"} 2\n"));
    }

    #[test]
    fn labels_cannot_break_out() {
        let text = shown().prometheus(&[("name", "a\"}\n".to_owned())]);
        assert!(text.contains("osd_ops{name=\"a\\\"}\\n\",shard=\"0\"} 2\n"), "{text}");
    }
}
