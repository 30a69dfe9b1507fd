//! The `carmine` binary: flags become a plan, a plan becomes processes. The work is done in the crates below it.
//!
//! Exit codes: 0 done, 1 it failed, 2 it was asked for in a way that cannot work (as clap does).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "commands run outside the reactors: they deal in terminals, files and processes"
)]

use std::process::ExitCode;

use clap::Parser;

mod args;
mod cmd;
mod logging;
mod output;
mod progress;
mod signals;
mod tuning;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    match cmd::run(cli.command) {
        Ok(code) => code,
        Err(e) if output::is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            output::error(&e);
            ExitCode::from(output::exit_code(&e))
        }
    }
}
