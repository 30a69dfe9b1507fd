//! Makes all copies of a PG equal at the start of an interval, and then lets clients in. Runs on the primary.
//!
//! Every acknowledged write is in the log of every member, so the primary's log wins: what a replica has beyond the
//! common part is undone, and objects that differ since are copied whole. A primary that has seen less than a replica
//! (it lost its store) changes nothing and says so.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::Message;
use carmine_reactor::{Group, Payload};
use carmine_store::Transaction;
use carmine_types::{Epoch, Eversion, ObjectId, OsdId, errno};
use carmine_wire::header::Front;
use carmine_wire::private::rep::{Head, PgAck, PgActivate, PgNotify, PgQuery, PgRepair, PushObject};

use super::{Pg, Phase, log};
use crate::shard::OsdShard;

/// Bytes of an object in one push.
const PUSH_BYTES: u64 = 1 << 20;
/// Pause before a replica that is not ready is asked again.
const RETRY: Duration = Duration::from_millis(50);
/// Objects listed at a time when all are copied.
const LIST_PAGE: usize = 512;

/// Why an activation ended without the PG being active.
enum Stop {
    /// A newer interval began: its own activation goes on.
    Superseded,
    /// It cannot go on; a new interval may change that.
    Incomplete(String),
}

/// Starts the activation of the interval that has just begun.
pub(super) fn start(osd: &Rc<OsdShard>, pg: &Rc<Pg>) {
    let (osd, pg) = (Rc::clone(osd), Rc::clone(pg));
    let shard = osd.shard.clone();
    // Read now, not when the task first runs: by then the next interval may have begun, and two activations of one
    // interval would undo each other's work.
    let interval = pg.interval.get();
    shard.spawn(Group::Recovery, "activate", async move {
        let run = Activation { osd: &osd, pg: &pg, interval };
        let result = loop {
            match run.run().await {
                // A replica has left an interval that is still ours: it knows a newer map, or saw one that we skipped.
                Err(Stop::Superseded) if run.current().is_ok() => osd.shard.sleep(RETRY).await,
                result => break result,
            }
        };
        match result {
            Ok(()) => {
                pg.all_acknowledged();
                pg.set_phase(Phase::Active);
                pg.resume(&osd);
            }
            Err(Stop::Superseded) => {}
            Err(Stop::Incomplete(why)) => {
                tracing::error!("pg {}: {why}", pg.id);
                if pg.interval.get() == interval {
                    pg.set_phase(Phase::Incomplete(why));
                }
            }
        }
    });
}

/// A replica does not take part in the interval any more, because it saw a map that this primary skipped: agree again.
pub(super) fn again(osd: &Rc<OsdShard>, pg: &Rc<Pg>) {
    // Of many refused writes the first one does it; the others' answers come before the replica's next notify.
    if pg.is_active() {
        pg.set_phase(Phase::Peering);
        start(osd, pg);
    }
}

struct Activation<'a> {
    osd: &'a Rc<OsdShard>,
    pg: &'a Rc<Pg>,
    interval: Epoch,
}

impl Activation<'_> {
    async fn run(&self) -> Result<(), Stop> {
        self.current()?;
        // What this OSD did for an earlier primary must be through before its log is read.
        self.pg.fence(self.osd, Epoch(0)).await;
        self.current()?;
        let mut notifies = Vec::new();
        for replica in self.pg.replicas() {
            notifies.push((replica, self.query(replica).await?));
        }
        let mine = self.pg.log.borrow().info.last_epoch_started;
        if let Some((osd, newer)) = notifies.iter().find(|(_, n)| n.last_epoch_started > mine) {
            return Err(Stop::Incomplete(format!(
                "osd.{} was active in epoch {}, this primary last in {}: it lost data and must not overwrite",
                osd.0, newer.last_epoch_started.0, mine.0
            )));
        }
        self.current()?;
        // The primary first: were it killed after a replica has noted this interval and before itself has, it would look
        // as if it had lost data.
        let info = {
            let mut log = self.pg.log.borrow_mut();
            log.info.last_epoch_started = self.interval;
            log.info.same_interval_since = self.interval;
            log.info.acting = self.pg.acting();
            log.info.clone()
        };
        let commit = self.osd.store.submit(Transaction { info: Some(info), ..Transaction::new(self.pg.id) });
        commit.await.map_err(|e| Stop::Incomplete(format!("its store: {e}")))?;
        for (replica, notify) in &notifies {
            self.bring_up(*replica, notify).await?;
        }
        self.current()
    }

    fn current(&self) -> Result<(), Stop> {
        if self.pg.interval.get() == self.interval { Ok(()) } else { Err(Stop::Superseded) }
    }

    fn head(&self) -> Head {
        Head { pg: self.pg.id, epoch: self.osd.epoch(), interval: self.interval }
    }

    /// Sends a request until it is answered; a replica that is not ready yet (EAGAIN) is asked again.
    async fn ask<T: Front>(&self, to: OsdId, make: impl Fn() -> Message) -> Result<T, Stop> {
        loop {
            let answer = self.osd.peers.request(to, self.pg.id, make()).await;
            self.current()?;
            match answer.map(|m| m.decode::<T>()) {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => {
                    return Err(Stop::Incomplete(format!("osd.{} answers nonsense: {error}", to.0)));
                }
                None => self.osd.shard.sleep(RETRY).await,
            }
            self.current()?;
        }
    }

    async fn query(&self, replica: OsdId) -> Result<PgNotify, Stop> {
        let last_update = self.pg.log.borrow().info.last_update;
        let acting = self.pg.acting();
        loop {
            let query = || Message::of(&PgQuery { head: self.head(), last_update, acting: acting.clone() });
            let notify: PgNotify = self.ask(replica, query).await?;
            match notify.result {
                0 => return Ok(notify),
                errno::EAGAIN => self.osd.shard.sleep(RETRY).await,
                error => {
                    return Err(Stop::Incomplete(format!(
                        "osd.{} cannot say what it has: error {error}",
                        replica.0
                    )));
                }
            }
            self.current()?;
        }
    }

    async fn done(&self, to: OsdId, make: impl Fn() -> Message) -> Result<(), Stop> {
        let ack: PgAck = self.ask(to, make).await?;
        match ack.result {
            0 => Ok(()),
            errno::EAGAIN => Err(Stop::Superseded),
            error => Err(Stop::Incomplete(format!("osd.{} cannot be repaired: error {error}", to.0))),
        }
    }

    /// Makes one replica's copy equal to ours.
    async fn bring_up(&self, replica: OsdId, notify: &PgNotify) -> Result<(), Stop> {
        let (mine, tail) = {
            let log = self.pg.log.borrow();
            (log.info.last_update, log.info.log_tail)
        };
        let whole = notify.last_epoch_started != Epoch(0) || notify.last_update == Eversion::ZERO;
        let common = if !whole {
            None
        } else if notify.last_update == mine {
            Some(mine)
        } else {
            self.pg.log.borrow().common_with(notify.log_tail, &notify.log)
        };
        if common != Some(mine) || notify.last_update != mine {
            self.repair(replica, notify, common).await?;
        }
        let (keep_to, log_tail) = (common.unwrap_or(Eversion::ZERO), tail);
        let from = common.unwrap_or(tail);
        let entries: Vec<_> = self.pg.log.borrow().after(from).map(log::to_wire).collect();
        let activate = PgActivate {
            head: self.head(),
            keep_to,
            log_tail,
            last_update: mine,
            last_epoch_started: self.interval,
            acting: self.pg.acting(),
            log: entries,
        };
        self.done(replica, || Message::of(&activate)).await
    }

    async fn repair(&self, replica: OsdId, notify: &PgNotify, common: Option<Eversion>) -> Result<(), Stop> {
        let reset = common.is_none();
        self.done(replica, || Message::of(&PgRepair { head: self.head(), reset })).await?;
        let Some(common) = common else { return self.push_all(replica).await };
        let mut differ: BTreeSet<ObjectId> =
            self.pg.log.borrow().after(common).map(|e| e.oid.clone()).collect();
        differ.extend(notify.log.iter().filter(|e| e.version > common).map(|e| e.oid.clone()));
        for oid in differ {
            self.push(replica, &oid).await?;
        }
        Ok(())
    }

    async fn push_all(&self, replica: OsdId) -> Result<(), Stop> {
        let mut from: Option<ObjectId> = None;
        loop {
            let bits = self.pg.bits.get();
            let page = self.osd.store.list(self.pg.id, bits, from.as_ref(), LIST_PAGE + 1).await;
            let page = page.map_err(|e| Stop::Incomplete(format!("its store: {e}")))?;
            for oid in page.iter().take(LIST_PAGE) {
                self.push(replica, oid).await?;
            }
            match page.into_iter().nth(LIST_PAGE) {
                Some(next) => from = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Copies one object, or its absence.
    async fn push(&self, replica: OsdId, oid: &ObjectId) -> Result<(), Stop> {
        let stuck = |e| Stop::Incomplete(format!("its store: {e}"));
        let meta = self.osd.store.stat(oid).await.map_err(stuck)?;
        let (exists, meta) = (meta.is_some(), meta.unwrap_or_default());
        let mut off = 0;
        loop {
            let len = (meta.size - off).min(PUSH_BYTES);
            let data = if len == 0 {
                Payload::new()
            } else {
                self.osd.store.read(oid, off, len).await.map_err(stuck)?
            };
            let push = PushObject {
                head: self.head(),
                oid: oid.clone(),
                exists,
                size: meta.size,
                off,
                version: meta.version,
                user_version: meta.user_version,
                mtime: meta.mtime,
            };
            self.done(replica, || Message::of(&push).with_data(data.clone())).await?;
            off += len;
            if off >= meta.size {
                self.osd.metrics.borrow_mut().objects_pushed.inc();
                return Ok(());
            }
        }
    }
}
