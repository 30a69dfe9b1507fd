//! A damaged block gets its content back from another copy.

use carmine_pgtypes::{ObjectChange, Step, Transaction};
use carmine_reactor::Payload;
use carmine_types::{ObjectId, crc32c};

use crate::blue::objects::onode::{PreparedPin, Recent};
use crate::blue::shard::Blue;
use crate::{BLOCK_BYTES, Commit, StoreError};

impl Blue {
    /// See [`crate::Store::heal`]. The block map's checksum decides whether the content is the right one, so no version is
    /// compared: a block of another version that has the same bytes is as good. `txn` is an empty one of the object's PG.
    pub(crate) async fn heal(
        &self,
        mut txn: Transaction,
        oid: &ObjectId,
        off: u64,
        content: &Payload,
    ) -> Result<Commit, StoreError> {
        let index = off / BLOCK_BYTES;
        let at = index * BLOCK_BYTES;
        // Nothing suspends between the look at the block map and the submission: a write in between would be lost.
        self.wait_for_room().await?;
        let pin = PreparedPin::new(self.load(oid, &(at..at + BLOCK_BYTES)).await?);
        let (entry, size, at_hand) = {
            let state = pin.state.borrow();
            let entry = state.entry(index).unwrap_or_default();
            (entry, state.meta.size, state.recent.contains_key(&entry.block()))
        };
        if entry.is_lost() {
            return Err(self.lost(oid, index));
        }
        if entry.is_hole() || at_hand {
            // It was written meanwhile, perhaps by another who healed it.
            return Ok(Commit::ready(Ok(())));
        }
        // Behind the end of the object a block is zeros.
        let mut whole = self.shard.buf(BLOCK_BYTES as usize);
        whole.fill(0);
        let given = content.iter().flat_map(|bytes| bytes.iter().copied());
        whole.iter_mut().zip(given).for_each(|(to, from)| *to = from);
        let whole = whole.freeze();
        let found = crc32c::raw(crc32c::SEED, &whole);
        if found != entry.crc() {
            let device_offset = entry.block() * BLOCK_BYTES;
            return Err(StoreError::Corrupt {
                oid: oid.clone(),
                offset: at,
                device_offset,
                expected: entry.crc(),
                found,
            });
        }
        // The write of a part of the block (at the end of the object) finds the rest here.
        let len = (size.saturating_sub(at)).min(BLOCK_BYTES) as usize;
        let data = Payload::from(whole.slice(..len));
        pin.state.borrow_mut().recent.insert(entry.block(), Recent { data: whole, writing: false });
        txn.changes.push(ObjectChange::new(oid.clone(), [Step::Write { off: at, data, crc: None }]));
        let commit = self.submit(txn.into());
        drop(pin);
        self.count(|stats| stats.healed_blocks += 1);
        tracing::warn!("object {oid}, offset {at}: the block has its content back from another copy");
        Ok(commit)
    }
}
