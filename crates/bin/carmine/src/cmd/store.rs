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
    /// Load a bare store, to measure its cost without OSD, messenger and network
    Bench(Box<bench::StoreBenchArgs>),
    /// Show which OSD and cluster a device belongs to, and the drives of the parts
    ShowLabel(tool::WhichArgs),
    /// Show how full a store is
    Df(tool::WhichArgs),
    /// Check a store; the exit code is 1 if something is wrong
    Fsck(fsck::FsckArgs),
    /// Print the PGs and objects in a store, and where they are on the device
    Dump(tool::WhichArgs),
    /// Move the RocksDB to another folder
    MigrateDb(migrate_db::MigrateDbArgs),
    /// Give the log a device or file of its own (like bluefs-bdev-new-wal)
    NewWal(migrate_wal::NewWalArgs),
    /// Move the log from its own device to another one, or beside the data (like bluefs-bdev-migrate)
    MigrateWal(migrate_wal::MigrateWalArgs),
    /// Use all of the devices after they have grown (like bluefs-bdev-expand)
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
