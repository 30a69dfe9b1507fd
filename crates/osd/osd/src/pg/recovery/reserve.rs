//! Recovery slots: how many PGs an OSD recovers at the same time (`osd_max_backfills`). Shard 0 has them, for all shards.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use carmine_reactor::sync::{Permit, Semaphore};
use carmine_reactor::{Shard, ShardId};

use crate::shard::OsdShard;

/// The slots of an OSD.
pub(crate) struct Reserver {
    /// For its PGs as primary.
    local: Semaphore,
    /// For its PGs as replica.
    remote: Semaphore,
    given: RefCell<BTreeMap<u64, Permit>>,
    next: Cell<u64>,
}

/// A slot, until it is dropped.
pub(super) struct Reservation {
    here: Shard,
    number: u64,
}

impl Reserver {
    pub(crate) fn new(max_backfills: u32) -> Reserver {
        let places = || Semaphore::new(max_backfills.max(1) as usize);
        Reserver { local: places(), remote: places(), given: RefCell::default(), next: Cell::new(0) }
    }

    /// Changes the number of slots; those in use stay in use.
    pub(crate) fn resize(&self, max_backfills: u32) {
        [&self.local, &self.remote].iter().for_each(|places| places.resize(max_backfills.max(1) as usize));
    }

    fn keep(&self, place: Permit) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        self.given.borrow_mut().insert(number, place);
        number
    }
}

/// Waits for a slot as primary; `None` if the OSD stops.
pub(super) async fn local(osd: &OsdShard) -> Option<Reservation> {
    let number = osd.shard.call(ShardId(0), |home| async move {
        let osd = OsdShard::on(&home)?;
        let place = osd.reserver.local.acquire(1).await;
        Some(osd.reserver.keep(place))
    });
    number.await.map(|number| Reservation { here: osd.shard.clone(), number })
}

/// A slot as replica, if one is free now.
pub(super) async fn remote(osd: &OsdShard) -> Option<Reservation> {
    let number = osd.shard.call(ShardId(0), |home| async move {
        let osd = OsdShard::on(&home)?;
        let place = osd.reserver.remote.try_acquire(1)?;
        Some(osd.reserver.keep(place))
    });
    number.await.map(|number| Reservation { here: osd.shard.clone(), number })
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let number = self.number;
        OsdShard::run_on(&self.here, ShardId(0), move |home| {
            let place = home.reserver.given.borrow_mut().remove(&number);
            drop(place);
        });
    }
}
