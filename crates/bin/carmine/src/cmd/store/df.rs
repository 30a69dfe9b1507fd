//! `carmine store df`: how full a store is.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::tool::{Tool, WhichArgs};
use carmine_testbed::output::print;

pub(super) fn run(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let kv = tool.kv()?;
    let (space, wal, log_bytes) = tool.on_reactor(async |shard| {
        let shared = tool.mount(&shard, kv).await?;
        let log = shared.label().log_range();
        Ok((shared.statfs(), shared.wal().map(|place| place.path.clone()), log.end - log.start))
    })?;
    let (block, db) = (tool.places().block.path, tool.db());
    let log = wal.as_ref().unwrap_or(&block);
    let db_bytes = folder_bytes(&db);
    if tool.json {
        let shown = json!({
            "osd": tool.osd.0,
            "block": { "path": block, "drive": Tool::drive(&block),
                "total": space.total, "used": space.used, "available": space.free },
            "db": { "path": db, "drive": Tool::drive(&db), "used": db_bytes },
            "wal": { "path": log, "drive": Tool::drive(log), "dedicated": wal.is_some(), "total": log_bytes },
        });
        print(&format!("{shown:#}\n"))?;
    } else {
        print(&format!(
            "{}: {} bytes, {} used ({:.1} %), {} available; {} on {}\ndb: {db_bytes} bytes used; {} on {}\n\
             wal: {log_bytes} bytes; {} on {}\n",
            tool.osd,
            space.total,
            space.used,
            100.0 * space.used as f64 / space.total.max(1) as f64,
            space.free,
            block.display(),
            Tool::drive(&block),
            db.display(),
            Tool::drive(&db),
            log.display(),
            Tool::drive(log),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(|found| found.is_file())
        .map(|found| found.len())
        .sum()
}
