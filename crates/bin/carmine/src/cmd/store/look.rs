//! Commands that look at a store: its labels, how full it is, everything in it, and whether it is sound.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use carmine_store::blue::{self, Dumped, FsckReport, MountOptions, repair};
use carmine_store::{BlueShared, Label, StoreError};
use carmine_testbed::print;
use clap::Args;
use serde_json::{Value, json};

use super::{Tool, WhichArgs, lines};
use crate::cmd::code;

/// 0: both labels are good and equal; 1: they are not.
pub(super) fn show_label(args: &WhichArgs) -> Result<ExitCode> {
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
pub(super) fn df(args: &WhichArgs) -> Result<ExitCode> {
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
            "total": space.total, "used": space.used, "metadata": space.metadata, "available": space.free },
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
pub(super) fn dump(args: &WhichArgs) -> Result<ExitCode> {
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
pub(super) struct FsckArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Also read all data and verify its checksums
    #[arg(long)]
    deep: bool,
    /// First repair what needs no other copy: labels, and block maps without an object
    #[arg(long)]
    repair: bool,
    /// Go on without acknowledged writes that the log has lost, where there are no replicas to restore the store from
    #[arg(long)]
    accept_loss: bool,
}

/// 0: nothing is wrong (any more); 1: something is.
pub(super) fn fsck(args: &FsckArgs) -> Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    let kv = tool.kv()?;
    let (repaired, report) = tool.on_reactor(async |shard| {
        let repaired =
            if args.repair { repair(&shard, tool.places(), Arc::clone(&kv)).await? } else { Vec::new() };
        let options = MountOptions { accepts_loss: args.accept_loss, ..MountOptions::default() };
        let report = match BlueShared::mount(&shard, tool.places(), kv, options).await {
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
        "objects": report.objects, "blocks": report.blocks, "shared_blocks": report.shared_blocks,
        "extents": report.extents,
        "blocks_read": report.blocks_read, "log_entries": report.log_entries,
        "repaired": repaired, "error_count": report.error_count, "errors": report.errors,
        "result": if report.is_clean() { "fsck success" } else { "fsck found errors" },
    }))?;
    Ok(code(report.is_clean()))
}
