//! `carmine store migrate-db`: moves an OSD's RocksDB to another folder, on another drive perhaps.

use std::path::PathBuf;
use std::process::ExitCode;

use carmine_testbed::migrate_db;
use clap::Args;
use serde_json::json;

use super::tool::{Tool, WhichArgs};
use carmine_testbed::output::print;

/// Options of `carmine store migrate-db`.
#[derive(Args)]
pub(super) struct MigrateDbArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Its new folder, which must be empty or absent
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

pub(super) fn run(args: &MigrateDbArgs) -> anyhow::Result<ExitCode> {
    let tool = Tool::open(&args.which)?;
    // Opened and closed: so it is known to be whole, and that no process has it.
    drop(tool.kv()?);
    let moved = migrate_db(tool.testbed.layout(), tool.osd, &std::path::absolute(&args.to)?)?;
    let drive = Tool::drive(&moved.to);
    print(&if tool.json {
        let shown = json!({
            "from": moved.from, "to": moved.to, "drive": drive, "files": moved.files, "bytes": moved.bytes,
        });
        format!("{shown:#}\n")
    } else {
        format!(
            "{} files, {} bytes: from {} (removed) to {} on {drive}\n",
            moved.files,
            moved.bytes,
            moved.from.display(),
            moved.to.display()
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
