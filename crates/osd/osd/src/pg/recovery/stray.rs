//! Copies of PGs that this OSD is no longer a member of. Their primaries are told of them at once, as they may lack what is here; when
//! the primaries say that nobody needs them, they are removed, a few objects at a time.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::{Message, with_timeout};
use carmine_peering::Phase;
use carmine_pgtypes::{ObjectChange, PgInfo, Step, Transaction};
use carmine_reactor::Group;
use carmine_types::{Epoch, Eversion, PgId, errno};

use crate::error::OpError;
use crate::for_each::for_each;
use crate::messages::{PgAck, PgStray};
use crate::nothing::Held;
use crate::pg::Pg;
use crate::pg::copies::own_store;
use crate::shard::OsdShard;

/// Time between two requests to a primary.
const PERIOD: Duration = Duration::from_secs(5);
/// The same to one that has not seen the map yet.
const RETRY: Duration = Duration::from_millis(100);
/// Primaries that are asked at the same time.
const AT_ONCE: usize = 16;
/// Objects removed per transaction.
const PAGE: usize = 64;
/// Pause between two transactions.
const PAUSE: Duration = Duration::from_millis(2);

/// Handles strays of this shard as long as it runs.
pub(crate) fn start(osd: &Rc<OsdShard>) {
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Recovery, "strays", async move {
        let mut pause = PERIOD;
        while !own.stopping.get() {
            let _ = with_timeout(&own.shard, pause, own.stray_news.notified()).await;
            let strays: Vec<Rc<Pg>> =
                own.pgs.borrow().values().filter(|pg| pg.is_stray_with_data()).cloned().collect();
            let answers = RefCell::new(Vec::new());
            let ask = async |pg: Rc<Pg>| {
                let generation = pg.peer.generation();
                let answer = pg.ask_primary(&own).await;
                answers.borrow_mut().push((pg, generation, answer));
                Ok::<(), Infallible>(())
            };
            let Ok(()) = for_each(AT_ONCE, strays, ask).await;
            let answers = answers.into_inner();
            let is_early = answers.iter().any(|(_, _, answer)| *answer == Some(errno::ESTALE));
            pause = if is_early { RETRY } else { PERIOD };
            for (pg, generation, _) in answers.into_iter().filter(|(_, _, answer)| *answer == Some(0)) {
                pg.remove_stray(&own, generation).await;
            }
        }
    });
}

impl Pg {
    fn is_stray_with_data(&self) -> bool {
        *self.peer.machine().phase() == Phase::Stray && self.has_data()
    }

    /// Something was written to this copy, or may have been: it was active, or given objects.
    fn has_data(&self) -> bool {
        let log = self.peer.log();
        let info = log.info();
        info.last_update > Eversion::ZERO || info.last_epoch_started > Epoch(0) || info.incomplete
    }

    /// What this copy has of a PG of the same pool, which is divided into so many.
    pub(crate) fn held(&self, asked: PgId, pg_num: u32) -> Held {
        let is_it = self.id.pgid == asked;
        match self.peer.machine().phase() {
            Phase::Loading => Held::Unread,
            Phase::Failed(_) => Held::Data,
            phase if is_it && *phase != Phase::Stray => Held::Member,
            // Made with another number of PGs, it may have any object of the pool.
            _ if self.has_data() && (is_it || self.peer.log().info().pg_num != pg_num) => Held::Data,
            _ => Held::Nothing,
        }
    }

    /// Tells the primary of this copy. The answer is 0 if it may be removed; `None`: there is none.
    async fn ask_primary(&self, osd: &Rc<OsdShard>) -> Option<i32> {
        let primary = osd.view()?.acting_primary(self.id.pgid)?;
        let stray = PgStray { head: self.head(osd), from: osd.config.id };
        let answer: Result<PgAck, _> = self.ask(osd, primary, Message::encode(&stray)).await;
        Some(answer.ok()?.result)
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
        // Objects left after a crash, or in a new interval, are no usable copy, and tell nothing of what it had.
        let made = osd.epoch();
        let give_up = |info: &mut PgInfo| {
            info.made = made;
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
        self.peer.forget_log(osd.epoch());
        own_store(osd).submit(Transaction { forget_pg: true, ..self.peer.transaction() }).await?;
        Ok(Some(objects))
    }
}
