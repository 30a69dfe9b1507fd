//! Past intervals of a PG: which OSDs may have served its clients since all copies were last known to be whole (Ceph's
//! PastIntervals; docs.ceph.com, "Peering").
//!
//! An interval is a run of epochs with the same up set, acting set, primaries, size and `min_size`, in which no member was
//! restarted. In one that may have served clients there may be writes of which no OSD outside it knows. A primary first lets
//! the monitor write down that it was up in its interval (`up_thru`), and serves clients only when the map says so: an
//! interval at whose end it does not served nobody.

mod prior;

use carmine_pgtypes::{Interval, OsdSet, PgHistory};
use carmine_types::{Epoch, OsdId};

pub(crate) use prior::blocked_by;
pub use prior::{PriorSet, Sources};

use crate::{Map, Member};

/// Past intervals of which none are merged.
const PAST_MAX: usize = 32;

/// Follows the maps of one PG.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Intervals {
    /// The current interval; until the past is loaded ([`Intervals::load`]), all that were seen.
    runs: Vec<Run>,
    pub(crate) is_loaded: bool,
    /// It has learned the past from somebody since the start.
    is_told: bool,
    past: Vec<Interval>,
    last_epoch_clean: Epoch,
}

/// An interval, as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    first: Epoch,
    /// Its newest map.
    map: Map,
}

impl Intervals {
    /// Takes the next map; true if it begins an interval. Maps come in order. If some are left out, as the monitor does not have
    /// them any more, an interval begins whatever this one says, and before it there is one of which nobody is known.
    pub fn follow(&mut self, map: &Map) -> bool {
        let is_same = |run: &&mut Run| !run.is_before_gap(map.epoch) && !begins(&run.map, map);
        if let Some(run) = self.runs.last_mut().filter(is_same) {
            run.map = map.clone();
            return false;
        }
        self.runs.push(Run { first: map.epoch, map: map.clone() });
        if self.is_loaded {
            self.close();
        }
        true
    }

    /// Continues from this record. The maps since then may have been seen already, or are still to come. If some are missing, it is
    /// not known who served clients meanwhile.
    pub fn load(&mut self, known: &PgHistory) {
        let PgHistory { epoch, same_interval_since, last_epoch_clean, past } = known.clone();
        (self.is_loaded, self.past, self.last_epoch_clean) = (true, past, last_epoch_clean);
        let newest = self.runs.len().saturating_sub(1);
        let at = self.runs.iter().position(|run| run.map.epoch >= epoch).unwrap_or(newest);
        self.runs.drain(..at);
        match self.runs.first_mut() {
            Some(run) if run.first <= epoch => run.first = same_interval_since,
            Some(run) if epoch > Epoch(0) => {
                let last = Epoch(run.first.0 - 1);
                self.note(same_interval_since, last, OsdSet::default());
            }
            _ => {}
        }
        self.close();
    }

    /// Gives a child that a split has made its intervals: up to the split those of its parent, which had `pg_num` PGs in its pool then and
    /// the record `known`; from the split on those that the child has followed itself. If maps between the two are missing, nobody knows
    /// who served clients under them.
    ///
    /// # Panics
    /// If `self` has followed no map, or the parent is loaded and has followed that of the split.
    pub(crate) fn inherit(&mut self, parent: &Intervals, known: &PgHistory, pg_num: u32) {
        assert!(!self.runs.is_empty(), "a PG follows the map of the split that makes it");
        let own = std::mem::replace(self, parent.clone());
        // One that is not loaded has followed the maps of its own half, too.
        self.runs.retain(|run| run.map.pg_num == pg_num);
        assert!(!self.is_loaded || !self.runs.is_empty(), "the interval in which the PG was split is known");
        self.runs.extend(own.runs);
        if self.is_loaded { self.close() } else { self.load(known) }
    }

    /// What is known now, to be written down.
    #[must_use]
    pub fn known(&self) -> PgHistory {
        PgHistory {
            epoch: self.runs.last().map(|run| run.map.epoch).unwrap_or_default(),
            same_interval_since: self.same_interval_since(),
            last_epoch_clean: self.last_epoch_clean,
            past: self.past.clone(),
        }
    }

    /// Takes over what the primary of the current interval knows of those before.
    pub fn adopt(&mut self, primary: &PgHistory) {
        (self.last_epoch_clean, self.past) = (primary.last_epoch_clean, primary.past.clone());
        if let Some(run) = self.runs.last_mut() {
            run.first = primary.same_interval_since;
        }
    }

    /// Learns the past from somebody who saw all maps of it up to the current interval or up to an epoch before; what was seen here
    /// since then stays. `made`: the first epoch that was seen here.
    pub fn learn(&mut self, told: &PgHistory, made: Epoch) {
        let own = std::mem::replace(&mut self.past, told.past.clone());
        self.last_epoch_clean = told.last_epoch_clean.max(self.last_epoch_clean);
        self.is_told = true;
        let next = Epoch(told.epoch.0 + 1);
        if made > next {
            self.note(next, Epoch(made.0 - 1), OsdSet::default());
        }
        for Interval { first, last, acting } in own.into_iter().filter(|interval| interval.last >= next) {
            self.note(first.max(next), last, acting);
        }
        if let Some(run) = self.runs.last_mut().filter(|run| run.first < next) {
            run.first = told.same_interval_since.min(run.first);
        }
    }

    /// It has learned the past, or saw that all copies were whole.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.is_told || self.last_epoch_clean > Epoch(0)
    }

    /// First epoch of the current interval; zero before the first map.
    #[must_use]
    pub fn same_interval_since(&self) -> Epoch {
        self.runs.last().map(|run| run.first).unwrap_or_default()
    }

    /// The intervals before it that may have served clients, oldest first.
    #[must_use]
    pub fn past(&self) -> &[Interval] {
        &self.past
    }

    /// First epoch of the newest interval in which all copies were known to be whole.
    #[must_use]
    pub fn last_epoch_clean(&self) -> Epoch {
        self.last_epoch_clean
    }

    /// All copies are whole now: nobody has anything that the members of this interval lack.
    pub fn clean(&mut self) {
        self.last_epoch_clean = self.same_interval_since();
        self.past.clear();
    }

    /// All runs but the newest have ended.
    fn close(&mut self) {
        let Some(newest) = self.runs.pop() else { return };
        let runs = std::mem::replace(&mut self.runs, vec![newest]);
        let next = runs.iter().skip(1).chain(&self.runs).map(|run| run.first).collect::<Vec<_>>();
        for (run, next) in runs.into_iter().zip(next) {
            if run.may_have_served() {
                self.note(run.first, run.map.epoch, run.map.acting.clone());
            }
            if run.is_before_gap(next) {
                self.note(Epoch(run.map.epoch.0 + 1), Epoch(next.0 - 1), OsdSet::default());
            }
        }
    }

    /// An interval has ended that may have served clients.
    fn note(&mut self, first: Epoch, last: Epoch, acting: OsdSet) {
        assert!(first <= last, "an interval from {first} to {last}");
        self.past.push(Interval { first, last, acting });
        self.merge_two();
    }

    /// Keeps the list short where OSDs come and go: once it is long, the two oldest intervals with the same acting set become one.
    /// This may make a PG wait without need: a copy that was made between the two would be a witness of the later one, but not of
    /// both together.
    fn merge_two(&mut self) {
        let past = &self.past;
        let may_merge = |interval: &Interval| interval.acting.is_empty() || past.len() > PAST_MAX;
        let later = |at: usize| (at + 1..past.len()).find(|later| past[*later].acting == past[at].acting);
        let mut pairs = (0..past.len()).filter(|at| may_merge(&past[*at]));
        if let Some((at, later)) = pairs.find_map(|at| Some((at, later(at)?))) {
            self.past[later].first = self.past[at].first;
            self.past.remove(at);
        }
    }
}

impl Run {
    /// Between its newest map and the one of this epoch some were left out.
    fn is_before_gap(&self, next: Epoch) -> bool {
        next.0 > self.map.epoch.0 + 1
    }

    /// It may have served clients (Ceph: `maybe_went_rw`). Of members of two kinds none serves: a primary of either asks them all, and
    /// those of the other kind do not answer.
    fn may_have_served(&self) -> bool {
        let Map { acting, members, min_size, classic, .. } = &self.map;
        let is_mixed = has_both_kinds(acting, |osd| classic.contains(&osd));
        let primary = members.iter().find(|member| Some(member.osd) == acting.primary());
        !is_mixed
            && primary.is_some_and(|primary| primary.up_from <= self.first)
            && acting.len() >= *min_size
            && self.map.up_thru() >= self.first
    }
}

/// Some of these OSDs are classic ones and some are Carmine's.
pub fn has_both_kinds(acting: &OsdSet, is_classic: impl Fn(OsdId) -> bool) -> bool {
    let classic = acting.osds().filter(|osd| is_classic(*osd)).count();
    classic > 0 && classic < acting.len()
}

/// The epochs since an activation of which the monitor had no maps any more when they were asked for: it is not known who served
/// clients then.
#[must_use]
pub fn gap(past: &[Interval], last_epoch_started: Epoch) -> Option<(Epoch, Epoch)> {
    let unknown = |interval: &&Interval| interval.acting.is_empty() && interval.last >= last_epoch_started;
    past.iter().rfind(unknown).map(|interval| (interval.first, interval.last))
}

/// The map after this one begins an interval.
#[must_use]
pub fn begins(before: &Map, now: &Map) -> bool {
    fn facts(map: &Map) -> (usize, usize, u32, &OsdSet, &[Member], &OsdSet, &[OsdId]) {
        (map.size, map.min_size, map.pg_num, &map.acting, &map.members, &map.up, &map.classic)
    }
    facts(before) != facts(now) || before.is_merging != now.is_merging
}
