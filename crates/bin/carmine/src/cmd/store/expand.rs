//! `carmine store expand`: uses devices and files whole that have grown.

use std::process::ExitCode;

use carmine_store::blue::expand;
use serde_json::json;

use super::tool::{Tool, WhichArgs};
use carmine_testbed::output::print;

pub(super) fn run(args: &WhichArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(args)?;
    let kv = tool.kv()?;
    let expanded = tool.on_reactor(async |shard| Ok(expand(&shard, tool.places(), kv).await?))?;
    let parts = [("block", Some(expanded.block)), ("wal", expanded.wal)];
    let parts = parts.into_iter().filter_map(|(part, bytes)| bytes.map(|(from, to)| (part, from, to)));
    print(&if tool.json {
        let shown: serde_json::Map<_, _> =
            parts.map(|(part, from, to)| (part.to_owned(), json!({ "from": from, "to": to }))).collect();
        format!("{:#}\n", serde_json::Value::Object(shown))
    } else {
        parts
            .map(|(part, from, to)| {
                if from == to {
                    format!("{part}: {from} bytes, nothing to expand\n")
                } else {
                    format!("{part}: expanded from {from} to {to} bytes\n")
                }
            })
            .collect()
    })?;
    Ok(ExitCode::SUCCESS)
}
