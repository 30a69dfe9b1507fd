//! Measuring a testbed: samples of its processes and of the machine, flamegraphs of its OSDs, results on disk.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the controller runs outside the reactors: it deals in files, processes and wall-clock limits"
)]

pub mod archive;
pub mod profile;
pub mod sample;

pub use archive::archive;

/// An error that another option would not help against.
macro_rules! failed {
    ($($t:tt)*) => { carmine_testbed::TestbedError::Failed(format!($($t)*)) };
}
pub(crate) use failed;
