//! The onode cache of a shard: a hash map, and a clock that evicts what is neither used nor pinned.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::num::NonZeroUsize;
use std::rc::Rc;

use carmine_reactor::Bytes;
use carmine_types::ObjectId;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use lru::LruCache;

use crate::BLOCK_BYTES;
use crate::blue::objects::onode::Onode;

/// Slots that one insertion checks when the cache is full: enough to find something to evict, and a bound on its time.
const HAND_STEPS: usize = 64;
/// Slots that are looked at without a pause when objects are forgotten.
const FORGET_STEPS: usize = 4096;

/// Objects by name, within a budget of bytes. Pinned objects stay even beyond the budget.
pub(crate) struct Cache {
    /// Slots, by the names of their objects.
    objects: HashTable<usize>,
    /// The slot found last: one operation looks its object up several times.
    last: Cell<usize>,
    /// The clock's face; empty slots are in `vacant`.
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    hand: usize,
    bytes: usize,
    budget_bytes: usize,
}

struct Slot {
    onode: Rc<Onode>,
    /// Its part of the cache's `bytes`.
    bytes: usize,
}

impl Cache {
    pub(crate) fn new(budget_bytes: usize) -> Cache {
        Cache {
            objects: HashTable::new(),
            last: Cell::new(0),
            slots: Vec::new(),
            vacant: Vec::new(),
            hand: 0,
            bytes: 0,
            budget_bytes,
        }
    }

    /// Estimated bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, oid: &ObjectId) -> Option<&Rc<Onode>> {
        let slot = self.slots.get(self.place(oid)?)?.as_ref()?;
        slot.onode.referenced.set(true);
        Some(&slot.onode)
    }

    /// The slot of an object.
    fn place(&self, oid: &ObjectId) -> Option<usize> {
        let is_it = |place: &usize| name(&self.slots, *place).is_some_and(|name| name == oid);
        let last = self.last.get();
        if is_it(&last) {
            return Some(last);
        }
        let place = *self.objects.find(hash(oid), is_it)?;
        self.last.set(place);
        Some(place)
    }

    /// Adds an onode that is not there yet, and evicts others as needed.
    pub(crate) fn insert(&mut self, onode: Rc<Onode>) {
        self.shrink();
        let bytes = onode.bytes();
        self.bytes += bytes;
        let hash_of_new = hash(&onode.oid);
        let slot = Some(Slot { onode, bytes });
        let index = match self.vacant.pop() {
            Some(index) => {
                if let Some(place) = self.slots.get_mut(index) {
                    *place = slot;
                }
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        let Cache { objects, slots, .. } = self;
        objects.insert_unique(hash_of_new, index, |place| name(slots, *place).map_or(0, hash));
    }

    /// Counts an onode again after its map grew or shrank.
    pub(crate) fn recount(&mut self, oid: &ObjectId) {
        let place = self.place(oid);
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place)).and_then(Option::as_mut) {
            let bytes = slot.onode.bytes();
            self.bytes = self.bytes + bytes - slot.bytes;
            slot.bytes = bytes;
        }
    }

    /// Evicts while the budget is exceeded, a bounded number of steps.
    pub(crate) fn shrink(&mut self) {
        for _ in 0..HAND_STEPS {
            if self.bytes <= self.budget_bytes || self.slots.is_empty() {
                return;
            }
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(Some(slot)) = self.slots.get(self.hand) else { continue };
            // Other holders of the onode (a read, say) keep using it; a copy loaded meanwhile would be equal, since only pinned
            // onodes change.
            if slot.onode.referenced.replace(false)
                || slot.onode.is_pinned()
                || Rc::strong_count(&slot.onode) > 1
            {
                continue;
            }
            self.evict(self.hand);
        }
    }
}

impl Cache {
    /// Drops the objects of some slots from `from` on that `is_gone` names, unless they are in use. Returns the slot to go on with, if there
    /// are more, and whether one was in use.
    pub(crate) fn forget(
        &mut self,
        from: usize,
        is_gone: impl Fn(&ObjectId) -> bool,
    ) -> (Option<usize>, bool) {
        let end = self.slots.len().min(from + FORGET_STEPS);
        let mut is_used = false;
        for place in from..end {
            let Some(slot) = self.slots[place].as_ref().filter(|slot| is_gone(&slot.onode.oid)) else {
                continue;
            };
            if slot.onode.is_pinned() || Rc::strong_count(&slot.onode) > 1 {
                is_used = true;
            } else {
                self.evict(place);
            }
        }
        ((end < self.slots.len()).then_some(end), is_used)
    }

    fn evict(&mut self, place: usize) {
        let Some(slot) = self.slots.get_mut(place).and_then(Option::take) else { return };
        self.bytes -= slot.bytes;
        if let Ok(found) = self.objects.find_entry(hash(&slot.onode.oid), |other| *other == place) {
            found.remove();
        }
        self.vacant.push(place);
    }
}

fn name(slots: &[Option<Slot>], place: usize) -> Option<&ObjectId> {
    slots.get(place)?.as_ref().map(|slot| &slot.onode.oid)
}

fn hash(oid: &ObjectId) -> u64 {
    FixedState::default().hash_one(oid)
}

// [`DataCache`]: blocks that were read, within a budget of bytes; those used longest ago go first.

/// Bytes that one block counts for: its content, and its place in the cache's list and table.
pub(crate) const COST_BYTES: usize = BLOCK_BYTES as usize + 128;

/// Contents of blocks by their number on the device. A block's content does not change while it is allocated, so a
/// block need only be forgotten when it is freed.
pub(crate) struct DataCache {
    blocks: LruCache<u64, Bytes, FixedState>,
}

impl DataCache {
    /// `None` if not even one block fits.
    pub(crate) fn new(budget_bytes: usize) -> Option<DataCache> {
        let blocks = NonZeroUsize::new(budget_bytes / COST_BYTES)?;
        Some(DataCache { blocks: LruCache::with_hasher(blocks, FixedState::default()) })
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * COST_BYTES
    }

    pub(crate) fn get(&mut self, block: u64) -> Option<Bytes> {
        self.blocks.get(&block).cloned()
    }

    /// Stores a copy, since the content may be a small part of a large buffer, which should be freed.
    pub(crate) fn put(&mut self, block: u64, content: &[u8]) {
        self.blocks.put(block, Bytes::from(content.to_vec()));
    }

    /// A block was freed.
    pub(crate) fn forget(&mut self, block: u64) {
        self.blocks.pop(&block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blue::objects::onode::{OnodeState, Pin};

    fn onode(n: u32) -> Rc<Onode> {
        Onode::new(ObjectId::head(1, b"", b"", format!("object{n}").as_bytes()), OnodeState::default())
    }

    #[test]
    fn stays_within_its_budget_but_for_what_is_pinned() {
        let one = onode(0).bytes() + 8;
        let mut cache = Cache::new(50 * one);
        let pinned: Vec<Pin> = (0..10)
            .map(|n| {
                let onode = onode(n);
                let pin = Pin::new(&onode);
                cache.insert(onode);
                pin
            })
            .collect();
        for n in 10..1000 {
            cache.insert(onode(n));
            assert!(cache.bytes() <= 52 * one, "{n}");
            // An entry in constant use stays.
            assert!(n < 20 || cache.get(&onode(15).oid).is_some(), "{n}");
        }
        for pin in &pinned {
            assert!(cache.get(&pin.oid).is_some());
        }
        assert!(cache.get(&onode(999).oid).is_some());
        assert!(cache.slots.len() < 60, "slots are reused");
    }

    #[test]
    fn more_pinned_than_fits_is_kept() {
        let mut cache = Cache::new(1);
        let pins: Vec<Pin> = (0..100)
            .map(|n| {
                let onode = onode(n);
                let pin = Pin::new(&onode);
                cache.insert(onode);
                pin
            })
            .collect();
        assert_eq!(pins.iter().filter(|pin| cache.get(&pin.oid).is_some()).count(), 100);
        drop(pins);
        cache.shrink();
        cache.shrink();
        cache.shrink();
        cache.shrink();
        assert!(cache.objects.len() < 100);
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let content = |n: u8| vec![n; BLOCK_BYTES as usize];
        let mut cache = DataCache::new(3 * COST_BYTES + 1).unwrap();
        (1..=3).for_each(|n| cache.put(n, &content(n as u8)));
        assert_eq!(cache.bytes(), 3 * COST_BYTES);
        assert_eq!(cache.get(1).as_deref(), Some(content(1).as_slice()));
        cache.put(4, &content(4));
        assert!(cache.get(2).is_none());
        cache.forget(1);
        assert!(cache.get(1).is_none());
        assert_eq!(cache.bytes(), 2 * COST_BYTES);
        assert!(DataCache::new(COST_BYTES - 1).is_none());
    }
}
