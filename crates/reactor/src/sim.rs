//! The simulated driver.
use crate::shard::Shard;
use std::future::Future;
use std::time::Duration;

/// A simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Why a simulation did not reach its goal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimStuck {
    /// Nothing can ever run again.
    #[error("seed {seed}: nothing left to run at {now_ns} ns of virtual time")]
    Idle {
        /** Seed. */
        seed: u64,
        /** Virtual time. */
        now_ns: u64,
    },
    /// The virtual time limit passed.
    #[error("seed {seed}: the limit of {limit_ns} ns of virtual time passed")]
    Limit {
        /** Seed. */
        seed: u64,
        /** The limit. */
        limit_ns: u64,
    },
    /// Too many steps: a livelock.
    #[error("seed {seed}: more than {steps} steps, at {now_ns} ns of virtual time: a livelock?")]
    Steps {
        /** Seed. */
        seed: u64,
        /** The budget. */
        steps: u64,
        /** Virtual time. */
        now_ns: u64,
    },
    /// A task panicked.
    #[error("seed {seed}: a task panicked at {now_ns} ns of virtual time: {message}")]
    Panic {
        /** Seed. */
        seed: u64,
        /** Virtual time. */
        now_ns: u64,
        /** What it said. */
        message: String,
    },
}

/// A simulated world.
pub struct Sim {
    _p: (),
}
#[allow(unused_variables, missing_docs, clippy::unimplemented, clippy::unused_async)]
impl Sim {
    pub fn new(seed: u64) -> Sim {
        unimplemented!()
    }
    pub fn node<F, Fut>(&self, name: &str, shards: u16, main: F) -> NodeId
    where
        F: Fn(Shard) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        unimplemented!()
    }
    pub fn run(&self, until: impl FnMut() -> bool, limit: Duration) -> Result<(), SimStuck> {
        unimplemented!()
    }
    pub fn trace_hash(&self) -> u64 {
        unimplemented!()
    }
    pub fn kill(&self, node: NodeId) {
        unimplemented!()
    }
    pub fn now_ns(&self) -> u64 {
        unimplemented!()
    }
    pub fn set_step_budget(&self, steps: u64) {
        unimplemented!()
    }
}
