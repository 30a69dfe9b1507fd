//! Work that a store puts off (RocksDB's memtables and compaction): it is waited for before the load, so that no earlier
//! load is paid for, and after it, so that its CPU time is charged to the operations that caused it.

use std::time::{Duration, Instant};

use carmine_load::window::{DrainWindow, Window};

use super::Controller;
use crate::bench::bed::Reading;
use crate::sample::Snapshot;

/// Time between two looks at the OSDs' threads.
const LOOK: Duration = Duration::from_millis(100);
/// An OSD is quiet while its threads that are not reactors are on a CPU (or ready for one) for less than this part of the
/// time …
const QUIET: f64 = 0.05;
/// … for so many looks in a row.
const QUIET_LOOKS: u32 = 3;
/// After this the work is left undone, and the result says so.
const LIMIT: Duration = Duration::from_secs(15);

impl Controller<'_> {
    /// Waits until the OSDs do nothing any more, and tells what it took since `start`.
    pub(super) async fn drain(&mut self, start: &Reading) -> anyhow::Result<DrainWindow> {
        let began = Instant::now();
        let mut last_ns = 0;
        let mut last = Instant::now();
        let mut quiet = 0;
        loop {
            self.shard.sleep(LOOK).await;
            let window = self.window_until(start, &self.setup.bed.sampler.sample()?);
            let occupied_ns: u64 = window.osds.iter().map(|o| o.alien_occupied_ns()).sum();
            let osds = window.osds.len().max(1) as f64;
            let part = occupied_ns.saturating_sub(last_ns) as f64 / (last.elapsed().as_nanos() as f64 * osds);
            (last_ns, last) = (occupied_ns, Instant::now());
            quiet = if part < QUIET { quiet + 1 } else { 0 };
            let finished = quiet >= QUIET_LOOKS;
            if finished || began.elapsed() > LIMIT {
                let cpu_ns = window.osds.iter().map(|o| o.alien_ns()).sum();
                return Ok(DrainWindow { wall_ns: window.wall_ns, cpu_ns, finished });
            }
            self.look().await?;
        }
    }

    /// A window that ended without a word from the OSDs: which threads are reactors is known, their clocks stand still.
    fn window_until(&self, start: &Reading, end: &Snapshot) -> Window {
        let mut window = self.setup.bed.sampler.window(&start.kernel, end, 0.0);
        for (osd, dump) in window.osds.iter_mut().zip(&start.osds) {
            dump.clocks.add_to(&dump.clocks, osd);
        }
        window
    }
}
