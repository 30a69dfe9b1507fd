//! Waiting until every PG is active.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carmine_types::OsdId;

use crate::daemons::Daemons;
use crate::error::{Result, failed};
use crate::layout::Daemon;
use crate::plan::Plan;
use crate::probe::{self, Probe};
use crate::testbed::{Event, StartOptions};

/// The monitor listens already: its first map comes at once, or not at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns when all OSDs are up and all PGs active; an error when a daemon ends, at `end`, or when cancelled.
pub(crate) fn wait(
    plan: &Plan,
    mon: SocketAddr,
    daemons: &mut Daemons,
    start: &mut StartOptions<'_>,
    end: Instant,
) -> Result<()> {
    let limit = end.saturating_duration_since(Instant::now()).min(CONNECT_LIMIT);
    probe::with_client(mon, limit, async |shard, client| {
        loop {
            let found = probe::look(client).await;
            if found.is_ready(plan) {
                return Ok(());
            }
            daemons.check()?;
            if start.cancel.load(Ordering::Relaxed) {
                return Err(failed!("interrupted"));
            }
            (start.events)(Event::Waiting(found.missing(plan)));
            if Instant::now() > end {
                return Err(late(&found, plan, daemons, start.limit));
            }
            shard.sleep(PAUSE).await;
        }
    })?
}

fn late(found: &Probe, plan: &Plan, daemons: &Daemons, limit: Duration) -> crate::TestbedError {
    let what = format!("not ready after {} s: still waiting for {}", limit.as_secs(), found.missing(plan));
    let down = (0..plan.osds()).map(OsdId).find(|osd| !found.is_up(*osd));
    daemons.death(Daemon::Osd(down.unwrap_or(OsdId(0))), &what)
}
