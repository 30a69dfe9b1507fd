//! Every operation of a PG that is not answered yet: where it is, and what it waits for.

use std::rc::Rc;

use super::Pg;
use super::inflight::Write;
use super::replicate::Follower;
use crate::op::ClientOp;

/// An operation on its way.
pub(crate) struct OpInFlight {
    pub op: Rc<ClientOp>,
    /// Where it is: `waiting_for_pg`, `queued`, `executing`, `store`, `replicas` or `reply`.
    pub stage: &'static str,
    /// What must happen before it goes on.
    pub waits_for: String,
}

impl Pg {
    /// The operations of this PG, in the order of the way that they go.
    pub(crate) fn ops_in_flight(&self) -> Vec<OpInFlight> {
        let mut ops = self.ops_before_active();
        ops.extend(self.ops_of_objects());
        ops.extend(self.in_flight.borrow().after(0).flat_map(|write| self.ops_of_write(write)));
        ops
    }

    /// When the oldest of them arrived.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        let waiting = self.waiting.borrow().iter().map(|op| op.arrived_ns).min();
        let objects = self.objects.borrow();
        let objects =
            objects.each().flat_map(|busy| busy.running.iter().chain(&busy.queue)).map(|op| op.arrived_ns);
        let written = self.in_flight.borrow().after(0).map(|write| write.op.arrived_ns).min();
        waiting.into_iter().chain(objects.min()).chain(written).min()
    }

    fn ops_before_active(&self) -> Vec<OpInFlight> {
        let (state, why) = self.phase.borrow().describe();
        let waits_for =
            if why.is_empty() { format!("pg is {state}") } else { format!("pg is {state}: {why}") };
        let show = |op: &Rc<ClientOp>| OpInFlight {
            op: Rc::clone(op),
            stage: "waiting_for_pg",
            waits_for: waits_for.clone(),
        };
        self.waiting.borrow().iter().map(show).collect()
    }

    fn ops_of_objects(&self) -> Vec<OpInFlight> {
        let committed = self.committed.get();
        let mut ops = Vec::new();
        for busy in self.objects.borrow().each() {
            ops.extend(busy.running.iter().map(|op| OpInFlight {
                op: Rc::clone(op),
                stage: "executing",
                waits_for: "the store: metadata or data of the object".to_owned(),
            }));
            let waits_for = if !busy.running.is_empty() {
                format!("{} operations of the object that run", busy.running.len())
            } else if busy.submitted > committed {
                format!("write {} of the object, which is not durable everywhere yet", busy.submitted)
            } else {
                "its turn".to_owned()
            };
            ops.extend(busy.queue.iter().map(|op| OpInFlight {
                op: Rc::clone(op),
                stage: "queued",
                waits_for: waits_for.clone(),
            }));
        }
        ops
    }

    /// A submitted write, and the requests that are answered with it.
    fn ops_of_write(&self, write: &Write) -> Vec<OpInFlight> {
        let version = write.version.version;
        let followers = self.followers.borrow();
        let missing: Vec<String> =
            followers.iter().filter(|f| f.acked() < version).map(|f: &Follower| f.osd.to_string()).collect();
        let (stage, waits_for) = if write.local_ns == 0 && version > self.local.get() {
            ("store", "its data and metadata to be durable here".to_owned())
        } else if !missing.is_empty() {
            ("replicas", format!("acknowledgements of {}", missing.join(", ")))
        } else {
            ("reply", "earlier writes of the PG".to_owned())
        };
        let followers = write.followers.iter().map(|(op, _)| op);
        let show = |op: &Rc<ClientOp>| OpInFlight { op: Rc::clone(op), stage, waits_for: waits_for.clone() };
        std::iter::once(&write.op).chain(followers).map(show).collect()
    }
}
