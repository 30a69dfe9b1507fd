//! What OSDs answer.

use super::op::{Op, Output, Reply};
use super::session::{Lane, Session};
use super::{Objecter, describe};
use crate::error::{ClientError, Result};
use carmine_messenger::{Connection, Message};
use carmine_reactor::Payload;
use carmine_types::errno::{EAGAIN, Errno};
use carmine_wire::osd_op::{OsdReply, payload_ranges};
use carmine_wire::{DecodeError, kinds};
use std::rc::Rc;

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
            kinds::OSD_MAP => self.maps.take(&msg, &conn.peer().to_string()),
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
