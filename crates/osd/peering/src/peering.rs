//! The state of a PG's interval, and the events that concern primaries and replicas alike.

use std::net::SocketAddr;
use std::time::Duration;

use carmine_pgtypes::{OsdSet, PgHistory, PgInfo};
use carmine_types::{Epoch, Errno, OsdId, is_mutated};

use crate::intervals::{Intervals, Sources};
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

/// Whether this map splits or merges the copy: its pool has another number of PGs than when the copy was made or last split or merged. An
/// OSD that starts follows older maps again; a map from before that changes nothing, though the pool had another number then, too.
#[must_use]
pub fn resize_is_due(own: &PgInfo, pg_num: u32, epoch: Epoch) -> bool {
    is_resized(own, pg_num) && epoch > own.split
}

/// The copy has other objects than a PG of a pool with so many PGs.
fn is_resized(own: &PgInfo, pg_num: u32) -> bool {
    own.pg_num > 0 && pg_num > 0 && own.pg_num != pg_num
}

/// Everything about a PG's interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peering {
    pub(crate) me: OsdId,
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
    /// The attempt under way; `None` before the first, while a timer runs, and after the last.
    pub(crate) under_way: Option<Attempt>,
    /// Replicas that lack objects (active primary).
    pub(crate) recovering: Vec<OsdId>,
    /// Pause before the next attempt.
    pub(crate) pause: Duration,
    /// The phase in which the last attempt left it to wait.
    pub(crate) reported: Option<Phase>,
    /// OSDs that are no members, and announced in this interval that they have copies.
    pub(crate) strays: Vec<OsdId>,
    /// The attempt of the last query answered; orders of any other one are refused (replica).
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
        Peering { me, ..Peering::default() }
    }

    /// Makes this machine, of a PG that a split makes and that has seen the map of the split, go on from the copy that its parent has
    /// here. It knows what the parent knew of the intervals until the split, and keeps the parent's promise. `own` is the parent's info
    /// before the split; the parent has not seen the map of the split, or is not loaded. Comes before [`Event::Loaded`].
    ///
    /// Returns the history that is to be written down together with the split. It is as of a map in which the PG exists: followed
    /// again from an older one, the parent's last interval would not be found.
    ///
    /// # Panics
    /// If this PG is loaded or has seen no map, or the parent is loaded and has seen that of the split.
    #[must_use]
    pub fn inherit(&mut self, parent: &Peering, own: &PgInfo) -> PgHistory {
        assert!(self.phase == Phase::Loading, "a PG that is loaded is no part of another one");
        self.lease = parent.lease.filter(|_| !is_mutated("forget_promise"));
        self.had_no_room = parent.had_no_room;
        self.intervals.inherit(&parent.intervals, &own.history, own.pg_num);
        if is_mutated("history_before") { own.history.clone() } else { self.intervals.known() }
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

    /// Its members have activated the interval: it serves clients, unless it is about to be merged.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    /// It serves clients.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.is_active() && (!self.is_merging() || is_mutated("serve_premerge"))
    }

    /// It is about to be merged with another PG, and must not change.
    #[must_use]
    pub fn is_merging(&self) -> bool {
        self.map.is_merging
    }

    /// Whether this primary's PG, which is about to be merged, can be: all OSDs that should have it are whole. `None`: it is not known
    /// yet, or is not asked.
    #[must_use]
    pub fn may_merge(&self, own: &PgInfo) -> Option<bool> {
        let is_whole = self.is_clean() && own.unfound.is_empty() && !self.map.is_remapped();
        (self.is_active() && self.is_merging()).then_some(is_whole)
    }

    /// Counts intervals, and their restarts. A task that was suspended compares it before it touches anything.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// This OSD is its primary.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.map.acting.primary() == Some(self.me)
    }

    /// The acting set.
    #[must_use]
    pub fn acting(&self) -> &OsdSet {
        &self.map.acting
    }

    /// The acting set that this primary asks the monitor for (MOSDPGTemp), primary first; `None`: that of the map is right. The set
    /// that CRUSH names is asked for by removing the entry.
    #[must_use]
    pub fn wanted_acting(&self) -> Option<Vec<OsdId>> {
        match &self.phase {
            Phase::Peering(Reason::WaitsForActing(wanted)) => Some(wanted.clone()),
            Phase::Active if !self.recovers() => {
                // Also in CRUSH's order: otherwise the entry would stay forever.
                Some(self.whole_members()).filter(|wanted| !self.acting().osds().eq(wanted.iter().copied()))
            }
            _ => None,
        }
    }

    /// The acting set of an active PG all of whose copies are whole: the OSDs that CRUSH names, and as long as those are too few,
    /// others that serve.
    fn whole_members(&self) -> Vec<OsdId> {
        let others = self.acting().osds().filter(|osd| !self.map.up.contains(*osd));
        let others = others.take(self.map.size.saturating_sub(self.map.up.len()));
        self.map.up.osds().chain(others).collect()
    }

    /// These OSDs are the acting set, with the same primary.
    pub(crate) fn is_acting(&self, osds: &[OsdId]) -> bool {
        self.acting().primary() == osds.first().copied()
            && self.acting().len() == osds.len()
            && osds.iter().all(|osd| self.acting().contains(*osd))
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
        Sources::new(self.intervals.past(), &self.map)
    }

    /// The history that a member should write down, if its record is out of date. It is not urgent: after a crash the OSD follows
    /// the maps since the record again. A copy that is yet to be split keeps the record of before, for its children.
    #[must_use]
    pub fn unwritten(&self, own: &PgInfo) -> Option<PgHistory> {
        let is_member = !matches!(self.phase, Phase::Loading | Phase::Stray | Phase::Failed(_));
        let waits_for_split =
            resize_is_due(own, self.map.pg_num, self.map.epoch) && own.pg_num < self.map.pg_num;
        let known = Some(self.intervals.known()).filter(|_| is_member && !waits_for_split)?;
        let is_same = known == PgHistory { epoch: known.epoch, ..own.history.clone() };
        let is_late = known.epoch.0 >= own.history.epoch.0 + EPOCHS_UNWRITTEN;
        (!is_same || is_late).then_some(known)
    }

    /// The newest map that it has seen.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    /// This copy gave a promise, which replaces the one before. One to an earlier primary no longer matters: the later primary has
    /// waited for its end.
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
                if !self.intervals.is_loaded {
                    self.intervals.load(&own.history);
                }
                self.next_generation(&mut fx);
                self.begin(own, &mut fx);
            }
            Event::Merges => {
                self.next_generation(&mut fx);
                self.following = None;
                if !matches!(self.phase, Phase::Failed(_)) {
                    self.phase = Phase::Loading;
                }
            }
            Event::Map(map) => self.on_map(own, map, &mut fx),
            Event::Removed => {
                (self.map.acting, self.map.members) = Default::default();
                self.next_generation(&mut fx);
                self.following = None;
                self.step_back(&mut fx);
            }
            Event::StoreFailed(errno) => self.fail(errno, &mut fx),
            Event::Created(history) => {
                // For an interval that began later the monitor sends it again.
                let is_current = history.epoch >= self.intervals.same_interval_since();
                if is_current && !self.knows_past(own) {
                    self.intervals.learn(&history, own.made);
                    self.try_with_news(own, &mut fx);
                }
            }
            Event::StrayFound(osd) => {
                if !self.strays.contains(&osd) && !self.is_asked(osd) {
                    self.strays.push(osd);
                    self.try_with_news(own, &mut fx);
                }
            }
            Event::Ordered { attempt, epoch, order } => {
                fx.then = self.on_order(own, attempt, epoch, order, &mut fx)
            }
            Event::CarriedOut { generation, activates } => {
                fx.then = self.carried_out(own, generation, activates, &mut fx)
            }
            Event::CannotApply(errno) => self.cannot_apply(errno, &mut fx),
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
        if is_same {
            // It may say that this primary was up in its interval, which the attempt under way waits for; or somebody came who was
            // waited for, or was given up.
            return if self.waits_for_map() {
                self.try_again(own, fx)
            } else {
                self.advance_attempt(own, fx)
            };
        }
        self.interval = self.map.epoch;
        self.next_generation(fx);
        // Orders of the last interval's primary are refused from now on, and all orders until this interval's primary asks.
        self.following = None;
        self.strays.clear();
        if self.phase != Phase::Loading {
            self.begin(own, fx);
        }
    }

    /// An attempt found that nothing can be done before the map changes.
    fn waits_for_map(&self) -> bool {
        let is_of_map = |why: &Reason| matches!(why, Reason::WaitsForActing(_) | Reason::WaitsForHistory);
        self.waits() && !matches!(&self.phase, Phase::Peering(why) if !is_of_map(why))
    }

    /// A primary that is not active may be able to continue now.
    fn try_with_news(&mut self, own: &PgInfo, fx: &mut Effects) {
        if self.is_peering() {
            self.start_attempts(own, fx);
        }
    }

    /// An attempt has ended without success.
    pub(crate) fn waits(&self) -> bool {
        self.is_peering() && self.under_way.is_none()
    }

    /// It is a primary that does not serve clients.
    fn is_peering(&self) -> bool {
        matches!(self.phase, Phase::Down(_) | Phase::Peered(_) | Phase::Incomplete(_) | Phase::Peering(_))
    }

    /// Begins the interval that the map describes.
    pub(crate) fn begin(&mut self, own: &PgInfo, fx: &mut Effects) {
        match self.phase {
            Phase::Failed(_) => {}
            // Work that was under way when the interval ended is started over, even if this OSD, unnoticed, did not lead in
            // between: the log tells what was applied.
            _ if self.leads() => self.start_attempts(own, fx),
            _ => self.step_back(fx),
        }
    }

    /// The map does not say yet that this primary was up in its interval: to others it is one in which nobody was served.
    pub(crate) fn lacks_up_thru(&self) -> bool {
        self.map.up_thru() < self.interval
    }

    /// This OSD does not lead.
    fn step_back(&mut self, fx: &mut Effects) {
        let is_served = self.map.is_served(self.me);
        self.phase = if is_served { Phase::Replica { active: false } } else { Phase::Stray };
        fx.list.push(Effect::DropOps);
    }

    /// Tasks of the old generation end without effect.
    pub(crate) fn next_generation(&mut self, fx: &mut Effects) {
        self.generation += 1;
        self.under_way = None;
        self.recovering.clear();
        fx.list.push(Effect::StartOver);
    }

    fn fail(&mut self, errno: Errno, fx: &mut Effects) {
        fx.list.push(Effect::TellPrimary(errno));
        self.next_generation(fx);
        self.phase = Phase::Failed(Reason::StoreFailed(errno));
    }

    /// The pool has another number of PGs than when this one was made, split or merged last. By that number clients find other objects
    /// here than it has: it serves nobody, and changes nothing, until it is split or merged.
    fn is_resized(&self, own: &PgInfo) -> bool {
        is_resized(own, self.map.pg_num)
    }

    /// Why the PG serves nobody by this map, whatever its copies have.
    pub(crate) fn why_closed(&self, own: &PgInfo) -> Option<Reason> {
        if self.is_resized(own) {
            return Some(Reason::Resized { made: own.pg_num, now: self.map.pg_num });
        }
        (!self.map.classic.is_empty()).then(|| Reason::MixedKinds(self.map.classic.clone()))
    }

    /// This copy knows who served clients before: it has learned that, or was activated itself.
    pub(crate) fn knows_past(&self, own: &PgInfo) -> bool {
        self.intervals.is_known() || own.last_epoch_started > Epoch(0)
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

    /// It is active, with as many complete copies as it should have, and no other OSD is to have them.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_active() && !self.recovers() && self.map.acting.len() >= self.map.size
    }

    /// The primary keeps this OSD's copy equal.
    #[must_use]
    pub fn is_needed(&self, osd: OsdId) -> bool {
        self.map.is_served(osd)
    }

    /// An active PG has fewer complete copies than it should have: those that are being made for OSDs that are no members are more.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        let lacking = self.recovering.iter().filter(|osd| self.acting().contains(**osd)).count();
        self.map.acting.len() - lacking < self.map.size
    }

    /// The PG's state in Ceph's words and their order, as `status` shows it.
    #[must_use]
    pub fn state(&self, recovery: Recovery) -> String {
        if !self.is_active() {
            return self.phase.name().to_owned();
        }
        let is_remapped = self.map.is_remapped();
        let is_unfound = matches!(recovery, Recovery::RecoveryUnfound | Recovery::BackfillUnfound);
        let active = if self.is_merging() { "premerge+peered" } else { "active" };
        let words = [
            (self.is_clean() && !is_unfound, "+clean"),
            (recovery == Recovery::RecoveryWait, "+recovery_wait"),
            (recovery == Recovery::RecoveryToofull, "+recovery_toofull"),
            (recovery == Recovery::Recovering, "+recovering"),
            (recovery == Recovery::RecoveryUnfound, "+recovery_unfound"),
            (recovery == Recovery::BackfillUnfound, "+backfill_unfound"),
            (self.map.acting.len() < self.map.size, "+undersized"),
            (self.is_degraded() || is_unfound, "+degraded"),
            (is_remapped, "+remapped"),
            (recovery == Recovery::BackfillWait, "+backfill_wait"),
            (recovery == Recovery::Backfilling, "+backfilling"),
            (recovery == Recovery::BackfillToofull, "+backfill_toofull"),
        ];
        let words = words.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word);
        std::iter::once(active).chain(words).collect()
    }

    /// The invariants that hold between events.
    fn check(&self, own: &PgInfo) {
        let is_primary = self.is_peering() || self.is_active();
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
            !self.is_active() || self.map.classic.is_empty(),
            "a PG that it shares with {:?} serves clients",
            self.map.classic
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
