//! The monitor's periodic work: it removes expired blocklist entries, marks silent OSDs down, takes OSDs out that
//! have been down for long, and goes on with splits of PGs.

use std::time::Duration;

use carmine_messenger::with_timeout;
use carmine_types::OsdId;
use tracing::warn;

use crate::change::Change;
use crate::mon::Mon;
use crate::options::OptionEdit;
use crate::report::health;

/// Longest sleep: the clock may be set meanwhile, and nobody tells of an OSD that is silent.
const LOOK: Duration = Duration::from_secs(5);
/// The same while PGs are to be split or moved, which waits for the OSDs' reports.
const PACE: Duration = Duration::from_secs(1);

impl Mon {
    /// Returns when there may be something to do: somebody wishes a change, or the time for one has come.
    pub(crate) async fn wait_for_work(&self) {
        let ends = self.current().map.blocklist.iter().map(|(_, until)| *until).min();
        let left = ends.map(|end| end.to_unix().saturating_sub(self.now().to_unix()));
        let look = if self.is_pacing() { PACE } else { LOOK };
        let _ = with_timeout(&self.shard, left.unwrap_or(look).min(look), self.wake.notified()).await;
        self.note(&self.current().map, Change::ExpireBlocklist);
        self.judge_failures();
        self.judge_beacons();
        self.judge_down();
        self.judge_mutes();
        self.judge_keys();
        self.judge_created();
        self.judge_pg_nums();
    }

    /// Notes the pools of which all PGs were active.
    pub(crate) fn judge_created(&self) {
        let current = self.current();
        let created = self.creating.borrow().created_pools(&current.map);
        created.into_iter().for_each(|pool| self.note(&current.map, Change::PoolCreated { pool }));
    }

    /// Forgets the mutes that have ended.
    fn judge_mutes(&self) {
        if self.options.borrow().mutes.is_empty() {
            return;
        }
        let codes = self.with_view(&[], health::ended_mutes);
        if !codes.is_empty() {
            self.change_options(OptionEdit::Unmute { codes }, Box::new(|_, _| {}));
        }
    }

    /// Calls down whom enough other OSDs found silent.
    pub(crate) fn judge_failures(&self) {
        let (current, now_ns, limits) = (self.current(), self.shard.now_ns(), &self.limits);
        let failures = self.failures.borrow();
        let failed =
            failures.failed(&current.map, now_ns, limits.heartbeat_grace, limits.min_down_reporters.into());
        for (osd, addrs) in failed {
            warn!("{osd} has not answered other OSDs for {:?}", limits.heartbeat_grace);
            self.note(&current.map, Change::Down { osd, addrs, is_dead: false });
        }
    }

    /// An OSD's next beacon comes after this interval, or not much later: one may be missing, whatever the configured time is (as in
    /// Ceph).
    pub(crate) fn await_beacon(&self, osd: OsdId, interval_s: u64) {
        let timeout = self.limits.report_timeout.max(2 * Duration::from_secs(interval_s));
        let due_ns = self.shard.now_ns() + timeout.as_nanos() as u64;
        self.beacons_due_ns.borrow_mut().insert(osd, due_ns);
    }

    /// Calls down whose beacons do not come any longer. One that is up and was not heard of yet counts from now on.
    fn judge_beacons(&self) {
        let (current, now_ns) = (self.current(), self.shard.now_ns());
        let first_ns = now_ns + self.limits.report_timeout.as_nanos() as u64;
        let mut due_ns = self.beacons_due_ns.borrow_mut();
        due_ns.retain(|osd, _| current.map.is_up(*osd));
        for osd in current.map.osds() {
            let Some(addrs) = current.map.client_addr(osd).cloned() else { continue };
            if now_ns >= *due_ns.entry(osd).or_insert(first_ns) {
                warn!("{osd} has sent no beacon for too long");
                self.note(&current.map, Change::Down { osd, addrs, is_dead: false });
            }
        }
    }

    /// Takes out of the placement who has been down for long. The time counts from when this monitor first saw it, as in Ceph.
    fn judge_down(&self) {
        let (current, now_ns) = (self.current(), self.shard.now_ns());
        let map = &current.map;
        let mut down = self.down_ns.borrow_mut();
        let waits = |osd: OsdId| !map.is_up(osd) && map.is_in(osd);
        down.retain(|osd, _| waits(*osd));
        for osd in map.osds().filter(|osd| waits(*osd)) {
            let since_ns = *down.entry(osd).or_insert(now_ns);
            let limit = self.limits.down_out_interval;
            if !limit.is_zero() && now_ns.saturating_sub(since_ns) >= limit.as_nanos() as u64 {
                self.note(map, Change::AutoOut { osd });
            }
        }
    }
}
