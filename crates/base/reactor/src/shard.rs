//! [`Shard`]: the handle through which a task reaches its reactor, and all of a reactor's state.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::alien::{AlienPool, AlienQueue};
use crate::buf::{Buf, arena};
use crate::call::{CallFuture, Calls};
use crate::clock::Clock;
use crate::config::{GROUPS, Group, PollPolicy};
use crate::crowd::Crowd;
use crate::driver::Driver;
use crate::exec::{self, Current, Exec, Polled};
use crate::file::{self, File, FileOptions};
use crate::mailbox::Mail;
use crate::net::{self, Listener, TcpStream, UnixListener};
use crate::op::{Lane, Ops, WakeTarget};
use crate::shared::{ProcessShared, Returned, ShardShared};
use crate::stats::{self, Counters, ReactorStats};
use crate::timer::{Sleep, Timers};
use crate::{alloc, spin, sys};

/// Index of a shard within its process (or, under `sim`, within its node).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl std::fmt::Display for ShardId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Everything that a reactor is. No borrow of a cell is ever held while a task, a message or a waker runs.
pub(crate) struct Inner {
    pub(crate) id: ShardId,
    pub(crate) exec: RefCell<Exec>,
    pub(crate) current: Current,
    pub(crate) current_group: Cell<Group>,
    pub(crate) ops: RefCell<Ops>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) turn_now: Cell<u64>,
    /// Tasks that want to run in the next turn, not earlier.
    pub(crate) next_turn: RefCell<Vec<WakeTarget>>,
    pub(crate) mail: RefCell<Mail>,
    pub(crate) calls: RefCell<Calls>,
    pub(crate) aliens: RefCell<AlienQueue>,
    pub(crate) alien_pool: Option<Arc<AlienPool>>,
    pub(crate) driver: RefCell<Driver>,
    pub(crate) counters: Counters,
    pub(crate) clock: Clock,
    pub(crate) arena: Arc<arena::Slice>,
    pub(crate) rng: Cell<u64>,
    pub(crate) locals: RefCell<Vec<(TypeId, Rc<dyn Any>)>>,
    pub(crate) shared: Arc<ShardShared>,
    pub(crate) process: Arc<ProcessShared>,
    pub(crate) closing: Cell<bool>,
    pub(crate) poll: PollPolicy,
    pub(crate) pauses: [Cell<spin::Pauses>; 2],
    pub(crate) alien_shares_cpu: bool,
    pub(crate) quota_ns: u64,
    pub(crate) stall_ticks: Cell<u64>,
    pub(crate) last_stall_ns: Cell<u64>,
    pub(crate) tid: u32,
    pub(crate) crowd: Crowd,
    pub(crate) start: Start,
}

/// The thread's accounts when the reactor began.
#[derive(Clone, Copy, Default)]
pub(crate) struct Start {
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) wait_ns: u64,
}

/// Handle of the shard that the current task runs on. Cheap to clone; does not leave its thread.
#[derive(Clone)]
pub struct Shard(Rc<Inner>);

impl Shard {
    pub(crate) fn from_inner(inner: Inner) -> Shard {
        Shard(Rc::new(inner))
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// This shard's index.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.0.id
    }

    /// Number of shards in this process.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.0.process.shards.len() as u16
    }

    /// Monotonic time in nanoseconds (virtual under `sim`).
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    /// As [`now_ns`](Shard::now_ns), but from the CPU's counter since the turn began: cheaper, for stamps of which each operation takes
    /// several. A stamp of an earlier turn may lie some microseconds ahead of one of this turn.
    #[must_use]
    #[inline]
    pub fn stamp_ns(&self) -> u64 {
        self.0.clock.stamp_ns()
    }

    /// Wall-clock time since 1970 (virtual under `sim`).
    #[must_use]
    pub fn unix_now(&self) -> Duration {
        self.0.clock.unix_now()
    }

    /// A random number; from the seed under `sim`. Not for secrets.
    #[must_use]
    pub fn random_u64(&self) -> u64 {
        let next = self.0.rng.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.rng.set(next);
        crate::driver::mix(next)
    }

    /// Starts a task. Panics in a task end the process's reactors with an error.
    pub fn spawn(&self, group: Group, name: &'static str, fut: impl Future<Output = ()> + 'static) {
        if self.0.closing.get() {
            return;
        }
        let task = Box::pin(fut);
        self.0.exec.borrow_mut().spawn(group, name, task);
    }

    /// As [`spawn`](Shard::spawn), but the task is polled at once, before this returns: true if that finished it. Otherwise
    /// `after` runs after it, as part of the task. For futures that often need not wait; it saves one poll if they do. `make`
    /// creates the future close to where it is stored, which saves a copy.
    #[inline]
    pub fn spawn_polled<F: Future<Output = ()> + 'static>(
        &self,
        group: Group,
        name: &'static str,
        make: impl FnOnce() -> F,
        after: impl FnOnce() + 'static,
    ) -> bool {
        if self.0.closing.get() {
            return false;
        }
        let task = Box::pin(Polled { future: make(), after: Some(after), waited: false });
        exec::spawn_polled(self, group, name, task)
    }

    /// Waits for `d`.
    pub fn sleep(&self, d: Duration) -> impl Future<Output = ()> + use<> {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Sleep::new(self.clone(), self.now_ns().saturating_add(ns))
    }

    /// Lets all other ready tasks of the group run first. A task that only yields continues within the turn until the quota is
    /// used up: to wait for I/O or other shards, await them, or use [`next_turn`](Shard::next_turn).
    pub async fn yield_now(&self) {
        Yield { shard: self, next_turn: false, done: false }.await;
    }

    /// Continues in the next turn, after the driver and the mailboxes have been checked.
    pub async fn next_turn(&self) {
        Yield { shard: self, next_turn: true, done: false }.await;
    }

    /// A buffer of length `len`, with unspecified content.
    #[must_use]
    pub fn buf(&self, len: usize) -> Buf {
        let (buf, fallback) = Buf::from_slice(&self.0.arena, len);
        if fallback {
            stats::add(&self.0.counters.buf_fallbacks, 1);
        }
        buf
    }

    /// Counts bytes that had to be copied.
    pub fn count_copy(&self, bytes: usize) {
        stats::add(&self.0.counters.bytes_copied, bytes as u64);
    }

    /// Keeps `v` as this shard's value of its type, in place of an earlier one.
    pub fn set_local<T: 'static>(&self, v: Rc<T>) {
        let key = TypeId::of::<T>();
        let mut locals = self.0.locals.borrow_mut();
        let old = match locals.iter_mut().find(|(k, _)| *k == key) {
            Some((_, slot)) => Some(std::mem::replace(slot, v as Rc<dyn Any>)),
            None => {
                locals.push((key, v as Rc<dyn Any>));
                None
            }
        };
        drop(locals);
        drop(old);
    }

    /// This shard's value of a type.
    #[must_use]
    pub fn local<T: 'static>(&self) -> Option<Rc<T>> {
        let key = TypeId::of::<T>();
        let found = self.0.locals.borrow().iter().find(|(k, _)| *k == key).map(|(_, v)| Rc::clone(v));
        found.and_then(|v| v.downcast().ok())
    }

    /// Runs `f` on shard `to`: one way, in order per pair of shards. To itself it runs in the next turn. A shard that
    /// does not exist drops it (and says so in the log).
    pub fn submit_to(&self, to: ShardId, f: impl FnOnce(&Shard) + Send + 'static) {
        if self.0.closing.get() {
            return;
        }
        if !self.0.mail.borrow_mut().send(usize::from(to.0), Box::new(f)) {
            tracing::error!("message to shard {to}, but there are only {} shards: dropped", self.shards());
        }
    }

    /// Runs `f`'s future on shard `to`, in the group of the calling task, and waits for its result.
    pub async fn call<R, F, Fut>(&self, to: ShardId, f: F) -> R
    where
        R: Send + 'static,
        F: FnOnce(Shard) -> Fut + Send + 'static,
        Fut: Future<Output = R> + 'static,
    {
        let answer = CallFuture::<R>::new(self);
        let (from, slot, group) = (self.id(), answer.slot(), self.0.current_group.get());
        self.submit_to(to, move |there: &Shard| {
            let target = there.clone();
            there.spawn(group, "call", async move {
                let r = f(target.clone()).await;
                target.submit_to(from, move |home: &Shard| home.complete_call(slot, Box::new(r)));
            });
        });
        answer.await
    }

    pub(crate) fn complete_call(&self, slot: u32, value: Box<dyn Any + Send>) {
        let (target, unwanted) = self.0.calls.borrow_mut().complete(slot, value);
        drop(unwanted);
        exec::wake(self, target);
    }

    /// Runs blocking code on an alien thread and waits for its result. `cost_ns` is what it takes under `sim`. A panic
    /// of `f` is passed on to the caller.
    pub async fn alien<R: Send + 'static>(&self, cost_ns: u64, f: impl FnOnce() -> R + Send + 'static) -> R {
        self.alien_timed(cost_ns, f).await.0
    }

    /// As [`Shard::alien`], also returning its CPU time in nanoseconds (`cost_ns` under `sim`): for work that is reported
    /// separately.
    pub async fn alien_timed<R: Send + 'static>(
        &self,
        cost_ns: u64,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> (R, u64) {
        let Some(pool) = self.0.alien_pool.clone() else {
            let jitter = self.random_u64() % (cost_ns / 4 + 1);
            self.sleep(Duration::from_nanos(cost_ns + jitter)).await;
            return (f(), cost_ns);
        };
        let answer = CallFuture::<(std::thread::Result<R>, u64)>::new(self);
        let (slot, home) = (answer.slot(), Arc::clone(&self.0.shared));
        let job = Box::new(move || {
            let before = sys::thread_cpu_ns();
            let result = catch_unwind(AssertUnwindSafe(f));
            let cpu_ns = sys::thread_cpu_ns() - before;
            home.alien_busy_ns.fetch_add(cpu_ns, Ordering::Relaxed);
            home.returned.push(Returned { slot, value: Box::new((result, cpu_ns)) });
            home.kick();
        });
        self.0.aliens.borrow_mut().push(&pool, job);
        match answer.await {
            (Ok(r), cpu_ns) => (r, cpu_ns),
            (Err(panic), _) => resume_unwind(panic),
        }
    }

    /// Listens on `addr` (port 0: any) with `SO_REUSEADDR`.
    ///
    /// # Errors
    /// Those of `bind` and `listen`, with the address in the text.
    pub async fn listen(&self, addr: SocketAddr) -> io::Result<Listener> {
        net::listen(self, addr)
    }

    /// Listens on a unix socket at `path`; a socket left over there is replaced.
    ///
    /// # Errors
    /// Those of `bind`, with the path in the text; Unsupported under `sim`.
    pub fn listen_unix(&self, path: &Path) -> io::Result<UnixListener> {
        net::listen_unix(self, path)
    }

    /// Connects to `addr`; `TCP_NODELAY` is set.
    ///
    /// # Errors
    /// Those of `connect`, with the address in the text.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<TcpStream> {
        net::connect(self, addr).await
    }

    /// Opens a file or block device.
    ///
    /// # Errors
    /// Those of `open`, with the path in the text.
    pub async fn open(&self, path: &Path, opts: FileOptions) -> io::Result<File> {
        file::open(self, path, opts).await
    }

    /// Makes the names of the files in a folder durable: a new file exists after a power cut only if its folder was synced,
    /// whatever was written to it and flushed.
    ///
    /// # Errors
    /// Those of `open` and `fsync`, with the path in the text.
    pub async fn sync_folder(&self, path: &Path) -> io::Result<()> {
        file::sync_folder(self, path).await
    }

    /// A snapshot of the counters and clocks. Reads `/proc` for the waiting time: not for every turn.
    #[must_use]
    pub fn stats(&self) -> ReactorStats {
        let (i, c) = (&*self.0, &self.0.counters);
        if let Clock::Real(rate) = &i.clock {
            rate.refine();
        }
        let mut s = ReactorStats {
            turns: c.turns.get(),
            enters: i.driver.try_borrow().map_or(0, |d| d.enters()),
            sleeps: c.sleeps.get(),
            spins: c.spins.get(),
            polls: c.polls.get(),
            tasks: i.exec.borrow().alive() as u64,
            ops: i.ops.borrow().completed(),
            ops_in_flight: i.ops.borrow().in_flight() as u64,
            polled: i.driver.try_borrow().map_or(0, |d| d.completed(Lane::Polled)),
            commands: i.driver.try_borrow().map_or(0, |d| d.completed(Lane::Commands)),
            ops_standing: i.ops.borrow().standing() as u64,
            hops_sent: c.hops_sent.get(),
            hops_received: c.hops_received.get(),
            hops_delayed: c.hops_delayed.get(),
            wakes_sent: c.wakes_sent.get(),
            wall_ns: self.now_ns() - i.start.wall_ns,
            alien_busy_ns: i.shared.alien_busy_ns.load(Ordering::Relaxed),
            alien_jobs: i.aliens.borrow().given(),
            buf_fallbacks: c.buf_fallbacks.get(),
            registered_bytes: i.driver.try_borrow().map_or(0, |d| d.registered_bytes()),
            bytes_copied: c.bytes_copied.get(),
            allocations: alloc::allocations(),
            stalls: c.stalls.get(),
            ..ReactorStats::default()
        };
        self.fill_clocks(&mut s);
        s
    }

    /// Nanoseconds of ready tasks by group, in the order of [`Group::ALL`].
    #[must_use]
    pub fn group_ns(&self) -> [u64; GROUPS] {
        self.0.counters.group_ticks().map(|ticks| self.0.clock.to_ns(ticks))
    }

    fn fill_clocks(&self, s: &mut ReactorStats) {
        let i = &*self.0;
        if matches!(i.clock, Clock::Virtual(..)) {
            s.sleep_ns = s.wall_ns;
            return;
        }
        let (cpu, wait) = stats::thread_account(i.tid);
        let cpu = (cpu - i.start.cpu_ns).min(s.wall_ns);
        s.wait_ns = wait.saturating_sub(i.start.wait_ns).min(s.wall_ns - cpu);
        s.spin_ns = i.clock.to_ns(i.counters.spin_ticks.get()).min(cpu);
        s.busy_ns = cpu - s.spin_ns;
        s.sleep_ns = s.wall_ns - cpu - s.wait_ns;
    }

    /// Ends all shards of the process after the current turn.
    pub fn stop(&self) {
        self.0.process.stop();
    }

    /// Whether `stop` was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.process.stopping()
    }

    /// Kernel thread id; 0 under `sim`.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.0.tid
    }

    /// How to wake the task of `cx`: by index if it is the task being polled.
    pub(crate) fn wake_target(&self, cx: &Context<'_>) -> WakeTarget {
        match self.0.current.get() {
            Some((index, data)) if data == cx.waker().data() => WakeTarget::Task(index),
            _ => WakeTarget::Waker(cx.waker().clone()),
        }
    }
}

impl Inner {
    /// Counts a poll that took too long and names the task, at most once a second.
    pub(crate) fn report_stall(&self, name: &str, group: Group, ticks: u64) {
        stats::add(&self.counters.stalls, 1);
        let now = self.clock.now_ns();
        if now.saturating_sub(self.last_stall_ns.get()) < 1_000_000_000 && self.last_stall_ns.get() != 0 {
            return;
        }
        self.last_stall_ns.set(now);
        let ms = self.clock.to_ns(ticks) / 1_000_000;
        tracing::warn!(
            "shard {}: task {name:?} ({}) held the reactor for {ms} ms ({} stalls so far)",
            self.id,
            group.word(),
            self.counters.stalls.get()
        );
    }
}

struct Yield<'a> {
    shard: &'a Shard,
    next_turn: bool,
    done: bool,
}

impl Future for Yield<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.done {
            return Poll::Ready(());
        }
        self.done = true;
        let target = self.shard.wake_target(cx);
        if self.next_turn {
            self.shard.0.next_turn.borrow_mut().push(target);
        } else {
            exec::wake(self.shard, target);
        }
        Poll::Pending
    }
}
