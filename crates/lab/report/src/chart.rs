//! Charts: plain data, and the SVG that is made from it.

mod ink;
mod lines;
mod pen;
mod rows;
mod scale;
mod sockets;
mod svg;

use std::collections::BTreeMap;

use carmine_topology::Cpu;

use scale::Scale;

use crate::lists::span;
use crate::table::Table;

pub(crate) use ink::{Ink, style_sheet};
pub(crate) use svg::picture;

/// One figure of the page.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// Unique on the page: the id of its element and the stem of its downloads.
    pub(crate) id: String,
    pub(crate) title: String,
    /// The conditions of all its figures: store, size, durability, route.
    pub(crate) context: String,
    pub(crate) plot: Plot,
    /// The figures of the chart.
    pub(crate) table: Table,
    /// Remarks for the reader, such as a slope or why something is missing.
    pub(crate) remarks: Vec<String>,
    /// Charts with the same word here share their axes.
    pub(crate) family: String,
}

/// The drawing of a chart.
#[derive(Clone, Debug)]
pub(crate) enum Plot {
    /// A line plot, or several below each other that share the horizontal axis.
    Lines(Vec<LinePlot>),
    Rows(RowPlot),
    Heat(HeatPlot),
    Sockets(Machine),
}

/// An axis of numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    /// Name with its unit.
    pub(crate) label: String,
    /// Starts at 0 whatever the values are.
    pub(crate) from_zero: bool,
    /// Logarithmic where the values allow it.
    pub(crate) log: bool,
    /// Holds at least this range: how charts share an axis.
    pub(crate) at_least: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis from 0.
    pub(crate) fn from_zero(label: &str) -> Axis {
        Axis { label: label.into(), from_zero: true, ..Axis::default() }
    }

    /// The scale that holds `values` and what the axis is told to hold.
    pub(crate) fn scale(&self, values: impl Iterator<Item = f64>, ticks: usize) -> Scale {
        let (low, high) = self.range(values);
        if self.log { Scale::log(low, high, ticks) } else { Scale::linear(low, high, ticks) }
    }

    /// Lowest and highest of `values` and of what the axis is told to hold.
    pub(crate) fn range(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let told = self.at_least.into_iter().flat_map(|(low, high)| [low, high]);
        let zero = (self.from_zero && !self.log).then_some(0.0);
        span(values.chain(told).chain(zero).filter(|v| v.is_finite()))
    }
}

impl Line {
    /// A line with markers in the ink of series `number`.
    pub(crate) fn series(number: usize, name: &str, dots: Vec<Dot>) -> Line {
        let name = if name.is_empty() { "measured" } else { name }.to_owned();
        Line { name, ink: Ink::Series(number), dotted: false, markers: true, dots }
    }
}

/// Lines over two axes of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinePlot {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// Vertical marks: (x, text).
    pub(crate) flags: Vec<(f64, String)>,
}

impl LinePlot {
    /// Lines over two linear axes from 0.
    pub(crate) fn from_zero(x: &str, y: &str, lines: Vec<Line>) -> LinePlot {
        LinePlot { x: Axis::from_zero(x), y: Axis::from_zero(y), lines, flags: Vec::new() }
    }
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) dotted: bool,
    /// A marker at each point.
    pub(crate) markers: bool,
    pub(crate) dots: Vec<Dot>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Dot {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// A bar from here to there.
    pub(crate) bar: Option<(f64, f64)>,
    /// Drawn hollow: SHARED, NOISY, UNSTEADY, smoke.
    pub(crate) marked: bool,
}

/// Rows of names with bars or dots over one axis of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowPlot {
    pub(crate) x: Axis,
    /// The meaning of the colours.
    pub(crate) keys: Vec<Key>,
    pub(crate) rows: Vec<Row>,
    /// Bars one after the other; else dots.
    pub(crate) stacked: bool,
    /// A vertical line, such as "no difference".
    pub(crate) reference: Option<f64>,
    /// A range that counts as equal.
    pub(crate) band: Option<(f64, f64)>,
}

/// A colour's meaning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) dotted: bool,
}

/// A row: a value for each key, and an interval where there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) marked: bool,
}

/// Parts of 1 over time (columns) and CPUs (rows).
#[derive(Clone, Debug, Default)]
pub(crate) struct HeatPlot {
    /// Start of each column and the end of the last, in seconds: one more than columns.
    pub(crate) edges: Vec<f64>,
    pub(crate) rows: Vec<(String, Vec<Option<f64>>)>,
}

/// The CPUs of a machine in ascending order, and the threads that run on each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) seats: Vec<(Cpu, Vec<Seat>)>,
    /// The meaning of the colours.
    pub(crate) keys: Vec<Key>,
}

/// A thread, or several of a kind, on a CPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seat {
    pub(crate) ink: Ink,
    /// In very few characters.
    pub(crate) label: String,
    /// In words.
    pub(crate) text: String,
}

impl Key {
    /// A key in the ink of series `number`.
    pub(crate) fn series(number: usize, name: impl Into<String>) -> Key {
        Key { name: name.into(), ink: Ink::Series(number), dotted: false }
    }
}

impl Plot {
    /// The meaning of the colours; empty if there is only one.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            // A panel with one line is named by its axis.
            Plot::Lines(plots) => {
                let key = |l: &Line| Key { name: l.name.clone(), ink: l.ink, dotted: l.dotted };
                plots.iter().filter(|p| p.lines.len() > 1).flat_map(|p| p.lines.iter().map(key)).collect()
            }
            Plot::Rows(plot) => plot.keys.clone(),
            Plot::Heat(_) => {
                let steps = [(0, "idle"), (2, "25 %"), (4, "50 %"), (6, "75 %"), (8, "busy all the time")];
                steps.map(|(step, name)| Key { ink: Ink::Heat(step), ..Key::series(step, name) }).to_vec()
            }
            Plot::Sockets(machine) => machine.keys.clone(),
        }
    }
}

type Range = (f64, f64);

/// All values that a line plot shows along x and along y.
pub(crate) fn line_ranges(plot: &LinePlot) -> (Range, Range) {
    let dots = || plot.lines.iter().flat_map(|l| &l.dots);
    let bars = |d: &Dot| [d.y, d.bar.map_or(d.y, |b| b.0), d.bar.map_or(d.y, |b| b.1)];
    (plot.x.range(dots().map(|d| d.x)), plot.y.range(dots().flat_map(bars)))
}

/// All values that a row plot shows.
pub(crate) fn row_range(plot: &RowPlot) -> Range {
    let of = |row: &Row| -> Vec<f64> {
        let shown = row.values.iter().flatten().copied();
        let shown: Vec<f64> = if plot.stacked { vec![shown.sum()] } else { shown.collect() };
        shown.into_iter().chain(row.interval.into_iter().flat_map(|i| [i.0, i.1])).collect()
    };
    plot.x.range(
        plot.rows
            .iter()
            .flat_map(of)
            .chain(plot.reference)
            .chain(plot.band.into_iter().flat_map(|b| [b.0, b.1])),
    )
}

impl Plot {
    /// The axes that charts may share, with the range that this one needs.
    fn axes(&mut self) -> Vec<(Range, &mut Axis)> {
        match self {
            Plot::Lines(plots) => {
                let ranges = plots.iter_mut().map(|plot| (line_ranges(plot), plot));
                ranges.flat_map(|((x, y), plot)| [(x, &mut plot.x), (y, &mut plot.y)]).collect()
            }
            Plot::Rows(plot) => vec![(row_range(plot), &mut plot.x)],
            Plot::Heat(_) | Plot::Sockets(_) => Vec::new(),
        }
    }
}

/// Gives the charts of each family the same axes.
pub(crate) fn share_axes(charts: &mut [Chart]) {
    let mut all: BTreeMap<(String, usize), Range> = BTreeMap::new();
    for chart in charts.iter_mut() {
        for (n, (own, _)) in chart.plot.axes().into_iter().enumerate() {
            let range = all.entry((chart.family.clone(), n)).or_insert(own);
            *range = (range.0.min(own.0), range.1.max(own.1));
        }
    }
    for chart in charts {
        for (n, (_, axis)) in chart.plot.axes().into_iter().enumerate() {
            let range = all.get(&(chart.family.clone(), n)).copied();
            axis.at_least = range.filter(|range| range.0.is_finite() && range.1.is_finite());
        }
    }
}
