//! The number of a PG's objects and bytes, as its primary knows it.
//!
//! Objects that exist when this OSD begins to lead are counted in the background, in order; writes are counted as they are
//! submitted. A write of an object that the count has not reached counts that object at once, and the count skips it later.

use std::collections::BTreeSet;
use std::rc::Rc;

use carmine_reactor::Group;
use carmine_store::StoreError;
use carmine_types::{ObjectId, SNAP_HEAD};

use super::snaps::CloneChange;
use crate::pg::{Pg, family};
use crate::shard::OsdShard;

/// Objects listed at a time.
const PAGE: usize = 256;

/// Objects of a PG and the sum of their sizes.
#[derive(Default)]
pub(crate) struct Usage {
    objects: u64,
    /// How many objects are clones.
    clones: u64,
    bytes: u64,
    state: Count,
    /// Number of the last count that began.
    number: u64,
}

#[derive(Default)]
enum Count {
    #[default]
    Unknown,
    Counting(Walk),
    Known,
}

/// A count under way.
#[derive(Default)]
struct Walk {
    /// Everything up to here is counted.
    to: Option<ObjectId>,
    /// Objects after that which are counted already.
    ahead: BTreeSet<ObjectId>,
}

impl Usage {
    /// Objects, the clones among them, and bytes.
    pub(in crate::pg) fn totals(&self) -> (u64, u64, u64) {
        (self.objects, self.clones, self.bytes)
    }

    /// Whether all objects are counted.
    pub(in crate::pg) fn is_known(&self) -> bool {
        matches!(self.state, Count::Known)
    }

    /// Counts a submitted write: the object's size before and after it; `None`: it does not exist.
    pub(in crate::pg) fn change(&mut self, oid: &ObjectId, before: Option<u64>, after: Option<u64>) {
        let is_counted = match &mut self.state {
            Count::Unknown => return,
            Count::Known => true,
            Count::Counting(walk) => {
                walk.to.as_ref().is_some_and(|to| oid <= to) || !walk.ahead.insert(oid.clone())
            }
        };
        if is_counted {
            let (objects, clones) = counted(oid, before);
            self.objects = self.objects.saturating_sub(objects);
            self.clones = self.clones.saturating_sub(clones);
            self.bytes = self.bytes.saturating_sub(before.unwrap_or(0));
        }
        self.add(oid, after);
    }

    fn add(&mut self, oid: &ObjectId, size: Option<u64>) {
        let (objects, clones) = counted(oid, size);
        (self.objects, self.clones) = (self.objects + objects, self.clones + clones);
        self.bytes = self.bytes.saturating_add(size.unwrap_or(0));
    }

    /// Forgets everything: another OSD leads.
    pub(in crate::pg) fn reset(&mut self) {
        *self = Usage { number: self.number, ..Usage::default() };
    }

    /// Begins a count if there is none yet; returns its number.
    fn begin(&mut self) -> Option<u64> {
        if !matches!(self.state, Count::Unknown) {
            return None;
        }
        self.number += 1;
        self.state = Count::Counting(Walk::default());
        Some(self.number)
    }

    /// The count with this number failed.
    fn give_up(&mut self, number: u64) {
        if self.walk(number).is_some() {
            self.reset();
        }
    }

    /// The count with this number, if it is still current.
    fn walk(&mut self, number: u64) -> Option<&mut Walk> {
        match &mut self.state {
            Count::Counting(walk) if self.number == number => Some(walk),
            _ => None,
        }
    }

    /// The count has reached this object.
    fn found(&mut self, number: u64, oid: ObjectId, size: Option<u64>) {
        let Some(walk) = self.walk(number) else { return };
        let is_new = !walk.ahead.remove(&oid);
        walk.to = Some(oid.clone());
        if is_new {
            self.add(&oid, size);
        }
    }
}

/// How many objects, and clones, an object of this size counts for.
fn counted(oid: &ObjectId, size: Option<u64>) -> (u64, u64) {
    let is_there = u64::from(size.is_some());
    (is_there, if oid.snap == SNAP_HEAD { 0 } else { is_there })
}

impl Pg {
    /// Counts a write's changes of an object's clones.
    pub(in crate::pg) fn count_clones(&self, head: &ObjectId, clones: &[CloneChange]) {
        let mut usage = self.ops.usage.borrow_mut();
        for clone in clones {
            usage.change(&family::clone_of(head, clone.id), clone.before, clone.after);
        }
    }

    /// Counts the existing objects, unless they are counted.
    pub(in crate::pg) fn count_objects(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let begun = self.ops.usage.borrow_mut().begin();
        let Some(number) = begun else { return };
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Scrub, "pg-count", async move {
            let _turn = own.walks.acquire(1).await;
            if let Err(error) = pg.count(&own, number).await {
                tracing::warn!("pg {}: its objects cannot be counted: {error}", pg.id);
                pg.ops.usage.borrow_mut().give_up(number);
            }
        });
    }

    async fn count(&self, osd: &OsdShard, number: u64) -> Result<(), StoreError> {
        let (objects, mut from) = (self.objects(osd), None::<ObjectId>);
        loop {
            let page = objects.list(from.as_ref(), PAGE + 1).await?;
            let next = page.get(PAGE).cloned();
            for oid in page.into_iter().take(PAGE).filter(|oid| !family::mapper::is_mapper(oid)) {
                let size = objects.stat(&oid).await?.map(|meta| meta.size);
                self.ops.usage.borrow_mut().found(number, oid, size);
            }
            let mut usage = self.ops.usage.borrow_mut();
            match next {
                _ if usage.walk(number).is_none() => return Ok(()),
                Some(next) => from = Some(next),
                None => {
                    usage.state = Count::Known;
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn oid(n: u8) -> ObjectId {
        ObjectId::head(1, b"", b"", &[n])
    }

    proptest! {
        /// Whatever is written during the count, and however stale its pages are, the result is right.
        #[test]
        fn counts_what_is_there(first in prop::collection::btree_map(0..20u8, 1..9u64, 0..15),
                                writes in prop::collection::vec((0..20u8, prop::option::of(1..9u64)), 0..60),
                                pace in 1..4usize, page in 1..5usize) {
            let mut objects: std::collections::BTreeMap<ObjectId, u64> =
                first.into_iter().map(|(n, size)| (oid(n), size)).collect();
            let (mut usage, mut writes) = (Usage::default(), writes.into_iter());
            let number = usage.begin().unwrap();
            let mut from: Option<ObjectId> = None;
            let mut write = |usage: &mut Usage, objects: &mut std::collections::BTreeMap<ObjectId, u64>| {
                for (n, after) in writes.by_ref().take(pace) {
                    let before = objects.remove(&oid(n));
                    objects.extend(after.map(|size| (oid(n), size)));
                    usage.change(&oid(n), before, after);
                }
            };
            loop {
                let rest = objects.keys().filter(|oid| from.as_ref().is_none_or(|from| *oid >= from));
                let listed: Vec<ObjectId> = rest.take(page + 1).cloned().collect();
                write(&mut usage, &mut objects);
                for oid in listed.iter().take(page) {
                    usage.found(number, oid.clone(), objects.get(oid).copied());
                    write(&mut usage, &mut objects);
                }
                match listed.into_iter().nth(page) {
                    Some(next) => from = Some(next),
                    None => break,
                }
            }
            usage.state = Count::Known;
            write(&mut usage, &mut objects);
            prop_assert_eq!(usage.objects, objects.len() as u64);
            prop_assert_eq!(usage.bytes, objects.values().sum::<u64>());
        }
    }

    #[test]
    fn a_new_primary_counts_anew() {
        let mut usage = Usage::default();
        let old = usage.begin().unwrap();
        usage.found(old, oid(1), Some(5));
        usage.reset();
        usage.change(&oid(2), None, Some(1));
        let new = usage.begin().unwrap();
        usage.found(old, oid(1), Some(5));
        assert_eq!((usage.objects, usage.bytes), (0, 0));
        usage.found(new, oid(1), Some(5));
        assert_eq!((usage.objects, usage.bytes), (1, 5));
        assert_eq!(usage.begin(), None);
    }
}
