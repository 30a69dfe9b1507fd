//! The phases of a PG, and the reasons why it does not serve clients.

use std::fmt;

use carmine_types::{Epoch, Errno, OsdId};

/// The phase that a PG is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its state is being read from the store.
    #[default]
    Loading,
    /// An OSD that is down may have writes that nobody else has.
    Down(Reason),
    /// All is here, but the acting set has fewer OSDs than the pool's `min_size`.
    Peered(Reason),
    /// The primary is making all copies equal; with what it does or waits for.
    Peering(Reason),
    /// The primary found something that it must not overwrite.
    Incomplete(Reason),
    /// Serves clients.
    Active,
    /// Serves a primary.
    Replica {
        /// The primary has activated the interval.
        active: bool,
    },
    /// Not a member of the acting set.
    Stray,
    /// Its store failed: nothing is acknowledged any more.
    Failed(Reason),
}

impl Phase {
    /// The state as `status` shows it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Phase::Loading => "loading",
            Phase::Down(_) => "down",
            Phase::Peered(_) => "undersized+degraded+peered",
            Phase::Peering(Reason::WaitsForLease(_)) => "peering+wait",
            Phase::Peering(_) => "peering",
            Phase::Incomplete(_) => "incomplete",
            Phase::Active => "active+clean",
            Phase::Replica { .. } => "replica",
            Phase::Stray => "stray",
            Phase::Failed(_) => "failed",
        }
    }

    /// The reason for this phase, with what the PG does or waits for; `None` if the name says it all.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Phase::Down(why)
            | Phase::Peered(why)
            | Phase::Peering(why)
            | Phase::Incomplete(why)
            | Phase::Failed(why) => Some(why),
            Phase::Replica { active: false } => Some(&Reason::WaitsForPrimary),
            Phase::Loading | Phase::Active | Phase::Replica { active: true } | Phase::Stray => None,
        }
    }
}

/// The work of an active PG for the copies that lack objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Nothing, or nothing now.
    #[default]
    Idle,
    /// Waits for its turn to recover what the log tells of.
    RecoveryWait,
    /// A copy has no room for what it lacks.
    RecoveryToofull,
    /// Recovers what the log tells of.
    Recovering,
    /// Waits for its turn to compare all objects.
    BackfillWait,
    /// Compares all objects, and copies those that differ.
    Backfilling,
    /// A copy that is backfilled is too full.
    BackfillToofull,
    /// An object that the log tells of is unfound: an OSD that is down may have what no member can give of it.
    RecoveryUnfound,
    /// The same of an object that is backfilled.
    BackfillUnfound,
}

/// Why a PG is in its phase, or why its interval begins anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The primary asks the replicas what they have.
    AsksReplicas,
    /// The primary makes this copy equal to its own.
    Repairs(OsdId),
    /// The primary has not activated the interval yet.
    WaitsForPrimary,
    /// This OSD did not answer in time.
    NoAnswer(OsdId),
    /// This OSD's answer cannot be decoded, or names objects of another PG.
    BadAnswer(OsdId),
    /// This OSD has not seen the map yet, or has a newer one.
    OtherMap(OsdId),
    /// This OSD refused to do its part.
    Refused(OsdId, Errno),
    /// The primary's own store cannot give what a repair needs.
    OwnStore(OsdId, Errno),
    /// The map has yet to say that this primary was up in its interval, which began in this epoch.
    WaitsUpThru(Epoch),
    /// This OSD led an earlier interval, and may not know yet that it does not any more.
    WaitsForLease(OsdId),
    /// The monitor was asked to let these OSDs serve, the primary first.
    WaitsForActing(Vec<OsdId>),
    /// This copy is new, and nobody that was asked knows who served clients before.
    WaitsForHistory,
    /// Every copy that has all writes is incomplete.
    AllIncomplete,
    /// These OSDs, which are down, may have writes that nobody else has.
    BlockedBy(Vec<OsdId>),
    /// The monitor had no maps of these epochs any more, first and last, when this OSD asked for them.
    Gap(Epoch, Epoch),
    /// These OSDs, which are up, have lost the copies that they had when clients may have been served.
    Forgotten(Vec<OsdId>),
    /// No member can give all of an object that another one needs, and these OSDs may.
    Unfound(Vec<OsdId>),
    /// By this map the pool has another number of PGs than by the one that made this one, or split or merged it last.
    Resized {
        /// With which the PG was made.
        made: u32,
        /// The number now.
        now: u32,
    },
    /// These OSDs are not Carmine's, and no PG can have both kinds.
    MixedKinds(Vec<OsdId>),
    /// Fewer OSDs than the pool's `min_size` are up.
    TooFew {
        /// Members of the acting set.
        found: usize,
        /// The pool's `min_size`.
        min_size: usize,
    },
    /// A replica left the interval.
    NotActive(OsdId),
    /// A replica cannot apply a write.
    CannotWrite(OsdId, Errno),
    /// The store of this OSD failed.
    StoreFailed(Errno),
}

impl Reason {
    /// The OSDs that have to come back, or to be given up.
    #[must_use]
    pub fn blocked_by(&self) -> &[OsdId] {
        match self {
            Reason::BlockedBy(osds) | Reason::Unfound(osds) => osds,
            _ => &[],
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::AsksReplicas => f.write_str("asks the replicas"),
            Reason::Repairs(osd) => write!(f, "repairs {osd}"),
            Reason::WaitsForPrimary => f.write_str("waits for the primary"),
            Reason::NoAnswer(osd) => write!(f, "waits for an answer of {osd}"),
            Reason::BadAnswer(osd) => write!(f, "{osd} gave an answer that makes no sense"),
            Reason::OtherMap(osd) => write!(f, "waits until {osd} has the same map"),
            Reason::Refused(osd, errno) => write!(f, "{osd} cannot do its part: {errno}"),
            Reason::OwnStore(osd, errno) => write!(f, "{osd}, its store: {errno}"),
            Reason::WaitsForActing(osds) => {
                write!(f, "waits until the monitor lets {} serve", names(osds))
            }
            Reason::WaitsForHistory => {
                f.write_str("this copy is new, and nobody that was asked knows who served clients before")
            }
            Reason::WaitsUpThru(since) => {
                write!(f, "waits until the monitor notes that this primary was up in epoch {since}")
            }
            Reason::WaitsForLease(osd) => {
                write!(f, "waits until the read lease of {osd}, which led before, is over")
            }
            Reason::AllIncomplete => f.write_str("every copy that has all writes is incomplete"),
            Reason::BlockedBy(osds) => {
                let osds = names(osds);
                write!(f, "peering is blocked due to down osds: {osds} may have writes that no other has")
            }
            Reason::Gap(first, last) => write!(
                f,
                "the monitor has no maps of epochs {first} to {last} any more: each OSD that may have led then has to answer"
            ),
            Reason::Forgotten(osds) => write!(
                f,
                "{} may have served clients and lost what they had: stop and give them up (ceph osd lost) to go on \
                 without it",
                names(osds)
            ),
            Reason::Unfound(osds) => {
                write!(f, "an object is unfound: {} may have what no member can give of it", names(osds))
            }
            Reason::TooFew { found, min_size } => {
                write!(f, "{found} of its OSDs are up, and min_size is {min_size}")
            }
            Reason::Resized { made, now } => write!(
                f,
                "the pool's pg_num is {now}, and this PG was made, or last split or merged, with {made}: waits for a map with that"
            ),
            Reason::MixedKinds(osds) => write!(
                f,
                "{} are not Carmine's, and no PG can have both kinds: give the pool a CRUSH rule for one device class",
                names(osds)
            ),
            Reason::NotActive(osd) => write!(f, "{osd} is not active"),
            Reason::CannotWrite(osd, errno) => write!(f, "{osd} cannot write: {errno}"),
            Reason::StoreFailed(errno) => write!(f, "its store failed: {errno}"),
        }
    }
}

fn names(osds: &[OsdId]) -> String {
    let names: Vec<String> = osds.iter().map(OsdId::to_string).collect();
    names.join(", ")
}
