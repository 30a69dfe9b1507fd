//! The primary's side: an attempt to make all copies equal and to activate the interval.

use std::time::Duration;

use carmine_pgtypes::{PgInfo, Promised};
use carmine_types::{Errno, Eversion, OsdId, errno, is_mutated};

use crate::intervals::{PriorSet, gap};
use crate::{Copy, Effect, Effects, Event, Lease, Level, Peering, Phase, Place, Reason, Task, Then, Trouble};

/// Pause before a replica that is not ready is asked again; it doubles up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Pause before a PG that lacks data looks again.
const INCOMPLETE_RETRY: Duration = Duration::from_secs(5);

/// An attempt under way: what is known of each other copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    /// All that were asked; once it is decided who leads, only those that are served.
    replicas: Vec<(OsdId, MemberStage)>,
    /// All were asked, and this primary leads.
    is_decided: bool,
    /// There are enough complete copies: those that differ are activated as they are, and recovered beside clients.
    beside: bool,
    /// Replicas that lack objects, and what they have.
    behind: Vec<(OsdId, Place)>,
    /// Leases that others may hold.
    leases: Vec<Lease>,
    /// The one of them that is waited for.
    awaits: Option<OsdId>,
    /// The primary's own info was given to the store.
    starts: bool,
    /// It is durable: the replicas were told.
    activates: bool,
}

/// How far a replica is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MemberStage {
    /// Asked what it has.
    Asked,
    /// It said so.
    Known(Copy),
    /// Its copy is to be marked incomplete.
    Marking(Copy),
    /// Objects are being pushed.
    Pushing(Copy),
    /// Its objects are equal to the primary's; with the newest entry that both logs have.
    Equal(Option<Eversion>),
    /// It has said durably that its copy is incomplete, and has this.
    Behind(Place),
    /// It was sent the log.
    Activating,
    /// It has activated the interval.
    Active,
}

/// Why an attempt did not make the PG active.
pub(crate) enum Stop {
    /// It is tried again soon.
    Again(Reason),
    /// In this phase it waits until something changes.
    Wait(Phase),
}

impl Attempt {
    fn step(&mut self, of: OsdId) -> Option<&mut MemberStage> {
        self.replicas.iter_mut().find(|(osd, _)| *osd == of).map(|(_, step)| step)
    }

    fn all(&self, is: impl Fn(&MemberStage) -> bool) -> bool {
        self.replicas.iter().all(|(_, step)| is(step))
    }

    /// What the others have, as far as they have said so and nothing was done about it.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (OsdId, &Copy)> {
        self.replicas.iter().filter_map(|(osd, step)| match step {
            MemberStage::Known(copy) => Some((*osd, copy)),
            _ => None,
        })
    }
}

impl Peering {
    /// Begins to try; the pauses start anew.
    pub(crate) fn start_attempts(&mut self, own: &PgInfo, fx: &mut Effects) {
        self.pause = RETRY;
        self.try_again(own, fx);
    }

    pub(crate) fn try_again(&mut self, own: &PgInfo, fx: &mut Effects) {
        // From now on replicas refuse late messages of earlier attempts.
        self.attempt += 1;
        self.phase = Phase::Peering(Reason::AsksReplicas);
        self.under_way = Some(Attempt { leases: self.lease.into_iter().collect(), ..Attempt::default() });
        if let Some(why) = self.why_closed(own) {
            return self.stop(Stop::Wait(Phase::Down(why)), fx);
        }
        self.ask_others(own, fx);
        self.advance_attempt(own, fx);
    }

    /// This OSD is asked by the attempt under way.
    pub(crate) fn is_asked(&self, osd: OsdId) -> bool {
        let attempt = self.under_way.as_ref();
        attempt.is_some_and(|attempt| attempt.replicas.iter().any(|(asked, _)| *asked == osd))
    }

    /// Asks those who may have writes of past intervals, and were not asked yet. False: there are none.
    fn ask_others(&mut self, own: &PgInfo, fx: &mut Effects) -> bool {
        let PriorSet { mut probe, .. } =
            PriorSet::new(self.intervals.past(), own.last_epoch_started, &self.map);
        let is_up = |osd: &OsdId| self.map.state_of(*osd).is_up();
        probe.extend(self.strays.iter().copied().filter(is_up));
        // No member may remember a copy that an OSD elsewhere still has.
        if self.map.is_volatile && !self.knows_past(own) {
            probe.extend((0..).map(OsdId).take(self.map.osds.len()).filter(is_up));
        }
        probe.retain(|osd| *osd != self.me && (self.map.is_served(*osd) || !is_mutated("forget_strays")));
        let (number, mut asks) = (self.attempt, false);
        let Some(attempt) = &mut self.under_way else { return false };
        for to in probe {
            if attempt.replicas.iter().all(|(osd, _)| *osd != to) {
                attempt.replicas.push((to, MemberStage::Asked));
                fx.list.push(Effect::Query { attempt: number, to });
                asks = true;
            }
        }
        asks
    }

    /// The attempt ends without success; another one follows after a pause.
    fn stop(&mut self, stop: Stop, fx: &mut Effects) {
        self.under_way = None;
        let after = match stop {
            Stop::Again(why) => {
                self.phase = Phase::Peering(why);
                let after = self.pause;
                self.pause = (after * 2).min(RETRY_MAX);
                after
            }
            Stop::Wait(phase) => {
                let before = self.reported.replace(phase.clone());
                if let Phase::Incomplete(why) = &phase
                    && before.as_ref() != Some(&phase)
                {
                    fx.list.push(Effect::Log(Level::Error, why.clone()));
                }
                self.phase = phase;
                INCOMPLETE_RETRY
            }
        };
        fx.list.push(Effect::Timer { attempt: self.attempt, after });
    }

    /// Handles an answer that an attempt waits for; those to an earlier attempt are void.
    pub(crate) fn on_answer(&mut self, own: &PgInfo, event: Event, fx: &mut Effects) {
        match event {
            Event::Timer { attempt } if attempt == self.attempt && self.waits() => self.try_again(own, fx),
            Event::ReplicaStopped { attempt, why } if self.is_active() && attempt == self.attempt => {
                fx.list.push(Effect::Log(Level::Info, why));
                self.next_generation(fx);
                self.begin(own, fx);
            }
            Event::InfoWritten { attempt } if self.is_under_way(attempt) => self.activate(own, fx),
            Event::Notified { attempt, from, copy } if self.is_under_way(attempt) => match copy {
                Ok(copy) => {
                    self.under_way.iter_mut().for_each(|attempt| attempt.leases.extend(copy.lease));
                    self.advance(own, from, fx, |step| match step {
                        MemberStage::Asked => Some(MemberStage::Known(copy)),
                        _ => None,
                    });
                }
                Err(trouble) => self.stop(self.trouble(from, trouble), fx),
            },
            Event::LeaseOver { attempt, holder } if self.is_under_way(attempt) => {
                self.under_way.iter_mut().for_each(|attempt| {
                    attempt.leases.retain(|lease| lease.holder != holder);
                    attempt.awaits = None;
                });
                self.advance_attempt(own, fx);
            }
            Event::Done { task: Task::Recover, attempt, from, result } => {
                match result {
                    _ if !self.is_recovering(attempt, from) => {}
                    Ok(()) => self.recovering.retain(|osd| *osd != from),
                    // Objects that were sent may still arrive: in another attempt the replica does not take them.
                    Err(trouble) => {
                        self.next_generation(fx);
                        self.stop(self.trouble(from, trouble), fx);
                    }
                }
            }
            Event::Done { task, attempt, from, result } if self.is_under_way(attempt) => match result {
                Ok(()) => self.on_task(own, task, from, fx),
                Err(Trouble::Full) if task == Task::Mark => {
                    self.stop(self.ask_for(self.acting_led_by(from)), fx);
                }
                Err(trouble) => self.stop(self.trouble(from, trouble), fx),
            },
            _ => {}
        }
    }

    /// A replica has done a task of the attempt under way.
    fn on_task(&mut self, own: &PgInfo, task: Task, from: OsdId, fx: &mut Effects) {
        let beside = self.under_way.as_ref().is_some_and(|attempt| attempt.beside);
        if task == Task::Mark {
            fx.then = if beside { Then::PushUndone } else { Then::Push };
        }
        self.advance(own, from, fx, |stage| match (task, stage) {
            (Task::Mark, MemberStage::Marking(copy)) => Some(MemberStage::Pushing(copy)),
            (Task::Push, MemberStage::Pushing(copy)) if beside => {
                Some(MemberStage::Behind(place(&copy, own)))
            }
            (Task::Push, MemberStage::Pushing(copy)) => Some(MemberStage::Equal(common(&copy, own))),
            (Task::Activate, MemberStage::Activating) => Some(MemberStage::Active),
            _ => None,
        });
    }

    /// Says once that a gap in the maps keeps the PG from serving.
    fn tell_gap(&self, own: &PgInfo, stop: &Stop, fx: &mut Effects) {
        if let Stop::Wait(phase @ (Phase::Down(_) | Phase::Incomplete(_))) = stop
            && self.reported.as_ref() != Some(phase)
            && let Some((first, last)) = gap(self.intervals.past(), own.last_epoch_started)
        {
            fx.list.push(Effect::Log(Level::Error, Reason::Gap(first, last)));
        }
    }

    fn trouble(&self, from: OsdId, trouble: Trouble) -> Stop {
        Stop::Again(match trouble {
            Trouble::NoAnswer => Reason::NoAnswer(from),
            Trouble::BadAnswer => Reason::BadAnswer(from),
            Trouble::OtherMap => Reason::OtherMap(from),
            Trouble::Full => Reason::Refused(from, Errno(errno::ENOSPC)),
            Trouble::Refused(errno) => Reason::Refused(from, errno),
            Trouble::OwnStore(errno) => Reason::OwnStore(self.me, errno),
            Trouble::Unfound => {
                return Stop::Wait(Phase::Incomplete(Reason::Unfound(self.might_have_unfound().down)));
            }
        })
    }

    /// A replica has done its part.
    fn advance(
        &mut self,
        own: &PgInfo,
        from: OsdId,
        fx: &mut Effects,
        next: impl FnOnce(MemberStage) -> Option<MemberStage>,
    ) {
        let Some(step) = self.under_way.as_mut().and_then(|attempt| attempt.step(from)) else { return };
        if let Some(next) = next(step.clone()) {
            *step = next;
            self.advance_attempt(own, fx);
        }
    }

    /// Does as much as what is known allows.
    pub(crate) fn advance_attempt(&mut self, own: &PgInfo, fx: &mut Effects) {
        let Some(attempt) = &self.under_way else { return };
        if !attempt.is_decided && attempt.all(|step| matches!(step, MemberStage::Known(_))) {
            let learnt = self.learn_past(own);
            if learnt.is_ok() && self.ask_others(own, fx) {
                return;
            }
            match learnt.and_then(|()| self.check_prior(own)).and_then(|()| self.check_lead(own)) {
                Ok(()) => self.lead(own, fx),
                Err(stop) => {
                    self.tell_gap(own, &stop, fx);
                    return self.stop(stop, fx);
                }
            }
        }
        let waits = self.lacks_up_thru() && !is_mutated("ignore_up_thru");
        let Some(attempt) = &mut self.under_way else { return };
        let is_prepared = |step: &MemberStage| matches!(step, MemberStage::Equal(_) | MemberStage::Behind(_));
        if attempt.is_decided && !attempt.starts && attempt.all(is_prepared) {
            if waits {
                self.phase = Phase::Peering(Reason::WaitsUpThru(self.interval));
                return;
            }
            if let Some(lease) = attempt.leases.first() {
                self.phase = Phase::Peering(Reason::WaitsForLease(lease.holder));
                if attempt.awaits.replace(lease.holder).is_none() {
                    fx.list.push(Effect::AwaitLease { attempt: self.attempt, lease: *lease });
                }
                return;
            }
            attempt.starts = true;
            self.write_started(own, fx);
        } else if attempt.activates
            && (attempt.all(|step| *step == MemberStage::Active) || is_mutated("early_active"))
        {
            self.serve(fx);
        }
    }

    /// This primary leads. OSDs that were only asked for their copies have done their part.
    fn lead(&mut self, own: &PgInfo, fx: &mut Effects) {
        let Some(attempt) = &mut self.under_way else { return };
        attempt.is_decided = true;
        // An OSD that has answered does not lead any more.
        let asked: Vec<OsdId> = attempt.replicas.iter().map(|(osd, _)| *osd).collect();
        attempt.leases.retain(|lease| !asked.contains(&lease.holder) && lease.holder != self.me);
        attempt.replicas.retain(|(osd, _)| self.map.is_served(*osd));
        if self.lacks_up_thru() {
            fx.list.push(Effect::WantUpThru(self.interval));
        }
        self.repair(own, fx);
    }

    /// Repairs the copies that differ, all at the same time.
    fn repair(&mut self, own: &PgInfo, fx: &mut Effects) {
        let (number, map) = (self.attempt, &self.map);
        let Some(attempt) = &mut self.under_way else { return };
        let mut first = None;
        for (_, step) in &mut attempt.replicas {
            if matches!(step, MemberStage::Known(copy) if is_equal(copy, own)) {
                *step = MemberStage::Equal(Some(own.last_update));
            }
        }
        let is_equal = |(osd, step): &&(OsdId, MemberStage)| {
            map.acting.contains(*osd) && matches!(step, MemberStage::Equal(_))
        };
        let equal = attempt.replicas.iter().filter(is_equal).count();
        attempt.beside = equal + 1 >= map.min_size;
        for (osd, step) in &mut attempt.replicas {
            let MemberStage::Known(copy) = step else { continue };
            let place = place(copy, own);
            first = first.or(Some(*osd));
            // A member that has all acknowledged writes could lead as well.
            let has_all = !copy.info.incomplete && place.common == Some(copy.info.last_update);
            let may_lead = has_all && map.acting.contains(*osd);
            let changed = std::mem::take(&mut copy.changed);
            // While clients are served, it gets only the objects that its own log names before it has our log. Otherwise it would
            // hold object states that no log shows to another primary.
            let (attempt, to, keeps_place) = (number, *osd, attempt.beside);
            fx.list.push(Effect::Repair { attempt, to, place, keeps_place, changed, may_lead });
            *step = MemberStage::Marking(copy.clone());
        }
        if let Some(osd) = first {
            self.phase = Phase::Peering(Reason::Repairs(osd));
        }
    }

    /// Writes down that this copy is whole in this interval.
    fn write_started(&mut self, own: &PgInfo, fx: &mut Effects) {
        assert!(!own.incomplete, "an incomplete copy must not lead");
        let knows_past = self.knows_past(own) || self.map.is_volatile;
        assert!(knows_past, "a primary knows who served clients before it");
        let info = PgInfo {
            last_epoch_started: self.interval,
            history: self.intervals.known(),
            acting: self.acting().clone(),
            // Those that this copy granted to primaries before are over: they were waited for.
            promised: Promised::default(),
            ..own.clone()
        };
        fx.list.push(Effect::WriteInfo { attempt: self.attempt, info: info.clone() });
        if is_mutated("replica_first") {
            self.activate(&info, fx);
        }
    }

    /// The primary's own info is durable: the replicas follow.
    fn activate(&mut self, own: &PgInfo, fx: &mut Effects) {
        let number = self.attempt;
        let Some(attempt) = &mut self.under_way else { return };
        attempt.activates = true;
        assert_eq!(
            own.last_epoch_started, self.interval,
            "the primary is first to write that the PG started"
        );
        for (osd, step) in &mut attempt.replicas {
            let to = *osd;
            let (place, is_whole) = match std::mem::replace(step, MemberStage::Activating) {
                MemberStage::Equal(common) => (Place { common, last_backfill: None }, true),
                MemberStage::Behind(place) => (place, false),
                other => {
                    *step = other;
                    continue;
                }
            };
            attempt.behind.extend((!is_whole).then(|| (to, place.clone())));
            fx.list.push(Effect::Activate { attempt: number, to, place, is_whole });
        }
        self.advance_attempt(own, fx);
    }

    fn serve(&mut self, fx: &mut Effects) {
        let Some(attempt) = self.under_way.take() else { return };
        assert!(
            attempt.all(|step| *step == MemberStage::Active) || is_mutated("early_active"),
            "all members have activated the interval"
        );
        let behind = attempt.behind.iter().filter(|(osd, _)| self.acting().contains(*osd)).count();
        assert!(
            self.map.acting.len() - behind >= self.map.min_size || attempt.behind.is_empty(),
            "clients are served beside a recovery only with min_size complete copies"
        );
        (self.had_no_room, self.reported) = (false, None);
        self.phase = Phase::Active;
        self.recovering = attempt.behind.iter().map(|(osd, _)| *osd).collect();
        fx.list.extend(attempt.behind.into_iter().map(|(to, place)| Effect::Recover { to, place }));
        fx.list.push(Effect::Serve(attempt.replicas.into_iter().map(|(osd, _)| osd).collect()));
    }
}

/// The primary's objects that a replica's copy has.
fn place(copy: &Copy, own: &PgInfo) -> Place {
    let common = common(copy, own);
    let last_backfill = copy.info.last_backfill.clone();
    Place { common, last_backfill: last_backfill.filter(|_| common.is_some() && copy.info.incomplete) }
}

/// A replica's copy equals the primary's.
fn is_equal(copy: &Copy, own: &PgInfo) -> bool {
    !copy.info.incomplete && copy.info.last_update == own.last_update
}

/// Up to where a replica's copy and the primary's went through the same changes; `None` if it has to be made anew.
fn common(copy: &Copy, own: &PgInfo) -> Option<Eversion> {
    if is_equal(copy, own) { Some(own.last_update) } else { copy.common }
}
