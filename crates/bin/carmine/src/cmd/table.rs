//! `carmine table`: results of `carmine bench --json` side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use carmine_load::compare;
use clap::Args;
use serde_json::Value;

use carmine_testbed::output::print;

/// Options of the table.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Results of `carmine bench --json`
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder of a testbed (not used: FILE names the results)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &TableArgs) -> anyhow::Result<ExitCode> {
    let _ = &args.dir;
    let mut results = Vec::with_capacity(args.files.len());
    for path in &args.files {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no result of carmine bench", path.display()))?;
        let name =
            path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        results.push((name.trim_end_matches(".json").to_owned(), value));
    }
    print(&compare(&results))?;
    Ok(ExitCode::SUCCESS)
}
