//! The commands, one module each.

use std::process::ExitCode;

use carmine_daemon::signals::cancel_flag;

use crate::args::Command;

mod admin;
pub(crate) mod compare;
pub(crate) mod doctor;
mod down;
mod osdmap;
pub(crate) mod peer;
mod plan;
pub(crate) mod report;
mod restart;
mod status;
pub(crate) mod store;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod up;
mod version;

/// Runs a command; the exit code is its own, errors are printed by the caller.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(args) => up::run(args),
        Command::Status(args) => status::run(&args),
        Command::Restart(args) => restart::run(&args),
        Command::Down(args) => down::down(&args),
        Command::Destroy(args) => down::destroy(&args),
        Command::Baseline(args) => carmine_bench::baseline::run(&args, &*cancel_flag()?),
        Command::Bench(args) => carmine_bench::bench::run(args, &*cancel_flag()?, doctor::findings_of),
        Command::Store(args) => store::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Table(args) => table::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Peer(args) => peer::run(&args),
        Command::Top(args) => carmine_bench::top::run(&args, &*cancel_flag()?),
        Command::Plan(args) => plan::run(args),
        Command::Osdmap(args) => osdmap::run(&args),
        Command::Version(args) => version::run(&args),
        Command::Admin(args) => admin::run(&args),
    }
}
