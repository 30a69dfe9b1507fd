//! The stores of a shard, so that a message from another shard finds the one it is for.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use carmine_reactor::Shard;

use crate::blue::device::data::Device;
use crate::blue::shard::Blue;
use crate::{KvError, StoreError};

/// Hangs on the shard (`Shard::local`).
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

/// The key-value store contains this shard's groups up to `seq`, or has failed.
pub(crate) fn fed(shard: &Shard, instance: usize, seq: u64, result: &Result<(), KvError>) {
    if let Some(store) = stores(shard).get(instance) {
        store.fed(seq, result);
    }
}

/// What it contains of this shard's groups up to `seq` is durable there, or it has failed.
pub(crate) fn trimmed(shard: &Shard, instance: usize, seq: u64, result: &Result<(), KvError>) {
    if let Some(store) = stores(shard).get(instance) {
        store.trimmed(seq, result);
    }
}

/// Waits until the key-value store contains all that this shard has submitted, and what that freed is discarded.
pub(crate) async fn feed_all(shard: &Shard, instance: usize) -> Result<(), StoreError> {
    let store = stores(shard).get(instance);
    match store {
        Some(store) => store.settle().await,
        None => Ok(()),
    }
}
