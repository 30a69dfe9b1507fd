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
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(text) = cmd::of_words(&args) {
        // The reader may have stopped before the end.
        let _ = carmine_testbed::output::print(&text);
        return ExitCode::SUCCESS;
    }
    carmine_daemon::main(|cli: cmd::Cli| cmd::run(cli.command))
}
