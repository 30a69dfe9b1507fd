//! [`BlueShared`]: what the shards of a process share of one store.

use std::cell::RefCell;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use carmine_reactor::{Shard, ShardId};
use carmine_types::{FlushMode, READAHEAD_BYTES};

use crate::blue::device::data::{Device, Place};
use crate::blue::device::space::Space;
use crate::blue::log::scan::ReplayReport;
use crate::blue::meta::checkpoint;
use crate::blue::meta::index::MetaIndex;
use crate::blue::shard::Blue;
use crate::blue::shard::commit_log::{CommitLog, run_on};
use crate::{BLOCK_BYTES, KvError, Label, StatFs, StoreError};

carmine_types::defaults! {
    /// Settings of a mounted store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MountOptions {
        /// Budget of each shard's onode cache, in bytes. An onode of a 4 MiB object with its whole map has about 13 KiB.
        pub cache_bytes_per_shard: usize = 256 << 20,
        /// Budget of each shard's cache of data, in bytes; 0: none, as in BlueStore on fast drives, where a read of the
        /// device costs little and hits would hide what the device does.
        pub data_cache_bytes_per_shard: usize,
        /// How far ahead of a sequential reader an object is read, in bytes; 0: no readahead.
        pub readahead_bytes: u64 = READAHEAD_BYTES,
        /// The data of a transaction with fewer bytes than this goes into the log first and to its place later (deferred write);
        /// exactly as many are deferred if transactions arrive one at a time. 0: no deferred writes. `None`: chosen for the
        /// device.
        pub prefer_deferred_bytes: Option<u64>,
        /// How writes become durable. `None`: flushed, which is right for every device.
        pub flush: Option<FlushMode>,
        /// Whether freed space is discarded before it is reused.
        pub discard: bool,
        /// Whether a log that lacks durable groups is replayed as far as it goes, and the loss only reported.
        pub accepts_loss: bool,
    }
}

/// A mounted store: its device, its key-value store, its space and its log.
pub struct BlueShared {
    place: Place,
    /// The log's device, if it is separate.
    wal: Option<Place>,
    label: Label,
    options: MountOptions,
    index: MetaIndex,
    space: Arc<Space>,
    log: Arc<CommitLog>,
    replayed: ReplayReport,
    instance: usize,
    users: Users,
}

/// How many shards have opened the store, and how many have closed it cleanly.
#[derive(Default)]
struct Users(AtomicU64);

impl Users {
    /// The store may no longer be opened: its checkpoint has been written.
    const GONE: u64 = u64::MAX;
    const OPENED: u64 = 1 << 32;

    /// Counts a shard that opens the store; false if it is unmounted.
    fn enter(&self) -> bool {
        let next = |count: u64| (count != Users::GONE).then(|| count + Users::OPENED);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Counts a shard that closed it; true if it was the last of `shards`, and from now on the store cannot be opened.
    fn leave(&self, shards: u16) -> bool {
        let is_last = |count: u64| {
            let (opened, left) = (count / Users::OPENED, count % Users::OPENED + 1);
            opened == left && left >= shards.into()
        };
        let next = |count: u64| Some(if is_last(count) { Users::GONE } else { count + 1 });
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok_and(is_last)
    }
}

/// Number of mounts of this process so far. (Addresses would not do: a message about an old store may arrive when the next one
/// has the same address.)
static MOUNTS: AtomicUsize = AtomicUsize::new(0);

impl BlueShared {
    /// A store after the replay of its log, in this epoch of the log. `places`: of the data, and of the log if it is separate.
    pub(crate) fn new(
        (place, wal): (Place, Option<Place>),
        label: Label,
        options: MountOptions,
        index: MetaIndex,
        space: Space,
        epoch: u64,
        replayed: ReplayReport,
    ) -> Arc<BlueShared> {
        index.begin_epoch(epoch);
        let (space, instance) = (Arc::new(space), MOUNTS.fetch_add(1, Ordering::Relaxed));
        let log = Arc::new(CommitLog::new(index.clone(), &label, Arc::clone(&space), epoch));
        Arc::new(BlueShared {
            place,
            wal,
            label,
            options,
            index,
            space,
            log,
            replayed,
            instance,
            users: Users::default(),
        })
    }

    /// The device's label.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The block file or device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// The block file or device, and the store's part of it.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The separate log device, if there is one.
    #[must_use]
    pub fn wal(&self) -> Option<&Place> {
        self.wal.as_ref()
    }

    /// The file or device that the log lies on.
    pub(crate) fn log_path(&self) -> &Path {
        self.wal.as_ref().map_or(self.path(), |place| &place.path)
    }

    /// The index with the metadata.
    pub(crate) fn index(&self) -> &MetaIndex {
        &self.index
    }

    /// Space of the whole store. None is free when the metadata has no room.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let space = self.space.statfs();
        if self.is_kv_low() { StatFs { free: 0, ..space } } else { space }
    }

    /// The mount's report about the replay of the log.
    #[must_use]
    pub fn replayed(&self) -> &ReplayReport {
        &self.replayed
    }

    /// How writes become durable.
    #[must_use]
    pub fn flush_mode(&self) -> FlushMode {
        self.options.flush.unwrap_or(FlushMode::Flush)
    }

    /// Transactions with less data than this are deferred.
    #[must_use]
    pub fn prefer_deferred_bytes(&self) -> u64 {
        self.options.prefer_deferred_bytes.unwrap_or(BLOCK_BYTES)
    }

    /// Waits until the key-value store contains what all shards of this process have submitted.
    pub(crate) async fn feed_all(&self, shard: &Shard) -> Result<(), StoreError> {
        let instance = self.instance();
        for to in (0..shard.shards()).map(ShardId) {
            let fed = if to == shard.id() {
                feed_all(shard, instance).await
            } else {
                shard.call(to, move |there| async move { feed_all(&there, instance).await }).await
            };
            fed?;
        }
        Ok(())
    }

    pub(crate) fn options(&self) -> MountOptions {
        self.options
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) fn log(&self) -> &Arc<CommitLog> {
        &self.log
    }

    /// Whether writes are refused because the metadata has too little space.
    pub(crate) fn is_kv_low(&self) -> bool {
        self.log.is_low()
    }

    /// Counts a shard that begins to use the store; false if it is unmounted.
    pub(crate) fn enter(&self) -> bool {
        self.users.enter()
    }

    /// Counts a shard that has closed the store, after all that it submitted is in the key-value store. The last one writes the
    /// checkpoint.
    pub(crate) async fn leave(&self, shard: &Shard) {
        if !self.users.leave(shard.shards()) {
            return;
        }
        let of = (self.log.epoch(), &self.label);
        if let Err(error) = checkpoint::write(&self.index, shard, &self.space, of).await {
            tracing::warn!("the next mount has to scan the block maps: {error}");
        }
    }

    /// A number that identifies a mounted store in its process.
    pub(crate) fn instance(&self) -> usize {
        self.instance
    }
}

// The stores of a shard, by which messages from other shards find theirs.

/// Kept in the shard's locals (`Shard::local`).
#[derive(Default)]
pub(crate) struct Stores {
    open: RefCell<Vec<(usize, Weak<Blue>)>>,
    /// Exclusive handles of block devices, held while their store is mounted.
    devices: RefCell<Vec<(usize, Device)>>,
}

/// The registry of this shard.
pub(crate) fn stores(shard: &Shard) -> Rc<Stores> {
    shard.local::<Stores>().unwrap_or_else(|| {
        let stores = Rc::new(Stores::default());
        shard.set_local(Rc::clone(&stores));
        stores
    })
}

impl Stores {
    pub(crate) fn add(&self, instance: usize, store: &Rc<Blue>) {
        let mut open = self.open.borrow_mut();
        open.retain(|(_, store)| store.strong_count() > 0);
        open.push((instance, Rc::downgrade(store)));
    }

    fn get(&self, instance: usize) -> Option<Rc<Blue>> {
        self.open.borrow().iter().find(|(id, _)| *id == instance).and_then(|(_, store)| store.upgrade())
    }

    pub(crate) fn hold_device(&self, instance: usize, device: Device) {
        self.devices.borrow_mut().push((instance, device));
    }

    pub(crate) fn release_device(&self, instance: usize) {
        let gone: Vec<_> = self.devices.borrow_mut().extract_if(.., |(id, _)| *id == instance).collect();
        drop(gone);
    }
}

/// Makes all shards feed the key-value store with what they have.
pub(crate) fn feed_everywhere(shard: &Shard, instance: usize) {
    for to in (0..shard.shards()).map(ShardId) {
        run_on(shard, to, move |shard| {
            if let Some(store) = stores(shard).get(instance) {
                store.feed_now();
            }
        });
    }
}

/// The key-value store contains this shard's groups up to `seq`, or has failed.
pub(crate) fn fed(shard: &Shard, instance: usize, seq: u64, result: &Result<(), KvError>) {
    if let Some(store) = stores(shard).get(instance) {
        store.fed(seq, result);
    }
}

/// The key-value store has made durable what it contains of this shard's groups up to `seq`, or has failed.
pub(crate) fn trimmed(shard: &Shard, instance: usize, seq: u64, result: &Result<(), KvError>) {
    if let Some(store) = stores(shard).get(instance) {
        store.trimmed(seq, result);
    }
}

/// Waits until the key-value store contains all that this shard has submitted, and freed blocks are discarded.
pub(crate) async fn feed_all(shard: &Shard, instance: usize) -> Result<(), StoreError> {
    let store = stores(shard).get(instance);
    match store {
        Some(store) => store.settle().await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_shard_to_leave_is_the_last_one() {
        let users = Users::default();
        assert!(users.enter() && !users.leave(2), "the other shard has not even come");
        assert!(users.enter() && users.enter() && !users.leave(2), "one is still there");
        assert!(users.leave(2) && !users.enter(), "all are gone");
        let alone = Users::default();
        assert!(alone.enter() && alone.leave(1) && !alone.enter());
    }
}
