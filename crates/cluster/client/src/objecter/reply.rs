//! Answers of OSDs: replies, and requests to hold operations back (Ceph's back-off).

use std::cell::RefCell;
use std::rc::Rc;

use carmine_messenger::{Connection, Message};
use carmine_reactor::Payload;
use carmine_types::errno::{EAGAIN, Errno};
use carmine_types::{ObjectId, PgId};
use carmine_wire::backoff::{Backoff, BackoffOp};
use carmine_wire::osd_op::{OsdReply, OsdRequest, payload_ranges};
use carmine_wire::{DecodeError, kinds};

use super::op::{Op, Output, Reply};
use super::session::{Lane, Session};
use super::{Objecter, describe};
use crate::error::{ClientError, Result};

/// Pause before an operation is sent again that the OSD answered with EAGAIN.
const AGAIN_NS: u64 = 50_000_000;

impl Objecter {
    /// A message of an OSD.
    pub(super) fn on_message(
        self: &Rc<Self>,
        session: &Rc<Session>,
        lane: &Lane,
        conn: &Rc<Connection>,
        msg: Message,
    ) {
        match msg.header.kind {
            kinds::OSD_OP_REPLY => {
                lane.pace.reset();
                self.on_reply(conn, msg);
            }
            kinds::OSD_MAP => self.maps.apply(&msg, &conn.peer().to_string()),
            kinds::OSD_BACKOFF => self.on_backoff(session, conn, &msg),
            kinds::ROUTE_REPLY | kinds::ADMIN_REPLY => {
                lane.pace.reset();
                session.pending.resolve(msg.header.tid, msg);
            }
            kind => tracing::debug!(peer = %conn.peer(), kind, name = kinds::name(kind), "message ignored"),
        }
    }

    fn on_reply(&self, conn: &Rc<Connection>, mut msg: Message) {
        let mut table = self.table.borrow_mut();
        // Given up by its caller, or answered before.
        let Some(op) = table.get(msg.header.tid) else { return };
        let data = std::mem::take(&mut msg.data);
        let reply = match OsdReply::decode(&msg.header, &msg.front) {
            Ok(reply) => reply,
            Err(error) => return bad_reply(op, conn, error),
        };
        if reply.retry_attempt != op.request.retry_attempt || op.outcome.is_some() {
            // An answer to an earlier attempt: the one to the last attempt will come.
            return;
        }
        if reply.result == EAGAIN {
            op.sent_on = 0;
            op.not_before_ns = self.shard.now_ns() + AGAIN_NS;
            return;
        }
        match outcome(op, &reply, data) {
            Ok(outcome) => op.complete(outcome),
            Err(error) => bad_reply(op, conn, error),
        }
    }
}

fn outcome(op: &Op, reply: &OsdReply<'_>, data: Payload) -> std::result::Result<Result<Reply>, DecodeError> {
    if reply.result < 0 {
        let errno = Errno(reply.result);
        return Ok(Err(ClientError::Errno { what: describe(&op.request), errno }));
    }
    let results = reply.rvals.iter().copied().chain(std::iter::repeat(0));
    let mut outputs = smallvec::SmallVec::with_capacity(reply.ops.len());
    if let [only] = reply.ops[..]
        && only.payload_len as usize == data.len()
    {
        outputs.push(Output { op: only, result: reply.rvals.first().copied().unwrap_or(0), data });
    } else {
        let ranges = payload_ranges(&reply.ops, data.len())?;
        for ((op, range), result) in reply.ops.iter().zip(ranges).zip(results) {
            outputs.push(Output { op: *op, result, data: data.slice(range.start, range.len()) });
        }
    }
    Ok(Ok(Reply {
        result: reply.result,
        version: reply.replay_version,
        user_version: reply.user_version,
        outputs,
    }))
}

fn bad_reply(op: &mut Op, conn: &Rc<Connection>, error: DecodeError) {
    tracing::warn!(peer = %conn.peer(), %error, "reply cannot be decoded");
    let what = op.describe();
    op.complete(Err(ClientError::BadReply { what, reason: error.to_string() }));
}

impl Objecter {
    pub(super) fn on_backoff(&self, session: &Rc<Session>, conn: &Rc<Connection>, msg: &Message) {
        let backoff: Backoff = match msg.decode() {
            Ok(backoff) => backoff,
            Err(error) => return conn.close(format!("back-off message: {error}")),
        };
        match backoff.op {
            BackoffOp::Block => {
                let ack = Backoff { op: BackoffOp::AckBlock, ..backoff.clone() };
                conn.send(Message::encode(&ack));
                if session.holds.add(backoff) {
                    self.recall(session);
                }
            }
            BackoffOp::Unblock => {
                if session.holds.remove(&backoff) {
                    self.kick(session.osd);
                }
            }
            BackoffOp::AckBlock => {}
        }
    }

    /// The OSD dropped the operations that are held back now: they count as not sent.
    fn recall(&self, session: &Session) {
        let mut table = self.table.borrow_mut();
        let own = table.iter().filter(|op| op.osd == Some(session.osd));
        own.filter(|op| session.holds.covers(op.request.pg, &op.request)).for_each(|op| op.sent_on = 0);
    }
}

/// Most ranges kept per OSD. An OSD that asks for more gets the operations and has to queue them itself.
const HOLDS_MAX: usize = 4096;

/// The ranges that are held back.
#[derive(Default)]
pub(super) struct Holds(RefCell<Vec<Backoff>>);

impl Holds {
    /// Adds a range; false if there are too many.
    pub(super) fn add(&self, backoff: Backoff) -> bool {
        let mut holds = self.0.borrow_mut();
        if holds.len() >= HOLDS_MAX {
            return false;
        }
        holds.push(backoff);
        true
    }

    /// Removes what this UNBLOCK ends; false if there was none.
    pub(super) fn remove(&self, unblock: &Backoff) -> bool {
        let mut holds = self.0.borrow_mut();
        let before = holds.len();
        holds.retain(|hold| hold.id != unblock.id || hold.pg != unblock.pg);
        holds.len() != before
    }

    /// Forgets all: a back-off lives no longer than its connection.
    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// True if operations on this object (or PG) are held back.
    pub(super) fn covers(&self, pg: PgId, request: &OsdRequest) -> bool {
        let holds = self.0.borrow();
        holds
            .iter()
            .any(|hold| hold.pg == pg && (request.name.is_empty() || contains(hold, &object(request))))
    }
}

fn object(request: &OsdRequest) -> ObjectId {
    ObjectId {
        nspace: request.locator.nspace.clone(),
        key: request.locator.key.clone(),
        name: request.name.clone(),
        snap: request.snapid,
        ..ObjectId::cursor(request.locator.pool, request.hash)
    }
}

fn contains(hold: &Backoff, object: &ObjectId) -> bool {
    if hold.begin == hold.end {
        return hold.begin.object == *object;
    }
    let object = object.clone().into();
    hold.begin <= object && object < hold.end
}
