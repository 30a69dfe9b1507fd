//! `carmine store`: the object store alone, without an OSD.

mod bench;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Options of `carmine store`.
#[derive(Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Load a bare store: what it costs without an OSD, a messenger or a network
    Bench(bench::StoreBenchArgs),
}

pub(crate) fn run(args: StoreArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        StoreCommand::Bench(args) => bench::run(&args),
    }
}
