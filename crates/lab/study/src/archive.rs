//! The archive of a run: the shapes of ARCHIVE.md as types, readers that never panic, writers that leave a file whole or
//! absent.

mod config;
mod dat;
mod error;
mod files;
mod point;
mod read;
mod result;
mod run;
mod state;
mod stem;
mod write;

pub use carmine_load::baseline::{Baseline, DeviceBaseline, MessengerBaseline};
pub use carmine_load::samples::{CoresUsed, CpuSamples, Instrument, NvmeSamples, Samples, ThreadSamples};
pub use config::Config;
pub use dat::dat_table;
pub use error::ArchiveError;
pub use files::write_whole;
pub use point::{Point, PointKind, PointsFile};
pub use read::Run;
pub use result::{
    CarmineResult, CpuSeconds, Direction, Job, LatencyHistograms, LatencyNs, OsdResult, PerCore, PointResult,
};
pub use run::{Build, Chart, Comparison, RUN_FORMAT, RunFile};
pub use state::{PointState, State};
pub use stem::{stem, stem_word};
pub use write::RunWriter;
