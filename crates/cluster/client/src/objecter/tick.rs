//! Work by the clock: time limits, second attempts, signs of life.

use super::op::Op;
use super::{Objecter, Rc};
use crate::error::ClientError;
use carmine_reactor::Group;
use std::rc::Weak;
use std::time::Duration;

/// Resolution of time limits.
const TICK: Duration = Duration::from_millis(100);
/// An operation without an answer for this long makes the client ask whether the OSD is there.
const LAGGY_NS: u64 = 10_000_000_000;
/// How often it asks.
const KEEPALIVE_TICKS: u32 = 50;
/// An OSD that owes answers and is silent for this long is given up: the connection is made anew.
const SILENT: Duration = Duration::from_secs(30);

/// Runs until the objecter is gone.
pub(super) fn start(objecter: &Rc<Objecter>) {
    let shard = objecter.shard.clone();
    let objecter = Rc::downgrade(objecter);
    shard.clone().spawn(Group::Client, "objecter-tick", async move {
        let mut ticks = 0;
        loop {
            shard.sleep(TICK).await;
            let Some(objecter) = Weak::upgrade(&objecter) else { return };
            if objecter.closed.get() {
                return;
            }
            objecter.tick();
            ticks = (ticks + 1) % KEEPALIVE_TICKS;
            if ticks == 0 {
                objecter.check_laggy();
            }
        }
    });
}

impl Objecter {
    fn tick(&self) {
        let now_ns = self.shard.now_ns();
        let mut table = self.table.borrow_mut();
        let mut again = false;
        for op in table.iter().filter(|op| op.outcome.is_none()) {
            if op.deadline_ns <= now_ns {
                let error = self.timed_out(op);
                op.complete(Err(error));
            }
            again |= op.not_before_ns != 0;
        }
        if !again {
            return;
        }
        let due = |op: &mut Op| op.not_before_ns != 0 && op.not_before_ns <= now_ns && op.sent_on == 0;
        for tid in table.pick(due) {
            if let Some(op) = table.get(tid) {
                op.not_before_ns = 0;
                self.deliver(op, now_ns);
            }
        }
    }

    fn timed_out(&self, op: &Op) -> ClientError {
        let after = op.timeout.unwrap_or_default();
        ClientError::Timeout { what: op.describe(), after, hint: self.explain(op) }
    }

    /// Says in words what an operation waits for.
    fn explain(&self, op: &Op) -> String {
        let Some(view) = self.view() else { return " (no map from the monitor yet)".to_owned() };
        let (pg, epoch) = (op.request.pg, view.epoch());
        let Some(osd) = op.osd else {
            return format!(
                " (PG {pg} has no OSD that is up in the map of epoch {epoch}, or the map says to wait)"
            );
        };
        if op.sent_on != 0 {
            let ms = self.shard.now_ns().saturating_sub(op.sent_ns) / 1_000_000;
            return format!(" (sent to {osd} {ms} ms ago, attempt {})", op.request.retry_attempt);
        }
        let sessions = self.sessions.borrow();
        let Some(session) = sessions.get(&osd) else { return String::new() };
        let faults =
            session.lanes().iter().map(|lane| lane.fault.borrow().clone()).find(|fault| !fault.is_empty());
        match faults {
            Some(fault) => format!(" (no connection to {osd}: {fault})"),
            None if session.up(super::session::PUBLIC).is_some() => format!(" ({osd} asked to wait)"),
            None => format!(" (not connected to {osd} at {} yet)", session.addr),
        }
    }

    /// Asks OSDs that owe an answer for a sign of life, and gives up those that are silent.
    fn check_laggy(&self) {
        let now_ns = self.shard.now_ns();
        let laggy: Vec<u64> = {
            let mut table = self.table.borrow_mut();
            let old = table.iter().filter(|op| op.sent_on != 0 && op.sent_ns + LAGGY_NS <= now_ns);
            old.map(|op| op.sent_on).collect()
        };
        if laggy.is_empty() {
            return;
        }
        let sessions: Vec<_> = self.sessions.borrow().values().cloned().collect();
        for conn in sessions.iter().flat_map(|session| session.lanes()).filter_map(|lane| lane.conn()) {
            if !laggy.contains(&conn.id()) {
                continue;
            }
            if conn.silence() >= SILENT {
                conn.close(format!("silent for {} s with operations in flight", conn.silence().as_secs()));
            } else {
                conn.keepalive();
            }
        }
    }
}
