//! What Carmine's OSDs report about themselves at both ends of a window, with any load generator.

use crate::sample::{OsdClocks, clocks, difference};
use carmine_load::window::{MetricsWindow, Window};
use serde_json::Value;

/// What it is asked: its metrics, and which PGs its reactors have.
pub(super) const QUESTIONS: [&str; 2] = [r#"{"prefix":"dump_metrics"}"#, r#"{"prefix":"status"}"#];

/// What an OSD told; empty if it told nothing.
#[derive(Default)]
pub(super) struct OsdDump {
    pub(super) clocks: OsdClocks,
    pub(super) metrics: Value,
    /// PGs of each reactor.
    pgs: Vec<u32>,
}

impl OsdDump {
    /// Of the answers to [`QUESTIONS`].
    pub(super) fn new([metrics, status]: [Value; 2]) -> OsdDump {
        let pgs = status["pgs_per_reactor"].as_array().map(Vec::as_slice).unwrap_or_default();
        let pgs = pgs.iter().map(|n| n.as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0)).collect();
        OsdDump { clocks: clocks(&metrics), metrics, pgs }
    }
}

/// Adds to the kernel's window what the OSDs told at its begin and at its end.
pub(super) fn add_to(window: &mut Window, before: &[OsdDump], after: &[OsdDump]) {
    for (osd, (before, after)) in window.osds.iter_mut().zip(before.iter().zip(after)) {
        after.clocks.add_to(&before.clocks, osd);
        for (reactor, pgs) in osd.reactors.iter_mut().zip(&after.pgs) {
            reactor.pgs = Some(*pgs);
        }
        window.metrics.push(MetricsWindow {
            osd: osd.id,
            difference: difference(&before.metrics, &after.metrics),
            start: before.metrics.clone(),
            end: after.metrics.clone(),
        });
    }
}
