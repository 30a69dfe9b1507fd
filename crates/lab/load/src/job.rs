//! One job: `iodepth` workers on one reactor, each with one operation in flight.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use carmine_reactor::{Buf, Bytes, Group, Payload, ReactorStats, Shard};

use crate::arrivals::Schedule;
use crate::control::{Control, JobProgress, Phase};
use crate::ledger::{Ledger, VerifyState};
use crate::pattern::{BlockAddr, Geometry, Pattern};
use crate::prefill;
use crate::result::{ClientClocks, JobResult};
use crate::rng::Rng;
use crate::session::JobEvent;
use crate::spec::LoadSpec;
use crate::target::{Target, TargetError};
use crate::verify::{self, BlockId};

/// How often a job looks whether its controller has moved on.
const WATCH: Duration = Duration::from_millis(2);
/// Time for answers after the end; what has none by then is abandoned.
const DRAIN: Duration = Duration::from_secs(10);
/// The same after a failure, when answers are unlikely.
const DRAIN_FAILED: Duration = Duration::from_secs(1);
/// Time between copies of the verify state to the controller.
const SNAPSHOT_NS: u64 = 500_000_000;
/// Draws for a block that has no write in flight; then the worker waits a little.
const DRAWS_MAX: usize = 32;
/// Random bytes that unverified writes take their data from.
const POOL_BYTES: usize = 1 << 20;
/// Writes start at multiples of this in the pool, so that the data is aligned for direct I/O.
const POOL_STEP: usize = 4096;

/// What a job needs to start.
#[derive(Clone, Debug)]
pub struct JobSetup {
    pub(crate) spec: Arc<LoadSpec>,
    pub(crate) job: u32,
    pub(crate) control: Arc<Control>,
    pub(crate) events: Sender<JobEvent>,
    pub(crate) state: Option<Arc<VerifyState>>,
}

impl JobSetup {
    pub fn job(&self) -> u32 {
        self.job
    }

    pub fn spec(&self) -> &LoadSpec {
        &self.spec
    }

    /// Ends a job that can't start.
    pub fn abort(self, error: &str) {
        let first_error = Some(error.to_owned());
        let result = JobResult { job: self.job, errors: 1, first_error, ..JobResult::default() };
        self.control.fail();
        // The controller may be gone; then nobody wants to know.
        let _ = self.events.send(JobEvent::Done(Box::new(result)));
    }
}

/// Name of an object of a load.
pub fn object_name(spec: &LoadSpec, object: u32) -> String {
    format!("bench.{}.{object:08x}", spec.object_size_bytes)
}

/// One operation, and when it was meant to start.
#[derive(Clone, Copy)]
struct Op {
    read: bool,
    block: u64,
    place: BlockAddr,
    start_ns: u64,
}

/// What the workers of a job share.
pub(crate) struct Run<T> {
    pub(crate) shard: Shard,
    pub(crate) target: Rc<T>,
    pub(crate) spec: Arc<LoadSpec>,
    pub(crate) control: Arc<Control>,
    pub(crate) geometry: Geometry,
    pub(crate) job: u32,
    names: Vec<String>,
    pub(crate) state: RefCell<JobState>,
    /// Time that intended starts count from.
    began_ns: Cell<u64>,
    workers: Cell<u32>,
}

pub(crate) struct JobState {
    pattern: Pattern,
    schedule: Option<Schedule>,
    pub(crate) ledger: Ledger,
    pub(crate) result: JobResult,
    data: Rng,
    pool: Bytes,
    window_ns: Option<u64>,
    ops: u64,
    /// Operations still to be started, where their number is given.
    left: Option<u64>,
    in_flight: u64,
    /// Next block of a verification that reads each once.
    cursor: u64,
}

/// Runs a job to its end and reports it to the controller.
pub async fn run_job<T: Target + 'static>(shard: &Shard, target: Rc<T>, geometry: Geometry, setup: JobSetup) {
    let JobSetup { spec, job, control, events, state } = setup;
    let ledger = state.as_ref().map(|state| state.ledger(&geometry));
    let keep_state = state.is_some();
    drop(state);
    let run = Rc::new(Run::new(shard, target, spec, Arc::clone(&control), geometry, job, ledger));
    run.progress(JobProgress::set_ready);
    run.wait_for(Phase::Prefill).await;
    if !run.stopped() {
        prefill::prefill(&run).await;
    }
    run.progress(JobProgress::set_prefilled);
    run.wait_for(Phase::Ramp).await;
    run.start_workers();
    run.watch(&events, keep_state).await;
    if keep_state {
        let _ = events.send(run.snapshot());
    }
    let mut result = std::mem::take(&mut run.state.borrow_mut().result);
    if run.spec.keep_seconds {
        result.seconds.close();
    }
    // The controller may be gone; then nobody wants to know.
    let _ = events.send(JobEvent::Done(Box::new(result)));
}

impl<T: Target + 'static> Run<T> {
    fn new(
        shard: &Shard,
        target: Rc<T>,
        spec: Arc<LoadSpec>,
        control: Arc<Control>,
        geometry: Geometry,
        job: u32,
        ledger: Option<Ledger>,
    ) -> Run<T> {
        let blocks = geometry.blocks();
        let mut data = Rng::new(spec.seed, u64::from(job) << 32 | 0xda7a);
        let bs = usize::try_from(spec.bs_bytes).unwrap_or(0);
        let mut pool = Buf::heap(POOL_BYTES + bs.next_multiple_of(POOL_STEP));
        data.fill(&mut pool);
        let verifying = spec.verify || spec.verify_only;
        let state = JobState {
            pattern: Pattern::new(&spec, job, blocks),
            schedule: if spec.verify_only { None } else { Schedule::new(&spec, job) },
            ledger: ledger.unwrap_or_else(|| Ledger::new(if verifying { blocks } else { 0 })),
            result: JobResult { job, ..JobResult::default() },
            data,
            pool: pool.freeze(),
            window_ns: None,
            ops: 0,
            left: spec.ops_of(job),
            in_flight: 0,
            cursor: 0,
        };
        let names = geometry.objects.iter().map(|object| object_name(&spec, *object)).collect();
        Run {
            shard: shard.clone(),
            target,
            spec,
            control,
            geometry,
            job,
            names,
            state: RefCell::new(state),
            began_ns: Cell::new(0),
            workers: Cell::new(0),
        }
    }

    pub(crate) fn name(&self, slot: usize) -> &str {
        self.names.get(slot).map_or("", String::as_str)
    }

    pub(crate) fn progress(&self, tell: impl FnOnce(&JobProgress)) {
        if let Some(progress) = self.control.job(self.job) {
            tell(progress);
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.control.phase() == Phase::Stop || self.control.has_failed()
    }

    /// Keeps the first error and stops the load.
    pub(crate) fn error(&self, what: &str, place: &BlockAddr, error: &TargetError) {
        let name = self.name(place.slot);
        let text = format!("{what} of {name} at {}: {error}", place.offset);
        let mut state = self.state.borrow_mut();
        state.result.errors += 1;
        state.result.first_error.get_or_insert(text);
        self.control.fail();
    }

    async fn wait_for(&self, phase: Phase) {
        while self.control.phase() < phase && !self.control.has_failed() {
            self.shard.sleep(WATCH).await;
        }
    }

    fn start_workers(self: &Rc<Self>) {
        self.began_ns.set(self.shard.now_ns());
        if self.geometry.blocks() == 0 {
            self.progress(JobProgress::set_finished);
            return;
        }
        self.workers.set(self.spec.iodepth);
        for _ in 0..self.spec.iodepth {
            let run = Rc::clone(self);
            self.shard.spawn(Group::Client, "load worker", async move {
                run.work().await;
                run.workers.set(run.workers.get().saturating_sub(1));
            });
        }
    }

    async fn work(&self) {
        while !self.stopped() {
            let Some(op) = self.next_op() else {
                if self.is_over() {
                    return;
                }
                self.shard.sleep(Duration::from_micros(100)).await;
                continue;
            };
            if !self.wait_until(op.start_ns).await {
                return;
            }
            // Only a scheduled start may lie before the present: closed-loop load starts now.
            let start_ns = if self.spec.rate_iops.is_some() { op.start_ns } else { self.shard.now_ns() };
            self.perform(Op { start_ns, ..op }).await;
            // A target in memory may answer at once: without this, one worker would keep the reactor for ever.
            self.shard.yield_now().await;
        }
    }

    /// Waits for an intended start, in steps that notice the end of the load; false if it has ended.
    async fn wait_until(&self, start_ns: u64) -> bool {
        loop {
            let now_ns = self.shard.now_ns();
            if now_ns >= start_ns {
                return true;
            }
            let step = (start_ns - now_ns).min(20_000_000);
            self.shard.sleep(Duration::from_nanos(step)).await;
            if self.stopped() {
                return false;
            }
        }
    }

    /// No operation will follow, whatever the time.
    fn is_over(&self) -> bool {
        self.spec.verify_only || self.state.borrow().left == Some(0)
    }

    fn next_op(&self) -> Option<Op> {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        if state.left == Some(0) {
            return None;
        }
        if self.spec.verify_only {
            return self.next_known(state);
        }
        let (read, mut block) = state.pattern.next_op();
        if self.spec.verify && !read {
            // Two writes of one block in flight could be acknowledged in any order: what is there would then be unknown.
            let free = |state: &JobState, block: u64| !state.ledger.is_writing(block);
            let mut draws = 1;
            while !free(state, block) {
                if draws == DRAWS_MAX {
                    return None;
                }
                block = state.pattern.next_block();
                draws += 1;
            }
        }
        let start_ns = state.schedule.as_mut().map_or(0, |s| self.began_ns.get().saturating_add(s.next_ns()));
        let place = self.geometry.locate(block)?;
        if self.spec.verify && !read {
            state.ledger.reserve(block);
        }
        state.left = state.left.map(|left| left - 1);
        Some(Op { read, block, place, start_ns })
    }

    /// The next block of which a write was acknowledged.
    fn next_known(&self, state: &mut JobState) -> Option<Op> {
        while state.cursor < self.geometry.blocks() {
            let block = state.cursor;
            state.cursor += 1;
            if state.ledger.bounds(block).0 > 0 {
                return self.geometry.locate(block).map(|place| Op { read: true, block, place, start_ns: 0 });
            }
        }
        None
    }

    async fn perform(&self, op: Op) {
        self.state.borrow_mut().in_flight += 1;
        let done = if op.read { self.read(&op).await } else { self.write(&op).await };
        if let Err(error) = done {
            self.error(if op.read { "read" } else { "write" }, &op.place, &error);
        }
        let now_ns = self.shard.now_ns();
        let phase = self.control.phase();
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        state.in_flight -= 1;
        state.ops += 1;
        self.progress(|p| p.set_ops(state.ops));
        if phase == Phase::Measure {
            let window_ns = *state.window_ns.get_or_insert(now_ns);
            let (latency_ns, at_ns) = (now_ns.saturating_sub(op.start_ns), now_ns.saturating_sub(window_ns));
            if self.spec.keep_seconds {
                state.result.seconds.record(latency_ns, at_ns);
            }
            let stats = if op.read { &mut state.result.read } else { &mut state.result.write };
            stats.record(self.spec.bs_bytes, latency_ns, at_ns);
        }
    }

    async fn read(&self, op: &Op) -> Result<(), TargetError> {
        let verifying = self.spec.verify || self.spec.verify_only;
        let (acked, _) = self.state.borrow().ledger.bounds(op.block);
        let data = self.target.read(self.name(op.place.slot), op.place.offset, self.spec.bs_bytes).await?;
        if verifying {
            self.check(op, &data, acked);
        } else if (data.len() as u64) < self.spec.bs_bytes {
            let text = format!("{} of {} bytes (was the object prefilled?)", data.len(), self.spec.bs_bytes);
            return Err(TargetError(text));
        }
        Ok(())
    }

    /// `acked`: as it was when the read started; what is issued since then may already be there.
    fn check(&self, op: &Op, data: &Payload, acked: u32) {
        let flat;
        let bytes: &[u8] = match data.chunks() {
            [one] => one.as_slice(),
            _ => {
                flat = data.to_vec();
                &flat
            }
        };
        let id = BlockId { seed: self.spec.block_seed(), object: op.place.object, offset: op.place.offset };
        let want_bytes = usize::try_from(self.spec.bs_bytes).unwrap_or(usize::MAX);
        let mut state = self.state.borrow_mut();
        let (_, issued) = state.ledger.bounds(op.block);
        state.result.verify.checked += 1;
        if let Err(mismatch) = verify::check(bytes, want_bytes, &id, acked, issued) {
            let name = self.name(op.place.slot);
            state.result.verify.mismatch(format!("{name} offset {}: {mismatch}", op.place.offset));
        }
    }

    async fn write(&self, op: &Op) -> Result<(), TargetError> {
        let (data, sequence) = self.block_to_write(op);
        let done = self.target.write(self.name(op.place.slot), op.place.offset, data).await;
        if self.spec.verify {
            self.state.borrow_mut().ledger.finish(op.block, sequence, done.is_ok());
        }
        done
    }

    fn block_to_write(&self, op: &Op) -> (Payload, u32) {
        let bs = usize::try_from(self.spec.bs_bytes).unwrap_or(0);
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        if !self.spec.verify {
            let at = state.data.below((POOL_BYTES / POOL_STEP) as u64) as usize * POOL_STEP;
            return (Payload::from(state.pool.slice(at..at + bs)), 0);
        }
        let sequence = state.ledger.issue(op.block);
        let id = BlockId { seed: self.spec.block_seed(), object: op.place.object, offset: op.place.offset };
        let mut block = self.shard.buf(bs);
        verify::seal(&mut block, &id, sequence);
        (Payload::from(block.freeze()), sequence)
    }

    fn snapshot(&self) -> JobEvent {
        JobEvent::Ledger { geometry: self.geometry.clone(), ledger: self.state.borrow().ledger.clone() }
    }

    /// Follows the phases until the end: reads the clocks at both ends of the window, copies the verify state, and waits
    /// for the last answers.
    async fn watch(&self, events: &Sender<JobEvent>, keep_state: bool) {
        let mut at_start: Option<ReactorStats> = None;
        let mut next_snapshot_ns = self.shard.now_ns() + SNAPSHOT_NS;
        while !self.stopped() {
            if self.control.phase() == Phase::Measure && at_start.is_none() {
                at_start = Some(self.shard.stats());
                let now_ns = self.shard.now_ns();
                self.state.borrow_mut().window_ns.get_or_insert(now_ns);
            }
            if self.spec.ends_by_itself() && self.workers.get() == 0 {
                self.progress(JobProgress::set_finished);
            }
            if keep_state && self.shard.now_ns() >= next_snapshot_ns {
                next_snapshot_ns = self.shard.now_ns() + SNAPSHOT_NS;
                let _ = events.send(self.snapshot());
            }
            self.shard.sleep(WATCH).await;
        }
        if let Some(before) = at_start {
            self.state.borrow_mut().result.client = clocks_between(&before, &self.shard.stats());
        }
        self.note_schedule();
        let drain = if self.control.has_failed() { DRAIN_FAILED } else { DRAIN };
        let deadline_ns = self.shard.now_ns() + drain.as_nanos() as u64;
        while self.workers.get() > 0 && self.shard.now_ns() < deadline_ns {
            self.shard.sleep(WATCH).await;
        }
        let mut state = self.state.borrow_mut();
        state.result.abandoned = state.in_flight;
    }

    /// How late the next request of an open-loop load would be.
    fn note_schedule(&self) {
        let elapsed_ns = self.shard.now_ns().saturating_sub(self.began_ns.get());
        let mut state = self.state.borrow_mut();
        if let Some(schedule) = &mut state.schedule {
            let next_ns = schedule.next_ns();
            state.result.behind_ns = elapsed_ns.saturating_sub(next_ns);
        }
    }
}

fn clocks_between(before: &ReactorStats, after: &ReactorStats) -> ClientClocks {
    ClientClocks {
        wall_ns: after.wall_ns.saturating_sub(before.wall_ns),
        busy_ns: after.busy_ns.saturating_sub(before.busy_ns),
        spin_ns: after.spin_ns.saturating_sub(before.spin_ns),
        sleep_ns: after.sleep_ns.saturating_sub(before.sleep_ns),
        wait_ns: after.wait_ns.saturating_sub(before.wait_ns),
    }
}
