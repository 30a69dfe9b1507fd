//! The report that the embedded monitor gets every few seconds: the store's space, and the statistics of this OSD's PGs. PGs whose
//! state changes are reported at once.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::MonSession;
use carmine_messenger::{Message, with_timeout};
use carmine_metrics::StageStat;
use carmine_reactor::{Group, ShardId};
use carmine_store::StatFs;
use carmine_types::{Epoch, MonKind, PgId};
use carmine_wire::frame::SEGMENT_BYTES_MAX;
use carmine_wire::osd_msg::PgTemp;
use carmine_wire::pg_stat::PgStat;
use carmine_wire::private::OsdStats;
use carmine_wire::{Encoder, Front};

use crate::damage;
use crate::metrics::STORE;
use crate::pg::{Pg, TRIMMED_TOLD_MAX};
use crate::shard::OsdShard;
use crate::slow::{self, SlowOps};

/// The time between two reports to the monitor.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);
/// Events of several PGs within this time are reported together.
const GATHER: Duration = Duration::from_millis(10);
/// PGs in one message.
pub(crate) const PGS_MAX: usize = 256;
/// More than a PG's statistics take without its trimmed snapshots, of which a range has 16 bytes.
const PG_STAT_BYTES: usize = 4096;
/// About what they take with three copies: a report of so many bytes for each PG does not move while it is written.
const PG_STAT_USUAL_BYTES: usize = 704;
const _: () = assert!(PGS_MAX * (PG_STAT_BYTES + 16 * TRIMMED_TOLD_MAX) <= SEGMENT_BYTES_MAX);
/// PGs of a reactor that are looked at before other tasks get their turn.
const PGS_AT_ONCE: usize = 32;

/// Sends them for as long as the OSD runs.
pub(crate) fn start(osd: &Rc<OsdShard>, session: Rc<MonSession>) {
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Admin, "stats", async move {
        let (mut committed, mut mean_commit_ns, mut next_full_ns) = (StageStat::default(), 0, 0);
        let mut slow = SlowOps::default();
        while !own.stopping.get() {
            let is_full = own.shard.now_ns() >= next_full_ns;
            if is_full {
                next_full_ns = own.shard.now_ns() + PERIOD.as_nanos() as u64;
                let before = std::mem::replace(&mut committed, commits(&own).await);
                mean_commit_ns = mean_ns(&before, &committed);
                slow = slow::count_all(&own).await;
            }
            let epoch = oldest_epoch(&own).await;
            ask_for_temps(&own, &session, epoch).await;
            own.last_epoch_clean.set(last_epoch_clean(&own).await);
            // A real monitor has its statistics from a manager (`mgr`).
            if own.config.mon_kind == MonKind::Embedded {
                let pgs = pgs(&own, if is_full { Which::All } else { Which::News }).await;
                report(&own, &session, mean_commit_ns, slow, pgs);
                if let Some(error) = own.store.damage() {
                    session.send(damage::message(&own.config, error.to_string()));
                }
            }
            let left_ns = next_full_ns.saturating_sub(own.shard.now_ns());
            if with_timeout(&own.shard, Duration::from_nanos(left_ns), own.news.notified()).await.is_some() {
                own.shard.sleep(GATHER).await;
            }
        }
    });
}

/// The PGs of a report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// Those of which there is news.
    News,
}

fn report(
    osd: &OsdShard,
    session: &MonSession,
    commit_latency_ns: u64,
    slow: SlowOps,
    mut pgs: Vec<(PgId, PgStat)>,
) {
    let space = osd.store.statfs();
    loop {
        let rest = pgs.split_off(pgs.len().min(PGS_MAX));
        let stats = OsdStats {
            total_bytes: space.total,
            used_bytes: used_bytes(space),
            commit_latency_ns,
            pgs,
            slow_ops: slow.count,
            slowest_s: slow.oldest_ns / 1_000_000_000,
        };
        let mut front = Vec::with_capacity((stats.pgs.len() + 1) * PG_STAT_USUAL_BYTES);
        stats.encode(&mut Encoder::new(&mut front));
        session.send(Message::from_header(OsdStats::header(), front));
        if rest.is_empty() {
            return;
        }
        pgs = rest;
    }
}

/// Bytes that count as used: all, where nothing can be written any more for whatever reason.
pub(crate) fn used_bytes(space: StatFs) -> u64 {
    if space.free == 0 { space.total } else { space.used }
}

/// The statistics of PGs that this OSD leads.
pub(crate) async fn pgs(osd: &OsdShard, which: Which) -> Vec<(PgId, PgStat)> {
    let shards = osd.call_all(async move |osd| pgs_of_shard(&osd, which).await).await.into_iter();
    // They are long: those of the only reactor are not copied.
    let all = shards.reduce(|mut all, more| {
        all.extend(more);
        all
    });
    all.unwrap_or_default()
}

async fn pgs_of_shard(osd: &OsdShard, which: Which) -> Vec<(PgId, PgStat)> {
    let is_meant = |pg: &&Rc<Pg>| pg.peer.leads() && (which == Which::All || pg.has_news());
    let led: Vec<Rc<Pg>> = osd.pgs.borrow().values().filter(is_meant).cloned().collect();
    let mut told = Vec::with_capacity(led.len());
    for (n, pg) in led.iter().enumerate() {
        if n % PGS_AT_ONCE == PGS_AT_ONCE - 1 {
            osd.shard.yield_now().await;
        }
        let Some(view) = osd.view() else { break };
        // It may have been removed meanwhile, or have lost its lead.
        if pg.peer.leads() && view.map().pool(pg.id.pgid.pool).is_some() {
            told.push((pg.id.pgid, pg.stat_now(osd, &view)));
        }
    }
    told
}

/// A PG of this shard waits for the monitor: sends the report at once.
pub(crate) fn send_soon(osd: &OsdShard) {
    if osd.shard.id() == ShardId(0) {
        return osd.news.notify_one();
    }
    OsdShard::run_on(&osd.shard, ShardId(0), |first| first.news.notify_one());
}

/// The commits of all shards in their stores, of the writes that they were primary for.
pub(crate) async fn commits(osd: &OsdShard) -> StageStat {
    let mut all = StageStat::default();
    let parts = osd.on_all(|osd| osd.stages.borrow().iter().nth(STORE).map(|(_, stat)| *stat)).await;
    parts.iter().flatten().for_each(|part| all.merge(part));
    all
}

/// Mean time of the commits between two counts.
pub(crate) fn mean_ns(before: &StageStat, after: &StageStat) -> u64 {
    let sum_ns = after.sum_ns.saturating_sub(before.sum_ns);
    sum_ns.checked_div(after.count.saturating_sub(before.count)).unwrap_or(0)
}

/// The oldest `last_epoch_clean` of the PGs that this OSD leads: nobody needs the maps before it for one of them. Without
/// such PGs it needs none at all.
async fn last_epoch_clean(osd: &OsdShard) -> Epoch {
    let newest = osd.epoch();
    let of_shard = |osd: &Rc<OsdShard>| {
        let pgs = osd.pgs.borrow();
        pgs.values().filter(|pg| pg.peer.leads()).map(|pg| pg.peer.history().last_epoch_clean).min()
    };
    osd.on_all(of_shard).await.into_iter().flatten().fold(newest, Epoch::min)
}

/// The oldest epoch of all shards.
async fn oldest_epoch(osd: &OsdShard) -> Epoch {
    osd.on_all(|osd| osd.epoch()).await.into_iter().min().unwrap_or_default()
}

/// Asks the monitor for the acting sets that the PGs of this OSD need, by the map that all its shards have.
async fn ask_for_temps(osd: &OsdShard, session: &MonSession, epoch: Epoch) {
    let pg_temp: BTreeMap<_, _> =
        osd.on_all(move |osd| temps_of_shard(osd, epoch)).await.into_iter().flatten().collect();
    if !pg_temp.is_empty() {
        let version = u64::from(epoch.0);
        session.send(Message::encode(&PgTemp { version, epoch, pg_temp, forced: false }));
    }
}

fn temps_of_shard(osd: &Rc<OsdShard>, epoch: Epoch) -> Vec<(PgId, Vec<i32>)> {
    let Some(view) = osd.view().filter(|view| view.epoch() == epoch) else { return Vec::new() };
    let pgs = osd.pgs.borrow();
    let led = pgs.values().filter(|pg| pg.peer.leads());
    led.filter_map(|pg| Some((pg.id.pgid, pg.wanted_temp(&view)?))).collect()
}
