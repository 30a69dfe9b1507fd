//! One reactor's part of a mounted store: transactions on their way to durability, reads, and the cache of onodes.

mod clone;
mod commit_log;
mod discard;
mod feeding;
pub(crate) mod load;
mod logging;
mod omap;
mod pg;
mod queue;
mod read;
mod readahead;
mod release;
pub(crate) mod shared;
mod submit;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use carmine_reactor::sync::Notify;
use carmine_reactor::{Bytes, Shard};
use carmine_types::{IoPath, ObjectId};
use foldhash::fast::FixedState;

use crate::blue::device::data::Device;
use crate::blue::device::space::Lease;
use crate::blue::objects::apply::Trimmed;
use crate::blue::objects::cache::{Cache, DataCache};
use crate::blue::objects::reads::{Freed, ReadGuard, Reads};
use crate::{KvCpu, StatFs, StoreError, StoreStats};
use discard::Discards;
use queue::Queue;
use readahead::Readahead;
use shared::BlueShared;
use window::Windows;

/// Bytes of zeros at hand for holes.
const ZEROS_BYTES: usize = 64 << 10;

/// Below this part of free space, statfs also triggers a measurement of the metadata.
const LOOK_BELOW_PART: u64 = 4;

fn is_nearly_full(space: StatFs) -> bool {
    space.free < space.total / LOOK_BELOW_PART
}

/// One shard's part of the store.
pub(crate) struct Blue {
    shard: Shard,
    shared: Arc<BlueShared>,
    /// The device with the data, …
    file: Device,
    /// … and the one with the log, if separate.
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
    /// Notified whenever transactions become durable or fail.
    progress: Notify,
    reads: Rc<Reads>,
    /// Freed blocks to discard; `None`: blocks are freed at once.
    discards: Option<Discards>,
    /// Objects, by the naming part of their keys, that were created or removed by transactions that the key-value store lacks.
    existence: RefCell<BTreeMap<Box<[u8]>, Existence>>,
    /// The log tails of PGs, as far as this shard knows them.
    trimmed: RefCell<Trimmed>,
    /// Set once; nothing is acknowledged any more.
    failed: RefCell<Option<StoreError>>,
    closed: Cell<bool>,
    stats: RefCell<StoreStats>,
    zeros: Bytes,
}

/// An object's existence after transactions that the key-value store lacks.
#[derive(Clone, Copy)]
struct Existence {
    exists: bool,
    /// Number of transactions that changed it.
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
        if !shared.enter() {
            return Err(StoreError::failed("it was unmounted"));
        }
        let area = shared.label().log();
        let log_blocks = u64::from(area.group_segments()) * u64::from(area.segment_blocks);
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
            queue: RefCell::new(Queue::new(Windows::new(log_blocks, shard.shards()))),
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
        shared::stores(shard).add(shared.instance(), &store);
        Ok(store)
    }

    /// How reads and writes reach the device with the data.
    pub(crate) fn io_path(&self) -> IoPath {
        self.file.io_path()
    }

    /// The device that the log lies on.
    fn log_file(&self) -> &Device {
        self.log_file.as_ref().unwrap_or(&self.file)
    }

    /// A handle for a task.
    fn rc(&self) -> Option<Rc<Blue>> {
        self.me.upgrade()
    }

    /// Why new transactions are refused, if so.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        if self.closed.get() {
            return Some(StoreError::failed("it was unmounted"));
        }
        self.failed.borrow().clone()
    }

    /// Begins a read of the device: blocks freed from now on are not reused until it ends.
    fn begin_read(&self) -> ReadGuard<impl Fn(Freed) + use<>> {
        // The reader holds the store.
        let me = Weak::clone(&self.me);
        self.reads.begin(move |freed| {
            if let Some(store) = me.upgrade() {
                store.discard_or_free(freed);
            }
        })
    }

    /// Metadata that cannot be read, if any was met.
    pub(crate) fn damage(&self) -> Option<StoreError> {
        self.shared.log().damage().cloned()
    }

    pub(crate) fn note_damage(&self, error: &StoreError) {
        self.shared.log().note_damage(error);
    }

    fn count(&self, change: impl FnOnce(&mut StoreStats)) {
        change(&mut self.stats.borrow_mut());
    }

    pub(crate) fn statfs(&self) -> StatFs {
        let space = self.shared.statfs();
        // Space may be freed without a commit, too.
        if is_nearly_full(space) {
            self.shared.log().measure_room_soon(&self.shard);
        }
        space
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

    /// Waits until everything submitted so far is durable in the key-value store, and the log says so; then refuses more. The
    /// last shard also writes the checkpoint of used blocks, unless a read still holds a block back.
    pub(crate) async fn umount(&self) -> Result<(), StoreError> {
        let was_closed = self.closed.replace(true);
        let result = self.settle().await;
        self.shared.space().release(&mut self.lease.borrow_mut());
        if result.is_ok() && !was_closed && self.reads.is_idle() {
            self.shared.leave(&self.shard).await;
        }
        shared::stores(&self.shard).release_device(self.shared.instance());
        result
    }
}

impl Drop for Blue {
    fn drop(&mut self) {
        self.shared.space().release(self.lease.get_mut());
    }
}
