//! The store under the load: made once, mounted for every load; and RocksDB that merges its tables all the time beside a load
//! (`--compaction`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow};
use carmine_load::drive::StoreFacts;
use carmine_osd_daemon::store::mount_options;
use carmine_reactor::{Config, PollPolicy, Shard, block_on};
use carmine_store::blue::{Fill, MkfsOptions, MountOptions, Place, mkfs};
use carmine_store::{BlueShared, Kv, KvBatch, KvError, MemKv, StoreShared};
use carmine_testbed::drive::facts::settle;
use carmine_testbed::{Tuning, part_at, process, refuse};
use carmine_types::{OsdId, StoreKind, Uuid};
use tempfile::TempDir;

use super::{KvKind, StoreBenchArgs};

/// RocksDB's folder.
const DB: &str = "db";
/// A key of `blue` never begins with it, so a mount does not look at such keys.
const FILLER: u8 = b'~';
/// About the size of an onode with a small block map.
const VALUE_BYTES: usize = 400;
/// Keys of one commit.
const BATCH_BYTES: u64 = 1 << 20;

/// A store that belongs to nobody, in a folder that goes with it.
pub(super) struct Bare {
    pub(super) parts: Parts,
    pub(super) kind: StoreKind,
    /// The drives under it; `None`: in memory.
    pub(super) facts: Option<StoreFacts>,
    _folder: TempDir,
}

/// The parts that are mounted.
#[derive(Clone)]
pub(super) enum Parts {
    /// A store in memory: all loads use the same one.
    Memory(StoreShared),
    /// A store on a block file, mounted anew for each load.
    Blue { block: Place, kv: Arc<dyn Kv>, options: MountOptions },
}

impl Bare {
    /// Makes it, and writes all of a block file in advance.
    pub(super) fn make(args: &StoreBenchArgs) -> Result<Bare> {
        let is_rocks = (args.store, args.kv) == (StoreKind::Blue, KvKind::Rocks);
        let is_vain = args.compaction.is_some() && !is_rocks;
        refuse!(is_vain, "--compaction: only --store blue with --kv rocks has tables to merge");
        let folder = tempfile::Builder::new().prefix("carmine-store-bench-").tempdir_in(&args.dir);
        let folder = folder.with_context(|| format!("cannot make a folder in {}", args.dir.display()))?;
        args.tuning.refuse_without_device(args.store)?;
        let mut tuning = Tuning::default();
        tuning.apply(&args.tuning);
        let (parts, facts) = match args.store {
            StoreKind::Cyan => (Parts::Memory(StoreShared::cyan(args.store_size)), None),
            StoreKind::Null => (Parts::Memory(StoreShared::null()), None),
            StoreKind::Blue => {
                // RocksDB's threads inherit the CPUs of the thread that opens it.
                if let Some(cpus) = &args.alien_cpus {
                    process::restrict_to(&cpus.to_vec())?;
                }
                let kv = open_kv(args, &folder)?;
                let block = folder.path().join("block");
                make_blue(&block, &kv, args.store_size)?;
                if let Some(bytes) = args.compaction {
                    fill_tables(&*kv, bytes)?;
                }
                let db = (args.kv == KvKind::Rocks).then(|| part_at(&folder.path().join(DB)));
                let facts = settle(0, &tuning, part_at(&block), None, db);
                let cache_bytes = MountOptions::default().cache_bytes_per_shard;
                let options = mount_options(&facts, &tuning, cache_bytes, args.numjobs as usize);
                let block = Place { io_path: tuning.io_path, ..Place::from(&block) };
                (Parts::Blue { block, kv, options }, Some(facts))
            }
        };
        Ok(Bare { parts, kind: args.store, facts, _folder: folder })
    }

    /// Does `work` while RocksDB compacts again and again; its own threads do that, ours only waits.
    pub(super) fn while_compacting<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let Parts::Blue { kv, .. } = &self.parts else { return work() };
        let has_ended = AtomicBool::new(false);
        let compact = || -> Result<(), KvError> {
            while !has_ended.load(Ordering::Relaxed) {
                kv.compact()?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let compactor =
                std::thread::Builder::new().name("compactor".into()).spawn_scoped(scope, compact)?;
            let done = work();
            has_ended.store(true, Ordering::Relaxed);
            compactor.join().map_err(|_| anyhow!("the thread that compacts panicked"))??;
            done
        })
    }

    /// Its kind and place, for people.
    pub(super) fn describe(&self) -> String {
        match &self.facts {
            Some(facts) => format!("{}: {}", self.kind, facts.line()),
            None => format!("{}: in memory", self.kind),
        }
    }
}

impl Parts {
    pub(super) async fn mount(&self, shard: &Shard) -> Result<StoreShared, String> {
        match self {
            Parts::Memory(shared) => Ok(shared.clone()),
            Parts::Blue { block, kv, options } => {
                let mounted = BlueShared::mount(shard, block.clone(), Arc::clone(kv), *options).await;
                mounted.map(StoreShared::Blue).map_err(|error| error.to_string())
            }
        }
    }
}

fn make_blue(block: &Path, kv: &Arc<dyn Kv>, size_bytes: u64) -> Result<()> {
    let options = MkfsOptions {
        fsid: Uuid([0xbe; 16]),
        osd: OsdId(0),
        size_bytes: Some(size_bytes),
        fill: Fill::Fresh,
        force: false,
    };
    let config = Config { name: "mkfs".into(), poll: PollPolicy::Sleep, ..Config::default() };
    let kv = Arc::clone(kv);
    block_on(config, async |shard: Shard| mkfs(&shard, block, options, kv, &mut |_, _| {}).await)??;
    Ok(())
}

#[cfg(feature = "rocks")]
fn open_kv(args: &StoreBenchArgs, folder: &TempDir) -> Result<Arc<dyn Kv>> {
    use carmine_kv_rocks::{RocksKv, RocksOptions, WRITE_BYTES_PER_S_OF_REACTOR};
    let write_bytes_per_s = WRITE_BYTES_PER_S_OF_REACTOR * u64::from(args.numjobs);
    let options = RocksOptions { write_bytes_per_s, ..RocksOptions::default() };
    Ok(match args.kv {
        KvKind::Rocks => Arc::new(RocksKv::open(&folder.path().join(DB), options)?),
        KvKind::Memory => Arc::new(MemKv::new()),
    })
}

#[cfg(not(feature = "rocks"))]
fn open_kv(args: &StoreBenchArgs, _folder: &TempDir) -> Result<Arc<dyn Kv>> {
    anyhow::ensure!(args.kv == KvKind::Memory, "this carmine was built without RocksDB: take --kv memory");
    Ok(Arc::new(MemKv::new()))
}

/// Writes this many bytes for the compactions to move, then waits until RocksDB is idle.
///
/// # Errors
/// They could not be written.
fn fill_tables(kv: &dyn Kv, bytes: u64) -> Result<(), KvError> {
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
