//! The place of a write in the log: its version, its entry, and how far the log is trimmed with it. Pure functions.

use std::sync::Arc;

use carmine_pgtypes::{LogEntry, Returned};
use carmine_reactor::Payload;
use carmine_types::{Epoch, Eversion, LogOp, UTime, errno, is_mutated, is_unasserted};

use super::exec::{self, Outputs, Plan};
use crate::config::LogLimits;
use crate::op::ClientOp;
use crate::pg::peer::log::PgLog;

/// The end of the log, where the next write is appended.
pub(super) struct LogEnd<'a> {
    pub(super) log: &'a PgLog,
    pub(super) limits: LogLimits,
    /// Version number up to which everything is durable on all members.
    pub(super) committed: u64,
    /// The newest map.
    pub(super) epoch: Epoch,
}

/// A write's place in the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) entry: LogEntry,
    /// The log is trimmed up to this version, inclusive.
    pub(super) trim_to: Option<Eversion>,
}

impl LogEnd<'_> {
    /// The place of this write, which modifies its object at `mtime`.
    ///
    /// # Panics
    /// If the log would be trimmed beyond what all members have.
    #[inline]
    pub(super) fn number(&self, op: &ClientOp, plan: &Plan, mtime: UTime) -> Numbered {
        let version = self.next_version();
        let clones = plan.extra.as_ref().map(|extra| extra.clones.iter().map(|clone| clone.id).collect());
        let entry = LogEntry {
            version,
            prior: if plan.effect == LogOp::Error { Eversion::ZERO } else { plan.prior },
            reqid: op.reqid,
            oid: Arc::clone(&op.oid),
            op: plan.effect,
            user_version: user_version(op, plan, version),
            result: plan.result,
            mtime,
            clones: clones.unwrap_or_default(),
            returned: if exec::returns_all(op) { returned(&plan.outputs) } else { None },
        };
        let trim_to = self.log.trim_point(self.limits, self.committed);
        assert!(
            trim_to.is_none_or(|to| to.version <= self.committed) || is_unasserted("trim_uncommitted"),
            "pg {}: the log is trimmed to {trim_to:?}, and only up to {} all have everything",
            self.log.info().pg,
            self.committed
        );
        Numbered { entry, trim_to }
    }

    /// The version of the next write. Epochs of the log never fall, so versions rise across intervals too.
    fn next_version(&self) -> Eversion {
        let last = self.log.info().last_update;
        let next = last.version + if is_mutated("skip_version") { 2 } else { 1 };
        Eversion::new(self.epoch.0.max(last.epoch), next)
    }
}

/// The object's version after the write, as clients see it.
fn user_version(op: &ClientOp, plan: &Plan, version: Eversion) -> u64 {
    // Watches change nothing that clients see.
    let is_unseen = plan.effect == LogOp::Error || (plan.extra.is_some() && op.only_watches());
    match is_unseen {
        // As in Ceph, a client that finds no object learns that the next version will be a later one.
        true if plan.result == errno::ENOENT => version.version - 1,
        true => plan.user_version,
        false => version.version,
    }
}

/// Results and outputs of a write, for the log; `None` if all are empty.
#[cold]
fn returned(outputs: &Outputs) -> Option<Arc<Returned>> {
    let tells = |(result, output): &(i32, Payload)| {
        (*result != 0 || !output.is_empty()) && !is_mutated("forget_outputs")
    };
    let copied = || outputs.iter().map(|(result, output)| (*result, output.to_vec().into())).collect();
    outputs.iter().any(tells).then(|| Arc::new(Returned(copied())))
}

#[cfg(test)]
mod tests {
    use carmine_reactor::sync::oneshot;
    use carmine_types::{ObjectId, PgId, ReqId, SpgId};
    use carmine_wire::osd_op::{OpList, OsdRequest, flags};

    use super::*;
    use crate::op::ReplyTo;
    use crate::pg::op::extra::Extra;
    use crate::pg::op::snaps::CloneChange;
    use std::rc::Rc;

    const LIMITS: LogLimits = LogLimits::new(4, 2);
    const MTIME: UTime = UTime { sec: 7, nsec: 8 };

    fn op(flags: u32, tid: u64) -> Rc<ClientOp> {
        let oid = ObjectId::head(1, b"", b"", b"object");
        let request = OsdRequest::new(PgId::new(1, 0), Epoch(1), flags, &oid, OpList::default());
        let (tell, _) = oneshot::channel();
        let reqid = ReqId { client: 9, inc: 0, tid };
        ClientOp::new(request, reqid, Payload::new(), 0, ReplyTo::Local(tell))
    }

    fn modify() -> Plan {
        Plan { effect: LogOp::Modify, prior: Eversion::new(1, 1), user_version: 33, ..Plan::failed(0) }
    }

    /// The place of a write after those of `log`.
    fn number(log: &PgLog, committed: u64, op: &ClientOp, plan: &Plan) -> Numbered {
        LogEnd { log, limits: LIMITS, committed, epoch: Epoch(3) }.number(op, plan, MTIME)
    }

    fn log(entries: u64) -> PgLog {
        let mut log = PgLog::new(SpgId::default());
        for tid in 1..=entries {
            let next = number(&log, 0, &op(0, tid), &modify());
            log.push(next.entry);
        }
        log
    }

    #[test]
    fn a_write_gets_the_next_version_and_an_entry_that_says_what_it_was() {
        let (op, plan) = (op(0, 5), modify());
        let Numbered { entry, trim_to } = number(&log(3), 3, &op, &plan);
        let version = Eversion::new(3, 4);
        let want = LogEntry {
            version,
            prior: plan.prior,
            reqid: op.reqid,
            oid: Arc::clone(&op.oid),
            op: LogOp::Modify,
            user_version: 4,
            result: 0,
            mtime: MTIME,
            clones: Box::default(),
            returned: None,
        };
        assert_eq!((entry, trim_to), (want, None));
        let nothing = Plan { effect: LogOp::Error, ..plan };
        assert_eq!(
            number(&log(3), 3, &op, &nothing).entry.prior,
            Eversion::ZERO,
            "the object was not changed"
        );
    }

    #[test]
    fn versions_rise_though_the_map_is_older_than_the_log() {
        let log = log(2);
        let end = |epoch| LogEnd { log: &log, limits: LIMITS, committed: 2, epoch: Epoch(epoch) };
        let version = |epoch| end(epoch).number(&op(0, 3), &modify(), MTIME).entry.version;
        assert_eq!((version(1), version(8)), (Eversion::new(3, 3), Eversion::new(8, 3)));
    }

    #[test]
    fn the_log_is_trimmed_in_batches_and_never_beyond_what_all_members_have() {
        let log = log(9);
        let trim = |committed| number(&log, committed, &op(0, 10), &modify()).trim_to.map(|to| to.version);
        assert_eq!([0, 1, 2, 3, 5, 9].map(trim), [None, None, Some(2), Some(3), Some(5), Some(5)]);
    }

    #[test]
    fn clients_see_a_new_version_only_where_something_changed() {
        let seen = |plan: &Plan| number(&log(3), 3, &op(0, 5), plan).entry.user_version;
        let failed = |result| Plan { user_version: 33, ..Plan::failed(result) };
        assert_eq!(seen(&modify()), 4);
        assert_eq!(seen(&failed(errno::EEXIST)), 33);
        assert_eq!(seen(&failed(errno::ENOENT)), 3, "the next version will be a later one");
        let watch = Plan { extra: Some(Box::default()), ..modify() };
        assert_eq!(seen(&watch), 33, "a request without other operations is one of watches");
    }

    #[test]
    fn clones_and_wanted_outputs_are_noted() {
        let mut extra = Extra::default();
        extra.clones =
            [7, 3].map(|id| CloneChange { id, before: None, after: Some(1) }).into_iter().collect();
        let outputs = || Outputs::from_iter([(1, Payload::from(b"out".to_vec()))]);
        let plan = Plan { extra: Some(Box::new(extra)), outputs: outputs(), ..modify() };
        let noted = |flags| number(&log(0), 0, &op(flags, 1), &plan).entry;
        assert_eq!((&*noted(0).clones, noted(0).returned), ([7, 3].as_slice(), None));
        let returned = noted(flags::RETURN_VEC).returned.expect("the client wants them");
        assert_eq!(*returned.0, [(1, b"out".as_slice().into())]);
    }
}
