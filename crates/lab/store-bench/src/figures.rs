//! The cost of a load on a bare store: the counters of its reactors and of the store, and the kernel's of this process, at both
//! ends of the window.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use carmine_bench::sample::{Sampler, Snapshot, WatchedOsd};
use carmine_bench::steering::Measured;
use carmine_load::LoadSpec;
use carmine_load::window::ProcessWindow;
use carmine_metrics::{Histogram, MetricSet};
use carmine_reactor::{ReactorStats, Shard};
use carmine_store::{Store, StoreStats};
use serde_json::{Value, json};

/// How often a shard shows its counters: at the window's ends they are at most this old.
const SHOW_EVERY: Duration = Duration::from_millis(2);

/// The cost of one load.
pub(super) struct Cost {
    measured: Measured,
    latency_ns: Histogram,
    ops: f64,
    bytes: f64,
    begin: Counters,
    end: Counters,
    process: ProcessWindow,
    /// CPU time of writing out memory, and of merging tables.
    rocksdb_ns: (u64, u64),
    machine_busy_ns: u64,
}

/// A figure: its name in JSON, its column (title, width, digits behind the point) if it has one, and its value.
type Figure = (&'static str, Option<(&'static str, usize, usize)>, fn(&Cost) -> f64);

/// `_us` are microseconds of CPU per operation, but for the latencies. Those of the process and the machine are without spinning.
const FIGURES: [Figure; 24] = [
    ("iops", Some(("IOPS", 8, 0)), |c| c.ops / c.measured.seconds.max(1e-9)),
    ("mean_us", Some(("mean us", 8, 1)), |c| c.latency_ns.mean() / 1e3),
    ("p99_us", Some(("p99 us", 8, 1)), |c| c.latency_ns.percentile(99.0) as f64 / 1e3),
    // For each core that the process used.
    ("iops_per_core_used", Some(("IOPS/core", 9, 0)), |c| c.ops * 1e9 / (c.process.cpu_ns as f64).max(1.0)),
    ("process_us", Some(("CPU us", 8, 2)), |c| c.us(c.process.cpu_ns as f64 - c.spin_ns())),
    ("reactor_us", Some(("reactor", 8, 2)), |c| c.us(c.grown(|all| all.reactor.busy_ns))),
    ("alien_us", Some(("alien", 8, 2)), |c| c.us(c.grown(|all| all.reactor.alien_busy_ns))),
    // The part of the aliens that feeds RocksDB.
    ("feeder_us", Some(("feeder", 7, 2)), |c| c.us(c.grown(|all| all.store.feeder_cpu_ns))),
    // RocksDB's own threads: those that write out memory, and those that merge tables.
    ("rocksdb_us", Some(("rocksdb", 7, 2)), |c| c.us((c.rocksdb_ns.0 + c.rocksdb_ns.1) as f64)),
    ("compaction_us", Some(("compact", 7, 2)), |c| c.us(c.rocksdb_ns.1 as f64)),
    ("machine_us", Some(("machine", 8, 2)), |c| c.us(c.machine_busy_ns as f64 - c.spin_ns())),
    ("flushes_per_op", Some(("flush/op", 8, 3)), |c| c.per_op(|all| all.store.flushes)),
    // Bytes for each byte of the load: to the log, to the device with the log, and by the process to all drives.
    ("log_per_byte", Some(("B/B log", 8, 2)), |c| c.grown(|all| all.store.log_bytes) / c.bytes),
    ("written_per_byte", Some(("B/B dev", 8, 2)), |c| {
        c.grown(|all| all.store.device_write_bytes + all.store.log_bytes) / c.bytes
    }),
    ("process_written_per_byte", Some(("B/B all", 7, 2)), |c| c.process.device_write_bytes as f64 / c.bytes),
    ("enters_per_op", Some(("enter/op", 8, 2)), |c| c.per_op(|all| all.reactor.enters)),
    // Transactions that were held back because RocksDB was behind, and groups that waited for room in the log.
    ("waits", Some(("waits", 6, 0)), |c| c.grown(|all| all.store.held_back + all.store.log_waits)),
    ("device_writes_per_op", None, |c| c.per_op(|all| all.store.device_writes)),
    // Groups that the log took, and times that one of them waited for room in it.
    ("groups_per_op", None, |c| c.per_op(|all| all.store.groups)),
    ("log_waits_per_op", None, |c| c.per_op(|all| all.store.log_waits)),
    // Operations whose data went into the log first.
    ("deferred_per_op", None, |c| c.per_op(|all| all.store.deferred_txns)),
    ("kv_commits_per_op", None, |c| c.per_op(|all| all.store.kv_commits)),
    ("copied_per_op_bytes", None, |c| c.per_op(|all| all.store.bytes_copied)),
    ("rss_bytes", None, |c| c.process.rss_bytes as f64),
];

/// Column titles of [`Cost::text`].
pub(super) fn header() -> String {
    let columns = FIGURES.iter().filter_map(|(_, column, _)| *column);
    let titles: String = columns.map(|(title, width, _)| format!(" {title:>width$}")).collect();
    format!("{:<10} depth{titles}", "rw")
}

impl Cost {
    pub(super) fn new(
        spec: &LoadSpec,
        measured: Measured,
        sampler: &Sampler,
        [(begin, kernel_begin), (end, kernel_end)]: [(Counters, Snapshot); 2],
    ) -> Cost {
        let mut window = sampler.window(&kernel_begin, &kernel_end, 0.0);
        let own = window.osds.pop().unwrap_or_default();
        let mut latency_ns = measured.result.read.latency_ns.clone();
        latency_ns.merge(&measured.result.write.latency_ns);
        let ops = (measured.result.ops() as f64).max(1.0);
        Cost {
            measured,
            latency_ns,
            ops,
            bytes: ops * spec.bs_bytes as f64,
            begin,
            end,
            rocksdb_ns: own.rocksdb_ns(),
            process: own.process,
            machine_busy_ns: window.machine.busy_ns,
        }
    }

    fn grown(&self, of: fn(&Counters) -> u64) -> f64 {
        of(&self.end).saturating_sub(of(&self.begin)) as f64
    }

    fn per_op(&self, of: fn(&Counters) -> u64) -> f64 {
        self.grown(of) / self.ops
    }

    fn us(&self, ns: f64) -> f64 {
        ns / self.ops / 1e3
    }

    fn spin_ns(&self) -> f64 {
        self.grown(|all| all.reactor.spin_ns)
    }

    /// One line, as [`header`] has it.
    pub(super) fn text(&self, spec: &LoadSpec, compacting: bool) -> String {
        let columns = FIGURES.iter().filter_map(|(_, column, of)| Some((*column)?).zip(Some(of(self))));
        let cells: String =
            columns.map(|((_, width, digits), value)| format!(" {value:>width$.digits$}")).collect();
        let compacting = if compacting { "  compacting" } else { "" };
        format!("{:<10} {:>5}{cells}{compacting}", spec.rw, spec.iodepth)
    }

    /// The same and more for the file of `--json`. `compacting`: RocksDB was made to compact all the time.
    pub(super) fn json(&self, spec: &LoadSpec, compacting: bool) -> Value {
        let mut row = json!({
            "rw": spec.rw, "bs_bytes": spec.bs_bytes, "iodepth": spec.iodepth, "reactors": spec.numjobs,
            "compacting": compacting,
        });
        for (name, _, of) in FIGURES {
            let value = of(self);
            row[name] = if value.fract() == 0.0 { json!(value as i64) } else { json!(value) };
        }
        row
    }
}

/// The counters of one shard, or of all.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    reactor: ReactorStats,
    store: StoreStats,
}

/// Where the shards show their counters.
pub(super) struct Board(Mutex<Vec<Counters>>);

impl Board {
    pub(super) fn new(shards: u32) -> Board {
        Board(Mutex::new(vec![Counters::default(); shards as usize]))
    }

    /// Shows a shard's counters as long as it runs.
    pub(super) async fn show(&self, shard: &Shard, store: &Store) {
        loop {
            let counters = Counters { reactor: shard.stats(), store: store.stats() };
            // Held for a copy only, by the controller too.
            if let Some(place) = self.shards().get_mut(usize::from(shard.id().0)) {
                *place = counters;
            }
            shard.sleep(SHOW_EVERY).await;
        }
    }

    fn shards(&self) -> std::sync::MutexGuard<'_, Vec<Counters>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of all shards together.
    pub(super) fn sum(&self) -> Counters {
        self.shards().iter().fold(Counters::default(), |mut all, shard| {
            all.reactor.merge_from(&shard.reactor);
            all.store.merge_from(&shard.store);
            all
        })
    }
}

/// Watches this process.
pub(super) fn own_sampler() -> Sampler {
    let me = WatchedOsd { id: 0, pid: std::process::id(), alien_cpus: 0 };
    Sampler::new(vec![me], Vec::new(), Vec::new())
}
