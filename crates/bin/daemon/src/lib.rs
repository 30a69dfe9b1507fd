//! Shared by the programs `carmine`, `carmine-osd` and `carmine-mon`: how they begin and end, their allocator, logs and
//! signals, and what their build knows.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "programs run outside the reactors: they deal in terminals, files and processes"
)]

use std::process::ExitCode;

use carmine_reactor::{Counting, Mimalloc, keep_freed_memory};
use carmine_testbed::output;
use clap::Parser;

pub mod build;
pub mod logging;
pub mod machine;
pub mod signals;

/// See [`build::ALLOCATOR`].
#[global_allocator]
static ALLOCATOR: Counting<Mimalloc> = Counting(Mimalloc);

/// Reads the command line, runs the program and prints how it failed, if it did.
///
/// Exit codes: 0 done, 1 it failed, 2 the command line cannot be followed, 3 done in part (some OSDs of a testbed do not run).
pub fn main<C: Parser>(run: impl FnOnce(C) -> anyhow::Result<ExitCode>) -> ExitCode {
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    keep_freed_memory();
    match run(cli) {
        Ok(code) => code,
        Err(e) if output::is_broken_pipe(&*e) => ExitCode::SUCCESS,
        Err(e) => {
            output::note(&format!("error: {}", output::chain(&*e)));
            ExitCode::from(output::exit_code(&*e))
        }
    }
}

/// Logs how a daemon ended; its exit code.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(e) => {
            tracing::error!("{}", output::chain(&*e));
            ExitCode::FAILURE
        }
    }
}
