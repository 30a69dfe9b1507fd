//! Objects are written before they are loaded: incompressible data, in large pieces. Random writes need it as well: they
//! would leave holes, which later loads would read without touching the device.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use carmine_reactor::Payload;

use crate::job::Run;
use crate::pattern::{BlockAddr, rng};
use crate::spec::{Prefill, Rw};
use crate::target::{Target, TargetError};

/// Bytes of one write.
const PIECE_BYTES: u64 = 1 << 20;
/// Objects that are written at the same time by one job.
const WRITERS: usize = 4;

impl<T: Target + 'static> Run<T> {
    /// Whether objects are written before the load, and then whether those that are there already are left as they are.
    fn only_missing(&self) -> Option<bool> {
        let spec = self.spec();
        match spec.prefill {
            _ if spec.verify_only => None,
            Prefill::Never => None,
            Prefill::Always => Some(false),
            Prefill::Auto if spec.rw == Rw::Write => None,
            Prefill::Auto if !spec.verify => Some(true),
            Prefill::Auto if self.state.borrow().ledger.knows_any() => None,
            // Nothing is known of the blocks that are there, so nothing could be checked.
            Prefill::Auto => Some(false),
        }
    }

    /// Writes those of this job's objects that the load needs; an error stops the load.
    pub(crate) async fn prefill(self: &Rc<Self>) {
        let Some(only_missing) = self.only_missing() else { return };
        let objects = self.geometry.objects.len();
        let total = objects as u64 * self.spec().object_size_bytes;
        self.progress().prefill_bytes_total.store(total, Ordering::Relaxed);
        let next = Rc::new(Cell::new(0));
        for _ in 0..WRITERS.min(objects) {
            let (own, next) = (Rc::clone(self), Rc::clone(&next));
            self.spawn("load prefill", async move { own.write_objects(&next, only_missing).await });
        }
        while self.workers.get() > 0 {
            self.shard.sleep(Duration::from_millis(2)).await;
        }
    }

    async fn write_objects(&self, next: &Cell<usize>, only_missing: bool) {
        while !self.stopped() {
            let slot = next.replace(next.get() + 1);
            let Some(object) = self.geometry.objects.get(slot).copied() else { return };
            let place = BlockAddr { slot, object, offset: 0 };
            if let Err(error) = self.write_object(place, only_missing).await {
                self.error("prefill", &place, &error);
            }
        }
    }

    async fn write_object(&self, place: BlockAddr, only_missing: bool) -> Result<(), TargetError> {
        let (bs, size) = (self.spec().bs_bytes, self.spec().object_size_bytes);
        let done = &self.progress().prefill_bytes_done;
        if only_missing && self.target.stat(self.name(place.slot)).await?.is_some_and(|have| have >= size) {
            done.fetch_add(size, Ordering::Relaxed);
            return Ok(());
        }
        let piece = (PIECE_BYTES / bs * bs).clamp(bs, size);
        let mut offset = 0;
        while offset < size && !self.stopped() {
            let len = piece.min(size - offset);
            self.write_piece(BlockAddr { offset, ..place }, len).await?;
            offset += len;
            done.fetch_add(len, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn write_piece(&self, place: BlockAddr, len: u64) -> Result<(), TargetError> {
        if self.spec().verify {
            let first =
                place.slot as u64 * self.geometry.blocks_per_object + place.offset / self.spec().bs_bytes;
            return self.write_sealed(first, place, len).await;
        }
        let mut data = self.shard.buf(len as usize);
        rng(self.spec().seed, u64::from(place.object) << 40 | place.offset).fill(&mut data);
        self.target.write(self.name(place.slot), place.offset, Payload::from(data.freeze())).await
    }
}
