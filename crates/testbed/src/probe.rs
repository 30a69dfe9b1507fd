//! A look at a running cluster through its own protocol: the map, and every OSD's account of its PGs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use carmine_types::OsdId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Result;
use crate::plan::Plan;

/// PGs of which an OSD is the primary.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PgCounts {
    /// All of them.
    pub total: u64,
    /// Those that serve clients.
    pub active: u64,
    /// Those whose replicas are all equal.
    pub clean: u64,
}

/// What one OSD answered.
#[derive(Clone, Debug)]
pub(crate) struct OsdProbe {
    pub(crate) pgs: PgCounts,
    /// Epoch of its map.
    pub(crate) epoch: u32,
    pub(crate) reactors: Option<u64>,
    /// The whole answer.
    pub(crate) answer: Value,
}

/// What was seen.
#[derive(Clone, Default, Debug)]
pub(crate) struct Probe {
    /// Epoch of the map; 0 if the monitor did not answer.
    pub(crate) epoch: u32,
    /// Up in the map, and the answer of each.
    pub(crate) up: BTreeMap<OsdId, std::result::Result<OsdProbe, String>>,
    /// PGs of all pools, by the map.
    pub(crate) pgs: u64,
}

impl Probe {
    pub(crate) fn is_up(&self, osd: OsdId) -> bool {
        self.up.contains_key(&osd)
    }

    /// The sum over all OSDs that answered.
    pub(crate) fn counts(&self) -> PgCounts {
        self.up.values().flatten().fold(PgCounts::default(), |sum, osd| PgCounts {
            total: sum.total + osd.pgs.total,
            active: sum.active + osd.pgs.active,
            clean: sum.clean + osd.pgs.clean,
        })
    }

    /// All OSDs are up with the same map, and serve all PGs.
    pub(crate) fn is_ready(&self, plan: &Plan) -> bool {
        let counts = self.counts();
        let same = self.up.values().flatten().all(|osd| osd.epoch >= self.epoch);
        self.epoch > 0
            && self.up.len() == plan.osds() as usize
            && same
            && counts.active >= self.pgs
            && counts.clean >= self.pgs
    }

    /// What `is_ready` misses, for people.
    pub(crate) fn missing(&self, plan: &Plan) -> String {
        if self.epoch == 0 {
            return "the monitor".into();
        }
        let osds = plan.osds() as usize;
        if self.up.len() < osds {
            return format!("OSDs: {} of {osds} are up", self.up.len());
        }
        let silent: Vec<String> =
            self.up.iter().filter_map(|(id, r)| Some(format!("{id} ({})", r.as_ref().err()?))).collect();
        if !silent.is_empty() {
            return format!("an answer of {}", silent.join(", "));
        }
        let counts = self.counts();
        format!("PGs: {} of {} are active, {} clean", counts.active, self.pgs, counts.clean)
    }
}

/// A connected client (filled in when carmine-client has one).
pub(crate) struct Client;
/// Stand-in for the reactor's shard.
pub(crate) struct Ticker;
impl Ticker {
    pub(crate) async fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

/// Runs `work` with a client of the monitor at `mon`.
pub(crate) fn with_client<R>(
    _mon: SocketAddr,
    _limit: Duration,
    _work: impl AsyncFnOnce(&Ticker, &Client) -> R,
) -> Result<R> {
    Err(crate::error::failed!("the client is not built in yet"))
}

/// Looks once.
pub(crate) async fn look(_client: &Client, _plan: &Plan) -> Probe {
    Probe::default()
}
