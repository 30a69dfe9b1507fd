//! One job: `iodepth` workers on one reactor, each with one operation in flight.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use carmine_reactor::{Buf, Bytes, Group, Payload, ReactorStats, Shard};
use fastrand::Rng;

use crate::ledger::{Ledger, VerifyState, Writes};
use crate::pattern::{BlockAddr, Geometry, Pattern, Piece, Schedule, rng};
use crate::result::JobResult;
use crate::session::{Control, JobEvent, JobProgress, Phase};
use crate::spec::LoadSpec;
use crate::target::{Target, TargetError};
use crate::verify;

/// How often a job checks whether its controller has moved on, if there are no more than so many: else that is most of their work.
const WATCH: Duration = Duration::from_millis(2);
const WATCHES: u32 = 64;
/// Time for answers after the end; what has none by then is abandoned.
const DRAIN: Duration = Duration::from_secs(10);
/// The same after a failure, when answers are unlikely.
const DRAIN_FAILED: Duration = Duration::from_secs(1);
/// Time between copies of the verify state to the controller.
const SNAPSHOT_NS: u64 = 500_000_000;
/// A wait for an intended start goes in steps of this, which notice the end of the load.
const STEP_NS: u64 = 20_000_000;
/// Draws for a block that has no write in flight; then the worker waits a little.
const DRAWS_MAX: usize = 32;
/// Random bytes that unverified writes take their data from: of a job, and of all together at most.
const POOL_BYTES: usize = 1 << 20;
const POOLS_BYTES: usize = 64 << 20;
/// Writes start at multiples of this in the pool, so that the data is aligned for direct I/O.
const POOL_STEP: usize = 4096;

/// Everything that a job needs to start.
#[derive(Clone, Debug)]
pub struct JobSetup {
    pub spec: Arc<LoadSpec>,
    pub job: u32,
    pub(crate) control: Arc<Control>,
    pub(crate) events: Sender<JobEvent>,
    pub(crate) state: Option<Arc<VerifyState>>,
}

impl JobSetup {
    /// Ends a job that can't start.
    pub fn abort(self, error: &str) {
        self.control.fail();
        self.send(JobEvent::Done(Box::new(JobResult::failed(self.job, error.to_owned()))));
    }

    /// Sends an event to the controller. It may be gone; then nobody wants to know.
    fn send(&self, event: JobEvent) {
        let _ = self.events.send(event);
    }
}

/// Name of an object of a load.
pub fn object_name(spec: &LoadSpec, object: u32) -> String {
    format!("bench.{}.{object:08x}", spec.object_size_bytes)
}

/// One operation, and when it was meant to start.
#[derive(Clone, Copy)]
struct Op {
    piece: Piece,
    place: BlockAddr,
    start_ns: u64,
}

/// State that the workers of a job share.
pub(crate) struct Run<T> {
    pub(crate) shard: Shard,
    pub(crate) target: Rc<T>,
    pub(crate) geometry: Geometry,
    setup: JobSetup,
    /// The controller wants to know the state of all blocks.
    keeps_state: bool,
    names: Vec<String>,
    pub(crate) state: RefCell<JobState>,
    /// Time that intended starts count from.
    began_ns: Cell<u64>,
    /// Tasks that have not ended.
    pub(crate) workers: Cell<u32>,
}

pub(crate) struct JobState {
    pattern: Pattern,
    schedule: Option<Schedule>,
    pub(crate) ledger: Ledger,
    result: JobResult,
    data: Rng,
    pool: Bytes,
    /// Places in it where the data of a write may begin.
    pool_steps: usize,
    window_ns: Option<u64>,
    /// The last acknowledgement, counted from the window's start.
    acked_ns: u64,
    /// Operations still to be started, where their number is given.
    left: Option<u64>,
    in_flight: u64,
    /// Next block of a verification that reads each once.
    cursor: u64,
}

impl JobState {
    /// The time since the last acknowledgement ends `at_ns` after the window's start.
    #[inline]
    fn end_pause(&mut self, at_ns: u64) {
        let pause_ns = at_ns.saturating_sub(self.acked_ns);
        self.result.longest_pause_ns = self.result.longest_pause_ns.max(pause_ns);
        self.acked_ns = at_ns;
    }
}

/// Runs a job to its end and reports it to the controller.
pub async fn run_job<T: Target + 'static>(shard: &Shard, target: Rc<T>, geometry: Geometry, setup: JobSetup) {
    let run = Rc::new(Run::new(shard, target, geometry, setup));
    run.progress().ready.store(true, Ordering::Release);
    run.wait_for(Phase::Prefill).await;
    if !run.stopped() {
        run.prefill().await;
    }
    run.progress().prefilled.store(true, Ordering::Release);
    run.wait_for(Phase::Ramp).await;
    run.start_workers();
    run.watch().await;
    run.send_ledger();
    let mut result = std::mem::take(&mut run.state.borrow_mut().result);
    if run.spec().keep_seconds {
        result.seconds.close();
    }
    run.setup.send(JobEvent::Done(Box::new(result)));
}

impl<T: Target + 'static> Run<T> {
    fn new(shard: &Shard, target: Rc<T>, geometry: Geometry, mut setup: JobSetup) -> Run<T> {
        let known = setup.state.take();
        let (spec, job, blocks) = (&*setup.spec, setup.job, geometry.blocks());
        let mut data = rng(spec.seed, u64::from(job) << 32 | 0xda7a);
        let pool_steps = (POOL_BYTES.min(POOLS_BYTES / spec.numjobs.max(1) as usize) / POOL_STEP).max(1);
        let mut pool =
            Buf::heap(pool_steps * POOL_STEP + (spec.longest_bytes() as usize).next_multiple_of(POOL_STEP));
        data.fill(&mut pool);
        let state = JobState {
            pattern: Pattern::new(spec, job, blocks),
            schedule: Schedule::new(spec, job).filter(|_| !spec.verify_only),
            ledger: match &known {
                Some(known) => known.ledger(&geometry),
                None => Ledger::new(if spec.verifies() { blocks } else { 0 }),
            },
            result: JobResult { job, ..JobResult::default() },
            data,
            pool: pool.freeze(),
            pool_steps,
            window_ns: None,
            acked_ns: 0,
            left: spec.ops_of(job),
            in_flight: 0,
            cursor: 0,
        };
        Run {
            shard: shard.clone(),
            target,
            keeps_state: known.is_some(),
            names: geometry.objects.iter().map(|object| object_name(spec, *object)).collect(),
            geometry,
            setup,
            state: RefCell::new(state),
            began_ns: Cell::new(0),
            workers: Cell::new(0),
        }
    }

    pub(crate) fn spec(&self) -> &LoadSpec {
        &self.setup.spec
    }

    pub(crate) fn name(&self, slot: usize) -> &str {
        &self.names[slot]
    }

    pub(crate) fn progress(&self) -> &JobProgress {
        self.setup.control.job(self.setup.job)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.setup.control.phase() == Phase::Stop || self.setup.control.has_failed()
    }

    /// Keeps the first error and stops the load.
    pub(crate) fn error(&self, what: &str, place: &BlockAddr, error: &TargetError) {
        let text = format!("{what} of {} at {}: {error}", self.name(place.slot), place.offset);
        let mut state = self.state.borrow_mut();
        state.result.errors += 1;
        state.result.first_error.get_or_insert(text);
        self.setup.control.fail();
    }

    /// Time between two looks at the controller.
    fn pause(&self) -> Duration {
        WATCH * self.spec().numjobs.div_ceil(WATCHES)
    }

    async fn wait_for(&self, phase: Phase) {
        while self.setup.control.phase() < phase && !self.setup.control.has_failed() {
            self.shard.sleep(self.pause()).await;
        }
    }

    /// Starts a task that counts as a worker until it ends.
    pub(crate) fn spawn(self: &Rc<Self>, name: &'static str, work: impl Future<Output = ()> + 'static) {
        let run = Rc::clone(self);
        self.workers.set(self.workers.get() + 1);
        self.shard.spawn(Group::Client, name, async move {
            work.await;
            run.workers.set(run.workers.get() - 1);
        });
    }

    fn start_workers(self: &Rc<Self>) {
        self.began_ns.set(self.shard.now_ns());
        let workers = if self.geometry.blocks() == 0 { 0 } else { self.spec().iodepth };
        for _ in 0..workers {
            let run = Rc::clone(self);
            self.spawn("load worker", async move { run.work().await });
        }
    }

    async fn work(&self) {
        while !self.stopped() {
            let Some(op) = self.next_op() else {
                // No operation will follow, whatever the time.
                if self.spec().verify_only || self.state.borrow().left == Some(0) {
                    return;
                }
                self.shard.sleep(Duration::from_micros(100)).await;
                continue;
            };
            let mut now_ns = self.shard.now_ns();
            while now_ns < op.start_ns {
                let step_ns = (op.start_ns - now_ns).min(STEP_NS);
                self.shard.sleep(Duration::from_nanos(step_ns)).await;
                if self.stopped() {
                    return;
                }
                now_ns = self.shard.now_ns();
            }
            // Only a scheduled start may lie in the past: closed-loop load starts now.
            let start_ns = if self.spec().rate_iops.is_some() { op.start_ns } else { now_ns };
            self.perform(Op { start_ns, ..op }).await;
            // A target in memory may answer at once: without this, one worker would keep the reactor for ever.
            self.shard.yield_now().await;
        }
    }

    fn next_op(&self) -> Option<Op> {
        let state = &mut *self.state.borrow_mut();
        if state.left == Some(0) {
            return None;
        }
        if self.spec().verify_only {
            // The next block of which a write was acknowledged.
            let known = |block: &u64| state.ledger.writes(*block).acked > 0;
            let block = (state.cursor..self.geometry.blocks()).find(known)?;
            state.cursor = block + 1;
            let place = self.geometry.locate(block)?;
            let piece = Piece { read: true, block, count: 1 };
            return Some(Op { piece, place, start_ns: 0 });
        }
        let mut piece = state.pattern.next_op();
        let is_tracked = self.spec().verify && !piece.read;
        if is_tracked {
            // Two writes of one block in flight could be acknowledged in any order: what is there would then be unknown.
            let mut draws = 1;
            while piece.blocks().any(|block| state.ledger.writes(block).writing) {
                if draws == DRAWS_MAX {
                    return None;
                }
                piece.block = state.pattern.next_block(piece.count);
                draws += 1;
            }
        }
        let start_ns = state.schedule.as_mut().map_or(0, |s| self.began_ns.get().saturating_add(s.next_ns()));
        let place = self.geometry.locate(piece.block)?;
        if is_tracked {
            piece.blocks().for_each(|block| state.ledger.reserve(block));
        }
        state.left = state.left.map(|left| left - 1);
        Some(Op { piece, place, start_ns })
    }

    async fn perform(&self, op: Op) {
        self.state.borrow_mut().in_flight += 1;
        let is_read = op.piece.read;
        let done = if is_read { self.read(&op).await } else { self.write(&op).await };
        if let Err(error) = done {
            self.error(if is_read { "read" } else { "write" }, &op.place, &error);
        }
        let now_ns = self.shard.now_ns();
        let ops = &self.progress().ops;
        // Nobody else stores it, so this needs no atomic addition, which would cost more.
        ops.store(ops.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let state = &mut *self.state.borrow_mut();
        state.in_flight -= 1;
        if self.setup.control.phase() == Phase::Measure {
            let window_ns = *state.window_ns.get_or_insert(now_ns);
            let (latency_ns, at_ns) = (now_ns.saturating_sub(op.start_ns), now_ns.saturating_sub(window_ns));
            state.end_pause(at_ns);
            if self.spec().keep_seconds {
                state.result.seconds.record(latency_ns, at_ns);
            }
            let stats = if is_read { &mut state.result.read } else { &mut state.result.write };
            stats.record(self.bytes(&op), latency_ns, at_ns);
        }
    }

    fn bytes(&self, op: &Op) -> u64 {
        op.piece.count * self.spec().bs_bytes
    }

    async fn read(&self, op: &Op) -> Result<(), TargetError> {
        let known = self.spec().verifies().then(|| {
            let state = self.state.borrow();
            op.piece.blocks().map(|block| state.ledger.writes(block).acked).collect::<Vec<_>>()
        });
        let want = self.bytes(op);
        let data = self.target.read(self.name(op.place.slot), op.place.offset, want).await?;
        if let Some(acked) = known {
            self.check(op, &data, &acked);
        } else if (data.len() as u64) < want {
            let text = format!("{} of {want} bytes (was the object prefilled?)", data.len());
            return Err(TargetError(text));
        }
        Ok(())
    }

    /// Checks each block that was read. `acked`: as it was when the read started; what is issued since then may already be there.
    fn check(&self, op: &Op, data: &Payload, acked: &[u32]) {
        let mut state = self.state.borrow_mut();
        let (seed, want_bytes) = (self.spec().block_seed(), self.spec().bs_bytes as usize);
        let (data, name) = (data.to_vec(), self.name(op.place.slot));
        for ((block, acked), n) in op.piece.blocks().zip(acked).zip(0..) {
            let writes = Writes { acked: *acked, ..state.ledger.writes(block) };
            let place = BlockAddr { offset: op.place.offset + n * self.spec().bs_bytes, ..op.place };
            let from = data.len().min(n as usize * want_bytes);
            let found = &data[from..data.len().min(from + want_bytes)];
            state.result.verify.checked += 1;
            if let Err(why) = verify::check(found, want_bytes, seed, &place, writes) {
                state.result.verify.mismatch(format!("{name} offset {}: {why}", place.offset));
            }
        }
    }

    async fn write(&self, op: &Op) -> Result<(), TargetError> {
        if self.spec().verify {
            return self.write_sealed(op.piece.block, op.place, self.bytes(op)).await;
        }
        let data = {
            let state = &mut *self.state.borrow_mut();
            let at = state.data.usize(..state.pool_steps) * POOL_STEP;
            Payload::from(state.pool.slice(at..at + self.bytes(op) as usize))
        };
        self.target.write(self.name(op.place.slot), op.place.offset, data).await
    }

    /// Writes `len` bytes of blocks from `first` on, which can be verified, in one operation at their place.
    pub(crate) async fn write_sealed(
        &self,
        first: u64,
        place: BlockAddr,
        len: u64,
    ) -> Result<(), TargetError> {
        let bs = self.spec().bs_bytes;
        let mut data = self.shard.buf(len as usize);
        let mut sequences = Vec::new();
        for (n, block) in (0..).zip(data.chunks_exact_mut(bs as usize)) {
            let sequence = self.state.borrow_mut().ledger.issue(first + n);
            let place = BlockAddr { offset: place.offset + n * bs, ..place };
            verify::seal(block, self.spec().block_seed(), &place, sequence);
            sequences.push(sequence);
        }
        let done = self.target.write(self.name(place.slot), place.offset, Payload::from(data.freeze())).await;
        let mut state = self.state.borrow_mut();
        (first..)
            .zip(sequences)
            .for_each(|(block, sequence)| state.ledger.finish(block, sequence, done.is_ok()));
        done
    }

    fn send_ledger(&self) {
        if self.keeps_state {
            let ledger = self.state.borrow().ledger.clone();
            self.setup.send(JobEvent::Ledger(self.geometry.clone(), ledger));
        }
    }

    /// Follows the phases until the end: reads the clocks at both ends of the window, copies the verify state, and waits
    /// for the last answers.
    async fn watch(&self) {
        let mut at_start: Option<ReactorStats> = None;
        let mut next_snapshot_ns = self.shard.now_ns() + SNAPSHOT_NS;
        while !self.stopped() {
            let now_ns = self.shard.now_ns();
            if self.setup.control.phase() == Phase::Measure && at_start.is_none() {
                at_start = Some(self.shard.stats());
                self.state.borrow_mut().window_ns.get_or_insert(now_ns);
            }
            let may_end = self.spec().ends_by_itself() || self.geometry.blocks() == 0;
            if may_end && self.workers.get() == 0 {
                self.progress().finished.store(true, Ordering::Release);
            }
            if now_ns >= next_snapshot_ns {
                next_snapshot_ns = now_ns + SNAPSHOT_NS;
                self.send_ledger();
            }
            self.shard.sleep(self.pause()).await;
        }
        let ended_ns = self.shard.now_ns();
        let drain = if self.setup.control.has_failed() { DRAIN_FAILED } else { DRAIN };
        {
            let state = &mut *self.state.borrow_mut();
            if let Some(before) = at_start {
                let after = self.shard.stats();
                let client = &mut state.result.client;
                client.wall_ns = after.wall_ns.saturating_sub(before.wall_ns);
                client.busy_ns = after.busy_ns.saturating_sub(before.busy_ns);
                client.wait_ns = after.wait_ns.saturating_sub(before.wait_ns);
            }
            if let Some(window_ns) = state.window_ns.filter(|_| state.in_flight > 0) {
                state.end_pause(ended_ns.saturating_sub(window_ns));
            }
            // How late the next request of an open-loop load would be.
            if let Some(schedule) = &mut state.schedule {
                let elapsed_ns = ended_ns.saturating_sub(self.began_ns.get());
                state.result.behind_ns = elapsed_ns.saturating_sub(schedule.next_ns());
            }
        }
        while self.workers.get() > 0 && self.shard.now_ns() < ended_ns + drain.as_nanos() as u64 {
            self.shard.sleep(self.pause()).await;
        }
        let mut state = self.state.borrow_mut();
        state.result.abandoned = state.in_flight;
    }
}
