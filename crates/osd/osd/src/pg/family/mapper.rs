//! Which objects have clones for a snapshot, as keys of an omap that each PG has (SnapMapper). No client sees it, scrubs do not
//! compare it, and it changes with the clones, in the same transactions.
//!
//! A surplus entry does no harm, since a trim checks the object itself. So a repaired copy gets the entries of the objects pushed
//! to it, and none are removed from it.

use carmine_codec::{Decoder, Encoder};
use carmine_pgtypes::snaps::SnapSet;
use carmine_pgtypes::{Step, object, pg_first_object};
use carmine_reactor::Bytes;
use carmine_store::{OmapPage, OmapRange, StoreError};
use carmine_types::{ObjectId, SpgId};

/// The object that has the omap.
pub(in crate::pg) fn oid(pg: SpgId) -> ObjectId {
    pg_first_object(pg)
}

/// Whether it is such an object.
pub(crate) fn is_mapper(oid: &ObjectId) -> bool {
    oid.name.is_empty()
}

/// The key that says that an object has clones for a snapshot.
pub(in crate::pg) fn key(snap: u64, head: &ObjectId) -> Box<[u8]> {
    let mut key = snap.to_be_bytes().to_vec();
    object::put(head, &mut Encoder::new(&mut key));
    key.into()
}

/// Adds an object for some snapshots.
pub(in crate::pg) fn add(snaps: &[u64], head: &ObjectId) -> Step {
    Step::SetOmap { entries: snaps.iter().map(|snap| (key(*snap, head), Bytes::new())).collect() }
}

/// Removes an object for a snapshot.
pub(in crate::pg) fn remove(snap: u64, head: &ObjectId) -> Step {
    Step::RemoveOmap { keys: vec![key(snap, head)] }
}

/// Adds all entries of an object, in another copy; `None` if it has no clones.
pub(in crate::pg) fn entries(set: &SnapSet, head: &ObjectId) -> Option<Step> {
    let snaps: Vec<u64> = set.clones.iter().flat_map(|clone| clone.snaps.iter().copied()).collect();
    (!snaps.is_empty()).then(|| add(&snaps, head))
}

/// The heads named by these entries, which are all of one snapshot.
///
/// # Errors
/// `Damaged` if a key was not made by [`key`].
pub(in crate::pg) fn heads(page: &OmapPage) -> Result<Vec<ObjectId>, StoreError> {
    let heads = page.entries.iter().map(|(key, _)| {
        let head = key.get(size_of::<u64>()..).unwrap_or_default();
        Decoder::all(head, "entry of a snapshot", object::get::<ObjectId>)
    });
    heads.collect::<Result<_, _>>().map_err(|error| StoreError::Damaged {
        what: "index of snapshots".to_owned(),
        why: error.to_string(),
    })
}

/// The keys of a snapshot, at most `max` of them.
pub(in crate::pg) fn range(snap: u64, max: usize) -> OmapRange {
    OmapRange { prefix: snap.to_be_bytes().to_vec(), entries_max: max, ..OmapRange::all(1 << 20) }
}
