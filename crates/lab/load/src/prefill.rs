//! Objects are written before they are loaded: incompressible data, in large pieces. Random writes need it as well: they
//! would leave holes, which later loads would read without touching the device.

use std::cell::Cell;
use std::rc::Rc;

use carmine_reactor::{Group, Payload};

use crate::control::JobProgress;
use crate::job::Run;
use crate::pattern::BlockAddr;
use crate::rng::Rng;
use crate::spec::{Prefill, Rw};
use crate::target::{Target, TargetError};
use crate::verify::{self, BlockId};

/// Bytes of one write.
const PIECE_BYTES: u64 = 1 << 20;
/// Objects that are written at the same time by one job.
const WRITERS: u64 = 4;

/// Which objects are written.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    None,
    Missing,
    All,
}

fn mode<T: Target + 'static>(run: &Run<T>) -> Mode {
    let spec = &run.spec;
    match spec.prefill {
        _ if spec.verify_only => Mode::None,
        Prefill::Never => Mode::None,
        Prefill::Always => Mode::All,
        Prefill::Auto if spec.rw == Rw::Write => Mode::None,
        Prefill::Auto if !spec.verify => Mode::Missing,
        // Nothing is known of the blocks that are there, so nothing could be checked.
        Prefill::Auto if run.state.borrow().ledger.known() == 0 => Mode::All,
        Prefill::Auto => Mode::None,
    }
}

/// Writes this job's objects as far as the load needs it; an error stops the load.
pub(crate) async fn prefill<T: Target + 'static>(run: &Rc<Run<T>>) {
    let mode = mode(run);
    if mode == Mode::None {
        return;
    }
    let objects = run.geometry.objects.len();
    let total = objects as u64 * run.spec.object_size_bytes;
    let work = Rc::new(Work { next: Cell::new(0), done_bytes: Cell::new(0), total, writers: Cell::new(0) });
    run.progress(|p| p.set_prefill(0, total));
    work.writers.set(WRITERS.min(objects as u64));
    for _ in 0..work.writers.get() {
        let (run, work) = (Rc::clone(run), Rc::clone(&work));
        run.shard.clone().spawn(Group::Client, "load prefill", async move {
            write_objects(&run, &work, mode).await;
            work.writers.set(work.writers.get() - 1);
        });
    }
    while work.writers.get() > 0 {
        run.shard.sleep(std::time::Duration::from_millis(2)).await;
    }
}

struct Work {
    next: Cell<usize>,
    done_bytes: Cell<u64>,
    total: u64,
    writers: Cell<u64>,
}

async fn write_objects<T: Target + 'static>(run: &Run<T>, work: &Work, mode: Mode) {
    while !run.stopped() {
        let slot = work.next.get();
        let Some(object) = run.geometry.objects.get(slot).copied() else { return };
        work.next.set(slot + 1);
        let place = BlockAddr { slot, object, offset: 0 };
        if let Err(error) = write_object(run, work, mode, place).await {
            run.error("prefill", &place, &error);
            return;
        }
    }
}

async fn write_object<T: Target + 'static>(
    run: &Run<T>,
    work: &Work,
    mode: Mode,
    place: BlockAddr,
) -> Result<(), TargetError> {
    let size = run.spec.object_size_bytes;
    if mode == Mode::Missing && run.target.stat(run.name(place.slot)).await?.is_some_and(|have| have >= size)
    {
        count(run, work, size);
        return Ok(());
    }
    let bs = run.spec.bs_bytes;
    let piece = (PIECE_BYTES / bs * bs).clamp(bs, size);
    let mut offset = 0;
    while offset < size && !run.stopped() {
        let len = piece.min(size - offset);
        write_piece(run, BlockAddr { offset, ..place }, len).await?;
        offset += len;
        count(run, work, len);
    }
    Ok(())
}

fn count<T: Target + 'static>(run: &Run<T>, work: &Work, bytes: u64) {
    work.done_bytes.set(work.done_bytes.get() + bytes);
    run.progress(|p: &JobProgress| p.set_prefill(work.done_bytes.get(), work.total));
}

async fn write_piece<T: Target + 'static>(
    run: &Run<T>,
    place: BlockAddr,
    len: u64,
) -> Result<(), TargetError> {
    let bs = run.spec.bs_bytes;
    let mut data = run.shard.buf(usize::try_from(len).unwrap_or(0));
    let mut sequences = Vec::new();
    if run.spec.verify {
        let first = place.slot as u64 * run.geometry.blocks_per_object + place.offset / bs;
        let mut state = run.state.borrow_mut();
        for (n, block) in data.chunks_exact_mut(usize::try_from(bs).unwrap_or(usize::MAX)).enumerate() {
            let (index, offset) = (first + n as u64, place.offset + n as u64 * bs);
            let sequence = state.ledger.issue(index);
            let id = BlockId { seed: run.spec.block_seed(), object: place.object, offset };
            verify::seal(block, &id, sequence);
            sequences.push((index, sequence));
        }
    } else {
        Rng::new(run.spec.seed, u64::from(place.object) << 40 | place.offset).fill(&mut data);
    }
    let payload = Payload::from(data.freeze());
    let done = run.target.write(run.name(place.slot), place.offset, payload).await;
    let mut state = run.state.borrow_mut();
    sequences.iter().for_each(|(index, sequence)| state.ledger.finish(*index, *sequence, done.is_ok()));
    done
}
