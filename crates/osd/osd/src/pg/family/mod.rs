//! A family: an object and its clones. This module names them, reads the list of clones from the head's xattr, and groups objects by
//! family, as a recovery copies them. `mapper` holds the keys of the omap that lists, for each snapshot, the objects with clones.

pub(crate) mod mapper;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carmine_pgtypes::ObjectMeta;
use carmine_pgtypes::snaps::{SNAPSET, SnapSet, SnapSummary};
use carmine_types::{ObjectId, SNAP_HEAD, errno};

use crate::error::OpError;

/// The clones of an object, by its head; `None` if it was never written under a snapshot.
///
/// # Errors
/// EIO if the stored value cannot be decoded.
pub(in crate::pg) fn set_of(head: &ObjectMeta) -> Result<Option<SnapSet>, OpError> {
    let stored = head.xattrs.get(SNAPSET).map(|bytes| SnapSet::decode(bytes));
    stored.transpose().map_err(|error| OpError::because(errno::EIO, error))
}

/// The same, without the older clones.
///
/// # Errors
/// As [`set_of`].
pub(in crate::pg) fn summary_of(head: &ObjectMeta) -> Result<Option<SnapSummary>, OpError> {
    let stored = head.xattrs.get(SNAPSET).map(|bytes| SnapSummary::decode(bytes));
    stored.transpose().map_err(|error| OpError::because(errno::EIO, error))
}

/// The head as clients see it: a whiteout is no object.
///
/// # Errors
/// As [`set_of`].
pub(in crate::pg) fn visible_head(head: Option<ObjectMeta>) -> Result<Option<ObjectMeta>, OpError> {
    let Some(meta) = head else { return Ok(None) };
    let is_whiteout = summary_of(&meta)?.is_some_and(|set| set.is_whiteout);
    Ok((!is_whiteout).then_some(meta))
}

/// The head of the object that this is a clone of, or itself.
pub(in crate::pg) fn head_of(oid: &ObjectId) -> ObjectId {
    clone_of(oid, SNAP_HEAD)
}

/// A clone of the object.
pub(in crate::pg) fn clone_of(oid: &ObjectId, id: u64) -> ObjectId {
    ObjectId { snap: id, ..oid.clone() }
}

/// Whether both are the same object, at any snapshots.
pub(in crate::pg) fn is_same_head(a: &ObjectId, b: &ObjectId) -> bool {
    a.snap == b.snap && a == b || (a.hash == b.hash && a.name == b.name && head_of(a) == head_of(b))
}

/// Objects to copy: by head, in the PG's order, the snap ids of the family's members to copy.
pub(in crate::pg) type Families = BTreeMap<Arc<ObjectId>, BTreeSet<u64>>;

/// A head, and the members of its family to copy.
#[derive(Clone, Debug)]
pub(in crate::pg) struct Family {
    pub head: Arc<ObjectId>,
    pub members: BTreeSet<u64>,
}

impl Family {
    /// The objects to copy.
    pub(in crate::pg) fn objects(&self) -> impl Iterator<Item = Arc<ObjectId>> + '_ {
        self.members.iter().map(|snap| Arc::new(clone_of(&self.head, *snap)))
    }
}

/// Adds an object to its family.
pub(in crate::pg) fn add(families: &mut Families, oid: &ObjectId) {
    families.entry(Arc::new(head_of(oid))).or_default().insert(oid.snap);
}

/// The families of these objects.
pub(in crate::pg) fn families<'a>(objects: impl IntoIterator<Item = &'a ObjectId>) -> Families {
    let mut families = Families::new();
    objects.into_iter().for_each(|oid| add(&mut families, oid));
    families
}
