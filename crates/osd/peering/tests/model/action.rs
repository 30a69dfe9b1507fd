//! What can happen next in the model, and how much trouble may.

/// How often each kind of trouble may happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) writes: u8,
    pub(crate) kills: u8,
    /// Requests whose sender gives up though they are still on their way.
    pub(crate) late: u8,
    pub(crate) duplicates: u8,
    pub(crate) timers: u8,
    /// Changes of the OSDs that CRUSH names.
    pub(crate) moves: u8,
    /// Writes that a replica cannot apply.
    pub(crate) failures: u8,
    /// OSDs that ask for maps which the monitor does not have any more.
    pub(crate) gaps: u8,
    /// Entries of `pg_temp` that the monitor drops.
    pub(crate) drops: u8,
    /// Stores of OSDs that are down, replaced by empty ones.
    pub(crate) wipes: u8,
    /// Maps that bring two changes at once.
    pub(crate) pairs: u8,
    /// Maps that split the PG.
    pub(crate) splits: u8,
    /// Merges of the PG that are announced, or given up.
    pub(crate) merges: u8,
    /// OSDs that are marked down though they live.
    pub(crate) cuts: u8,
}

/// No trouble.
pub(crate) const CALM: Budget = Budget {
    writes: 0,
    kills: 0,
    late: 0,
    duplicates: 0,
    timers: 0,
    moves: 0,
    failures: 0,
    gaps: 0,
    drops: 0,
    wipes: 0,
    pairs: 0,
    splits: 0,
    merges: 0,
    cuts: 0,
};

/// An action that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The oldest transaction of this OSD becomes durable.
    Durable(u8),
    /// A message arrives.
    Deliver(usize),
    /// It arrives, and will again.
    Duplicate(usize),
    /// This OSD stops waiting for an answer.
    GiveUp(u8, usize),
    /// This OSD sees the next map.
    SeeMap(u8),
    /// This OSD sees the newest map, as there are no others any more.
    SkipMaps(u8),
    Timer(u8),
    /// This replica cannot apply a write.
    CannotApply(u8),
    Kill(u8),
    /// The monitor marks this OSD down.
    MarkDown(u8),
    Start(u8),
    /// The same, and the monitor has only the newest map.
    StartLate(u8),
    /// The monitor marks this start of this OSD up.
    Boot(u8),
    /// The monitor notes that this OSD was up in the epoch that it asks for.
    Alive(u8),
    Write(u8),
    /// This primary pushes to a replica what it lacks, beside the writes of clients.
    Recover(u8),
    /// This primary asks the monitor for another acting set.
    AskTemp(u8),
    /// The monitor tells this primary of the PG's past (MOSDPGCreate2).
    Create(u8),
    /// The monitor drops the entry of `pg_temp`.
    DropTemp,
    /// This OSD's store is replaced.
    Wipe(u8),
    /// CRUSH names other OSDs.
    Move([u8; 2]),
    /// The same, in one map with the end or the start of this OSD.
    MoveWith([u8; 2], u8),
    /// The pool's number of PGs rises.
    Split,
    /// The same, and CRUSH names other OSDs for the child.
    SplitTo([u8; 2]),
    /// The monitor announces that the PG gets its neighbour, …
    AnnounceMerge,
    /// … or gives that up.
    RetractMerge,
    /// This primary says that the merge can be.
    SayMergeable(u8),
    /// This OSD has read its store, and splits the copy that is there.
    Load(u8),
    /// The monitor marks this OSD down, which lives.
    Cut(u8),
    /// The lease for which this primary waits is over.
    LeaseOver(u8),
}
