//! When PGs are scrubbed: one after the other on each reactor, at Ceph's intervals with jitter, or on request.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::with_timeout;
use carmine_pgtypes::Scrubbed;
use carmine_reactor::Group;
use carmine_reactor::sync::Notify;
use carmine_types::{ScrubStamp, UTime};
use carmine_wire::scrub::OsdScrub;

use super::Order;
use super::run::{End, Run, may_begin};
use crate::config::ScrubOptions;
use crate::pg::Pg;
use crate::shard::OsdShard;

/// Time between two checks for due scrubs.
const TICK: Duration = Duration::from_secs(5);
/// A scrub that failed is tried again after this time.
const RETRY: Duration = Duration::from_secs(60);
/// Load up to which a scrub runs that could still wait (Ceph's osd_scrub_load_threshold), percent.
const BUSY_PERCENT: u64 = 50;

/// The state that a reactor's scrubs share.
#[derive(Default)]
pub(crate) struct Scrubber {
    /// Notified when a scrub is requested.
    wake: Notify,
    /// Busy time and total time at the last check, nanoseconds.
    clocks: Cell<(u64, u64)>,
}

/// When the next scrubs of a PG are due, by the reactor's clock in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// A scrub, if the reactor is not busy, …
    light_ns: u64,
    /// … and however busy it is.
    latest_ns: u64,
    /// From then on it is a deep one.
    deep_ns: u64,
}

/// Times since the last scrub, and since the last deep one; `None`: there was none.
#[derive(Clone, Copy, Debug, Default)]
struct Ages {
    light: Option<Duration>,
    deep: Option<Duration>,
}

impl Ages {
    fn new(scrubs: Scrubbed, unix_now: Duration) -> Ages {
        let age = |stamp: ScrubStamp| {
            let is_known = stamp != ScrubStamp::default();
            is_known.then(|| unix_now.saturating_sub(stamp.time.to_unix()))
        };
        Ages { light: age(scrubs.last), deep: age(scrubs.last_deep) }
    }
}

impl Due {
    /// Plans the scrubs of a PG that this OSD begins to lead, or after options changed. A PG that was never scrubbed is due at a
    /// random time within the intervals, and none is due at once: a cluster that starts has other work first.
    fn planned(options: &ScrubOptions, now_ns: u64, ages: Ages, mut random: impl FnMut() -> u64) -> Due {
        let first_ns = now_ns + ns(options.min_interval / 24);
        let mut turn = |interval: Duration, jitter: Duration, age: Option<Duration>| match age {
            None => first_ns + random() % spread_ns(interval),
            Some(age) => {
                let left_ns = ns(interval.saturating_sub(age)).saturating_add(random() % spread_ns(jitter));
                now_ns.saturating_add(left_ns).max(first_ns)
            }
        };
        let light_ns = turn(options.min_interval, options.min_interval / 2, ages.light);
        let deep_ns = turn(options.deep_interval, options.min_interval / 2, ages.deep);
        Due { deep_ns, ..Due::after(options, light_ns) }
    }

    fn after(options: &ScrubOptions, light_ns: u64) -> Due {
        let slack = options.max_interval.saturating_sub(options.min_interval);
        Due { light_ns, latest_ns: light_ns.saturating_add(ns(slack)), deep_ns: light_ns }
    }

    /// Plans the next scrubs after one that ended at `now_ns`.
    fn done(self, options: &ScrubOptions, deep: bool, now_ns: u64, mut random: impl FnMut() -> u64) -> Due {
        // At most half of the interval is added (osd_scrub_interval_randomize_ratio).
        let jitter_ns = random() % spread_ns(options.min_interval / 2);
        let next =
            Due::after(options, now_ns.saturating_add(ns(options.min_interval)).saturating_add(jitter_ns));
        Due {
            deep_ns: if deep { now_ns.saturating_add(ns(options.deep_interval)) } else { self.deep_ns },
            ..next
        }
    }

    /// The scrub to begin at this time, deep or not. `may` says whether flags allow a deep one, or a light one.
    fn order(self, now_ns: u64, is_busy: bool, may: impl Fn(bool) -> bool) -> Option<Order> {
        let deep = now_ns >= self.deep_ns && may(true);
        let is_due = deep || now_ns >= self.light_ns;
        let may_wait = is_busy && now_ns < self.latest_ns;
        let begins = is_due && !may_wait && (deep || may(false));
        begins.then_some(Order { deep, ..Order::default() })
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A time as a divisor, in nanoseconds.
fn spread_ns(time: Duration) -> u64 {
    ns(time).max(1)
}

/// Scrubs this reactor's PGs for as long as it runs.
pub(crate) fn start(osd: &Rc<OsdShard>) {
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Scrub, "scrub", async move {
        while !own.stopping.get() {
            let _ = with_timeout(&own.shard, TICK, own.scrubber.wake.notified()).await;
            let is_busy = own.scrubber.is_busy(&own);
            while let Some((pg, order)) = next(&own, is_busy)
                && !own.stopping.get()
            {
                scrub(&own, &pg, order).await;
            }
        }
    });
}

impl Scrubber {
    /// Whether the reactor was busy for most of the time since the last check.
    fn is_busy(&self, osd: &OsdShard) -> bool {
        let stats = osd.shard.stats();
        let now = (stats.busy_ns, stats.wall_ns);
        let before = self.clocks.replace(now);
        let (busy_ns, wall_ns) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
        busy_ns > wall_ns / 100 * BUSY_PERCENT
    }
}

/// The PG to scrub next: a requested one, else one that is due.
fn next(osd: &OsdShard, is_busy: bool) -> Option<(Rc<Pg>, Order)> {
    let pgs = osd.pgs.borrow();
    let ready = || pgs.values().filter(|pg| pg.peer.leads() && pg.peer.is_clean());
    let wanted = ready().find_map(|pg| pg.scrub.wanted.take().map(|order| (Rc::clone(pg), order)));
    wanted.or_else(|| ready().find_map(|pg| pg.due(osd, is_busy).map(|order| (Rc::clone(pg), order))))
}

async fn scrub(osd: &Rc<OsdShard>, pg: &Rc<Pg>, order: Order) {
    let stamp = ScrubStamp { version: pg.peer.last_update(), time: UTime::from_unix(osd.shard.unix_now()) };
    pg.scrub.running.set(Some(order));
    let mut run = Run::new(osd, pg, order);
    let ended = match run.all().await {
        Ok(()) => run.record(stamp).await,
        ended => ended,
    };
    pg.scrub.running.set(None);
    match ended {
        Ok(()) => pg.scrubbed(osd, run),
        Err(End::Interval) if order.is_commanded && pg.peer.leads() => {
            // It starts again when the PG is active.
            let newer = pg.scrub.wanted.take();
            pg.scrub.wanted.set(newer.or(Some(order)));
        }
        Err(End::Interval | End::Flag) => tracing::debug!("pg {}: the scrub was given up", pg.id),
        Err(End::Failed(why)) => {
            tracing::warn!("pg {}: the scrub failed: {why}", pg.id);
            pg.try_later(osd.shard.now_ns());
        }
    }
}

impl Pg {
    /// The scrub that is due, if any.
    fn due(&self, osd: &OsdShard, is_busy: bool) -> Option<Order> {
        let now_ns = osd.shard.now_ns();
        let due = self.scrub.due.get().unwrap_or_else(|| {
            let ages = Ages::new(self.peer.log().info().scrubs, osd.shard.unix_now());
            let due = Due::planned(&osd.options.borrow().scrub, now_ns, ages, || osd.shard.random_u64());
            self.scrub.due.set(Some(due));
            due
        });
        due.order(now_ns, is_busy, |deep| may_begin(osd, self, deep))
    }

    /// Notes the end of a scrub.
    fn scrubbed(&self, osd: &OsdShard, run: Run) {
        let (order, errors, repaired) = (run.order, run.found.errors, run.repaired);
        let kind = if order.deep { "deep-scrub" } else { "scrub" };
        match (errors, repaired) {
            (0, 0) => tracing::info!("pg {}: {kind} ok", self.id),
            _ => tracing::error!("pg {}: {kind}: {errors} errors, {repaired} objects repaired", self.id),
        }
        osd.metrics.borrow_mut().scrubs += 1;
        *self.scrub.found.borrow_mut() = run.found;
        if !order.deep && errors > 0 && osd.options.borrow().scrub.auto_repair && !order.is_commanded {
            // Only a deep scrub can tell which copies are good.
            self.scrub.wanted.set(Some(Order { deep: true, ..Order::default() }));
        }
        if let Some(due) = self.scrub.due.get() {
            let options = osd.options.borrow();
            let next = due.done(&options.scrub, order.deep, osd.shard.now_ns(), || osd.shard.random_u64());
            self.scrub.due.set(Some(next));
        }
    }

    /// The options changed: plans all scrubs again.
    pub(crate) fn plan_scrubs_anew(&self) {
        self.scrub.due.set(None);
    }

    fn try_later(&self, now_ns: u64) {
        let later = |due: Due| {
            let at = now_ns + ns(RETRY);
            Due {
                light_ns: due.light_ns.max(at),
                latest_ns: due.latest_ns.max(at),
                deep_ns: due.deep_ns.max(at),
            }
        };
        self.scrub.due.set(self.scrub.due.get().map(later));
    }
}

/// Requests scrubs; `scrub.pgs` are PGs that this OSD leads.
pub(crate) fn order(osd: &OsdShard, scrub: &OsdScrub) {
    let order = Order { deep: scrub.deep || scrub.repair, repair: scrub.repair, is_commanded: true };
    for id in scrub.pgs.iter().copied() {
        let Some(owner) = osd.owner(id) else { continue };
        OsdShard::run_on(&osd.shard, owner, move |osd| {
            if let Some(pg) = osd.pg(id).filter(|pg| pg.peer.leads()) {
                pg.scrub.wanted.set(Some(order));
                osd.scrubber.wake.notify_one();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: u64 = 86_400_000_000_000;
    const HOUR_NS: u64 = DAY_NS / 24;

    fn due() -> Due {
        Due { light_ns: 10, latest_ns: 20, deep_ns: 15 }
    }

    fn kinds(due: Due, is_busy: bool, may: impl Fn(bool) -> bool) -> Vec<(u64, bool)> {
        let orders = (0..30).filter_map(|now| due.order(now, is_busy, &may).map(|order| (now, order.deep)));
        let mut kinds: Vec<(u64, bool)> = Vec::new();
        for (now, deep) in orders {
            if kinds.last().is_none_or(|(_, last)| *last != deep) {
                kinds.push((now, deep));
            }
        }
        kinds
    }

    #[test]
    fn a_scrub_begins_when_it_is_due_and_a_busy_reactor_waits_no_longer_than_the_latest_time() {
        assert_eq!(kinds(due(), false, |_| true), [(10, false), (15, true)]);
        assert_eq!(kinds(due(), true, |_| true), [(20, true)]);
    }

    #[test]
    fn flags_forbid_each_kind() {
        assert_eq!(kinds(due(), false, |deep| !deep), [(10, false)]);
        assert_eq!(kinds(due(), false, |deep| deep), [(15, true)]);
        assert_eq!(kinds(due(), false, |_| false), []);
    }

    #[test]
    fn a_new_primary_goes_on_from_the_last_scrubs() {
        let options = ScrubOptions::default();
        let due = |light_h: u64, deep_h: u64| {
            let age = |hours: u64| Some(Duration::from_secs(3600 * hours));
            Due::planned(&options, 5, Ages { light: age(light_h), deep: age(deep_h) }, || 0)
        };
        let soon = due(10, 100);
        assert_eq!((soon.light_ns, soon.deep_ns), (5 + 14 * HOUR_NS, 5 + 68 * HOUR_NS));
        let late = due(1000, 1000);
        assert_eq!((late.light_ns, late.deep_ns), (5 + HOUR_NS, 5 + HOUR_NS), "not at once");
    }

    #[test]
    fn intervals_are_those_of_the_options_with_jitter() {
        let options = ScrubOptions::default();
        for random in [0, 1, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
            let begin = Due::planned(&options, 5, Ages::default(), || random);
            let begin = Due { light_ns: begin.light_ns - HOUR_NS, deep_ns: begin.deep_ns - HOUR_NS, ..begin };
            assert!(
                (5..5 + DAY_NS).contains(&begin.light_ns) && (5..5 + 7 * DAY_NS).contains(&begin.deep_ns)
            );
            let light = begin.done(&options, false, 0, || random);
            assert!((DAY_NS..DAY_NS + DAY_NS / 2).contains(&light.light_ns));
            assert_eq!((light.latest_ns - light.light_ns, light.deep_ns), (6 * DAY_NS, begin.deep_ns));
            assert_eq!(begin.done(&options, true, 0, || random).deep_ns, 7 * DAY_NS);
        }
    }
}
