//! Unfound objects: no member has all of their blocks, and an OSD that is down may. Only operations that need such a block
//! wait; all others are served, and the primary looks for it.
//!
//! Beside clients a recovery leaves such an object out. If the PG has to copy it before it can serve, the copy is made
//! without the block, which is marked as lost there, with its checksum. Then the members write the object down with the activation,
//! and the PG is not clean before it is found or lost: so past intervals, which tell who may have it, are remembered, and
//! strays stay.

use std::rc::Rc;
use std::time::Duration;

use carmine_pgtypes::PgInfo;
use carmine_reactor::Group;
use carmine_types::ObjectId;

use crate::pg::copies::{Fate, IfUnfound, Unhealed};
use crate::pg::{Pg, family, scrub};
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
    pub(in crate::pg) fn note_unfound(&self, osd: &OsdShard, oid: &ObjectId, is_unfound: bool) {
        if is_unfound {
            self.recovery.unfound.borrow_mut().insert(oid.clone());
            self.look_for_unfound(osd);
        } else if !self.peer.log().info().unfound.contains(oid) {
            self.recovery.unfound.borrow_mut().remove(oid);
        }
    }

    /// An object is copied without what is unfound of it. It is written down with the activation, here and on all members. False
    /// if there are too many of them.
    pub(in crate::pg) fn record_unfound(&self, oid: &ObjectId) -> bool {
        let info = self.peer.info();
        let is_known = info.unfound.contains(oid);
        let has_room = info.unfound.len() < UNFOUND_MAX;
        if !is_known && has_room {
            self.peer.change_info(|info| info.unfound.push(oid.clone()));
        }
        is_known || has_room
    }

    /// The object, or a clone of it, is unfound: its writes may wait for long.
    pub(in crate::pg) fn has_unfound(&self, head: &ObjectId) -> bool {
        self.recovery.unfound.borrow().iter().any(|oid| family::is_same_head(head, oid))
    }

    /// Looks for what is unfound until all of it is found or lost.
    pub(super) fn look_for_unfound(&self, osd: &OsdShard) {
        self.recovery.unfound.borrow_mut().extend(self.peer.info().unfound);
        let is_idle = self.recovery.unfound.borrow().is_empty() || self.recovery.is_searching.get();
        let Some(osd) = OsdShard::of(&osd.shard).filter(|_| !is_idle) else { return };
        let Some(pg) = osd.pg(self.id) else { return };
        self.recovery.is_searching.set(true);
        let shard = osd.shard.clone();
        let search = Search { osd, pg, generation: self.peer.generation() };
        shard.spawn(Group::Recovery, "unfound", async move { search.all().await });
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
        self.pg.peer.is_past(self.generation) || self.osd.stopping.get()
    }

    async fn all(&self) {
        let mut looks = 1;
        loop {
            let sources = self.pg.sources();
            for _ in 0..std::mem::replace(&mut looks, LOOKS) {
                self.osd.shard.sleep(LOOK).await;
                if self.is_over() {
                    return;
                }
                if self.pg.sources() != sources {
                    break;
                }
            }
            let unfound = self.pg.unfound();
            if unfound.is_empty() {
                return self.pg.recovery.is_searching.set(false);
            }
            // A member that lacks objects is given them first: what it is compared with is whole.
            if !self.pg.peer.machine().recovers() {
                self.round(unfound).await;
            }
        }
    }

    async fn round(&self, unfound: Vec<ObjectId>) {
        for oid in unfound {
            // After a split it may be another PG's.
            let is_settled = !self.pg.peer.contains(&oid) || self.is_settled(&oid).await;
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
        let objects = self.pg.objects(&self.osd);
        let size = objects.stat(oid).await.map_err(unknown)?.map_or(0, |meta| meta.size);
        let mut off = 0;
        while off < size && !self.is_over() {
            objects.read(oid, off, PIECE_BYTES.min(size - off), IfUnfound::Fail).await?;
            off += PIECE_BYTES;
        }
        Ok(())
    }

    /// Only here: another member that leads later looks for itself.
    async fn forget(&self, oid: &ObjectId) {
        let is_noted = self.pg.peer.info().unfound.contains(oid);
        let forget = |info: &mut PgInfo| info.unfound.retain(|unfound| unfound != oid);
        let is_forgotten = !is_noted || self.pg.write_down(&self.osd, forget).await.is_ok();
        if is_forgotten && !self.is_over() {
            self.pg.note_unfound(&self.osd, oid, false);
        }
    }
}
