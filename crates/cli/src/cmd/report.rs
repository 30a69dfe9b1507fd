//! `carmine report`: archived runs as one page.

use std::path::PathBuf;
use std::process::ExitCode;

use carmine_report::{Written, write_report};
use clap::Args;
use serde_json::json;

use crate::output::{note, print};

/// Options of the report.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Folders of runs, as `carmine sweep --out` made them; several are compared, the first is the base
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Folder for report.html and report.md [default: the first run's]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Print as JSON what was written
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let written = write_report(&args.runs, args.out.as_deref())?;
    if args.json {
        print(&format!("{}\n", as_json(&written)))?;
        return Ok(ExitCode::SUCCESS);
    }
    written.notices.iter().for_each(|text| note(&format!("note: {text}")));
    print(&format!(
        "{} ({} charts, {} points)\n{}\n",
        written.html.display(),
        written.charts,
        written.points,
        written.markdown.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(written: &Written) -> serde_json::Value {
    json!({
        "html": written.html,
        "markdown": written.markdown,
        "charts": written.charts,
        "points": written.points,
        "notices": written.notices,
    })
}
