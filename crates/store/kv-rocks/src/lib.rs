//! [`RocksKv`]: `blue`'s key-value store on RocksDB. The only crate that links it.
//!
//! There is no write-ahead log: what is not flushed to tables is gone with the process, and `blue`'s own log has it.
//!
//! All calls block, and are made on alien threads. Threads of RocksDB (flushes, compactions) are started by whichever
//! thread first needs one and inherit its CPU set: the aliens'.
#![forbid(unsafe_code)]
// Blocking file access is what this crate is for.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod cpu;
mod options;
mod reclaim;

use std::fs::Permissions;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carmine_store::blue::PREFIX_PG_LOG;
use carmine_store::{Kv, KvBatch, KvCpu, KvError, KvOp};
use rocksdb::properties::{CUR_SIZE_ALL_MEM_TABLES, LIVE_SST_FILES_SIZE, PropName};
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, Direction, ErrorKind, FlushOptions, IteratorMode, ReadOptions,
    WriteBatch, WriteOptions,
};

use reclaim::Reclaim;

pub use options::{RocksOptions, Tuning, WRITE_BYTES_PER_S_OF_REACTOR};

/// Column family of the PG logs: entries are written, never read while the OSD runs, and trimmed by range deletions,
/// which would slow down every lookup of an onode in the same family.
const LOG_FAMILY: &str = "log";
/// All else.
const MAIN_FAMILY: &str = rocksdb::DEFAULT_COLUMN_FAMILY_NAME;
/// Tells in RocksDB's log how its CRC32C was compiled.
const CRC_LINE: &str = "Fast CRC32 supported:";

/// RocksDB in a folder.
pub struct RocksKv {
    db: Arc<DB>,
    path: PathBuf,
    options: RocksOptions,
    /// Commits so far.
    commits: AtomicU64,
    reclaim: Reclaim,
}

impl RocksKv {
    /// Opens the database in a folder; makes both if they are not there.
    ///
    /// # Errors
    /// If the folder cannot be made, another process has the database open, or it is damaged.
    pub fn open(path: &Path, options: RocksOptions) -> Result<RocksKv, KvError> {
        let failed =
            |message: &str| KvError::new(format!("open the database in {}", path.display()), message);
        let made = std::fs::create_dir_all(path);
        // It holds names and metadata of all clients.
        let made = made.and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o700)));
        made.map_err(|error| failed(&error.to_string()))?;
        let tuned = options::Tuned::new(&options).map_err(|error| failed(error.as_ref()))?;
        let families = [
            ColumnFamilyDescriptor::new(MAIN_FAMILY, tuned.main),
            ColumnFamilyDescriptor::new(LOG_FAMILY, tuned.log),
        ];
        let db = DB::open_cf_descriptors(&tuned.db, path, families).map_err(|error| {
            let text = error.as_ref();
            if text.contains("lock file") || text.contains("LOCK") {
                failed(&format!("another process has it open: is this OSD running already? ({text})"))
            } else {
                failed(text)
            }
        })?;
        let (db, path) = (Arc::new(db), path.to_owned());
        Ok(RocksKv { db, path, options, commits: AtomicU64::new(0), reclaim: Reclaim::default() })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The options with which it was opened.
    #[must_use]
    pub fn options(&self) -> &RocksOptions {
        &self.options
    }

    /// RocksDB's own report of its CRC32C ("Supported on x86", or "Not supported…" for the slow table); `None` if its
    /// log has none.
    #[must_use]
    pub fn crc32_support(&self) -> Option<String> {
        let log = std::fs::read_to_string(self.path.join("LOG")).ok()?;
        let line = log.lines().find(|line| line.contains(CRC_LINE))?;
        line.split_once(CRC_LINE).map(|(_, rest)| rest.trim().to_owned())
    }

    fn failed(&self, what: &str, error: &rocksdb::Error) -> KvError {
        // The drive's refusal has no kind of its own.
        let is_damage =
            error.kind() == ErrorKind::Corruption || error.as_ref().contains("Input/output error");
        KvError::new(format!("{what} in {}", self.path.display()), error.as_ref()).damage(is_damage)
    }

    fn family(&self, name: &str) -> Result<&ColumnFamily, KvError> {
        self.db.cf_handle(name).ok_or_else(|| {
            KvError::new(format!("column family {name} of {}", self.path.display()), "it is not there")
        })
    }

    fn family_of(&self, key: &[u8]) -> Result<&ColumnFamily, KvError> {
        self.family(if is_log(key) { LOG_FAMILY } else { MAIN_FAMILY })
    }

    /// Scans one family; `Break` if `each` wanted no more.
    fn scan_family(
        &self,
        family: &str,
        start: &[u8],
        end: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<ControlFlow<()>, KvError> {
        if start >= end {
            return Ok(ControlFlow::Continue(()));
        }
        let mut read = ReadOptions::default();
        read.set_iterate_upper_bound(end);
        let mode = IteratorMode::From(start, Direction::Forward);
        for pair in self.db.iterator_cf_opt(self.family(family)?, read, mode) {
            let (key, value) = pair.map_err(|error| self.failed("scan", &error))?;
            if !each(&key, &value) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The sum of a property over all families, as far as it is known.
    fn sum(&self, property: &PropName) -> u64 {
        let families = self.family(MAIN_FAMILY).into_iter().chain(self.family(LOG_FAMILY));
        let values = families.map(|family| self.db.property_int_value_cf(family, property));
        values.map(|value| value.ok().flatten().unwrap_or(0)).sum()
    }

    fn write_batch(&self, batches: &[KvBatch]) -> Result<WriteBatch, KvError> {
        let (main, log) = (self.family(MAIN_FAMILY)?, self.family(LOG_FAMILY)?);
        let family = |key: &[u8]| if is_log(key) { log } else { main };
        // Twelve bytes of header, and a few of framing for each change.
        let bytes = batches.iter().map(|batch| batch.bytes() + 12 * batch.len()).sum::<usize>() + 12;
        let mut out = WriteBatch::with_capacity_bytes(bytes);
        for op in batches.iter().flat_map(KvBatch::iter) {
            match op {
                KvOp::Put(key, value) => out.put_cf(family(key), key, value),
                KvOp::Delete(key) => out.delete_cf(family(key), key),
                KvOp::DeleteRange(start, end) => {
                    for (name, start, end) in parts(start, end) {
                        if start < end {
                            out.delete_range_cf(if name == LOG_FAMILY { log } else { main }, start, end);
                        }
                    }
                }
            }
        }
        Ok(out)
    }
}

/// First key of the log family, and the first behind it.
const LOG_START: &[u8] = &[PREFIX_PG_LOG];
const LOG_END: &[u8] = &[PREFIX_PG_LOG + 1];

fn is_log(key: &[u8]) -> bool {
    key.first() == Some(&PREFIX_PG_LOG)
}

/// A range of keys, cut where another family begins; in order, some perhaps empty.
fn parts<'a>(start: &'a [u8], end: &'a [u8]) -> [(&'static str, &'a [u8], &'a [u8]); 3] {
    [
        (MAIN_FAMILY, start, end.min(LOG_START)),
        (LOG_FAMILY, start.max(LOG_START), end.min(LOG_END)),
        (MAIN_FAMILY, start.max(LOG_END), end),
    ]
}

impl Kv for RocksKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.db.get_cf(self.family_of(key)?, key).map_err(|error| self.failed("get", &error))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError> {
        for (family, start, end) in parts(start, end) {
            if self.scan_family(family, start, end, each)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, batches: &[KvBatch], sync: bool) -> Result<(), KvError> {
        let mut write = WriteOptions::default();
        // `blue` has a log of its own, on its device.
        write.disable_wal(true);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.db
            .write_opt(self.write_batch(batches)?, &write)
            .map_err(|error| self.failed("commit", &error))?;
        if sync { self.flush() } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), KvError> {
        let families = [self.family(MAIN_FAMILY)?, self.family(LOG_FAMILY)?];
        let mut wait = FlushOptions::default();
        wait.set_wait(true);
        self.db.flush_cfs_opt(&families, &wait).map_err(|error| self.failed("flush", &error))
    }

    fn free_bytes(&self) -> Option<u64> {
        let space = rustix::fs::statvfs(&self.path).ok()?;
        // Data that is in memory only will be in tables soon.
        let in_memory = self.sum(CUR_SIZE_ALL_MEM_TABLES);
        Some(space.f_bavail.saturating_mul(space.f_frsize).saturating_sub(in_memory))
    }

    fn used_bytes(&self) -> u64 {
        self.sum(LIVE_SST_FILES_SIZE) + self.sum(CUR_SIZE_ALL_MEM_TABLES)
    }

    fn reclaim(&self) {
        self.reclaim.begin(&self.db, self.commits.load(Ordering::Relaxed));
    }

    fn compact(&self) -> Result<(), KvError> {
        reclaim::compact(&self.db);
        Ok(())
    }

    fn cpu(&self) -> Option<KvCpu> {
        cpu::cpu()
    }

    fn stats(&self) -> String {
        let mut out = String::new();
        for name in [MAIN_FAMILY, LOG_FAMILY] {
            let Ok(family) = self.family(name) else { continue };
            for property in ["rocksdb.cfstats-no-file-histogram", "rocksdb.num-running-compactions"] {
                if let Ok(Some(value)) = self.db.property_value_cf(family, property) {
                    out.push_str(&format!("{property}: {}\n", value.trim()));
                }
            }
        }
        if let Ok(Some(value)) = self.db.property_value("rocksdb.dbstats") {
            out.push_str(&value);
        }
        out
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for RocksKv {
    fn drop(&mut self) {
        // Writes out what is in memory only; running compactions may stop where they are.
        self.db.cancel_all_background_work(true);
        self.reclaim.end();
    }
}
