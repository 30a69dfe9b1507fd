//! A report as data: the content of both the page and the text, in the order in which it is read.

use std::path::Path;

use carmine_load::words::word;
use carmine_study::answer::answer_of;
use carmine_types::counted;

use crate::chart::Chart;
use crate::data::{Measured, PANEL_AXES, RunData, Setting, drift};
use crate::figures::{self, Panel, View, cells};
use crate::flames::flames;
use crate::lists::{distinct, grouped as by_key, joined, tally};
use crate::table::{Cell, Table};
use crate::units::{date, grouped, shortened};
use crate::{compare, conditions, words};

/// Everything that is shown.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) title: String,
    /// Machine, version and time on one line.
    pub(crate) subtitle: String,
    /// Figures that are missing or spoilt.
    pub(crate) notices: Vec<String>,
    pub(crate) parts: Vec<Part>,
    /// The program that wrote the report, and the folder with the figures.
    pub(crate) footer: &'static str,
}

/// A part of the page under a heading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

/// The purpose of sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The answer to the question of the plan.
    Answer,
    /// Limits of the run.
    Notices,
    Findings,
    Remarks,
}

/// A piece of the page under a heading.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Text(Kind, Vec<String>),
    Charts(Vec<Chart>),
    Table(String, Table),
    /// Name and figures of what is not drawn.
    Files(Vec<(String, Table)>),
    /// Files of the archive: name, the way from the report's folder, and what the file shows.
    Links(Vec<[String; 3]>),
    /// Commands, a plan or a log, as they are.
    Verbatim(String),
    /// A part that unfolds on a click.
    Folded(Part),
}

impl Block {
    fn is_empty(&self) -> bool {
        match self {
            Block::Text(_, texts) => texts.is_empty(),
            Block::Charts(charts) => charts.is_empty(),
            Block::Table(_, table) => table.rows.is_empty(),
            Block::Files(files) => files.is_empty(),
            Block::Links(links) => links.is_empty(),
            Block::Verbatim(text) => text.trim().is_empty(),
            Block::Folded(part) => part.blocks.is_empty(),
        }
    }
}

impl Part {
    /// A part without blocks that are empty.
    pub(crate) fn new(id: &str, title: &str, mut blocks: Vec<Block>) -> Part {
        blocks.retain(|block| !block.is_empty());
        Part { id: id.into(), title: title.into(), blocks }
    }
}

const FOOTER: &str =
    "Written by carmine report. The same tables are in report.md; the archive has all samples and logs.";

/// Puts the report of runs together; it will be written into the folder `out`.
pub(crate) fn report(runs: &[RunData], out: &Path) -> Report {
    let view = View::new(runs);
    let compared = compare::compared(&view);
    let answers = answers(runs);
    // The answer of a study has this suspicion already.
    let is_study = runs.iter().any(|run| run.file().study.is_some());
    let mut findings = if is_study { Vec::new() } else { figures::suspicions(&view) };
    findings.extend(peaks(&view));
    findings.extend(figures::findings(&view));
    findings.extend(compare::findings(&compared));
    findings
        .extend(runs.iter().filter_map(|run| Some(format!("Drift{}: {}.", run_suffix(run), drift(run)?))));
    if findings.is_empty() {
        findings.push("No point was measured, so there are no results.".into());
    }
    let mut notices = notices(runs);
    // Differences that nobody asked for are reported before any result.
    notices.extend(compared.warnings.iter().filter(|text| text.starts_with("CONFOUNDED")).cloned());
    let (charts, parts) = figures::charts(&view, &compared);
    let head = vec![
        Block::Text(Kind::Answer, answers),
        Block::Text(Kind::Notices, notices.clone()),
        Block::Text(Kind::Findings, findings),
        Block::Charts(charts),
        Block::Table("The limit of each setting".into(), bounds(&view)),
    ];
    let points = vec![Block::Table("Every point of the run".into(), points_table(&view))];
    let mut all = vec![Part::new("headline", "What was found", head)];
    all.extend(parts);
    all.push(Part::new("flames", "Flamegraphs", flames(runs, out)));
    all.push(Part::new("points", "Every point", points));
    all.push(Part::new("conditions", "Conditions", conditions::sections(&view)));
    let names = distinct(runs.iter().map(|run| run.file().name.as_str())).join(", ");
    let title = if runs.len() == 1 { names } else { format!("{names} ({} runs)", runs.len()) };
    Report { title, subtitle: subtitle(runs), notices, parts: all, footer: FOOTER }.with_glossary()
}

impl Report {
    /// Adds the words that it uses, and leaves out parts that are empty.
    pub(crate) fn with_glossary(mut self) -> Report {
        self.parts.push(words::glossary(&self));
        self.parts.retain(|part| !part.blocks.is_empty());
        self
    }
}

/// ` of LABEL` for a run if there are several.
pub(crate) fn run_suffix(run: &RunData) -> String {
    if run.label.is_empty() { String::new() } else { format!(" of {}", run.label) }
}

/// The answers of all runs.
fn answers(runs: &[RunData]) -> Vec<String> {
    let answer = |run: &RunData| {
        let measured = run.points.iter().filter_map(|m| Some((&m.point, m.result.as_ref()?)));
        answer_of(run.file(), &measured.collect::<Vec<_>>())
    };
    runs.iter().flat_map(answer).collect()
}

/// The time, the program and the machine.
fn subtitle(runs: &[RunData]) -> String {
    let one = |run: &RunData| {
        let (file, build) = (run.file(), &run.file().carmine);
        let hash: String = build.git_hash.chars().take(10).collect();
        let version = joined([build.version.as_str(), &hash, &build.profile], " ");
        let told = format!("{} · carmine {version} · {}", date(file.created_unix_s), file.kernel);
        joined([&*run.label, &told], ": ")
    };
    runs.iter().map(one).collect::<Vec<_>>().join(" | ")
}

/// Notices to read before believing any figure.
fn notices(runs: &[RunData]) -> Vec<String> {
    let mut notices = Vec::new();
    for run in runs {
        let mut texts = Vec::new();
        let done = || run.points.iter().filter(|m| m.is_planned() && m.state == "done");
        let clean = done().filter(|m| m.is_clean()).count();
        if clean < done().count() {
            let are = if clean == 1 { "is" } else { "are" };
            let measured = counted(done().count(), "measured point");
            // Marks with the number of points that have them: `SHARED 4, NOISY 1`.
            let marks = tally(done().filter(|m| !m.is_clean()).flat_map(|m| &m.words));
            let marks: Vec<String> = marks.into_iter().map(|(word, n)| format!("{word} {n}")).collect();
            texts.push(format!(
                "{clean} of {measured} {are} clean. Marks of the others: {}. These are in no answer and no slope.",
                marks.join(", ")
            ));
        }
        if run.file().label == "smoke" {
            texts.push("SMOKE: windows under 10 s show that it runs, not how fast it is.".into());
        }
        let told = conditions::spoils(&run.file().doctor).into_iter().chain(run.missing.iter().cloned());
        texts.extend(told.map(|text| format!("{text}.")));
        notices.extend(texts.iter().map(|text| joined([&*run.label, text], ": ")));
    }
    notices
}

/// For each workload, the highest figure that was reached by points that support one, and what limited it.
fn peaks(view: &View<'_>) -> Vec<String> {
    let peak = |panel: Panel<'_, '_>| {
        let supported: Vec<&Setting<'_>> =
            panel.settings.iter().copied().filter(|setting| setting.supported().is_ok()).collect();
        if supported.is_empty() {
            let why = Setting::best(&panel.settings).supported().err().unwrap_or_default();
            return format!(
                "{}: no answer: no setting has repeats that support a figure: {why}.",
                panel.title
            );
        }
        let best = Setting::best(&supported);
        let (iops, bw, name) = (best.iops(), best.bw_bytes(), view.name(best, &PANEL_AXES));
        let megabytes = grouped(bw / 1e6, usize::from(bw < 1e7));
        let p99 = best.latency_ns(99.0).map(|ns| grouped(ns / 1e6, 2));
        let cpu_us = best.mean(|r| r.carmine.machine_cpu_us_per_op);
        let told = [
            Some(format!("{}: at most {} IOPS, {megabytes} MB/s", panel.title, grouped(iops, 0))),
            p99.map(|ms| format!(" with a p99 of {ms} ms")),
            cpu_us.map(|us| format!(", {us:.1} µs of CPU per operation (machine without generator)")),
            (!name.is_empty()).then(|| format!(" at {name}")),
            best.limiter().map(|(name, why)| match &*name {
                "UNKNOWN" => format!(". The limiter is unknown: {why}"),
                _ => format!(". Limited by {name}: {why}"),
            }),
        ];
        told.into_iter().flatten().collect::<String>() + "."
    };
    view.panels().into_iter().map(peak).collect()
}

/// The limits of each workload's settings, in words: the limiters, the most frequent first.
fn bounds(view: &View<'_>) -> Table {
    let mut rows = Vec::new();
    for panel in view.panels() {
        let mut limiters = by_key(panel.settings.iter().filter_map(|s| Some((s.limiter()?.0, *s))));
        limiters.sort_by_key(|(_, settings)| std::cmp::Reverse(settings.len()));
        rows.extend(limiters.into_iter().map(|(limiter, settings)| {
            let best = Setting::best(&settings);
            vec![
                panel.title.as_str().into(),
                limiter.as_str().into(),
                format!("{} of {}", settings.len(), panel.settings.len()).into(),
                word(&limiter).map_or("the repeats disagree", |word| word.meaning).into(),
                Cell::Number(best.iops(), 0),
                Cell::text(best.limiter().as_ref().map(|(_, why)| why.as_str())),
                Cell::text(Some(&best.first.carmine.verdict_next)),
            ]
        }));
    }
    let columns = "load | bounded by | settings | that means | most IOPS | decided by | try next";
    Table::new(columns, rows).without_empty_columns()
}

const COLUMNS: &str = "marks | IOPS | MB/s | mean (µs) | p50 (µs) | p99 (µs) | p99.9 (µs) | limiter | decided by | \
    IOPS/core allocated | IOPS/core used | IOPS/core busy | machine µs/op | OSD µs/op | cycles/op | instructions/op | \
    client cores | hops/op | of the raw device (%) | of the raw messenger (%) | throttled (s) | cache | before it | seconds";

/// Characters of an error that the table shows.
const ERROR_MAX: usize = 240;

/// All points of all runs in the order of running; the error of a point that failed stands where others have what decided
/// their limiter.
fn points_table(view: &View<'_>) -> Table {
    let row = |(run, point): (&RunData, &Measured)| {
        let state = if point.is_planned() || point.state != "done" { point.state } else { "done again" };
        let own = vec![joined([&*run.label, &point.point.stem], "/").into(), state.into()];
        let of_failed = |column: &str| match column {
            "decided by" => Cell::text(Some(&shortened(&point.why, ERROR_MAX))),
            "seconds" => Cell::number(Some(point.seconds).filter(|seconds| *seconds > 0.0), 1),
            _ => Cell::None,
        };
        let figures = match Setting::from_points(vec![point]) {
            Some(setting) => cells(&setting, COLUMNS),
            None => COLUMNS.split(" | ").map(of_failed).collect(),
        };
        [own, figures].concat()
    };
    let points = view.runs.iter().flat_map(|run| run.points.iter().map(move |point| (run, point)));
    Table::new(&format!("point | state | {COLUMNS}"), points.map(row)).without_empty_columns()
}
