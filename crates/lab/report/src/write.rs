//! From folders of runs to `report.html` and `report.md`.

use std::path::{Path, PathBuf};

use carmine_study::archive::{ArchiveError, write_whole};
use thiserror::Error;

use crate::data::{RunData, load};
use crate::markdown::markdown;
use crate::page::html;
use crate::report::report;

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A folder is no run, or one that this version can't read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// There is nothing to report on.
    #[error("name the folder of a run, as `carmine sweep --out` made it")]
    NoRun,
}

/// The files that were written.
#[derive(Clone, Debug)]
pub struct Written {
    pub html: PathBuf,
    pub markdown: PathBuf,
    /// Charts in the page.
    pub charts: usize,
    /// Points in its table.
    pub points: usize,
    /// Sentences about figures that are missing or spoilt.
    pub notices: Vec<String>,
}

/// Writes `report.html` and `report.md` about runs; several are compared, the first is the base. They go into `out`, or
/// else into the first run's folder. `progress` gets how many of a run's points have been read, and how many it has. Points whose files are bad or missing are listed in the report.
///
/// # Errors
/// A folder that is no run, or a folder that can't be written to.
pub fn write_report(
    runs: &[PathBuf],
    out: Option<&Path>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Written, ReportError> {
    let first = runs.first().ok_or(ReportError::NoRun)?;
    let mut loaded = Vec::with_capacity(runs.len());
    for (number, dir) in runs.iter().enumerate() {
        loaded.push(load(dir, number, progress)?);
    }
    distinct_labels(&mut loaded);
    let out = out.unwrap_or(first);
    std::fs::create_dir_all(out).map_err(ArchiveError::io("make the folder", out))?;
    let report = report(&loaded, out);
    let (html, markdown) = (html(&report), markdown(&report));
    let (page, text) = (out.join("report.html"), out.join("report.md"));
    write_whole(&page, html.as_bytes())?;
    write_whole(&text, markdown.as_bytes())?;
    Ok(Written {
        html: page,
        markdown: text,
        charts: report.parts.iter().flat_map(|part| part.charts()).count(),
        points: loaded.iter().map(|run| run.points.len()).sum(),
        notices: report.notices,
    })
}

/// Folders of the same name get numbers.
fn distinct_labels(runs: &mut [RunData]) {
    let labels: Vec<String> = runs.iter().map(|r| r.label.clone()).collect();
    for (number, run) in runs.iter_mut().enumerate() {
        if labels.iter().filter(|l| **l == run.label).count() > 1 {
            run.label = format!("{} #{}", run.label, number + 1);
        }
    }
}
