//! `carmine doctor`: what of this machine, and of a testbed on it, would spoil a measurement. Changes nothing.

mod show;
mod testbed;

use std::path::PathBuf;
use std::process::ExitCode;

use carmine_doctor::{Build, Finding, Options, examine};
use carmine_testbed::{Layout, load_plan};
use clap::Args;

use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{json_text, print};

pub(crate) use testbed::findings_of;

#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Folder of a testbed: also look at its CPUs, drives and options [default: carmine-testbed if that is one]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The folder that is looked at when none is named.
const DEFAULT_DIR: &str = "carmine-testbed";

/// 0 whatever was found: a finding is no failure.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let findings = examine(&options(args)?);
    if args.json {
        print(&json_text(&findings)?)?;
    } else {
        print(&show::render(&findings))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn options(args: &DoctorArgs) -> anyhow::Result<Options> {
    let layout = Layout::new(args.dir.as_deref().unwrap_or(DEFAULT_DIR.as_ref()))?;
    match load_plan(&layout)? {
        Some(plan) => Ok(testbed::options(&layout, &plan)),
        None if args.dir.is_some() => {
            Err(Usage(format!("there is no testbed in {}", layout.dir().display())).into())
        }
        None => Ok(Options { build: Some(build()), ..Options::default() }),
    }
}

/// Findings about the machine alone.
pub(crate) fn findings_of_machine() -> Vec<Finding> {
    examine(&Options { build: Some(build()), ..Options::default() })
}

/// What `build.rs` noted.
fn build() -> Build {
    Build {
        profile: carmine_daemon::build::PROFILE.to_owned(),
        assertions: cfg!(debug_assertions),
        rocksdb: cfg!(feature = "rocks").then(|| carmine_daemon::build::ROCKSDB.to_owned()),
        rocksdb_flags: carmine_daemon::build::CXXFLAGS.to_owned(),
        allocator: carmine_daemon::build::ALLOCATOR.to_owned(),
    }
}
