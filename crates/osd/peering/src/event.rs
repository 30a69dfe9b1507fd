//! The events that go into the state machine and the effects that come out of it.

use std::sync::Arc;
use std::time::Duration;

use carmine_pgtypes::{OsdSet, PgHistory, PgInfo};
use carmine_types::{Epoch, Errno, Eversion, ObjectId, OsdId};

use crate::{AttemptId, Member, Reason};

/// Something that happened to a PG.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "few events live at a time, and each for a moment")]
pub enum Event {
    /// Info and log were read from the store.
    Loaded,
    /// The next map merges other PGs into this one, or makes it new for that: its copy is read again when that is done
    /// ([`Event::Loaded`]). Nothing that is under way has an effect any more.
    Merges,
    /// A new map.
    Map(Map),
    /// The pool was deleted.
    Removed,
    /// A primary gave an order. The effects say how to go on ([`Then`]).
    Ordered {
        /// The primary's interval and attempt.
        attempt: AttemptId,
        /// The primary's map when it gave the order.
        epoch: Epoch,
        /// The order itself.
        order: Order,
    },
    /// An order was carried out durably, in this generation.
    CarriedOut {
        /// As [`Then::CarryOut`] gave it.
        generation: u64,
        /// The order was an activation.
        activates: bool,
    },
    /// A replica said what it has, or did not.
    Notified {
        /// The attempt that asked.
        attempt: u64,
        /// The replica.
        from: OsdId,
        /// Its copy.
        copy: Result<Copy, Trouble>,
    },
    /// A replica's task is done, or failed.
    Done {
        /// The task.
        task: Task,
        /// The attempt that it belongs to.
        attempt: u64,
        /// The replica.
        from: OsdId,
        /// How it ended.
        result: Result<(), Trouble>,
    },
    /// The info of [`Effect::WriteInfo`] is durable.
    InfoWritten {
        /// The attempt that wrote it.
        attempt: u64,
    },
    /// The holder of a lease that was waited for cannot serve any more ([`Effect::AwaitLease`]).
    LeaseOver {
        /// The attempt that waits.
        attempt: u64,
        /// The holder.
        holder: OsdId,
    },
    /// The pause of [`Effect::Timer`] is over.
    Timer {
        /// The attempt after which it was set.
        attempt: u64,
    },
    /// A replica cannot take the writes of the active primary. The primary must not go on without it.
    ReplicaStopped {
        /// The primary's attempt that the replica answers.
        attempt: u64,
        /// Why.
        why: Reason,
    },
    /// A write of the primary cannot be applied here, though the store is well: the copies have to be made equal again.
    CannotApply(Errno),
    /// The store failed: nothing may be acknowledged any more.
    StoreFailed(Errno),
    /// The monitor lets the PG be made, or made again (MOSDPGCreate2). These are the intervals since the PG's first epoch, which
    /// stands for the one in which all copies were whole.
    Created(PgHistory),
    /// This OSD, which is no member, says that it has a copy.
    StrayFound(OsdId),
}

/// A task of a replica on its way into the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// It writes down that its copy is incomplete.
    Mark,
    /// It gets the objects that differ.
    Push,
    /// It activates the interval durably.
    Activate,
    /// After an activation with a copy that lacked objects it gets all of them, and writes that down.
    Recover,
}

/// Facts of a map, for one PG.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Map {
    /// Its epoch.
    pub epoch: Epoch,
    /// The acting set.
    pub acting: OsdSet,
    /// Its OSDs.
    pub members: Vec<Member>,
    /// The OSDs that CRUSH names and that are up (Ceph's up set).
    pub up: OsdSet,
    /// The cluster's OSDs, by number; those beyond its end do not exist.
    pub osds: Arc<[OsdState]>,
    /// OSDs of the acting or the up set that are not Carmine's: the PG serves nobody, and is left unchanged.
    pub classic: Vec<OsdId>,
    /// The pool's size.
    pub size: usize,
    /// The pool's `min_size`: with fewer members the PG serves nobody.
    pub min_size: usize,
    /// The pool's number of PGs; zero: there is no such pool.
    pub pg_num: u32,
    /// The PG is about to be merged with another one: it is made whole, but serves nobody, so that its content stays as it is.
    pub is_merging: bool,
    /// The OSDs' stores forget everything when they stop: a PG that no OSD knows that is up begins anew.
    pub is_volatile: bool,
}

/// What a map says of an OSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OsdState {
    /// It does not exist.
    #[default]
    Gone,
    /// It is down.
    Down {
        /// What it had at this epoch is given up (`ceph osd lost`); zero: it never was.
        lost_at: Epoch,
        /// As of an OSD that is up.
        up_thru: Epoch,
    },
    /// It is up.
    Up {
        /// The epoch in which it is known to have been up (Ceph's `up_thru`): intervals that began later it has not led.
        up_thru: Epoch,
    },
}

impl OsdState {
    /// It is up.
    #[must_use]
    pub fn is_up(self) -> bool {
        matches!(self, OsdState::Up { .. })
    }

    /// The epoch in which it is known to have been up.
    #[must_use]
    pub fn up_thru(self) -> Epoch {
        match self {
            OsdState::Gone => Epoch(0),
            OsdState::Down { up_thru, .. } | OsdState::Up { up_thru } => up_thru,
        }
    }

    /// All that it had at this epoch is given up.
    #[must_use]
    pub fn is_lost(self, at: Epoch) -> bool {
        matches!(self, OsdState::Down { lost_at, .. } if lost_at > at)
    }
}

impl Map {
    /// What the map says of this OSD.
    #[must_use]
    pub fn state_of(&self, osd: OsdId) -> OsdState {
        self.osds.get(osd.0 as usize).copied().unwrap_or_default()
    }

    /// It is a member, or CRUSH names it: the primary keeps its copy equal.
    #[must_use]
    pub fn is_served(&self, osd: OsdId) -> bool {
        self.acting.contains(osd) || self.up.contains(osd)
    }

    /// CRUSH names other OSDs than the acting set, or in another order.
    #[must_use]
    pub fn is_remapped(&self) -> bool {
        self.acting.slots() != self.up.slots()
    }

    /// The epoch in which the primary is known to have been up.
    #[must_use]
    pub fn up_thru(&self) -> Epoch {
        self.acting.primary().map(|primary| self.state_of(primary).up_thru()).unwrap_or_default()
    }

    /// The epoch since which all members are up: their interval cannot have begun before.
    #[must_use]
    pub fn members_since(&self) -> Epoch {
        self.members.iter().map(|member| member.up_from).max().unwrap_or_default()
    }
}

/// An order of a primary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Say what you have.
    Query {
        /// The primary's acting set.
        acting: OsdSet,
    },
    /// Write down that your copy is incomplete.
    Repair {
        /// There is room for it.
        has_room: bool,
        /// It lacks only objects that the log changed after this entry; zero: it may lack any.
        complete_to: Eversion,
        /// That holds for the objects before this one only; `None`: for all.
        last_backfill: Option<ObjectId>,
    },
    /// Apply a piece of an object.
    Push,
    /// Take over my log.
    Activate {
        /// The primary's epoch of activation.
        last_epoch_started: Epoch,
    },
    /// Your copy, which lacked objects when it was activated, is whole now.
    Complete,
}

/// A promise of a replica: it helps no other primary than the holder before it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The primary.
    pub holder: OsdId,
    /// Its interval.
    pub interval: Epoch,
    /// The end of the promise, by the clock of the one who asks; the state machine does not look at it.
    pub until_ns: u64,
}

/// A replica's copy, as the replica describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// Its info, with the intervals that it knows.
    pub info: PgInfo,
    /// Newest entry that its log and the primary's have in common, and as of which it has all objects, or those before its
    /// `last_backfill`; `None` if there is none.
    pub common: Option<Eversion>,
    /// Objects that its log changed after that.
    pub changed: Vec<Arc<ObjectId>>,
    /// The promise that it gave last, if it is in force.
    pub lease: Option<Lease>,
}

/// Why a replica's part was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// It did not answer.
    NoAnswer,
    /// Its answer makes no sense.
    BadAnswer,
    /// It has another map.
    OtherMap,
    /// It has no room for what it was asked to make room for.
    Full,
    /// It refused.
    Refused(Errno),
    /// The primary's own store failed to give the data.
    OwnStore(Errno),
    /// No member can give the data, and another OSD may have it.
    Unfound,
}

/// The part of the primary's objects that a copy has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// All as of this entry, the newest that both logs have; `None`: it may lack any object.
    pub common: Option<Eversion>,
    /// With `common`: of the objects before this one only; `None`: of all.
    pub last_backfill: Option<ObjectId>,
}

/// A task for the shell. Effects are carried out in order; those that take time bring an event when they end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "few effects live at a time, and each for a moment")]
pub enum Effect {
    /// A new generation: tasks of the old one end without effect, operations wait to be started over, followers are
    /// forgotten, and the log's newest entry counts as committed.
    StartOver,
    /// Drop all operations: their clients send them to another primary. Forget who watches and how much is stored.
    DropOps,
    /// Ask a replica what it has: [`Event::Notified`].
    Query {
        /// The attempt.
        attempt: u64,
        /// The replica.
        to: OsdId,
    },
    /// Order a replica to mark its copy incomplete ([`Task::Mark`]), then do as [`Then::Push`] says.
    Repair {
        /// The attempt.
        attempt: u64,
        /// The replica.
        to: OsdId,
        /// The objects that it has; all others are compared.
        place: Place,
        /// An interruption leaves the copy as [`Order::Repair`] has it: at the same place. Otherwise it may lack any object.
        keeps_place: bool,
        /// Objects that its log changed after that.
        changed: Vec<Arc<ObjectId>>,
        /// The replica could lead as well: ask it first whether it has room, and say [`Trouble::Full`] if not.
        may_lead: bool,
    },
    /// Write this info: [`Event::InfoWritten`].
    WriteInfo {
        /// The attempt.
        attempt: u64,
        /// The new info.
        info: PgInfo,
    },
    /// Give a replica the log: [`Task::Activate`].
    Activate {
        /// The attempt.
        attempt: u64,
        /// The replica.
        to: OsdId,
        /// The objects that it has; without a common entry its log is replaced.
        place: Place,
        /// Its objects are equal to the primary's, too.
        is_whole: bool,
    },
    /// The PG is active: serve clients, with these replicas, whose logs are the primary's.
    Serve(Vec<OsdId>),
    /// Beside the clients' operations, push to a replica the objects that it lacks, and tell it that its copy is whole:
    /// [`Task::Recover`]. Comes before [`Effect::Serve`].
    Recover {
        /// The replica.
        to: OsdId,
        /// The objects that it has.
        place: Place,
    },
    /// Let the monitor note that this OSD was up in this epoch, in which the interval began (`up_thru`): the PG serves nobody
    /// before the map says so.
    WantUpThru(Epoch),
    /// Wait until the holder of this lease cannot serve any more: [`Event::LeaseOver`].
    AwaitLease {
        /// The attempt.
        attempt: u64,
        /// The lease.
        lease: Lease,
    },
    /// Bring [`Event::Timer`] after a pause.
    Timer {
        /// The attempt.
        attempt: u64,
        /// How long.
        after: Duration,
    },
    /// Tell this copy's primary that it cannot go on, and why.
    TellPrimary(Errno),
    /// Write a line to the log.
    Log(Level, Reason),
}

/// How important a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The interval begins anew.
    Info,
    /// The PG cannot go on by itself.
    Error,
}

/// The next step of the one who brought an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    #[default]
    Nothing,
    /// Refuse the order with this errno.
    Refuse(Errno),
    /// Answer the order.
    Answer,
    /// Carry the order out, unless the generation changes meanwhile, and bring [`Event::CarriedOut`] when it is durable.
    CarryOut {
        /// Ends with it.
        generation: u64,
        /// Write this info first.
        info: Option<Box<PgInfo>>,
    },
    /// Push to the replica the objects that differ (all, if the logs do not touch), and bring the end of [`Task::Push`].
    Push,
    /// Push only the objects that its log changed after the newest common entry and ours did not, and bring the end of
    /// [`Task::Push`]: once it has our log nothing tells of them any more.
    PushUndone,
}

/// The consequences of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// To be carried out in this order.
    pub list: Vec<Effect>,
    /// For the one who brought the event.
    pub then: Then,
}
