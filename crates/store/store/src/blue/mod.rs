//! `blue`: data on a block file or device, copy-on-write and checksummed; metadata in a [`Kv`](crate::Kv).
//!
//! The life of a write: [`Blue::submit`] (txn.rs) applies it to the cached onodes and encodes its metadata. Its data goes
//! out on the ring (queue.rs), and beside it a group with the metadata of all transactions that are there, into the
//! shard's lane of the log (logging.rs). One flush covers both, and the transactions are answered for. Some time later the
//! key-value store is fed (feeding.rs, commit_log.rs), and the lane is trimmed when that is durable there. A mount
//! replays what the key-value store lacks (replay.rs), up to where the log and the data that it refers to are whole. So no
//! metadata ever points to data that could get lost, and what is durable is a prefix of each shard's transactions.

mod apply;
mod cache;
mod codec;
mod commit_log;
mod data_cache;
mod device;
mod discard;
mod dump;
mod extents;
mod feeding;
mod fsck;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod heal;
mod index;
mod join;
pub(crate) mod keys;
mod label;
mod lane;
mod load;
mod local;
mod log_space;
mod logging;
mod mkfs;
mod move_log;
mod omap;
mod onode;
mod opened;
mod pg;
mod progress;
mod queue;
mod read;
mod readahead;
mod reads;
mod record;
mod repair;
mod replay;
mod replay_report;
mod scan;
mod shared;
mod space;
mod tail;
mod txn;
mod wal;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use carmine_reactor::sync::Notify;
use carmine_reactor::{Bytes, Shard};
use carmine_types::ObjectId;
use foldhash::fast::FixedState;

pub use device::{Place, Places, Slice};
pub use dump::{Dumped, DumpedExtent, dump};
pub use fsck::{FsckReport, fsck};
#[cfg(any(test, feature = "fuzz"))]
pub use fuzz::{decode_any, decode_seeds};
pub use index::{KvIndex, MetaIndex};
pub use label::Label;
pub use mkfs::{Fill, MkfsOptions, Progress, mkfs};
pub use move_log::{Expanded, LogMove, NewLog, expand, move_log};
pub use repair::{Labels, labels, repair};
pub use replay_report::ReplayReport;
pub use shared::{BlueShared, MountOptions};

pub use keys::PREFIX_PG_LOG;
pub(crate) use load::Prepared;

use crate::{KvCpu, StatFs, StoreError, StoreStats};
use apply::Trimmed;
use cache::Cache;
use data_cache::DataCache;
use device::Device;
use discard::Discards;
use queue::Queue;
use readahead::Readahead;
use reads::{Freed, ReadGuard, Reads};
use space::Lease;

/// Largest single read or write of the device, in blocks: 1 MiB, the largest buffer of the arena.
const IO_BLOCKS_MAX: u64 = 256;

/// Bytes of zeros at hand for holes.
const ZEROS_BYTES: usize = 64 << 10;

/// One shard's part of the store.
pub(crate) struct Blue {
    shard: Shard,
    shared: Arc<BlueShared>,
    /// Where the data lies, …
    file: Device,
    /// … and the log, if not there too.
    log_file: Option<Device>,
    me: Weak<Blue>,
    cache: RefCell<Cache>,
    data_cache: Option<RefCell<DataCache>>,
    readahead: Readahead,
    /// Objects that are being loaded, so that each is loaded once.
    loading: RefCell<HashMap<ObjectId, Rc<Notify>, FixedState>>,
    lease: RefCell<Lease>,
    /// Transactions that are not durable yet.
    queue: RefCell<Queue>,
    /// Told whenever transactions become durable or fail.
    progress: Notify,
    reads: Rc<Reads>,
    /// Freed blocks that are to be discarded; `None`: they may be taken again at once.
    discards: Option<Discards>,
    /// Objects (by the naming part of their keys) created or removed by transactions that are not durable yet.
    existence: RefCell<BTreeMap<Box<[u8]>, Existence>>,
    /// How far each PG's log is trimmed, as far as this shard knows.
    trimmed: RefCell<Trimmed>,
    /// Set once; nothing is acknowledged any more.
    failed: RefCell<Option<StoreError>>,
    closed: Cell<bool>,
    stats: RefCell<StoreStats>,
    zeros: Bytes,
}

/// What uncommitted transactions made of an object's existence.
#[derive(Clone, Copy)]
struct Existence {
    exists: bool,
    /// Transactions that changed it.
    transactions: u32,
}

impl Blue {
    /// Opens the device on this shard's ring.
    pub(crate) async fn open(shared: &Arc<BlueShared>, shard: &Shard) -> Result<Rc<Blue>, StoreError> {
        let lanes = shared.log().space().lanes_max();
        if usize::from(shard.shards()) > lanes {
            let why = format!("its log is too small for {} reactors: take {lanes} at most", shard.shards());
            return Err(StoreError::unusable(shared.path(), why));
        }
        let file = Device::open(shard, shared.place(), false).await?;
        let log_file = match shared.wal() {
            Some(place) => Some(Device::open(shard, place, false).await?),
            None => None,
        };
        let options = shared.options();
        let cache = Cache::new(options.cache_bytes_per_shard);
        let data_cache = DataCache::new(options.data_cache_bytes_per_shard).map(RefCell::new);
        let store = Rc::new_cyclic(|me| Blue {
            shard: shard.clone(),
            shared: Arc::clone(shared),
            file,
            log_file,
            me: me.clone(),
            cache: RefCell::new(cache),
            data_cache,
            readahead: Readahead::new(options.readahead_bytes),
            loading: RefCell::default(),
            lease: RefCell::default(),
            queue: RefCell::default(),
            progress: Notify::new(),
            reads: Rc::default(),
            discards: shared.options().discard.then(|| Discards::new(shared.space())),
            existence: RefCell::default(),
            trimmed: RefCell::default(),
            failed: RefCell::new(None),
            closed: Cell::new(false),
            stats: RefCell::default(),
            zeros: Bytes::from(vec![0; ZEROS_BYTES]),
        });
        local::stores(shard).add(shared.instance(), &store);
        Ok(store)
    }

    /// The device that the log lies on.
    fn log_file(&self) -> &Device {
        self.log_file.as_ref().unwrap_or(&self.file)
    }

    /// A handle for a task.
    fn rc(&self) -> Option<Rc<Blue>> {
        self.me.upgrade()
    }

    /// Why nothing more is taken, if so.
    fn refusal(&self) -> Option<StoreError> {
        if self.closed.get() {
            return Some(StoreError::failed("it was unmounted"));
        }
        self.failed.borrow().clone()
    }

    /// Begins a read of the device: blocks that are freed from now on stay until it ends.
    fn begin_read(&self) -> ReadGuard<impl Fn(Freed) + use<>> {
        // Whoever reads holds the store.
        let me = Weak::clone(&self.me);
        self.reads.begin(move |freed| {
            if let Some(store) = me.upgrade() {
                store.give_back(freed);
            }
        })
    }

    fn count(&self, change: impl FnOnce(&mut StoreStats)) {
        change(&mut self.stats.borrow_mut());
    }

    pub(crate) fn statfs(&self) -> StatFs {
        if self.shared.is_kv_low() {
            self.shared.log().look_for_room(&self.shard);
        }
        self.shared.statfs()
    }

    pub(crate) fn stats(&self) -> StoreStats {
        let commits = self.shared.log().stats();
        StoreStats {
            txns_in_flight: self.queue.borrow().len(),
            cache_bytes: self.cache.borrow().bytes() as u64,
            data_cache_bytes: self.data_cache.as_ref().map_or(0, |cache| cache.borrow().bytes() as u64),
            kv_commits: commits.commits,
            kv_bytes: commits.bytes,
            kv_commit_ns: commits.busy_ns,
            feeder_cpu_ns: commits.cpu_ns,
            log_trims: commits.trims,
            ..*self.stats.borrow()
        }
    }

    /// Waits until everything submitted so far is durable in the key-value store, the log says so, and what it freed is
    /// discarded.
    async fn settle(&self) -> Result<(), StoreError> {
        self.feed_all().await?;
        self.finish_discards().await;
        let log = Arc::clone(self.shared.log());
        log.flush(&self.shard).await?;
        self.mark_soon();
        self.wait_until(|queue| !queue.logging).await
    }

    /// CPU time of the key-value store's own threads, if it knows.
    pub(crate) async fn kv_cpu(&self) -> Option<KvCpu> {
        self.shared.index().cpu(&self.shard).await
    }

    /// Waits until everything submitted so far is durable in the key-value store, and the log says so; then refuses more.
    pub(crate) async fn umount(&self) -> Result<(), StoreError> {
        self.closed.set(true);
        let result = self.settle().await;
        self.shared.space().release(&mut self.lease.borrow_mut());
        local::stores(&self.shard).release_device(self.shared.instance());
        result
    }
}

impl Drop for Blue {
    fn drop(&mut self) {
        self.shared.space().release(self.lease.get_mut());
    }
}
