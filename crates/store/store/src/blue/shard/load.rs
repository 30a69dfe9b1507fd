//! Loads onodes and block maps into the cache, and what a transaction needs before it can be applied.

use std::ops::Range;
use std::rc::Rc;

use carmine_pgtypes::{ObjectChange, ObjectMeta};
use carmine_reactor::sync::Notify;
use carmine_types::ObjectId;
use smallvec::SmallVec;

use crate::StoreError;
use crate::blue::meta::keys;
use crate::blue::objects::apply::{Needs, needs};
use crate::blue::objects::fetch::{fetch_object, fetch_pieces, fill, state_of};
use crate::blue::objects::onode::{Onode, Pin, PreparedPin, Recent};
use crate::blue::shard::Blue;
use crate::blue::shard::clone::has_clones;

/// Onodes that a transaction is going to change.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) pins: SmallVec<[PreparedPin; 2]>,
}

/// Marks an object as being loaded; wakes the waiters when dropped.
struct Claim<'a> {
    store: &'a Blue,
    oid: &'a ObjectId,
    notify: Rc<Notify>,
}

impl<'a> Claim<'a> {
    fn new(store: &'a Blue, oid: &'a ObjectId) -> Claim<'a> {
        let notify = Rc::new(Notify::new());
        store.loading.borrow_mut().insert(oid.clone(), Rc::clone(&notify));
        Claim { store, oid, notify }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.store.loading.borrow_mut().remove(self.oid);
        self.notify.notify_all();
    }
}

impl Blue {
    /// The onode with the block map for bytes `range`, loaded if need be. Does not suspend on a hit.
    pub(crate) async fn load(&self, oid: &ObjectId, range: &Range<u64>) -> Result<Pin, StoreError> {
        match self.cached(oid, range) {
            Some(onode) => {
                self.count(|stats| stats.cache_hits += 1);
                Ok(Pin::new(&onode))
            }
            // Boxed, so that the futures of operations that hit the cache stay small.
            None => Box::pin(self.load_missed(oid, range)).await,
        }
    }

    async fn load_missed(&self, oid: &ObjectId, range: &Range<u64>) -> Result<Pin, StoreError> {
        loop {
            let pin = self.cache.borrow().get(oid).map(Pin::new);
            if let Some(pin) = &pin
                && pin.state.borrow().is_loaded(range)
            {
                self.count(|stats| stats.cache_misses += 1);
                return Ok(Pin::new(pin));
            }
            let other = self.loading.borrow().get(oid).cloned();
            if let Some(other) = other {
                other.notified().await;
                continue;
            }
            let _claim = Claim::new(self, oid);
            match pin {
                None => self.load_onode(oid, range).await?,
                Some(pin) => self.load_map(&pin, range).await?,
            }
        }
    }

    async fn load_onode(&self, oid: &ObjectId, range: &Range<u64>) -> Result<(), StoreError> {
        let found = fetch_object(self.shared.index(), &self.shard, &keys::oid_bytes(oid), range).await?;
        self.cache.borrow_mut().insert(Onode::new(oid.clone(), state_of(found)));
        Ok(())
    }

    async fn load_map(&self, onode: &Rc<Onode>, range: &Range<u64>) -> Result<(), StoreError> {
        let wanted = onode.state.borrow().pieces(range);
        let pieces = fetch_pieces(self.shared.index(), &self.shard, &onode.key, wanted.clone()).await?;
        fill(&mut onode.state.borrow_mut(), wanted, pieces);
        self.cache.borrow_mut().recount(&onode.oid);
        Ok(())
    }

    /// See [`crate::Store::prepare`].
    pub(crate) async fn prepare(&self, changes: &[ObjectChange]) -> Result<Prepared, StoreError> {
        self.wait_for_room().await?;
        if has_clones(changes) {
            return Box::pin(self.prepare_clones(changes)).await;
        }
        let mut prepared = Prepared::default();
        for change in changes {
            let mut steps = change.steps.iter().map(needs);
            let first = steps.next().unwrap_or_default();
            let pin = PreparedPin::new(self.load(&change.oid, &first.map).await?);
            self.load_edges(&pin, &first).await?;
            for needs in steps {
                if !pin.state.borrow().is_loaded(&needs.map) {
                    Box::pin(self.load(&change.oid, &needs.map)).await?;
                }
                self.load_edges(&pin, &needs).await?;
            }
            prepared.pins.push(pin);
        }
        Ok(prepared)
    }

    /// The onode of an object with the block map for bytes `range`, if it is in memory.
    pub(crate) fn cached(&self, oid: &ObjectId, range: &Range<u64>) -> Option<Rc<Onode>> {
        let onode = Rc::clone(self.cache.borrow().get(oid)?);
        let is_loaded = onode.state.borrow().is_loaded(range);
        is_loaded.then_some(onode)
    }

    /// See [`crate::Store::stat_at_hand`].
    pub(crate) fn stat_at_hand(&self, oid: &ObjectId) -> Option<Option<ObjectMeta>> {
        let onode = self.cached(oid, &(0..0))?;
        self.count(|stats| stats.cache_hits += 1);
        let state = onode.state.borrow();
        Some(state.exists.then(|| state.meta.clone()))
    }

    /// See [`crate::Store::is_prepared`].
    pub(crate) fn is_prepared(&self, changes: &[ObjectChange]) -> bool {
        // A clone needs its source prepared for as long as it is prepared itself.
        if has_clones(changes) {
            return false;
        }
        let mut needed =
            changes.iter().flat_map(|change| change.steps.iter().map(|step| (&change.oid, needs(step))));
        self.has_room()
            && needed.all(|(oid, needs)| {
                self.cached(oid, &needs.map).is_some_and(|onode| {
                    needs.edges.into_iter().flatten().all(|index| onode.state.borrow().has_content(index))
                })
            })
    }

    pub(crate) async fn load_edges(&self, pin: &PreparedPin, needs: &Needs) -> Result<(), StoreError> {
        for index in needs.edges.into_iter().flatten() {
            Box::pin(self.load_edge(pin, index)).await?;
        }
        Ok(())
    }

    /// Reads a block that is going to be overwritten in part, unless its content is in memory.
    async fn load_edge(&self, onode: &Rc<Onode>, index: u64) -> Result<(), StoreError> {
        let entry = {
            let state = onode.state.borrow();
            match state.entry(index) {
                Some(entry) if entry.is_lost() => {
                    return Err(self.lost_error(&onode.oid, index, entry.crc()));
                }
                Some(entry) if !entry.is_hole() && !state.recent.contains_key(&entry.block()) => entry,
                _ => return Ok(()),
            }
        };
        let _reading = self.begin_read();
        let data = self.read_block(&onode.oid, index, entry.block(), entry.crc()).await?;
        let mut state = onode.state.borrow_mut();
        state.recent.entry(entry.block()).or_insert(Recent { data, writing: false });
        Ok(())
    }
}
