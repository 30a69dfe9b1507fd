//! Reports of the OSDs: their space, summed up for STATFS and GETPOOLSTATS, the state of their PGs, and what
//! they said when they booted; and what clients of the pools are doing.

use std::collections::{BTreeMap, VecDeque};

use carmine_types::{OsdId, PgId};
use carmine_wire::Encoder;
use carmine_wire::osdmap::IntervalSet;
use carmine_wire::private::{OsdStats, PgScrubs, PoolIo, PoolUse};

/// The newest report of every OSD that is up.
#[derive(Clone, Default, Debug)]
pub(crate) struct ClusterStats {
    pub(crate) reports: BTreeMap<OsdId, OsdStats>,
    /// The scrubs of each PG, and the OSD that told of them: the last one that led it and knew of any.
    pub(crate) scrubs: BTreeMap<PgId, (OsdId, PgScrubs)>,
    /// The metadata that each OSD sent at its last boot.
    pub(crate) metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// What clients of each pool were answered.
    io: BTreeMap<i64, Io>,
}

/// The time over which rates are told.
const RATE_NS: u64 = 10_000_000_000;

/// Operations of clients on one pool.
#[derive(Clone, Default, Debug)]
struct Io {
    /// By each OSD since it runs, as it last said.
    told: BTreeMap<OsdId, PoolIo>,
    /// By OSDs before they last started.
    before: PoolIo,
    /// The sums at some times, newest last.
    past: VecDeque<(u64, PoolIo)>,
}

impl Io {
    fn total(&self) -> PoolIo {
        self.told.values().fold(self.before, |sum, told| sum.plus(*told))
    }

    /// An OSD says what it has answered since it runs.
    fn take(&mut self, osd: OsdId, told: PoolIo, now_ns: u64) {
        let last = self.told.insert(osd, told).unwrap_or_default();
        if told.reads < last.reads || told.writes < last.writes {
            self.before = self.before.plus(last);
        }
        self.past.push_back((now_ns, self.total()));
        // The first one is as old as wanted, or older.
        while self.past.get(1).is_some_and(|(at_ns, _)| at_ns + RATE_NS <= now_ns) {
            self.past.pop_front();
        }
    }

    /// What is done in a second.
    fn rate(&self) -> PoolIo {
        let (Some((since_ns, first)), Some((at_ns, last))) = (self.past.front(), self.past.back()) else {
            return PoolIo::default();
        };
        let ns = at_ns.saturating_sub(*since_ns).max(1);
        let per_second = |last: u64, first: u64| {
            let rate = u128::from(last.saturating_sub(first)) * 1_000_000_000 / u128::from(ns);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        PoolIo {
            reads: per_second(last.reads, first.reads),
            read_bytes: per_second(last.read_bytes, first.read_bytes),
            writes: per_second(last.writes, first.writes),
            write_bytes: per_second(last.write_bytes, first.write_bytes),
        }
    }
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

    /// Objects of a PG that are unfound, as its primary says.
    pub(crate) fn unfound(&self, primary: OsdId, pg: PgId) -> u64 {
        let report = self.reports.get(&primary);
        let stuck = report.and_then(|report| report.stuck.iter().find(|stuck| stuck.pg == pg));
        stuck.map_or(0, |stuck| stuck.unfound)
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

    /// Takes a report.
    pub(crate) fn take(&mut self, osd: OsdId, report: OsdStats, now_ns: u64) {
        for told in &report.pools {
            self.io.entry(told.pool).or_default().take(osd, told.io, now_ns);
        }
        self.reports.insert(osd, report);
    }

    /// Forgets pools that are no more.
    pub(crate) fn retain_pools(&mut self, is_there: impl Fn(i64) -> bool) {
        self.scrubs.retain(|pg, _| is_there(pg.pool));
        self.io.retain(|pool, _| is_there(*pool));
    }

    /// The operations of clients on a pool in a second.
    pub(crate) fn rate(&self, pool: i64) -> PoolIo {
        self.io.get(&pool).map(Io::rate).unwrap_or_default()
    }

    /// The same on all pools.
    pub(crate) fn rate_of_all(&self) -> PoolIo {
        self.io.values().fold(PoolIo::default(), |sum, io| sum.plus(io.rate()))
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
        for (pool, sum) in &mut sums {
            sum.io = self.io.get(pool).map(Io::total).unwrap_or_default();
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
    let io = held.io;
    Encoder::collect(|e| {
        e.envelope(7, 5, |e| {
            // object_stat_collection_t: the sums, and an empty map of sums by category.
            e.envelope(2, 2, |e| {
                e.envelope(20, 14, |e| {
                    let io =
                        [io.reads, io.read_bytes.div_ceil(1024), io.writes, io.write_bytes.div_ceil(1024)];
                    // Between them: objects missing on the primary, degraded, and unfound.
                    let held = [held.bytes, held.objects, held.clones, copies, 0, 0, 0];
                    let known = [&held[..], &io].concat();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(writes: u64) -> PoolIo {
        PoolIo { writes, write_bytes: 4096 * writes, ..PoolIo::default() }
    }

    #[test]
    fn operations_are_counted_over_restarts_and_their_rate_is_of_the_last_ten_seconds() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut io = Io::default();
        assert_eq!((io.total(), io.rate()), (PoolIo::default(), PoolIo::default()));
        io.take(OsdId(0), writes(100), SECOND_NS);
        io.take(OsdId(1), writes(50), SECOND_NS);
        assert_eq!(io.total(), writes(150));
        // It has started again, and counts from 0.
        io.take(OsdId(0), writes(20), 3 * SECOND_NS);
        assert_eq!(io.total(), writes(170));
        assert_eq!(io.rate(), writes(35));
        for second in 4..30 {
            io.take(OsdId(1), writes(50 + 3 * second), second * SECOND_NS);
        }
        assert_eq!(io.rate(), writes(3));
        io.take(OsdId(1), writes(50 + 3 * 29), 60 * SECOND_NS);
        assert_eq!(io.rate(), PoolIo::default());
    }
}
