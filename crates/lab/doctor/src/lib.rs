//! Finds the settings of this machine that would spoil a measurement. It only reads, and changes nothing.
//!
//! [`examine`] looks at `/sys` and `/proc` below a root folder (so that captured trees of other machines can be looked at,
//! too) and returns a [`Finding`] for each topic: the present state, a better one, what the difference is known to cost and
//! who measured it, and the command that changes it. A thing that the machine does not have is said to be absent, not to be
//! in order. The topics stand in one table, `topics.rs`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "reads kernel files outside of any reactor, before or after a measurement"
)]

mod cpu_times;
mod finding;
mod machine;
#[cfg(test)]
mod testing;
mod topics;

pub use cpu_times::CpuTimes;
pub use finding::{Finding, Severity};
pub use machine::{Build, NeededSpace, Options};
pub use topics::examine;
