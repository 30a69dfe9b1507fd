//! The executor: a table of tasks and one ready queue per scheduling group.
//!
//! A slot of the table keeps its waker forever, so spawning allocates only the boxed future. A waker that outlives its task may
//! cause one needless poll of the slot's next task, which every future must bear anyway.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use pin_project_lite::pin_project;

use crate::config::{GROUPS, Group};
use crate::op::WakeTarget;
use crate::shard::Shard;
use crate::shared::ShardShared;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Index of the future that `block_on` polls on its own stack.
const ROOT: u32 = 0;
/// Tasks of one group that run before the shares are checked again.
const BATCH: u32 = 16;

struct TaskWaker {
    index: u32,
    queued: AtomicBool,
    shared: Arc<ShardShared>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.shared.wakes.push(self.index);
            self.shared.kick();
        }
    }
}

struct Slot {
    task: Option<Task>,
    /// Absent only while the task is being polled.
    waker: Option<Waker>,
    source: Arc<TaskWaker>,
    name: &'static str,
    group: Group,
    ready: bool,
    alive: bool,
}

/// Tasks and ready queues.
pub(crate) struct Exec {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ready: [VecDeque<u32>; GROUPS],
    ready_count: usize,
    /// CPU ticks by group divided by its shares: the group with the least runs next.
    vtime: [u64; GROUPS],
    current_group: Group,
    left_in_batch: u32,
    alive: usize,
    shared: Arc<ShardShared>,
}

/// The task that is being polled: index and identity of its waker.
pub(crate) type Current = Cell<Option<(u32, *const ())>>;

struct Next {
    index: u32,
    task: Option<Task>,
    waker: Waker,
    group: Group,
    name: &'static str,
}

impl Exec {
    pub(crate) fn new(shared: Arc<ShardShared>) -> Exec {
        let mut e = Exec {
            slots: Vec::new(),
            free: Vec::new(),
            ready: Default::default(),
            ready_count: 0,
            vtime: [0; GROUPS],
            current_group: Group::Admin,
            left_in_batch: 0,
            alive: 0,
            shared,
        };
        e.add_slot("main", Group::Admin);
        e
    }

    fn add_slot(&mut self, name: &'static str, group: Group) -> u32 {
        let index = self.slots.len() as u32;
        let source =
            Arc::new(TaskWaker { index, queued: AtomicBool::new(false), shared: Arc::clone(&self.shared) });
        let waker = Some(Waker::from(Arc::clone(&source)));
        self.slots.push(Slot { task: None, waker, source, name, group, ready: false, alive: false });
        index
    }

    pub(crate) fn spawn(&mut self, group: Group, name: &'static str, task: Task) {
        let index = self.take_slot(group, name);
        self.slots[index as usize].task = Some(task);
        self.make_ready(index);
    }

    /// A slot for a new task.
    fn take_slot(&mut self, group: Group, name: &'static str) -> u32 {
        let index = match self.free.pop() {
            Some(i) => i,
            None => self.add_slot(name, group),
        };
        let slot = &mut self.slots[index as usize];
        slot.group = group;
        slot.name = name;
        slot.alive = true;
        self.alive += 1;
        index
    }

    /// Tasks alive.
    pub(crate) fn alive(&self) -> usize {
        self.alive
    }

    /// Tasks that want to run.
    pub(crate) fn ready(&self) -> usize {
        self.ready_count
    }

    /// Lets the root future run.
    pub(crate) fn start_root(&mut self) {
        self.slots[ROOT as usize].alive = true;
        self.make_ready(ROOT);
    }

    pub(crate) fn make_ready(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if slot.ready || !slot.alive {
            return;
        }
        slot.ready = true;
        let group = slot.group as usize;
        if self.ready[group].is_empty() {
            self.join_race(group);
        }
        self.ready[group].push_back(index);
        self.ready_count += 1;
    }

    /// A group that was idle must not claim the time that it did not use.
    fn join_race(&mut self, group: usize) {
        let least = (0..GROUPS).filter(|g| !self.ready[*g].is_empty()).map(|g| self.vtime[g]).min();
        if let Some(v) = least {
            self.vtime[group] = self.vtime[group].max(v);
        }
    }

    /// Moves tasks that were woken through wakers to the ready queues.
    pub(crate) fn drain_wakes(&mut self) -> usize {
        let mut n = 0;
        while let Some(index) = self.shared.wakes.pop() {
            if let Some(slot) = self.slots.get(index as usize) {
                slot.source.queued.store(false, Ordering::Release);
            }
            self.make_ready(index);
            n += 1;
        }
        n
    }

    fn pick_group(&mut self) -> Option<usize> {
        let current = self.current_group as usize;
        if self.left_in_batch > 0 && !self.ready[current].is_empty() {
            self.left_in_batch -= 1;
            return Some(current);
        }
        let best = (0..GROUPS).filter(|g| !self.ready[*g].is_empty()).min_by_key(|g| self.vtime[*g])?;
        self.current_group = Group::ALL[best];
        self.left_in_batch = BATCH - 1;
        Some(best)
    }

    fn next(&mut self) -> Option<Next> {
        loop {
            let group = self.pick_group()?;
            let index = self.ready[group].pop_front()?;
            self.ready_count -= 1;
            let slot = &mut self.slots[index as usize];
            slot.ready = false;
            let task = slot.task.take();
            if task.is_none() && index != ROOT {
                continue;
            }
            if let Some(waker) = slot.waker.take() {
                return Some(Next { index, task, waker, group: slot.group, name: slot.name });
            }
        }
    }

    /// The next ready task; checks the wakers' queue only when the ready queues are empty.
    fn next_or_woken(&mut self) -> Option<Next> {
        loop {
            if let Some(n) = self.next() {
                return Some(n);
            }
            if self.drain_wakes() == 0 {
                return None;
            }
        }
    }

    /// Puts a polled task back (`None`: it is finished).
    fn after(&mut self, index: u32, task: Option<Task>, waker: Waker, done: bool, ticks: u64) {
        let slot = &mut self.slots[index as usize];
        slot.waker = Some(waker);
        let group = slot.group;
        self.vtime[group as usize] += ticks * 1024 / u64::from(group.shares());
        if done {
            slot.alive = false;
            if index != ROOT {
                self.alive -= 1;
                self.free.push(index);
            }
        } else {
            slot.task = task;
        }
    }

    /// Takes all tasks out (for a shutdown; the caller drops them without holding a borrow).
    pub(crate) fn take_all(&mut self) -> Vec<Task> {
        let mut out = Vec::new();
        for (i, slot) in self.slots.iter_mut().enumerate() {
            if let Some(t) = slot.task.take() {
                slot.alive = false;
                self.alive -= 1;
                self.free.push(i as u32);
                out.push(t);
            }
        }
        out
    }
}

/// The root future, which [`run_ready`] polls for index 0.
pub(crate) type Root<'a> = Option<Pin<&'a mut (dyn Future<Output = ()> + 'a)>>;

/// Polls ready tasks until none is left or the quota is used up; how many were polled, and whether the root finished.
pub(crate) fn run_ready(shard: &Shard, root: &mut Root<'_>, quota_ticks: u64) -> (u64, bool) {
    let inner = shard.inner();
    let mut polled = 0;
    let mut root_done = false;
    let mut before = inner.clock.ticks();
    let end = before.saturating_add(quota_ticks);
    loop {
        let next = inner.exec.borrow_mut().next_or_woken();
        let Some(Next { index, mut task, waker, group, name }) = next else { break };
        inner.current.set(Some((index, waker.data())));
        inner.current_group.set(group);
        let mut cx = Context::from_waker(&waker);
        let done = match (&mut task, &mut *root) {
            (Some(t), _) => t.as_mut().poll(&mut cx).is_ready(),
            (None, Some(r)) => {
                root_done = r.as_mut().poll(&mut cx).is_ready();
                root_done
            }
            (None, None) => true,
        };
        inner.current.set(None);
        if done {
            // Its destructor may spawn or wake: no borrow is held here.
            task = None;
        }
        let now = inner.clock.ticks();
        let spent = now.wrapping_sub(before);
        before = now;
        polled += 1;
        inner.exec.borrow_mut().after(index, task, waker, done, spent);
        inner.counters.add_group(group, spent);
        if spent > inner.stall_ticks.get() {
            inner.report_stall(name, group, spent);
        }
        if root_done {
            *root = None;
            break;
        }
        if now >= end {
            break;
        }
    }
    (polled, root_done)
}

pin_project! {
    /// A future, and what runs after it if it has to be polled more than once. An async block would hold the future twice, as a
    /// capture and as the awaited future.
    pub(crate) struct Polled<F, A> {
        #[pin]
        pub(crate) future: F,
        pub(crate) after: Option<A>,
        pub(crate) waited: bool,
    }
}

impl<F: Future<Output = ()>, A: FnOnce()> Future for Polled<F, A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.future.poll(cx).is_pending() {
            *this.waited = true;
            return Poll::Pending;
        }
        if *this.waited
            && let Some(after) = this.after.take()
        {
            after();
        }
        Poll::Ready(())
    }
}

/// Polls a new task at once, within the one that is being polled; true if it is finished. Its time is counted as the other's.
pub(crate) fn spawn_polled(shard: &Shard, group: Group, name: &'static str, mut task: Task) -> bool {
    let inner = shard.inner();
    let (index, waker) = {
        let mut exec = inner.exec.borrow_mut();
        let index = exec.take_slot(group, name);
        (index, exec.slots[index as usize].waker.take())
    };
    // A free slot has its waker.
    let Some(waker) = waker else { return false };
    let outer = (inner.current.replace(Some((index, waker.data()))), inner.current_group.replace(group));
    let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
    inner.current.set(outer.0);
    inner.current_group.set(outer.1);
    crate::stats::add(&inner.counters.polls, 1);
    let task = if done {
        // Its destructor may spawn or wake: no borrow is held here.
        drop(task);
        None
    } else {
        Some(task)
    };
    inner.exec.borrow_mut().after(index, task, waker, done, 0);
    done
}

/// Wakes a target without holding any borrow.
pub(crate) fn wake(shard: &Shard, target: WakeTarget) {
    match target {
        WakeTarget::Nobody => {}
        WakeTarget::Task(i) => shard.inner().exec.borrow_mut().make_ready(i),
        WakeTarget::Waker(w) => w.wake(),
    }
}
