//! `carmine store dump`: what a store holds, a line (or a line of JSON) each.

use std::process::ExitCode;
use std::sync::Arc;

use carmine_store::blue::{self, Dumped};
use serde_json::{Value, json};

use super::tool::{Tool, WhichArgs};
use carmine_testbed::output::print;

/// 0: all of it could be read; 1: something is damaged.
pub(super) fn run(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let kv = tool.kv()?;
    // Mounted, so that what lies in its logs is there too.
    tool.on_reactor(async |shard| tool.mount(&shard, Arc::clone(&kv)).await.map(drop))?;
    let (mut damaged, mut printed) = (0u64, Ok(()));
    blue::dump(&*kv, &mut |item| {
        damaged += u64::from(matches!(item, Dumped::Damaged(_)));
        let line = if tool.json { as_json(&item).to_string() } else { as_text(&item) };
        if printed.is_ok() {
            printed = print(&(line + "\n"));
        }
    })?;
    printed?;
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_json(item: &Dumped) -> Value {
    match item {
        Dumped::Pg { pg, log_entries } => json!({ "pg": pg.to_string(), "log_entries": log_entries }),
        Dumped::Object { oid, meta, extents } => json!({
            "object": oid.to_string(), "size": meta.size, "version": meta.version.to_string(),
            "extents": extents.iter().map(|e| json!([e.offset, e.device_offset, e.len])).collect::<Vec<_>>(),
        }),
        Dumped::Damaged(error) => json!({ "damaged": error.to_string() }),
    }
}

fn as_text(item: &Dumped) -> String {
    match item {
        Dumped::Pg { pg, log_entries } => format!("pg {pg}: {log_entries} log entries"),
        Dumped::Object { oid, meta, extents } => {
            let places = extents.iter().map(|e| format!(" {}~{}@{}", e.offset, e.len, e.device_offset));
            format!(
                "object {oid}: {} bytes, version {},{}",
                meta.size,
                meta.version,
                places.collect::<String>()
            )
        }
        Dumped::Damaged(error) => format!("damaged: {error}"),
    }
}
