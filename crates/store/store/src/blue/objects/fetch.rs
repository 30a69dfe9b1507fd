//! Loading objects from the index.

use std::ops::Range;
use std::sync::Arc;

use carmine_pgtypes::ObjectMeta;
use carmine_reactor::Shard;
use carmine_types::ObjectId;

use crate::StoreError;
use crate::blue::meta::extents::{Extents, PIECE_BYTES};
use crate::blue::meta::index::MetaIndex;
use crate::blue::meta::{codec, keys};
use crate::blue::objects::onode::OnodeState;

/// Up to this many pieces of a block map are fetched one by one, more by a scan.
const GETS_MAX: usize = 2;

/// Pieces of a block map, by their indices.
pub(crate) type Pieces = Vec<(usize, Extents)>;

/// Stores fetched pieces; missing ones in `loaded` are holes. Pieces loaded meanwhile stay.
pub(crate) fn fill(state: &mut OnodeState, loaded: Range<usize>, pieces: Pieces) {
    let mut pieces = pieces.into_iter().peekable();
    for index in loaded {
        let found = pieces.next_if(|(at, _)| *at == index).map(|(_, extents)| extents);
        if let Some(slot @ None) = state.map.get_mut(index) {
            *slot = Some(found.unwrap_or_default());
        }
    }
}

/// An onode with the requested pieces of its block map; `None`: there is no such object.
pub(crate) type Found = Option<(ObjectMeta, Range<usize>, Pieces)>;

/// The state of an object as it was fetched.
pub(crate) fn state_of(found: Found) -> OnodeState {
    let Some((meta, loaded, pieces)) = found else { return OnodeState::default() };
    let count = meta.size.div_ceil(PIECE_BYTES) as usize;
    let mut state = OnodeState { exists: true, meta, ..OnodeState::default() };
    state.map.resize_with(count, || None);
    fill(&mut state, loaded, pieces);
    state
}

/// Fetches objects with their whole block maps.
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
        let count = meta.as_ref().map_or(0, |meta| meta.size.div_ceil(PIECE_BYTES) as usize);
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

/// Fetches an onode and its block map for `range`, in one call if that has few pieces.
pub(crate) async fn fetch_object(
    index: &MetaIndex,
    shard: &Shard,
    oid: &[u8],
    range: &Range<u64>,
) -> Result<Found, StoreError> {
    let guess = (range.start / PIECE_BYTES)..range.end.div_ceil(PIECE_BYTES);
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
        (range.start / PIECE_BYTES) as usize..end.div_ceil(PIECE_BYTES) as usize
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

/// Fetches the existing pieces with these indices, in order.
pub(crate) async fn fetch_pieces(
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
