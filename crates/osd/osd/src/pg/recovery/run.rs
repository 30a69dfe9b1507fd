//! Pushes to the members of one PG the objects that they lack.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::{Message, with_timeout};
use carmine_peering::{Event, Recovery, Task, Trouble};
use carmine_reactor::Group;
use carmine_reactor::sync::Permit;
use carmine_types::{Errno, ObjectId, OsdId, errno};
use carmine_wire::osdmap::consts::{FLAG_NOBACKFILL, FLAG_NOREBALANCE, FLAG_NORECOVER};

use super::Target;
use super::missing::Begun;
use super::push::{Repair, Stop};
use super::reserve::{self, Reservation};
use crate::for_each::for_each;
use crate::messages::{PgAck, PgComplete, PgReserve, Reserve};
use crate::pg::Pg;
use crate::shard::OsdShard;

/// Pause before a replica without a free slot is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Longest time between two checks of flags and generation.
const LOOK: Duration = Duration::from_secs(1);
/// The same while other tasks push the last objects.
const LOOK_SOON: Duration = Duration::from_millis(10);

/// The recovery of one PG, for as long as its generation lasts.
#[derive(Clone)]
pub(super) struct Run {
    pub osd: Rc<OsdShard>,
    pub pg: Rc<Pg>,
    attempt: u64,
    generation: u64,
}

impl Turn {
    /// Only a short rest of the object is left to push: the next one may begin.
    pub(in crate::pg) fn let_next_begin(&mut self) {
        self.long = None;
    }
}

/// Why a recovery ended early.
pub(super) enum End {
    /// A new generation began.
    Superseded,
    /// The recovery of this member failed.
    Failed(OsdId, Trouble),
}

/// How a part ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Done,
    /// A flag of the map was set.
    Forbidden,
    /// A member has no space.
    Full,
    /// An object is unfound.
    Unfound,
    /// Writes of an object did not end in time.
    Busy,
}

/// The right to push an object. It is acquired before an object is chosen and held: an object chosen earlier would be held for
/// longer, and could not be pushed at once if a write waits for it. Holders never wait for an object without a limit.
pub(in crate::pg) struct Turn {
    _op: Permit,
    long: Option<Permit>,
}

/// The slots reserved for the PG, here and on members.
pub(super) struct Places {
    _local: Option<Reservation>,
    members: Vec<OsdId>,
}

impl Run {
    pub(super) fn new(osd: &Rc<OsdShard>, pg: &Rc<Pg>) -> Run {
        let attempt = pg.peer.machine().attempt_id().attempt;
        Run { osd: Rc::clone(osd), pg: Rc::clone(pg), attempt, generation: pg.peer.generation() }
    }

    pub(super) fn start(self) {
        let shard = self.osd.shard.clone();
        shard.spawn(Group::Recovery, "recovery", async move {
            let result = self.all().await;
            self.report_end(result);
        });
    }

    /// Pushes an object that a write waits for.
    pub(super) fn start_urgent(self, oid: Arc<ObjectId>) {
        let shard = self.osd.shard.clone();
        shard.spawn(Group::Recovery, "recovery", async move {
            let Some(begun) = Begun::claim(&self.pg.recovery.missing, &oid) else { return };
            let result = self.recover(begun, None).await;
            self.report_end(result.map(drop));
        });
    }

    /// Reports the end; a failure restarts the interval.
    fn report_end(&self, result: Result<(), End>) {
        if let Err(End::Failed(from, trouble)) = result {
            self.recovered(from, Err(trouble));
        }
    }

    fn recovered(&self, from: OsdId, result: Result<(), Trouble>) {
        self.pg.on(&self.osd, Event::Done { task: Task::Recover, attempt: self.attempt, from, result });
    }

    async fn all(&self) -> Result<(), End> {
        self.current()?;
        self.by_log().await?;
        let targets = self.pg.recovery.targets.borrow().clone();
        let (compared, whole): (Vec<Target>, Vec<Target>) =
            targets.into_iter().partition(|target| target.window.is_some());
        for target in &whole {
            self.complete(target.osd).await?;
        }
        for target in &compared {
            self.backfill(target).await?;
            self.complete(target.osd).await?;
        }
        self.set(Recovery::Idle);
        Ok(())
    }

    pub(super) fn current(&self) -> Result<(), End> {
        if self.pg.peer.is_past(self.generation) { Err(End::Superseded) } else { Ok(()) }
    }

    pub(super) fn set(&self, stage: Recovery) {
        if !self.pg.peer.is_past(self.generation) {
            self.pg.recovery.stage.set(stage);
        }
    }

    /// The repair of one member's copy.
    pub(super) fn repair_for(&self, to: OsdId) -> Repair {
        Repair::while_serving(&self.osd, &self.pg, self.attempt, to)
    }

    /// Pushes all that members lack by the log.
    async fn by_log(&self) -> Result<(), End> {
        while !self.pg.recovery.missing.borrow().is_empty() {
            self.wait_until_allowed(Reserve::Recovery).await?;
            let members = self.pg.recovery.missing.borrow().members();
            let Some(places) = self.reserve(Reserve::Recovery, members.into_iter().collect()).await? else {
                self.pause(Recovery::RecoveryToofull).await?;
                continue;
            };
            self.set(Recovery::Recovering);
            let part = self.push_missing().await?;
            self.give_back(places).await?;
            match part {
                // Writes of missing objects have not begun.
                Part::Done | Part::Forbidden | Part::Busy => {}
                Part::Full => self.pause(Recovery::RecoveryToofull).await?,
                Part::Unfound => {
                    self.pause(Recovery::RecoveryUnfound).await?;
                    self.pg.recovery.missing.borrow_mut().look_again();
                }
            }
        }
        Ok(())
    }

    async fn push_missing(&self) -> Result<Part, End> {
        let part = Cell::new(Part::Done);
        loop {
            let missing = &self.pg.recovery.missing;
            let goes_on = || {
                if self.is_paused_by_flags(Reserve::Recovery) {
                    part.set(Part::Forbidden);
                }
                part.get() == Part::Done && self.current().is_ok() && missing.borrow().has_next()
            };
            // Pushes in flight are not dropped when a member is full, because they might arrive later.
            for_each(self.max_active(), std::iter::from_fn(|| goes_on().then_some(())), async |()| {
                let turn = self.turn().await;
                if goes_on()
                    && let Some(begun) = Begun::claim_next(missing)
                    && self.recover(begun, Some(turn)).await? == Part::Full
                {
                    part.set(Part::Full);
                }
                Ok(())
            })
            .await?;
            self.current()?;
            if part.get() != Part::Done || self.pg.recovery.missing.borrow().is_empty() {
                return Ok(part.get());
            }
            if self.pg.recovery.missing.borrow().is_unfound() {
                return Ok(Part::Unfound);
            }
            // The others are being pushed because writes wait for them.
            with_timeout(&self.osd.shard, LOOK_SOON, self.pg.peer.changed().notified()).await;
        }
    }

    pub(super) fn max_active(&self) -> usize {
        self.osd.recovery_ops.capacity()
    }

    pub(super) async fn turn(&self) -> Turn {
        let op = self.osd.recovery_ops.acquire(1).await;
        let long = self.osd.long_pushes.acquire(1).await;
        Turn { _op: op, long: Some(long) }
    }

    /// Pushes an object to all members that lack it, and then releases it. An urgent push has no turn; it only shares the limit
    /// of bytes in flight.
    async fn recover(&self, begun: Begun<'_>, mut turn: Option<Turn>) -> Result<Part, End> {
        let mut bytes = 0;
        for to in begun.members.iter().copied() {
            self.current()?;
            let turn = turn.as_mut().filter(|_| begun.members.last() == Some(&to));
            match self.classify(to, self.repair_for(to).push_family(&begun.family, turn).await)? {
                Ok(copied) => bytes += copied,
                Err(Part::Unfound) => {
                    begun.leave_unfound();
                    return Ok(Part::Unfound);
                }
                Err(part) => return Ok(part),
            }
        }
        drop(turn);
        self.current()?;
        let head = Arc::clone(&begun.family.head);
        begun.done();
        self.release(&head);
        self.osd.recovery_pace.throttle(&self.osd.shard, bytes).await;
        Ok(Part::Done)
    }

    /// Sorts a push's failure: what ends the run (the outer error), and what only ends this part (the inner one).
    pub(super) fn classify(&self, to: OsdId, pushed: Result<u64, Stop>) -> Result<Result<u64, Part>, End> {
        match pushed {
            Ok(bytes) => {
                self.pg.recovery.note_pushed(bytes);
                Ok(Ok(bytes))
            }
            Err(Stop::Superseded) => Err(End::Superseded),
            Err(Stop::Failed(Trouble::Refused(Errno(errno::ENOSPC)))) => Ok(Err(Part::Full)),
            Err(Stop::Failed(Trouble::Unfound)) => Ok(Err(Part::Unfound)),
            Err(Stop::Failed(trouble)) => Err(End::Failed(to, trouble)),
        }
    }

    /// Releases a held object: its writes may start.
    pub(super) fn release(&self, oid: &Arc<ObjectId>) {
        self.pg.ops.pipeline().release(std::slice::from_ref(oid));
        self.pg.pump(&self.osd, oid);
    }

    /// Tells a member that it has all objects.
    async fn complete(&self, to: OsdId) -> Result<(), End> {
        self.current()?;
        let order = Message::encode(&PgComplete { head: self.pg.head(&self.osd) });
        let done = self.pg.order(&self.osd, to, order).await;
        self.current()?;
        done.map_err(|trouble| End::Failed(to, trouble))?;
        self.pg.recovery.targets.borrow_mut().retain(|target| target.osd != to);
        self.pg.copies.backend().forget_window(to);
        self.recovered(to, Ok(()));
        Ok(())
    }

    // Flags, places, pauses.

    /// Whether the map's flags pause it.
    pub(super) fn is_paused_by_flags(&self, what: Reserve) -> bool {
        let flags = self.osd.view().map_or(0, |view| view.map().flags);
        let has = |flag| flags & flag != 0;
        match what {
            Reserve::Release => false,
            Reserve::Recovery => has(FLAG_NORECOVER),
            Reserve::Backfill => {
                let is_move = has(FLAG_NOREBALANCE) && !self.pg.peer.machine().is_degraded();
                has(FLAG_NOBACKFILL) || is_move
            }
        }
    }

    pub(super) async fn wait_until_allowed(&self, what: Reserve) -> Result<(), End> {
        while self.is_paused_by_flags(what) {
            self.set(Recovery::Idle);
            with_timeout(&self.osd.shard, LOOK, self.pg.peer.changed().notified()).await;
            self.current()?;
        }
        Ok(())
    }

    /// Waits for a slot here and on these members, which are asked in order, so that no two PGs wait for each other; `None` if
    /// one is too full.
    pub(super) async fn reserve(&self, what: Reserve, members: Vec<OsdId>) -> Result<Option<Places>, End> {
        self.set(match what {
            Reserve::Backfill => Recovery::BackfillWait,
            _ => Recovery::RecoveryWait,
        });
        let local = reserve::local(&self.osd).await;
        let mut places = Places { _local: local, members: Vec::new() };
        for to in members {
            loop {
                self.current()?;
                match self.ask(to, what).await? {
                    0 => break,
                    errno::EBUSY => self.osd.shard.sleep(ASK_AGAIN).await,
                    errno::ENOSPC => {
                        self.give_back(places).await?;
                        return Ok(None);
                    }
                    errno => return Err(End::Failed(to, Trouble::Refused(Errno(errno)))),
                }
            }
            places.members.push(to);
        }
        Ok(Some(places))
    }

    async fn ask(&self, to: OsdId, want: Reserve) -> Result<i32, End> {
        let order = PgReserve { head: self.pg.head(&self.osd), want };
        let ack: Result<PgAck, Trouble> = self.pg.ask(&self.osd, to, Message::encode(&order)).await;
        self.current()?;
        ack.map(|ack| ack.result).map_err(|trouble| End::Failed(to, trouble))
    }

    pub(super) async fn give_back(&self, places: Places) -> Result<(), End> {
        for to in &places.members {
            self.ask(*to, Reserve::Release).await?;
        }
        Ok(())
    }

    /// Waits before a member that was too full is asked again.
    pub(super) async fn pause(&self, stage: Recovery) -> Result<(), End> {
        self.set(stage);
        let end_ns =
            self.osd.shard.now_ns() + self.osd.options.borrow().recovery.retry_interval.as_nanos() as u64;
        while self.osd.shard.now_ns() < end_ns {
            let left = Duration::from_nanos(end_ns - self.osd.shard.now_ns());
            self.osd.shard.sleep(left.min(LOOK)).await;
            self.current()?;
        }
        Ok(())
    }
}
