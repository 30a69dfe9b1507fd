//! The report to the manager of a real cluster: counters and slow operations (MMgrReport), then the OSD's space and its PGs
//! (MPGStats). The embedded monitor has no manager besides itself: it is told by private messages (`stats`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use carmine_client::{MgrHandler, MgrSession, Reporting};
use carmine_crush::MapView;
use carmine_messenger::{ClientConfig, Connection, Message};
use carmine_metrics::StageStat;
use carmine_reactor::{Shard, ShardId};
use carmine_store::StatFs;
use carmine_types::{Epoch, MonKind, PgId};
use carmine_wire::mgr_msg::{
    HealthMetric, MetricReport, MgrReport, OsPerfStat, OsdStat, PgStatsMsg, StoreStatFs, pack,
};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::pg_stat::{PgStat, state};
use carmine_wire::{EntityAddr, kinds};

use crate::admin::counters;
use crate::heartbeat::Heartbeats;
use crate::pg::order_scrubs;
use crate::shard::OsdShard;
use crate::slow::{self, SlowOps};
use crate::stats::{self, PGS_MAX, Which};

/// The name under which the store's damage becomes a health check of the cluster.
const DAMAGED: &str = "OSD_METADATA_DAMAGED";

/// What shard 0 tells the manager.
struct Reporter {
    osd: Rc<OsdShard>,
    /// The public address of this start of this OSD.
    addr: EntityAddr,
    heartbeats: Rc<Heartbeats>,
    /// Messages about PGs that were sent since the start.
    sent: Cell<u32>,
    /// The commits that the last report has counted.
    committed: Cell<StageStat>,
}

/// Keeps a session with the active manager for as long as the OSD runs, if its cluster has managers (shard 0).
pub(crate) fn start(
    osd: &Rc<OsdShard>,
    addr: EntityAddr,
    client: &Rc<ClientConfig>,
    heartbeats: &Rc<Heartbeats>,
) -> Option<Rc<MgrSession>> {
    if osd.config.mon_kind != MonKind::Ceph {
        return None;
    }
    let (own, heartbeats) = (Rc::clone(osd), Rc::clone(heartbeats));
    let reporter = Reporter { osd: own, addr, heartbeats, sent: Cell::default(), committed: Cell::default() };
    let session = MgrSession::start(&osd.shard, Rc::clone(client), Rc::new(reporter));
    osd.shard.set_local(Rc::clone(&session));
    Some(session)
}

/// Reports at once; returns the number of the report, which `ceph osd last-stat-seq` shows when the manager has it. `None`: there
/// is no session.
pub(crate) async fn flush(osd: &OsdShard) -> Option<u64> {
    osd.shard.call(ShardId(0), async |shard: Shard| shard.local::<MgrSession>()?.report().await).await
}

impl MgrHandler for Reporter {
    fn report<'a>(&'a self, conn: &'a Connection, is_first: bool) -> Reporting<'a> {
        Box::pin(async move {
            self.tell_counters(conn, is_first).await;
            self.tell_pgs(conn).await
        })
    }

    fn on_message(&self, msg: &Message) -> carmine_wire::Result<()> {
        if msg.header.kind == kinds::OSD_SCRUB2 {
            order_scrubs(&self.osd, &msg.decode()?);
        }
        Ok(())
    }
}

impl Reporter {
    async fn tell_counters(&self, conn: &Connection, is_first: bool) {
        let slow = slow::count_all(&self.osd).await;
        let (types, values): (Vec<_>, Vec<_>) = counters(&self.osd).await.into_iter().unzip();
        conn.send(Message::encode(&MgrReport {
            name: self.osd.config.id.0.to_string(),
            declare: if is_first { types } else { Vec::new() },
            values: pack(values),
            undeclare: Vec::new(),
            service: String::new(),
            status: None,
            health: health(slow).to_vec(),
            config: Vec::new(),
            // An OSD of Ceph tells of no tasks and answers no questions in these words.
            tasks: Some(BTreeMap::new()),
            metrics: Some(MetricReport::default()),
        }));
    }

    /// Returns the number of the last message. `None`: there is no map yet, so that there is nothing to tell.
    async fn tell_pgs(&self, conn: &Connection) -> Option<u64> {
        let mut pgs = stats::pgs(&self.osd, Which::All).await;
        let view = self.osd.view()?;
        let mut osd = self.osd_stat(&view, &pgs).await;
        let pools = pool_space(&pgs);
        loop {
            let rest = pgs.split_off(pgs.len().min(PGS_MAX));
            self.sent.set(self.sent.get().wrapping_add(1));
            osd.seq = u64::from(osd.up_from.0) << 32 | u64::from(self.sent.get());
            conn.send(Message::encode(&PgStatsMsg {
                version: 0,
                fsid: view.map().fsid,
                osd: osd.clone(),
                pgs,
                epoch: view.epoch(),
                pools: pools.clone(),
            }));
            if rest.is_empty() {
                return Some(osd.seq);
            }
            pgs = rest;
            self.osd.shard.yield_now().await;
        }
    }

    /// How this OSD is, all but the number of the message.
    async fn osd_stat(&self, view: &MapView, pgs: &[(PgId, PgStat)]) -> OsdStat {
        let committed = stats::commits(&self.osd).await;
        let commit_ns = stats::mean_ns(&self.committed.replace(committed), &committed);
        let commit_ms = u32::try_from(commit_ns / 1_000_000).unwrap_or(u32::MAX);
        let of_shard =
            self.osd.on_all(|osd| (osd.pgs.borrow().values().count(), osd.metrics.borrow().blocks_healed));
        let (held, healed): (Vec<usize>, Vec<u64>) = of_shard.await.into_iter().unzip();
        let alerts = self.osd.store.damage().map(|error| (DAMAGED.to_owned(), error.to_string()));
        let own = self.osd.config.id.0 as i32;
        OsdStat {
            snap_trim_queue_len: pgs.iter().fold(0, |all, (_, pg)| pg.snaptrimq_len.saturating_add(all)),
            num_snap_trimming: pgs.iter().filter(|(_, pg)| pg.is(state::SNAPTRIM)).count() as u32,
            hb_peers: self.heartbeats.watched().map(|osd| osd.0 as i32).collect(),
            perf: OsPerfStat { commit_ms, apply_ms: commit_ms },
            up_from: self.up_from(view.map()),
            num_pgs: held.iter().sum::<usize>() as u32,
            os_alerts: vec![(own, alerts.into_iter().collect())],
            num_shards_repaired: signed(healed.iter().sum()),
            num_osds: 1,
            num_per_pool_osds: 1,
            num_per_pool_omap_osds: 1,
            ..with_space(self.osd.store.statfs())
        }
    }

    /// The epoch in which this process came up; zero before.
    fn up_from(&self, map: &OsdMap) -> Epoch {
        let id = self.osd.config.id;
        let is_up = map.client_addr(id).is_some_and(|addrs| addrs.contains(&self.addr));
        map.osd_info.get(id.0 as usize).filter(|_| is_up).map_or(Epoch(0), |info| info.up_from)
    }
}

/// The space that pools take. Members other than the primary do not know how long their objects are, so a primary tells of all copies
/// of its PGs that there are: the manager only adds up what the OSDs tell of a pool.
fn pool_space(pgs: &[(PgId, PgStat)]) -> BTreeMap<i64, StoreStatFs> {
    let mut pools = BTreeMap::<i64, StoreStatFs>::new();
    for (pg, stat) in pgs {
        let sum = &stat.stats.sum;
        let copies = sum.num_object_copies.saturating_sub(sum.num_objects_degraded).max(0);
        let all = |bytes: i64| {
            let all = i128::from(bytes) * i128::from(copies) / i128::from(sum.num_objects.max(1));
            i64::try_from(all).unwrap_or(i64::MAX)
        };
        let space = pools.entry(pg.pool).or_default();
        space.data_stored = space.data_stored.saturating_add(all(sum.num_bytes));
        space.omap_allocated = space.omap_allocated.saturating_add(all(sum.num_omap_bytes));
        space.allocated = space.data_stored;
    }
    pools
}

/// Both health metrics of an OSD. It makes all PGs that it is ordered to, however many it has.
fn health(slow: SlowOps) -> [HealthMetric; 2] {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let (count, oldest_s) = (narrow(slow.count), narrow(slow.oldest_ns / 1_000_000_000));
    [
        HealthMetric { kind: HealthMetric::SLOW_OPS, count, oldest_s },
        HealthMetric { kind: HealthMetric::PENDING_CREATING_PGS, ..HealthMetric::default() },
    ]
}

/// The space of an OSD in Ceph's terms: what is not available counts as used, and what is kept back as reserved.
fn with_space(space: StatFs) -> OsdStat {
    let StatFs { total, used, metadata, free } = space;
    let data = signed(used.saturating_sub(metadata));
    let kb = |bytes: u64| signed(bytes >> 10);
    OsdStat {
        kb: kb(total),
        kb_used: kb(total.saturating_sub(free)),
        kb_avail: kb(free),
        kb_used_data: data >> 10,
        kb_used_meta: kb(metadata),
        statfs: StoreStatFs {
            total,
            available: free,
            internally_reserved: total.saturating_sub(used).saturating_sub(free),
            allocated: data,
            // The store does not know how much of its blocks is data.
            data_stored: data,
            internal_metadata: signed(metadata),
            ..StoreStatFs::default()
        },
        ..OsdStat::default()
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_available_is_used() {
        let mib = |mib: u64| mib << 20;
        let stat = with_space(StatFs { total: mib(100), used: mib(30), metadata: mib(10), free: mib(65) });
        assert_eq!([stat.kb, stat.kb_used, stat.kb_avail], [100, 35, 65].map(|mib| mib << 10));
        assert_eq!([stat.kb_used_data, stat.kb_used_meta], [20 << 10, 10 << 10]);
        assert_eq!((stat.statfs.internally_reserved, stat.statfs.allocated), (mib(5), 20 << 20));
        let full = with_space(StatFs { total: mib(100), used: mib(30), metadata: mib(10), free: 0 });
        assert_eq!((full.kb_used, full.kb_avail), (100 << 10, 0));
    }

    #[test]
    fn a_pool_takes_the_space_of_all_copies_that_there_are() {
        let pg = |pool, ps, objects, bytes, degraded| {
            let mut stat = PgStat::default();
            stat.stats.sum.num_objects = objects;
            stat.stats.sum.num_bytes = bytes;
            stat.stats.sum.num_object_copies = objects * 3;
            stat.stats.sum.num_objects_degraded = degraded;
            (PgId::new(pool, ps), stat)
        };
        let pools = pool_space(&[pg(1, 0, 10, 1000, 0), pg(1, 1, 10, 1000, 10), pg(2, 0, 0, 0, 0)]);
        let used: Vec<_> =
            pools.iter().map(|(pool, space)| (*pool, space.data_stored, space.allocated)).collect();
        assert_eq!(used, [(1, 5000, 5000), (2, 0, 0)]);
    }

    #[test]
    fn both_health_metrics_are_always_told() {
        let kinds = |slow| health(slow).map(|metric| (metric.kind, metric.count, metric.oldest_s));
        assert_eq!(kinds(SlowOps::default()), [(0, 0, 0), (1, 0, 0)]);
        let slow = SlowOps { count: 4, oldest_ns: 6_900_000_000 };
        assert_eq!(kinds(slow), [(0, 4, 6), (1, 0, 0)]);
    }
}
