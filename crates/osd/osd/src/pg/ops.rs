//! Every operation of a PG that is not answered yet: where it is, and what it waits for.

use std::rc::Rc;

use super::Pg;
use crate::op::{ClientOp, Stage};

/// An operation on its way.
pub(crate) struct OpInFlight {
    pub op: Rc<ClientOp>,
    /// Where it is: `waiting_for_map`, or the name of its [`Stage`].
    pub stage: &'static str,
    /// What must happen before it goes on.
    pub waits_for: String,
}

impl Pg {
    /// The operations of this PG.
    pub(crate) fn ops_in_flight(&self) -> Vec<OpInFlight> {
        let mut ops = Vec::new();
        self.pipeline.each(|op| {
            let stage = op.stage.get();
            ops.push(OpInFlight { op: Rc::clone(op), stage: stage.name(), waits_for: self.waits_for(stage) });
        });
        ops
    }

    /// When the oldest of them arrived.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        let mut oldest: Option<u64> = None;
        self.pipeline.each(|op| oldest = Some(oldest.map_or(op.arrived_ns, |ns| ns.min(op.arrived_ns))));
        oldest
    }

    fn waits_for(&self, stage: Stage) -> String {
        match stage {
            Stage::WaitingForPg => match self.describe() {
                (state, why) if why.is_empty() => format!("pg is {state}"),
                (state, why) => format!("pg is {state}: {why}"),
            },
            Stage::Queued => "operations of the object that came before it".to_owned(),
            Stage::Executing => "the store: metadata or data of the object".to_owned(),
            Stage::Store => "its data and metadata to be durable here".to_owned(),
            Stage::Replicas { version } => {
                let missing: Vec<String> =
                    self.backend.missing(version).iter().map(ToString::to_string).collect();
                format!("acknowledgements of {}", missing.join(", "))
            }
            Stage::Reply => "its answer to be sent".to_owned(),
        }
    }
}
