//! Objects that were unfound when their PG had to copy them before it could serve: no member had all of their blocks, and an
//! OSD that was down might. The copies are whole but for these blocks, which are marked as lost, with their checksums. Only
//! operations that need such a block wait; all others are served.
//!
//! The members write the objects down with the activation, and the PG is not clean before they are found or lost: so past
//! intervals, which tell who may have them, are remembered, and strays stay.

use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::Group;
use carmine_types::ObjectId;

use super::Pg;
use crate::pg::heal::{self, Fate, IfUnfound, Unhealed};
use crate::pg::scrub;
use crate::shard::OsdShard;

/// Objects that are written down of a PG at the most. One that has more waits until they are found.
const UNFOUND_MAX: usize = 1024;
/// Pause between two looks at whether somebody else can be asked.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks, and the same are asked again: one may not have answered.
const LOOKS: u32 = 10;
/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

impl Pg {
    /// An object is unfound, or is not any more.
    pub(in crate::pg) fn note_unfound(&self, oid: &ObjectId, is_unfound: bool) {
        let mut unfound = self.recovery.unfound.borrow_mut();
        if is_unfound {
            unfound.insert(oid.clone());
        } else if !self.log.borrow().info().unfound.contains(oid) {
            unfound.remove(oid);
        }
    }

    /// An object is copied without what is unfound of it. It is written down with the activation, here and on all members. False
    /// if there are too many of them.
    pub(in crate::pg) fn keep_unfound(&self, oid: &ObjectId) -> bool {
        let mut info = self.info();
        if !info.unfound.contains(oid) {
            if info.unfound.len() >= UNFOUND_MAX {
                return false;
            }
            info.unfound.push(oid.clone());
            self.log.borrow_mut().set_info(info);
        }
        true
    }

    /// Looks for what was unfound when the PG became active, until all of it is found or lost.
    pub(super) fn look_for_unfound(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        self.recovery.unfound.borrow_mut().extend(self.info().unfound);
        if self.recovery.unfound.borrow().is_empty() {
            return;
        }
        let search = Search { osd: Rc::clone(osd), pg: Rc::clone(self), generation: self.generation() };
        osd.shard.spawn(Group::Recovery, "unfound", async move { search.all().await });
    }
}

/// The search for a PG's unfound objects, for as long as its generation lasts.
struct Search {
    osd: Rc<OsdShard>,
    pg: Rc<Pg>,
    generation: u64,
}

impl Search {
    fn is_over(&self) -> bool {
        self.pg.is_past(self.generation) || self.osd.stopping.get()
    }

    async fn all(&self) {
        while !self.is_over() {
            let (unfound, sources) = (self.pg.info().unfound, self.pg.sources());
            if unfound.is_empty() {
                return;
            }
            // A member that lacks objects is given them first: what it is compared with is whole.
            if !self.pg.peering.borrow().recovers() {
                self.round(unfound).await;
            }
            for _ in 0..LOOKS {
                self.osd.shard.sleep(LOOK).await;
                if self.is_over() || self.pg.sources() != sources {
                    break;
                }
            }
        }
    }

    async fn round(&self, unfound: Vec<ObjectId>) {
        for oid in unfound {
            // After a split it may be another PG's.
            let is_settled = !self.pg.contains(&oid) || self.is_settled(&oid).await;
            if is_settled && !self.is_over() {
                self.forget(&oid).await;
            }
        }
    }

    /// All copies of the object are whole; or what it lacks is lost, for nobody is left who may have it.
    async fn is_settled(&self, oid: &ObjectId) -> bool {
        match self.read(oid).await {
            Ok(()) => scrub::repair_object(&self.osd, &self.pg, oid).await,
            Err(Unhealed { fate, .. }) => fate == Fate::Lost,
        }
    }

    /// Reads all of an object, which gives this copy what somebody else has of it.
    async fn read(&self, oid: &ObjectId) -> Result<(), Unhealed> {
        let unknown = |error| Unhealed { error, fate: Fate::Unknown };
        let size = self.osd.store.stat(oid).await.map_err(unknown)?.map_or(0, |meta| meta.size);
        let mut off = 0;
        while off < size && !self.is_over() {
            heal::read(&self.osd, oid, off, PIECE_BYTES.min(size - off), IfUnfound::Fail).await?;
            off += PIECE_BYTES;
        }
        Ok(())
    }

    /// Only here: another member that leads later looks for itself.
    async fn forget(&self, oid: &ObjectId) {
        let mut info = self.pg.info();
        info.unfound.retain(|unfound| unfound != oid);
        if self.pg.write_down(&self.osd, info).await.is_ok() && !self.is_over() {
            self.pg.note_unfound(oid, false);
        }
    }
}
