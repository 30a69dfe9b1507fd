//! The state of a PG's interval, and the events that concern primaries and replicas alike.

use std::net::SocketAddr;
use std::time::Duration;

use carmine_pgtypes::{PgHistory, PgInfo};
use carmine_types::{Epoch, Errno, OsdId, is_mutated};

use crate::intervals::{self, Intervals, Sources};
use crate::primary::Attempt;
use crate::{Effect, Effects, Event, Lease, Map, Phase, Reason, Recovery};

/// One OSD of the acting set. A restarted one has another address; one that was thought dead meanwhile is up from another
/// epoch, also when the map that said so was never seen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The OSD.
    pub osd: OsdId,
    /// Where it listens.
    pub addr: SocketAddr,
    /// Tells its starts apart.
    pub nonce: u32,
    /// Epoch since which the map shows it as up.
    pub up_from: Epoch,
}

/// Epochs without an interval after which an OSD writes down how far it is (Ceph: `osd_pg_epoch_persisted_max_stale`).
const EPOCHS_UNWRITTEN: u32 = 40;

/// A primary's attempt to activate an interval. Later attempts are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The primary's epoch at which the interval began for it.
    pub interval: Epoch,
    /// Counts the primary's attempts since its process started.
    pub attempt: u64,
}

/// Everything about a PG's interval.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peering {
    pub(crate) me: OsdId,
    /// Info and log were read from the store.
    loaded: bool,
    /// The newest map's facts; its members are those of the interval.
    pub(crate) map: Map,
    /// The interval as all its members see it, and those before.
    pub(crate) intervals: Intervals,
    /// Epoch at which this OSD saw the interval begin.
    pub(crate) interval: Epoch,
    /// Counts intervals, and their restarts.
    pub(crate) generation: u64,
    pub(crate) phase: Phase,
    /// Number of the last attempt (primary).
    pub(crate) attempt: u64,
    /// The attempt under way; `None` before the first, while a timer runs, and behind the last.
    pub(crate) under_way: Option<Attempt>,
    /// It has been active, here or as a replica, since the process started.
    pub(crate) was_active: bool,
    /// Replicas that lack objects (active primary).
    pub(crate) recovering: Vec<OsdId>,
    /// Pause before the next attempt.
    pub(crate) pause: Duration,
    /// The OSD that has to lead instead of this primary, which cannot make the copies equal.
    pub(crate) successor: Option<OsdId>,
    /// In this epoch the monitor was told that all members are complete, and some of them may now leave (primary).
    pub(crate) promised: Epoch,
    /// The attempt of the last query answered: nothing of another one is taken (replica).
    pub(crate) following: Option<AttemptId>,
    /// That attempt has ordered a repair (replica).
    pub(crate) is_repaired: bool,
    /// It refused the last repair for want of room: it has to lead as it is.
    pub(crate) had_no_room: bool,
    /// The last promise that this copy gave as a replica.
    pub(crate) lease: Option<Lease>,
}

impl Peering {
    /// A PG whose state has yet to be read, on this OSD.
    #[must_use]
    pub fn new(me: OsdId) -> Peering {
        Peering {
            me,
            loaded: false,
            map: Map::default(),
            intervals: Intervals::default(),
            interval: Epoch(0),
            generation: 0,
            phase: Phase::Loading,
            attempt: 0,
            under_way: None,
            was_active: false,
            recovering: Vec::new(),
            pause: Duration::ZERO,
            successor: None,
            promised: Epoch(0),
            following: None,
            is_repaired: false,
            had_no_room: false,
            lease: None,
        }
    }

    /// The OSD that this is.
    #[must_use]
    pub fn me(&self) -> OsdId {
        self.me
    }

    /// The phase that the PG is in.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// It serves clients.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    /// Counts intervals, and their restarts. A task that was suspended compares it before it touches anything.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// This OSD is its primary.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.map.members.first().is_some_and(|first| first.osd == self.me)
    }

    /// The acting set, primary first.
    pub fn acting(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.map.members.iter().map(|member| member.osd)
    }

    /// The OSD that has to lead instead of this primary.
    #[must_use]
    pub fn successor(&self) -> Option<OsdId> {
        self.successor
    }

    /// This primary's last attempt.
    #[must_use]
    pub fn attempt_id(&self) -> AttemptId {
        AttemptId { interval: self.interval, attempt: self.attempt }
    }

    /// The attempt with this number is under way.
    #[must_use]
    pub fn is_under_way(&self, attempt: u64) -> bool {
        self.under_way.is_some() && self.attempt == attempt
    }

    /// It takes writes of this attempt of its primary.
    #[must_use]
    pub fn takes_writes_of(&self, attempt: AttemptId) -> bool {
        self.phase == Phase::Replica { active: true } && self.following == Some(attempt)
    }

    /// The attempt of the primary that this copy follows.
    #[must_use]
    pub fn following(&self) -> Option<AttemptId> {
        self.following
    }

    /// The interval and those before it that may have served clients.
    #[must_use]
    pub fn intervals(&self) -> &Intervals {
        &self.intervals
    }

    /// The OSDs that may have content which no member can give.
    #[must_use]
    pub fn might_have_unfound(&self) -> Sources {
        Sources::of(self.intervals.past(), &self.map)
    }

    /// The history that a member should write down: its own record is behind. After a crash the OSD follows the maps since
    /// the record again, so none of it is urgent.
    #[must_use]
    pub fn unwritten(&self, own: &PgInfo) -> Option<PgHistory> {
        let is_member = !matches!(self.phase, Phase::Loading | Phase::Stray | Phase::Failed(_));
        let known = Some(self.intervals.known()).filter(|_| is_member)?;
        let is_same = known == PgHistory { epoch: known.epoch, ..own.history.clone() };
        let is_late = known.epoch.0 >= own.history.epoch.0 + EPOCHS_UNWRITTEN;
        (!is_same || is_late).then_some(known)
    }

    /// The newest map that it has seen.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    /// This copy gave a promise, in place of the one before. That to a primary which led earlier is over or without
    /// meaning: the later one had waited for it.
    pub fn promise(&mut self, lease: Lease) {
        self.lease = Some(lease);
    }

    /// The last promise that this copy gave.
    #[must_use]
    pub fn promised_lease(&self) -> Option<Lease> {
        self.lease
    }

    /// Takes an event. `own` is the info of this copy as it is in memory: the shell changes it in the step that submits the
    /// same change to the store.
    ///
    /// # Panics
    /// If a rule of this crate is broken, which is a fault of the program.
    #[must_use]
    pub fn on(&mut self, own: &PgInfo, event: Event) -> Effects {
        let mut fx = Effects::default();
        let before = (self.generation, self.attempt);
        match event {
            Event::Loaded => {
                self.loaded = true;
                self.intervals.load(&own.history);
                self.next_generation(&mut fx);
                self.begin(own, &mut fx);
            }
            Event::Map(map) => self.on_map(own, map, &mut fx),
            Event::Removed => {
                self.map.members.clear();
                self.next_generation(&mut fx);
                self.following = None;
                self.step_back(&mut fx);
            }
            Event::StoreFailed { errno } => self.fail(errno, &mut fx),
            Event::Reported { epoch, may_leave } => {
                if may_leave && self.is_active() && epoch == self.map.epoch {
                    self.promised = epoch;
                }
            }
            Event::Ordered { attempt, epoch, order } => {
                fx.then = self.on_order(own, attempt, epoch, order, &mut fx)
            }
            Event::CarriedOut { generation, activates } => {
                fx.then = self.carried_out(own, generation, activates, &mut fx)
            }
            Event::CannotApply { errno } => self.cannot_apply(errno, &mut fx),
            event => self.on_answer(own, event, &mut fx),
        }
        // Those of past intervals may have what is unfound.
        if self.is_clean() && own.unfound.is_empty() {
            self.intervals.clean();
        }
        assert!(before <= (self.generation, self.attempt), "generations and attempts only grow");
        self.check(own);
        fx
    }

    fn on_map(&mut self, own: &PgInfo, map: Map, fx: &mut Effects) {
        assert!(map.epoch >= self.map.epoch, "the map of {} comes after {}", map.epoch, self.map.epoch);
        let is_same = !self.intervals.follow(&map);
        self.map = map;
        // The monitor may have given up one who was waited for, though those who are here are the same.
        let may_begin = matches!(self.phase, Phase::Down(_)) && self.missing(own).is_none();
        if is_same && !may_begin {
            // It may say that this primary was up in its interval, which the attempt under way waits for.
            return self.go_on(own, fx);
        }
        self.interval = self.map.epoch;
        self.next_generation(fx);
        // Nothing of the interval before is taken from its primary any more, until this interval's primary asks.
        self.following = None;
        if self.loaded {
            self.begin(own, fx);
        }
    }

    /// Begins the interval that the map describes.
    pub(crate) fn begin(&mut self, own: &PgInfo, fx: &mut Effects) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        if !self.leads() {
            return self.step_back(fx);
        }
        // Work that was under way when the interval ended is started over, even if this OSD, unnoticed, did not lead in
        // between: the log tells what was applied.
        if let Some(why) = self.missing(own) {
            self.phase = Phase::Down(why);
            return;
        }
        self.phase = Phase::Peering(Reason::AsksReplicas);
        if self.lacks_up_thru() {
            fx.push(Effect::WantUpThru { epoch: self.interval });
        }
        self.start_attempts(own, fx);
    }

    /// The map does not say yet that this primary was up in its interval: to others it is one in which nobody was served.
    pub(crate) fn lacks_up_thru(&self) -> bool {
        self.map.up_thru < self.interval
    }

    /// This OSD does not lead.
    fn step_back(&mut self, fx: &mut Effects) {
        let is_member = self.acting().any(|osd| osd == self.me);
        self.phase = if is_member { Phase::Replica { active: false } } else { Phase::Stray };
        fx.push(Effect::DropOps);
    }

    /// Tasks of the old generation end without effect.
    pub(crate) fn next_generation(&mut self, fx: &mut Effects) {
        self.generation += 1;
        self.under_way = None;
        self.recovering.clear();
        self.successor = None;
        fx.push(Effect::StartOver);
    }

    fn fail(&mut self, errno: Errno, fx: &mut Effects) {
        fx.push(Effect::TellPrimary { errno });
        self.next_generation(fx);
        self.phase = Phase::Failed(Reason::StoreFailed(errno));
    }

    /// The reason why the PG has to wait for more OSDs before it can be active; `None` if enough are here, and all that
    /// may have writes which others lack.
    fn missing(&self, own: &PgInfo) -> Option<Reason> {
        let is_member = |osd: &OsdId| self.acting().any(|member| member == *osd);
        let down: Vec<OsdId> = self.map.owners.iter().filter(|osd| !is_member(osd)).copied().collect();
        let (found, min_size) = (self.map.members.len(), self.map.min_size);
        match down.as_slice() {
            _ if self.is_resized(own) => Some(Reason::Resized { made: own.pg_num, now: self.map.pg_num }),
            _ if found < min_size => Some(Reason::TooFew { found, min_size, down }),
            [] => self.blocked_by(own),
            // It never leads, and the monitor strikes nobody off at its word: a member whose copy is whole has to go on.
            _ if own.incomplete && found > 1 => None,
            _ if is_mutated("ignore_owners") => None,
            _ => Some(Reason::WaitsFor(down)),
        }
    }

    /// The pool has another number of PGs than when this one was made. By that number clients find other objects here than it has:
    /// it serves nobody, and changes nothing, until it has the old one again. (Splits and merges are not built.)
    pub(crate) fn is_resized(&self, own: &PgInfo) -> bool {
        own.pg_num > 0 && self.map.pg_num > 0 && own.pg_num != self.map.pg_num
    }

    /// By what this copy knows of past intervals, others may have writes that no member has.
    pub(crate) fn blocked_by(&self, own: &PgInfo) -> Option<Reason> {
        let is_member = |osd| self.map.is_member(osd);
        let past = self.intervals.past();
        let osds = intervals::blocked_by(past, own.last_epoch_started, &self.map, is_member);
        Some(Reason::BlockedBy(osds)).filter(|why| !why.blocked_by().is_empty())
    }

    /// It was active, and now its clients wait until the monitor, which hears of it by the OSD's report, has changed the map.
    /// (At a start of the whole cluster the others come up in a moment.)
    #[must_use]
    pub fn waits_for_monitor(&self) -> bool {
        let waits = self.successor.is_some() || matches!(self.phase, Phase::Down(Reason::WaitsFor(_)));
        waits && self.was_active
    }

    /// It serves clients, and the monitor has yet to hear that members which are no owners of the data have all of it now.
    #[must_use]
    pub fn has_newcomers(&self) -> bool {
        let is_whole = self.is_active() && self.recovering.is_empty();
        is_whole && self.acting().any(|osd| !self.map.owners.contains(&osd))
    }

    /// This replica lacks objects, which this attempt gives it (active primary).
    #[must_use]
    pub fn is_recovering(&self, attempt: u64, replica: OsdId) -> bool {
        self.attempt == attempt && self.recovering.contains(&replica)
    }

    /// Copies of this active PG lack objects.
    #[must_use]
    pub fn recovers(&self) -> bool {
        !self.recovering.is_empty()
    }

    /// It serves clients, with as many complete copies as it should have, and no other OSD is to have them.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_active()
            && !self.recovers()
            && !self.has_newcomers()
            && self.map.members.len() >= self.map.size
    }

    /// All that have its data are members; there are no owners that are not here.
    #[must_use]
    pub fn is_needed(&self, osd: OsdId) -> bool {
        self.map.owners.contains(&osd) || self.acting().any(|member| member == osd)
    }

    /// An active PG has fewer complete copies than it should have.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.map.members.len() - self.recovering.len() < self.map.size
    }

    /// The PG's state in Ceph's words and their order, as `status` shows it.
    #[must_use]
    pub fn state(&self, recovery: Recovery) -> String {
        if !self.is_active() {
            return self.phase.name().to_owned();
        }
        let is_unfound = matches!(recovery, Recovery::RecoveryUnfound | Recovery::BackfillUnfound);
        if !self.recovers() && !is_unfound && self.map.members.len() >= self.map.size {
            // The monitor's next map, in which newcomers are owners, begins a new interval.
            return if self.has_newcomers() { "active+remapped" } else { "active+clean" }.to_owned();
        }
        let is_remapped = self.map.is_remapped && self.recovers();
        let words = [
            (recovery == Recovery::RecoveryWait, "+recovery_wait"),
            (recovery == Recovery::RecoveryToofull, "+recovery_toofull"),
            (recovery == Recovery::Recovering, "+recovering"),
            (recovery == Recovery::RecoveryUnfound, "+recovery_unfound"),
            (recovery == Recovery::BackfillUnfound, "+backfill_unfound"),
            (self.map.members.len() < self.map.size, "+undersized"),
            (self.is_degraded() || is_unfound, "+degraded"),
            (is_remapped, "+remapped"),
            (recovery == Recovery::BackfillWait, "+backfill_wait"),
            (recovery == Recovery::Backfilling, "+backfilling"),
            (recovery == Recovery::BackfillToofull, "+backfill_toofull"),
        ];
        let words = words.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word);
        std::iter::once("active").chain(words).collect()
    }

    /// The state that keeps the monitor from taking all members for complete; `None` if they are.
    #[must_use]
    pub fn unsettled(&self, recovery: Recovery) -> Option<String> {
        let recovers = self.is_active() && self.recovers();
        if recovers { Some(self.state(recovery)) } else { self.phase.stuck().map(str::to_owned) }
    }

    /// The epoch since which all members are up: their interval cannot have begun before.
    pub(crate) fn members_since(&self) -> Epoch {
        self.map.members.iter().map(|member| member.up_from).max().unwrap_or_default()
    }

    /// The invariants that hold between events.
    fn check(&self, own: &PgInfo) {
        let is_primary =
            matches!(self.phase, Phase::Down(_) | Phase::Peering(_) | Phase::Incomplete(_) | Phase::Active);
        assert!(!is_primary || self.leads(), "only a primary peers and serves clients");
        assert!(self.under_way.is_none() || is_primary, "only a primary has an attempt under way");
        assert!(!self.is_active() || !own.incomplete, "an incomplete copy must not lead");
        assert!(
            !self.is_active() || !self.is_resized(own),
            "a PG of {} serves clients in a pool of {}",
            own.pg_num,
            self.map.pg_num
        );
        assert!(
            self.is_active() || self.recovering.is_empty(),
            "only an active primary recovers beside clients"
        );
        assert!(
            !self.is_active() || own.last_epoch_started == self.interval,
            "an active PG has written that it started"
        );
        assert!(!self.is_active() || !self.lacks_up_thru(), "the map tells of the interval of an active PG");
        assert!(
            self.phase != Phase::Replica { active: true }
                || self.following.is_some_and(|id| id.interval == own.last_epoch_started),
            "an active replica follows the attempt that started it"
        );
    }
}
