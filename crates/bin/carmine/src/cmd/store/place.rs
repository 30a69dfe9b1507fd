//! Commands that move or extend the parts of a store: its log, its RocksDB, devices that have grown.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use carmine_load::parse_bytes;
use carmine_osd_daemon::store::fill;
use carmine_store::blue::{NewLog, Place, expand, move_log};
use carmine_testbed::{link, migrate_db, refuse, remove_old_wal, settle_wal, usage};
use clap::Args;
use serde_json::{Map, json};

use super::{Tool, WhichArgs};

/// Uses all of devices and files that have grown.
pub(super) fn grow(args: &WhichArgs) -> Result<ExitCode> {
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
pub(super) struct MigrateDbArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Its new folder, which must be empty or absent
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

pub(super) fn migrate_database(args: &MigrateDbArgs) -> Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    // Opening and closing it shows that it is whole, and that no process has it.
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
pub(super) struct NewWalArgs {
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
pub(super) struct MigrateWalArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// A block device, or a file, which is created if it is absent [default: beside the data]
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
}

pub(super) fn new_wal(args: &NewWalArgs) -> Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    if let Some(path) = settled(&tool)? {
        bail!(usage!("the log of {} lies on {} already: take migrate-wal", tool.osd, path.display()));
    }
    move_wal(&tool, Some(&args.dev), &args.target)
}

pub(super) fn migrate_wal(args: &MigrateWalArgs) -> Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    let is_beside = settled(&tool)?.is_none();
    refuse!(is_beside, "the log of {} lies beside its data: take new-wal", tool.osd);
    move_wal(&tool, args.to.as_deref(), &args.target)
}

/// The device of the log's own. A move that was cut short is settled.
fn settled(tool: &Tool) -> Result<Option<PathBuf>> {
    let kv = tool.kv()?;
    let used = tool.on_reactor(async |shard| {
        let shared = tool.mount(&shard, kv).await?;
        Ok(shared.wal().map(|place| place.path.clone()))
    })?;
    settle_wal(tool.testbed.layout(), tool.osd, used.as_deref())?;
    Ok(used)
}

fn move_wal(tool: &Tool, to: Option<&Path>, target: &TargetArgs) -> Result<ExitCode> {
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

fn new_log(tool: &Tool, to: &Path, target: &TargetArgs) -> Result<NewLog> {
    let path = std::path::absolute(to)?;
    let place = Place::from(&path.canonicalize().unwrap_or(path));
    let fill = fill(tool.testbed.plan());
    Ok(NewLog { place, size_bytes: target.size, fill, force: target.force })
}
