//! What of this machine's settings would spoil a measurement. Reads, and changes nothing.
//!
//! [`examine`] looks at `/sys` and `/proc` below a root folder (so that captured trees of other machines can be looked at,
//! too) and returns a [`Finding`] for each topic: what is, what is better, what the difference is known to cost and who
//! measured it, and the command that changes it. A thing that the machine does not have is said to be absent, not to be
//! in order. One file per topic, in `topics/`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "reads kernel files outside of any reactor, before or after a measurement"
)]

mod finding;
mod host;
mod machine;
mod options;
mod source;
#[cfg(test)]
mod testing;
mod topics;

pub use finding::{Finding, Severity};
pub use options::{Build, Options, Place};

use machine::Machine;

/// Looks at everything. Files that cannot be read make their topic absent; nothing fails.
pub fn examine(options: &Options) -> Vec<Finding> {
    let machine = Machine::look(options);
    topics::ALL.iter().flat_map(|topic| topic(&machine)).collect()
}
