//! The shapes of a result: what `carmine` holds beside fio's `jobs`.

use carmine_metrics::SparseHistogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::baseline::Baseline;
use crate::drive::StoreFacts;
use crate::profile::Profile;
use crate::spec::LoadSpec;
use crate::verdict::{Limiter, MoreLoad};
use crate::window::{DeviceWindow, DrainWindow, MachineWindow, MetricsWindow, ReactorWindow};

/// Facts of a load beside its window; a part of its result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Setting {
    /// The plan that the testbed was started with.
    pub plan: Value,
    pub grid: Value,
    /// Machine, kernel, versions.
    pub host: Value,
    /// A CPU of the grid is shared with something else.
    pub shared: bool,
    /// The load ran inside the OSD: its CPU time is in the OSD's.
    pub in_process: bool,
    /// How the stores make writes durable: `flush`, `dsync` or `none`.
    pub flush_mode: String,
    /// It was asked for, not what the drives need.
    pub flush_forced: bool,
    /// The drives of data, log and database of each OSD, and how its store was treated for them; none for stores in memory, and
    /// for a peer.
    pub stores: Vec<StoreFacts>,
    pub cache_state: Option<CacheState>,
    /// The baselines of `--baseline`.
    pub baseline: Option<Baseline>,
    /// The history of the store before the window, and the work that it still had at its ends.
    pub conditions: Value,
    /// Findings of the doctor.
    pub doctor: Value,
    /// A short window with more load, made to confirm the limiter; `None` without `--confirm`.
    pub more_load: Option<MoreLoad>,
}

/// Facts that only the controller knows.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub setting: Setting,
    /// Distinct CPUs of reactors and aliens, or less where a quota gives them less time.
    pub allocated_cores: f64,
    /// CPUs that a foreign generator may use; `None` for our own.
    pub client_cpus: Option<u32>,
    /// Replicas of the pool.
    pub size: u32,
    /// Distinct block devices with the stores' data; `None` for stores in memory.
    pub drives: Option<u32>,
    /// Remarks: what could not be measured.
    pub marks: Vec<String>,
}

carmine_types::words! {
    /// The state of the OSDs' caches when the window began.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum CacheState: "cache state" {
        /// The OSDs have served nothing since their start.
        Cold = "cold",
        /// Metadata of the objects was loaded, their data was not.
        OnodeWarm = "onode-warm",
        /// The same load ran just before.
        Cached = "cached",
    }
}

/// Latencies of the window in nanoseconds; `None` for a direction without operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyHistograms {
    pub read: Option<SparseHistogram>,
    pub write: Option<SparseHistogram>,
}

/// CPU seconds of one OSD process in the window. Only OSDs that give their reactors' clocks have more than the kernel's total:
/// of others it is not known, which is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSeconds {
    /// Reactors doing work.
    pub busy: Option<f64>,
    /// Reactors looking for work.
    pub spin: Option<f64>,
    /// Reactors asleep.
    pub sleep: Option<f64>,
    /// Reactors ready, but without a CPU.
    pub wait: Option<f64>,
    /// Threads that are not reactors: with the three below.
    pub alien: Option<f64>,
    /// Of those, aliens that feed RocksDB.
    pub rocksdb_feeder: Option<f64>,
    /// Of those, RocksDB's threads that write out what is in memory only.
    pub rocksdb_flush: Option<f64>,
    /// Of those, RocksDB's threads that merge tables.
    pub rocksdb_compaction: Option<f64>,
    /// All threads, as the kernel counts.
    pub kernel_total: f64,
}

/// One OSD in a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OsdReport {
    pub id: u32,
    pub pid: u32,
    pub cpu_seconds: CpuSeconds,
    pub rss_bytes: u64,
    pub device_read_bytes: u64,
    pub device_write_bytes: u64,
    pub reactors: Vec<ReactorWindow>,
}

/// Client operations per second and core; `null` where CPUs are shared. CPU time that the OSDs spent on the load after its window
/// (`drain`) is in `used` and `busy`, as it is in the CPU time per operation: `used` is 1,000,000 / `osd_cpu_us_per_op`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerCore {
    /// Of the distinct CPUs of reactors and aliens, or of the time that a quota gives them.
    pub allocated: Option<f64>,
    /// Of the CPU seconds of all OSD processes, as the kernel counts them.
    pub used: Option<f64>,
    /// Of those less spinning.
    pub busy: Option<f64>,
}

/// The object `carmine`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    #[serde(flatten)]
    pub setting: Setting,
    pub load: LoadSpec,
    pub osds: Vec<OsdReport>,
    pub window_seconds: f64,
    pub iops: f64,
    /// Client IOPS × replicas of writes, as OSDs see it.
    pub osd_iops: f64,
    /// Operations in flight on average: IOPS × mean latency (Little's law); `None` if not every latency is known.
    pub ops_in_flight: Option<f64>,
    pub iops_per_core: PerCore,
    /// CPU time of all OSD processes, `drain` included.
    pub osd_cpu_us_per_op: Option<f64>,
    /// CPU time of the machine without the generator, the controller and the monitor, `drain` included.
    pub machine_cpu_us_per_op: Option<f64>,
    /// Processor cycles of the OSDs for each client operation. Absent where no hardware counts them (most virtual machines).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_op: Option<f64>,
    /// The same of instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_op: Option<f64>,
    pub client_cores_used: Option<f64>,
    pub hops_per_op: Option<f64>,
    pub device_reads_per_client_read: Option<f64>,
    /// Bytes that OSDs read from and wrote to block devices per byte that clients read and wrote; `None` for stores in memory.
    pub device_bytes_per_client_byte: Option<f64>,
    /// Bytes of all messages, those between OSDs included, per byte that clients read and wrote.
    pub wire_bytes_per_client_byte: Option<f64>,
    /// Client operations per second and drive under the stores.
    pub iops_per_drive: Option<f64>,
    pub latency_histogram: LatencyHistograms,
    /// `direct`, `single`, or `in-process`.
    pub route: String,
    /// Of the raw baselines of the same block size, depth, direction and flush mode.
    pub percent_of_device: Option<f64>,
    pub percent_of_messenger: Option<f64>,
    /// More than its raw baseline: a cache, or a mistake.
    pub above_baseline: bool,
    /// Time that a cgroup's CPU quota kept the OSDs from running; `None` without a quota.
    pub throttled_seconds: Option<f64>,
    /// Work that the OSDs still had after the window; its CPU time is in every figure per operation, core used and core busy.
    /// `None` for stores that put nothing off.
    pub drain: Option<DrainWindow>,
    /// `dump_metrics` of every OSD at both ends of the window, and the difference.
    pub metrics: Vec<MetricsWindow>,
    /// CPU of the sampler (`--samples`) in cores: the instrument's own cost. `None` without samples.
    pub instrument_cores: Option<f64>,
    /// The flamegraph that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    pub machine: MachineWindow,
    pub devices: Vec<DeviceWindow>,
    pub verdict: Limiter,
    /// The limit of the load, as a clause with its figures.
    pub verdict_reason: String,
    /// The next thing to try.
    pub verdict_next: String,
    pub errors: u64,
    pub abandoned: u64,
    pub verify: crate::result::VerifyCounts,
    /// How far behind its schedule an open-loop load ended.
    pub behind_ns: u64,
    pub marks: Vec<String>,
}
