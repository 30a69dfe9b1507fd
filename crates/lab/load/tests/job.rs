//! Whole loads in the simulator, against a target in memory that can be told to misbehave.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carmine_load::{
    Arrivals, DirStats, Geometry, JobResult, LoadSpec, Phase, Prefill, Rw, Session, Target, TargetError,
    VerifyState, run_job,
};
use carmine_reactor::sim::Sim;
use carmine_reactor::{Group, Payload, Shard};

/// The fault of the target.
#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// One of this many writes is acknowledged and forgotten.
    LoseWrite(u64),
    /// One of this many reads has a bit flipped.
    FlipBit(u64),
    /// One of this many operations fails.
    Fail(u64),
    /// From then on nothing is answered; writes still happen.
    Silent(u64),
    /// An operation takes a second, once, from this one on.
    Stall(u64),
}

/// Objects in memory; each operation takes 100 microseconds.
struct Memory {
    shard: Shard,
    objects: RefCell<BTreeMap<String, Vec<u8>>>,
    fault: Fault,
    ops: Cell<u64>,
    reads: Cell<u64>,
    writes: Cell<u64>,
    in_flight: Cell<u64>,
    in_flight_max: Cell<u64>,
}

const OP: Duration = Duration::from_micros(100);

impl Memory {
    fn new(shard: &Shard, fault: Fault, objects: BTreeMap<String, Vec<u8>>) -> Rc<Memory> {
        Rc::new(Memory {
            shard: shard.clone(),
            objects: RefCell::new(objects),
            fault,
            ops: Cell::new(0),
            reads: Cell::new(0),
            writes: Cell::new(0),
            in_flight: Cell::new(0),
            in_flight_max: Cell::new(0),
        })
    }

    async fn begin(&self) -> Result<u64, TargetError> {
        let op = self.ops.get() + 1;
        self.ops.set(op);
        self.in_flight.set(self.in_flight.get() + 1);
        self.in_flight_max.set(self.in_flight_max.get().max(self.in_flight.get()));
        let stalled = matches!(self.fault, Fault::Stall(at) if (at..at + 4).contains(&op));
        self.shard.sleep(if stalled { Duration::from_secs(1) } else { OP }).await;
        self.in_flight.set(self.in_flight.get() - 1);
        match self.fault {
            Fault::Fail(every) if op.is_multiple_of(every) => Err(TargetError("the disk is on fire".into())),
            _ => Ok(op),
        }
    }

    async fn silence(&self, op: u64) {
        if matches!(self.fault, Fault::Silent(from) if op >= from) {
            std::future::pending::<()>().await;
        }
    }
}

impl Target for Memory {
    async fn read(&self, object: &str, off: u64, len: u64) -> Result<Payload, TargetError> {
        let op = self.begin().await?;
        self.reads.set(self.reads.get() + 1);
        let mut data = {
            let objects = self.objects.borrow();
            let object = objects.get(object).map(Vec::as_slice).unwrap_or_default();
            let start = (off as usize).min(object.len());
            let end = ((off + len) as usize).min(object.len());
            object[start..end].to_vec()
        };
        if matches!(self.fault, Fault::FlipBit(every) if op.is_multiple_of(every)) {
            data[100] ^= 4;
        }
        self.silence(op).await;
        Ok(Payload::from(data))
    }

    async fn write(&self, object: &str, off: u64, data: Payload) -> Result<(), TargetError> {
        let op = self.begin().await?;
        self.writes.set(self.writes.get() + 1);
        if !matches!(self.fault, Fault::LoseWrite(every) if op.is_multiple_of(every)) {
            let mut objects = self.objects.borrow_mut();
            let object = objects.entry(object.to_owned()).or_default();
            let end = off as usize + data.len();
            object.resize(object.len().max(end), 0);
            data.copy_to(&mut object[off as usize..end]);
        }
        self.silence(op).await;
        Ok(())
    }

    async fn stat(&self, object: &str) -> Result<Option<u64>, TargetError> {
        Ok(self.objects.borrow().get(object).map(|data| data.len() as u64))
    }
}

/// The remains of a run.
#[derive(Clone)]
struct Done {
    result: JobResult,
    state: Option<Vec<u8>>,
    objects: BTreeMap<String, Vec<u8>>,
    reads: u64,
    writes: u64,
    in_flight_max: u64,
    seconds: f64,
}

fn spec(rw: Rw) -> LoadSpec {
    LoadSpec {
        rw,
        iodepth: 4,
        runtime_ms: 1000,
        size_bytes: 8 * 65536,
        object_size_bytes: 65536,
        ..LoadSpec::default()
    }
}

fn run(
    spec: &LoadSpec,
    fault: Fault,
    objects: BTreeMap<String, Vec<u8>>,
    state: Option<VerifyState>,
) -> Done {
    let done: Rc<RefCell<Option<Done>>> = Rc::default();
    let sim = Sim::new(spec.seed);
    let (spec, out) = (spec.clone(), Rc::clone(&done));
    sim.node("load", 1, move |shard| {
        let (spec, out, objects, state) = (spec.clone(), Rc::clone(&out), objects.clone(), state.clone());
        async move {
            let target = Memory::new(&shard, fault, objects);
            let made = one_load(&shard, &spec, &target, state).await;
            *out.borrow_mut() = Some(made);
        }
    });
    let ended = Rc::clone(&done);
    sim.run(move || ended.borrow().is_some(), Duration::from_secs(60)).unwrap();
    done.borrow().clone().unwrap()
}

/// The controller's part, in virtual time.
async fn one_load(shard: &Shard, spec: &LoadSpec, target: &Rc<Memory>, state: Option<VerifyState>) -> Done {
    let (mut session, jobs) = Session::new(spec, 1, state);
    for setup in jobs {
        let (shard, target, geometry) = (shard.clone(), Rc::clone(target), Geometry::dealt(spec, setup.job));
        shard.clone().spawn(
            Group::Client,
            "job",
            async move { run_job(&shard, target, geometry, setup).await },
        );
    }
    let control = std::sync::Arc::clone(&session.control);
    control.set_phase(Phase::Prefill);
    while !control.progress().prefilled {
        shard.sleep(Duration::from_millis(1)).await;
    }
    control.set_phase(Phase::Measure);
    let started_ns = shard.now_ns();
    while shard.now_ns() - started_ns < spec.runtime_ms * 1_000_000 {
        shard.sleep(Duration::from_millis(1)).await;
        if control.progress().finished || control.has_failed() {
            break;
        }
    }
    control.set_phase(Phase::Stop);
    let seconds = (shard.now_ns() - started_ns) as f64 / 1e9;
    loop {
        let status = session.poll();
        if status.done {
            return Done {
                result: JobResult::merged(&status.results),
                state: session.state().map(|s| s.encode(true)),
                objects: target.objects.borrow().clone(),
                reads: target.reads.get(),
                writes: target.writes.get(),
                in_flight_max: target.in_flight_max.get(),
                seconds,
            };
        }
        shard.sleep(Duration::from_millis(5)).await;
    }
}

fn fresh(spec: &LoadSpec, fault: Fault) -> Done {
    run(spec, fault, BTreeMap::new(), None)
}

#[test]
fn closed_loop_keeps_its_depth_and_counts_right() {
    let done = fresh(&spec(Rw::RandWrite), Fault::None);
    assert_eq!((done.in_flight_max, done.result.errors, done.reads), (4, 0, 0));
    // Four in flight of 100 microseconds each: 40,000 per second.
    let iops = done.result.write.ops as f64 / done.seconds;
    assert!((iops / 40_000.0 - 1.0).abs() < 0.05, "{iops}");
    let mean = done.result.write.latency_ns.mean();
    assert!((mean / 100_000.0 - 1.0).abs() < 0.05, "{mean}");
    assert_eq!(done.result.write.bytes, done.result.write.ops * 4096);
}

#[test]
fn prefills_before_reads_and_only_what_is_missing() {
    let first = fresh(&spec(Rw::RandRead), Fault::None);
    assert_eq!((first.writes, first.result.errors, first.objects.len()), (8, 0, 8));
    assert!(first.objects.values().all(|o| o.len() == 65536));
    let flat: Vec<u8> = first.objects.values().flatten().copied().collect();
    let mut counts = [0usize; 256];
    flat.iter().for_each(|b| counts[usize::from(*b)] += 1);
    assert!(counts.iter().all(|n| *n > flat.len() / 300), "compressible data");
    let mut objects = first.objects.clone();
    objects.pop_first();
    let second = run(&spec(Rw::RandRead), Fault::None, objects, None);
    assert_eq!((second.writes, second.result.errors), (1, 0));
    let never = LoadSpec { prefill: Prefill::Never, ..spec(Rw::RandRead) };
    let error = fresh(&never, Fault::None).result.first_error.unwrap();
    assert!(error.contains("0 of 4096 bytes") && error.contains("prefilled"), "{error}");
}

#[test]
fn the_same_seed_gives_the_same_load() {
    let draw = |seed| {
        let done = fresh(&LoadSpec { seed, ..spec(Rw::RandRw) }, Fault::None);
        (done.result.read.ops, done.result.write.ops, done.objects)
    };
    let (one, other) = (draw(5), draw(6));
    assert!(one == draw(5));
    assert!(one.2 != other.2);
}

#[test]
fn a_given_number_of_bytes_is_the_same_load_however_long_it_takes() {
    let aged = |seed, fault| {
        let sized = LoadSpec { seed, io_bytes: Some(1 << 20), runtime_ms: 30_000, ..spec(Rw::RandWrite) };
        fresh(&sized, fault)
    };
    let (quick, slow) = (aged(5, Fault::None), aged(5, Fault::Stall(100)));
    assert!(slow.seconds > quick.seconds + 0.5, "{} {}", slow.seconds, quick.seconds);
    assert_eq!((quick.result.write.bytes, slow.result.write.bytes), (1 << 20, 1 << 20));
    assert!(quick.objects == slow.objects, "the same writes in the same order leave the same bytes");
    assert!(aged(6, Fault::None).objects != quick.objects);
    let jobs = LoadSpec { io_bytes: Some(10 * 4096 + 5), numjobs: 4, ..spec(Rw::RandWrite) };
    assert_eq!((0..4).map(|job| jobs.ops_of(job).unwrap()).collect::<Vec<_>>(), [3, 3, 2, 2]);
}

#[test]
fn errors_stop_the_load_and_are_named() {
    let done = fresh(&spec(Rw::RandWrite), Fault::Fail(50));
    let error = done.result.first_error.unwrap();
    assert!(error.contains("write of bench.65536.") && error.contains("on fire"), "{error}");
    assert!(done.result.errors >= 1 && done.seconds < 0.5);
}

#[test]
fn verification_passes_on_a_good_target() {
    let verify = LoadSpec { verify: true, ..spec(Rw::RandRw) };
    let done = fresh(&verify, Fault::None);
    assert_eq!(done.result.verify.mismatches, 0, "{:?}", done.result.verify.details);
    assert!(done.result.verify.checked > 10_000);
    // Few blocks: many operations want one that is being written.
    let tight =
        LoadSpec { size_bytes: 65536, object_size_bytes: 65536, bs_bytes: 16384, iodepth: 16, ..verify };
    let done = fresh(&tight, Fault::None);
    assert_eq!(
        (done.result.verify.mismatches, done.result.errors),
        (0, 0),
        "{:?}",
        done.result.verify.details
    );
    assert!(done.result.write.ops > 1000);
}

#[test]
fn operations_of_several_lengths_are_verified_block_by_block() {
    let split = LoadSpec {
        verify: true,
        bssplit: "4k/60:16k/40,8k/100".parse().ok(),
        random_distribution: "zipf:0.9".parse().unwrap(),
        ..spec(Rw::RandRw)
    };
    let split = split.in_units();
    let DirStats { ops, bytes, .. } = fresh(&split, Fault::None).result.write;
    assert!(ops > 1000 && bytes == ops * 8192, "{ops} writes of {bytes} bytes");
    let good = fresh(&split, Fault::None).result;
    let mean = good.read.bytes as f64 / good.read.ops as f64;
    assert!((mean / split.mean_bytes_of(true) - 1.0).abs() < 0.05, "{mean}");
    assert_eq!((good.errors, good.verify.mismatches), (0, 0), "{:?}", good.verify.details);
    // Of reads that end after the window blocks are checked, too.
    assert!(good.verify.checked >= good.read.bytes / 4096, "{:?} {}", good.verify, good.read.bytes);
    let lost = fresh(&split, Fault::LoseWrite(97)).result.verify;
    assert!(lost.mismatches > 0 && lost.details.iter().any(|d| d.contains("lost write")), "{lost:?}");
    let flipped = fresh(&split, Fault::FlipBit(101)).result.verify;
    assert!(flipped.mismatches > 0 && flipped.details[0].contains("checksum"), "{flipped:?}");
    let plain = LoadSpec {
        verify: false,
        rw: Rw::Write,
        ..LoadSpec { random_distribution: Default::default(), ..split }
    };
    let done = fresh(&plain, Fault::None);
    assert!(done.result.errors == 0 && done.objects.values().all(|object| object.len() == 65536));
}

#[test]
fn verification_finds_lost_writes_and_flipped_bits() {
    let verify = LoadSpec { verify: true, ..spec(Rw::RandRw) };
    let lost = fresh(&verify, Fault::LoseWrite(97)).result.verify;
    assert!(lost.mismatches > 0 && lost.details.iter().any(|d| d.contains("lost write")), "{lost:?}");
    assert!(lost.details[0].contains("bench.65536.0") && lost.details.len() <= 10);
    let flipped = fresh(&verify, Fault::FlipBit(101)).result.verify;
    assert!(flipped.mismatches > 0 && flipped.details[0].contains("checksum"), "{flipped:?}");
}

#[test]
fn what_was_acknowledged_is_found_again_after_a_crash() {
    let write = LoadSpec { verify: true, generation: 77, ..spec(Rw::RandWrite) };
    let crashed = run(&write, Fault::Silent(5000), BTreeMap::new(), Some(VerifyState::new(&write)));
    assert_eq!((crashed.result.abandoned, crashed.result.errors), (4, 0));
    let bytes = crashed.state.unwrap();
    let check = LoadSpec { verify_only: true, rw: Rw::Read, ..write.clone() };
    let state = || VerifyState::decode(&bytes, &check).unwrap();
    let known = state().known();
    assert!(known > 100);
    let good = run(&check, Fault::None, crashed.objects.clone(), Some(state()));
    let found = &good.result.verify;
    assert_eq!((found.checked, found.mismatches, good.reads), (known, 0, known), "{:?}", found.details);
    let mut rolled_back = crashed.objects.clone();
    let first = rolled_back.values_mut().next().unwrap();
    first.fill(0);
    let bad = run(&check, Fault::None, rolled_back, Some(state()));
    assert!(bad.result.verify.mismatches > 0);
    assert!(bad.result.verify.details[0].contains("acknowledged"), "{:?}", bad.result.verify.details);
    // The same blocks can be loaded on.
    let more = run(&write, Fault::None, crashed.objects, Some(state()));
    assert_eq!((more.result.errors, more.result.verify.mismatches), (0, 0));
}

#[test]
fn open_loop_keeps_its_rate_and_charges_stalls() {
    let open = LoadSpec {
        rate_iops: Some(1000.0),
        arrivals: Arrivals::Fixed,
        runtime_ms: 4000,
        ..spec(Rw::RandWrite)
    };
    let done = fresh(&open, Fault::None);
    let iops = done.result.write.ops as f64 / done.seconds;
    assert!((iops / 1000.0 - 1.0).abs() < 0.01, "{iops}");
    assert!(done.result.write.latency_ns.percentile(99.0) < 200_000);
    // All four workers stall for a second: some 1000 requests were meant to start meanwhile and are late.
    let stalled = fresh(&open, Fault::Stall(1500));
    let h = &stalled.result.write.latency_ns;
    assert!(h.percentile(85.0) > 300_000_000, "p85 {}", h.percentile(85.0));
    assert!(h.percentile(60.0) < 1_000_000, "p60 {}", h.percentile(60.0));
    assert!(stalled.result.behind_ns < 10_000_000);
    let beyond = LoadSpec { rate_iops: Some(100_000.0), ..open };
    let behind = fresh(&beyond, Fault::None);
    assert!(behind.result.behind_ns > 1_000_000_000, "{}", behind.result.behind_ns);
}

/// Answers the first operations at once, the later ones after a while; an object is always there.
struct Ready {
    shard: Shard,
    ops: Cell<u64>,
    /// Since others of the reactor last had their turn.
    in_a_row: Cell<u64>,
    in_a_row_max: Cell<u64>,
}

const AT_ONCE: u64 = 2000;

impl Target for Ready {
    async fn read(&self, _: &str, _: u64, len: u64) -> Result<Payload, TargetError> {
        self.ops.set(self.ops.get() + 1);
        self.in_a_row.set(self.in_a_row.get() + 1);
        self.in_a_row_max.set(self.in_a_row_max.get().max(self.in_a_row.get()));
        if self.ops.get() > AT_ONCE {
            self.shard.sleep(OP).await;
        }
        Ok(Payload::from(vec![0; len as usize]))
    }

    async fn write(&self, _: &str, _: u64, _: Payload) -> Result<(), TargetError> {
        Ok(())
    }

    async fn stat(&self, _: &str) -> Result<Option<u64>, TargetError> {
        Ok(Some(65536))
    }
}

/// A store in memory answers reads at once: the load must not keep the reactor for ever.
#[test]
fn a_target_that_answers_at_once_leaves_turns_to_others() {
    let seen: Rc<Cell<Option<u64>>> = Rc::default();
    let (spec, out) = (LoadSpec { prefill: Prefill::Never, ..spec(Rw::RandRead) }, Rc::clone(&seen));
    let sim = Sim::new(1);
    sim.node("load", 1, move |shard| {
        let (spec, out) = (spec.clone(), Rc::clone(&out));
        async move {
            let zero = || Cell::new(0);
            let target =
                Rc::new(Ready { shard: shard.clone(), ops: zero(), in_a_row: zero(), in_a_row_max: zero() });
            let (session, mut jobs) = Session::new(&spec, 1, None);
            let setup = jobs.remove(0);
            let (own, ready, geometry) = (shard.clone(), Rc::clone(&target), Geometry::dealt(&spec, 0));
            shard.spawn(Group::Client, "job", async move { run_job(&own, ready, geometry, setup).await });
            session.control.set_phase(Phase::Measure);
            while target.ops.get() < 2 * AT_ONCE {
                target.in_a_row.set(0);
                shard.next_turn().await;
            }
            session.control.set_phase(Phase::Stop);
            out.set(Some(target.in_a_row_max.get()));
        }
    });
    let ended = Rc::clone(&seen);
    sim.run(move || ended.get().is_some(), Duration::from_secs(60)).unwrap();
    assert!(seen.get().is_some_and(|in_a_row| in_a_row < AT_ONCE), "{:?}", seen.get());
}

#[test]
fn the_longest_pause_counts_also_when_it_does_not_end() {
    let load = LoadSpec { runtime_ms: 3000, ..spec(Rw::RandWrite) };
    let pause_ms = |fault| fresh(&load, fault).result.longest_pause_ns / 1_000_000;
    assert!(pause_ms(Fault::None) < 10, "{}", pause_ms(Fault::None));
    assert!((990..1010).contains(&pause_ms(Fault::Stall(1500))), "{}", pause_ms(Fault::Stall(1500)));
    // A quarter of a second of operations, then nothing.
    assert!((2600..2800).contains(&pause_ms(Fault::Silent(10_000))), "{}", pause_ms(Fault::Silent(10_000)));
}
