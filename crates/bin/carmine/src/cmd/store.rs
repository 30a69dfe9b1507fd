//! `carmine store` works on the object store alone: it measures, shows, checks and moves it.

mod look;
mod place;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use carmine_bench::sample::device_of;
use carmine_osd_daemon::store::{lock_slice, open_kv, places};
use carmine_reactor::{Config, PollPolicy, Shard, block_on};
use carmine_store::blue::{MountOptions, Places};
use carmine_store::{BlueShared, Kv};
use carmine_testbed::{Daemon, ProcessId, Testbed, refuse};
use carmine_types::{OsdId, StoreKind};
use clap::{Args, Subcommand};
use serde_json::Value;

use super::testbed::BedArgs;

/// Options of `carmine store`.
#[derive(Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Load a bare store, to measure its cost without OSD, messenger and network
    Bench(Box<carmine_store_bench::StoreBenchArgs>),
    /// Show which OSD and cluster a device belongs to, and the drives of the parts
    ShowLabel(WhichArgs),
    /// Show how full a store is
    Df(WhichArgs),
    /// Check a store; the exit code is 1 if something is wrong
    Fsck(look::FsckArgs),
    /// Print the PGs and objects in a store, and where they are on the device
    Dump(WhichArgs),
    /// Move the RocksDB to another folder
    MigrateDb(place::MigrateDbArgs),
    /// Give the log a device or file of its own (like bluefs-bdev-new-wal)
    NewWal(place::NewWalArgs),
    /// Move the log from its own device to another one, or beside the data (like bluefs-bdev-migrate)
    MigrateWal(place::MigrateWalArgs),
    /// Use all of the devices after they have grown (like bluefs-bdev-expand)
    Expand(WhichArgs),
}

pub(crate) fn run(args: StoreArgs) -> Result<ExitCode> {
    match args.command {
        StoreCommand::Bench(args) => carmine_store_bench::run(&args),
        StoreCommand::ShowLabel(args) => look::show_label(&args),
        StoreCommand::Df(args) => look::df(&args),
        StoreCommand::Fsck(args) => look::fsck(&args),
        StoreCommand::Dump(args) => look::dump(&args),
        StoreCommand::MigrateDb(args) => place::migrate_database(&args),
        StoreCommand::NewWal(args) => place::new_wal(&args),
        StoreCommand::MigrateWal(args) => place::migrate_wal(&args),
        StoreCommand::Expand(args) => place::grow(&args),
    }
}

/// Which store.
#[derive(Args)]
struct WhichArgs {
    #[command(flatten)]
    bed: BedArgs,
    /// Number of the OSD
    #[arg(long, value_name = "N", default_value_t = 0)]
    osd: u32,
}

/// An OSD's store, which nobody else uses as long as this is held.
struct Tool {
    testbed: Testbed,
    osd: OsdId,
    json: bool,
}

impl Tool {
    /// Finds the store of an OSD that does not run.
    fn open(args: &WhichArgs) -> Result<Tool> {
        let testbed = args.bed.open()?;
        let (osd, plan) = (OsdId(args.osd), testbed.plan());
        plan.require_osd(osd)?;
        let (store, dir, why) = (plan.store, testbed.layout().dir().display(), "there is nothing to look at");
        refuse!(store != StoreKind::Blue, "the OSDs have the store {store}, which keeps nothing: {why}");
        let runs = ProcessId::running(testbed.layout(), Daemon::Osd(osd))?.is_some();
        refuse!(runs, "{osd} is running: stop it with `carmine down --dir {dir}` first");
        Ok(Tool { testbed, osd, json: args.bed.json })
    }

    /// Prints what was found or done, as JSON or as lines `NAME: VALUE`.
    fn show(&self, value: &Value) -> Result<ExitCode> {
        super::print_as(self.json, value, || lines(value).iter().map(|line| format!("{line}\n")).collect())
    }

    /// Where its data lies, and where its log may lie.
    fn places(&self) -> Places {
        places(self.testbed.layout(), self.testbed.plan(), self.osd)
    }

    /// Its RocksDB.
    fn kv(&self) -> Result<Arc<dyn Kv>> {
        let kv = open_kv(self.testbed.layout(), self.testbed.plan(), self.osd)?;
        kv.ok_or_else(|| anyhow!("the store of {} has no database", self.osd))
    }

    /// Runs `work` on a reactor, with the store's slice locked.
    fn on_reactor<R>(&self, work: impl AsyncFnOnce(Shard) -> Result<R>) -> Result<R> {
        let _slice = lock_slice(self.testbed.layout(), self.testbed.plan(), self.osd)?;
        let config = Config { name: "store".into(), poll: PollPolicy::Sleep, ..Config::default() };
        block_on(config, work).context("cannot start a reactor")?
    }

    /// Mounts the store.
    async fn mount(&self, shard: &Shard, kv: Arc<dyn Kv>) -> Result<Arc<BlueShared>> {
        Ok(BlueShared::mount(shard, self.places(), kv, MountOptions::default()).await?)
    }

    /// The name of the drive under a path.
    fn drive(path: &Path) -> String {
        device_of(path).unwrap_or_else(|| "unknown".to_owned())
    }

    /// The folder of its RocksDB, behind all links.
    fn db(&self) -> PathBuf {
        carmine_testbed::db_place(self.testbed.layout(), self.osd)
    }
}

/// A value in readable form: `NAME: VALUE` of each field; nested fields are named by their path.
fn lines(value: &Value) -> Vec<String> {
    let line = |(name, value): (&String, &Value)| match value {
        Value::Object(_) => lines(value).iter().map(|line| format!("{name} {line}")).collect(),
        Value::String(text) => vec![format!("{name}: {text}")],
        value => vec![format!("{name}: {value}")],
    };
    value.as_object().into_iter().flatten().flat_map(line).collect()
}
