//! What reactors and store say of themselves, and the kernel of this process, at one moment.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use carmine_bench::sample::{Sampler, Snapshot, WatchedOsd};
use carmine_metrics::MetricSet;
use carmine_reactor::{ReactorStats, Shard};
use carmine_store::{Store, StoreStats};

/// How often a shard looks whether it is asked.
const LOOK: Duration = Duration::from_millis(2);
/// Time for the shards to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The question, and the shards' answers to it.
pub(super) struct Probe {
    shards: u32,
    /// Number of the question.
    asked: AtomicU32,
    answers: Mutex<Vec<ShardReading>>,
}

/// The counters of one shard, or of all.
#[derive(Clone, Copy, Default)]
pub(super) struct ShardReading {
    pub(super) reactor: ReactorStats,
    pub(super) store: StoreStats,
}

/// All counters of one moment.
pub(super) struct Reading {
    pub(super) all: ShardReading,
    pub(super) sampler: Sampler,
    pub(super) kernel: Snapshot,
}

impl Probe {
    pub(super) fn new(shards: u32) -> Probe {
        Probe { shards, asked: AtomicU32::new(0), answers: Mutex::default() }
    }

    /// Answers as long as the shard runs.
    pub(super) async fn answer(&self, shard: &Shard, store: &Store) {
        let mut seen = 0;
        loop {
            let asked = self.asked.load(Ordering::Acquire);
            if asked > seen {
                seen = asked;
                let reading = ShardReading { reactor: shard.stats(), store: store.stats() };
                // Held for the push only, by the controller too.
                self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(reading);
            }
            shard.sleep(LOOK).await;
        }
    }

    fn ask(&self) -> anyhow::Result<Vec<ShardReading>> {
        self.asked.fetch_add(1, Ordering::Release);
        let began = Instant::now();
        loop {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            if answers.len() == self.shards as usize {
                return Ok(std::mem::take(&mut *answers));
            }
            drop(answers);
            if began.elapsed() > LIMIT {
                bail!("the reactors did not answer for {} s", LIMIT.as_secs());
            }
            std::thread::sleep(LOOK / 4);
        }
    }
}

impl Reading {
    pub(super) fn take(probe: &Probe) -> anyhow::Result<Reading> {
        let mut all = ShardReading::default();
        for shard in probe.ask()? {
            all.reactor.merge_from(&shard.reactor);
            all.store.merge_from(&shard.store);
        }
        let me = WatchedOsd { id: 0, pid: std::process::id(), alien_cpus: 0 };
        let sampler = Sampler::new(vec![me], None, Vec::new());
        let kernel = sampler.sample()?;
        Ok(Reading { all, sampler, kernel })
    }
}
