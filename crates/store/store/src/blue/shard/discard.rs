//! Discards freed space in batches.
//!
//! A block comes here when its freeing is durable, no read needs it any more and no write to it is in flight. It stays allocated
//! until its discard is done, so a reallocated block is never discarded. Discards are optional: if the drive is slower than the
//! store, or space gets short, blocks are freed without one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use carmine_reactor::Group as SchedulingGroup;
use carmine_types::is_mutated;

use crate::BLOCK_BYTES;
use crate::blue::device::join::join_all;
use crate::blue::device::space::{Run, Space};
use crate::blue::objects::reads::Freed;
use crate::blue::shard::Blue;

/// A batch is this part of the store's space, …
const BATCH_PART: u64 = 1024;
/// … and at most so many blocks: 16 MiB.
const BATCH_BLOCKS_MAX: u64 = 4096;
/// Blocks are freed without a discard while this part of the space waits on a shard, …
const WAITING_PART: u64 = 64;
/// … or so many blocks: 256 MiB.
const WAITING_BLOCKS_MAX: u64 = 1 << 16;
/// When less than this part of the space is free, no block waits.
const FREE_PART: u64 = 32;
/// How long an incomplete batch waits.
const DELAY: Duration = Duration::from_millis(100);
/// Discards in flight.
const PARALLEL: usize = 8;

/// A shard's freed blocks that wait for their discard.
pub(crate) struct Discards {
    state: RefCell<DiscardQueue>,
    batch_blocks: usize,
    waiting_blocks_max: usize,
    free_blocks_min: u64,
    /// Set if the drive does not support discards.
    refused: Cell<bool>,
}

#[derive(Default)]
struct DiscardQueue {
    waiting: VecDeque<u64>,
    /// Set while a task discards the waiting blocks.
    running: bool,
    /// Set while a delayed task is scheduled.
    delayed: bool,
}

/// The next action after freed blocks were added.
enum Next {
    Nothing,
    Run,
    Delay,
}

impl Discards {
    pub(crate) fn new(space: &Space) -> Discards {
        let blocks = space.data_blocks();
        Discards {
            state: RefCell::default(),
            batch_blocks: (blocks / BATCH_PART).clamp(1, BATCH_BLOCKS_MAX) as usize,
            waiting_blocks_max: (blocks / WAITING_PART).clamp(1, WAITING_BLOCKS_MAX) as usize,
            free_blocks_min: blocks / FREE_PART,
            refused: Cell::new(false),
        }
    }

    /// Whether blocks may wait, which they may not when space is short.
    fn may_wait(&self, free_blocks: u64) -> bool {
        free_blocks >= self.free_blocks_min && !self.refused.get()
    }

    /// Adds blocks; returns those that must not wait.
    fn add(&self, freed: Freed, free_blocks: u64) -> (Option<Freed>, Next) {
        let mut state = self.state.borrow_mut();
        if !self.may_wait(free_blocks) || state.waiting.len() >= self.waiting_blocks_max {
            return (Some(freed), Next::Nothing);
        }
        state.waiting.extend(freed);
        let next = if state.running {
            Next::Nothing
        } else if state.waiting.len() >= self.batch_blocks {
            state.running = true;
            Next::Run
        } else if !std::mem::replace(&mut state.delayed, true) {
            Next::Delay
        } else {
            Next::Nothing
        };
        (None, next)
    }

    /// The batch to discard now; `None`: no block waits any more, and the task ends.
    fn next_batch(&self) -> Option<Vec<u64>> {
        let mut state = self.state.borrow_mut();
        let blocks = state.waiting.len().min(self.batch_blocks);
        let batch: Vec<u64> = state.waiting.drain(..blocks).collect();
        state.running = !batch.is_empty();
        state.running.then_some(batch)
    }

    fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.waiting.is_empty() && !state.running
    }
}

impl Blue {
    /// Frees blocks that nothing needs any more, after a discard if the store discards.
    pub(crate) fn discard_or_free(&self, freed: Freed) {
        let Some(discards) = &self.discards else { return self.free(freed) };
        if is_mutated("discard_reused") {
            self.free(freed.iter().copied());
        }
        let (rest, next) = discards.add(freed, self.shared.space().free_blocks(true));
        self.free_all(rest.into_iter().flatten());
        match next {
            Next::Nothing => {}
            Next::Run => self.spawn_discards(),
            Next::Delay => {
                let Some(store) = self.rc() else { return };
                self.shard.spawn(SchedulingGroup::Admin, "blue-discard-later", async move {
                    store.shard.sleep(DELAY).await;
                    store.start_discards();
                });
            }
        }
    }

    /// Starts discarding the waiting blocks, however few.
    fn start_discards(&self) {
        let Some(discards) = &self.discards else { return };
        let mut state = discards.state.borrow_mut();
        state.delayed = false;
        if !state.waiting.is_empty() && !std::mem::replace(&mut state.running, true) {
            drop(state);
            self.spawn_discards();
        }
    }

    fn spawn_discards(&self) {
        let Some(store) = self.rc() else { return };
        self.shard.spawn(SchedulingGroup::Admin, "blue-discard", async move {
            store.run_discards().await;
        });
    }

    async fn run_discards(&self) {
        let Some(discards) = &self.discards else { return };
        loop {
            if !discards.may_wait(self.shared.space().free_blocks(true)) {
                self.skip_discards();
            }
            let Some(batch) = discards.next_batch() else { return self.progress.notify_all() };
            for part in runs_of(batch).chunks(PARALLEL) {
                self.discard_runs(discards, part).await;
                self.free_all(part.iter().flat_map(|run| run.start..run.start + run.blocks));
            }
        }
    }

    async fn discard_runs(&self, discards: &Discards, runs: &[Run]) {
        if discards.refused.get() || self.has_failed() {
            return;
        }
        let all = runs.iter().map(|run| self.file.discard(run.start * BLOCK_BYTES, run.blocks * BLOCK_BYTES));
        let result: std::io::Result<()> = join_all(all).await.into_iter().collect();
        match result {
            Ok(()) => self.count(|stats| {
                stats.discards += runs.len() as u64;
                stats.discard_bytes += runs.iter().map(|run| run.blocks * BLOCK_BYTES).sum::<u64>();
            }),
            Err(error) => {
                discards.refused.set(true);
                tracing::warn!(%error, "{} takes no discards: freed space is reused without", self.shared.path().display());
            }
        }
    }

    /// Frees blocks whose discard is done or skipped.
    fn free_all(&self, blocks: impl IntoIterator<Item = u64>) {
        if !is_mutated("discard_reused") {
            self.free(blocks);
        }
    }

    fn free(&self, blocks: impl IntoIterator<Item = u64>) {
        for block in blocks {
            self.shared.space().free(block);
            if is_mutated("free_twice") {
                self.shared.space().free(block);
            }
        }
    }

    /// Frees the waiting blocks without a discard; false if there are none.
    pub(crate) fn skip_discards(&self) -> bool {
        let Some(discards) = &self.discards else { return false };
        let waiting = std::mem::take(&mut discards.state.borrow_mut().waiting);
        let any = !waiting.is_empty();
        self.free_all(waiting);
        any
    }

    /// Discards the waiting blocks and waits until that is done.
    pub(crate) async fn finish_discards(&self) {
        while self.discards.as_ref().is_some_and(|discards| !discards.is_idle()) {
            self.start_discards();
            self.progress.notified().await;
        }
    }
}

/// Runs of neighbouring blocks, in the order of the device.
fn runs_of(mut blocks: Vec<u64>) -> Vec<Run> {
    blocks.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(last) if last.start + last.blocks == block && last.blocks < BATCH_BLOCKS_MAX => {
                last.blocks += 1;
            }
            _ => runs.push(Run { start: block, blocks: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn neighbours_are_one_discard() {
        let runs = runs_of(vec![9, 3, 5, 4, 20]);
        let run = |start, blocks| Run { start, blocks };
        assert_eq!(runs, [run(3, 3), run(9, 1), run(20, 1)]);
    }

    #[test]
    fn a_batch_runs_less_waits_and_too_much_is_given_back() {
        let discards = Discards::new(&Space::new(2 + 2 * BATCH_PART));
        let back = |(back, next): (Option<Freed>, Next)| matches!(next, Next::Nothing).then_some(back);
        let add = |block: u64, free: u64| discards.add(smallvec![block], free);
        assert_eq!(back(add(1, 63)), Some(Some(smallvec![1])), "space is short");
        assert!(matches!(add(1, 64), (None, Next::Delay)));
        assert!(matches!(add(2, 64), (None, Next::Run)));
        for block in 3..=32 {
            assert_eq!(back(add(block, 64)), Some(None));
        }
        assert_eq!(back(add(33, 64)), Some(Some(smallvec![33])), "too many wait");
        assert_eq!(discards.next_batch(), Some(vec![1, 2]));
        for _ in 1..16 {
            assert!(discards.next_batch().is_some() && !discards.is_idle());
        }
        assert_eq!((discards.next_batch(), discards.is_idle()), (None, true));
    }
}
