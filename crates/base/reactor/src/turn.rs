//! The turn: what a reactor does over and over, for both drivers.

use std::io;

use crate::config::PollPolicy;
use crate::driver::{Driver, Wait};
use crate::exec::{self, Root, run_ready};
use crate::mailbox::Msg;
use crate::shard::Shard;
use crate::{spin, stats};

/// Longest sleep while messages wait for room in a peer's queue, which is awake and will make room soon.
const BACKLOG_SLEEP_NS: u64 = 50_000;

/// The work of one turn.
pub(crate) struct Worked {
    /// Tasks polled.
    pub(crate) polled: u64,
    /// Messages run.
    pub(crate) messages: u64,
    /// Completions taken.
    pub(crate) completions: u64,
    /// Timers fired.
    pub(crate) timers: u64,
    /// The root future has finished.
    pub(crate) root_done: bool,
}

/// Everything of a turn but the driver: reap, run, flush.
pub(crate) fn work(shard: &Shard, root: &mut Root<'_>) -> Worked {
    let inner = shard.inner();
    stats::add(&inner.counters.turns, 1);
    inner.turn_now.set(inner.clock.begin_turn());
    let completions = take_completions(shard) + take_returned(shard);
    let messages = take_mail(shard);
    let timers = fire_timers(shard);
    let waiting = std::mem::take(&mut *inner.next_turn.borrow_mut());
    for target in waiting {
        exec::wake(shard, target);
    }
    inner.exec.borrow_mut().drain_wakes();
    let (polled, root_done) = run_ready(shard, root, inner.clock.to_ticks(inner.quota_ns));
    stats::add(&inner.counters.polls, polled);
    flush(shard);
    Worked { polled, messages, completions, timers, root_done }
}

fn take_completions(shard: &Shard) -> u64 {
    let inner = shard.inner();
    let mut done = {
        let mut ops = inner.ops.borrow_mut();
        if ops.done.is_empty() {
            return 0;
        }
        std::mem::take(&mut ops.done)
    };
    let n = done.len() as u64;
    for d in done.drain(..) {
        let target = inner.ops.borrow_mut().finish(d);
        exec::wake(shard, target);
    }
    // Give the vector back for its capacity.
    inner.ops.borrow_mut().done = done;
    n
}

fn take_returned(shard: &Shard) -> u64 {
    let inner = shard.inner();
    let mut n = 0;
    while let Some(r) = inner.shared.returned.pop() {
        n += 1;
        let mut aliens = inner.aliens.borrow_mut();
        aliens.returned();
        if let Some(pool) = &inner.alien_pool {
            aliens.pump(pool);
        }
        drop(aliens);
        shard.complete_call(r.slot, r.value);
    }
    n
}

fn take_mail(shard: &Shard) -> u64 {
    let inner = shard.inner();
    let mut inbox: Vec<Msg> = {
        let mut mail = inner.mail.borrow_mut();
        if !mail.has_mail() {
            return 0;
        }
        let mut inbox = std::mem::take(&mut mail.inbox);
        mail.drain_into(&mut inbox);
        inbox
    };
    let n = inbox.len() as u64;
    for msg in inbox.drain(..) {
        msg(shard);
    }
    inner.mail.borrow_mut().inbox = inbox;
    stats::add(&inner.counters.hops_received, n);
    n
}

fn fire_timers(shard: &Shard) -> u64 {
    let inner = shard.inner();
    let now = inner.turn_now.get();
    let mut n = 0;
    loop {
        let due = inner.timers.borrow_mut().pop_due(now);
        let Some(target) = due else { return n };
        n += 1;
        exec::wake(shard, target);
    }
}

fn flush(shard: &Shard) {
    let inner = shard.inner();
    let mut mail = inner.mail.borrow_mut();
    let f = mail.flush();
    stats::add(&inner.counters.hops_sent, f.sent);
    stats::add(&inner.counters.hops_delayed, f.delayed);
    if mail.to_wake.is_empty() {
        return;
    }
    let mut driver = inner.driver.borrow_mut();
    while let Some(peer) = mail.to_wake.pop() {
        stats::add(&inner.counters.wakes_sent, 1);
        driver.wake_peer(peer);
    }
}

/// Whether there is work for the next turn.
pub(crate) fn has_work(shard: &Shard) -> bool {
    let inner = shard.inner();
    inner.exec.borrow().ready() > 0
        || !inner.ops.borrow().done.is_empty()
        || !inner.shared.is_quiet()
        || inner.mail.borrow().has_mail()
        || !inner.next_turn.borrow().is_empty()
        || inner.process.stopping()
}

/// Whether a shard of `sim` has something to do at the virtual time `now_ns`.
pub(crate) fn runnable(shard: &Shard, now_ns: u64) -> bool {
    let inner = shard.inner();
    has_work(shard)
        || inner.mail.borrow().has_backlog()
        || !inner.ops.borrow().queue.is_empty()
        || !inner.ops.borrow().cancels.is_empty()
        || inner.timers.borrow().next().is_some_and(|t| t <= now_ns)
        || inner.driver.borrow_mut().has_events()
}

/// The driver's part of a turn under `sim`.
pub(crate) fn drive_sim(shard: &Shard) {
    let inner = shard.inner();
    if let Driver::Sim(d) = &mut *inner.driver.borrow_mut() {
        d.turn(&mut inner.ops.borrow_mut());
    }
}

fn drive(shard: &Shard, wait: Wait) -> io::Result<()> {
    let inner = shard.inner();
    inner.driver.borrow_mut().turn(&mut inner.ops.borrow_mut(), wait)
}

/// Turns until the root future is done or someone stops the process. True: the root is done.
pub(crate) fn run(shard: &Shard, mut root: Root<'_>) -> io::Result<bool> {
    let inner = shard.inner();
    if root.is_some() {
        inner.exec.borrow_mut().start_root();
    }
    loop {
        let worked = work(shard, &mut root);
        if worked.root_done || inner.process.stopping() {
            return Ok(worked.root_done);
        }
        if has_work(shard) {
            drive(shard, Wait::No)?;
            continue;
        }
        match inner.poll {
            PollPolicy::Sleep => sleep(shard)?,
            PollPolicy::Poll => {
                drive(shard, Wait::No)?;
                if !spin::is_wanted(shard) {
                    spin::spin(shard, u64::MAX);
                }
                take_events(shard)?;
            }
            // Submitting and sleeping are one enter if nothing is polled for in between.
            PollPolicy::Adaptive { .. } if alien_needs_this_cpu(shard) || spin::is_futile(shard) => {
                sleep(shard)?
            }
            PollPolicy::Adaptive { spin_us } => {
                drive(shard, Wait::No)?;
                if spin::while_it_pays(shard, u64::from(spin_us) * 1_000) {
                    take_events(shard)?;
                } else {
                    sleep(shard)?;
                }
            }
        }
    }
}

/// Reaps what ended a spin, so that the next turn finds it.
fn take_events(shard: &Shard) -> io::Result<()> {
    if shard.inner().driver.borrow_mut().has_events() { drive(shard, Wait::No) } else { Ok(()) }
}

/// Whether an alien works for this shard and may need the CPU that the shard would spin on.
fn alien_needs_this_cpu(shard: &Shard) -> bool {
    let inner = shard.inner();
    inner.alien_shares_cpu && inner.aliens.borrow().outstanding() > 0
}

/// Submits and sleeps until something completes, a timer is due or someone wakes the shard.
fn sleep(shard: &Shard) -> io::Result<()> {
    let inner = shard.inner();
    inner.shared.announce_sleep();
    if has_work(shard) {
        inner.shared.awake();
        return drive(shard, Wait::No);
    }
    let timer = inner.timers.borrow().next().map(|t| t.saturating_sub(inner.clock.now_ns()));
    let backlog = inner.mail.borrow().has_backlog().then_some(BACKLOG_SLEEP_NS);
    let timeout = match (timer, backlog) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    stats::add(&inner.counters.sleeps, 1);
    let result = drive(shard, Wait::Sleep(timeout));
    inner.shared.awake();
    result
}

/// Ends a shard: drops its tasks and state, and waits until the kernel has let go of its operations. The ring stays open for the
/// caller (peers may still send messages to it).
pub(crate) fn close(shard: &Shard) -> Option<io_uring::IoUring> {
    let inner = shard.inner();
    inner.closing.set(true);
    // Destructors may wake, cancel and drop more; spawn and submit_to are closed.
    for _ in 0..4 {
        let tasks = inner.exec.borrow_mut().take_all();
        let locals = std::mem::take(&mut *inner.locals.borrow_mut());
        let msgs = inner.mail.borrow_mut().clear();
        if tasks.is_empty() && locals.is_empty() && msgs.is_empty() {
            break;
        }
        drop(tasks);
        drop(locals);
        drop(msgs);
        while let Some(r) = inner.shared.returned.pop() {
            shard.complete_call(r.slot, r.value);
        }
    }
    let driver = std::mem::replace(&mut *inner.driver.borrow_mut(), Driver::Closed);
    let mut ops = std::mem::take(&mut *inner.ops.borrow_mut());
    // A simulated driver releases operations at once.
    let Driver::Uring(mut ring) = driver else { return None };
    if ring.drain(&mut ops) {
        drop(ops);
        return Some(ring.into_ring());
    }
    tracing::error!(
        "shard {}: the kernel still has {} operations after 20 s; their memory is leaked",
        inner.id,
        ops.in_flight()
    );
    std::mem::forget(ops);
    ring.leak();
    None
}
