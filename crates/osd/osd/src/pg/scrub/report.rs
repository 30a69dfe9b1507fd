//! The reports on scrubs: to the monitor, and to `rados list-inconsistent-obj`.

use carmine_messenger::Message;
use carmine_pgtypes::Scrubbed;
use carmine_reactor::{Payload, ShardId};
use carmine_types::{Epoch, ObjectId, errno};
use carmine_wire::private::{OsdScrubs, PgScrubs};
use carmine_wire::scrub::{ScrubLsArg, ScrubLsReply};
use smallvec::smallvec;

use super::compare::Inconsistent;
use crate::op::{ClientOp, Outcome};
use crate::pg::Pg;
use crate::shard::OsdShard;

/// Objects in one answer at the most.
const ANSWER_OBJECTS_MAX: u64 = 256;

/// One line for the log.
pub(super) fn describe(object: &Inconsistent) -> String {
    let copies = object.object.copies.iter().filter(|(osd, _)| object.wrong.contains(osd));
    let copies: Vec<String> = copies.map(|(osd, copy)| format!("{osd} ({:#x})", copy.errors)).collect();
    let right = object.authority.as_ref().map_or("none is".to_owned(), |(osd, _)| format!("{osd} is"));
    let told = &object.object;
    format!(
        "object {} ({:#x}): the copies of {} are not right, {right}",
        told.oid,
        told.errors,
        copies.join(", ")
    )
}

/// The messages with the scrubs of all PGs that this OSD leads.
pub(crate) async fn tell_monitor(osd: &OsdShard) -> Message {
    let mut pgs = Vec::new();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let part = osd.shard.call(to, |shard| async move { OsdShard::of(&shard).map(|osd| of_shard(&osd)) });
        pgs.extend(part.await.into_iter().flatten());
    }
    Message::of(&OsdScrubs { osd: osd.config.id, pgs })
}

fn of_shard(osd: &OsdShard) -> Vec<PgScrubs> {
    osd.pgs.borrow().values().filter(|pg| pg.leads()).filter_map(|pg| pg.scrubs()).collect()
}

/// Answers SCRUBLS.
pub(crate) fn listed(pg: &Pg, op: &ClientOp) -> Outcome {
    match page(pg, op) {
        Ok((result, reply)) => {
            let outputs = smallvec![(result, Payload::from(reply.encode()))];
            Outcome { result, outputs, ..Outcome::default() }
        }
        Err(errno) => Outcome::error(errno),
    }
}

fn page(pg: &Pg, op: &ClientOp) -> Result<(i32, ScrubLsReply), i32> {
    let arg = ScrubLsArg::decode(&op.data.to_vec()).map_err(|_| errno::EINVAL)?;
    let found = pg.scrub.found.borrow();
    if found.interval == Epoch(0) {
        return Err(errno::ENOENT); // not scrubbed by this primary: it has no list
    }
    let interval = found.interval.0;
    if arg.interval != 0 && arg.interval != interval {
        return Ok((errno::EAGAIN, ScrubLsReply { interval, ..ScrubLsReply::default() }));
    }
    let max = arg.max.min(ANSWER_OBJECTS_MAX) as usize;
    let mut reply = ScrubLsReply { interval, ..ScrubLsReply::default() };
    if arg.snapsets == 0 {
        let behind = behind(&arg, found.objects.iter().map(|object| &object.object.oid));
        reply.objects =
            found.objects.iter().skip(behind).take(max).map(|object| object.object.clone()).collect();
    } else {
        let behind = behind(&arg, found.sets.iter().map(|set| &set.oid));
        reply.snapsets = found.sets.iter().skip(behind).take(max).cloned().collect();
    }
    Ok((0, reply))
}

/// How many of a list the client has got before.
fn behind<'a>(arg: &ScrubLsArg, mut oids: impl Iterator<Item = &'a ObjectId>) -> usize {
    let last = (&*arg.name, &*arg.nspace, arg.snap);
    oids.position(|oid| (&*oid.name, &*oid.nspace, oid.snap) == last).map_or(0, |at| at + 1)
}

impl Pg {
    /// Its scrubs, if there were any.
    fn scrubs(&self) -> Option<PgScrubs> {
        let running = self.scrub.running.get();
        let log = self.log.borrow();
        let Scrubbed { count, last, last_deep, errors, .. } = log.info().scrubs;
        if count == 0 && running.is_none() {
            return None;
        }
        let order = running.unwrap_or_default();
        Some(PgScrubs {
            pg: self.id.pgid,
            last,
            last_deep,
            last_clean: log.info().last_clean_scrub(),
            scrubbing: running.is_some(),
            deep: order.deep,
            repair: order.repair,
            errors,
        })
    }
}
