//! `carmine store`: the object store alone: measured, looked at, checked, moved.

mod bench;
mod df;
mod dump;
mod expand;
mod fsck;
mod migrate_db;
mod migrate_wal;
mod show_label;
mod tool;

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
    Bench(Box<bench::StoreBenchArgs>),
    /// Show who the device of an OSD that does not run belongs to, and the drives of its parts
    ShowLabel(tool::WhichArgs),
    /// Show how full the store of an OSD that does not run is
    Df(tool::WhichArgs),
    /// Check the store of an OSD that does not run; exits with 1 if something is wrong
    Fsck(fsck::FsckArgs),
    /// Print the PGs and objects in the store of an OSD that does not run, and where on the device they are
    Dump(tool::WhichArgs),
    /// Move the RocksDB of an OSD that does not run to another folder
    MigrateDb(migrate_db::MigrateDbArgs),
    /// Give the log of an OSD that does not run a device or file of its own (as bluefs-bdev-new-wal)
    NewWal(migrate_wal::NewWalArgs),
    /// Move the log of an OSD that does not run from its own device to another one, or beside the data (as bluefs-bdev-migrate)
    MigrateWal(migrate_wal::MigrateWalArgs),
    /// Use the devices of an OSD that does not run whole, after they have grown (as bluefs-bdev-expand)
    Expand(tool::WhichArgs),
}

pub(crate) fn run(args: StoreArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        StoreCommand::Bench(args) => bench::run(&args),
        StoreCommand::ShowLabel(args) => show_label::run(&args),
        StoreCommand::Df(args) => df::run(&args),
        StoreCommand::Fsck(args) => fsck::run(&args),
        StoreCommand::Dump(args) => dump::run(&args),
        StoreCommand::MigrateDb(args) => migrate_db::run(&args),
        StoreCommand::NewWal(args) => migrate_wal::new(&args),
        StoreCommand::MigrateWal(args) => migrate_wal::migrate(&args),
        StoreCommand::Expand(args) => expand::run(&args),
    }
}
