//! The stores of a shard, so that a message from another shard finds the one it is for.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use carmine_reactor::Shard;

use super::Blue;
use super::device::Device;
use crate::KvError;

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

/// The first `count` transactions that wait on this shard are durable, or have failed.
pub(crate) fn durable(shard: &Shard, instance: usize, count: usize, result: &Result<(), KvError>) {
    if let Some(store) = stores(shard).get(instance) {
        store.durable(count, result);
    }
}
