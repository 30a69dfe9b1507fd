//! Charts of rows: names with stacked bars, with dots and intervals, or with parts of 1 over time (heat maps).

use super::ink::Ink;
use super::lines::X_AXIS_HEIGHT;
use super::pen::{Pen, WIDTH, wide};
use super::scale::Scale;
use super::{HeatPlot, Row, RowPlot, row_range};
use crate::lists::span;
use crate::units::{figure, short, shortened};

const ROW: f64 = 46.0;
const TOP: f64 = 14.0;
/// Room for the sum at the end of a bar.
const RIGHT: f64 = WIDTH - 90.0;
/// Names longer than this part of the width are cut.
const NAME_MAX: f64 = 0.46;
/// Half of a bar's height.
const HALF: f64 = ROW * 0.33;
/// Marked rows are drawn this strong.
const FAINT: f64 = 0.45;

/// A chart's area and its horizontal axis.
struct Field {
    x: Scale,
    left: f64,
    right: f64,
}

impl Field {
    fn x(&self, value: f64) -> f64 {
        self.x.place(value, self.left, self.right)
    }

    /// Ticks, lines above them, and the name of the axis.
    fn axis(&self, pen: &mut Pen, label: &str, bottom: f64, mesh: bool) {
        for tick in self.x.ticks() {
            let x = self.x(*tick);
            if mesh {
                pen.line(&[(x, TOP), (x, bottom)], Ink::Grid, 2);
            }
            pen.text((x, bottom + 24.0), "middle", Ink::Muted, &short(*tick));
        }
        pen.line(&[(self.left, TOP), (self.left, bottom), (self.right, bottom)], Ink::Axis, 2);
        pen.text((WIDTH - 24.0, bottom + 64.0), "end", Ink::Muted, label);
    }
}

/// Draws the rows, the first at the top; returns the height.
pub(super) fn draw(pen: &mut Pen, plot: &RowPlot) -> f64 {
    let (low, high) = row_range(plot);
    // The page makes the text of rows a little larger on narrow screens.
    let room = |name: &str| wide(name) * 1.15 + 20.0;
    let longest = plot.rows.iter().map(|row| room(&row.name)).fold(40.0, f64::max);
    let left = longest.min(WIDTH * NAME_MAX);
    let fits = ((left - 20.0) / (room("x") - 20.0) + 0.01) as usize;
    let field = Field { x: plot.x.scale([low, high].into_iter(), 5), left, right: RIGHT };
    let bottom = TOP + ROW * plot.rows.len().max(1) as f64;
    if let Some((from, to)) = plot.band {
        pen.fill([field.x(from), TOP, field.x(to), bottom], Ink::Grid, 0.7);
    }
    field.axis(pen, &plot.x.label, bottom, true);
    if let Some(x) = plot.reference.map(|x| field.x(x)) {
        pen.dots(&[(x, TOP), (x, bottom)], Ink::Axis);
    }
    for (at, row) in plot.rows.iter().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5);
        let long = row.name.chars().count() > fits;
        let name = if long { shortened(&row.name, fits.saturating_sub(1)) } else { row.name.clone() };
        pen.text((left - 12.0, y), "end", Ink::Text, &name);
        if plot.stacked { stack(pen, &field, plot, row, y) } else { dots(pen, &field, plot, row, y) }
    }
    bottom + X_AXIS_HEIGHT
}

/// The figures of a part of a row in words.
fn told(plot: &RowPlot, row: &Row, key: &str, value: f64) -> String {
    let interval = row.interval.map_or(String::new(), |(a, b)| format!(" ({} to {})", figure(a), figure(b)));
    let marked = if row.marked { "; marked" } else { "" };
    let what = if key == plot.x.label { key.to_owned() } else { format!("{key}, {}", plot.x.label) };
    format!("{}: {what} {}{interval}{marked}", row.name, figure(value))
}

fn stack(pen: &mut Pen, field: &Field, plot: &RowPlot, row: &Row, y: f64) {
    let mut sum = 0.0;
    let strong = if row.marked { FAINT } else { 1.0 };
    for (value, key) in row.values.iter().zip(&plot.keys) {
        let Some(value) = value.filter(|value| *value > 0.0) else { continue };
        let area = [field.x(sum), y - HALF, field.x(sum + value), y + HALF];
        pen.fill(area, key.ink, strong);
        pen.tell(area, &told(plot, row, &key.name, value));
        sum += value;
    }
    pen.text((field.x(sum) + 10.0, y), "start", Ink::Text, &short(sum));
}

fn dots(pen: &mut Pen, field: &Field, plot: &RowPlot, row: &Row, y: f64) {
    let (low, high) = span(row.values.iter().flatten().copied());
    if low < high {
        pen.line(&[(field.x(low), y), (field.x(high), y)], Ink::Axis, 2);
    }
    if let Some((from, to)) = row.interval {
        let ink = plot.keys.first().map_or(Ink::Text, |key| key.ink);
        pen.bar((field.x(from), y), (field.x(to), y), ink, 4);
    }
    for (number, (value, key)) in row.values.iter().zip(&plot.keys).enumerate() {
        let Some(value) = value else { continue };
        let at = (field.x(*value), y);
        pen.marker(at, number, key.ink, row.marked);
        pen.tell_at(at, &told(plot, row, &key.name, *value));
    }
}

/// Height of all rows of a heat map together, at most, and of one.
const HEAT_MAX: f64 = 700.0;
const HEAT_ROW_MAX: f64 = 40.0;
/// Names closer to each other than this are thinned out.
const NAME_HEIGHT: f64 = 30.0;

/// Draws a heat map, the first row at the top; returns the height.
pub(super) fn draw_heat(pen: &mut Pen, plot: &HeatPlot) -> f64 {
    let count = plot.rows.len().max(1) as f64;
    let height = (HEAT_MAX / count).min(HEAT_ROW_MAX);
    let every = (NAME_HEIGHT / height).ceil().max(1.0) as usize;
    let (from, to) = span(plot.edges.iter().copied().filter(|v| v.is_finite()));
    let field = Field { x: Scale::exact(from, to, 6), left: 110.0, right: WIDTH - 44.0 };
    let bottom = TOP + height * count;
    for (at, (name, parts)) in plot.rows.iter().enumerate() {
        let top = TOP + height * at as f64;
        if at % every == 0 {
            pen.text((field.left - 12.0, top + height / 2.0), "end", Ink::Muted, name);
        }
        for (from, to, step) in runs(&plot.edges, parts) {
            pen.fill([field.x(from), top, field.x(to), top + height], Ink::Heat(step), 1.0);
        }
    }
    field.axis(pen, "Seconds", bottom, false);
    bottom + X_AXIS_HEIGHT
}

/// Neighbours of the same step are one rectangle: (from, to, step). What is not known is left out.
fn runs(edges: &[f64], parts: &[Option<f64>]) -> Vec<(f64, f64, usize)> {
    let mut runs: Vec<(f64, f64, usize)> = Vec::new();
    for (part, edge) in parts.iter().zip(edges.windows(2)) {
        let Some(part) = part else { continue };
        let step = (part.clamp(0.0, 1.0) * (Ink::HEAT_STEPS - 1) as f64).round() as usize;
        match runs.last_mut() {
            Some(last) if last.2 == step && last.1 == edge[0] => last.1 = edge[1],
            _ => runs.push((edge[0], edge[1], step)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_colour_are_one_rectangle() {
        let edges = [0.0, 1.0, 2.0, 3.0, 4.0];
        let parts = [Some(1.0), Some(0.99), None, Some(7.0)];
        assert_eq!(runs(&edges, &parts), [(0.0, 2.0, 8), (3.0, 4.0, 8)]);
        assert_eq!(runs(&[], &parts), []);
    }
}
