//! Reports: an archived run becomes one self-contained page, and the same tables as text.
//!
//! `data` reads archives and puts repeats together; `figures` and `compare` decide which charts the data allow and make
//! them as plain data (`chart`); `report` puts all in the order of reading as parts and blocks; `page` and `markdown` show
//! these. `words` explains verdicts, marks and terms. `results` is the short report of a few results side by side.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "reports are made outside the reactors: they read and write files"
)]

mod chart;
mod compare;
mod conditions;
mod data;
mod figures;
mod flames;
mod markdown;
mod page;
mod report;
mod results;
mod table;
mod units;
mod words;

use std::path::{Path, PathBuf};

use carmine_study::archive::{ArchiveError, write_whole};
use carmine_study::lists;
use carmine_study::table::Results;
use serde::Serialize;

/// The files that were written.
#[derive(Clone, Debug, Serialize)]
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
/// else into the first run's folder. `progress` gets how many of a run's points have been read, and how many it has.
/// Points whose files are bad or missing are listed in the report.
///
/// # Errors
/// A folder that is not a run, one that this version can't read, or one that can't be written to.
pub fn write_report(
    runs: &[PathBuf],
    out: Option<&Path>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Written, ArchiveError> {
    let loaded = data::load(runs, progress)?;
    let out = out.or(runs.first().map(PathBuf::as_path)).unwrap_or(Path::new("."));
    fs_err::create_dir_all(out)?;
    let report = report::report(&loaded, out);
    let (html, markdown) = (page::html(&report), markdown::markdown(&report));
    let (page, text) = (out.join("report.html"), out.join("report.md"));
    write_whole(&page, html.as_bytes())?;
    write_whole(&text, markdown.as_bytes())?;
    Ok(Written {
        html: page,
        markdown: text,
        charts: html.matches("<figure class=\"chart\"").count(),
        points: loaded.iter().map(|run| run.points.len()).sum(),
        notices: report.notices,
    })
}

/// Writes a page about results side by side: the answer in words, and one chart of the rows that support a figure.
///
/// # Errors
/// A file that can't be written.
pub fn write_results(results: &Results<'_>, page: &Path) -> Result<(), ArchiveError> {
    write_whole(page, page::html(&results::report(results)).as_bytes())
}
