//! Loading onodes and block maps into the cache, and what a transaction needs before it can be applied.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use carmine_pgtypes::{ObjectChange, ObjectMeta};
use carmine_reactor::Shard;
use carmine_reactor::sync::Notify;
use carmine_types::ObjectId;
use smallvec::SmallVec;

use super::extents::{Extents, SHARD_BYTES};
use super::index::MetaIndex;
use super::onode::{Needs, Onode, Pin, PreparedPin, Recent, State, needs};
use super::{Blue, codec, keys};
use crate::StoreError;

/// Up to so many pieces of a block map are fetched one by one; more by a scan.
const GETS_MAX: usize = 2;

/// Onodes that a transaction is going to change.
#[derive(Default)]
pub(crate) struct Prepared {
    pins: SmallVec<[PreparedPin; 2]>,
}

/// "This object is being loaded": ends, and tells who waits, when dropped.
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

/// Pieces of a block map, by their indices.
type Pieces = Vec<(usize, Extents)>;

impl Blue {
    /// The onode with the block map for bytes `range`, loaded if need be. Does not suspend on a hit.
    pub(crate) async fn load(&self, oid: &ObjectId, range: &Range<u64>) -> Result<Pin, StoreError> {
        let pin = self.cache.borrow().get(oid).map(Pin::new);
        match pin {
            Some(pin) if pin.state.borrow().is_loaded(range) => {
                self.count(|stats| stats.cache_hits += 1);
                Ok(pin)
            }
            // On the heap, since the future of each operation that hits is as large as all that it might have to wait for.
            _ => Box::pin(self.load_missed(oid, range)).await,
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

    async fn load_edges(&self, pin: &PreparedPin, needs: &Needs) -> Result<(), StoreError> {
        for index in needs.edges.into_iter().flatten() {
            Box::pin(self.load_edge(pin, index)).await?;
        }
        Ok(())
    }

    /// Reads a block that is going to be overwritten in part, unless its content is at hand.
    async fn load_edge(&self, onode: &Rc<Onode>, index: u64) -> Result<(), StoreError> {
        let entry = {
            let state = onode.state.borrow();
            match state.entry(index) {
                Some(entry) if entry.is_lost() => return Err(self.lost(&onode.oid, index)),
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

/// Puts pieces in their places; those in `loaded` that were not found are holes. What was loaded meanwhile stays.
fn fill(state: &mut State, loaded: Range<usize>, pieces: Pieces) {
    let mut pieces = pieces.into_iter().peekable();
    for index in loaded {
        let found = pieces.next_if(|(at, _)| *at == index).map(|(_, extents)| extents);
        if let Some(slot @ None) = state.map.get_mut(index) {
            *slot = Some(found.unwrap_or_default());
        }
    }
}

/// An onode with the pieces of its block map that were asked for; `None`: there is no such object.
pub(crate) type Found = Option<(ObjectMeta, Range<usize>, Pieces)>;

/// The state of an object as it was fetched.
pub(crate) fn state_of(found: Found) -> State {
    let Some((meta, loaded, pieces)) = found else { return State::default() };
    let count = meta.size.div_ceil(SHARD_BYTES) as usize;
    let mut state = State { exists: true, meta, ..State::default() };
    state.map.resize_with(count, || None);
    fill(&mut state, loaded, pieces);
    state
}

/// These objects with all of their block maps.
pub(crate) async fn fetch_objects(
    index: &MetaIndex,
    shard: &Shard,
    oids: impl IntoIterator<Item = Arc<ObjectId>>,
) -> Result<Vec<(Arc<ObjectId>, Found)>, StoreError> {
    let names: Vec<_> = oids.into_iter().map(|oid| (keys::oid_bytes(&oid), oid)).collect();
    let onodes: Vec<_> = names.iter().map(|(name, _)| keys::onode(name)).collect();
    let values = index.load(shard, onodes.clone()).await?;
    let (mut objects, mut wanted) = (Vec::new(), Vec::new());
    for (((name, oid), key), value) in names.into_iter().zip(onodes).zip(values) {
        let meta = value.map(|value| codec::decode_onode(&key, &value)).transpose()?;
        let count = meta.as_ref().map_or(0, |meta| meta.size.div_ceil(SHARD_BYTES) as usize);
        wanted.extend((0..count).map(|index| keys::extents(&name, index as u32)));
        objects.push((oid, meta, count));
    }
    let pieces = index.load(shard, wanted.clone()).await?;
    let mut pieces = wanted.into_iter().zip(pieces);
    let mut found = Vec::new();
    for (oid, meta, count) in objects {
        let mut map = Pieces::new();
        for (index, (key, value)) in pieces.by_ref().take(count).enumerate() {
            if let Some(value) = value {
                map.push((index, codec::decode_extents(&key, &value)?));
            }
        }
        found.push((oid, meta.map(|meta| (meta, 0..count, map))));
    }
    Ok(found)
}

/// The onode of an object and its block map for `range`: in one go, if that is of few pieces.
async fn fetch_object(
    index: &MetaIndex,
    shard: &Shard,
    oid: &[u8],
    range: &Range<u64>,
) -> Result<Found, StoreError> {
    let guess = (range.start / SHARD_BYTES)..range.end.div_ceil(SHARD_BYTES);
    let guess = if range.is_empty() || guess.end - guess.start > GETS_MAX as u64 { 0..0 } else { guess };
    let guess = guess.start as usize..guess.end as usize;
    let onode = keys::onode(oid);
    let mut wanted = vec![onode.clone()];
    wanted.extend(guess.clone().map(|index| keys::extents(oid, index as u32)));
    let mut values = index.load(shard, wanted.clone()).await?.into_iter();
    let Some(value) = values.next().flatten() else { return Ok(None) };
    let meta = codec::decode_onode(&onode, &value)?;
    let end = range.end.min(meta.size);
    let wanted_map = if range.start < end {
        (range.start / SHARD_BYTES) as usize..end.div_ceil(SHARD_BYTES) as usize
    } else {
        0..0
    };
    if guess.is_empty() {
        let pieces = fetch_pieces(index, shard, oid, wanted_map.clone()).await?;
        return Ok(Some((meta, wanted_map, pieces)));
    }
    let mut pieces = Pieces::new();
    for ((index, key), value) in guess.zip(wanted.iter().skip(1)).zip(values) {
        if let Some(value) = value.filter(|_| wanted_map.contains(&index)) {
            pieces.push((index, codec::decode_extents(key, &value)?));
        }
    }
    Ok(Some((meta, wanted_map, pieces)))
}

/// The pieces with these indices that exist, in order.
async fn fetch_pieces(
    index: &MetaIndex,
    shard: &Shard,
    oid: &[u8],
    indices: Range<usize>,
) -> Result<Pieces, StoreError> {
    let mut pieces = Pieces::new();
    let key = |index: usize| keys::extents(oid, index as u32);
    if indices.len() <= GETS_MAX {
        let wanted: Vec<_> = indices.clone().map(key).collect();
        if wanted.is_empty() {
            return Ok(pieces);
        }
        let values = index.load(shard, wanted.clone()).await?;
        for ((index, key), value) in indices.zip(wanted).zip(values) {
            if let Some(value) = value {
                pieces.push((index, codec::decode_extents(&key, &value)?));
            }
        }
        return Ok(pieces);
    }
    let each = async |key: &[u8], value: &[u8]| {
        let index = key.last_chunk::<4>().map_or(0, |index| u32::from_be_bytes(*index) as usize);
        pieces.push((index, codec::decode_extents(key, value)?));
        Ok::<_, StoreError>(())
    };
    index.scan_all(shard, (key(indices.start), key(indices.end)), each).await?;
    Ok(pieces)
}
