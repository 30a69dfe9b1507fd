//! The statistics that a primary reports about its PG, in Ceph's terms.

use carmine_crush::{MapView, Mapping};
use carmine_peering::Phase;
use carmine_pgtypes::{OsdSet, pg_range};
use carmine_types::{ObjectId, OsdId, ScrubStamp, SpgId, UTime};
use carmine_wire::pg_stat::{ObjectStatSum, PgShard, PgStat, state};

use crate::pg::Pg;
use crate::shard::OsdShard;

/// Peering is over.
const PEERED: u64 = state::ACTIVE | state::PEERED;

/// The statistics of a PG as its primary last reported them.
#[derive(Default)]
pub(in crate::pg) struct Reported {
    stat: Option<Box<PgStat>>,
    /// Others wait for something that has changed since.
    has_news: bool,
}

impl Pg {
    /// The statistics now, by this map (primary). They count as reported.
    pub(crate) fn stat_now(&self, osd: &OsdShard, view: &MapView) -> PgStat {
        let before = self.peer.reported.take().stat;
        let now = UTime::from_unix(osd.shard.unix_now());
        let mut stat = self.facts(view);
        stat.stats.sum = self.sum(view);
        stat.set_states(self.states(osd, &stat));
        if stat.is(PEERED) && !stat.is(state::CLEAN) {
            stat.avail_no_missing = self.whole_members();
        }
        stat.reported_seq = before.as_ref().map_or(1, |before| before.reported_seq + 1);
        stamp(&mut stat, before.as_deref(), now);
        self.peer.reported.replace(Reported { stat: Some(Box::new(stat.clone())), has_news: false });
        stat
    }

    /// Others wait for something in the statistics: they are sent at once.
    pub(in crate::pg) fn report_soon(&self, osd: &OsdShard) {
        self.peer.reported.borrow_mut().has_news = true;
        crate::stats::send_soon(osd);
    }

    /// Others wait for the statistics.
    pub(crate) fn has_news(&self) -> bool {
        self.peer.reported.borrow().has_news
    }

    /// Another OSD leads.
    pub(in crate::pg) fn forget_reported(&self) {
        self.peer.reported.borrow_mut().stat = None;
        self.ops.served().forget();
        self.recovery.forget_pushed();
    }

    /// All but counts, states and stamps.
    fn facts(&self, view: &MapView) -> PgStat {
        let mapping = view.mapping(self.id.pgid);
        let peering = self.peer.peering.borrow();
        let history = peering.intervals().known();
        let log = self.peer.log.borrow();
        let info = log.info();
        let item = |osd: Option<OsdId>| osd.map_or(-1, |osd| osd.0 as i32);
        // As in Ceph, the age of the last scrub of a PG that had none is its own: others warn of PGs that are not scrubbed.
        let made = view.map().pool(self.id.pgid.pool).map_or(UTime::ZERO, |pool| pool.create_time);
        let time = |stamp: UTime| if stamp == UTime::ZERO { made } else { stamp };
        let scrubbed = |stamp: ScrubStamp| ScrubStamp { time: time(stamp.time), ..stamp };
        PgStat {
            version: info.last_update,
            reported_epoch: view.epoch(),
            log_start: info.log_tail,
            ondisk_log_start: info.log_tail,
            last_epoch_clean: history.last_epoch_clean,
            mapping_epoch: history.same_interval_since,
            last_scrub: scrubbed(info.scrubs.last),
            last_deep_scrub: scrubbed(info.scrubs.last_deep),
            last_clean_scrub_stamp: time(info.last_clean_scrub()),
            log_size: log.len() as i64,
            ondisk_log_size: log.len() as i64,
            up: mapping.up.to_vec(),
            acting: mapping.acting.to_vec(),
            up_primary: item(mapping.up_primary),
            acting_primary: item(mapping.acting_primary),
            stats_invalid: !self.ops.usage().is_known(),
            blocked_by: self.peer.blocked_by().iter().map(|osd| osd.0 as i32).collect(),
            snaptrimq_len: u32::try_from(self.ops.snaps().to_trim()).unwrap_or(u32::MAX),
            purged_snaps: self.trimmed_snaps(),
            ..PgStat::default()
        }
    }

    fn sum(&self, view: &MapView) -> ObjectStatSum {
        let (objects, clones, bytes) = self.usage();
        let scrubs = self.peer.log.borrow().info().scrubs;
        let lacking = self.recovery.lacking(|place| self.objects_from(place, objects));
        let size = view.map().pool(self.id.pgid.pool).map_or(0, |pool| usize::from(pool.size));
        let mapping = view.mapping(self.id.pgid);
        let copies = Copies::count(objects, size, mapping, &self.peer.acting(), &lacking);
        let unfound = self.recovery.unfound().len() as u64;
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let mut sum = ObjectStatSum {
            num_bytes: count(bytes),
            num_objects: count(objects),
            num_object_clones: count(clones),
            num_object_copies: count(copies.wanted),
            // This copy lacks what it cannot read.
            num_objects_missing_on_primary: count(unfound),
            num_objects_missing: count(lacking.iter().map(|(_, objects)| objects).sum()),
            num_objects_degraded: count(copies.degraded.max(unfound)),
            num_objects_misplaced: count(copies.misplaced),
            num_objects_unfound: count(unfound),
            num_objects_dirty: count(objects),
            num_scrub_errors: count(scrubs.errors),
            num_shallow_scrub_errors: count(scrubs.errors.saturating_sub(scrubs.deep_errors)),
            num_deep_scrub_errors: count(scrubs.deep_errors),
            num_objects_omap: count(scrubs.omaps.objects),
            num_large_omap_objects: count(scrubs.omaps.large),
            num_omap_keys: count(scrubs.omaps.size.keys),
            num_omap_bytes: count(scrubs.omaps.size.bytes),
            ..ObjectStatSum::default()
        };
        self.ops.served().add_to(&mut sum);
        self.recovery.add_pushed_to(&mut sum);
        sum
    }

    /// Members of whom nothing is known that they lack.
    fn whole_members(&self) -> Vec<PgShard> {
        let lacking = self.recovery.lacking(|_| 0);
        let lacks = |osd: OsdId| lacking.iter().any(|(target, _)| *target == osd);
        let is_sharded = self.id != SpgId::replicated(self.id.pgid);
        let shard = |at: usize| if is_sharded { i8::try_from(at).unwrap_or(i8::MAX) } else { self.id.shard };
        let members = self.peer.acting();
        let slots = members.slots().iter().enumerate();
        let whole = slots.filter_map(|(at, osd)| osd.filter(|osd| !lacks(*osd)).map(|osd| (at, osd)));
        whole.map(|(at, osd)| PgShard { osd: osd.0 as i32, shard: shard(at) }).collect()
    }

    /// About how many of so many objects lie at this place or after it: hashes are spread evenly.
    fn objects_from(&self, place: &ObjectId, objects: u64) -> u64 {
        let (first, last) = pg_range(self.id.pgid.ps, self.peer.bits());
        let [at, first, last] = [place.reversed_hash(), first, last].map(u128::from);
        let left = (last + 1).saturating_sub(at.max(first));
        u64::try_from((u128::from(objects) * left).div_ceil(last + 1 - first)).unwrap_or(objects)
    }

    fn states(&self, osd: &OsdShard, stat: &PgStat) -> u64 {
        let mut bits = state::bits(&self.describe(osd).0);
        let scrub = self.scrub.running();
        let scrubbing = [
            (scrub.is_some(), state::SCRUBBING),
            (scrub.is_some_and(|order| order.deep), state::DEEP_SCRUB),
            (scrub.is_some_and(|order| order.repair), state::REPAIR),
            (self.ops.snaps().is_trimming(), state::SNAPTRIM),
            (stat.acting != stat.up, state::REMAPPED),
        ];
        if bits & state::ACTIVE != 0 {
            bits |= scrubbing.into_iter().filter(|(is_so, _)| *is_so).map(|(_, bit)| bit).sum::<u64>();
            // As in Ceph, only objects can be degraded. As long as they are not counted there may be some.
            if !stat.stats_invalid && stat.stats.sum.num_objects_degraded == 0 {
                bits &= !state::DEGRADED;
            }
        } else if bits == 0 {
            // Ceph has no word for a copy that is being read, or whose store failed.
            let is_failed = matches!(self.peer.peering.borrow().phase(), Phase::Failed(_));
            bits = if is_failed { state::DOWN } else { state::PEERING };
        }
        if stat.stats.sum.num_scrub_errors > 0 { bits | state::INCONSISTENT } else { bits }
    }
}

/// Copies of objects.
#[derive(Debug, PartialEq, Eq)]
struct Copies {
    /// As many as there should be.
    wanted: u64,
    /// Those of them that there are not.
    degraded: u64,
    /// Those that there are, on other OSDs than CRUSH wants.
    misplaced: u64,
}

impl Copies {
    /// Counts those of a PG with so many objects, by the members of its acting set and what some of these lack.
    fn count(
        objects: u64,
        size: usize,
        mapping: &Mapping,
        members: &OsdSet,
        lacking: &[(OsdId, u64)],
    ) -> Copies {
        let lacks = |osd: OsdId| {
            lacking.iter().find(|(target, _)| *target == osd).map(|(_, lacks)| (*lacks).min(objects))
        };
        let mut least: Vec<u64> = lacking.iter().filter_map(|(osd, _)| lacks(*osd)).collect();
        least.sort_unstable();
        let whole = members.osds().filter(|osd| lacks(*osd).is_none()).count();
        let places = 0..size.saturating_sub(whole);
        let degraded: u64 = places.map(|at| least.get(at).copied().unwrap_or(objects)).sum();
        let placed = |osd: OsdId| match lacks(osd) {
            Some(lacks) => lacks,
            None if members.contains(osd) => 0,
            None => objects,
        };
        let to_place: u64 = mapping.up.iter().filter_map(|osd| OsdId::from_item(*osd)).map(placed).sum();
        let wanted = objects.saturating_mul(size as u64);
        Copies { wanted, degraded, misplaced: to_place.saturating_sub(degraded) }
    }
}

/// Sets the stamps of states. A state in which the PG is gets the time of this report, and so does one in which it was at the last
/// report, since the PG left it after that. (Otherwise a PG of which there were no reports for a while would seem to be stuck for
/// as long when it changes.)
fn stamp(stat: &mut PgStat, before: Option<&PgStat>, now: UTime) {
    let (is, was) = (stat.states(), before.map_or(0, PgStat::states));
    let last = |is_so: bool, last: fn(&PgStat) -> UTime| match before {
        Some(before) if !is_so => last(before),
        // What was before this OSD led is not known.
        _ => now,
    };
    let has = |bits: u64| (is | was) & bits != 0;
    let lacks = |bits: u64| is & was & bits == 0;
    let became = |bits: u64| is & bits != 0 && was & bits == 0;
    stat.last_fresh = now;
    stat.last_unstale = now;
    stat.last_change = last(is != was, |stat| stat.last_change);
    stat.last_active = last(has(state::ACTIVE), |stat| stat.last_active);
    stat.last_peered = last(has(PEERED), |stat| stat.last_peered);
    stat.last_clean = last(has(state::CLEAN), |stat| stat.last_clean);
    stat.last_became_active = last(became(state::ACTIVE), |stat| stat.last_became_active);
    stat.last_became_peered = last(became(PEERED), |stat| stat.last_became_peered);
    stat.last_undegraded = last(lacks(state::DEGRADED), |stat| stat.last_undegraded);
    stat.last_fullsized = last(lacks(state::UNDERSIZED), |stat| stat.last_fullsized);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Degraded and misplaced copies of ten objects at size 3.
    fn counted(up: &[i32], members: &[u32], lacking: &[(u32, u64)]) -> (u64, u64) {
        let mapping = Mapping { up: up.iter().copied().collect(), ..Mapping::default() };
        let members = members.iter().copied().map(OsdId).collect::<Vec<_>>().into();
        let lacking: Vec<_> = lacking.iter().map(|(osd, lacks)| (OsdId(*osd), *lacks)).collect();
        let Copies { wanted, degraded, misplaced } = Copies::count(10, 3, &mapping, &members, &lacking);
        assert_eq!(wanted, 30);
        (degraded, misplaced)
    }

    #[test]
    fn copies_are_degraded_or_misplaced_never_both() {
        assert_eq!(counted(&[0, 1, 2], &[0, 1, 2], &[]), (0, 0));
        assert_eq!(counted(&[0, 1], &[0, 1], &[]), (10, 0), "one is down");
        assert_eq!(
            counted(&[0, 1, 2], &[0, 1, 2], &[(2, 4)]),
            (4, 0),
            "it is back, and lacks what was written"
        );
        assert_eq!(
            counted(&[0, 1, 3], &[0, 1, 3], &[(3, 7)]),
            (7, 0),
            "another one is backfilled in its place"
        );
        assert_eq!(counted(&[0, 1, 3], &[0, 1, 2, 3], &[(3, 7)]), (0, 7), "all copies are there, one moves");
        assert_eq!(counted(&[3, 4, 5], &[0, 1, 2], &[]), (0, 30), "nothing has moved yet");
        assert_eq!(counted(&[3, 4, 5], &[0, 1], &[]), (10, 20));
        assert_eq!(counted(&[0, 1, 2], &[0], &[]), (20, 0));
        assert_eq!(counted(&[0, 1], &[0, 1, 2], &[]), (0, 0), "one too many");
        assert_eq!(
            counted(&[0, 1, 2], &[0, 1, 2], &[(2, 99)]),
            (10, 0),
            "the log tells of removed objects, too"
        );
    }

    #[test]
    fn a_stamp_is_the_time_of_the_last_report_in_a_state_or_of_the_first_after_it() {
        let at = |sec: u32| UTime { sec, nsec: 0 };
        let mut stats: Vec<PgStat> = Vec::new();
        for (sec, words) in [
            (1, "peering"),
            (2, "active+clean"),
            (3, "active+clean"),
            (9, "active+undersized"),
            (10, "active+undersized"),
            (11, "undersized+peered"),
            (12, "undersized+peered"),
        ] {
            let mut stat = PgStat::default();
            stat.set_states(state::bits(words));
            stamp(&mut stat, stats.last(), at(sec));
            stats.push(stat);
        }
        let [first, .., short, _, last] = &stats[..] else { panic!() };
        assert_eq!(first.last_clean, at(1), "what was before is not known");
        assert_eq!((short.last_change, short.last_active, short.last_clean), (at(9), at(10), at(9)));
        assert_eq!((short.last_fullsized, short.last_undegraded), (at(9), at(10)));
        assert_eq!((short.last_became_active, short.last_became_peered), (at(2), at(2)));
        assert_eq!((last.last_active, last.last_peered, last.last_became_peered), (at(11), at(12), at(2)));
    }
}
