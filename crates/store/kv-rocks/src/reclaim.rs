//! Space of what was removed comes back when tables are merged. RocksDB merges them when more is written, and a store that is full
//! writes no more: then all tables are merged at once, on a thread of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rocksdb::{BottommostLevelCompaction, CompactOptions, DB};

use crate::{LOG_FAMILY, MAIN_FAMILY};

/// Time between two merges, at least, …
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// … and this many times as long as the last one took.
const PAUSE_FACTOR: u32 = 4;

/// Merges of everything, one at a time.
#[derive(Default)]
pub(crate) struct Reclaim(Mutex<Last>);

#[derive(Default)]
struct Last {
    /// It runs, or nobody has looked since it ended; gives its end, and how long it took.
    thread: Option<JoinHandle<(Instant, Duration)>>,
    not_before: Option<Instant>,
    /// Commits when it began.
    commits: u64,
}

impl Reclaim {
    /// Begins one, unless one runs, none is due, or nothing was committed since the last; so far there were `commits`.
    pub(crate) fn begin(&self, db: &Arc<DB>, commits: u64) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok((end, took))) =
            last.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join)
        {
            last.not_before = Some(end + PAUSE_MIN.max(took * PAUSE_FACTOR));
        }
        let is_due = last.not_before.is_none_or(|due| Instant::now() >= due);
        if last.thread.is_some() || !is_due || commits == last.commits {
            return;
        }
        let db = Arc::clone(db);
        let merge = move || {
            let start = Instant::now();
            compact(&db);
            (Instant::now(), start.elapsed())
        };
        // Without a thread it is tried again at the next look.
        last.thread = std::thread::Builder::new().name("kv-reclaim".into()).spawn(merge).ok();
        last.commits = commits;
    }

    /// Waits for the end of the one that runs.
    pub(crate) fn end(&self) {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).thread.take();
        let _ = thread.map(JoinHandle::join); // how it ended makes no difference any more
    }
}

/// Merges all tables, down to the last level, beside the compactions that RocksDB finds necessary itself.
pub(crate) fn compact(db: &DB) {
    let mut all = CompactOptions::default();
    all.set_exclusive_manual_compaction(false);
    all.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    for family in [MAIN_FAMILY, LOG_FAMILY].into_iter().filter_map(|name| db.cf_handle(name)) {
        db.compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &all);
    }
}
