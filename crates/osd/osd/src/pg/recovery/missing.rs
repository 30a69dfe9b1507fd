//! Objects that members lack by the log. Writes to them wait until they are pushed, and an object with a waiting write is pushed
//! first.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carmine_types::{ObjectId, OsdId};
use smallvec::SmallVec;

use crate::pg::family::Family;

/// Missing objects, by head, each with the members that lack it.
#[derive(Default)]
pub(super) struct Missing {
    objects: BTreeMap<Arc<ObjectId>, Lacking>,
    /// Counts generations, so that pushes begun in an earlier one are ignored.
    generation: u64,
}

#[derive(Default)]
struct Lacking {
    members: SmallVec<[OsdId; 2]>,
    /// Snap ids of the head and clones to push, by the log.
    snaps: BTreeSet<u64>,
    is_pushed: bool,
    is_unfound: bool,
}

impl Lacking {
    fn is_next(&self) -> bool {
        !self.is_pushed && !self.is_unfound
    }
}

impl Missing {
    /// Forgets all.
    pub(super) fn start_over(&mut self) {
        *self = Missing { objects: BTreeMap::new(), generation: self.generation + 1 };
    }

    pub(super) fn add(&mut self, head: Arc<ObjectId>, clones: &[u64], member: OsdId) {
        let head_snap = head.snap;
        let lacking = self.objects.entry(head).or_default();
        lacking.snaps.insert(head_snap);
        lacking.snaps.extend(clones);
        if !lacking.members.contains(&member) {
            lacking.members.push(member);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether there is an object that is neither being pushed nor unfound.
    pub(super) fn has_next(&self) -> bool {
        self.objects.values().any(Lacking::is_next)
    }

    /// Whether objects are left and all of them are unfound.
    pub(super) fn is_unfound(&self) -> bool {
        !self.is_empty() && self.objects.values().all(|lacking| lacking.is_unfound)
    }

    /// Makes unfound objects eligible again.
    pub(super) fn look_again(&mut self) {
        self.objects.values_mut().for_each(|lacking| lacking.is_unfound = false);
    }

    /// Number of objects that this member lacks.
    pub(super) fn len_of(&self, member: OsdId) -> usize {
        self.objects.values().filter(|lacking| lacking.members.contains(&member)).count()
    }

    /// Number of objects that this member lacks, counting clones.
    pub(super) fn count_of(&self, member: OsdId) -> usize {
        let lacking = self.objects.values().filter(|lacking| lacking.members.contains(&member));
        lacking.map(|lacking| lacking.snaps.len()).sum()
    }

    /// Members that lack objects.
    pub(super) fn members(&self) -> BTreeSet<OsdId> {
        self.objects.values().flat_map(|lacking| lacking.members.iter().copied()).collect()
    }
}

/// An object that is being pushed. If this is dropped before [done](Begun::done), it may be claimed again.
pub(super) struct Begun<'a> {
    missing: &'a RefCell<Missing>,
    generation: u64,
    pub(super) family: Family,
    pub(super) members: SmallVec<[OsdId; 2]>,
}

impl<'a> Begun<'a> {
    /// Claims the next object that is neither being pushed nor unfound.
    pub(super) fn claim_next(missing: &'a RefCell<Missing>) -> Option<Begun<'a>> {
        let oid = {
            let missing = missing.borrow();
            missing.objects.iter().find(|(_, lacking)| lacking.is_next()).map(|(oid, _)| Arc::clone(oid))?
        };
        Begun::claim(missing, &oid)
    }

    /// Claims this object, if a member lacks it and it is not being pushed.
    pub(super) fn claim(missing: &'a RefCell<Missing>, oid: &ObjectId) -> Option<Begun<'a>> {
        let mut objects = missing.borrow_mut();
        let (family, members) = {
            let (head, _) = objects.objects.get_key_value(oid)?;
            let head = Arc::clone(head);
            let lacking = objects.objects.get_mut(&head).filter(|lacking| !lacking.is_pushed)?;
            lacking.is_pushed = true;
            (Family { head, members: lacking.snaps.clone() }, lacking.members.clone())
        };
        Some(Begun { missing, generation: objects.generation, family, members })
    }

    /// Marks it unfound: no member can provide it, and another OSD may.
    pub(super) fn leave_unfound(self) {
        let mut missing = self.missing.borrow_mut();
        if missing.generation == self.generation
            && let Some(lacking) = missing.objects.get_mut(&self.family.head)
        {
            lacking.is_unfound = true;
        }
    }

    /// Removes it: all members have it.
    pub(super) fn done(self) {
        let mut missing = self.missing.borrow_mut();
        if missing.generation == self.generation {
            missing.objects.remove(&self.family.head);
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut missing = self.missing.borrow_mut();
        if missing.generation != self.generation {
            return;
        }
        if let Some(lacking) = missing.objects.get_mut(&self.family.head) {
            lacking.is_pushed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> Arc<ObjectId> {
        Arc::new(ObjectId::head(1, b"", b"", name.as_bytes()))
    }

    #[test]
    fn an_object_is_pushed_by_one_at_a_time_to_all_that_lack_it() {
        let missing = RefCell::new(Missing::default());
        for (name, osd) in [("a", 1), ("b", 1), ("a", 2), ("a", 2)] {
            missing.borrow_mut().add(object(name), &[], OsdId(osd));
        }
        assert_eq!(missing.borrow().members(), BTreeSet::from([OsdId(1), OsdId(2)]));
        assert_eq!([1, 2].map(|osd| missing.borrow().len_of(OsdId(osd))), [2, 1]);
        let urgent = Begun::claim(&missing, &object("a")).unwrap();
        assert_eq!(urgent.members.as_slice(), [OsdId(1), OsdId(2)]);
        assert!(Begun::claim(&missing, &object("a")).is_none(), "it is being pushed");
        let next = Begun::claim_next(&missing).unwrap();
        assert_eq!(next.family.head, object("b"));
        assert!(Begun::claim_next(&missing).is_none());
        drop(next);
        urgent.done();
        assert!(Begun::claim(&missing, &object("a")).is_none());
        Begun::claim_next(&missing).expect("the push of b was given up").done();
        assert!(missing.borrow().is_empty());
    }
}
