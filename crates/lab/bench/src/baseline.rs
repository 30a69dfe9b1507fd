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
    let row = |name: &str, iops: f64, bw_bytes: f64, mean_ns: f64, p99_ns: u64, note: &str| {
        format!(
            "{name:<10} {iops:>10.0} {:>9.1} {:>9.1} {:>9.1}  {note}\n",
            bw_bytes / 1e6,
            mean_ns / 1e3,
            p99_ns as f64 / 1e3
        )
    };
    let mut text = format!(
        "{}\n{:<10} {:>10} {:>9} {:>9} {:>9}\n",
        spec.summary(),
        "raw",
        "IOPS",
        "MB/s",
        "mean us",
        "p99 us"
    );
    if let Some(d) = &baseline.device {
        let note = format!("{}, flush mode {}", d.drive, d.flush_mode);
        text.push_str(&row("device", d.iops, d.bw_bytes, d.mean_ns, d.p99_ns, &note));
    }
    if let Some(m) = &baseline.messenger {
        text.push_str(&row(
            "messenger",
            m.iops,
            m.bw_bytes,
            m.mean_ns,
            m.p99_ns,
            "one connection on loopback",
        ));
    }
    text
}
