//! Whether the instrument tells the truth: faults that are put in on purpose must be named, equal arms must not be called
//! different, and a small slowdown must be found. `scripts/truth` runs all of it; the tests run a short form.

mod fault;
mod pairs;
mod score;
mod setup;

pub use fault::{CLEAN, FAULTS, Fault, Faulty, Seen};
pub use pairs::{Arm, Experiment, any_different, row};
pub use score::{Score, Truth};
