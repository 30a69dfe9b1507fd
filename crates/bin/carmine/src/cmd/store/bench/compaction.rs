//! `--compaction`: RocksDB merges its tables all the time beside a load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::anyhow;
use carmine_store::{Kv, KvBatch, KvError};

/// A key of `blue` never begins with it: a mount does not look at what is there.
const FILLER: u8 = b'~';
/// About an onode with a small block map.
const VALUE_BYTES: usize = 400;
/// Of one commit.
const BATCH_BYTES: u64 = 1 << 20;

/// Writes this many bytes for the compactions to move, then waits until RocksDB is idle.
///
/// # Errors
/// They could not be written.
pub(super) fn fill(kv: &dyn Kv, bytes: u64) -> Result<(), KvError> {
    let mut written = 0;
    while written < bytes {
        let mut batch = KvBatch::with_capacity(BATCH_BYTES as usize);
        while (batch.bytes() as u64) < BATCH_BYTES {
            let number = written + batch.bytes() as u64;
            let key = [&[FILLER][..], &number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat();
            batch.put(&key, &[number as u8; VALUE_BYTES]);
        }
        written += batch.bytes() as u64;
        kv.commit(&[batch], false)?;
    }
    kv.flush()?;
    kv.compact()
}

/// Compacts until it is ended.
pub(super) struct Compactor {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), KvError>>,
}

impl Compactor {
    /// Starts a thread that only waits: RocksDB's own do the work.
    ///
    /// # Errors
    /// There can be no thread.
    pub(super) fn start(kv: Arc<dyn Kv>) -> anyhow::Result<Compactor> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let compact = move || -> Result<(), KvError> {
            while !stopped.load(Ordering::Relaxed) {
                kv.compact()?;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("compactor".into()).spawn(compact)?;
        Ok(Compactor { stop, thread })
    }

    /// Lets the compaction that runs come to its end.
    ///
    /// # Errors
    /// One has failed.
    pub(super) fn end(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread that compacts panicked"))??;
        Ok(())
    }
}
