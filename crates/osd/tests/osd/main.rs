//! Whole OSDs in the simulator: real messenger, real client, real stores; the monitor is the test's own.

mod basics;
mod cluster;
mod mon;
mod raw;
mod resend;
mod skipped;
