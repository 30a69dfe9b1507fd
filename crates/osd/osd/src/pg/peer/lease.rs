//! Read leases: a primary serves clients only while no other can have taken its place.
//!
//! A replica that takes part in an interval promises not to help another primary for a while: by its activation, and again
//! each time that the primary asks. The primary is readable until the first of these promises ends, counted from when it
//! asked, by its own clock; a replica counts from when it was asked, which is later. If a promise is not
//! renewed in time, as where the primary is cut off, the PG is `laggy`: its operations wait.
//!
//! The primary of a later interval hears of all promises with the copies that it asks for, and waits (`wait`) until the
//! holders cannot serve any more: its time is over, the map says that the holder died, or it says itself that it left.
//! A holder that is a member of the new interval has left the old one when it answers. An OSD that restarts may have promised
//! something a moment before: how long its promises last is written down with the activation (`PgInfo::promised`), and no
//! renewal is for longer.
//!
//! Times are compared as if all clocks had the same rate. They have not, so the primary ends its lease a little early
//! ([`RATE_MARGIN`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::{Message, with_timeout};
use carmine_peering::{Event, Lease};
use carmine_pgtypes::Promised;
use carmine_reactor::Group;
use carmine_types::{Epoch, OsdId, SpgId, errno, is_mutated, is_unasserted};

use crate::messages::{PgAck, PgLease, PgLeaseAck, PgRelease, Promise};
use crate::pg::Pg;
use crate::shard::OsdShard;

/// Pause between two looks at a lease that another primary may hold.
const LOOK: Duration = Duration::from_millis(50);
/// The primary ends its lease this part of it early.
const RATE_MARGIN: u32 = 100;
/// How far a clock's rate may be off, in millionths. NTP steers clocks by up to 500, and their crystals are off by some 100.
const CLOCK_PPM_MAX: u64 = 5_000;
/// By a slow clock the primary's lease lasts `lease * (1 - 1 / margin) / (1 - ppm)`, by a fast one a replica's promise
/// `lease / (1 + ppm)`, and that is longer.
const _: () = {
    let (margin, million) = (RATE_MARGIN as u64, 1_000_000);
    assert!((margin - 1) * (million + CLOCK_PPM_MAX) <= margin * (million - CLOCK_PPM_MAX));
};

/// The leases of a PG. Times are those of the reactor's clock.
#[derive(Default)]
pub(in crate::pg) struct Leases {
    pg: SpgId,
    /// Until when clients are served (primary).
    readable_until_ns: Cell<u64>,
    /// The latest that this was in any interval: no later operation was ever served.
    covered_until_ns: Cell<u64>,
    /// When the replicas of the attempt under way were asked first (primary).
    asked_ns: Cell<u64>,
    /// Until when each replica keeps its promise (primary).
    promises: RefCell<Vec<(OsdId, u64)>>,
    /// The newest map in which another OSD leads the PG.
    led_by_other: Cell<Epoch>,
}

impl Leases {
    /// Nobody is served.
    pub(in crate::pg) fn new(pg: SpgId) -> Leases {
        Leases { pg, ..Leases::default() }
    }

    /// Those of a child of a PG that is split: what bounds the parent's operations bounds those that it got from it.
    pub(in crate::pg) fn inherit(&self, parent: &Leases) {
        self.led_by_other.set(parent.led_by_other.get().max(self.led_by_other.get()));
        self.covered_until_ns.set(parent.covered_until_ns.get());
    }

    /// An operation that arrived at this time may run: no other OSD had served clients before it. It reads nothing older.
    pub(in crate::pg) fn covers(&self, arrived_ns: u64) -> bool {
        arrived_ns <= self.readable_until_ns.get() || is_mutated("ignore_lease")
    }

    /// An operation that arrived at this time was covered once, perhaps in an interval that is over.
    pub(in crate::pg) fn covered(&self, arrived_ns: u64) -> bool {
        arrived_ns <= self.covered_until_ns.get() || is_unasserted("ignore_lease")
    }

    /// Another OSD leads the PG in this map.
    pub(in crate::pg) fn led_by_other(&self, epoch: Epoch) {
        self.led_by_other.set(epoch);
    }

    /// An operation sent at this map is late: another OSD led then, or later.
    pub(in crate::pg) fn is_late(&self, sent: Epoch) -> bool {
        sent <= self.led_by_other.get()
    }

    /// Nothing is served.
    pub(in crate::pg) fn start_over(&self) {
        self.readable_until_ns.set(0);
        self.promises.take();
    }

    /// The replicas of an attempt are about to be asked.
    pub(in crate::pg) fn ask(&self, now_ns: u64) {
        self.asked_ns.set(now_ns);
    }

    /// All of them have activated the interval, which was a promise.
    pub(in crate::pg) fn serve(&self, replicas: &[OsdId], length: Duration) {
        let until_ns = self.asked_ns.get() + held_ns(length);
        *self.promises.borrow_mut() = replicas.iter().map(|osd| (*osd, until_ns)).collect();
        self.follow_promises();
    }

    /// A replica renewed its promise until this time.
    fn promised(&self, by: OsdId, until_ns: u64) {
        let mut promises = self.promises.borrow_mut();
        let Some((_, until)) = promises.iter_mut().find(|(osd, _)| *osd == by) else { return };
        *until = if is_mutated("shorten_promise") { until_ns } else { until_ns.max(*until) };
        drop(promises);
        self.follow_promises();
    }

    /// Without replicas there is nobody who could serve instead.
    fn follow_promises(&self) {
        let promises = self.promises.borrow();
        let ends = promises.iter().map(|(_, until_ns)| *until_ns);
        let first = if is_mutated("longest_promise") { ends.max() } else { ends.min() };
        let (until_ns, before_ns) = (first.unwrap_or(u64::MAX), self.readable_until_ns.get());
        assert!(
            until_ns >= before_ns,
            "pg {}: a lease until {before_ns} ns was cut short to {until_ns} ns",
            self.pg
        );
        assert!(
            promises.iter().all(|(_, end_ns)| until_ns <= *end_ns),
            "pg {}: a lease until {until_ns} ns outlives one of the promises {promises:?}",
            self.pg
        );
        self.readable_until_ns.set(until_ns);
        self.covered_until_ns.set(until_ns.max(self.covered_until_ns.get()));
    }
}

/// How long the holder of a promise of this length may rely on it, by its own clock.
fn held_ns(length: Duration) -> u64 {
    (length - length / RATE_MARGIN).as_nanos() as u64
}

/// Renews the leases of this shard's PGs for as long as it runs.
pub(crate) fn start(osd: &Rc<OsdShard>) {
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Replication, "leases", async move {
        // A few messages may be lost.
        let period = own.config.heartbeat.lease() / 4;
        while !own.stopping.get() {
            own.shard.sleep(period).await;
            let pgs: Vec<Rc<Pg>> = own.pgs.borrow().values().cloned().collect();
            pgs.iter().for_each(|pg| pg.renew_lease(&own));
        }
    });
}

impl Pg {
    /// It is active, and its lease is over.
    pub(in crate::pg) fn is_laggy(&self, osd: &OsdShard) -> bool {
        self.peer.is_active() && !self.peer.leases.covers(osd.shard.stamp_ns())
    }

    fn renew_lease(&self, osd: &OsdShard) {
        if !self.peer.is_active() {
            return;
        }
        let (head, sent_ns) = (self.head(osd), osd.shard.now_ns());
        let lease = PgLease { head, sent_ns, length_ms: osd.config.heartbeat.lease().as_millis() as u32 };
        let replicas: Vec<OsdId> = self.peer.leases.promises.borrow().iter().map(|(osd, _)| *osd).collect();
        replicas.into_iter().for_each(|to| osd.peers.send(to, self.id, Message::encode(&lease)));
    }

    /// As a replica: a primary wants a promise. Only that of the interval that this copy follows gets one.
    pub(crate) fn answer_lease(&self, osd: &OsdShard, lease: PgLease) -> Message {
        let PgLease { head, sent_ns, length_ms } = lease;
        if !self.peer.follows(&head) {
            return Message::encode(&PgAck { head, result: errno::ESTALE });
        }
        let length_ms = self.promise(osd, head.interval, length_ms);
        Message::encode(&PgLeaseAck { head, sent_ns, length_ms })
    }

    /// This copy helps no other primary for so long, or for the shorter time that a restart of this OSD would remember; the time
    /// in milliseconds.
    pub(in crate::pg) fn promise(&self, osd: &OsdShard, interval: Epoch, length_ms: u32) -> u32 {
        let length_ms = length_ms.min(self.peer.log.borrow().info().promised.length_ms);
        let until_ns = osd.shard.now_ns() + u64::from(length_ms) * 1_000_000;
        let mut peering = self.peer.peering.borrow_mut();
        if let Some(holder) = peering.acting().primary() {
            peering.promise(Lease { holder, interval, until_ns });
        }
        length_ms
    }

    /// As a primary: a replica gave its promise.
    pub(crate) fn on_lease_ack(self: &Rc<Self>, osd: &Rc<OsdShard>, from: OsdId, ack: &PgLeaseAck) {
        let PgLeaseAck { head, sent_ns, length_ms } = *ack;
        if self.peer.is_answered(&head) {
            let held_ns = held_ns(Duration::from_millis(length_ms.into()));
            self.peer.leases.promised(from, sent_ns.saturating_add(held_ns));
            self.resume(osd);
        }
    }

    /// The promise that this OSD may have given in the moment before it ended.
    pub(in crate::pg) fn promised_before(&self, osd: &OsdShard) {
        let Promised { holder, interval, mut length_ms } = self.peer.log.borrow().info().promised;
        if is_mutated("promise_as_configured") {
            length_ms = osd.config.heartbeat.lease().as_millis() as u32;
        }
        if length_ms > 0 {
            let until_ns = osd.shard.now_ns() + u64::from(length_ms) * 1_000_000;
            self.peer.peering.borrow_mut().promise(Lease { holder, interval, until_ns });
        }
    }

    /// The promise of this copy that is still in force.
    pub(in crate::pg) fn promise_left(&self, osd: &OsdShard) -> Option<Promise> {
        let Lease { holder, interval, until_ns } = self.peer.peering.borrow().promised_lease()?;
        let left_ms = until_ns.saturating_sub(osd.shard.now_ns()).div_ceil(1_000_000);
        (left_ms > 0).then(|| Promise {
            holder,
            interval,
            left_ms: u32::try_from(left_ms).unwrap_or(u32::MAX),
        })
    }

    /// Waits until the holder of a lease cannot serve any more.
    pub(in crate::pg) async fn await_lease(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        attempt: u64,
        lease: Lease,
    ) -> Event {
        let Lease { holder, interval, until_ns } = lease;
        loop {
            let left = Duration::from_nanos(until_ns.saturating_sub(osd.shard.now_ns()));
            let is_over = left.is_zero() || !self.peer.peering.borrow().is_under_way(attempt);
            if is_over || died_after(osd, holder, interval) || self.has_left(osd, holder, left).await {
                return Event::LeaseOver { attempt, holder };
            }
            osd.shard.sleep(left.min(LOOK)).await;
        }
    }

    /// Asks a holder that is up.
    async fn has_left(&self, osd: &Rc<OsdShard>, holder: OsdId, limit: Duration) -> bool {
        if osd.addr_of(holder).is_none() {
            return false;
        }
        let release = Message::encode(&PgRelease { head: self.head(osd) });
        let answer = with_timeout(&osd.shard, limit, self.ask::<PgAck>(osd, holder, release)).await;
        answer.is_some_and(|answer| answer.is_ok_and(|ack| ack.result == 0))
    }

    /// A primary asks whether this OSD has left the intervals before that primary's map, of which it is no member.
    pub(crate) fn answer_release(&self, release: PgRelease) -> Message {
        let has_left = release.head.epoch <= self.peer.peering.borrow().epoch() && !self.peer.is_active();
        let result = if has_left { 0 } else { errno::EAGAIN };
        Message::encode(&PgAck { head: release.head, result })
    }
}

/// The map says that the process which led this interval has ended.
fn died_after(osd: &OsdShard, holder: OsdId, interval: Epoch) -> bool {
    let view = osd.view();
    let xinfo = view.as_ref().and_then(|view| view.map().osd_xinfo.get(holder.0 as usize));
    xinfo.is_some_and(|xinfo| xinfo.dead_epoch > interval)
}

/// Serves nobody on this shard any more: the OSD is about to say goodbye.
pub(crate) fn give_up_leases(osd: &OsdShard) {
    osd.stopping.set(true);
    osd.pgs.borrow().values().for_each(|pg| pg.peer.leases.start_over());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_until_the_first_promise_ends_whatever_comes_late() {
        const SECOND_NS: u64 = 1_000_000_000;
        let leases = Leases::new(SpgId::default());
        let ends = |at_ns| leases.covers(at_ns) && !leases.covers(at_ns + 1);
        leases.ask(SECOND_NS);
        leases.serve(&[OsdId(1), OsdId(2)], Duration::from_secs(1));
        let until_ns = SECOND_NS + held_ns(Duration::from_secs(1));
        assert!(ends(until_ns) && until_ns < 2 * SECOND_NS, "{until_ns}");
        leases.promised(OsdId(1), 4 * SECOND_NS);
        assert!(ends(until_ns), "the other one has not renewed its promise");
        leases.promised(OsdId(2), 3 * SECOND_NS);
        assert!(ends(3 * SECOND_NS));
        leases.promised(OsdId(2), 2 * SECOND_NS);
        assert!(ends(3 * SECOND_NS), "an answer that was overtaken takes nothing back");
        leases.promised(OsdId(7), 9 * SECOND_NS);
        assert!(ends(3 * SECOND_NS), "no member promised that");
        leases.start_over();
        assert!(!leases.covers(1) && leases.covered(3 * SECOND_NS));
    }
}
