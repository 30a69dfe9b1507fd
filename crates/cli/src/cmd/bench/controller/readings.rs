//! Readings at both ends of the window: what the OSDs say of themselves, and the kernel's accounting.

use anyhow::Context;
use carmine_client::Client;
use carmine_load::window::{MetricsWindow, Window};
use carmine_testbed::sample::{OsdClocks, Snapshot, clocks, difference};
use carmine_types::OsdId;
use serde_json::Value;

use super::Controller;

/// One reading.
pub(super) struct Reading {
    pub(super) kernel: Snapshot,
    osds: Vec<OsdDump>,
}

/// What an OSD told; empty if it told nothing.
#[derive(Default)]
struct OsdDump {
    clocks: OsdClocks,
    metrics: Value,
    /// PGs of each reactor.
    pgs: Vec<u32>,
}

impl Reading {
    /// Client operations that the OSDs have answered since their start.
    pub(super) fn client_ops(&self) -> u64 {
        let shards = self.osds.iter().filter_map(|osd| osd.metrics["shards"].as_array()).flatten();
        shards.filter_map(|shard| shard["osd"]["ops"].as_u64()).sum()
    }
}

impl Controller<'_> {
    /// The OSDs' clocks first and then the kernel's, at both ends alike: both windows are equally long.
    pub(super) async fn read(&mut self) -> anyhow::Result<Reading> {
        let mut osds = Vec::with_capacity(self.setup.osds.len());
        if self.setup.peer.is_some() {
            // A peer's OSDs know no such questions.
            osds.resize_with(self.setup.osds.len(), OsdDump::default);
            return Ok(Reading { kernel: self.setup.sampler.sample()?, osds });
        }
        for (id, _) in &self.setup.osds {
            osds.push(match dump(&self.client, *id).await {
                Ok(dump) => dump,
                Err(error) => {
                    self.marks.push(format!("{id} did not tell its metrics: {error:#}"));
                    OsdDump::default()
                }
            });
        }
        Ok(Reading { kernel: self.setup.sampler.sample()?, osds })
    }

    pub(super) fn window(&self, start: &Reading, end: &Reading, baseline_cores: f64) -> Window {
        let mut window = self.window_until(start, &end.kernel, baseline_cores);
        for (osd, (before, after)) in window.osds.iter_mut().zip(start.osds.iter().zip(&end.osds)) {
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
        window
    }

    /// A window that ended without a word from the OSDs: which threads are reactors is known, their clocks stand still.
    pub(super) fn window_until(&self, start: &Reading, end: &Snapshot, baseline_cores: f64) -> Window {
        let mut window = self.setup.sampler.window(&start.kernel, end, baseline_cores);
        for (osd, dump) in window.osds.iter_mut().zip(&start.osds) {
            dump.clocks.add_to(&dump.clocks, osd);
        }
        window
    }
}

async fn dump(client: &Client, id: OsdId) -> anyhow::Result<OsdDump> {
    let metrics = ask(client, id, r#"{"prefix":"dump_metrics"}"#).await?;
    let status = ask(client, id, r#"{"prefix":"status"}"#).await?;
    let pgs = status["pgs_per_reactor"].as_array().map(Vec::as_slice).unwrap_or_default();
    let pgs = pgs.iter().map(|n| n.as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0)).collect();
    Ok(OsdDump { clocks: clocks(&metrics), metrics, pgs })
}

async fn ask(client: &Client, id: OsdId, question: &str) -> anyhow::Result<Value> {
    serde_json::from_str(&client.admin(id, question).await?).context("the answer is no JSON")
}
