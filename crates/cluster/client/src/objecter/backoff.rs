//! An OSD that asks to hold operations back.

use super::Objecter;
use super::session::Session;
use carmine_messenger::{Connection, Message};
use carmine_wire::backoff::{Backoff, BackoffOp};
use std::rc::Rc;

impl Objecter {
    pub(super) fn on_backoff(&self, session: &Rc<Session>, conn: &Rc<Connection>, msg: &Message) {
        let backoff: Backoff = match msg.decode() {
            Ok(backoff) => backoff,
            Err(error) => return conn.close(format!("back-off message: {error}")),
        };
        match backoff.op {
            BackoffOp::Block => {
                let ack = Backoff { op: BackoffOp::AckBlock, ..backoff.clone() };
                conn.send(Message::of(&ack));
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
