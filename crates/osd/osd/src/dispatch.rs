//! Routes the messages of a shard's accepted connections to the shards that own their PGs.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use crate::messages::{
    KIND_FIRST, KIND_LAST, PgAck, PgActivate, PgBackfillProgress, PgBackfillScan, PgComplete, PgData,
    PgFetch, PgLease, PgQuery, PgRead, PgRelease, PgRepair, PgReserve, PgScrub, PgScrubbed, PgStray,
    PushObject, RECOVERY_KINDS, RepOp, fitted, join, peek_head, peek_pg,
};
use carmine_messenger::{Connection, Dispatcher, Message, Parts, Permit};
use carmine_reactor::{Group, ShardId, probes};
use carmine_types::{Epoch, PgId, ReqId, SpgId, errno};
use carmine_wire::header::Front;
use carmine_wire::osd_op::{OsdRequest, peek, peek_output};
use carmine_wire::private::{Admin, Route};
use carmine_wire::{EntityType, kinds};

use crate::admin;
use crate::caps::Limits;
use crate::config::OUTPUT_BYTES_MAX;
use crate::error::OpError;
use crate::maps::share_map;
use crate::networks::Network;
use crate::nothing;
use crate::op::{ClientOp, HopBack, Origin, Outcome, ReplyTo};
use crate::pg::{ReplyPath, has_nothing, not_ready};
use crate::shard::{ConnState, OsdShard};

/// The dispatcher of all connections that a shard accepted.
pub(crate) struct Incoming {
    pub(crate) osd: Weak<OsdShard>,
    /// The network from which they come.
    pub(crate) network: Network,
}

impl Dispatcher for Incoming {
    fn on_accepted(&self, conn: &Rc<Connection>) {
        if let Some(osd) = self.osd.upgrade() {
            if osd.stopping.get() {
                return conn.close("this OSD stops");
            }
            let state =
                ConnState { conn: Rc::clone(conn), epoch: Cell::new(Epoch(0)), carried: Cell::new(None) };
            osd.conns.borrow_mut().insert(conn.id(), state);
            introduce(&osd, conn);
        }
    }

    fn output_bytes(&self, _conn: &Connection, parts: &Parts) -> usize {
        match parts.header.kind {
            kinds::OSD_OP => peek_output(parts.header.version, &parts.front).min(OUTPUT_BYTES_MAX) as usize,
            _ => 0,
        }
    }

    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        let Some(osd) = self.osd.upgrade() else { return };
        match msg.header.kind {
            kinds::OSD_OP => client_op(&osd, conn, msg),
            kind if is_replication(kind) && is_osd(&osd, conn) => {
                replication(&osd, conn, msg);
            }
            kinds::OSD_PG_QUERY2 if is_osd(&osd, conn) => {
                nothing::on_query(&osd, conn, msg);
            }
            Route::KIND => admin::route(&osd, conn, self.network, &msg),
            Admin::KIND => admin::admin(&osd, conn, &msg),
            kinds::COMMAND => admin::answer_tell(&osd, conn, &msg),
            other => tracing::debug!("{conn:?}: message type {other} ignored"),
        }
    }

    fn on_closed(&self, conn: &Rc<Connection>, _reason: &str) {
        if let Some(osd) = self.osd.upgrade() {
            osd.conns.borrow_mut().remove(&conn.id());
            forget_ops(&osd, conn.id());
        }
    }
}

/// Tells all shards a client's address, and what it may do, before any of its operations can reach them. Any peer may send
/// operations.
fn introduce(osd: &OsdShard, conn: &Connection) {
    let (origin, addr) = (Origin { home: osd.shard.id(), conn: conn.id() }, conn.peer().addr);
    let limits = Limits::new(conn.peer(), (osd.config.caps_of)(conn.peer()));
    osd.add_client(origin, addr, limits.clone());
    osd.run_on_others(move |osd| osd.add_client(origin, addr, limits));
}

/// Drops the waiting operations, on all shards, of a client whose connection closed. Their answers could not be delivered, and
/// the client resends them if it comes back.
fn forget_ops(osd: &Rc<OsdShard>, conn: u64) {
    let origin = Origin { home: osd.shard.id(), conn };
    let unplaced = std::mem::take(&mut *osd.unplaced.borrow_mut());
    let left = unplaced.into_iter().filter(|op| op.conn.id() != conn).collect();
    *osd.unplaced.borrow_mut() = left;
    for to in (0..osd.shard.shards()).map(ShardId) {
        OsdShard::run_on(&osd.shard, to, move |osd| {
            osd.forget_ops(|op| op.origin(osd.shard.id()) == Some(origin));
            osd.forget_client(origin);
            nothing::forget(osd, origin);
        });
    }
}

/// A client's operation: decoded here if its PG is here, else by the shard that owns it.
fn client_op(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: Message) {
    let Some((pg, _, epoch, _)) = peek(&msg.front) else {
        return conn.close("an operation is shorter than its fixed fields");
    };
    if epoch < osd.epoch()
        && let Some(state) = osd.conns.borrow().get(&conn.id())
    {
        share_map(osd, state, epoch);
    }
    let (parts, permit) = msg.into_parts();
    if osd.owner(osd.primary_part(pg)) == Some(osd.shard.id()) {
        local_op(osd, conn, parts, permit);
    } else {
        place_op(osd, Unplaced { conn: Rc::clone(conn), pg, epoch, parts, permit });
    }
}

/// Decodes an operation of a PG that this shard owns.
fn local_op(osd: &Rc<OsdShard>, conn: &Rc<Connection>, parts: Parts, permit: Option<Permit>) {
    match decode(osd, parts, conn.peer().gid, ReplyTo::Conn(Rc::clone(conn), permit)) {
        Ok(op) => route_op(osd, op),
        Err(why) => conn.close(why.to_string()),
    }
}

/// A client's operation, not decoded yet.
pub(crate) struct Unplaced {
    conn: Rc<Connection>,
    pg: PgId,
    /// The client's map.
    epoch: Epoch,
    parts: Parts,
    permit: Option<Permit>,
}

/// Sends an operation to the shard that owns its PG. If our map lacks the PG, the client's newer map may have it: the operation
/// waits here for that map, which tells where to send it.
pub(crate) fn place_op(osd: &Rc<OsdShard>, op: Unplaced) {
    match osd.owner(osd.primary_part(op.pg)) {
        Some(owner) if owner != osd.shard.id() => hop(osd, owner, op),
        None if op.epoch > osd.epoch() => osd.unplaced.borrow_mut().push(op),
        None => {
            osd.metrics.borrow_mut().ops_dropped += 1;
            // The PG may have moved away while the operation waited, and its client was not sent that map.
            if let Some(state) = osd.conns.borrow().get(&op.conn.id()) {
                share_map(osd, state, op.epoch);
            }
        }
        Some(_) => local_op(osd, &op.conn, op.parts, op.permit),
    }
}

fn hop(osd: &Rc<OsdShard>, owner: ShardId, op: Unplaced) {
    let Unplaced { conn, parts, permit, .. } = op;
    let (origin, gid) = (Origin { home: osd.shard.id(), conn: conn.id() }, conn.peer().gid);
    probes::op_hopped(gid, parts.header.tid, owner.0);
    let token = permit.map(Permit::detach);
    let number = osd.hop_out(owner);
    osd.shard.submit_to(owner, move |shard| {
        let Some(osd) = OsdShard::on(shard) else { return };
        osd.hop_in(origin.home, number);
        osd.metrics.borrow_mut().op_hops += 1;
        let back = HopBack { here: osd.shard.clone(), origin, token };
        match decode(&osd, parts, gid, ReplyTo::Hop(back)) {
            Ok(op) => route_op(&osd, op),
            Err(why) => {
                let why = why.to_string();
                OsdShard::with_conn(&osd.shard, origin, move |conn| conn.close(why));
            }
        }
    });
}

fn decode(osd: &OsdShard, parts: Parts, gid: u64, to: ReplyTo) -> Result<Rc<ClientOp>, OpError> {
    let request = match OsdRequest::decode(&parts.header, &parts.front) {
        Ok(request) => request,
        Err(error) => {
            return Err(OpError::because(errno::EINVAL, format_args!("bad operation: {error}")));
        }
    };
    let reqid = ReqId { client: gid, inc: request.client_inc, tid: parts.header.tid };
    Ok(ClientOp::new(request, reqid, parts.data, osd.shard.stamp_ns(), to))
}

/// Gives an operation to its PG, on the shard that should own it.
pub(crate) fn route_op(osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
    if op.request.epoch > osd.epoch() {
        osd.park(op); // until we have the client's map
        return;
    }
    let id = op.request.pg;
    let primary = osd.view.borrow().as_ref().and_then(|view| view.acting_primary(id));
    match osd.pg(osd.primary_part(id)) {
        Some(pg) if primary == Some(osd.config.id) => match osd.caps_refusal(&op) {
            None => pg.handle_op(osd, op),
            Some(errno) => op.reply(osd, Outcome::error(errno)),
        },
        // Only the primary serves reads; this errno makes the client ask it.
        Some(_) if op.may_go_to_replicas() => op.reply(osd, Outcome::error(errno::EAGAIN)),
        None if osd.is_deleted(id.pool) => op.reply(osd, Outcome::error(errno::ENOENT)),
        // Not ours by our map, which the client has or was just sent: it will find the right OSD.
        _ => {
            osd.metrics.borrow_mut().ops_dropped += 1;
            op.abandon();
        }
    }
}

/// Whether a peer is an OSD: it says so itself, but an OSD's key allows everything.
fn is_osd(osd: &OsdShard, conn: &Connection) -> bool {
    conn.peer().entity == EntityType::OSD && osd.may_do_everything(conn)
}

fn is_replication(kind: u16) -> bool {
    (KIND_FIRST..=KIND_LAST).contains(&kind) || RECOVERY_KINDS.contains(&kind)
}

/// A message of another OSD.
fn replication(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: Message) {
    let Some(pg) = peek_pg(&msg.front) else {
        return conn.close("a replication message is shorter than its head");
    };
    let (parts, permit) = msg.into_parts();
    let origin = Origin { home: osd.shard.id(), conn: conn.id() };
    match osd.owner(pg) {
        Some(owner) if owner != origin.home => {
            let token = permit.map(Permit::detach);
            osd.shard.submit_to(owner, move |shard| {
                let Some(osd) = OsdShard::on(shard) else { return };
                let here = osd.shard.clone();
                if let Some(token) = token {
                    OsdShard::with_conn(&here, origin, move |conn| conn.release(token));
                }
                let reply: ReplyPath = Rc::new(move |answer: Message| {
                    let (parts, _) = answer.into_parts();
                    OsdShard::with_conn(&here, origin, move |conn| conn.send(Message::from(parts)));
                });
                execute_replication(&osd, pg, parts, reply);
            });
        }
        _ => {
            let conn = Rc::clone(conn);
            execute_replication(osd, pg, parts, Rc::new(move |answer| conn.send(answer)));
        }
    }
}

/// Executes a replication message on the shard that owns the PG.
fn execute_replication(osd: &Rc<OsdShard>, id: SpgId, parts: Parts, reply: ReplyPath) {
    let (tid, head) = (parts.header.tid, peek_head(&parts.front).unwrap_or_default());
    let Some(pg) = osd.pg(id) else {
        // The map that gives us this PG may not have arrived: then the other side asks again.
        tracing::debug!("pg {id}: message {:#x} before its map", parts.header.kind);
        match parts.header.kind {
            // This OSD has nothing of the PG. OSDs that are not members are only asked under a map that they have.
            PgRead::KIND if head.epoch <= osd.epoch() => {
                let has_part = osd.table.borrow().has_part(id);
                let result = if has_part { errno::EAGAIN } else { errno::ENOENT };
                reply(Message::encode(&PgData { head, result }).with_tid(tid));
            }
            PgQuery::KIND if head.epoch <= osd.epoch() && osd.table.borrow().has_no_copy(id) => {
                reply(has_nothing(head, osd.epoch()).with_tid(tid));
            }
            PgQuery::KIND => reply(not_ready(head).with_tid(tid)),
            PgStray::KIND => reply(Message::encode(&PgAck { head, result: errno::ESTALE }).with_tid(tid)),
            _ => {}
        }
        return;
    };
    if parts.header.kind == RepOp::KIND {
        match RepOp::read(&parts.header, parts.front, parts.data) {
            Ok(op) => pg.on_rep_op(osd, op, reply),
            Err(error) => {
                tracing::error!("pg {id}: {error}");
                pg.refuse_rep_op(head, errno::EINVAL, &reply);
            }
        }
        return;
    }
    let own = Rc::clone(osd);
    let (group, name) = match parts.header.kind {
        PgScrub::KIND | PgFetch::KIND | PgScrubbed::KIND => (Group::Scrub, "scrub-answer"),
        _ => (Group::Recovery, "peering"),
    };
    osd.shard.spawn(group, name, async move {
        let answered = match parts.header.kind {
            PushObject::KIND => match PushObject::read(&parts.header, parts.front, parts.data) {
                Ok(push) => Ok(pg.answer_push(&own, push).await),
                Err(error) => Err(OpError::because(errno::EINVAL, error)),
            },
            PgQuery::KIND => answer(parts, |query| pg.answer_query(&own, query)).await,
            PgRepair::KIND => answer(parts, |repair| pg.answer_repair(&own, repair)).await,
            PgActivate::KIND => answer(parts, |activate| pg.answer_activate(&own, activate)).await,
            PgComplete::KIND => answer(parts, |order| pg.answer_complete(&own, order)).await,
            PgBackfillScan::KIND => answer(parts, |scan| pg.answer_backfill_scan(&own, scan)).await,
            PgBackfillProgress::KIND => answer(parts, |order| pg.answer_progress(&own, order)).await,
            PgReserve::KIND => answer(parts, |order| pg.answer_reserve(&own, order)).await,
            PgLease::KIND => answer(parts, async |lease| pg.answer_lease(&own, lease)).await,
            PgRelease::KIND => answer(parts, async |release| pg.answer_release(release)).await,
            PgStray::KIND => answer(parts, async |stray| pg.answer_stray(&own, stray)).await,
            PgRead::KIND => answer(parts, |read| pg.answer_read(&own, read)).await,
            PgScrub::KIND => answer(parts, |scrub| pg.answer_scrub(&own, scrub)).await,
            PgFetch::KIND => answer(parts, |fetch| pg.answer_fetch(&own, fetch)).await,
            PgScrubbed::KIND => answer(parts, |ended| pg.answer_scrubbed(&own, ended)).await,
            kind => {
                Err(OpError::because(errno::EINVAL, format_args!("replication message {kind:#x} is unknown")))
            }
        };
        let answer = answered.unwrap_or_else(|error| {
            tracing::error!("pg {id}: {error}");
            Message::encode(&PgAck { head, result: error.errno() })
        });
        reply(fitted(answer.with_tid(tid)));
    });
}

/// Decodes a request and answers it.
async fn answer<T: Front>(
    mut parts: Parts,
    answer: impl AsyncFnOnce(T) -> Message,
) -> Result<Message, OpError> {
    let joined = join(&mut parts.header, &mut parts.front, &mut parts.data);
    let request = joined.and_then(|()| Message::from(parts).decode());
    Ok(answer(request.map_err(|error| OpError::because(errno::EINVAL, error))?).await)
}
