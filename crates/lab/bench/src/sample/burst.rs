//! Cores that the OSDs used in windows of 10 ms, which show how bursty they are. A mean over a second hides what a quota of 100 ms or a
//! neighbour feels.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use carmine_metrics::Histogram;

use carmine_load::samples::CoresUsed;

/// Cores are counted in thousandths.
const MILLI: f64 = 1_000.0;

/// Reads the run time of all OSD threads again and again, from files that stay open. The kernel brings the run time of a
/// thread that is running up to date at its timer ticks: with 250 ticks a second a window is off by up to 4 ms a thread,
/// which evens out in the percentiles but makes `max` up to 40 % too high.
#[derive(Debug, Default)]
pub(super) struct Burst {
    proc: PathBuf,
    pids: Vec<u32>,
    threads: BTreeMap<u32, (File, u64)>,
    last: Option<Instant>,
    milli_cores: Histogram,
}

impl Burst {
    pub(super) fn new(proc: &Path, pids: Vec<u32>) -> Burst {
        let mut burst = Burst { proc: proc.to_owned(), pids, ..Burst::default() };
        burst.find_threads();
        burst
    }

    /// Opens the files of threads that are new.
    pub(super) fn find_threads(&mut self) {
        for pid in &self.pids {
            let tasks = std::fs::read_dir(self.proc.join(format!("{pid}/task")));
            for task in tasks.into_iter().flatten().flatten() {
                let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok());
                if let Some(Entry::Vacant(place)) = tid.map(|tid| self.threads.entry(tid))
                    && let Ok(file) = File::open(task.path().join("schedstat"))
                {
                    let run_ns = run_ns(&file).unwrap_or(0);
                    place.insert((file, run_ns));
                }
            }
        }
    }

    /// Ends one window and begins the next. Threads that ended are forgotten.
    pub(super) fn sample(&mut self) {
        let now = Instant::now();
        let mut used_ns = 0;
        self.threads.retain(|_, (file, before)| match run_ns(file) {
            Some(run_ns) => {
                used_ns += run_ns.saturating_sub(*before);
                *before = run_ns;
                true
            }
            None => false,
        });
        if let Some(last) = self.last.replace(now) {
            let wall_ns = now.duration_since(last).as_nanos().max(1) as f64;
            self.milli_cores.record((used_ns as f64 / wall_ns * MILLI) as u64);
        }
    }

    /// Percentiles over all windows; `None` if there was none.
    pub(super) fn cores_used(&self) -> Option<CoresUsed> {
        let h = &self.milli_cores;
        let at = |percent| h.percentile(percent) as f64 / MILLI;
        (!h.is_empty()).then(|| CoresUsed { p50: at(50.0), p99: at(99.0), max: h.max() as f64 / MILLI })
    }
}

/// The first number of a thread's `schedstat`: nanoseconds on a CPU.
fn run_ns(file: &File) -> Option<u64> {
    let mut bytes = [0u8; 64];
    let len = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(bytes.get(..len)?).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn counts_cores_of_threads_and_forgets_ended_ones() {
        let root = tempfile::tempdir().unwrap();
        let task = |tid: u32| root.path().join(format!("7/task/{tid}"));
        let set = |tid: u32, ns: u64| {
            std::fs::create_dir_all(task(tid)).unwrap();
            std::fs::write(task(tid).join("schedstat"), format!("{ns:020} 5 6\n")).unwrap();
        };
        set(1, 1_000);
        set(2, 1_000);
        let mut burst = Burst::new(root.path(), vec![7]);
        burst.sample();
        assert!(burst.cores_used().is_none());
        std::thread::sleep(Duration::from_millis(20));
        set(1, 1_000 + 2_000_000_000);
        // More than was possible in the time: it only matters that both threads are counted.
        burst.sample();
        let used = burst.cores_used().unwrap();
        assert!(used.max > 1.0 && used.p50 > 1.0, "{used:?}");
        std::fs::write(task(2).join("schedstat"), "").unwrap();
        burst.sample();
        assert_eq!(burst.threads.len(), 1);
    }
}
