//! The primary's side: an attempt to make all copies equal and to activate the interval.

use std::time::Duration;

use carmine_pgtypes::{PgInfo, Promised};
use carmine_types::{Epoch, Eversion, OsdId, is_mutated};

use crate::{Copy, Effect, Effects, Event, Lease, Level, Peering, Phase, Place, Reason, Then, Trouble};

/// Pause before a replica that is not ready is asked again; it doubles up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Pause before a PG that lacks data looks again.
const INCOMPLETE_RETRY: Duration = Duration::from_secs(5);

/// An attempt under way: what is known of each replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    replicas: Vec<(OsdId, MemberStage)>,
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
}

/// How far a replica is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum MemberStage {
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
enum Stop {
    /// It is tried again soon.
    Again(Reason),
    /// It must not go on.
    Incomplete(Reason),
    /// It must not go on before the map changes.
    Down(Reason),
}

impl MemberStage {
    fn copy(&self) -> Option<&Copy> {
        match self {
            MemberStage::Known(copy) => Some(copy),
            _ => None,
        }
    }
}

impl Attempt {
    fn step(&mut self, of: OsdId) -> Option<&mut MemberStage> {
        self.replicas.iter_mut().find(|(osd, _)| *osd == of).map(|(_, step)| step)
    }

    fn all(&self, is: impl Fn(&MemberStage) -> bool) -> bool {
        self.replicas.iter().all(|(_, step)| is(step))
    }
}

impl Peering {
    /// Begins to try; the pauses start anew.
    pub(crate) fn start_attempts(&mut self, own: &PgInfo, fx: &mut Effects) {
        self.pause = RETRY;
        self.try_again(own, fx);
    }

    fn try_again(&mut self, own: &PgInfo, fx: &mut Effects) {
        // Messages of an earlier attempt that come late are not taken by the replicas any more.
        self.attempt += 1;
        // The monitor's next map, which comes because of the promise, may keep just the copies that an attempt would mark
        // incomplete.
        if self.promised == self.map.epoch && !is_mutated("forget_promise") {
            return self.stop(Stop::Again(Reason::Promised), fx);
        }
        let attempt = self.attempt;
        let replicas: Vec<_> = self.acting().skip(1).map(|osd| (osd, MemberStage::Asked)).collect();
        replicas.iter().for_each(|(to, _)| fx.push(Effect::Query { attempt, to: *to }));
        let leases = self.foreign(self.lease).into_iter().collect();
        self.under_way = Some(Attempt {
            replicas,
            beside: false,
            behind: Vec::new(),
            leases,
            awaits: None,
            starts: false,
        });
        self.go_on(own, fx);
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
            Stop::Incomplete(why) => {
                if !matches!(self.phase, Phase::Incomplete(_)) {
                    fx.push(Effect::Log(Level::Error, why.clone()));
                }
                self.phase = Phase::Incomplete(why);
                INCOMPLETE_RETRY
            }
            Stop::Down(why) => {
                self.phase = Phase::Down(why);
                return;
            }
        };
        fx.push(Effect::Timer { attempt: self.attempt, after });
    }

    /// Takes an answer that an attempt waits for; those to an earlier attempt mean nothing.
    pub(crate) fn on_answer(&mut self, own: &PgInfo, event: Event, fx: &mut Effects) {
        match event {
            Event::Timer { attempt } => {
                let waits = matches!(self.phase, Phase::Peering(_) | Phase::Incomplete(_));
                if waits && self.attempt == attempt && self.under_way.is_none() {
                    self.try_again(own, fx);
                }
            }
            Event::ReplicaStopped { attempt, why } if self.is_active() && attempt == self.attempt => {
                fx.push(Effect::Log(Level::Info, why));
                self.next_generation(fx);
                self.begin(own, fx);
            }
            Event::InfoWritten { attempt } if self.is_under_way(attempt) => self.activate(own, fx),
            Event::Notified { attempt, from, copy } if self.is_under_way(attempt) => match copy {
                Ok(copy) => {
                    let lease = self.foreign(copy.lease);
                    self.under_way.iter_mut().for_each(|attempt| attempt.leases.extend(lease));
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
                self.go_on(own, fx);
            }
            Event::RepairAcked { attempt, from, result } if self.is_under_way(attempt) => match result {
                Ok(()) => {
                    fx.then = if self.recovers_beside() { Then::PushUndone } else { Then::Push };
                    self.advance(own, from, fx, |step| match step {
                        MemberStage::Marking(copy) => Some(MemberStage::Pushing(copy)),
                        _ => None,
                    });
                }
                Err(trouble) => {
                    self.successor = (trouble == Trouble::Full).then_some(from);
                    self.stop(self.trouble(from, trouble), fx);
                }
            },
            Event::Pushed { attempt, from, result } if self.is_under_way(attempt) => match result {
                Ok(()) => {
                    let beside = self.recovers_beside();
                    self.advance(own, from, fx, |step| match step {
                        MemberStage::Pushing(copy) if beside => Some(MemberStage::Behind(place(&copy, own))),
                        MemberStage::Pushing(copy) => Some(MemberStage::Equal(common(&copy, own))),
                        _ => None,
                    });
                }
                Err(trouble) => self.stop(self.trouble(from, trouble), fx),
            },
            Event::Recovered { attempt, from, result } if self.is_recovering(attempt, from) => match result {
                Ok(()) => self.recovering.retain(|osd| *osd != from),
                // Objects that were sent may still arrive: in another attempt the replica does not take them.
                Err(trouble) => {
                    self.next_generation(fx);
                    self.stop(self.trouble(from, trouble), fx);
                }
            },
            Event::ActivateAcked { attempt, from, result } if self.is_under_way(attempt) => match result {
                Ok(()) => self.advance(own, from, fx, |step| match step {
                    MemberStage::Activating => Some(MemberStage::Active),
                    _ => None,
                }),
                Err(trouble) => self.stop(self.trouble(from, trouble), fx),
            },
            _ => {}
        }
    }

    fn trouble(&self, from: OsdId, trouble: Trouble) -> Stop {
        Stop::Again(match trouble {
            Trouble::NoAnswer => Reason::NoAnswer(from),
            Trouble::BadAnswer => Reason::BadAnswer(from),
            Trouble::OtherMap => Reason::OtherMap(from),
            Trouble::Full => Reason::Full(from),
            Trouble::Refused(errno) => Reason::Refused(from, errno),
            Trouble::OwnStore(errno) => Reason::OwnStore(self.me, errno),
            Trouble::Unfound => {
                return Stop::Incomplete(Reason::Unfound(self.might_have_unfound().down));
            }
        })
    }

    /// The attempt under way leaves what replicas lack to a recovery beside clients.
    fn recovers_beside(&self) -> bool {
        self.under_way.as_ref().is_some_and(|attempt| attempt.beside)
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
            self.go_on(own, fx);
        }
    }

    /// Goes as far as what is known allows.
    pub(crate) fn go_on(&mut self, own: &PgInfo, fx: &mut Effects) {
        let Some(attempt) = &self.under_way else { return };
        if !attempt.starts && attempt.all(|step| step.copy().is_some()) {
            match self.check_lead(own) {
                Ok(()) => self.repair(own, fx),
                Err(stop) => return self.stop(stop, fx),
            }
        }
        let waits = self.lacks_up_thru() && !is_mutated("ignore_up_thru");
        let Some(attempt) = &mut self.under_way else { return };
        if !attempt.starts
            && attempt.all(|step| matches!(step, MemberStage::Equal(_) | MemberStage::Behind(_)))
        {
            if waits {
                self.phase = Phase::Peering(Reason::WaitsUpThru(self.interval));
                return;
            }
            if let Some(lease) = attempt.leases.first() {
                self.phase = Phase::Peering(Reason::WaitsForLease(lease.holder));
                if attempt.awaits.replace(lease.holder).is_none() {
                    fx.push(Effect::AwaitLease { attempt: self.attempt, lease: *lease });
                }
                return;
            }
            attempt.starts = true;
            self.write_started(own, fx);
        } else if attempt.starts
            && (attempt.all(|step| *step == MemberStage::Active) || is_mutated("early_active"))
        {
            self.serve(fx);
        }
    }

    /// A lease, unless its holder is a member: that one leads no more once it has answered.
    fn foreign(&self, lease: Option<Lease>) -> Option<Lease> {
        lease.filter(|lease| !self.map.is_member(lease.holder))
    }

    /// Nobody else has to lead. Of copies that were active in the same interval the one with the longest log leads, as in
    /// Ceph: its last writes are kept, and nothing that the others have already overwritten has to be copied back.
    fn check_lead(&mut self, own: &PgInfo) -> Result<(), Stop> {
        let Some(attempt) = &self.under_way else { return Ok(()) };
        let copies = attempt.replicas.iter().filter_map(|(osd, step)| Some((*osd, step.copy()?)));
        let complete = copies.filter(|(_, copy)| !copy.incomplete && copy.last_epoch_started > Epoch(0));
        let best = complete.max_by_key(|(_, copy)| (copy.last_epoch_started, copy.last_update));
        let better = best.and_then(|(osd, copy)| Some((osd, self.must_lead(osd, copy, own)?)));
        self.successor = better.as_ref().map(|(osd, _)| *osd);
        match better {
            Some((_, stop)) => Err(stop),
            None if may_not_lead(own) => Err(Stop::Incomplete(Reason::AllIncomplete)),
            None => self.check_gap(own),
        }
    }

    /// This copy, the best of all, is not stale, though it is not known by it who served clients in epochs whose maps are gone. A
    /// member that was active and saw all maps knows: its word is taken. Otherwise the copy must be an owner of the data: for the
    /// monitor, it has all that was written.
    fn check_gap(&mut self, own: &PgInfo) -> Result<(), Stop> {
        let started = own.last_epoch_started;
        let gap = self.intervals.gap(started).filter(|_| !is_mutated("ignore_gap"));
        let Some((first, last)) = gap else { return Ok(()) };
        let Some(attempt) = &self.under_way else { return Ok(()) };
        let mut copies = attempt.replicas.iter().filter_map(|(_, step)| step.copy());
        let knows = |copy: &&Copy| {
            let history = &copy.history;
            let has_gap =
                history.past.iter().any(|interval| interval.acting.is_empty() && interval.last >= started);
            !has_gap
                && !copy.incomplete
                && copy.last_epoch_started > Epoch(0)
                && history.same_interval_since <= self.map.epoch
        };
        match copies.find(knows).map(|copy| copy.history.clone()) {
            Some(history) => {
                self.intervals.adopt(&history);
                self.blocked_by(own).map_or(Ok(()), |why| Err(Stop::Down(why)))
            }
            None if self.map.owners.contains(&self.me) => Ok(()),
            None => Err(Stop::Incomplete(Reason::MapsMissing { first, last })),
        }
    }

    /// The reason why this member, whose complete copy is the best of the others', has to lead; `None` if it need not.
    fn must_lead(&self, osd: OsdId, copy: &Copy, own: &PgInfo) -> Option<Stop> {
        let (started, ours) = (copy.last_epoch_started, own.last_epoch_started);
        if may_not_lead(own) {
            return Some(Stop::Incomplete(Reason::Interrupted(osd)));
        }
        if copy.last_update == own.last_update || is_mutated("ignore_better") {
            return None;
        }
        if started > ours {
            return Some(Stop::Incomplete(Reason::NewerData { osd, started, ours }));
        }
        let is_longer = started == ours && copy.last_update > own.last_update;
        // The monitor lets nobody lead who is not noted to have all data; and a copy without room, to which that one had to
        // give way, cannot take its writes.
        let may_lead = self.map.owners.contains(&osd) && !self.had_no_room;
        (is_longer && may_lead).then_some(Stop::Again(Reason::LongerLog(osd)))
    }

    /// Repairs the copies that differ, all at the same time.
    fn repair(&mut self, own: &PgInfo, fx: &mut Effects) {
        let (number, owners) = (self.attempt, &self.map.owners);
        let Some(attempt) = &mut self.under_way else { return };
        let mut first = None;
        for (_, step) in &mut attempt.replicas {
            if let Some(common) = step.copy().and_then(|copy| equal(copy, own)) {
                *step = MemberStage::Equal(Some(common));
            }
        }
        let equal = attempt.replicas.iter().filter(|(_, step)| matches!(step, MemberStage::Equal(_))).count();
        attempt.beside = equal + 1 >= self.map.min_size;
        for (osd, step) in &mut attempt.replicas {
            let MemberStage::Known(copy) = step else { continue };
            let place = place(copy, own);
            first = first.or(Some(*osd));
            // A member that has all that clients were told of: it could lead as well.
            let may_lead = !copy.incomplete && place.common == Some(copy.last_update) && owners.contains(osd);
            let changed = std::mem::take(&mut copy.changed);
            // Beside clients only what the replica's own log tells of is pushed before it has ours. Otherwise it gets states of
            // objects of which no log tells that another primary may compare.
            let (attempt, to, keeps_place) = (number, *osd, attempt.beside);
            fx.push(Effect::Repair { attempt, to, place, keeps_place, changed, may_lead });
            *step = MemberStage::Marking(copy.clone());
        }
        if let Some(osd) = first {
            self.phase = Phase::Peering(Reason::Repairs(osd));
        }
    }

    /// Writes down that this copy is whole in this interval.
    fn write_started(&mut self, own: &PgInfo, fx: &mut Effects) {
        assert!(!own.incomplete, "an incomplete copy must not lead");
        assert!(self.promised != self.map.epoch, "no attempt goes on in an epoch with a promise");
        let info = PgInfo {
            last_epoch_started: self.interval,
            history: self.intervals.known(),
            acting: self.acting().collect(),
            // Those that this copy granted to primaries before are over: they were waited for.
            promised: Promised::default(),
            ..own.clone()
        };
        fx.push(Effect::WriteInfo { attempt: self.attempt, info: info.clone() });
        if is_mutated("replica_first") {
            self.activate(&info, fx);
        }
    }

    /// The primary's own info is durable: the replicas follow.
    fn activate(&mut self, own: &PgInfo, fx: &mut Effects) {
        let number = self.attempt;
        let Some(attempt) = &mut self.under_way else { return };
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
            fx.push(Effect::Activate { attempt: number, to, place, is_whole });
        }
        if attempt.replicas.is_empty() {
            self.serve(fx);
        }
    }

    fn serve(&mut self, fx: &mut Effects) {
        let Some(attempt) = self.under_way.take() else { return };
        assert!(
            attempt.all(|step| *step == MemberStage::Active) || is_mutated("early_active"),
            "all members have activated the interval"
        );
        let complete = 1 + attempt.replicas.len() - attempt.behind.len();
        assert!(
            complete >= self.map.min_size || attempt.behind.is_empty(),
            "clients are served beside a recovery only with min_size complete copies"
        );
        (self.successor, self.had_no_room) = (None, false);
        self.phase = Phase::Active;
        self.was_active = true;
        self.recovering = attempt.behind.iter().map(|(osd, _)| *osd).collect();
        let number = self.attempt;
        let recover = |(to, place)| Effect::Recover { attempt: number, to, place };
        fx.list.extend(attempt.behind.into_iter().map(recover));
        fx.push(Effect::Serve { followers: attempt.replicas.into_iter().map(|(osd, _)| osd).collect() });
    }
}

fn may_not_lead(own: &PgInfo) -> bool {
    own.incomplete && !is_mutated("lead_incomplete")
}

/// The primary's objects that a replica's copy has.
fn place(copy: &Copy, own: &PgInfo) -> Place {
    let common = common(copy, own);
    Place {
        common,
        last_backfill: copy.last_backfill.clone().filter(|_| common.is_some() && copy.incomplete),
    }
}

/// The newest entry of a replica's copy that equals the primary's.
fn equal(copy: &Copy, own: &PgInfo) -> Option<Eversion> {
    let is_equal = !copy.incomplete && copy.last_update == own.last_update;
    common(copy, own).filter(|common| is_equal && *common == own.last_update)
}

/// Up to where a replica's copy and the primary's went through the same changes; `None` if it has to be made anew.
fn common(copy: &Copy, own: &PgInfo) -> Option<Eversion> {
    match copy {
        _ if !copy.incomplete && copy.last_update == own.last_update => Some(own.last_update),
        _ => copy.common,
    }
}
