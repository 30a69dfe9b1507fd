//! Options of `carmine store bench`.

use std::path::PathBuf;

use carmine_load::{LoadSpec, Rw, parse_bytes, parse_millis};
use carmine_reactor::PollPolicy;
use carmine_testbed::Tuning;
use carmine_topology::CpuList;
use carmine_types::StoreKind;
use clap::{Args, ValueEnum};

use carmine_testbed::TuningWish;

/// Where `blue` keeps its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum KvKind {
    /// RocksDB, in the folder.
    Rocks,
    /// A map in memory: what the store costs without RocksDB; nothing survives.
    Memory,
}

/// Options of the load, as those of `bench`, and of the store under it.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Each load runs on the store that the one before it left, mounted anew. The figures are of this process: the \
                  generator's own work is in them.\n\
                  Columns: IOPS/core is per core that the process used; CPU, reactor, alien (of that: feeder), rocksdb (of that: \
                  compact) and machine are us of CPU per operation; flush/op, enter/op count per operation; B/B are bytes \
                  written per byte of the load: log to the log, dev to the device with the log, all by the process to all \
                  drives; waits are transactions held back because RocksDB or the log was behind.\n\
                  Exit codes: 0 measured; 1 it failed or was interrupted; 2 it cannot be measured as asked."
)]
pub(crate) struct StoreBenchArgs {
    /// Folder for the store; what it makes there is removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(super) dir: PathBuf,
    /// cyan, null or blue
    #[arg(long, value_name = "STORE", default_value = "blue")]
    pub(super) store: StoreKind,
    /// Metadata of blue: rocks or memory
    #[arg(long, value_name = "WORD", default_value = "rocks")]
    pub(super) kv: KvKind,
    /// Bytes of blue's block file
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = parse_bytes)]
    pub(super) store_size: u64,
    /// Loads, one after the other
    #[arg(long, value_name = "WORD,…", default_value = "randwrite,randread", value_delimiter = ',')]
    rw: Vec<Rw>,
    /// Bytes of one operation
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_bytes)]
    bs: u64,
    /// Operations in flight, of each reactor; each load is run with each depth
    #[arg(long, value_name = "N,…", default_value = "1,16,64", value_delimiter = ',')]
    iodepth: Vec<u32>,
    /// Reactors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) numjobs: u32,
    /// Length of each window
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = parse_millis)]
    runtime: u64,
    /// Load before each window
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_millis)]
    ramp: u64,
    /// Bytes of the objects that are loaded
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = parse_bytes)]
    size: u64,
    /// CPUs of the reactors [default: not pinned]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// CPUs of alien threads and of RocksDB's [default: not pinned]
    #[arg(long, value_name = "LIST")]
    pub(super) alien_cpus: Option<CpuList>,
    /// Alien threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) alien_threads: u16,
    /// What idle reactors do: poll, adaptive, adaptive:MICROSECONDS, sleep
    #[arg(long, value_name = "POLICY", default_value_t)]
    pub(super) poll: PollPolicy,
    #[command(flatten)]
    tuning: TuningWish,
    /// Each load in four windows: in the first and the last as it is, in those between while RocksDB merges all its tables
    /// again and again (with so much beside the load's own that it never ends), so that what compaction costs is seen
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "256m", value_parser = parse_bytes)]
    pub(super) compaction: Option<u64>,
    /// File for the result, in JSON: what the store lies on, how it was mounted, and a row of figures for each load
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

impl StoreBenchArgs {
    /// Every load with every depth.
    pub(super) fn specs(&self) -> Vec<LoadSpec> {
        let one = |rw: Rw, iodepth: u32| LoadSpec {
            rw,
            bs_bytes: self.bs,
            iodepth,
            numjobs: self.numjobs,
            runtime_ms: self.runtime,
            ramp_ms: self.ramp,
            size_bytes: self.size,
            ..LoadSpec::default()
        };
        self.rw.iter().flat_map(|rw| self.iodepth.iter().map(move |depth| one(*rw, *depth))).collect()
    }

    /// How the store is mounted.
    pub(super) fn tuning(&self) -> anyhow::Result<Tuning> {
        Ok(Tuning::default().changed(&self.tuning, self.store)?)
    }

    pub(super) fn cpus(&self) -> Vec<usize> {
        self.cpus.as_ref().map(|cpus| cpus.to_vec()).unwrap_or_default()
    }
}
