//! Readings at both ends of the window: what the OSDs say of themselves, and the kernel's accounting.

use crate::sample::Snapshot;
use anyhow::Context;
use carmine_client::Client;
use carmine_load::window::Window;
use carmine_types::OsdId;
use serde_json::Value;

use super::Controller;
use crate::bench::osd_dump::{self, OsdDump, QUESTIONS};

/// One reading.
pub(super) struct Reading {
    pub(super) kernel: Snapshot,
    osds: Vec<OsdDump>,
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
        osd_dump::add_to(&mut window, &start.osds, &end.osds);
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
    let [metrics, status] = QUESTIONS;
    Ok(OsdDump::new([ask(client, id, metrics).await?, ask(client, id, status).await?]))
}

async fn ask(client: &Client, id: OsdId, question: &str) -> anyhow::Result<Value> {
    serde_json::from_str(&client.admin(id, question).await?).context("the answer is no JSON")
}
