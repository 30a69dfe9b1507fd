//! The replica's side of a recovery, and the primary's answer to strays.

use std::rc::Rc;

use carmine_messenger::Message;
use carmine_peering::{Event, Order, Phase};
use carmine_pgtypes::PgInfo;
use carmine_types::{Eversion, errno};

use super::backfill::PAGE;
use super::reserve;
use crate::error::{OpError, refuse_if};
use crate::messages::{
    PgBackfillDigest, PgBackfillProgress, PgBackfillScan, PgReserve, PgStray, Reserve, VersionOf,
};
use crate::pg::Pg;
use crate::pg::copies::own_store;
use crate::shard::OsdShard;

impl Pg {
    /// Lists this copy's objects for a backfill's comparison.
    pub(crate) async fn answer_backfill_scan(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        scan: PgBackfillScan,
    ) -> Message {
        let PgBackfillScan { head, from } = scan;
        let page = async {
            let (generation, _) = self.take_order(osd, head, Order::Push)?;
            let page = self.versions_from(osd, &from, PAGE).await?;
            self.carried_out(osd, generation, false)?;
            Ok::<_, OpError>(page)
        };
        Message::encode(&match page.await {
            Ok((objects, next)) => {
                let objects = objects.into_iter().map(|(oid, version)| VersionOf { oid, version });
                PgBackfillDigest { head, result: 0, objects: objects.collect(), next }
            }
            Err(error) => PgBackfillDigest { head, result: error.report(), objects: Vec::new(), next: None },
        })
    }

    /// Stores how far this copy is complete.
    pub(crate) async fn answer_progress(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        progress: PgBackfillProgress,
    ) -> Message {
        let PgBackfillProgress { head, complete_to, last_backfill } = progress;
        let result = async {
            let (generation, _) = self.take_order(osd, head, Order::Push)?;
            refuse_if(complete_to > self.peer.last_update() || complete_to == Eversion::ZERO, errno::EINVAL)?;
            let info = self.peer.info();
            let goes_back = info.last_backfill.as_ref().is_none_or(|last| last_backfill < *last);
            refuse_if(goes_back || complete_to < info.complete_to, errno::EINVAL)?;
            let advance = |info: &mut PgInfo| {
                (info.complete_to, info.last_backfill) = (complete_to, Some(last_backfill));
            };
            self.write_down(osd, advance).await?;
            self.carried_out(osd, generation, false)?;
            if is_backfillfull(osd) { Err(OpError::new(errno::ENOSPC)) } else { Ok(()) }
        };
        Pg::ack(head, result.await)
    }

    /// Reserves a recovery slot for the primary, or releases it.
    pub(crate) async fn answer_reserve(self: &Rc<Self>, osd: &Rc<OsdShard>, order: PgReserve) -> Message {
        let PgReserve { head, want } = order;
        let result = async {
            let (generation, _) = self.take_order(osd, head, Order::Push)?;
            if want == Reserve::Release {
                self.recovery.granted.take();
                return Ok(());
            }
            refuse_if(want == Reserve::Backfill && is_backfillfull(osd), errno::ENOSPC)?;
            if self.recovery.granted.borrow().is_some() {
                return Ok(()); // a repeated request whose answer was lost
            }
            let place = reserve::remote(osd).await.ok_or(OpError::new(errno::EBUSY))?;
            self.carried_out(osd, generation, false)?;
            self.recovery.granted.replace(Some(place));
            Ok(())
        };
        Pg::ack(head, result.await)
    }

    /// Releases the slot: the recovery has ended.
    pub(in crate::pg) fn recovery_ends(&self) {
        self.recovery.granted.take();
    }

    /// Answers an OSD that has a copy and is no member: a primary that is not active asks it. The copy may be removed when all members
    /// are complete; ESTALE: the map by which this OSD leads is yet to come.
    pub(crate) fn answer_stray(self: &Rc<Self>, osd: &Rc<OsdShard>, stray: PgStray) -> Message {
        let PgStray { head, from } = stray;
        if head.epoch > osd.epoch() || *self.peer.machine().phase() == Phase::Loading {
            return Pg::ack(head, Err(OpError::new(errno::ESTALE)));
        }
        self.on(osd, Event::StrayFound(from));
        let may_go = self.peer.is_clean() && !self.peer.machine().is_needed(from);
        Pg::ack(head, if may_go { Ok(()) } else { Err(OpError::new(errno::EAGAIN)) })
    }
}

/// Whether the store is too full for backfills.
fn is_backfillfull(osd: &OsdShard) -> bool {
    let space = own_store(osd).statfs();
    let ratio = osd.view().map_or(0.0, |view| view.map().backfillfull_ratio);
    ratio > 0.0 && space.used as f64 > space.total as f64 * f64::from(ratio)
}
