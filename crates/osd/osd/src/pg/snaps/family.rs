//! An object with its clones: what a recovery copies together, while writes of the head wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carmine_types::ObjectId;

use super::{clone_of, head_of};

/// Objects to copy: by their heads, in the PG's order, the snap ids of those of the family that are meant.
pub(in crate::pg) type Families = BTreeMap<Arc<ObjectId>, BTreeSet<u64>>;

/// One of them.
#[derive(Clone, Debug)]
pub(in crate::pg) struct Family {
    pub head: Arc<ObjectId>,
    pub members: BTreeSet<u64>,
}

impl Family {
    /// The objects that are meant.
    pub(in crate::pg) fn objects(&self) -> impl Iterator<Item = Arc<ObjectId>> + '_ {
        self.members.iter().map(|snap| Arc::new(clone_of(&self.head, *snap)))
    }
}

impl From<(Arc<ObjectId>, BTreeSet<u64>)> for Family {
    fn from((head, members): (Arc<ObjectId>, BTreeSet<u64>)) -> Family {
        Family { head, members }
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

/// The place before the first object of a family: clones stand before their head.
pub(in crate::pg) fn family_begin(oid: &ObjectId) -> ObjectId {
    clone_of(oid, 0)
}
