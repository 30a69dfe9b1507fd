//! Measurements between the two ends of a window: plain values that `carmine-testbed` samples from the kernel's
//! accounting and the OSDs' `dump_metrics`. Times are nanoseconds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::samples::Instrument;

/// One thread: its counters since its start, or their growth over a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadWindow {
    pub tid: u32,
    pub name: String,
    /// CPU time, user and kernel: exact.
    pub cpu_ns: u64,
    /// CPU time in user mode; since the thread's start it comes in ticks of 10 ms.
    pub user_ns: u64,
    /// CPU time in the kernel, likewise.
    pub system_ns: u64,
    /// Time it was ready but had no CPU.
    pub wait_ns: u64,
    /// Context switches, voluntary and others.
    pub switches: u64,
    /// Moves to another CPU; `None` where the kernel does not say: only a kernel with scheduler debugging does.
    pub migrations: Option<u64>,
}

/// One process: its counters since its start, or their growth over a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessWindow {
    pub pid: u32,
    /// CPU time of all threads, including threads that have ended. The kernel counts the time since the process started in ticks of 10 ms.
    pub cpu_ns: u64,
    /// None if there is no such process.
    pub threads: Vec<ThreadWindow>,
    /// Resident memory at the end.
    pub rss_bytes: u64,
    /// Bytes that reached or left block devices for this process.
    pub device_read_bytes: u64,
    pub device_write_bytes: u64,
    /// Time that its cgroup's CPU quota kept it from running; `None` without a quota.
    pub throttled_ns: Option<u64>,
}

/// One reactor of an OSD, by its own clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReactorWindow {
    pub shard: u32,
    pub tid: u32,
    pub busy_ns: u64,
    pub spin_ns: u64,
    pub sleep_ns: u64,
    pub wait_ns: u64,
    /// Messages to other reactors.
    #[serde(alias = "hops_sent")]
    pub hops: u64,
    /// Buffers that came from the heap instead of the arena.
    pub buf_fallbacks: u64,
    pub bytes_copied: u64,
    /// PGs that it owns, primaries and replicas; `None` if the OSD did not report them.
    pub pgs: Option<u32>,
}

/// One OSD process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OsdWindow {
    pub id: u32,
    pub process: ProcessWindow,
    /// Empty when the OSD could not be asked.
    pub reactors: Vec<ReactorWindow>,
    /// CPUs of alien threads that no reactor has; 0 when they share the reactors'.
    pub alien_cpus: u32,
    /// CPU time of the alien threads that feed the store's key-value store, when the OSD counts it.
    pub feeder_ns: Option<u64>,
    /// Reads that the store sent to its device, when it counts them.
    pub device_reads: Option<u64>,
    /// Operations of clients that it answered, when it counts them.
    pub client_ops: Option<u64>,
    /// Operations that had to go to another reactor than the one that received them, when the OSD counts them.
    pub hopped_ops: Option<u64>,
    /// Bytes of its messages, without those that another OSD counts as received; `None` if it does not count them.
    pub wire_bytes: Option<u64>,
}

/// The generator's threads, or for a load in the OSD those of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratorWindow {
    /// CPU time in user mode.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub system_ns: u64,
    /// Context switches, voluntary and others.
    pub switches: u64,
    /// Time that the CPU quota of its cgroup kept it from running, summed over CPUs; `None` without a quota.
    pub throttled_ns: Option<u64>,
}

/// All CPUs of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineWindow {
    pub cpus: u32,
    /// Time that CPUs were not idle (and not taken by the hypervisor).
    pub busy_ns: u64,
    /// Time that the hypervisor took away.
    pub steal_ns: u64,
    /// Cores that were busy with other things just before the load.
    pub idle_baseline_cores: f64,
    /// CPU time of this process: generator threads and the controller's.
    pub generator_ns: u64,
    /// The same by its kinds.
    pub generator: GeneratorWindow,
    /// CPU time of the monitor.
    pub mon_ns: u64,
}

/// A block device under an OSD's store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceWindow {
    pub name: String,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// Time with at least one request in flight.
    pub busy_ns: u64,
    /// Sum of the times of all requests: divided by the window it is the mean queue depth.
    pub weighted_ns: u64,
    /// Flushes of its cache.
    pub flushes: u64,
}

/// Work that OSDs still did for a load when it had ended, such as compacting metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainWindow {
    pub wall_ns: u64,
    /// CPU time of the OSDs' threads that are not reactors.
    pub cpu_ns: u64,
    /// They had become quiet before the wait was given up.
    pub finished: bool,
}

/// `dump_metrics` of an OSD at both ends of the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsWindow {
    pub osd: u32,
    pub start: Value,
    pub end: Value,
    /// Every number of `end` less the one at the same place of `start`.
    pub difference: Value,
}

/// The processors' counts while the OSDs' threads ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterWindow {
    pub cycles: Option<u64>,
    pub instructions: Option<u64>,
    /// Their work in the kernel is not in it: this user may not count it.
    pub user_only: bool,
}

/// Everything that was sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    pub wall_ns: u64,
    pub osds: Vec<OsdWindow>,
    pub machine: MachineWindow,
    pub devices: Vec<DeviceWindow>,
    /// `None` for stores that put nothing off.
    pub drain: Option<DrainWindow>,
    pub metrics: Vec<MetricsWindow>,
    /// `None` without samples.
    pub instrument: Option<Instrument>,
    /// `None` where nothing counts.
    pub counters: Option<CounterWindow>,
}

impl OsdWindow {
    /// CPU time of threads that are not reactors: aliens and the store's own background threads.
    pub fn alien_ns(&self) -> u64 {
        if self.reactors.is_empty() {
            return 0;
        }
        if self.others().count() < self.process.threads.len() {
            return self.others().map(|t| t.cpu_ns).sum();
        }
        self.process.cpu_ns.saturating_sub(self.sum(|r| r.busy_ns + r.spin_ns))
    }

    /// Threads that are not reactors.
    pub(crate) fn others(&self) -> impl Iterator<Item = &ThreadWindow> {
        self.process.threads.iter().filter(|t| !self.reactors.iter().any(|r| r.tid == t.tid))
    }

    /// CPU time of RocksDB's own threads, recognised by the names that it gives them: those that write out what is in memory only
    /// (`rocksdb:high`), and those that merge tables (`rocksdb:low`, `rocksdb:bottom`).
    pub fn rocksdb_ns(&self) -> (u64, u64) {
        let threads = self.process.threads.iter();
        let own =
            threads.filter_map(|t| Some((t.name.strip_prefix("rocksdb:")?.starts_with("high"), t.cpu_ns)));
        let sum =
            |wanted: bool| own.clone().filter(|(is_high, _)| *is_high == wanted).map(|(_, ns)| ns).sum();
        (sum(true), sum(false))
    }

    /// Time that threads which are not reactors were on a CPU or ready for one.
    pub fn alien_occupied_ns(&self) -> u64 {
        self.others().map(|t| t.cpu_ns + t.wait_ns).sum()
    }

    /// A clock or count of all its reactors.
    pub fn sum(&self, of: fn(&ReactorWindow) -> u64) -> u64 {
        self.reactors.iter().map(of).sum()
    }
}

impl Window {
    /// CPU time of the OSDs, as the kernel counts it.
    pub fn osds_ns(&self) -> u64 {
        self.osds.iter().map(|osd| osd.process.cpu_ns).sum()
    }
}
