//! `carmine baseline`: what the drive and the messenger do without an OSD. A result says which part of that it reached.

mod args;
mod device;
mod echo;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use crate::archive::write_json;
use carmine_load::LoadSpec;
use carmine_load::baseline::Baseline;
use carmine_reactor::{Config, PollPolicy};
use carmine_testbed::{Layout, require_plan};
use carmine_types::StoreKind;

pub use args::BaselineArgs;

use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{note, print};

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
