//! Reports of the OSDs: their space, summed up for STATFS and GETPOOLSTATS, the state of their PGs, and what
//! they said when they booted.

use std::collections::BTreeMap;

use carmine_types::{OsdId, PgId};
use carmine_wire::Encoder;
use carmine_wire::osdmap::IntervalSet;
use carmine_wire::private::{OsdStats, PgScrubs, PoolUse};

/// The newest report of every OSD that is up.
#[derive(Clone, Default, Debug)]
pub(crate) struct ClusterStats {
    pub(crate) reports: BTreeMap<OsdId, OsdStats>,
    /// The scrubs of each PG, and the OSD that told of them: the last one that led it and knew of any.
    pub(crate) scrubs: BTreeMap<PgId, (OsdId, PgScrubs)>,
    /// The metadata that each OSD sent at its last boot.
    pub(crate) metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
}

impl ClusterStats {
    /// The metadata that an OSD sent.
    pub(crate) fn metadata(&self, osd: OsdId) -> impl Iterator<Item = (&str, &str)> {
        self.metadata.get(&osd).into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Total and used bytes of one OSD; 0 if it has not reported.
    pub(crate) fn space_of(&self, osd: OsdId) -> (u64, u64) {
        self.reports.get(&osd).map_or((0, 0), |report| (report.total_bytes, report.used_bytes))
    }

    /// Why a PG does not serve, by its primary: `Some(None)` if it does, `None` if the primary has not reported.
    pub(crate) fn pg_state(&self, primary: OsdId, pg: PgId) -> Option<Option<&str>> {
        let report = self.reports.get(&primary)?;
        Some(report.stuck.iter().find(|stuck| stuck.pg == pg).map(|stuck| stuck.state.as_str()))
    }

    /// The removed snapshots that each PG has trimmed, as far as a primary has said so.
    pub(crate) fn trimmed(&self) -> BTreeMap<PgId, &IntervalSet> {
        self.reports.values().flat_map(|report| &report.purged).map(|told| (told.pg, &told.snaps)).collect()
    }

    /// The scrubs of a PG, by its primary; until a new one has told of any, when the last were, and what they found.
    pub(crate) fn pg_scrubs(&self, primary: Option<OsdId>, pg: PgId) -> PgScrubs {
        match self.scrubs.get(&pg) {
            None => PgScrubs { pg, ..PgScrubs::default() },
            Some((osd, told)) if primary == Some(*osd) => *told,
            Some((_, told)) => idle(told),
        }
    }

    /// An OSD tells of the scrubs of all PGs that it leads; none of others is under way there.
    pub(crate) fn take_scrubs(&mut self, osd: OsdId, told: impl Iterator<Item = PgScrubs>) {
        self.scrubs
            .values_mut()
            .filter(|(teller, _)| *teller == osd)
            .for_each(|(_, told)| *told = idle(told));
        self.scrubs.extend(told.map(|told| (told.pg, (osd, told))));
    }

    /// Total and used bytes of all OSDs.
    pub(crate) fn space(&self) -> (u64, u64) {
        self.reports.values().fold((0u64, 0u64), |(total, used), r| {
            (total.saturating_add(r.total_bytes), used.saturating_add(r.used_bytes))
        })
    }

    /// Objects and bytes of each pool.
    pub(crate) fn pools(&self) -> BTreeMap<i64, PoolUse> {
        let mut sums = BTreeMap::<i64, PoolUse>::new();
        for one in self.reports.values().flat_map(|r| &r.pools) {
            let sum = sums.entry(one.pool).or_insert(PoolUse { pool: one.pool, ..PoolUse::default() });
            sum.objects = sum.objects.saturating_add(one.objects);
            sum.bytes = sum.bytes.saturating_add(one.bytes);
            sum.clones = sum.clones.saturating_add(one.clones);
        }
        sums
    }
}

/// The past part of what was told.
fn idle(told: &PgScrubs) -> PgScrubs {
    PgScrubs { scrubbing: false, deep: false, repair: false, ..*told }
}

/// `object_stat_sum_t` has this many 64-bit counters before the four 32-bit ones, and this many after them.
const SUM_COUNTERS: (usize, usize) = (28, 9);

/// A `pool_stat_t` of Pacific with what we know of a pool; the rest is zero.
pub(crate) fn pool_stat(held: &PoolUse, size: u8) -> Vec<u8> {
    let copies = held.objects.saturating_mul(u64::from(size));
    let stored = held.bytes.saturating_mul(u64::from(size));
    Encoder::collect(|e| {
        e.envelope(7, 5, |e| {
            // object_stat_collection_t: the sums, and an empty map of sums by category.
            e.envelope(2, 2, |e| {
                e.envelope(20, 14, |e| {
                    let known = [held.bytes, held.objects, held.clones, copies];
                    known.iter().for_each(|n| e.u64(*n));
                    e.zeros(8 * (SUM_COUNTERS.0 - known.len()) + 4 * 4 + 8 * SUM_COUNTERS.1);
                });
                e.u32(0);
            });
            // Log sizes, PGs up and acting.
            e.zeros(8 + 8 + 4 + 4);
            // store_statfs_t: total, available, internally reserved, allocated, data stored, three of compression,
            // omap, internal metadata.
            e.envelope(1, 1, |e| {
                e.zeros(3 * 8);
                e.u64(stored);
                e.u64(stored);
                e.zeros(5 * 8);
            });
            // Number of OSDs that reported a store_statfs_t: with 0 the client would not read it.
            e.u32(1);
        });
    })
}
