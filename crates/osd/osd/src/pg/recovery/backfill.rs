//! The backfill of one copy, on the primary: objects are compared by version, a page at a time, and those that differ are copied.
//! After each page the target stores its progress.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use carmine_messenger::Message;
use carmine_peering::{Recovery, Trouble};
use carmine_store::StoreError;
use carmine_types::{Errno, Eversion, ObjectId, OsdId, errno};

use super::Target;
use super::push::{Repair, Stop};
use super::run::{End, Part, Run, Turn};
use crate::for_each::for_each;
use crate::messages::{PgBackfillDigest, PgBackfillProgress, PgBackfillScan, Reserve};
use crate::pg::copies::{Window, own_store};
use crate::pg::{Pg, family};
use crate::shard::OsdShard;

/// Objects compared at a time.
pub(super) const PAGE: usize = 256;

/// Objects that differ in a range, and the object after that range.
pub(in crate::pg) type Differing = (Vec<ObjectId>, Option<ObjectId>);

impl Run {
    /// Makes a member's copy equal, from its window's position on.
    pub(super) async fn backfill(&self, target: &Target) -> Result<(), End> {
        let Some(window) = &target.window else { return Ok(()) };
        loop {
            self.wait_until_allowed(Reserve::Backfill).await?;
            let places = self.reserve(Reserve::Backfill, vec![target.osd]).await?;
            let part = match places {
                None => Part::Full,
                Some(places) => {
                    self.set(Recovery::Backfilling);
                    let part = self.pages(target.osd, window).await?;
                    if part != Part::Done {
                        self.give_back(places).await?;
                    }
                    part
                }
            };
            match part {
                Part::Done => return Ok(()),
                Part::Forbidden => {}
                Part::Full => self.pause(Recovery::BackfillToofull).await?,
                Part::Unfound => self.pause(Recovery::BackfillUnfound).await?,
                Part::Busy => self.pause(Recovery::BackfillWait).await?,
            }
        }
    }

    async fn pages(&self, to: OsdId, window: &Rc<Window>) -> Result<Part, End> {
        let repair = self.repair_for(to);
        while !window.is_done() {
            let from = window.begin();
            let (differ, until) = self.of_compared(to, repair.differing_from(&from).await)?;
            window.set_differing(differ, until);
            let part = self.copy_differing(&repair, window).await?;
            // Without a suspension since the last check for differences.
            let Ok(next) = window.end_comparison() else { return Ok(part) };
            let complete_to = self.pg.peer.log().version_of(self.pg.copies.backend().committed());
            // Without a committed log entry there is no version to record for the copy.
            if let Some(last_backfill) = next
                && complete_to > Eversion::ZERO
                && !self.progress(to, complete_to, last_backfill).await?
            {
                return Ok(Part::Full);
            }
        }
        Ok(Part::Done)
    }

    fn of_compared(&self, to: OsdId, compared: Result<Differing, Stop>) -> Result<Differing, End> {
        self.current()?;
        match compared {
            Ok(compared) => Ok(compared),
            Err(Stop::Superseded) => Err(End::Superseded),
            Err(Stop::Failed(trouble)) => Err(End::Failed(to, trouble)),
        }
    }

    async fn copy_differing(&self, repair: &Repair, window: &Rc<Window>) -> Result<Part, End> {
        let (part, is_busy) = (Cell::new(Part::Done), Cell::new(false));
        let goes_on = || {
            if self.is_paused_by_flags(Reserve::Backfill) {
                part.set(Part::Forbidden);
            }
            part.get() == Part::Done && self.current().is_ok() && window.has_next()
        };
        // Copies in flight are not dropped when the target is full, because they might arrive later.
        for_each(self.max_active(), std::iter::from_fn(|| goes_on().then_some(())), async |()| {
            let turn = self.turn().await;
            let Some(head) = goes_on().then(|| window.choose()).flatten() else { return Ok(()) };
            self.pg.ops.pipeline().hold(std::slice::from_ref(&head));
            match self.copy_held(repair, window, &head, turn).await? {
                Part::Done => {}
                Part::Busy => is_busy.set(true),
                copied => part.set(copied),
            }
            Ok(())
        })
        .await?;
        self.current()?;
        Ok(if part.get() == Part::Done && is_busy.get() { Part::Busy } else { part.get() })
    }

    async fn copy_held(
        &self,
        repair: &Repair,
        window: &Window,
        head: &Arc<ObjectId>,
        mut turn: Turn,
    ) -> Result<Part, End> {
        // Limited, because others wait for its turn meanwhile.
        let Ok(is_quiet) = repair.is_soon_quiet(head).await else { return Err(End::Superseded) };
        if !is_quiet {
            window.postpone(head);
            self.release(head);
            return Ok(if self.pg.has_unfound(head) { Part::Unfound } else { Part::Busy });
        }
        // No write to it is in flight when the target begins to get its changes.
        let family = window.pass(head);
        let copied = repair.push_family(&family, Some(&mut turn)).await;
        drop(turn);
        let copied = self.classify(repair.to, copied)?;
        self.current()?;
        if copied.is_err() {
            window.requeue(family);
        }
        self.release(head);
        let bytes = match copied {
            Ok(bytes) => bytes,
            Err(part) => return Ok(part),
        };
        self.osd.recovery_pace.throttle(&self.osd.shard, bytes).await;
        Ok(Part::Done)
    }

    /// Lets the target store how far its copy is complete; false if it is too full to continue.
    async fn progress(&self, to: OsdId, complete_to: Eversion, last_backfill: ObjectId) -> Result<bool, End> {
        let order = PgBackfillProgress { head: self.pg.head(&self.osd), complete_to, last_backfill };
        let done = self.pg.order(&self.osd, to, Message::encode(&order)).await;
        self.current()?;
        match done {
            Ok(()) => Ok(true),
            Err(Trouble::Refused(Errno(errno::ENOSPC))) => Ok(false),
            Err(trouble) => Err(End::Failed(to, trouble)),
        }
    }
}

impl Repair {
    /// Compares a page of objects, from this one on.
    pub(in crate::pg) async fn differing_from(&self, from: &ObjectId) -> Result<Differing, Stop> {
        self.current()?;
        let scan = PgBackfillScan { head: self.pg.head(&self.osd), from: from.clone() };
        let answer = self.pg.ask(&self.osd, self.to, Message::encode(&scan)).await;
        let PgBackfillDigest { result, objects, next, .. } = answer.map_err(Stop::Failed)?;
        match result {
            0 => {}
            errno => return Err(Stop::Failed(Trouble::Refused(Errno(errno)))),
        }
        let ours = self.pg.versions_from(&self.osd, from, PAGE).await.map_err(|error| self.stuck(&error))?;
        self.current()?;
        let is_ours = |oid: &ObjectId| self.pg.peer.contains(oid);
        if objects.iter().any(|object| !is_ours(&object.oid)) || next.iter().any(|next| next <= from) {
            return Err(Stop::Failed(Trouble::BadAnswer));
        }
        let theirs = objects.into_iter().map(|object| (object.oid, object.version)).collect();
        Ok(differing(ours, (theirs, next)))
    }
}

type Page = (BTreeMap<ObjectId, Eversion>, Option<ObjectId>);

/// The differences in the range that both pages cover.
fn differing((ours, our_next): Page, (theirs, their_next): Page) -> Differing {
    let until = match (our_next, their_next) {
        (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
        (ours, theirs) => ours.or(theirs),
    };
    // An object without a version is incomplete.
    let is_equal = |oid: &ObjectId| {
        let version = ours.get(oid).filter(|version| **version != Eversion::ZERO);
        version.is_some() && version == theirs.get(oid)
    };
    let mut all: BTreeSet<ObjectId> = ours.keys().chain(theirs.keys()).cloned().collect();
    all.retain(|oid| until.as_ref().is_none_or(|until| oid < until) && !is_equal(oid));
    (all.into_iter().collect(), until)
}

impl Pg {
    /// The objects of this copy from this one on with their versions, at most `limit` but only whole families, and the position
    /// after them.
    pub(super) async fn versions_from(
        &self,
        osd: &OsdShard,
        from: &ObjectId,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let (page, next) = self.families_from(osd, from, limit).await?;
        let mut versions = BTreeMap::new();
        for oid in page.into_iter().filter(|oid| !family::mapper::is_mapper(oid)) {
            if let Some(meta) = own_store(osd).stat(&oid).await? {
                versions.insert(oid, meta.version);
            }
        }
        Ok((versions, next))
    }

    /// The objects from this one on: as many whole families as fit into the limit, at least one.
    async fn families_from(
        &self,
        osd: &OsdShard,
        from: &ObjectId,
        mut limit: usize,
    ) -> Result<(Vec<ObjectId>, Option<ObjectId>), StoreError> {
        loop {
            let mut page = own_store(osd).list(self.id, self.peer.bits(), Some(from), limit + 1).await?;
            let Some(behind) = page.get(limit) else { return Ok((page, None)) };
            // The position before the first object of its family: clones sort before their head.
            let next = family::clone_of(behind, 0);
            let is_before = |oid: &ObjectId| *oid < next;
            if page.first().is_some_and(is_before) {
                page.retain(is_before);
                return Ok((page, Some(next)));
            }
            limit *= 2; // an object with that many clones
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(n: u8) -> ObjectId {
        ObjectId { name: [n].into(), ..ObjectId::cursor(1, 0) }
    }

    fn page(versions: &[(u8, u64)], next: Option<u8>) -> Page {
        let versions = versions.iter().map(|(n, version)| (object(*n), Eversion::new(1, *version)));
        (versions.collect(), next.map(object))
    }

    #[test]
    fn copies_are_compared_as_far_as_both_pages_go() {
        let ours = page(&[(1, 5), (2, 6), (4, 7), (5, 9)], Some(6));
        let theirs = page(&[(1, 5), (2, 3), (3, 1), (5, 8)], Some(5));
        assert_eq!(differing(ours, theirs), ([2, 3, 4].map(object).to_vec(), Some(object(5))));
        let unversioned = (BTreeMap::from([(object(1), Eversion::ZERO)]), None);
        let (all, until) = differing(unversioned.clone(), unversioned);
        assert_eq!((all, until), (vec![object(1)], None), "an object that is not whole is copied");
    }
}
