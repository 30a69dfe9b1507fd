//! `carmine store df`: how full a store is.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::tool::{Tool, WhichArgs};
use crate::output::print;

pub(super) fn run(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let kv = tool.kv()?;
    let space = tool.on_reactor(async |shard| Ok(tool.mount(&shard, kv).await?.statfs()))?;
    let (block, db) = (tool.place().path, tool.db());
    let db_bytes = folder_bytes(&db);
    if tool.json {
        let shown = json!({
            "osd": tool.osd.0,
            "block": { "path": block, "drive": Tool::drive(&block),
                "total": space.total, "used": space.used, "available": space.free },
            "db": { "path": db, "drive": Tool::drive(&db), "used": db_bytes },
        });
        print(&format!("{shown:#}\n"))?;
    } else {
        print(&format!(
            "{}: {} bytes, {} used ({:.1} %), {} available; {} on {}\ndb: {db_bytes} bytes used; {} on {}\n",
            tool.osd,
            space.total,
            space.used,
            100.0 * space.used as f64 / space.total.max(1) as f64,
            space.free,
            block.display(),
            Tool::drive(&block),
            db.display(),
            Tool::drive(&db),
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
