//! Carries out what peering decides, in all parts of a PG.

use std::rc::Rc;

use carmine_peering::{Effect, Level};

use super::Pg;
use super::recovery::push::{self, Repair};
use crate::join;
use crate::shard::OsdShard;

impl Pg {
    /// Carries out what the state machine has decided.
    pub(super) fn perform(self: &Rc<Self>, osd: &Rc<OsdShard>, effect: Effect) {
        match effect {
            Effect::StartOver => {
                self.ops.pipeline().start_over();
                self.peer.leases().start_over();
                self.copies.start_over(self.peer.last_update().version);
                self.recovery.start_over();
            }
            Effect::DropOps => {
                let ops = self.ops.pipeline().take_waiting();
                osd.metrics.borrow_mut().ops_dropped += ops.len() as u64;
                ops.iter().for_each(|op| op.abandon());
                self.ops.forget_clients();
                self.scrub.forget();
                self.forget_reported();
            }
            Effect::Query { .. }
            | Effect::Activate { .. }
            | Effect::AwaitLease { .. }
            | Effect::Timer { .. } => self.work(osd, effect),
            Effect::Repair { attempt, to, place, keeps_place, changed, may_lead } => {
                let repair = Repair::while_serving(osd, self, attempt, to);
                push::start(Repair { place, keeps_place, changed, may_lead, ..repair });
            }
            Effect::WriteInfo { attempt, info } => {
                self.peer.leases().ask(osd.shard.now_ns());
                self.write_info(osd, attempt, info);
            }
            Effect::Recover { to, place } => self.expect_recovery(to, place),
            Effect::Serve(followers) => {
                self.copies.backend().serve(&followers, self.recovery.windows());
                if !osd.stopping.get() {
                    self.peer.leases().serve(&followers, osd.config.heartbeat.lease());
                }
                self.start_recovery(osd);
                osd.metrics.borrow_mut().activations += 1;
                self.count_objects(osd);
                self.ops.snaps().start_over();
                self.trim_snaps(osd);
                self.tell_created(osd);
                self.resume(osd);
            }
            Effect::WantUpThru(epoch) => join::want_up_thru(osd, epoch),
            Effect::TellPrimary(errno) => self.tell_primary(osd, errno.0),
            Effect::Log(Level::Info, why) => {
                tracing::info!("pg {}: begins its interval anew: {why}", self.id);
            }
            Effect::Log(Level::Error, why) => tracing::error!("pg {}: {why}", self.id),
        }
    }
}
