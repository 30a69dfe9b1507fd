//! `carmine store new-wal` and `migrate-wal`: the log of an OSD gets another place.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use carmine_store::blue::{NewLog, Place, move_log};
use carmine_testbed::{begin_wal_move, remove_old_wal, settle_wal};
use clap::Args;
use serde_json::json;

use super::tool::{Tool, WhichArgs};
use carmine_load::parse_bytes;
use carmine_osd_daemon::store::fill;
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::print;

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

pub(super) fn new(args: &NewWalArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    if let Some(path) = settled(&tool)? {
        let path = path.display();
        return Err(Usage(format!("the log of {} lies on {path} already: take migrate-wal", tool.osd)).into());
    }
    run(&tool, Some(&args.dev), &args.target)
}

pub(super) fn migrate(args: &MigrateWalArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    if settled(&tool)?.is_none() {
        return Err(Usage(format!("the log of {} lies beside its data: take new-wal", tool.osd)).into());
    }
    run(&tool, args.to.as_deref(), &args.target)
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

fn run(tool: &Tool, to: Option<&Path>, target: &TargetArgs) -> anyhow::Result<ExitCode> {
    let kv = tool.kv()?;
    let layout = tool.testbed.layout();
    let places = tool.places();
    let before = places.wal.first().map(|place| place.path.clone());
    let new = to.map(|to| new_log(tool, to, target)).transpose()?;
    if let Some(new) = &new {
        // A crash while it moves leaves both links, and the store knows which one counts.
        begin_wal_move(layout, tool.osd, &new.place.path)?;
    }
    let moved = tool.on_reactor(async |shard| Ok(move_log(&shard, places, kv, new).await?));
    let moved = match moved {
        Ok(moved) => moved,
        Err(error) => {
            // It failed before or after the store took the new place. If that cannot be found out now, both links stay.
            let _ = settled(tool);
            return Err(error);
        }
    };
    let used = moved.to.as_ref().map(|place| place.path.canonicalize()).transpose()?;
    settle_wal(layout, tool.osd, used.as_deref())?;
    before.as_deref().map(remove_old_wal).transpose()?;
    let block = tool.places().block.path;
    let path =
        |place: &Option<Place>| place.as_ref().map_or_else(|| block.clone(), |place| place.path.clone());
    let (from, to) = (path(&moved.from), path(&moved.to));
    let drive = Tool::drive(&to);
    print(&if tool.json {
        let shown = json!({ "from": from, "to": to, "drive": drive, "bytes": moved.log_bytes });
        format!("{shown:#}\n")
    } else {
        let bytes = moved.log_bytes;
        format!("the log, {bytes} bytes: from {} to {} on {drive}\n", from.display(), to.display())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn new_log(tool: &Tool, to: &Path, target: &TargetArgs) -> anyhow::Result<NewLog> {
    let path = std::path::absolute(to)?;
    let place = Place { path: path.canonicalize().unwrap_or(path), slice: None };
    let fill = fill(tool.testbed.plan());
    Ok(NewLog { place, size_bytes: target.size, fill, force: target.force })
}
