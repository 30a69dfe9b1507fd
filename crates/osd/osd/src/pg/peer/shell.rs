//! Feeds [`Peering`](carmine_peering::Peering) its events: maps, answers of replicas, ends of pauses, finished writes. Carries out those
//! of its decisions that take time; `effects` carries out the rest.

use std::rc::Rc;
use std::sync::Arc;

use carmine_crush::MapView;
use carmine_messenger::Message;
use carmine_peering::{Copy, Effect, Effects, Event, Lease, Map, Member, Phase, Place, Task, Then, Trouble};
use carmine_pgtypes::{LogEntry, OsdSet, PgHistory, PgInfo};
use carmine_reactor::Group;
use carmine_store::StoreError;
use carmine_types::{Epoch, Errno, Eversion, LogOp, OsdId, SpgId, StoreKind, errno};
use carmine_wire::header::Front;
use carmine_wire::osdmap::PgPool;

use crate::error::OpError;
use crate::join::{self, Mergeable};
use crate::kinds::classic_of;
use crate::maps::{Others, is_merging};
use crate::messages::{Head, PgAck, PgActivate, PgNotify, PgQuery, Promise};
use crate::pg::Pg;
use crate::pg::copies::own_store;
use crate::shard::OsdShard;

/// The message for a PG whose state the store cannot read.
const UNREADABLE: &str = "its state cannot be read";

impl Pg {
    /// A PG that follows this map, and has yet to be read.
    pub(crate) fn begin(osd: &Rc<OsdShard>, id: SpgId, view: &MapView, others: &Others) -> Rc<Pg> {
        let pg = Pg::new(id, osd.config.id, osd.config.log);
        pg.on_map(osd, view, others);
        osd.shard.spawn(Group::Client, "pg-commit", Rc::clone(&pg).pump_commits(Rc::clone(osd)));
        pg
    }

    /// Reads the PG's state from the store and then follows the newest map.
    pub(crate) fn load(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let (pg, own, made) = (Rc::clone(self), Rc::clone(osd), osd.epoch());
        osd.shard.spawn(Group::Recovery, "pg-load", async move {
            match own_store(&own).load_pg(pg.id).await {
                Ok(state) => {
                    if let Some(state) = state {
                        if !pg.peer.log.borrow_mut().load(state) {
                            let (what, why) =
                                (format!("log of pg {}", pg.id), "its versions have gaps".to_owned());
                            return pg.fail(&own, UNREADABLE, &StoreError::Damaged { what, why });
                        }
                        pg.promised_before(&own);
                        let view = own.view();
                        pg.note_pg_num(view.as_ref().and_then(|view| view.map().pool(pg.id.pgid.pool)));
                        view.iter().for_each(|view| pg.note_fewer(&own, view.map()));
                    }
                    if pg.peer.info().is_new() {
                        let note = |info: &mut PgInfo| info.made = made;
                        if pg.write_down(&own, note).await.is_err() {
                            return;
                        }
                    }
                    let prepared = match pg.prepare_parts(&own).await {
                        Ok(prepared) => prepared,
                        Err(error) => return pg.fail(&own, UNREADABLE, &error),
                    };
                    pg.load_parts(&own);
                    drop(prepared);
                    pg.on(&own, Event::Loaded);
                    pg.heed_order(&own);
                }
                Err(error) => pg.fail(&own, UNREADABLE, &error),
            }
        });
    }

    /// Follows a new map.
    pub(crate) fn on_map(self: &Rc<Self>, osd: &Rc<OsdShard>, view: &MapView, others: &Others) {
        let map = view.map();
        let (mapping, pool) = (view.mapping(self.id.pgid), map.pool(self.id.pgid.pool));
        self.note_pg_num(pool);
        if self.is_loaded() {
            self.note_fewer(osd, map);
        }
        let acting = OsdSet::new(&mapping.acting, mapping.acting_primary);
        let members: Vec<Member> = acting.osds().filter_map(|osd| member(view, osd)).collect();
        let acting = acting.filter(|osd| members.iter().any(|member| member.osd == osd));
        let up = OsdSet::new(&mapping.up, mapping.up_primary);
        let (size, min_size, pg_num) =
            pool.map_or((0, 1, 0), |pool| (usize::from(pool.size), usize::from(pool.min_size), pool.pg_num));
        if mapping.acting_primary != Some(osd.config.id) {
            self.peer.leases.led_by_other(map.epoch);
        }
        let (epoch, osds) = (view.epoch(), Arc::clone(&others.states));
        // Where classic OSDs may have served it, a PG that nobody knows is not a new one.
        let is_volatile = !matches!(own_store(osd).kind(), StoreKind::Blue) && others.classic.is_empty();
        let classic = classic_of(&others.classic, mapping);
        let is_merging = pool.is_some_and(|pool| is_merging(pool, self.id.pgid.ps));
        let map = Map {
            epoch,
            acting,
            members,
            up,
            osds,
            classic,
            size,
            min_size,
            pg_num,
            is_merging,
            is_volatile,
        };
        self.ops.snaps().follow(self.id.pgid.pool, view.map());
        self.on(osd, Event::Map(map));
        self.trim_snaps(osd);
    }

    /// Which objects are its own depends on the pool's number of PGs when it was made.
    fn note_pg_num(&self, pool: Option<&PgPool>) {
        if let Some(pool) = pool {
            self.peer.log.borrow_mut().note_pg_num(pool.pg_num);
            self.peer.note_bits();
        }
    }

    /// Gives an event to the state machine and carries out its effects; returns the rest, which is left to the caller.
    pub(in crate::pg) fn on(self: &Rc<Self>, osd: &Rc<OsdShard>, event: Event) -> Then {
        let (wanted, was) = {
            let peering = self.peer.peering.borrow();
            (peering.wanted_acting(), (peering.is_active(), peering.recovers(), peering.generation()))
        };
        let Effects { list, then } = self.peer.peering.borrow_mut().on(self.peer.log.borrow().info(), event);
        list.into_iter().for_each(|effect| self.perform(osd, effect));
        self.write_history(osd);
        self.peer.changed.notify_all();
        let peering = self.peer.peering.borrow();
        let now = (peering.is_active(), peering.recovers(), peering.generation());
        let wants = peering.wanted_acting();
        let has_wish = wants.is_some() && wants != wanted;
        if has_wish || ((was.0, was.1) != (now.0, now.1) && peering.leads()) {
            self.report_soon(osd);
        }
        if *peering.phase() == Phase::Stray && was.2 != now.2 {
            osd.stray_news.notify_one();
        }
        drop(peering);
        self.tell_mergeable(osd);
        then
    }

    /// Tells the session with the monitor whether this PG, which is about to be merged, can be, when that changes.
    fn tell_mergeable(&self, osd: &OsdShard) {
        let (peering, log) = (self.peer.peering.borrow(), self.peer.log.borrow());
        let info = log.info();
        let now = peering.may_merge(info).map(|is_whole| Mergeable {
            is_whole,
            last_update: info.last_update,
            last_epoch_started: info.last_epoch_started,
            last_epoch_clean: peering.intervals().last_epoch_clean(),
        });
        if self.peer.mergeable.replace(now) != now {
            join::note_mergeable(osd, self.id.pgid, now);
        }
    }

    /// The monitor orders the PG to be made, and tells of its past (MOSDPGCreate2).
    pub(crate) fn create(self: &Rc<Self>, osd: &Rc<OsdShard>, history: PgHistory) {
        self.peer.ordered.replace(Some(history));
        self.heed_order(osd);
    }

    pub(in crate::pg) fn heed_order(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let order = self.peer.ordered.borrow().clone();
        if *self.peer.machine().phase() == Phase::Loading {
            return;
        }
        if let Some(history) = order {
            // The monitor gives an order once to each primary, not once in each interval.
            if history.epoch < self.peer.history().same_interval_since && !self.peer.is_active() {
                return join::ask_for_orders(osd);
            }
            self.on(osd, Event::Created(history));
            self.tell_created(osd);
        }
    }

    /// Tells the monitor that the PG is made, once it is active.
    pub(in crate::pg) fn tell_created(&self, osd: &OsdShard) {
        if self.peer.is_active() && self.peer.ordered.take().is_some() {
            join::tell_created(osd, self.id.pgid);
        }
    }

    /// Carries out an effect that takes time, in a task, which brings the event that follows.
    pub(in crate::pg) fn work(self: &Rc<Self>, osd: &Rc<OsdShard>, effect: Effect) {
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Recovery, "peering", async move {
            // A message of an attempt that is over must not be sent as one of the next attempt.
            let is_over = |attempt| !pg.peer.peering.borrow().is_under_way(attempt);
            let event = match effect {
                Effect::Query { attempt, .. } | Effect::Activate { attempt, .. } if is_over(attempt) => {
                    return;
                }
                Effect::Query { attempt, to: from } => {
                    Event::Notified { attempt, from, copy: pg.query(&own, from).await }
                }
                Effect::Activate { attempt, to: from, place, is_whole } => {
                    let result = pg.activate(&own, from, place, is_whole).await;
                    Event::Done { task: Task::Activate, attempt, from, result }
                }
                Effect::AwaitLease { attempt, lease } => pg.await_lease(&own, attempt, lease).await,
                Effect::Timer { attempt, after } => {
                    own.shard.sleep(after).await;
                    Event::Timer { attempt }
                }
                other => unreachable!("{other:?} takes no time"),
            };
            pg.on(&own, event);
        });
    }

    /// Sends a request and waits for its answer.
    pub(in crate::pg) async fn ask<T: Front>(
        &self,
        osd: &OsdShard,
        to: OsdId,
        request: Message,
    ) -> Result<T, Trouble> {
        let answer = osd.peers.request(to, self.id, request).await.ok_or(Trouble::NoAnswer)?;
        answer.decode().map_err(|error| {
            tracing::warn!("pg {}: {to} answers nonsense: {error}", self.id);
            Trouble::BadAnswer
        })
    }

    /// Sends an order and waits until it is done.
    pub(in crate::pg) async fn order(
        &self,
        osd: &OsdShard,
        to: OsdId,
        order: Message,
    ) -> Result<(), Trouble> {
        let ack: PgAck = self.ask(osd, to, order).await?;
        if ack.result == 0 { Ok(()) } else { Err(Trouble::Refused(Errno(ack.result))) }
    }

    async fn query(&self, osd: &OsdShard, to: OsdId) -> Result<Copy, Trouble> {
        let (last_update, acting) = (self.peer.last_update(), self.peer.acting());
        let query = PgQuery { head: self.head(osd), last_update, acting };
        let PgNotify { result, info, lease, log, .. } = self.ask(osd, to, Message::encode(&query)).await?;
        match result {
            0 if log.iter().any(|entry| !self.peer.contains(&entry.oid)) => Err(Trouble::BadAnswer),
            0 => {
                self.learn_scrubs(&info);
                let common = self.common_with(&info, &log);
                let differs = |e: &LogEntry| Some(e.version) > common && e.op != LogOp::Error;
                let changed = log.iter().filter(|e| differs(e)).flat_map(LogEntry::objects).collect();
                let until = |left_ms: u32| osd.shard.now_ns() + u64::from(left_ms) * 1_000_000;
                let lease = lease.map(|Promise { holder, interval, left_ms }| Lease {
                    holder,
                    interval,
                    until_ns: until(left_ms),
                });
                Ok(Copy { info, common, changed, lease })
            }
            errno::EAGAIN => Err(Trouble::OtherMap),
            errno => Err(Trouble::Refused(Errno(errno))),
        }
    }

    /// The newest entry that another copy's log and ours have in common, and as of which it has all objects.
    fn common_with(&self, info: &PgInfo, entries: &[LogEntry]) -> Option<Eversion> {
        let log = self.peer.log.borrow();
        let common = log.common_with(info.log_tail, entries)?;
        if !info.incomplete {
            return Some(common);
        }
        // Both logs must cover all changes since then.
        let tail = info.log_tail.max(log.info().log_tail);
        (info.complete_to > Eversion::ZERO && info.complete_to >= tail).then(|| common.min(info.complete_to))
    }

    /// Sends a replica the log entries that it lacks, and whether its copy is whole.
    async fn activate(&self, osd: &OsdShard, to: OsdId, place: Place, is_whole: bool) -> Result<(), Trouble> {
        let activate = {
            let log = self.peer.log.borrow();
            let Place { common, last_backfill } = place;
            let from = common.unwrap_or(log.info().log_tail);
            // Without a common entry all objects are compared: none comes before the first.
            let (complete_to, last_backfill) = match common {
                _ if is_whole => (Eversion::ZERO, None),
                Some(common) => (common, last_backfill),
                None => (log.info().last_update, Some(self.first_object())),
            };
            PgActivate {
                head: self.head(osd),
                keep_to: common.unwrap_or(Eversion::ZERO),
                lease_ms: osd.config.heartbeat.lease().as_millis() as u32,
                info: PgInfo { incomplete: !is_whole, complete_to, last_backfill, ..log.info().clone() },
                log: log.after(from).cloned().collect(),
            }
        };
        self.order(osd, to, Message::encode(&activate)).await
    }

    /// Writes down which intervals there were, if that is not written yet. Nobody waits for it.
    fn write_history(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let unwritten = self.peer.peering.borrow().unwritten(self.peer.log.borrow().info());
        let Some(history) = unwritten else { return };
        let commit = self.peer.write_info(osd, |info| info.history = history);
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Recovery, "pg-history", async move {
            if let Err(error) = commit.await {
                pg.fail(&own, "its history cannot be written", &error);
            }
        });
    }

    /// Changes the info, and waits until that is durable.
    pub(in crate::pg) async fn write_down(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        change: impl FnOnce(&mut PgInfo),
    ) -> Result<(), OpError> {
        let written = self.peer.write_info(osd, change).await;
        if let Err(error) = &written {
            self.fail(osd, "its info cannot be written", error);
        }
        Ok(written?)
    }

    pub(in crate::pg) fn write_info(self: &Rc<Self>, osd: &Rc<OsdShard>, attempt: u64, info: PgInfo) {
        let commit = self.peer.write_info(osd, |old| *old = info);
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Recovery, "pg-info", async move {
            match commit.await {
                Ok(()) => drop(pg.on(&own, Event::InfoWritten { attempt })),
                Err(error) => pg.fail(&own, "its store failed", &error),
            }
        });
    }

    pub(in crate::pg) fn head(&self, osd: &OsdShard) -> Head {
        let id = self.peer.peering.borrow().attempt_id();
        Head { pg: self.id, epoch: osd.epoch(), interval: id.interval, attempt: id.attempt }
    }

    /// The store failed: nothing may be acknowledged any more. Operations wait, as for a PG without OSDs; a primary that
    /// waits for this copy is informed.
    pub(in crate::pg) fn fail(self: &Rc<Self>, osd: &Rc<OsdShard>, what: &str, error: &StoreError) {
        tracing::error!("pg {}: {what}: {error}", self.id);
        self.on(osd, Event::StoreFailed(Errno(error.errno())));
        // They would have gone on from this copy.
        self.children(osd).iter().for_each(|child| child.fail(osd, what, error));
    }

    /// The entry of `pg_temp` that this primary asks the monitor for, if it wants another one than the map has; an empty one removes it.
    pub(crate) fn wanted_temp(&self, view: &MapView) -> Option<Vec<i32>> {
        let wanted = self.peer.machine().wanted_acting()?;
        let mapping = view.mapping(self.id.pgid);
        let wanted_items: Vec<i32> = wanted.iter().map(|osd| osd.0 as i32).collect();
        let is_up_set = wanted.first().copied() == mapping.up_primary
            && wanted_items.len() == mapping.up.len()
            && wanted_items.iter().all(|item| mapping.up.contains(item));
        let entry = if is_up_set { Vec::new() } else { wanted_items };
        let known = view.map().pg_temp.get(&self.id.pgid).map_or(&[][..], Vec::as_slice);
        (known != entry).then_some(entry)
    }
}

fn member(view: &MapView, osd: OsdId) -> Option<Member> {
    let at = osd.0 as usize;
    let addr = view.map().client_addrs.get(at)?.msgr2()?;
    let up_from = view.map().osd_info.get(at).map_or(Epoch(0), |info| info.up_from);
    Some(Member { osd, addr: addr.sock?, nonce: addr.nonce, up_from })
}
