//! The decision of an attempt, when all OSDs that were asked have answered: whether the copies that are here have all acknowledged
//! writes, which of them leads, and which of them serve with it (Ceph: `find_best_info`, `choose_acting`).

use carmine_pgtypes::{Interval, PgHistory, PgInfo};
use carmine_types::{Epoch, OsdId, is_mutated};

use crate::intervals::{blocked_by, gap};
use crate::primary::Stop;
use crate::{Copy, Peering, Phase, Reason};

/// The part of a copy that decides.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    osd: OsdId,
    info: &'a PgInfo,
    is_incomplete: bool,
    /// Of a replica: the primary's log names all objects that it lacks.
    is_near: bool,
}

impl<'a> Candidate<'a> {
    fn own(osd: OsdId, own: &'a PgInfo) -> Candidate<'a> {
        let is_incomplete = own.incomplete && !is_mutated("lead_incomplete");
        Candidate { osd, info: own, is_incomplete, is_near: true }
    }

    fn other(osd: OsdId, Copy { info, common, .. }: &'a Copy) -> Candidate<'a> {
        let is_near = common.is_some() && info.last_backfill.is_none();
        Candidate { osd, info, is_incomplete: info.incomplete, is_near }
    }

    /// If clients were served in this interval, this copy has the writes: it was there, or has been activated since. (If it was there and
    /// was never activated, nobody was served: members are activated first.)
    fn has_writes_of(&self, interval: &Interval) -> bool {
        let PgInfo { last_epoch_started, made, .. } = *self.info;
        last_epoch_started > Epoch(0) || made <= interval.first || is_mutated("trust_new_copies")
    }
}

impl Peering {
    /// This copy and those that were asked.
    fn candidates<'a>(&'a self, own: &'a PgInfo) -> Vec<Candidate<'a>> {
        let others = self.under_way.iter().flat_map(|attempt| attempt.copies());
        let others = others.map(|(osd, copy)| Candidate::other(osd, copy));
        std::iter::once(Candidate::own(self.me, own)).chain(others).collect()
    }

    /// Takes over what others know of the past, if this copy is new, or missed maps.
    pub(crate) fn learn_past(&mut self, own: &PgInfo) -> Result<(), Stop> {
        let newest = newest_start(&self.candidates(own));
        let has_gap = gap(self.intervals.past(), newest).is_some() && !is_mutated("keep_gap");
        if self.knows_past(own) && !has_gap {
            return Ok(());
        }
        let Some(attempt) = &self.under_way else { return Ok(()) };
        let is_complete = |history: &PgHistory| gap(&history.past, newest).is_none();
        let knows = |PgInfo { last_epoch_started, history, .. }: &&PgInfo| {
            (*last_epoch_started > Epoch(0) || history.last_epoch_clean > Epoch(0))
                && history.same_interval_since <= self.map.epoch
                && (is_complete(history) || !self.knows_past(own))
        };
        let known = attempt.copies().map(|(_, copy)| &copy.info).filter(knows);
        let best = known.max_by_key(|info| (is_complete(&info.history), info.last_epoch_started));
        match best.map(|info| info.history.clone()) {
            Some(history) => self.intervals.learn(&history, own.made),
            // All OSDs that are up were asked: those that served clients before have forgotten it.
            None if self.knows_past(own) || self.map.is_volatile => {}
            None => return Err(Stop::Again(Reason::WaitsForHistory)),
        }
        Ok(())
    }

    /// The copies that are here have all acknowledged writes of past intervals.
    pub(crate) fn check_prior(&self, own: &PgInfo) -> Result<(), Stop> {
        let candidates = self.candidates(own);
        let has_copy = |interval: &Interval, osd: OsdId| {
            let mut copies = candidates.iter().filter(|copy| copy.osd == osd);
            // If nobody knows the interval, every OSD that may have led it is asked, and most of them never had a copy.
            copies.any(|copy| interval.acting.is_empty() || copy.has_writes_of(interval))
        };
        let past = if self.map.is_volatile { &[] } else { self.intervals.past() };
        let blocked = blocked_by(past, newest_start(&candidates), &self.map, has_copy);
        let (up, down): (Vec<OsdId>, Vec<OsdId>) =
            blocked.into_iter().partition(|osd| self.map.state_of(*osd).is_up());
        match (down.is_empty(), up.is_empty()) {
            (true, true) => Ok(()),
            _ if is_mutated("ignore_prior") => Ok(()),
            (false, _) => Err(Stop::Wait(Phase::Down(Reason::BlockedBy(down)))),
            (true, false) => Err(Stop::Wait(Phase::Incomplete(Reason::Forgotten(up)))),
        }
    }

    /// This copy leads, with the acting set of the map.
    pub(crate) fn check_lead(&self, own: &PgInfo) -> Result<(), Stop> {
        let candidates = self.candidates(own);
        let Some(leader) = self.best_leader(&candidates) else {
            return Err(Stop::Wait(Phase::Incomplete(Reason::AllIncomplete)));
        };
        let members = self.best_members(&candidates, leader);
        if !self.is_acting(&members) && !is_mutated("keep_acting") {
            return Err(self.ask_for(members));
        }
        let (found, min_size) = (self.map.acting.len(), self.map.min_size);
        if found < min_size {
            return Err(Stop::Wait(Phase::Peered(Reason::TooFew { found, min_size })));
        }
        Ok(())
    }

    /// Waits until the monitor lets these OSDs serve.
    pub(crate) fn ask_for(&self, members: Vec<OsdId>) -> Stop {
        Stop::Wait(Phase::Peering(Reason::WaitsForActing(members)))
    }

    /// The acting set of the map, with this OSD as its primary.
    pub(crate) fn acting_led_by(&self, leader: OsdId) -> Vec<OsdId> {
        std::iter::once(leader).chain(self.acting().osds().filter(|osd| *osd != leader)).collect()
    }

    /// The copy that leads: a complete one with all that was written when the newest interval began, and of those the one with the
    /// longest log. This primary stays if no other's is longer.
    fn best_leader(&self, candidates: &[Candidate<'_>]) -> Option<OsdId> {
        let newest = newest_start(candidates);
        let started = candidates.iter().filter(|copy| copy.info.last_epoch_started == newest);
        let needed = started.map(|copy| copy.info.last_update).min().unwrap_or_default();
        let fits = |copy: &&Candidate<'_>| !copy.is_incomplete && copy.info.last_update >= needed;
        let own = candidates.iter().find(|copy| copy.osd == self.me).filter(fits);
        let up: Vec<OsdId> = self.map.up.osds().collect();
        let up = |osd: OsdId| up.iter().rev().position(|up| *up == osd);
        let log = |copy: &Candidate<'_>| (copy.info.last_epoch_started, copy.info.last_update);
        let rank = |copy: &&Candidate<'_>| (log(copy), up(copy.osd));
        let best = candidates.iter().filter(fits).max_by_key(rank)?;
        let stays = |own: &&Candidate<'_>| {
            own.info.last_update == best.info.last_update
                || (self.had_no_room && own.info.last_epoch_started == best.info.last_epoch_started)
                || is_mutated("ignore_better")
        };
        Some(own.filter(stays).unwrap_or(best).osd)
    }

    /// The acting set with this leader: the OSDs that CRUSH names as far as their copies lack little, and others that have one until
    /// there are enough. With fewer than `min_size` of these, those that lack more are members, too, and get all of it before clients
    /// are served.
    fn best_members(&self, candidates: &[Candidate<'_>], leader: OsdId) -> Vec<OsdId> {
        let map = &self.map;
        let find = |osd: OsdId| candidates.iter().find(|copy| copy.osd == osd);
        let tail = find(leader).map(|copy| copy.info.log_tail).unwrap_or_default();
        let is_good = |osd: OsdId| {
            find(osd).is_some_and(|copy| match leader == self.me {
                true => copy.is_near,
                false => !copy.is_incomplete && copy.info.last_update >= tail,
            })
        };
        let mut members = vec![leader];
        let add = |members: &mut Vec<OsdId>, osd: OsdId| {
            if !members.contains(&osd) && members.len() < map.size {
                members.push(osd);
            }
        };
        let others = self.acting().osds().chain(candidates.iter().map(|copy| copy.osd));
        let others = others.filter(|osd| !is_mutated("forget_strays") || map.is_served(*osd));
        map.up.osds().chain(others).filter(|osd| is_good(*osd)).for_each(|osd| add(&mut members, osd));
        if members.len() < map.min_size {
            map.up.osds().for_each(|osd| add(&mut members, osd));
        }
        members
    }
}

/// The newest epoch in which a copy was activated.
fn newest_start(candidates: &[Candidate<'_>]) -> Epoch {
    candidates.iter().map(|copy| copy.info.last_epoch_started).max().unwrap_or_default()
}
