//! Running the points: layouts are made once, OSDs restart between points, a point that fails is recorded and the next one
//! runs. What was done is known from the archive, so that a stopped sweep goes on where it was.

mod attempts;
mod baselines;
mod curve;
mod event;
mod executor;
mod layouts;
mod logs;
mod point;
mod script;
mod sweep;

pub use event::Event;
pub use executor::{End, Executor};
pub use sweep::{Ending, Job, Options, Sweep};
