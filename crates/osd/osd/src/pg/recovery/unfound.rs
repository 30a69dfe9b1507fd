//! Unfound objects: no member has all of their blocks, and an OSD that is down may. Only operations that need such a block wait;
//! all others are served, and the primary searches for it.
//!
//! While clients are served, recovery skips such an object. If the PG has to copy it before it can serve, the copy is made
//! without the block, which is marked as lost there, with its checksum. The members then record the object at activation, and the
//! PG is not clean until it is found or lost: so past intervals, which say who may have it, are kept, and strays stay.

use std::rc::Rc;
use std::time::Duration;

use carmine_pgtypes::PgInfo;
use carmine_reactor::Group;
use carmine_types::ObjectId;

use crate::pg::copies::{Fate, IfUnfound, Unhealed};
use crate::pg::{Pg, family, scrub};
use crate::shard::OsdShard;

/// Most unfound objects recorded for a PG. A PG with more waits until they are found.
const UNFOUND_MAX: usize = 1024;
/// Pause between two checks for other OSDs to ask.
const LOOK: Duration = Duration::from_secs(1);
/// After this many checks the same OSDs are asked again: one may not have answered.
const LOOKS: u32 = 10;
/// Bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;

impl Pg {
    /// Notes that an object is unfound, or no longer is.
    pub(in crate::pg) fn note_unfound(&self, osd: &OsdShard, oid: &ObjectId, is_unfound: bool) {
        if is_unfound {
            self.recovery.unfound.borrow_mut().insert(oid.clone());
            self.look_for_unfound(osd);
        } else if !self.peer.log().info().unfound.contains(oid) {
            self.recovery.unfound.borrow_mut().remove(oid);
        }
    }

    /// Records an object that is copied without its unfound blocks: all members store that at activation. False if there are too
    /// many.
    pub(in crate::pg) fn record_unfound(&self, oid: &ObjectId) -> bool {
        let info = self.peer.info();
        let is_known = info.unfound.contains(oid);
        let has_room = info.unfound.len() < UNFOUND_MAX;
        if !is_known && has_room {
            self.peer.change_info(|info| info.unfound.push(oid.clone()));
        }
        is_known || has_room
    }

    /// Whether the object, or a clone of it, is unfound: its writes may wait long.
    pub(in crate::pg) fn has_unfound(&self, head: &ObjectId) -> bool {
        self.recovery.unfound.borrow().iter().any(|oid| family::is_same_head(head, oid))
    }

    /// Searches for unfound objects until all are found or lost.
    pub(super) fn look_for_unfound(&self, osd: &OsdShard) {
        self.recovery.unfound.borrow_mut().extend(self.peer.info().unfound);
        let is_idle = self.recovery.unfound.borrow().is_empty() || self.recovery.is_searching.get();
        let Some(osd) = OsdShard::on(&osd.shard).filter(|_| !is_idle) else { return };
        let Some(pg) = osd.pg(self.id) else { return };
        self.recovery.is_searching.set(true);
        let shard = osd.shard.clone();
        let search = Search { osd, pg, generation: self.peer.generation() };
        shard.spawn(Group::Recovery, "unfound", async move { search.all().await });
    }
}

/// The search for a PG's unfound objects, as long as its generation lasts.
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
            let unfound = self.pg.recovery.unfound();
            if unfound.is_empty() {
                return self.pg.recovery.is_searching.set(false);
            }
            // Members that lack objects get them first: comparisons need whole copies.
            if !self.pg.peer.machine().recovers() {
                self.round(unfound).await;
            }
        }
    }

    async fn round(&self, unfound: Vec<ObjectId>) {
        for oid in unfound {
            // After a split it may belong to another PG.
            let is_settled = !self.pg.peer.contains(&oid) || self.is_settled(&oid).await;
            if is_settled && !self.is_over() {
                self.forget(&oid).await;
            }
        }
    }

    /// Whether all copies of the object are whole, or what they lack is lost, since no OSD is left that may have it.
    async fn is_settled(&self, oid: &ObjectId) -> bool {
        match self.read(oid).await {
            Ok(()) => scrub::repair_object(&self.osd, &self.pg, oid).await,
            Err(Unhealed { fate, .. }) => fate == Fate::Lost,
        }
    }

    /// Reads all of an object, which heals this copy with blocks that others have.
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

    /// Removes the record, only here: another member that leads later searches for itself.
    async fn forget(&self, oid: &ObjectId) {
        let is_noted = self.pg.peer.info().unfound.contains(oid);
        let forget = |info: &mut PgInfo| info.unfound.retain(|unfound| unfound != oid);
        let is_forgotten = !is_noted || self.pg.write_down(&self.osd, forget).await.is_ok();
        if is_forgotten && !self.is_over() {
            self.pg.note_unfound(&self.osd, oid, false);
        }
    }
}
