//! How far the unflushed end of a lane can be believed (FORMAT.md §6).
//!
//! Data and log of a group are in flight together, so a group that was not known to be durable may be whole while data
//! that it refers to is not. The lane then ends before it. But a block of the tail may also have been overwritten
//! rightly: when a later group that is durable had freed it. So what must hold is the data that is still referred to at
//! the end, and the end is the last place where all of it does.

use std::collections::BTreeSet;

use crate::blue::log::record::LoggedTxn;

/// Looks at transactions in order, and remembers the last after which everything holds.
#[derive(Default)]
pub(crate) struct Tail {
    /// Blocks that are referred to, and hold something else.
    bad: BTreeSet<u64>,
    seen: usize,
    good: usize,
}

impl Tail {
    /// The next transaction; `holds` tells whether a block has the checksum that it should.
    pub(crate) fn push(&mut self, txn: &LoggedTxn, mut holds: impl FnMut(u64, u32) -> bool) {
        for (block, crc) in &txn.writes {
            if !holds(*block, *crc) {
                self.bad.insert(*block);
            }
        }
        for (block, blocks) in &txn.freed {
            for block in *block..*block + u64::from(*blocks) {
                self.bad.remove(&block);
            }
        }
        self.seen += 1;
        if self.bad.is_empty() {
            self.good = self.seen;
        }
    }

    /// How many of the transactions may be believed.
    pub(crate) fn believed(&self) -> usize {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(writes: &[u64], freed: &[u64]) -> LoggedTxn {
        LoggedTxn {
            writes: writes.iter().map(|block| (*block, 0)).collect(),
            freed: freed.iter().map(|block| (*block, 1)).collect(),
            ..LoggedTxn::default()
        }
    }

    fn believed(txns: &[LoggedTxn], lost: &[u64]) -> usize {
        let mut tail = Tail::default();
        txns.iter().for_each(|txn| tail.push(txn, |block, _| !lost.contains(&block)));
        tail.believed()
    }

    #[test]
    fn it_ends_before_the_first_that_lacks_data() {
        let txns = [txn(&[1], &[]), txn(&[], &[]), txn(&[2, 3], &[]), txn(&[4], &[])];
        assert_eq!(believed(&txns, &[]), 4);
        assert_eq!(believed(&txns, &[3]), 2);
        assert_eq!(believed(&txns, &[4]), 3);
        assert_eq!(believed(&txns, &[1]), 0);
    }

    #[test]
    fn a_block_that_was_freed_later_may_hold_something_else() {
        let txns = [txn(&[1], &[]), txn(&[2], &[1]), txn(&[3], &[]), txn(&[1], &[2])];
        assert_eq!(believed(&txns[..3], &[1]), 3, "overwritten by a transaction that is not in the log");
        assert_eq!(believed(&txns, &[1]), 3, "and by one whose data is not there");
        assert_eq!(believed(&txns, &[1, 2]), 0, "the one that freed it lacks its own data");
        assert_eq!(believed(&[txn(&[1, 2], &[1])], &[1]), 1, "written twice in one transaction");
    }
}
