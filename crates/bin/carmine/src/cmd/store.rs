//! `carmine store`: the object store alone: measured, looked at, checked, moved.

mod bench;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use carmine_bench::sample::device_of;
use carmine_load::parse_bytes;
use carmine_osd_daemon::store::{fill, lock_slice, open_kv, places};
use carmine_reactor::{Config, PollPolicy, Shard, block_on};
use carmine_store::blue::{
    self, Dumped, FsckReport, MountOptions, NewLog, Place, Places, expand, move_log, repair,
};
use carmine_store::{BlueShared, Kv, Label, StoreError};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::print;
use carmine_testbed::process::ProcessId;
use carmine_testbed::spec::DirArgs;
use carmine_testbed::{BedKind, Daemon, Layout, Testbed, link, migrate_db, remove_old_wal, settle_wal};
use carmine_types::{OsdId, StoreKind};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::cmd::code;

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
    ShowLabel(WhichArgs),
    /// Show how full a store is
    Df(WhichArgs),
    /// Check a store; the exit code is 1 if something is wrong
    Fsck(FsckArgs),
    /// Print the PGs and objects in a store, and where they are on the device
    Dump(WhichArgs),
    /// Move the RocksDB to another folder
    MigrateDb(MigrateDbArgs),
    /// Give the log a device or file of its own (like bluefs-bdev-new-wal)
    NewWal(NewWalArgs),
    /// Move the log from its own device to another one, or beside the data (like bluefs-bdev-migrate)
    MigrateWal(MigrateWalArgs),
    /// Use all of the devices after they have grown (like bluefs-bdev-expand)
    Expand(WhichArgs),
}

pub(crate) fn run(args: StoreArgs) -> Result<ExitCode> {
    match args.command {
        StoreCommand::Bench(args) => bench::run(&args),
        StoreCommand::ShowLabel(args) => show_label(&args),
        StoreCommand::Df(args) => df(&args),
        StoreCommand::Fsck(args) => fsck(&args),
        StoreCommand::Dump(args) => dump(&args),
        StoreCommand::MigrateDb(args) => migrate_database(&args),
        StoreCommand::NewWal(args) => new_wal(&args),
        StoreCommand::MigrateWal(args) => migrate_wal(&args),
        StoreCommand::Expand(args) => grow(&args),
    }
}

/// Which store.
#[derive(Args)]
struct WhichArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Number of the OSD
    #[arg(long, value_name = "N", default_value_t = 0)]
    osd: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
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
        let testbed = Testbed::open_existing(BedKind::Testbed, Layout::new(&args.dir.dir)?)?;
        let (osd, plan) = (OsdId(args.osd), testbed.plan());
        if osd.0 >= plan.osds() {
            bail!(Usage(format!("--osd {}: this testbed has {}", osd.0, plan.osds())));
        }
        if plan.store != StoreKind::Blue {
            let why = "which keeps nothing: there is nothing to look at";
            bail!(Usage(format!("the OSDs have the store {}, {why}", plan.store)));
        }
        if ProcessId::running(testbed.layout(), Daemon::Osd(osd))?.is_some() {
            let dir = testbed.layout().dir().display();
            bail!(Usage(format!("{osd} runs: stop it with `carmine down --dir {dir}` first")));
        }
        Ok(Tool { testbed, osd, json: args.json })
    }

    /// Prints what was found or done, as JSON or as lines `NAME: VALUE`.
    fn show(&self, value: &Value) -> Result<ExitCode> {
        super::print_as(self.json, value, || lines(value).iter().map(|line| format!("{line}\n")).collect())
    }

    /// Where its data lies, and its log may lie.
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

/// A value for people: `NAME: VALUE` of each field, with the path of one that lies deeper as its name.
fn lines(value: &Value) -> Vec<String> {
    let line = |(name, value): (&String, &Value)| match value {
        Value::Object(_) => lines(value).iter().map(|line| format!("{name} {line}")).collect(),
        Value::String(text) => vec![format!("{name}: {text}")],
        value => vec![format!("{name}: {value}")],
    };
    value.as_object().into_iter().flatten().flat_map(line).collect()
}

// Looking at a store: its labels, how full it is, everything in it, and whether it is sound.

/// 0: both labels are good and equal; 1: not so.
fn show_label(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let places = tool.places();
    let (place, path) = (places.block.clone(), places.block.path.clone());
    let labels = tool.on_reactor(async |shard| Ok(blue::labels(&shard, place).await?))?;
    let good = matches!((&labels.first, &labels.copy), (Ok(first), Ok(copy)) if first == copy);
    let db = tool.db();
    let has_wal = labels.any().is_ok_and(|label| label.wal_bytes().is_some());
    let wal = places.wal.first().filter(|_| has_wal).map(|place| place.path.clone());
    let log = wal.unwrap_or_else(|| path.clone());
    tool.show(&json!({
        "path": path, "drive": Tool::drive(&path), "db": db, "db_drive": Tool::drive(&db),
        "wal": log, "wal_drive": Tool::drive(&log), "dedicated_wal": has_wal,
        "label": label_json(&labels.first), "copy": label_json(&labels.copy),
    }))?;
    Ok(code(good))
}

fn label_json(label: &Result<Label, StoreError>) -> Value {
    match label {
        Ok(label) => json!({
            "fsid": label.fsid.to_string(), "osd": label.osd.0, "size": label.size_bytes,
            "generation": format!("{:016x}", label.generation), "wal_size": label.wal_bytes(),
        }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// How full a store is.
fn df(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let kv = tool.kv()?;
    let (space, wal, log_bytes) = tool.on_reactor(async |shard| {
        let shared = tool.mount(&shard, kv).await?;
        let log = shared.label().log_range();
        Ok((shared.statfs(), shared.wal().map(|place| place.path.clone()), log.end - log.start))
    })?;
    let (block, db) = (tool.places().block.path, tool.db());
    let log = wal.as_ref().unwrap_or(&block);
    tool.show(&json!({
        "osd": tool.osd.0,
        "block": { "path": block, "drive": Tool::drive(&block),
            "total": space.total, "used": space.used, "available": space.free },
        "db": { "path": db, "drive": Tool::drive(&db), "used": folder_bytes(&db) },
        "wal": { "path": log, "drive": Tool::drive(log), "dedicated": wal.is_some(), "total": log_bytes },
    }))
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok()).filter(std::fs::Metadata::is_file);
    files.map(|file| file.len()).sum()
}

/// Everything in a store, a line (or a line of JSON) each. 0: all of it could be read; 1: something is damaged.
fn dump(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let kv = tool.kv()?;
    // Mounted, so that what lies in its logs is there too.
    tool.on_reactor(async |shard| tool.mount(&shard, Arc::clone(&kv)).await.map(drop))?;
    let (mut damaged, mut printed) = (0u64, Ok(()));
    blue::dump(&*kv, &mut |item| {
        damaged += u64::from(matches!(item, Dumped::Damaged(_)));
        let item = item_json(&item);
        let line = if tool.json { item.to_string() } else { lines(&item).join(", ") };
        if printed.is_ok() {
            printed = print(&(line + "\n"));
        }
    })?;
    printed?;
    Ok(code(damaged == 0))
}

fn item_json(item: &Dumped) -> Value {
    match item {
        Dumped::Pg { pg, log_entries } => json!({ "pg": pg.to_string(), "log_entries": log_entries }),
        Dumped::Object { oid, meta, extents } => json!({
            "object": oid.to_string(), "size": meta.size, "version": meta.version.to_string(),
            "extents": extents.iter().map(|e| json!([e.offset, e.device_offset, e.len])).collect::<Vec<_>>(),
        }),
        Dumped::Damaged(error) => json!({ "damaged": error.to_string() }),
    }
}

/// Options of `carmine store fsck`.
#[derive(Args)]
struct FsckArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Also read all data and verify its checksums
    #[arg(long)]
    deep: bool,
    /// First repair what needs no other copy: labels, and block maps without an object
    #[arg(long)]
    repair: bool,
}

/// 0: nothing is wrong (any more); 1: something is.
fn fsck(args: &FsckArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    let kv = tool.kv()?;
    let (repaired, report) = tool.on_reactor(async |shard| {
        let repaired =
            if args.repair { repair(&shard, tool.places(), Arc::clone(&kv)).await? } else { Vec::new() };
        let report = match tool.mount(&shard, kv).await {
            Ok(shared) => blue::fsck(&shared, &shard, args.deep).await?,
            // It cannot be mounted: the reason is the error.
            Err(error) => FsckReport {
                error_count: 1,
                errors: vec![format!("cannot be mounted: {error}")],
                ..FsckReport::default()
            },
        };
        Ok((repaired, report))
    })?;
    tool.show(&json!({
        "objects": report.objects, "blocks": report.blocks, "extents": report.extents,
        "blocks_read": report.blocks_read, "log_entries": report.log_entries,
        "repaired": repaired, "error_count": report.error_count, "errors": report.errors,
        "result": if report.is_clean() { "fsck success" } else { "fsck found errors" },
    }))?;
    Ok(code(report.is_clean()))
}

// Other places for the parts of a store: its log, its RocksDB, devices that have grown.

/// Uses devices and files whole that have grown.
fn grow(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let kv = tool.kv()?;
    let expanded = tool.on_reactor(async |shard| Ok(expand(&shard, tool.places(), kv).await?))?;
    let grown = |(from, to): (u64, u64)| json!({ "from": from, "to": to });
    let mut parts = Map::from_iter([("block".to_owned(), grown(expanded.block))]);
    parts.extend(expanded.wal.map(|bytes| ("wal".to_owned(), grown(bytes))));
    tool.show(&parts.into())
}

/// Options of `carmine store migrate-db`.
#[derive(Args)]
struct MigrateDbArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Its new folder, which must be empty or absent
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

fn migrate_database(args: &MigrateDbArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    // Opened and closed: so it is known to be whole, and that no process has it.
    drop(tool.kv()?);
    let moved = migrate_db(tool.testbed.layout(), tool.osd, &std::path::absolute(&args.to)?)?;
    tool.show(&json!({
        "from": moved.from, "to": moved.to, "drive": Tool::drive(&moved.to),
        "files": moved.files, "bytes": moved.bytes,
    }))
}

/// Where a log is to lie.
#[derive(Args)]
struct TargetArgs {
    /// How much of it to use, such as 1G [default: all of a device; a file gets the size of the log beside the data]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// Overwrite it if it is not blank
    #[arg(long)]
    force: bool,
}

/// Options of `carmine store new-wal`.
#[derive(Args)]
struct NewWalArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// A block device, or a file, which is created if it is absent
    #[arg(long, value_name = "PATH")]
    dev: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
}

/// Options of `carmine store migrate-wal`.
#[derive(Args)]
struct MigrateWalArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// A block device, or a file, which is created if it is absent [default: beside the data]
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
}

fn new_wal(args: &NewWalArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    if let Some(path) = settled(&tool)? {
        let path = path.display();
        return Err(Usage(format!("the log of {} lies on {path} already: take migrate-wal", tool.osd)).into());
    }
    move_wal(&tool, Some(&args.dev), &args.target)
}

fn migrate_wal(args: &MigrateWalArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    if settled(&tool)?.is_none() {
        return Err(Usage(format!("the log of {} lies beside its data: take new-wal", tool.osd)).into());
    }
    move_wal(&tool, args.to.as_deref(), &args.target)
}

/// The device of the log's own. A move that was cut short is settled.
fn settled(tool: &Tool) -> anyhow::Result<Option<PathBuf>> {
    let kv = tool.kv()?;
    let used = tool.on_reactor(async |shard| {
        let shared = tool.mount(&shard, kv).await?;
        Ok(shared.wal().map(|place| place.path.clone()))
    })?;
    settle_wal(tool.testbed.layout(), tool.osd, used.as_deref())?;
    Ok(used)
}

fn move_wal(tool: &Tool, to: Option<&Path>, target: &TargetArgs) -> anyhow::Result<ExitCode> {
    let kv = tool.kv()?;
    let layout = tool.testbed.layout();
    let places = tool.places();
    let before = places.wal.first().map(|place| place.path.clone());
    let new = to.map(|to| new_log(tool, to, target)).transpose()?;
    if let Some(new) = &new {
        // A crash while it moves leaves both links, and the store knows which one counts.
        link(&new.place.path, &layout.wal_new(tool.osd))?;
    }
    let moved = tool.on_reactor(async |shard| Ok(move_log(&shard, places, kv, new).await?));
    // It failed before or after the store took the new place. If that cannot be found out now, both links stay.
    let moved = moved.inspect_err(|_| _ = settled(tool))?;
    let used = moved.to.as_ref().map(|place| place.path.canonicalize()).transpose()?;
    settle_wal(layout, tool.osd, used.as_deref())?;
    before.as_deref().map(remove_old_wal).transpose()?;
    let block = tool.places().block.path;
    let path = |place: Option<Place>| place.map_or_else(|| block.clone(), |place| place.path);
    let (from, to) = (path(moved.from), path(moved.to));
    tool.show(&json!({ "from": from, "to": to, "drive": Tool::drive(&to), "bytes": moved.log_bytes }))
}

fn new_log(tool: &Tool, to: &Path, target: &TargetArgs) -> anyhow::Result<NewLog> {
    let path = std::path::absolute(to)?;
    let place = Place::from(&path.canonicalize().unwrap_or(path));
    let fill = fill(tool.testbed.plan());
    Ok(NewLog { place, size_bytes: target.size, fill, force: target.force })
}
