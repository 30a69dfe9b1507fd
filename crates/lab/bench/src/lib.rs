//! Measuring a testbed: loads (`bench`), the drive and the messenger without an OSD (`baseline`), a view of a
//! running one (`top`); samples of processes and machine, flamegraphs, results on disk.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the controller runs outside the reactors: it deals in files, processes and wall-clock limits"
)]

pub mod baseline;
pub mod bench;
mod child;
mod cluster;
pub mod load_hosts;
pub mod measure;
pub mod profile;
pub mod sample;
pub mod steering;
pub mod top;

/// The commit of the build, as the build notes it: with `+` if files differed from it, empty if it is not known.
#[derive(Clone, Copy, Debug)]
pub struct GitHash(pub &'static str);

/// Finds settings of the machine that would spoil a measurement of this testbed.
pub type Doctor = fn(&carmine_testbed::Layout, &carmine_testbed::Plan) -> Vec<carmine_doctor::Finding>;
