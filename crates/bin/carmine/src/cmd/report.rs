//! `carmine report`: archived runs as one page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use carmine_report::{Written, write_report};
use carmine_study::archive::ArchiveError;
use carmine_testbed::note;
use carmine_types::counted;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};

use super::done;
use crate::progress::style;

/// A report that takes longer has a progress bar.
const MOMENT: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// Options of the report.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Folders of runs that `carmine sweep --out` made; if there are several, they are compared with the first
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Folder for report.html and report.md [default: the first run's]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Print the names of the written files as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let written = write(&args.runs, args.out.as_deref())?;
    if args.json {
        return done(&format!("{}\n", serde_json::to_value(&written)?));
    }
    written.notices.iter().for_each(|text| note(&format!("note: {text}")));
    done(&format!(
        "{} ({}, {})\n{}\n",
        written.html.display(),
        counted(written.charts, "chart"),
        counted(written.points, "point"),
        written.markdown.display()
    ))
}

/// Writes a report; if that takes longer than a moment, it shows its progress.
pub(crate) fn write(runs: &[PathBuf], out: Option<&Path>) -> Result<Written, ArchiveError> {
    let begun = Instant::now();
    let bar = ProgressBar::hidden();
    bar.set_style(style("{spinner} {msg} [{bar:24}] {pos}/{len}"));
    bar.set_message("reading points");
    let mut show = |done, all| {
        if bar.is_hidden() && begun.elapsed() > MOMENT {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(TICK);
        }
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let written = write_report(runs, out, &mut show);
    bar.finish_and_clear();
    written
}
