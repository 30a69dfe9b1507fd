//! The simulated world: all shards of all nodes in one thread, on a virtual clock, in an order that a seed decides.
//!
//! ```
//! use std::{cell::Cell, rc::Rc, time::Duration};
//! use carmine_reactor::sim::Sim;
//!
//! let sim = Sim::new(42);
//! let done = Rc::new(Cell::new(false));
//! let flag = Rc::clone(&done);
//! sim.node("a", 1, move |shard| {
//!     let flag = Rc::clone(&flag);
//!     async move {
//!         shard.sleep(Duration::from_secs(3600)).await; // costs nothing
//!         flag.set(true);
//!     }
//! });
//! sim.run(|| done.get(), Duration::from_secs(7200)).unwrap();
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::buf::arena::Slice;
use crate::clock::Clock;
use crate::config::{Config, Group};
use crate::driver::sim::{Key, SimDriver, World};
use crate::driver::{Driver, mix};
use crate::runtime::{panic_text, parts};
use crate::shard::Shard;
use crate::turn;

pub use crate::driver::sim::{Tape, Torn, Unflushed};

mod faults;

/// A simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Why a simulation did not reach its goal. Every variant names the seed that shows it again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimStuck {
    /// Nothing can ever run again.
    #[error("seed {seed}: nothing is left to run at {now_ns} ns of virtual time")]
    Idle {
        /// The seed.
        seed: u64,
        /// Virtual time.
        now_ns: u64,
    },
    /// The virtual time limit passed.
    #[error("seed {seed}: the limit of {limit_ns} ns of virtual time passed")]
    Limit {
        /// The seed.
        seed: u64,
        /// The limit of this run.
        limit_ns: u64,
    },
    /// Too many turns: a livelock.
    #[error("seed {seed}: more than {steps} turns, at {now_ns} ns of virtual time: a livelock?")]
    Steps {
        /// The seed.
        seed: u64,
        /// The budget of this run.
        steps: u64,
        /// Virtual time.
        now_ns: u64,
    },
    /// A task panicked.
    #[error("seed {seed}: a task of node {node} panicked at {now_ns} ns of virtual time: {message}")]
    Panic {
        /// The seed.
        seed: u64,
        /// Name of the node.
        node: String,
        /// Virtual time.
        now_ns: u64,
        /// The panic's message.
        message: String,
    },
}

/// Turns of one `run` unless set otherwise.
const STEP_BUDGET: u64 = 20_000_000;
/// Address space for buffers per simulated shard.
const ARENA_BYTES: usize = 16 << 20;

struct Node {
    name: Rc<str>,
    shards: Vec<Shard>,
    /// Nanoseconds by which its wall clock is ahead of the world's.
    ahead_ns: Rc<Cell<i64>>,
}

/// A simulated world. Dropping it drops all tasks.
pub struct Sim {
    seed: u64,
    now: Rc<Cell<u64>>,
    world: Rc<RefCell<World>>,
    nodes: RefCell<BTreeMap<u32, Node>>,
    next_node: Cell<u32>,
    /// Nodes that do not run for now.
    stopped: RefCell<BTreeSet<u32>>,
    budget: Cell<u64>,
}

impl Sim {
    /// An empty world.
    #[must_use]
    pub fn new(seed: u64) -> Sim {
        let now = Rc::new(Cell::new(1_000_000));
        let world = Rc::new(RefCell::new(World::new(seed, Rc::clone(&now))));
        Sim {
            seed,
            now,
            world,
            nodes: RefCell::new(BTreeMap::new()),
            next_node: Cell::new(0),
            stopped: RefCell::default(),
            budget: Cell::new(STEP_BUDGET),
        }
    }

    /// Starts a node with `shards` shards; each runs the future of `main` as its first task. Its files are those of
    /// earlier nodes of the same name.
    ///
    /// # Panics
    /// If there is no memory for the shards' buffers.
    pub fn node<F, Fut>(&self, name: &str, shards: u16, main: F) -> NodeId
    where
        F: Fn(Shard) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let id = self.next_node.get();
        self.next_node.set(id + 1);
        let name: Rc<str> = Rc::from(name);
        self.world.borrow_mut().power_on(&name);
        let ahead_ns = Rc::<Cell<i64>>::default();
        let config = Config { stall_ms: 0, ..Config::unpinned(&name, shards) };
        let started = parts(usize::from(shards.max(1)), false, None).and_then(|parts| {
            parts.into_iter().map(|p| Ok((Slice::new(ARENA_BYTES)?, p))).collect::<std::io::Result<Vec<_>>>()
        });
        let started = match started {
            Ok(s) => s,
            Err(e) => panic!("cannot start the simulated node {name}: {e}"),
        };
        let shards: Vec<Shard> = started
            .into_iter()
            .map(|(arena, p)| {
                let key = Key { node: id, shard: p.id.0 };
                let driver = Driver::Sim(SimDriver::new(Rc::clone(&self.world), key, Rc::clone(&name)));
                let clock = Clock::Virtual(Rc::clone(&self.now), Cell::new(0), Rc::clone(&ahead_ns));
                let seed = mix(self.seed ^ (u64::from(id) << 32) ^ u64::from(key.shard) ^ 0xC0FFEE);
                p.assemble(&config, driver, clock, seed, arena)
            })
            .collect();
        for s in &shards {
            s.spawn(Group::Admin, "main", main(s.clone()));
        }
        self.nodes.borrow_mut().insert(id, Node { name, shards, ahead_ns });
        NodeId(id)
    }

    /// Runs until `until` says so (it is asked before every turn), for at most `limit` of virtual time from now.
    ///
    /// # Errors
    /// See [`SimStuck`].
    pub fn run(&self, mut until: impl FnMut() -> bool, limit: Duration) -> Result<(), SimStuck> {
        let seed = self.seed;
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let end = self.now.get().saturating_add(limit_ns);
        let mut steps = 0;
        loop {
            self.world.borrow_mut().settle();
            if until() {
                return Ok(());
            }
            if self.now.get() > end {
                return Err(SimStuck::Limit { seed, limit_ns });
            }
            match self.pick() {
                Some((id, name, shard)) => {
                    steps += 1;
                    if steps > self.budget.get() {
                        return Err(SimStuck::Steps {
                            seed,
                            steps: self.budget.get(),
                            now_ns: self.now.get(),
                        });
                    }
                    self.step(id, &name, &shard)?;
                }
                None => match self.next_time() {
                    Some(t) => self.now.set(self.now.get().max(t)),
                    None => return Err(SimStuck::Idle { seed, now_ns: self.now.get() }),
                },
            }
        }
    }

    /// One of the shards that have something to do, by the seeded generator.
    fn pick(&self) -> Option<(u32, Rc<str>, Shard)> {
        let now = self.now.get();
        let (nodes, stopped) = (self.nodes.borrow(), self.stopped.borrow());
        let ready: Vec<(u32, usize)> = nodes
            .iter()
            .filter(|(id, _)| !stopped.contains(id))
            .flat_map(|(id, n)| n.shards.iter().enumerate().map(move |(i, s)| (*id, i, s)))
            .filter(|(_, _, s)| turn::runnable(s, now))
            .map(|(id, i, _)| (id, i))
            .collect();
        if ready.is_empty() {
            return None;
        }
        let at = (self.world.borrow_mut().random() % ready.len() as u64) as usize;
        let (id, i) = ready[at];
        let node = nodes.get(&id)?;
        Some((id, Rc::clone(&node.name), node.shards.get(i)?.clone()))
    }

    fn next_time(&self) -> Option<u64> {
        let stopped = self.stopped.borrow();
        let timers = self
            .nodes
            .borrow()
            .iter()
            .filter(|(id, _)| !stopped.contains(id))
            .flat_map(|(_, n)| n.shards.iter())
            .filter_map(|s| s.inner().timers.borrow().next())
            .min();
        match (timers, self.world.borrow().next_event()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn step(&self, id: u32, name: &str, shard: &Shard) -> Result<(), SimStuck> {
        let worked = catch_unwind(AssertUnwindSafe(|| {
            let worked = turn::work(shard, &mut None);
            turn::drive_sim(shard);
            worked
        }));
        let worked = worked.map_err(|p| SimStuck::Panic {
            seed: self.seed,
            node: name.to_owned(),
            now_ns: self.now.get(),
            message: panic_text(&*p).to_owned(),
        })?;
        let cost = {
            let mut world = self.world.borrow_mut();
            let who = u64::from(id) << 16 | u64::from(shard.id().0);
            world.trace(&[who, worked.polled, worked.messages, worked.completions, worked.timers]);
            200 + world.random() % 300
        };
        // A turn takes time, more with more work: nothing is free even in a dream.
        self.now.set(self.now.get() + cost + 300 * worked.polled);
        if shard.is_stopping() {
            self.kill(NodeId(id));
        }
        Ok(())
    }

    /// Ends a node at once: its tasks are dropped, its sockets closed (peers see the end of the stream), its files
    /// stay. Killing a node that is gone does nothing. A node whose task calls [`Shard::stop`] ends the same way.
    pub fn kill(&self, node: NodeId) {
        let Some(gone) = self.nodes.borrow_mut().remove(&node.0) else { return };
        for s in &gone.shards {
            turn::close(s);
        }
        drop(gone);
        self.stopped.borrow_mut().remove(&node.0);
        self.world.borrow_mut().forget_node(node.0);
    }

    /// The file of a node, to make faulty.
    #[must_use]
    pub fn disk(&self, node: &str, path: &Path) -> SimDisk<'_> {
        SimDisk { world: &self.world, file: (node.to_owned(), path.to_owned()) }
    }

    /// Records every change of a file from now on.
    #[must_use]
    pub fn record(&self) -> Tape {
        self.world.borrow_mut().record()
    }

    /// Puts the files here that a power cut after the first `at` events of a tape leaves, in place of all that are here.
    /// Nobody may have one open.
    pub fn restore(&self, tape: &Tape, at: usize, unflushed: Unflushed) {
        self.world.borrow_mut().disks.replace(tape.files(at, unflushed));
    }

    /// The node has not ended.
    #[must_use]
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.nodes.borrow().contains_key(&node.0)
    }

    /// A hash over every step so far: equal for equal seeds and programs.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.world.borrow().trace_hash()
    }

    /// Virtual nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now.get()
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Sets the number of turns that one `run` may take.
    pub fn set_step_budget(&self, steps: u64) {
        self.budget.set(steps);
    }
}

/// A simulated file as one that breaks it sees it.
pub struct SimDisk<'a> {
    world: &'a RefCell<World>,
    file: (String, PathBuf),
}

impl SimDisk<'_> {
    /// Flips one bit (0 to 7) of the byte at `off`.
    ///
    /// # Panics
    /// If nothing was ever written there.
    pub fn flip(&self, off: u64, bit: u8) {
        let found = self.world.borrow_mut().disks.flip(&self.file, off, bit);
        assert!(found, "nothing was written at byte {off} of {:?}", self.file);
    }

    /// Where 4 KiB pages of the file begin with these bytes.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Vec<u64> {
        self.world.borrow().disks.find(&self.file, bytes)
    }

    /// Makes the 4 KiB around `off` unreadable, until something is written there.
    pub fn unreadable(&self, off: u64) {
        self.world.borrow_mut().disks.faults.fault_mut(&self.file).unreadable.insert(off / 4096);
    }

    /// Every write fails from now on, or none does.
    pub fn fail_writes(&self, fail: bool) {
        self.world.borrow_mut().disks.faults.fault_mut(&self.file).writes_fail = fail;
    }

    /// Every flush fails from now on, that of a durable write too, or none does.
    pub fn fail_flushes(&self, fail: bool) {
        self.world.borrow_mut().disks.faults.fault_mut(&self.file).flushes_fail = fail;
    }

    /// Lets it take no discards from now on, or again.
    pub fn fail_discards(&self, fail: bool) {
        self.world.borrow_mut().disks.faults.fault_mut(&self.file).discards_fail = fail;
    }

    /// Every operation takes longer from now on.
    pub fn slower(&self, by: Duration) {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.world.borrow_mut().disks.faults.fault_mut(&self.file).slower_ns = ns;
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let ids: Vec<u32> = self.nodes.borrow().keys().copied().collect();
        for id in ids {
            self.kill(NodeId(id));
        }
    }
}
