//! The `carmine` binary: flags become a plan, a plan becomes processes. The work is done in the crates below it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "commands run outside the reactors: they deal in terminals, files and processes"
)]

use std::process::ExitCode;

mod cmd;
mod progress;

fn main() -> ExitCode {
    carmine_daemon::main(|cli: cmd::Cli| cmd::run(cli.command))
}
