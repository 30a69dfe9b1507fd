//! Progress with the time left, and the table at the end.

use std::time::Duration;

use carmine_study::archive::{PointEnd, PointResult, PointState, Run};
use carmine_study::expand::show_duration;
use carmine_study::run::Event;
use carmine_study::scaling::{KNEE, Scaling};
use carmine_testbed::output::note;
use comfy_table::{CellAlignment, Table};
use indicatif::ProgressBar;

use crate::progress::style;

/// The bar of a sweep; on anything but a terminal, a line per point that failed.
pub(crate) struct View {
    bar: ProgressBar,
    point: String,
}

impl View {
    pub(crate) fn new(points: usize) -> View {
        let style = style("{pos}/{len} [{bar:24}] {elapsed} {msg}");
        let bar = ProgressBar::new(points as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        View { bar, point: String::new() }
    }

    /// Shows one event.
    pub(crate) fn show(&mut self, event: Event) {
        match event {
            Event::Point { index, stem, left, .. } => {
                self.bar.set_position(index as u64);
                self.point = format!("about {} left; {stem}", show_duration(left));
                self.bar.set_message(self.point.clone());
            }
            Event::Step(what) => self.bar.set_message(format!("{}: {what}", self.point)),
            Event::Ended { stem, state: PointEnd::Failed, error } => {
                self.line(&format!("failed: {stem}: {}", error.unwrap_or_default()));
            }
            Event::Ended { stem, state: PointEnd::Skipped, error } => {
                self.line(&format!("skipped: {stem}: {}", error.unwrap_or_default()));
            }
            Event::Ended { .. } => self.bar.inc(1),
            Event::Note(text) => self.line(&text),
        }
    }

    /// Above the bar, or where there is none on standard error.
    fn line(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// One row a point.
pub(crate) fn table(run: &Run) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["point", "IOPS", "MB/s", "mean us", "p99 us", "IOPS/core", "verdict", "marks"]);
    for column in 1..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for point in &run.points {
        let state = run.state(point).ok().flatten();
        let result = run.result(point).ok().flatten().filter(|_| run.is_done(point));
        match result {
            Some(result) => table.add_row(row(&point.stem, &result)),
            None => table.add_row([point.stem.clone(), missing(state)]),
        };
    }
    format!("{table}\n")
}

/// How a scaling run ends: slope, knee and what bound each line, and what the knee is.
pub(crate) fn scaling(lines: &[Scaling]) -> String {
    if lines.is_empty() {
        return "no slope: the points that fit this machine have one number of reactors, CPUs and OSDs\n"
            .into();
    }
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if lines.iter().any(|line| line.knee.is_some()) {
        text.push_str(&format!("(the knee is {KNEE})\n"));
    }
    text
}

fn missing(state: Option<PointState>) -> String {
    match state.map(|state| state.state) {
        Some(PointEnd::Failed) => "failed".to_owned(),
        Some(PointEnd::Skipped) => "skipped".to_owned(),
        _ => "not run".to_owned(),
    }
}

fn row(stem: &str, result: &PointResult) -> Vec<String> {
    let latency = result.latency().cloned().unwrap_or_default();
    let us = |ns: f64| format!("{:.0}", ns / 1e3);
    vec![
        stem.to_owned(),
        format!("{:.0}", result.iops()),
        format!("{:.1}", result.bw_bytes() / 1e6),
        us(latency.mean),
        latency.at(99.0).map_or_else(|| "-".to_owned(), us),
        result.carmine.iops_per_core.used.map_or_else(|| "-".to_owned(), |v| format!("{v:.0}")),
        result.carmine.verdict.clone().unwrap_or_else(|| "-".to_owned()),
        marks(&result.carmine.marks),
    ]
}

/// The words with which the marks begin, each once.
pub(super) fn marks(marks: &[String]) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in marks.iter().filter_map(|mark| Some(mark.split_once(':')?.0)) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(" ")
}
