//! A look at a running cluster through its own protocol: the map, and every OSD's account of its PGs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carmine_client::{Client, Options};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Config, Group, PollPolicy, Shard, block_on};
use carmine_types::OsdId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::daemons::Daemons;
use crate::error::{Result, failed};
use crate::layout::Daemon;
use crate::plan::Plan;
use crate::status::{Ratios, Space};
use crate::testbed::{Event, StartOptions};

/// Time for one OSD's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// The monitor listens already: its first map comes at once, or not at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Buffers of the controller's reactor: it moves maps of some kilobytes.
const ARENA_BYTES: usize = 8 << 20;
/// It has a handful of operations in flight.
const RING_ENTRIES: u32 = 64;

/// PGs of which an OSD is the primary.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PgCounts {
    /// All of them.
    pub total: u64,
    /// PGs that serve clients.
    pub active: u64,
    /// PGs whose replicas are all equal.
    pub clean: u64,
}

/// The answer of one OSD.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OsdProbe {
    pub(crate) pgs: PgCounts,
    /// Epoch of its map.
    epoch: u32,
    pub(crate) reactors: Option<u64>,
    pub(crate) space: Option<Space>,
    /// The whole answer.
    #[serde(skip)]
    pub(crate) answer: Value,
}

/// The cluster as it was seen.
#[derive(Clone, Default, Debug)]
pub(crate) struct Probe {
    /// Epoch of the map; 0 if the monitor did not answer.
    pub(crate) epoch: u32,
    /// Up in the map, and the answer of each.
    pub(crate) up: BTreeMap<OsdId, std::result::Result<OsdProbe, String>>,
    /// PGs of all pools, by the map.
    pub(crate) pgs: u64,
    /// By the map.
    pub(crate) ratios: Option<Ratios>,
}

impl Probe {
    /// The sum over all OSDs that answered.
    pub(crate) fn counts(&self) -> PgCounts {
        self.up.values().flatten().fold(PgCounts::default(), |sum, osd| PgCounts {
            total: sum.total + osd.pgs.total,
            active: sum.active + osd.pgs.active,
            clean: sum.clean + osd.pgs.clean,
        })
    }

    /// Names for people what is missing until all OSDs are up with the same map and serve all PGs.
    pub(crate) fn missing(&self, plan: &Plan) -> Option<String> {
        let (up, osds, counts) = (self.up.len(), plan.osds() as usize, self.counts());
        if self.epoch == 0 {
            return Some("the monitor".into());
        }
        if up != osds {
            return Some(format!("OSDs: {up} of {osds} are up"));
        }
        // One that does not answer may have died and not be missed yet.
        let silent = |(id, answer): (&OsdId, &std::result::Result<_, String>)| {
            Some(format!("{id} ({})", answer.as_ref().err()?))
        };
        let silent: Vec<String> = self.up.iter().filter_map(silent).collect();
        if !silent.is_empty() {
            return Some(format!("an answer of {}", silent.join(", ")));
        }
        let behind = self.up.values().flatten().any(|osd| osd.epoch < self.epoch);
        let waits = behind || counts.active.min(counts.clean) < self.pgs;
        waits.then(|| format!("PGs: {} of {} are active, {} clean", counts.active, self.pgs, counts.clean))
    }
}

/// Runs `work` with a client of the monitor at `mon`, which must send its map within `limit`; an operation may take `op_limit`.
pub(crate) fn with_client<R>(
    mon: SocketAddr,
    limit: Duration,
    op_limit: Duration,
    work: impl AsyncFnOnce(&Shard, &Rc<Client>) -> R,
) -> Result<R> {
    let options = Options { connect_timeout: limit, op_timeout: Some(op_limit), ..Options::default() };
    // It sleeps whenever it can and has nothing to do with the testbed's CPUs.
    let config = Config {
        name: "probe".into(),
        poll: PollPolicy::Sleep,
        alien_threads: 0,
        arena_bytes_per_shard: ARENA_BYTES,
        ring_entries: RING_ENTRIES,
        ..Config::default()
    };
    block_on(config, async move |shard: Shard| {
        let client = Client::connect(&shard, mon, options).await.map_err(|e| failed!("{e}"))?;
        let result = work(&shard, &client).await;
        client.shutdown();
        Ok(result)
    })
    .map_err(|e| failed!("cannot start a reactor: {e}"))?
}

/// Returns when all OSDs are up and all PGs active; an error when a daemon ends, at `end`, or when cancelled.
pub(crate) fn wait_until_ready(
    plan: &Plan,
    mon: SocketAddr,
    daemons: &mut Daemons,
    start: &mut StartOptions<'_>,
    end: Instant,
) -> Result<()> {
    let limit = end.saturating_duration_since(Instant::now()).min(CONNECT_LIMIT);
    with_client(mon, limit, limit.min(ANSWER_LIMIT), async |shard, client| {
        loop {
            let found = look(client).await;
            let Some(missing) = found.missing(plan) else { return Ok(()) };
            daemons.check()?;
            if start.cancel.load(Ordering::Relaxed) {
                return Err(failed!("interrupted"));
            }
            if Instant::now() > end {
                let what =
                    format!("not ready after {} s: still waiting for {missing}", start.limit.as_secs());
                let down = (0..plan.osds()).map(OsdId).find(|osd| !found.up.contains_key(osd));
                return Err(daemons.death(Daemon::Osd(down.unwrap_or(OsdId(0))), &what));
            }
            (start.events)(Event::Waiting(missing));
            shard.sleep(PAUSE).await;
        }
    })?
}

/// One question to one OSD, whose answer may take `limit`.
pub(crate) fn ask(mon: SocketAddr, osd: OsdId, question: &str, limit: Duration) -> Result<String> {
    let answer = with_client(mon, ANSWER_LIMIT, limit, async |_, client| client.admin(osd, question).await)?;
    answer.map_err(|e| failed!("{e}"))
}

/// Looks once: the newest map that has arrived, then every OSD that is up.
pub(crate) async fn look(client: &Rc<Client>) -> Probe {
    let Some(map) = client.osdmap() else { return Probe::default() };
    let mut seen = Probe {
        epoch: map.epoch.0,
        pgs: map.pools.values().map(|pool| u64::from(pool.pg_num)).sum(),
        ratios: Some([map.nearfull_ratio, map.backfillfull_ratio, map.full_ratio]),
        ..Probe::default()
    };
    // All at once: one that hangs costs its time limit, not everybody's.
    let mut answers = Vec::new();
    for osd in map.osds().filter(|osd| map.is_up(*osd)) {
        let (tell, told) = oneshot::channel();
        let client = Rc::clone(client);
        client.shard().clone().spawn(Group::Admin, "ask", async move {
            let answer = match client.admin(osd, r#"{"prefix":"status"}"#).await {
                Ok(text) => parse(&text),
                Err(e) => Err(e.to_string()),
            };
            // Nobody waits any more if the look was given up.
            let _ = tell.send(answer);
        });
        answers.push((osd, told));
    }
    for (osd, told) in answers {
        seen.up.insert(osd, told.await.unwrap_or_else(|_| Err("the question was dropped".into())));
    }
    seen
}

fn parse(text: &str) -> std::result::Result<OsdProbe, String> {
    let unusable = |e| format!("its status cannot be read: {e}");
    let answer: Value = serde_json::from_str(text).map_err(unusable)?;
    let probe = OsdProbe::deserialize(&answer).map_err(unusable)?;
    Ok(OsdProbe { answer, ..probe })
}
