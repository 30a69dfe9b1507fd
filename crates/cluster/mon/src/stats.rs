//! Reports of the OSDs: their space, summed up for STATFS and GETPOOLSTATS, the statistics of their PGs, and what
//! they said when they booted; and what clients of the pools are doing.

use std::collections::{BTreeMap, VecDeque};

use carmine_types::{OsdId, PgId};
use carmine_wire::Encoder;
use carmine_wire::osdmap::IntervalSet;
use carmine_wire::pg_stat::{ObjectStatSum, ObjectStats, PgStat};
use carmine_wire::private::OsdStats;

/// The newest report of every OSD that is up, and what was last said of every PG.
#[derive(Clone, Default, Debug)]
pub(crate) struct ClusterStats {
    /// Without the PGs.
    pub(crate) reports: BTreeMap<OsdId, OsdStats>,
    /// The statistics of each PG, and the OSD that told of them: the last one that led it.
    pub(crate) pgs: BTreeMap<PgId, (OsdId, PgStat)>,
    /// The metadata that each OSD sent at its last boot.
    pub(crate) metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// OSDs that could not read their metadata, and the first error of each; until they boot again.
    pub(crate) damage: BTreeMap<OsdId, String>,
    /// What was done on each pool.
    work: BTreeMap<i64, Work>,
}

/// The time over which rates are told.
const RATE_NS: u64 = 10_000_000_000;

/// Operations of clients on one pool, and its recovery.
#[derive(Clone, Default, Debug)]
struct Work {
    total: ObjectStatSum,
    /// The total at some times, newest last.
    past: VecDeque<(u64, ObjectStatSum)>,
}

impl Work {
    fn add(&mut self, more: &ObjectStatSum, now_ns: u64) {
        self.total.add(more);
        self.past.push_back((now_ns, self.total));
        // The first one is as old as wanted, or older.
        while self.past.get(1).is_some_and(|(at_ns, _)| at_ns + RATE_NS <= now_ns) {
            self.past.pop_front();
        }
    }

    /// What is done in a second.
    fn rate(&self) -> ObjectStatSum {
        let (Some((since_ns, first)), Some((at_ns, last))) = (self.past.front(), self.past.back()) else {
            return ObjectStatSum::default();
        };
        let ns = i128::from(at_ns.saturating_sub(*since_ns).max(1));
        work(|counter| {
            let more = i128::from(counter(last).saturating_sub(counter(first)).max(0));
            i64::try_from(more * 1_000_000_000 / ns).unwrap_or(i64::MAX)
        })
    }
}

/// A sum that has only counters of what was done, by the value of each.
fn work(value: impl Fn(fn(&ObjectStatSum) -> i64) -> i64) -> ObjectStatSum {
    ObjectStatSum {
        num_read: value(|sum| sum.num_read),
        num_read_kb: value(|sum| sum.num_read_kb),
        num_write: value(|sum| sum.num_write),
        num_write_kb: value(|sum| sum.num_write_kb),
        num_objects_recovered: value(|sum| sum.num_objects_recovered),
        num_bytes_recovered: value(|sum| sum.num_bytes_recovered),
        ..ObjectStatSum::default()
    }
}

/// What was done between two reports on a PG. Counts that are smaller than before began anew.
fn done_between(before: &ObjectStatSum, now: &ObjectStatSum) -> ObjectStatSum {
    work(|counter| {
        let (before, now) = (counter(before), counter(now));
        if now < before { now } else { now.saturating_sub(before) }
    })
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

    /// The last word on a PG, whoever led it then.
    pub(crate) fn last_pg(&self, pg: PgId) -> Option<&PgStat> {
        self.pgs.get(&pg).map(|(_, stat)| stat)
    }

    /// The word of its present primary.
    pub(crate) fn pg(&self, pg: PgId, primary: OsdId) -> Option<&PgStat> {
        self.pgs.get(&pg).filter(|(teller, _)| *teller == primary).map(|(_, stat)| stat)
    }

    /// The removed snapshots that a PG has trimmed, as far as a primary has said so.
    pub(crate) fn trimmed(&self, pg: PgId) -> Option<&IntervalSet> {
        self.last_pg(pg).map(|stat| &stat.purged_snaps)
    }

    /// Accepts a report. It does not count for a PG that does not exist, or of which there is later news.
    pub(crate) fn accept(
        &mut self,
        osd: OsdId,
        mut report: OsdStats,
        now_ns: u64,
        exists: impl Fn(PgId) -> bool,
    ) {
        let mut done = BTreeMap::<i64, ObjectStatSum>::new();
        for (pg, stat) in std::mem::take(&mut report.pgs) {
            let before = self.pgs.get(&pg);
            let age = |stat: &PgStat| (stat.reported_epoch, stat.reported_seq);
            let is_late = before.is_some_and(|(teller, before)| match *teller == osd {
                true => age(&stat) < age(before),
                false => stat.reported_epoch < before.reported_epoch,
            });
            if is_late || !exists(pg) {
                continue;
            }
            let own = before.filter(|(teller, _)| *teller == osd).map(|(_, before)| before.stats.sum);
            let more = done_between(&own.unwrap_or_default(), &stat.stats.sum);
            done.entry(pg.pool).or_default().add(&more);
            self.pgs.insert(pg, (osd, stat));
        }
        for (pool, more) in done {
            self.work.entry(pool).or_default().add(&more, now_ns);
        }
        self.reports.insert(osd, report);
    }

    /// Forgets PGs that are no more.
    pub(crate) fn retain_pgs(&mut self, exists: impl Fn(PgId) -> bool) {
        self.pgs.retain(|pg, _| exists(*pg));
        self.work.retain(|pool, _| exists(PgId::new(*pool, 0)));
    }

    /// What is done on a pool in a second.
    pub(crate) fn rate(&self, pool: i64) -> ObjectStatSum {
        self.work.get(&pool).map(Work::rate).unwrap_or_default()
    }

    /// The same on all pools.
    pub(crate) fn rate_of_all(&self) -> ObjectStatSum {
        sum_of(self.work.values().map(Work::rate))
    }

    /// Total and used bytes of all OSDs.
    pub(crate) fn space(&self) -> (u64, u64) {
        self.reports.values().fold((0u64, 0u64), |(total, used), r| {
            (total.saturating_add(r.total_bytes), used.saturating_add(r.used_bytes))
        })
    }

    /// The statistics of each pool.
    pub(crate) fn pools(&self) -> BTreeMap<i64, ObjectStatSum> {
        let mut sums = BTreeMap::<i64, ObjectStatSum>::new();
        for (pg, (_, stat)) in &self.pgs {
            sums.entry(pg.pool).or_default().add(&stat.stats.sum);
        }
        for (pool, sum) in &mut sums {
            let done = self.work.get(pool).map(|work| work.total).unwrap_or_default();
            *sum = ObjectStatSum {
                num_read: done.num_read,
                num_read_kb: done.num_read_kb,
                num_write: done.num_write,
                num_write_kb: done.num_write_kb,
                num_objects_recovered: done.num_objects_recovered,
                num_bytes_recovered: done.num_bytes_recovered,
                ..*sum
            };
        }
        sums
    }

    /// The statistics of all pools.
    pub(crate) fn held(&self) -> ObjectStatSum {
        sum_of(self.pools().into_values())
    }
}

/// All of them together.
pub(crate) fn sum_of(sums: impl Iterator<Item = ObjectStatSum>) -> ObjectStatSum {
    sums.fold(ObjectStatSum::default(), |mut all, sum| {
        all.add(&sum);
        all
    })
}

/// A counter, which is never less than 0.
pub(crate) fn unsigned(counter: i64) -> u64 {
    counter.try_into().unwrap_or(0)
}

/// A `pool_stat_t` of Pacific with what we know of a pool; the rest is zero.
pub(crate) fn pool_stat(held: &ObjectStatSum, size: u8) -> Vec<u8> {
    let stored = unsigned(held.num_bytes).saturating_mul(u64::from(size));
    Encoder::collect(|e| {
        e.envelope(7, 5, |e| {
            e.put(&ObjectStats { sum: *held });
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
    use carmine_types::Epoch;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const PG: PgId = PgId { pool: 1, ps: 0 };

    fn writes(num_write: i64) -> ObjectStatSum {
        ObjectStatSum { num_write, num_write_kb: 4 * num_write, ..ObjectStatSum::default() }
    }

    fn report(epoch: u32, seq: u64, sum: ObjectStatSum) -> OsdStats {
        let stats = ObjectStats { sum };
        let stat = PgStat { reported_epoch: Epoch(epoch), reported_seq: seq, stats, ..PgStat::default() };
        let pgs = vec![(PG, stat)];
        OsdStats { total_bytes: 1, used_bytes: 0, commit_latency_ns: 0, pgs, slow_ops: 0, slowest_s: 0 }
    }

    #[test]
    fn operations_are_counted_over_changes_of_primaries_and_their_rate_is_of_the_last_ten_seconds() {
        let mut stats = ClusterStats::default();
        let mut tell = |osd: u32, report, second: u64| {
            stats.accept(OsdId(osd), report, second * SECOND_NS, |pg| pg == PG)
        };
        tell(0, report(4, 1, writes(100)), 1);
        tell(0, report(4, 2, writes(150)), 2);
        // Another one leads, and counts from 0; then the first one again.
        tell(1, report(5, 1, writes(20)), 3);
        tell(0, report(5, 1, writes(7)), 3);
        tell(0, report(4, 9, writes(9)), 3);
        tell(0, report(6, 1, writes(3)), 3);
        let other = OsdStats { pgs: vec![(PgId::new(9, 0), PgStat::default())], ..report(7, 1, writes(0)) };
        tell(0, other, 3);
        assert_eq!(stats.pools()[&1], writes(150 + 20 + 7 + 3));
        assert_eq!((stats.pools().len(), stats.held().num_write), (1, 180));
        assert_eq!(stats.rate(1), writes(40));
        for second in 4..30 {
            let sum = writes(3 * second);
            stats.accept(OsdId(0), report(6, second as u64, sum), second as u64 * SECOND_NS, |_| true);
        }
        assert_eq!((stats.rate(1), stats.rate_of_all()), (writes(3), writes(3)));
        stats.accept(OsdId(0), report(6, 60, writes(3 * 29)), 60 * SECOND_NS, |_| true);
        assert_eq!(stats.rate(1), ObjectStatSum::default());
        stats.retain_pgs(|_| false);
        assert_eq!((stats.pools().len(), stats.rate(1)), (0, ObjectStatSum::default()));
    }
}
