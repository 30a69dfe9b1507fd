//! Writes that are submitted and not yet durable on all members.

use std::collections::VecDeque;
use std::rc::Rc;

use carmine_reactor::Payload;
use carmine_types::Eversion;

use crate::op::{ClientOp, Outcome};

/// One such write.
pub(crate) struct Write {
    pub version: Eversion,
    pub op: Rc<ClientOp>,
    /// Its answer.
    pub outcome: Outcome,
    /// Given to the store at this time.
    pub submitted_ns: u64,
    /// Durable here since this time; 0: not yet.
    pub local_ns: u64,
    /// What replicas are sent, kept for those that need it again; `None` without replicas.
    pub rep: Option<Replicated>,
    /// Requests that are answered when this write is durable everywhere: resends of it, and others whose answer tells of it.
    pub followers: Vec<(Rc<ClientOp>, Outcome)>,
}

/// A write as replicas are sent it.
pub(crate) struct Replicated {
    pub front: Vec<u8>,
    pub data: Payload,
    /// Checksum of `data`, if it is known.
    pub crc: Option<u32>,
}

/// The writes in flight of a PG, oldest first; their version numbers have no gaps.
#[derive(Default)]
pub(crate) struct InFlight {
    writes: VecDeque<Write>,
}

impl InFlight {
    pub(super) fn push(&mut self, write: Write) {
        debug_assert!(
            self.writes.back().is_none_or(|last| last.version.version + 1 == write.version.version)
        );
        self.writes.push_back(write);
    }

    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// The write with this version number.
    pub(super) fn get_mut(&mut self, version: u64) -> Option<&mut Write> {
        let first = self.writes.front()?.version.version;
        let at = usize::try_from(version.checked_sub(first)?).ok()?;
        self.writes.get_mut(at)
    }

    /// Takes the oldest write, if its version number is at most `committed`.
    pub(super) fn pop(&mut self, committed: u64) -> Option<Write> {
        self.writes.pop_front_if(|write| write.version.version <= committed)
    }

    /// Writes after this version number, oldest first.
    pub(super) fn after(&self, version: u64) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(move |write| write.version.version > version)
    }

    /// Takes all requests out, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Rc<ClientOp>> + use<> {
        std::mem::take(&mut self.writes)
            .into_iter()
            .flat_map(|write| std::iter::once(write.op).chain(write.followers.into_iter().map(|(op, _)| op)))
    }
}
