//! The operations in flight.

use super::op::Op;
use crate::options::OPS_IN_FLIGHT_MAX;

/// Bits of a transaction id that are the slot's index.
const INDEX_BITS: u32 = 16;
const _: () = assert!(1 << INDEX_BITS == OPS_IN_FLIGHT_MAX);

/// Operations by transaction id. An id is a rising number with the slot's index below it: found without a search, never
/// used twice, and sorted by submission.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Op>>,
    free: Vec<usize>,
    last: u64,
}

impl Table {
    /// Takes in an operation and gives it its id. `None` if all slots are taken.
    pub(super) fn insert(&mut self, mut op: Op) -> Option<u64> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < OPS_IN_FLIGHT_MAX => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.last += 1;
        op.tid = self.last << INDEX_BITS | index as u64;
        let tid = op.tid;
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Some(op);
        }
        Some(tid)
    }

    pub(super) fn get(&mut self, tid: u64) -> Option<&mut Op> {
        self.slots.get_mut(index(tid))?.as_mut().filter(|op| op.tid == tid)
    }

    pub(super) fn remove(&mut self, tid: u64) -> Option<Op> {
        let index = index(tid);
        let op = self.slots.get_mut(index)?.take_if(|op| op.tid == tid)?;
        self.free.push(index);
        Some(op)
    }

    /// All operations, in no order.
    pub(super) fn iter(&mut self) -> impl Iterator<Item = &mut Op> {
        self.slots.iter_mut().flatten()
    }

    /// Ids of the operations that `which` picks, in the order of their submission.
    pub(super) fn pick(&mut self, mut which: impl FnMut(&mut Op) -> bool) -> Vec<u64> {
        let mut tids: Vec<u64> = self.iter().filter_map(|op| which(op).then_some(op.tid)).collect();
        tids.sort_unstable();
        tids
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn index(tid: u64) -> usize {
    (tid & ((1 << INDEX_BITS) - 1)) as usize
}
