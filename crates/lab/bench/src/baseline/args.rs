//! Options of `carmine baseline`.

use std::path::PathBuf;

use carmine_load::{LoadSpec, Rw, parse_bytes, parse_millis};
use clap::Args;

use carmine_testbed::spec::DirArgs;

/// Options of the baseline, as those of `bench`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: 0 measured; 1 it failed or was interrupted; 2 it cannot be measured as asked."
)]
pub struct BaselineArgs {
    /// Folder of the testbed; it may run (idle) or be stopped. Its data is not touched: files are measured by a scratch file
    /// beside them that is removed afterwards, devices are only read
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// read, write, randread, randwrite or randrw; on a device only read and randread
    #[arg(long, value_name = "WORD", default_value = "randread")]
    rw: Rw,
    /// Percentage of reads in randrw
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmixread: u8,
    /// Bytes of one operation, such as 4k or 1m
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_bytes)]
    bs: u64,
    /// Operations in flight of each of the bench's jobs
    #[arg(long, value_name = "N", default_value_t = 1)]
    iodepth: u32,
    /// Jobs of the bench: the baselines have as many operations in flight as all of them together
    #[arg(long, value_name = "N", default_value_t = 1)]
    numjobs: u32,
    /// Length of each of the two windows, such as 10 or 500ms
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = parse_millis)]
    runtime: u64,
    /// Load before each window
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_millis)]
    ramp: u64,
    /// Bytes of the scratch file, or of the device that are read
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = parse_bytes)]
    size: u64,
    /// File for the result, which `carmine bench --baseline` reads
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BaselineArgs {
    pub(crate) fn spec(&self) -> LoadSpec {
        LoadSpec {
            rw: self.rw,
            rwmixread: self.rwmixread,
            bs_bytes: self.bs,
            iodepth: self.iodepth.saturating_mul(self.numjobs),
            runtime_ms: self.runtime,
            ramp_ms: self.ramp,
            size_bytes: self.size,
            ..LoadSpec::default()
        }
    }
}
