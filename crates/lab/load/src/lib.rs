//! The load generator: fio's words, RADOS objects. Generic over its [`Target`]; takes time, tasks and buffers from the
//! reactor, and starts, reads and writes nothing else: threads, files and `/proc` are the controller's (`cli`, `testbed`).
//!
//! A load is a [`LoadSpec`]; a [`Session`] holds what its controller and its jobs share; each job is a task,
//! [`run_job`]. The controller moves the phases on (and reads the kernel's accounting at both ends of the window), and
//! [`report`] makes figures of it all.

pub mod baseline;
mod bssplit;
mod distribution;
pub mod drive;
mod fio_json;
pub mod hosted;
pub mod hosts;
mod job;
mod ledger;
pub mod origin;
mod pattern;
mod popularity;
mod prefill;
pub mod profile;
pub mod report;
mod result;
pub mod samples;
mod session;
mod spec;
pub mod stages;
mod target;
pub mod verdict;
mod verify;
pub mod window;
pub mod words;

pub use bssplit::BlockSplit;
pub use carmine_client::RouteMode as Route;
pub use distribution::{Distribution, Zone};
pub use job::{JobSetup, object_name, run_job};
pub use ledger::VerifyState;
pub use pattern::Geometry;
pub use result::{ClientClocks, DirStats, JobResult, SAMPLE_NS, Seconds, VerifyCounts};
pub use session::{BenchAction, BenchHost, BenchStatus, Control, Phase, Progress, Session};
pub use spec::{Arrivals, LoadSpec, Prefill, Rw, parse_bytes, parse_millis, show_bytes};
pub use target::{DeviceTarget, Target, TargetError, run_cluster_job, run_dealt_job};
