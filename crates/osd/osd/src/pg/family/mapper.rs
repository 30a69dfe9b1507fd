//! Which objects have clones for a snapshot: the keys of an omap that each PG has (SnapMapper). It belongs to no client, is
//! not compared with other members', and changes with the clones, in the same transactions.
//!
//! An entry too many does no harm: whoever trims looks at the object. So a copy that is repaired gets the entries of the
//! objects that it gets, and none are taken from it.

use carmine_codec::{Decoder, Encoder};
use carmine_pgtypes::snaps::SnapSet;
use carmine_pgtypes::{Step, object};
use carmine_reactor::Bytes;
use carmine_store::{OmapPage, OmapRange, StoreError};
use carmine_types::{ObjectId, SpgId};

/// The object that has the omap: the first in the PG's order, for its name is empty, which no client's is.
pub(in crate::pg) fn oid(pg: SpgId) -> ObjectId {
    ObjectId { shard: pg.shard, ..ObjectId::cursor(pg.pgid.pool, pg.pgid.ps) }
}

/// It is one of those objects.
pub(crate) fn is_mapper(oid: &ObjectId) -> bool {
    oid.name.is_empty()
}

/// The key that stands for clones of an object that show a snapshot.
pub(in crate::pg) fn key(snap: u64, head: &ObjectId) -> Box<[u8]> {
    let mut key = snap.to_be_bytes().to_vec();
    object::put(head, &mut Encoder::new(&mut key));
    key.into()
}

/// Adds an object for some snapshots.
pub(in crate::pg) fn add(snaps: &[u64], head: &ObjectId) -> Step {
    Step::SetOmap { entries: snaps.iter().map(|snap| (key(*snap, head), Bytes::new())).collect() }
}

/// Takes an object out for a snapshot.
pub(in crate::pg) fn remove(snap: u64, head: &ObjectId) -> Step {
    Step::RemoveOmap { keys: vec![key(snap, head)] }
}

/// The entries of an object, to be added to another copy; `None` if it has no clones.
pub(in crate::pg) fn entries(set: &SnapSet, head: &ObjectId) -> Option<Step> {
    let snaps: Vec<u64> = set.clones.iter().flat_map(|clone| clone.snaps.iter().copied()).collect();
    (!snaps.is_empty()).then(|| add(&snaps, head))
}

/// The heads of these entries, which all are of one snapshot.
///
/// # Errors
/// `Damaged`: a key is none that [`key`] gives.
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

/// The keys of a snapshot, so many at most.
pub(in crate::pg) fn range(snap: u64, max: usize) -> OmapRange {
    OmapRange { prefix: snap.to_be_bytes().to_vec(), entries_max: max, ..OmapRange::all(1 << 20) }
}
