//! Waiting for each other within one shard: no locks, no atomics, not `Send`.

mod notify;
pub mod oneshot;
mod semaphore;

pub use notify::Notify;
pub use semaphore::{Acquire, Permit, Semaphore};
