//! `carmine store fsck`: everything that a store says of itself is true.

use std::process::ExitCode;
use std::sync::Arc;

use carmine_store::blue::{FsckReport, fsck, repair};
use clap::Args;
use serde_json::json;

use super::tool::{Tool, WhichArgs};
use carmine_testbed::output::print;

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
}

/// 0: nothing is wrong (any more); 1: something is.
pub(super) fn run(args: &FsckArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    let kv = tool.kv()?;
    let (repaired, report) = tool.on_reactor(async |shard| {
        let repaired =
            if args.repair { repair(&shard, tool.places(), Arc::clone(&kv)).await? } else { Vec::new() };
        let report = match tool.mount(&shard, kv).await {
            Ok(shared) => fsck(&shared, &shard, args.deep).await?,
            // What keeps it from being mounted is what is wrong with it.
            Err(error) => FsckReport {
                error_count: 1,
                errors: vec![format!("cannot be mounted: {error}")],
                ..FsckReport::default()
            },
        };
        Ok((repaired, report))
    })?;
    print(&if tool.json { as_json(&repaired, &report) } else { as_text(&repaired, &report) })?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_json(repaired: &[String], report: &FsckReport) -> String {
    let shown = json!({
        "objects": report.objects, "blocks": report.blocks, "extents": report.extents,
        "blocks_read": report.blocks_read, "log_entries": report.log_entries,
        "repaired": repaired, "error_count": report.error_count, "errors": report.errors,
    });
    format!("{shown:#}\n")
}

fn as_text(repaired: &[String], report: &FsckReport) -> String {
    let mut text: String = repaired.iter().map(|line| format!("repaired: {line}\n")).collect();
    text.extend(report.errors.iter().map(|line| format!("error: {line}\n")));
    text.push_str(&format!(
        "{} objects, {} blocks in {} extents ({} read), {} log entries\n",
        report.objects, report.blocks, report.extents, report.blocks_read, report.log_entries
    ));
    text.push_str(&match report.error_count {
        0 => "fsck success\n".to_owned(),
        errors => format!("fsck found {errors} error(s)\n"),
    });
    text
}
