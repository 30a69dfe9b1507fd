//! The report that the monitor gets every few seconds: the store's space, and what this OSD's PGs hold.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::MonSession;
use carmine_messenger::{Message, with_timeout};
use carmine_metrics::StageStat;
use carmine_reactor::{Group, ShardId};
use carmine_types::{Epoch, PgId};
use carmine_wire::osd_msg::PgTemp;
use carmine_wire::private::{OsdStats, PgPurged, PgStuck, PoolIo, PoolUse};

use crate::metrics::STORE;
use crate::pg::tell_monitor;
use crate::shard::OsdShard;
use crate::slow;

/// The time between two reports to the monitor.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);
/// Events of several PGs within this time are told together.
const GATHER: Duration = Duration::from_millis(10);

/// Sends them for as long as the OSD runs.
pub(crate) fn start(osd: &Rc<OsdShard>, session: Rc<MonSession>) {
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Admin, "stats", async move {
        let mut committed = StageStat::default();
        while !own.stopping.get() {
            let pools = pools(&own).await;
            let before = std::mem::replace(&mut committed, commits(&own).await);
            let epoch = oldest_epoch(&own).await;
            ask_for_temps(&own, &session, epoch).await;
            own.last_epoch_clean.set(last_epoch_clean(&own).await);
            let space = own.store.statfs();
            let slow = slow::count_all(&own).await;
            session.send(Message::of(&OsdStats {
                epoch,
                total_bytes: space.total,
                // Where nothing can be written any more, for whatever reason, all counts as used.
                used_bytes: if space.free == 0 { space.total } else { space.used },
                commit_latency_ns: mean_ns(&before, &committed),
                pools,
                stuck: of_all_shards(&own, |osd| stuck_of_shard(&osd)).await,
                purged: of_all_shards(&own, |osd| purged_of_shard(&osd)).await,
                slow_ops: slow.count,
                slowest_s: slow.oldest_ns / 1_000_000_000,
            }));
            session.send(tell_monitor(&own).await);
            if with_timeout(&own.shard, PERIOD, own.news.notified()).await.is_some() {
                own.shard.sleep(GATHER).await;
            }
        }
    });
}

/// A PG of this shard waits for the monitor: it hears of it at once.
pub(crate) fn send_soon(osd: &OsdShard) {
    if osd.shard.id() == ShardId(0) {
        return osd.news.notify_one();
    }
    osd.shard.submit_to(ShardId(0), |shard| {
        if let Some(osd) = OsdShard::of(shard) {
            osd.news.notify_one();
        }
    });
}

/// The commits of all shards in their stores, of the writes that they were primary for.
async fn commits(osd: &OsdShard) -> StageStat {
    let mut all = StageStat::default();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let part = osd.shard.call(to, |shard| async move {
            let osd = OsdShard::of(&shard)?;
            let stages = osd.stages.borrow();
            stages.iter().nth(STORE).map(|(_, stat)| *stat)
        });
        all.merge(&part.await.unwrap_or_default());
    }
    all
}

/// Mean time of the commits between two counts.
fn mean_ns(before: &StageStat, after: &StageStat) -> u64 {
    let sum_ns = after.sum_ns.saturating_sub(before.sum_ns);
    sum_ns.checked_div(after.count.saturating_sub(before.count)).unwrap_or(0)
}

/// The contents of the PGs that this OSD leads, all shards together, as far as they are counted; and what clients of the pools were answered.
async fn pools(osd: &OsdShard) -> Vec<PoolUse> {
    let mut sums = BTreeMap::new();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let part =
            osd.shard.call(to, |shard| async move { OsdShard::of(&shard).map(|osd| pools_of_shard(&osd)) });
        part.await.into_iter().flatten().for_each(|part| add(&mut sums, part));
    }
    sums.into_values().collect()
}

/// What `part` finds on each shard, all together.
async fn of_all_shards<T: Send + 'static>(
    osd: &OsdShard,
    part: impl Fn(Rc<OsdShard>) -> Vec<T> + Copy + Send + 'static,
) -> Vec<T> {
    let mut all = Vec::new();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let found = osd.shard.call(to, move |shard| async move { OsdShard::of(&shard).map(part) });
        all.extend(found.await.into_iter().flatten());
    }
    all
}

/// The oldest `last_epoch_clean` of the PGs that this OSD leads: nobody needs the maps before it for one of them. Without
/// such PGs it needs none at all.
async fn last_epoch_clean(osd: &OsdShard) -> Epoch {
    let mut oldest = osd.epoch();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let part = osd.shard.call(to, |shard| async move {
            let osd = OsdShard::of(&shard)?;
            let pgs = osd.pgs.borrow();
            pgs.values().filter(|pg| pg.leads()).map(|pg| pg.history().last_epoch_clean).min()
        });
        oldest = oldest.min(part.await.unwrap_or(oldest));
    }
    oldest
}

/// The removed snapshots of which the PGs that this OSD leads have nothing any more.
fn purged_of_shard(osd: &OsdShard) -> Vec<PgPurged> {
    let pgs = osd.pgs.borrow();
    let each = pgs.values().map(|pg| PgPurged { pg: pg.id.pgid, snaps: pg.trimmed_snaps() });
    each.filter(|purged| !purged.snaps.is_empty()).collect()
}

fn pools_of_shard(osd: &OsdShard) -> Vec<PoolUse> {
    let mut sums = BTreeMap::new();
    for pg in osd.pgs.borrow().values().filter(|pg| pg.leads()) {
        let (objects, clones, bytes) = pg.usage();
        add(&mut sums, PoolUse { pool: pg.id.pgid.pool, objects, bytes, clones, io: PoolIo::default() });
    }
    for (pool, served) in osd.served.borrow().iter() {
        add(&mut sums, PoolUse { pool: *pool, io: served.io(), ..PoolUse::default() });
    }
    sums.into_values().collect()
}

/// The oldest epoch of all shards.
async fn oldest_epoch(osd: &OsdShard) -> Epoch {
    let mut oldest = osd.epoch();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let epoch = osd
            .shard
            .call(to, |shard| async move { OsdShard::of(&shard).map_or(Epoch(0), |osd| osd.epoch()) });
        oldest = oldest.min(epoch.await);
    }
    oldest
}

/// Asks the monitor for the acting sets that the PGs of this OSD need. All of it is said of this one epoch; should a shard go on to
/// the next one meanwhile, the monitor is there, too, and takes no notice.
async fn ask_for_temps(osd: &OsdShard, session: &MonSession, epoch: Epoch) {
    let asked = of_all_shards(osd, move |osd| temps_of_shard(&osd, epoch)).await;
    if !asked.is_empty() {
        let (version, pg_temp) = (u64::from(epoch.0), asked.into_iter().collect());
        session.send(Message::of(&PgTemp { version, epoch, pg_temp, forced: false }));
    }
}

fn temps_of_shard(osd: &Rc<OsdShard>, epoch: Epoch) -> Vec<(PgId, Vec<i32>)> {
    let Some(view) = osd.view().filter(|view| view.epoch() == epoch) else { return Vec::new() };
    let pgs = osd.pgs.borrow();
    let led = pgs.values().filter(|pg| pg.leads());
    led.filter_map(|pg| Some((pg.id.pgid, pg.wanted_temp(osd, &view)?))).collect()
}

fn stuck_of_shard(osd: &OsdShard) -> Vec<PgStuck> {
    osd.pgs.borrow().values().filter(|pg| pg.leads()).filter_map(|pg| pg.stuck()).collect()
}

fn add(sums: &mut BTreeMap<i64, PoolUse>, part: PoolUse) {
    let sum = sums.entry(part.pool).or_insert(PoolUse { pool: part.pool, ..PoolUse::default() });
    sum.objects += part.objects;
    sum.bytes = sum.bytes.saturating_add(part.bytes);
    sum.clones = sum.clones.saturating_add(part.clones);
    sum.io = sum.io.plus(part.io);
}
