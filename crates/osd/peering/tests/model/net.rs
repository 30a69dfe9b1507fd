//! The messages between OSDs, and to the monitor.

use carmine_peering::AttemptId;

use crate::map::Merged;
use crate::stored::{Data, Stored, Which};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Query,
    Repair,
    Push,
    Activate,
    Progress,
    Complete,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    Query {
        acting: Vec<u8>,
    },
    Repair {
        complete_to: u64,
        backfilled: u8,
    },
    Push {
        which: Which,
        data: Data,
    },
    Progress {
        complete_to: u64,
        backfilled: u8,
    },
    Activate {
        copy: Stored,
    },
    Complete,
    Answer {
        kind: Kind,
        result: Result<Option<Stored>, i32>,
    },
    /// Without its change the object is none that the backfill has passed.
    Write {
        version: u64,
        entry: (u32, u8),
        has_change: bool,
    },
    Acked {
        durable: u64,
    },
    Refused,
    /// To the monitor: let these serve.
    Temp {
        asked: Vec<u8>,
    },
    /// A stray's word that it has a copy.
    Stray,
    /// To the monitor: the PG can be merged.
    Mergeable(Merged),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) from: u8,
    /// The start of the sender, to which the answer goes.
    pub(crate) from_start: u32,
    pub(crate) to: u8,
    pub(crate) to_start: u32,
    pub(crate) attempt: AttemptId,
    pub(crate) epoch: u32,
    /// It names the PG that a split makes.
    pub(crate) of_child: bool,
    pub(crate) body: Body,
}

impl Body {
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Body::Query { .. } => Some(Kind::Query),
            Body::Repair { .. } => Some(Kind::Repair),
            Body::Push { .. } => Some(Kind::Push),
            Body::Progress { .. } => Some(Kind::Progress),
            Body::Complete => Some(Kind::Complete),
            Body::Activate { .. } => Some(Kind::Activate),
            _ => None,
        }
    }
}
