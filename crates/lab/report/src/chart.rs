//! Charts: shapes over axes as plain data; `draw` makes SVG of them.

mod draw;
mod ink;

use std::collections::BTreeMap;

use carmine_topology::Cpu;

use crate::lists::{grouped, span};
use crate::table::Table;
use crate::units::{figure, short};

pub(crate) use draw::picture;
pub(crate) use ink::{Ink, style_sheet};

/// One figure of the page.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// Unique on the page: the id of its element and the stem of its downloads.
    pub(crate) id: String,
    pub(crate) title: String,
    /// The conditions of all its figures: store, size, durability, route.
    pub(crate) context: String,
    /// They stand below each other; the last has the horizontal axis that all share.
    pub(crate) plots: Vec<Plot>,
    /// The figures of the chart.
    pub(crate) table: Table,
    /// Remarks for the reader, such as a slope or why something is missing.
    pub(crate) remarks: Vec<String>,
    /// Charts with the same word here share their axes.
    pub(crate) family: String,
}

/// A place: x and y in units of the axes, or of the drawing.
pub(crate) type At = (f64, f64);
/// Two corners of a rectangle: x and y of the one, x and y of the other.
pub(crate) type Area = [f64; 4];
/// The least and the largest.
pub(crate) type Range = (f64, f64);

/// Shapes over two axes.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) x: Axis,
    pub(crate) y: Upright,
    /// The meaning of the colours.
    pub(crate) keys: Vec<Key>,
    pub(crate) shapes: Vec<Shape>,
}

/// The vertical axis of a plot.
#[derive(Clone, Debug)]
pub(crate) enum Upright {
    Numbers(Axis),
    /// Names of rows, of this height each: the first at the top reaches from 0 to 1.
    Rows(Vec<String>, f64),
    /// No axes: the CPUs of a machine in ascending order, and the threads that run on each.
    Sockets(Vec<(Cpu, Vec<Seat>)>),
}

/// An axis of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Axis {
    /// Name with its unit.
    pub(crate) label: String,
    /// Does not have to start at 0.
    pub(crate) floats: bool,
    /// Logarithmic where the values allow it.
    pub(crate) log: bool,
    /// Covers at least this range, so that charts can share an axis.
    pub(crate) at_least: Option<Range>,
}

/// A colour's meaning.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) dotted: bool,
}

/// A part of a drawing.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) ink: Ink,
    /// Its figures in words, for readers who point at it; may be empty.
    pub(crate) tells: String,
}

/// Its form, in units of the axes. A place at infinity is at the end of its axis.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// A line of this width; 0 is dotted.
    Line(Vec<At>, u32),
    /// An interval, with ends across it.
    Bar(At, At, u32),
    /// A marker whose shape goes with the number of its series; hollow if its figures are marked.
    Dot(At, usize, bool),
    /// A filled rectangle; 1 is the whole colour.
    Area(Area, f64),
    /// Text beside a place.
    Text(At, String),
}

/// A point of a line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dot {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// A bar from here to there.
    pub(crate) bar: Option<Range>,
    /// Drawn hollow: SHARED, NOISY, UNSTEADY, smoke.
    pub(crate) marked: bool,
}

/// A row: a value for each key, and an interval where there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) interval: Option<Range>,
    pub(crate) marked: bool,
}

/// A thread, or several of a kind, on a CPU.
#[derive(Clone, Debug)]
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
        Key { name: name.into(), ink: Ink::series(number), dotted: false }
    }
}

impl Axis {
    /// A linear axis from 0.
    pub(crate) fn from_zero(label: &str) -> Axis {
        Axis { label: label.into(), ..Axis::default() }
    }

    /// Widened to the range that the axis must cover.
    fn range(&self, (low, high): Range) -> Range {
        let told = self.at_least.into_iter().flat_map(|(low, high)| [low, high]);
        let zero = (!self.floats && !self.log).then_some(0.0);
        span([low, high].into_iter().chain(told).chain(zero).filter(|v| v.is_finite()))
    }
}

impl Shape {
    pub(crate) fn new(form: Form, ink: Ink) -> Shape {
        Shape { form, ink, tells: String::new() }
    }

    fn places(&self) -> Vec<At> {
        match &self.form {
            Form::Line(points, _) => points.clone(),
            Form::Bar(from, to, _) => vec![*from, *to],
            Form::Dot(at, ..) | Form::Text(at, _) => vec![*at],
            Form::Area([left, top, right, bottom], _) => vec![(*left, *top), (*right, *bottom)],
        }
    }
}

/// Bars one after the other are this part of a row high, on each side.
const HALF: f64 = 0.33;
/// Height of a row.
const ROW: f64 = 46.0;
/// Marked bars are drawn this strong.
const FAINT: f64 = 0.45;

impl Plot {
    /// An empty plot of numbers over numbers, from 0.
    pub(crate) fn new(x: &str, y: &str) -> Plot {
        let y = Upright::Numbers(Axis::from_zero(y));
        Plot { x: Axis::from_zero(x), y, keys: Vec::new(), shapes: Vec::new() }
    }

    /// A row for each name.
    pub(crate) fn rows(x: Axis, names: Vec<String>, tall: f64) -> Plot {
        Plot { x, y: Upright::Rows(names, tall), keys: Vec::new(), shapes: Vec::new() }
    }

    /// Rows with bars one after the other, or else with a dot for each value.
    pub(crate) fn of_rows(x: Axis, keys: Vec<Key>, rows: &[Row], stacked: bool) -> Plot {
        let mut plot = Plot::rows(x, rows.iter().map(|row| row.name.clone()).collect(), ROW);
        for (at, row) in rows.iter().enumerate() {
            let (mut sum, y) = (0.0, at as f64 + 0.5);
            let (low, high) = span(row.values.iter().flatten().copied());
            if low < high && !stacked {
                plot.line([(low, y), (high, y)].into(), Ink::AXIS, 2);
            }
            if let (Some((from, to)), Some(key)) = (row.interval, keys.first()) {
                plot.shapes.push(Shape::new(Form::Bar((from, y), (to, y), 4), key.ink));
            }
            for (number, (value, key)) in row.values.iter().zip(&keys).enumerate() {
                let Some(value) = value.filter(|value| !stacked || *value > 0.0) else { continue };
                let area = [sum, y - HALF, sum + value, y + HALF];
                let form = match stacked {
                    true => Form::Area(area, if row.marked { FAINT } else { 1.0 }),
                    false => Form::Dot((value, y), number, row.marked),
                };
                plot.shapes.push(Shape { form, ink: key.ink, tells: plot.describe(row, key, value) });
                sum += value;
            }
            let text = Form::Text((sum, y), short(sum));
            plot.shapes.extend(stacked.then(|| Shape::new(text, Ink::TEXT)));
        }
        Plot { keys, ..plot }
    }

    /// A value of a row in words.
    fn describe(&self, row: &Row, key: &Key, value: f64) -> String {
        let label = &self.x.label;
        let what = if key.name == *label { label.clone() } else { format!("{}, {label}", key.name) };
        format!("{}: {what} {}{}", row.name, figure(value), around(row.interval, row.marked))
    }

    /// A line without markers; one of width 0 is dotted.
    pub(crate) fn line(&mut self, points: Vec<At>, ink: Ink, width: u32) {
        self.shapes.push(Shape::new(Form::Line(points, width), ink));
    }

    /// A dotted line from the top to the bottom.
    pub(crate) fn upright(&mut self, x: f64, ink: Ink) {
        self.line(vec![(x, f64::NEG_INFINITY), (x, f64::INFINITY)], ink, 0);
    }

    /// A series with its key: a line, and a marker at each dot that shows its figures.
    pub(crate) fn series(&mut self, key: Key, dots: &[Dot]) {
        let points = dots.iter().map(|dot| (dot.x, dot.y)).collect();
        self.line(points, key.ink, if key.dotted { 0 } else { 4 });
        let number = self.keys.len();
        let y = match &self.y {
            Upright::Numbers(axis) => axis.label.clone(),
            _ => String::new(),
        };
        for dot in dots {
            let bar = dot.bar.map(|(low, high)| Form::Bar((dot.x, low), (dot.x, high), 2));
            self.shapes.extend(bar.map(|bar| Shape::new(bar, key.ink)));
            let (x, name, more) = (&self.x.label, &key.name, around(dot.bar, dot.marked));
            let tells = format!("{name}: {x} {}, {y} {}{more}", figure(dot.x), figure(dot.y));
            let form = Form::Dot((dot.x, dot.y), number, dot.marked);
            self.shapes.push(Shape { form, ink: key.ink, tells });
        }
        self.keys.push(key);
    }

    /// The ranges of all shapes along x and y.
    pub(crate) fn spans(&self) -> [Range; 2] {
        let places: Vec<At> = self.shapes.iter().flat_map(Shape::places).collect();
        let along = |of: fn(&At) -> f64| span(places.iter().map(of).filter(|v| v.is_finite()));
        [along(|at| at.0), along(|at| at.1)]
    }

    /// The ranges of its axes.
    fn ranges(&self) -> [Range; 2] {
        let [x, y] = self.spans();
        let y = match &self.y {
            Upright::Numbers(axis) => axis.range(y),
            Upright::Rows(names, _) => (0.0, names.len() as f64),
            Upright::Sockets(_) => y,
        };
        [self.x.range(x), y]
    }
}

/// An interval, and whether the figures are marked.
fn around(interval: Option<Range>, marked: bool) -> String {
    let interval = interval.map(|(low, high)| (figure(low), figure(high))).filter(|(low, high)| low != high);
    let interval = interval.map(|(low, high)| format!(" ({low} to {high})")).unwrap_or_default();
    interval + if marked { "; marked" } else { "" }
}

impl Chart {
    /// The meaning of the colours. A plot of one colour is named by its axis.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.plots.iter().filter(|plot| plot.keys.len() > 1).flat_map(|plot| &plot.keys)
    }
}

/// Gives the charts of each family the same axes.
pub(crate) fn share_axes(mut charts: Vec<Chart>) -> Vec<Chart> {
    let ranges = charts.iter().flat_map(|c| c.plots.iter().map(|plot| (c.family.clone(), plot.ranges())));
    let all = |ranges: &[[Range; 2]], side: usize| span(ranges.iter().flat_map(|r| [r[side].0, r[side].1]));
    let ranges = grouped(ranges).into_iter().map(|(family, r)| (family, (all(&r, 0), all(&r, 1))));
    let ranges: BTreeMap<String, (Range, Range)> = ranges.collect();
    for chart in &mut charts {
        for plot in &mut chart.plots {
            let (x, y) = ranges[&chart.family];
            plot.x.at_least = Some(x);
            if let Upright::Numbers(axis) = &mut plot.y {
                axis.at_least = Some(y);
            }
        }
    }
    charts
}
