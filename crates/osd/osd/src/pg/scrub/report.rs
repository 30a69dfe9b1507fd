//! The report of a scrub: for the log, and for `rados list-inconsistent-obj`.

use carmine_types::{Epoch, ObjectId, errno};
use carmine_wire::scrub::{InconsistentObject, ScrubLsArg, ScrubLsReply};

use super::compare::Inconsistent;
use crate::op::{ClientOp, Outcome};
use crate::pg::Pg;

/// Most objects in one answer.
const ANSWER_OBJECTS_MAX: u64 = 256;

/// One line for the log.
pub(super) fn describe(object: &Inconsistent) -> String {
    let copies = object.object.copies.iter().filter(|(osd, _)| object.wrong.contains(osd));
    let copies: Vec<String> = copies.map(|(osd, copy)| format!("{osd} ({:#x})", copy.errors)).collect();
    let right = object.authority.as_ref().map_or("none is".to_owned(), |(osd, _)| format!("{osd} is"));
    let InconsistentObject { oid, errors, .. } = &object.object;
    format!("object {oid} ({errors:#x}): the copies of {} are not right, {right}", copies.join(", "))
}

impl Pg {
    /// Answers SCRUBLS.
    pub(in crate::pg) fn list_inconsistent(&self, op: &ClientOp) -> Outcome {
        match page(self, op) {
            Ok((result, reply)) => Outcome::with_output(result, reply.encode()),
            Err(errno) => Outcome::error(errno),
        }
    }
}

fn page(pg: &Pg, op: &ClientOp) -> Result<(i32, ScrubLsReply), i32> {
    let arg = ScrubLsArg::decode(&op.data.to_vec()).map_err(|_| errno::EINVAL)?;
    let found = pg.scrub.found.borrow();
    if found.interval == Epoch(0) {
        return Err(errno::ENOENT); // this primary has not scrubbed the PG, so it has no list
    }
    let interval = found.interval.0;
    if arg.interval != 0 && arg.interval != interval {
        return Ok((errno::EAGAIN, ScrubLsReply { interval, ..ScrubLsReply::default() }));
    }
    let max = arg.max.min(ANSWER_OBJECTS_MAX) as usize;
    let mut reply = ScrubLsReply { interval, ..ScrubLsReply::default() };
    if arg.snapsets == 0 {
        let behind = count_listed(&arg, found.objects.iter().map(|object| &object.object.oid));
        reply.objects =
            found.objects.iter().skip(behind).take(max).map(|object| object.object.clone()).collect();
    } else {
        let behind = count_listed(&arg, found.sets.iter().map(|set| &set.oid));
        reply.snapsets = found.sets.iter().skip(behind).take(max).cloned().collect();
    }
    Ok((0, reply))
}

/// How many entries of a list the client has already.
fn count_listed<'a>(arg: &ScrubLsArg, mut oids: impl Iterator<Item = &'a ObjectId>) -> usize {
    let last = (&*arg.name, &*arg.nspace, arg.snap);
    oids.position(|oid| (&*oid.name, &*oid.nspace, oid.snap) == last).map_or(0, |at| at + 1)
}
