//! A chart as plain data: what is drawn, and the same figures as a table.

use super::ink::Ink;
use super::scale::Scale;
use crate::lists::span;
use crate::table::Table;

/// One figure of the page.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// Unique on the page: the id of its element and the stem of its downloads.
    pub(crate) id: String,
    pub(crate) title: String,
    /// What all of it has in common: store, size, durability, route.
    pub(crate) context: String,
    pub(crate) plot: Plot,
    /// The figures of the chart.
    pub(crate) table: Table,
    /// What a reader must know, such as a slope or why something is missing.
    pub(crate) remarks: Vec<String>,
    /// Charts with the same word here share their axes. Empty: it stands alone.
    pub(crate) family: String,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) enum Plot {
    Lines(LinePlot),
    Rows(RowPlot),
    Heat(HeatPlot),
    /// Line plots below each other that share the horizontal axis.
    Panels(Vec<LinePlot>),
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

/// Lines over two axes of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinePlot {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// Vertical marks: (x, text).
    pub(crate) flags: Vec<(f64, String)>,
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
    /// What the colours mean.
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
    pub(crate) x: Axis,
    /// Start of each column and the end of the last: one more than columns.
    pub(crate) edges: Vec<f64>,
    pub(crate) rows: Vec<(String, Vec<Option<f64>>)>,
}

impl Key {
    /// A key in the ink of series `number`.
    pub(crate) fn series(number: usize, name: impl Into<String>) -> Key {
        Key { name: name.into(), ink: Ink::Series(number), dotted: false }
    }
}

impl Plot {
    /// What the colours mean; nothing if there is one meaning only.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let of = |lines: &[Line]| -> Vec<Key> {
            let key = |l: &Line| Key { name: l.name.clone(), ink: l.ink, dotted: l.dotted };
            lines.iter().map(key).collect()
        };
        match self {
            Plot::Lines(plot) => of(&plot.lines),
            Plot::Rows(plot) => plot.keys.clone(),
            Plot::Heat(_) => {
                let steps = [(0, "idle"), (2, "25 %"), (4, "50 %"), (6, "75 %"), (8, "busy all the time")];
                let key = |(step, name)| Key { ink: Ink::Heat(step), ..Key::series(step, name) };
                steps.map(key).to_vec()
            }
            // A panel with one line is named by its axis.
            Plot::Panels(plots) => {
                plots.iter().filter(|p| p.lines.len() > 1).flat_map(|p| of(&p.lines)).collect()
            }
        }
    }
}
