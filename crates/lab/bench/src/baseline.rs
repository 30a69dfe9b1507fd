//! `carmine baseline`: what the drive and the messenger do without an OSD. A result says which part of that it reached.

mod device;
mod echo;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use carmine_load::baseline::Baseline;
use carmine_load::{LoadSpec, Rw, parse_bytes, parse_millis};
use carmine_reactor::{Config, PollPolicy};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{note, print};
use carmine_testbed::spec::DirArgs;
use carmine_testbed::{Layout, require_plan, write_json};
use carmine_types::StoreKind;
use clap::Args;

/// Options of the baseline, as those of `bench`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: 0 measured; 1 it failed or was interrupted; 2 it cannot be measured as asked."
)]
pub struct BaselineArgs {
    /// Folder of the testbed; it may run (idle) or be stopped. Its data is not touched: files are measured by a scratch file
    /// beside them that is removed afterwards, devices are only read
    #[command(flatten)]
    dir: DirArgs,
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
    json: Option<PathBuf>,
}

impl BaselineArgs {
    fn spec(&self) -> LoadSpec {
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

/// Measures the drive and the messenger without an OSD. `cancel` ends it early.
///
/// # Errors
/// It cannot be measured as asked, failed, or was interrupted.
pub fn run(args: &BaselineArgs, cancel: &AtomicBool) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let plan = require_plan(&layout)?;
    let spec = args.spec();
    spec.check().map_err(|e| Usage(e.to_string()))?;
    let device = match plan.store {
        StoreKind::Blue => device::measure(&layout, &plan, &spec, cancel)?,
        StoreKind::Cyan | StoreKind::Null => {
            note(&format!(
                "the store {} keeps nothing on a device: only the messenger is measured",
                plan.store
            ));
            None
        }
    };
    let messenger = Some(echo::measure(&plan, &spec, cancel)?);
    let baseline = Baseline { device, messenger };
    print(&table(&spec, &baseline))?;
    if let Some(path) = &args.json {
        write_json(path, &baseline)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reactors of a raw load: nothing in it blocks.
fn raw_config(poll: PollPolicy) -> Config {
    Config { name: "raw".into(), poll, alien_threads: 0, ..Config::default() }
}

fn table(spec: &LoadSpec, baseline: &Baseline) -> String {
    let mut text = format!(
        "{}\n{:<10} {:>10} {:>9} {:>9} {:>9}\n",
        spec.summary(),
        "raw",
        "IOPS",
        "MB/s",
        "mean us",
        "p99 us"
    );
    for (name, raw) in [("device", &baseline.device), ("messenger", &baseline.messenger)] {
        let Some(raw) = raw else { continue };
        let (mb, mean_us, p99_us) = (raw.bw_bytes / 1e6, raw.mean_ns / 1e3, raw.p99_ns as f64 / 1e3);
        let note = format!("{}, flush mode {}", raw.drive, raw.flush_mode);
        text += &format!("{name:<10} {:>10.0} {mb:>9.1} {mean_us:>9.1} {p99_us:>9.1}  {note}\n", raw.iops);
    }
    text
}
