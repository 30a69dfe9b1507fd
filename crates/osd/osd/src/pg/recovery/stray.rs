//! Copies of PGs that this OSD is no longer a member of. When their primaries say that nobody needs them, they are removed, a few
//! objects at a time.

use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::Message;
use carmine_peering::Phase;
use carmine_pgtypes::{ObjectChange, PgInfo, Step, Transaction};
use carmine_reactor::Group;
use carmine_types::{Epoch, Eversion};

use crate::error::OpError;
use crate::messages::{PgAck, PgStray};
use crate::pg::Pg;
use crate::pg::copies::own_store;
use crate::shard::OsdShard;

/// Time between two requests to a primary.
const PERIOD: Duration = Duration::from_secs(5);
/// Objects removed per transaction.
const PAGE: usize = 64;
/// Pause between two transactions.
const PAUSE: Duration = Duration::from_millis(2);

/// Handles strays of this shard as long as it runs.
pub(crate) fn start(osd: &Rc<OsdShard>) {
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Recovery, "strays", async move {
        while !own.stopping.get() {
            own.shard.sleep(PERIOD).await;
            let strays: Vec<Rc<Pg>> =
                own.pgs.borrow().values().filter(|pg| pg.is_stray_with_data()).cloned().collect();
            for pg in strays {
                let generation = pg.peer.generation();
                if pg.may_remove(&own).await {
                    pg.remove_stray(&own, generation).await;
                }
            }
        }
    });
}

impl Pg {
    fn is_stray_with_data(&self) -> bool {
        let log = self.peer.log();
        let info = log.info();
        let has_data =
            info.last_update > Eversion::ZERO || info.last_epoch_started > Epoch(0) || info.incomplete;
        *self.peer.machine().phase() == Phase::Stray && has_data
    }

    /// Asks the primary whether this copy may be removed.
    async fn may_remove(&self, osd: &Rc<OsdShard>) -> bool {
        let Some(primary) = osd.view().and_then(|view| view.acting_primary(self.id.pgid)) else {
            return false;
        };
        let stray = PgStray { head: self.head(osd), from: osd.config.id };
        let answer: Result<PgAck, _> = self.ask(osd, primary, Message::encode(&stray)).await;
        answer.is_ok_and(|ack| ack.result == 0)
    }

    async fn remove_stray(self: &Rc<Self>, osd: &Rc<OsdShard>, generation: u64) {
        let _turn = osd.walks.acquire(1).await;
        match self.remove_in_steps(osd, generation).await {
            Ok(Some(objects)) => {
                tracing::info!("pg {}: this OSD is no member any more: {objects} objects removed", self.id);
            }
            Ok(None) => tracing::info!("pg {}: this OSD may be a member again: it keeps the rest", self.id),
            Err(error) => tracing::warn!("pg {}: a copy that is not needed stays: {error}", self.id),
        }
    }

    /// Removes the objects in steps; returns their number, `None` if a new interval began, in which the rest may be needed.
    async fn remove_in_steps(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        generation: u64,
    ) -> Result<Option<usize>, OpError> {
        let is_over = || self.peer.is_past(generation) || *self.peer.machine().phase() != Phase::Stray;
        if is_over() {
            return Ok(None);
        }
        // Objects left after a crash, or in a new interval, are no usable copy.
        let give_up = |info: &mut PgInfo| {
            (info.last_epoch_started, info.incomplete) = (Epoch(0), true);
            (info.complete_to, info.last_backfill) = (Eversion::ZERO, None);
        };
        self.write_down(osd, give_up).await?;
        let mut objects = 0;
        loop {
            let page = own_store(osd).list(self.id, self.peer.bits(), None, PAGE).await?;
            let mut txn = self.peer.transaction();
            objects += page.len();
            txn.changes.extend(page.into_iter().map(|oid| ObjectChange::new(oid, [Step::Remove])));
            let _prepared = own_store(osd).prepare(&txn.changes).await?;
            if is_over() {
                return Ok(None);
            }
            if txn.changes.is_empty() {
                break;
            }
            own_store(osd).submit(txn).await?;
            osd.shard.sleep(PAUSE).await;
        }
        self.peer.forget_log();
        own_store(osd).submit(Transaction { forget_pg: true, ..self.peer.transaction() }).await?;
        Ok(Some(objects))
    }
}
