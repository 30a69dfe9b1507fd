//! Short logs, and replicas that stand still: many writes are in flight while the log has no room for more of them, and a new
//! interval begins, with the same primary, in which all of them come again.
//!
//! A log is bounded, and so is its memory of requests whose answers were lost: a request that was answered and comes again after
//! as many writes as a log of a few entries has would be executed again, as it would after 3,000 writes with Ceph's. Here no answer
//! is lost, and clients are far from the monitor: before they send their requests again, the primary serves in the new interval, and
//! their answers are there. Seed 23 finds a log that is trimmed past writes that are not committed.

use std::time::Duration;

use carmine_osd::LogLimits;
use carmine_reactor::sim::SimStuck;

use crate::chaos::Chaos;
use crate::cluster::{Cluster, Shape, name_of};
use crate::load::Pace;

/// Requests that each client has in flight: more writes together than the log has entries.
pub(crate) const WINDOW: usize = 24;
/// Its window is full soon when nothing is answered, and nearly empty when a primary answers at once.
pub(crate) const PACE: Pace = Pace { pause_us: 6_000, rest_us: 60_000 };

/// Whether a seed is one of these.
pub(crate) fn is_drawn(seed: u64) -> bool {
    seed % 8 == 7
}

/// Delays between the monitor and a client, of which each seed has one: the OSDs receive a new map long before clients do.
const DISTANCES_MS: [u64; 3] = [5, 20, 60];
/// Memory for requests: a read of a whole object counts as a large one, and resends must not wait for room.
const REQUEST_BYTES: usize = 8 << 30;

/// A cluster whose pool has one PG.
pub(crate) fn shape(rng: &mut fastrand::Rng) -> Shape {
    let log = LogLimits::new(rng.usize(30..45), rng.usize(1..5));
    let size = rng.u8(2..=3);
    Shape { pgs: 1, log, request_bytes: REQUEST_BYTES, ..Shape::new(3, size, 1, 16 << 20) }
}

/// Moves a client away from the monitor.
pub(crate) fn part(cluster: &Cluster, client: &str, seed: u64) {
    let ms = DISTANCES_MS[(seed / 8) as usize % DISTANCES_MS.len()];
    cluster.sim.set_distance("mon", client, Duration::from_millis(ms));
}

impl Chaos {
    /// One fault of a replica, or of its way to the primary, or the end of one.
    ///
    /// # Errors
    /// A task panicked, or the monitor does not answer.
    pub(crate) fn lag(&mut self) -> Result<(), SimStuck> {
        let Some(primary) = self.cluster.primary(0)? else { return Ok(()) };
        let others: Vec<u32> = (0..self.cluster.shape.osds).filter(|osd| *osd != primary).collect();
        let replica = others[self.rng.usize(..others.len())];
        let (a, b) = (name_of(primary), name_of(replica));
        match self.rng.u32(..12) {
            0..=2 => self.stop_osd(replica),
            3 | 4 => self.go_on(),
            5 | 6 => {
                self.say(format!("{b} is cut off from the other OSDs"));
                for other in (0..self.cluster.shape.osds).filter(|osd| *osd != replica) {
                    self.cut_both_ways(&name_of(other), &b);
                }
            }
            7 => self.mend(),
            8 => {
                self.say(format!("connections of {a} with {b} break"));
                self.cluster.sim.reset_connections(&a, &b, false);
            }
            9 => self.delay(&a, &b),
            10 => {
                let by = Duration::from_micros(self.rng.u64(..200_000));
                self.say(format!("each operation of {b}'s drive takes {by:?} longer"));
                if self.cluster.is_made(replica) {
                    self.cluster.disk(replica).slower(by);
                }
            }
            _ => {
                self.say(format!("{b} is killed, and starts again"));
                self.end(replica, None);
                self.cluster.start(replica, 1);
            }
        }
        Ok(())
    }
}
