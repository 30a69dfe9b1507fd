//! Short logs, and replicas that stand still: many writes are in flight while the log has no room for more of them, and a new
//! interval begins, with the same primary, in which all of them come again.
//!
//! A log is bounded, and so is what it knows of requests whose clients were away: with one of a few entries their resends
//! would be executed again, as with a long one after many more writes. Here the primary and its ways to the clients are well.

use std::time::Duration;

use carmine_osd::LogLimits;
use carmine_reactor::sim::SimStuck;

use crate::chaos::Chaos;
use crate::cluster::{Shape, name_of};

/// Requests that each client has in flight: more writes together than the log has entries.
pub(crate) const WINDOW: usize = 24;

/// Whether a seed is one of these.
pub(crate) fn is_drawn(seed: u64) -> bool {
    seed % 8 == 7
}

/// A cluster whose pool has one PG.
pub(crate) fn shape(rng: &mut fastrand::Rng) -> Shape {
    let log = LogLimits::new(rng.usize(72..90), rng.usize(1..5));
    let size = rng.u8(2..=3);
    Shape { pgs: 1, log, ..Shape::new(3, size, 1, 16 << 20) }
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
            9 => {
                let up_to = Duration::from_micros(self.rng.u64(1_000..400_000));
                self.say(format!("messages of {a} and {b} take up to {up_to:?} longer"));
                self.cluster.sim.delay(&a, &b, up_to);
                self.cluster.sim.delay(&b, &a, up_to);
            }
            10 => {
                let by = Duration::from_micros(self.rng.u64(..200_000));
                self.say(format!("each operation of {b}'s drive takes {by:?} longer"));
                if self.cluster.is_made(replica) {
                    self.cluster.disk(replica).slower(by);
                }
            }
            _ => {
                self.say(format!("{b} is killed, and starts again"));
                self.cluster.kill(replica);
                self.forget_dead();
                self.cluster.start(replica, 1);
            }
        }
        Ok(())
    }
}
