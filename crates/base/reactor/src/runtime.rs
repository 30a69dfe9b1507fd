//! Starting and stopping reactors: threads, pinning, and one reactor on the calling thread.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use io_uring::IoUring;

use crate::alien::{AlienPool, AlienQueue};
use crate::buf::arena::Slice;
use crate::call::Calls;
use crate::clock::{Clock, TickRate};
use crate::config::{Config, Group};
use crate::crowd::Crowd;
use crate::driver::Driver;
use crate::driver::uring::Uring;
use crate::exec::Exec;
use crate::mailbox::{self, Mail};
use crate::op::Ops;
use crate::shard::{Inner, Shard, ShardId, Start};
use crate::shared::{ProcessShared, ShardShared};
use crate::stats::{self, Counters};
use crate::timer::Timers;
use crate::{sys, turn};

/// The parts of its process that a shard needs.
pub(crate) struct Parts {
    pub(crate) id: ShardId,
    pub(crate) mail: Mail,
    pub(crate) process: Arc<ProcessShared>,
    pub(crate) shared: Arc<ShardShared>,
    pub(crate) pool: Option<Arc<AlienPool>>,
}

/// The parts of all shards of a process.
pub(crate) fn parts(n: usize, can_sleep: bool, pool: Option<&Arc<AlienPool>>) -> io::Result<Vec<Parts>> {
    let shared = (0..n).map(|_| ShardShared::new(can_sleep)).collect::<io::Result<Vec<_>>>()?;
    let process = ProcessShared::new(shared.clone());
    Ok(mailbox::matrix(&shared)
        .into_iter()
        .zip(shared)
        .enumerate()
        .map(|(i, (mail, shared))| Parts {
            id: ShardId(i as u16),
            mail,
            process: Arc::clone(&process),
            shared,
            pool: pool.cloned(),
        })
        .collect())
}

impl Parts {
    /// Puts a shard together on the thread that will run it.
    pub(crate) fn assemble(
        self,
        config: &Config,
        driver: Driver,
        clock: Clock,
        seed: u64,
        arena: Arc<Slice>,
    ) -> Shard {
        let real = matches!(clock, Clock::Real(_));
        let tid = if real { sys::gettid() } else { 0 };
        let (cpu_ns, wait_ns) = if real { stats::thread_account(tid) } else { (0, 0) };
        let stall = match config.stall_ms {
            0 => u64::MAX,
            ms => clock.to_ticks(u64::from(ms) * 1_000_000),
        };
        let now = clock.now_ns();
        Shard::from_inner(Inner {
            id: self.id,
            exec: RefCell::new(Exec::new(Arc::clone(&self.shared))),
            current: Cell::new(None),
            current_group: Cell::new(Group::Client),
            ops: RefCell::new(Ops::default()),
            timers: RefCell::new(Timers::default()),
            turn_now: Cell::new(now),
            next_turn: RefCell::new(Vec::new()),
            mail: RefCell::new(self.mail),
            calls: RefCell::new(Calls::default()),
            aliens: RefCell::new(AlienQueue::default()),
            alien_pool: self.pool,
            driver: RefCell::new(driver),
            counters: Counters::default(),
            clock,
            arena,
            rng: Cell::new(seed),
            locals: RefCell::new(Vec::new()),
            shared: self.shared,
            process: self.process,
            closing: Cell::new(false),
            poll: config.poll,
            pauses: Default::default(),
            alien_shares_cpu: config.alien_shares_cpu,
            quota_ns: u64::from(config.task_quota_us.max(1)) * 1_000,
            stall_ticks: Cell::new(stall),
            last_stall_ns: Cell::new(0),
            tid,
            crowd: Crowd::default(),
            start: Start { wall_ns: now, cpu_ns, wait_ns },
        })
    }

    /// A shard with a ring, on the calling thread.
    fn real(self, config: &Config) -> io::Result<Shard> {
        let mut ring = Uring::new(ring_entries(config), Arc::clone(&self.shared), Arc::clone(&self.process))?;
        let arena = Slice::new(config.arena_bytes_per_shard)?;
        if config.register_bytes > 0 {
            ring.register(&arena, config.register_bytes);
        }
        let clock = Clock::Real(TickRate::measure());
        sys::precise_timers();
        sys::short_slices();
        Ok(self.assemble(config, Driver::Uring(Box::new(ring)), clock, sys::random_seed(), arena))
    }
}

fn ring_entries(config: &Config) -> u32 {
    let asked = std::env::var("CARMINE_RING_ENTRIES").ok().and_then(|entries| entries.parse().ok());
    asked.unwrap_or(config.ring_entries)
}

fn pin_to(cpu: Option<usize>) -> io::Result<()> {
    let Some(id) = cpu else { return Ok(()) };
    if sys::pin(id) {
        return Ok(());
    }
    let allowed: Vec<String> =
        core_affinity::get_core_ids().unwrap_or_default().iter().map(|c| c.id.to_string()).collect();
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("cannot pin a reactor to CPU {id}: this process may use CPUs {}", allowed.join(",")),
    ))
}

pub(crate) fn panic_text(p: &(dyn Any + Send)) -> &str {
    p.downcast_ref::<&str>()
        .copied()
        .or_else(|| p.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without text")
}

pub(crate) fn panic_error(p: &(dyn Any + Send), id: ShardId) -> io::Error {
    io::Error::other(format!("a task panicked on shard {id}: {}", panic_text(p)))
}

/// The result of a reactor's thread, and its ring.
struct Ended {
    result: io::Result<()>,
    /// Closed only when no other reactor of the process runs.
    ring: Option<IoUring>,
}

/// The running reactors of a process.
pub struct Reactors {
    threads: Vec<JoinHandle<Ended>>,
    process: Arc<ProcessShared>,
    /// Dropped last: joins the alien threads.
    _pool: Arc<AlienPool>,
}

impl Reactors {
    /// Starts one thread per entry of `config.cpus`; each runs the future of `main` as its first task. Returns when
    /// all rings are open.
    ///
    /// # Errors
    /// No shards, a CPU that cannot be pinned to, a refused ring (the text says what to do), no memory. Nothing runs
    /// after an error.
    pub fn start<F, Fut>(config: Config, main: F) -> io::Result<Reactors>
    where
        F: Fn(Shard) -> Fut + Send + Clone + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        check(&config)?;
        crate::sys::use_crc32c_instruction();
        let pool = Arc::new(AlienPool::new(&config));
        let parts = parts(config.cpus.len(), true, Some(&pool))?;
        let process = Arc::clone(&parts[0].process);
        let mut all = Reactors { threads: Vec::new(), process, _pool: pool };
        let (ready_tx, ready) = mpsc::channel::<io::Result<()>>();
        let mut failed = None;
        for p in parts {
            let (config, main, ready) = (config.clone(), main.clone(), ready_tx.clone());
            let name = format!("{}-{}", config.name, p.id);
            let spawned =
                std::thread::Builder::new().name(name).spawn(move || thread(p, &config, main, &ready));
            match spawned {
                Ok(t) => all.threads.push(t),
                Err(e) => failed = Some(e),
            }
        }
        drop(ready_tx);
        // Every thread reports once; a thread that panics before that closes its sender.
        failed = failed.or_else(|| ready.iter().take(all.threads.len()).find_map(Result::err));
        match failed {
            None => Ok(all),
            Some(e) => {
                all.process.stop();
                let _ = all.join();
                Err(e)
            }
        }
    }

    /// Waits until the reactors were stopped ([`Shard::stop`] or [`Stopper::stop`]) and have cleaned up.
    ///
    /// # Errors
    /// A task panicked or a ring failed: the first such error.
    pub fn join(mut self) -> io::Result<()> {
        self.wait()
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        let mut rings = Vec::new();
        for (i, t) in self.threads.drain(..).enumerate() {
            match t.join() {
                Ok(ended) => {
                    rings.push(ended.ring);
                    result = result.and(ended.result);
                }
                Err(p) => result = result.and(Err(panic_error(&*p, ShardId(i as u16)))),
            }
        }
        result
    }

    /// A handle that stops the reactors from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { process: Arc::clone(&self.process) }
    }
}

impl Drop for Reactors {
    /// Stops them and waits.
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.process.stop();
            let _ = self.wait();
        }
    }
}

fn check(config: &Config) -> io::Result<()> {
    if config.cpus.is_empty() || config.cpus.len() > usize::from(u16::MAX) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} shards asked for: use 1 to {}", config.cpus.len(), u16::MAX),
        ));
    }
    Ok(())
}

fn thread<F, Fut>(parts: Parts, config: &Config, main: F, ready: &mpsc::Sender<io::Result<()>>) -> Ended
where
    F: Fn(Shard) -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    let (id, process) = (parts.id, Arc::clone(&parts.process));
    let cpu = config.cpus.get(usize::from(id.0)).copied().flatten();
    let shard = match pin_to(cpu).and_then(|()| parts.real(config)) {
        Ok(s) => s,
        Err(e) => {
            let _ = ready.send(Err(io::Error::new(e.kind(), e.to_string())));
            return Ended { result: Err(e), ring: None };
        }
    };
    let _ = ready.send(Ok(()));
    let result = catch_unwind(AssertUnwindSafe(|| {
        shard.spawn(Group::Admin, "main", main(shard.clone()));
        turn::run(&shard, None).map(drop)
    }))
    .unwrap_or_else(|p| Err(panic_error(&*p, id)));
    process.stop();
    close(shard, result)
}

/// Cleans up even after a panic; a second panic while cleaning leaks what is left.
fn close(shard: Shard, result: io::Result<()>) -> Ended {
    match catch_unwind(AssertUnwindSafe(|| turn::close(&shard))) {
        Ok(ring) => Ended { result, ring },
        Err(p) => {
            let id = shard.id();
            std::mem::forget(shard);
            Ended { result: result.and(Err(panic_error(&*p, id))), ring: None }
        }
    }
}

/// Stops reactors from any thread (also from one that waits for signals).
#[derive(Clone)]
pub struct Stopper {
    process: Arc<ProcessShared>,
}

impl Stopper {
    /// Asks all shards to end after their current turn, and wakes them.
    pub fn stop(&self) {
        self.process.stop();
    }
}

/// Runs one reactor on the calling thread until `main` is done: for tools, clients and tests. The thread is pinned to
/// `config.cpus[0]` meanwhile.
///
/// # Errors
/// As [`Reactors::start`]; Interrupted if a task called [`Shard::stop`] before `main` was done.
pub fn block_on<R>(config: Config, main: impl AsyncFnOnce(Shard) -> R) -> io::Result<R> {
    check(&config)?;
    let pool = Arc::new(AlienPool::new(&config));
    let Some(part) = parts(1, true, Some(&pool))?.pop() else {
        return Err(io::Error::other("no shard"));
    };
    let before = sys::affinity()?;
    let cpu = config.cpus.first().copied().flatten();
    pin_to(cpu)?;
    let shard = part.real(&config)?;
    let mut out = None;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let handle = shard.clone();
        let root = pin!(async { out = Some(main(handle).await) });
        turn::run(&shard, Some(root))
    }));
    let id = shard.id();
    let (result, panic) = match result {
        Ok(r) => (r.map(drop), None),
        Err(p) => (Err(panic_error(&*p, id)), Some(p)),
    };
    let ended = close(shard, result);
    drop(ended.ring);
    if cpu.is_some() {
        before.restore();
    }
    if let Some(p) = panic {
        // The caller's own code panicked on its own thread: resume the panic.
        std::panic::resume_unwind(p);
    }
    ended.result?;
    out.ok_or_else(|| {
        io::Error::new(io::ErrorKind::Interrupted, "the reactor was stopped before main was done")
    })
}
