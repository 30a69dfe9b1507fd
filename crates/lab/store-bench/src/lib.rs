//! `carmine store bench`: the load generator on a bare store.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it reads files and the clock beside the reactors that it measures"
)]

mod bare;
mod figures;
mod target;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use carmine_bench::sample::host_report;
use carmine_bench::steering::run_raw;
use carmine_daemon::signals;
use carmine_load::{Geometry, JobSetup, LoadSpec, Rw, parse_bytes, parse_millis, run_job};
use carmine_reactor::{Config, Group, PollPolicy, REGISTER_BYTES, Shard, ShardId};
use carmine_store::{Store, StoreShared};
use carmine_testbed::{TuningWish, print, usage, write_json};
use carmine_topology::CpuList;
use carmine_types::StoreKind;
use clap::{Args, ValueEnum};
use serde_json::json;

use bare::{Bare, Parts};
use figures::{Board, Cost, own_sampler};
use target::{StoreTarget, owner};

/// How often a shard checks whether the store is mounted.
const MOUNT_LOOK: Duration = Duration::from_millis(1);

/// Where `blue` keeps its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KvKind {
    /// RocksDB, in the folder.
    Rocks,
    /// A map in memory, to measure the store without RocksDB; nothing survives.
    Memory,
}

/// Options of the load, like those of `bench`, and of the store under it.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Each load runs on the store that the one before it left, mounted anew. The figures are those of this process: the \
                  generator's own work is in them.\n\
                  Columns: IOPS/core is per core that the process used; CPU, reactor, alien (of that: feeder), rocksdb (of that: \
                  compact) and machine are us of CPU per operation; flush/op, enter/op count per operation; B/B are bytes \
                  written per byte of the load: log to the log, dev to the device with the log, all by the process to all \
                  drives; waits are transactions held back because RocksDB or the log was behind.\n\
                  Exit codes: 0 measured; 1 it failed or was interrupted; 2 it cannot be measured as asked."
)]
pub struct StoreBenchArgs {
    /// Folder for the store, which is removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// cyan, null or blue
    #[arg(long, value_name = "STORE", default_value = "blue")]
    store: StoreKind,
    /// Metadata of blue: rocks or memory
    #[arg(long, value_name = "WORD", default_value = "rocks")]
    kv: KvKind,
    /// Bytes of blue's block file
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = parse_bytes)]
    store_size: u64,
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
    numjobs: u32,
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
    alien_cpus: Option<CpuList>,
    /// Alien threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    alien_threads: u16,
    /// How idle reactors wait: poll, adaptive, adaptive:MICROSECONDS, sleep
    #[arg(long, value_name = "POLICY", default_value_t)]
    poll: PollPolicy,
    #[command(flatten)]
    tuning: TuningWish,
    /// Show the cost of compaction: run each load in four windows, the first and the last as usual, the two in between while
    /// RocksDB merges all its tables again and again (with SIZE of other data beside the load's, so that it never ends)
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "256m", value_parser = parse_bytes)]
    compaction: Option<u64>,
    /// File for the result, in JSON: the drives under the store, its settings, and a row of figures for each load
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl StoreBenchArgs {
    /// Every load with every depth.
    fn specs(&self) -> Vec<LoadSpec> {
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

    fn cpus(&self) -> Vec<usize> {
        self.cpus.as_ref().map(CpuList::to_vec).unwrap_or_default()
    }

    /// The reactors, but for their CPUs.
    fn reactors(&self) -> Config {
        let aliens = self.alien_cpus.as_ref().map(CpuList::to_vec).unwrap_or_default();
        let own = self.cpus();
        Config {
            name: "store".into(),
            poll: self.poll,
            alien_threads: self.alien_threads.into(),
            alien_shares_cpu: aliens.iter().any(|cpu| own.contains(cpu)),
            alien_cpus: aliens,
            register_bytes: REGISTER_BYTES,
            ..Config::default()
        }
    }
}

/// Measures, and prints the figures. Exit code 0: measured; 1: it failed or was interrupted; 2: it can't be measured as asked.
///
/// # Errors
/// The options contradict each other, or the store cannot be made, mounted or loaded.
pub fn run(args: &StoreBenchArgs) -> Result<ExitCode> {
    let cancel = signals::cancel_flag()?;
    let specs = args.specs();
    specs.iter().try_for_each(LoadSpec::check).map_err(|e| usage!("{e}"))?;
    let bare = Bare::make(args)?;
    print(&format!("{}\n{}\n", bare.describe(), figures::header()))?;
    let mut rows = Vec::new();
    let windows: &[bool] = if args.compaction.is_some() { &[false, true, true, false] } else { &[false] };
    for (spec, compacting) in specs.iter().flat_map(|spec| windows.iter().map(move |window| (spec, *window)))
    {
        let load = || measure(args, &bare, spec, &cancel);
        let cost = if compacting { bare.while_compacting(load)? } else { load()? };
        print(&format!("{}\n", cost.text(spec, compacting)))?;
        rows.push(cost.json(spec, compacting));
    }
    if let Some(path) = &args.json {
        let value = json!({
            "store": bare.kind.to_string(), "on": bare.facts, "host": host_report(), "rows": rows,
        });
        write_json(path, &value)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One load on the store, mounted for it.
fn measure(args: &StoreBenchArgs, bare: &Bare, spec: &LoadSpec, cancel: &AtomicBool) -> Result<Cost> {
    let board = Arc::new(Board::new(spec.numjobs));
    let sampler = own_sampler();
    let mut readings = Vec::new();
    let mut on_edge = || {
        readings.push((board.sum(), sampler.sample()?));
        Ok(())
    };
    let (parts, shown, mounted) = (bare.parts.clone(), Arc::clone(&board), Arc::new(OnceLock::new()));
    let job = async move |shard: Shard, setup: JobSetup| match open(&shard, &parts, &mounted).await {
        Ok(store) => {
            let (own, shown, board) = (shard.clone(), store.clone(), Arc::clone(&shown));
            shard.spawn(Group::Admin, "board", async move { board.show(&own, &shown).await });
            let (me, shards) = (u32::from(shard.id().0), u32::from(shard.shards()));
            let geometry = Geometry::new(&setup.spec, |object| owner(&setup.spec, object, shards) == me);
            let target = StoreTarget::new(&store);
            run_job(&shard, std::rc::Rc::new(target), geometry, setup).await;
            if let Err(error) = store.umount().await {
                tracing::error!(%error, "cannot unmount the store");
            }
        }
        Err(error) => setup.abort(&error),
    };
    let measured = run_raw(spec, &args.cpus(), args.reactors(), cancel, &mut on_edge, job)?;
    let Ok(readings) = readings.try_into() else { anyhow::bail!("the load had no window") };
    Ok(Cost::new(spec, measured, &sampler, readings))
}

/// Shard 0 mounts the store; the others wait for it.
async fn open(shard: &Shard, parts: &Parts, mounted: &OnceLock<StoreShared>) -> Result<Store, String> {
    if shard.id() == ShardId(0) {
        let _ = mounted.set(parts.mount(shard).await?);
    }
    let shared = loop {
        match mounted.get() {
            Some(shared) => break shared,
            None => shard.sleep(MOUNT_LOOK).await,
        }
    };
    Store::open_shard(shared, shard).await.map_err(|error| error.to_string())
}
