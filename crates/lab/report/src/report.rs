//! A report as data: what the page and the text both show, in the order in which it is read.

use std::path::Path;

use carmine_study::answer::answer_of;
use carmine_types::counted;

use crate::chart::Chart;
use crate::data::{Ended, Measured, PANEL_AXES, RunData, Setting, drift};
use crate::figures::{self, View, cells};
use crate::flames::flames;
use crate::lists::{distinct, grouped as by_key, tally};
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
    /// The answer to the question of the study.
    Answer,
    /// Limits of the run.
    Notices,
    Findings,
    Remarks,
}

/// What stands under a heading.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Text(Kind, Vec<String>),
    Charts(Vec<Chart>),
    Table(String, Table),
    /// Name and figures of what is not drawn.
    Files(Vec<(String, Table)>),
    Links(Vec<Link>),
    /// Commands, a plan or a log, as they are.
    Verbatim(String),
    /// A part that unfolds on a click.
    Folded(Part),
}

/// A file of the archive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) name: String,
    /// From the report's folder to the file.
    pub(crate) href: String,
    pub(crate) text: String,
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
    pub(crate) fn new(id: &str, title: &str, blocks: Vec<Block>) -> Part {
        Part { id: id.into(), title: title.into(), blocks }.tidy()
    }

    /// The part without blocks that are empty.
    fn tidy(mut self) -> Part {
        self.blocks.retain(|block| !block.is_empty());
        self
    }

    /// All charts, also those of parts within.
    pub(crate) fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.blocks.iter().flat_map(|block| match block {
            Block::Charts(charts) => charts.as_slice(),
            _ => &[],
        })
    }
}

/// Puts the report of runs together; it will be written into the folder `out`.
pub(crate) fn report(runs: &[RunData], out: &Path) -> Report {
    let view = View::new(runs);
    let compared = compare::compared(&view);
    let answers = answers(runs);
    // The answer of a study has this suspicion already.
    let mut findings = if answers.is_empty() { figures::suspicions(&view) } else { Vec::new() };
    findings.extend(peaks(&view));
    findings.extend(figures::findings(&view));
    findings.extend(compare::findings(&compared));
    findings.extend(drifts(runs));
    if findings.is_empty() {
        findings.push("No point was measured: there is nothing to say.".into());
    }
    let mut notices = notices(runs);
    // Differences that nobody asked for are told before any result.
    notices.extend(compared.warnings.iter().filter(|text| text.starts_with("CONFOUNDED")).cloned());
    let (charts, parts) = figures::charts(&view, &compared);
    let head = vec![
        Block::Text(Kind::Answer, answers),
        Block::Text(Kind::Notices, notices.clone()),
        Block::Text(Kind::Findings, findings),
        Block::Charts(charts),
        Block::Table("The limit of each setting".into(), bounds(&view)),
    ];
    let mut all = vec![Part::new("headline", "What was found", head)];
    all.extend(parts);
    all.push(Part::new("flames", "Flamegraphs", flames(runs, out)));
    all.push(Part::new(
        "points",
        "Every point",
        vec![Block::Table("Every point of the run".into(), points_table(&view))],
    ));
    all.push(Part::new("conditions", "Conditions", conditions::sections(&view)));
    let all = all.into_iter().map(Part::tidy).filter(|part| !part.blocks.is_empty());
    let mut report = Report { title: title(runs), subtitle: subtitle(runs), notices, parts: all.collect() };
    words::add_glossary(&mut report);
    report
}

/// The answer to the study's question, for runs of a study.
fn answers(runs: &[RunData]) -> Vec<String> {
    let mut all = Vec::new();
    for run in runs {
        all.extend(answer_of(
            run.file(),
            run.points.iter().filter_map(|m| Some((&m.point, m.result.as_ref()?))),
        ));
    }
    all
}

/// More drift than this part between the first point and its repetition is worth a warning.
const DRIFT_WARN: f64 = 0.05;

/// Names of the plans.
fn title(runs: &[RunData]) -> String {
    let names = distinct(runs.iter().map(|run| run.file().name.as_str()));
    match runs.len() {
        1 => names.join(", "),
        n => format!("{} ({n} runs)", names.join(", ")),
    }
}

/// When, with what and where.
fn subtitle(runs: &[RunData]) -> String {
    let of = |run: &RunData| {
        let (file, build) = (run.file(), &run.file().carmine);
        let hash: String = build.git_hash.chars().take(10).collect();
        let version = [build.version.as_str(), hash.as_str(), build.profile.as_str()];
        let version: Vec<&str> = version.into_iter().filter(|w| !w.is_empty()).collect();
        let label = if runs.len() > 1 { format!("{}: ", run.label) } else { String::new() };
        format!("{label}{} · carmine {} · {}", date(file.created_unix_s), version.join(" "), file.kernel)
    };
    runs.iter().map(of).collect::<Vec<_>>().join(" | ")
}

/// Notices to read before believing any figure.
fn notices(runs: &[RunData]) -> Vec<String> {
    let mut notices = Vec::new();
    for run in runs {
        let name = if runs.len() > 1 { format!("{}: ", run.label) } else { String::new() };
        let planned: Vec<_> = run.points.iter().filter(|m| m.is_planned()).collect();
        let done = planned.iter().filter(|m| m.ended == Ended::Done).count();
        let clean = planned.iter().filter(|m| m.is_clean()).count();
        if clean < done {
            let marks = spoiled_by(&planned);
            let (measured, are) = (counted(done, "measured point"), if clean == 1 { "is" } else { "are" });
            notices.push(format!(
                "{name}{clean} of {measured} {are} clean. Marks of the others: {marks}. SHARED, NOISY and UNSTEADY points are \
                 in no slope."
            ));
        }
        if run.file().label == "smoke" {
            notices.push(format!("{name}SMOKE: windows under 10 s show that it runs, not how fast it is."));
        }
        notices
            .extend(conditions::spoils(&run.file().doctor).into_iter().map(|text| format!("{name}{text}.")));
        notices.extend(run.missing.iter().map(|text| format!("{name}{text}.")));
    }
    notices
}

/// Marks with the number of points that have them: `SHARED 4, NOISY 1`.
fn spoiled_by(points: &[&Measured]) -> String {
    let counts = tally(points.iter().filter(|m| !m.is_clean()).flat_map(|m| &m.words));
    counts.into_iter().map(|(w, n)| format!("{w} {n}")).collect::<Vec<_>>().join(", ")
}

/// For each workload the most that was reached, and what limited it.
fn peaks(view: &View<'_>) -> Vec<String> {
    let mut peaks = Vec::new();
    for panel in view.panels() {
        let Some(best) = panel.settings.iter().copied().reduce(Setting::better) else { continue };
        let of = |text: Option<String>| text.unwrap_or_default();
        let name = Some(view.name(best, &PANEL_AXES)).filter(|name| !name.is_empty());
        let p99 = best.latency.p99_ns.map(|ns| format!(" with a p99 of {} ms", grouped(ns / 1e6, 2)));
        let cpu = best.mean(|r| r.carmine.machine_cpu_us_per_op);
        let cpu = cpu.map(|us| format!(", {us:.1} µs of CPU per operation (machine without generator)"));
        let marks = (!best.is_clean).then(|| format!(" ({})", best.words.join(" ")));
        let limit = best.limiter().map(|(name, why)| match name {
            "UNKNOWN" => format!(" The limiter is unknown: {why}."),
            name => format!(" Limited by {name}: {why}."),
        });
        peaks.push(format!(
            "{}: at most {} IOPS, {} MB/s{}{}{}{}.{}",
            panel.title,
            grouped(best.iops(), 0),
            grouped(best.bw_bytes() / 1e6, usize::from(best.bw_bytes() < 1e7)),
            of(p99),
            of(cpu),
            of(name.map(|name| format!(" at {name}"))),
            of(marks),
            of(limit)
        ));
    }
    peaks
}

/// How far the machine drifted during each run.
fn drifts(runs: &[RunData]) -> Vec<String> {
    let of = |run: &RunData| {
        let drift = drift(run)?;
        let warn = if drift.part().abs() > DRIFT_WARN {
            ": differences of that size between points mean nothing"
        } else {
            ""
        };
        let name = if runs.len() > 1 { format!("{}: d", run.label) } else { "D".to_owned() };
        let (times, most) = match drift.times {
            1 => (String::new(), ""),
            n => (format!(" {}", counted(n, "time")), " where it differed most"),
        };
        Some(format!(
            "{name}rift: the first point, run again{times}, gave {} instead of {} IOPS{most} ({}){warn}.",
            grouped(drift.again_iops, 0),
            grouped(drift.first_iops, 0),
            format!("{:+.1} %", drift.part() * 100.0).replace('-', "−")
        ))
    };
    runs.iter().filter_map(of).collect()
}

/// What bounded the settings of each workload, in words: the limiters, the most frequent first.
fn bounds(view: &View<'_>) -> Table {
    let mut table =
        Table::new("load | bounded by | settings | that means | most IOPS | decided by | try next");
    for panel in view.panels() {
        let limited = panel.settings.iter().filter_map(|s| Some((s.limiter()?.0, *s)));
        let mut limiters = by_key(limited);
        limiters.sort_by_key(|(_, settings)| std::cmp::Reverse(settings.len()));
        for (limiter, settings) in limiters {
            let Some(best) = settings.iter().copied().reduce(Setting::better) else { continue };
            table.push(vec![
                panel.title.as_str().into(),
                limiter.into(),
                format!("{} of {}", settings.len(), panel.settings.len()).into(),
                words::meaning(limiter).into(),
                Cell::Number(best.iops(), 0),
                best.limiter().map(|(_, why)| why).into(),
                best.first().and_then(|r| r.carmine.verdict_next.as_deref()).into(),
            ]);
        }
    }
    table.without_empty_columns()
}

const COLUMNS: &str = "marks | IOPS | MB/s | mean (µs) | p50 (µs) | p99 (µs) | p99.9 (µs) | limiter | decided by | \
    IOPS/core allocated | IOPS/core used | IOPS/core busy | machine µs/op | OSD µs/op | cycles/op | instructions/op | \
    client cores | hops/op | of the raw device (%) | of the raw messenger (%) | throttled (s) | cache | before it | seconds";

/// Characters of an error that the table shows.
const ERROR_MAX: usize = 240;

/// All points of all runs in the order of running; the error of a point that failed stands where others have what decided
/// their limiter.
fn points_table(view: &View<'_>) -> Table {
    let mut table = Table::new(&format!("point | state | {COLUMNS}"));
    for run in view.runs {
        for point in &run.points {
            let prefix = if view.runs.len() > 1 { format!("{}/", run.label) } else { String::new() };
            table.push(point_row(&prefix, point));
        }
    }
    table.without_empty_columns()
}

fn point_row(prefix: &str, point: &Measured) -> Vec<Cell> {
    let (state, why) = match &point.ended {
        Ended::Done if point.is_planned() => ("done", None),
        Ended::Done => ("done again", None),
        Ended::Failed(why) => ("failed", Some(why)),
        Ended::NotRun => ("not run", None),
        Ended::Unreadable(why) => ("unreadable", Some(why)),
    };
    let mut row = vec![format!("{prefix}{}", point.point.stem).into(), state.into()];
    let columns = COLUMNS.split(" | ");
    match Setting::of(vec![point]) {
        Some(setting) => row.extend(cells(&setting, COLUMNS)),
        None => row.extend(columns.map(|column| match (column, why) {
            ("decided by", Some(why)) => shortened(why, ERROR_MAX).into(),
            ("seconds", _) => Cell::number((point.seconds > 0.0).then_some(point.seconds), 1),
            _ => Cell::None,
        })),
    }
    row
}
