//! Charts of rows: names with stacked bars, with dots and intervals, or with parts of 1 over time (heat maps).

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::ink::Ink;
use super::lines::marker;
use super::row_range;
use super::scale::Scale;
use super::svg::{Area, CHAR_WIDTH, DOTTED_WIDTH, Drawn, Hit, TEXT, WIDTH, anchored, text, x_title};
use super::{HeatPlot, Row, RowPlot};
use crate::lists::span;
use crate::units::{figure, short, shortened};

const ROW: u32 = 46;
const TOP: u32 = 14;
const BOTTOM: u32 = 84;
/// Room for the sum at the end of a bar.
const RIGHT: u32 = 90;
/// Names longer than this part of the width are cut.
const NAME_MAX: f64 = 0.46;
/// Half of a bar's height in rows.
const HALF: f64 = 0.33;
/// Marked rows are drawn this strong.
const FAINT: f64 = 0.45;

type Grid<'b> = DrawingArea<SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

/// Height in units.
pub(crate) fn height(plot: &RowPlot) -> u32 {
    TOP + BOTTOM + ROW * u32::try_from(plot.rows.len()).unwrap_or(1).max(1)
}

/// Draws the rows, the first at the top.
pub(crate) fn draw(root: &Area<'_>, plot: &RowPlot, hits: &mut Vec<Hit>) -> Drawn {
    let (low, high) = row_range(plot);
    let x = plot.x.scale([low, high].into_iter(), 5);
    let bounds = x.bounds();
    let count = plot.rows.len().max(1) as f64;
    let centre = |at: usize| count - at as f64 - 0.5;
    let y = Scale::bare(0.0, count).with_ticks((0..plot.rows.len()).map(centre).collect());
    // The page makes the text of rows a little larger on narrow screens.
    let char_width = f64::from(TEXT) * CHAR_WIDTH * 1.15;
    let longest = plot.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0) as f64;
    let room = (longest * char_width + 20.0).clamp(40.0, f64::from(WIDTH) * NAME_MAX);
    let fits = ((room - 20.0) / char_width) as usize;
    let name = |value: &f64| {
        let at = (count - value - 0.5).round() as usize;
        plot.rows.get(at).map_or_else(String::new, |row| cut(&row.name, fits))
    };
    let mut chart = ChartBuilder::on(root)
        .margin_top(TOP)
        .margin_right(RIGHT)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(room as u32)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .bold_line_style(Ink::Grid.rgb().stroke_width(2))
        .light_line_style(TRANSPARENT)
        .axis_style(Ink::Axis.rgb().stroke_width(2))
        .label_style(text(Ink::Muted))
        .y_label_style(text(Ink::Text))
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&name)
        .draw()?;
    x_title(root, &plot.x.label, 24)?;
    let area = chart.plotting_area();
    if let Some((from, to)) = plot.band {
        let corners = [(from.max(bounds.0), 0.0), (to.min(bounds.1), count)];
        area.draw(&Rectangle::new(corners, Ink::Grid.rgb().mix(0.7).filled()))?;
    }
    if let Some(x) = plot.reference {
        let style = Ink::Axis.rgb().stroke_width(DOTTED_WIDTH);
        area.draw(&PathElement::new(vec![(x, 0.0), (x, count)], style))?;
    }
    for (at, row) in plot.rows.iter().enumerate() {
        if plot.stacked {
            stack(area, plot, row, centre(at))?
        } else {
            dots(area, plot, row, centre(at))?
        }
        hits.extend(told(area, plot, row, centre(at)));
    }
    Ok(())
}

/// The figures that each part of a row tells.
fn told(area: &Grid<'_>, plot: &RowPlot, row: &Row, y: f64) -> Vec<Hit> {
    let mut from = 0.0;
    let mut hits = Vec::new();
    for (value, key) in row.values.iter().zip(&plot.keys) {
        let Some(value) = value else { continue };
        let interval =
            row.interval.map_or(String::new(), |(a, b)| format!(" ({} to {})", figure(a), figure(b)));
        let marked = if row.marked { "; marked" } else { "" };
        let what = if key.name == plot.x.label {
            key.name.clone()
        } else {
            format!("{}, {}", key.name, plot.x.label)
        };
        let text = format!("{}: {what} {}{interval}{marked}", row.name, figure(*value));
        if !plot.stacked {
            hits.push(Hit::around(area.map_coordinate(&(*value, y)), text));
        } else if *value > 0.0 {
            let corners = [(from, y + HALF), (from + value, y - HALF)].map(|at| area.map_coordinate(&at));
            hits.push(Hit::between(corners[0], corners[1], text));
            from += value;
        }
    }
    hits
}

fn cut(name: &str, fits: usize) -> String {
    if name.chars().count() <= fits { name.to_owned() } else { shortened(name, fits.saturating_sub(1)) }
}

fn stack(area: &Grid<'_>, plot: &RowPlot, row: &Row, y: f64) -> Drawn {
    let mut from = 0.0;
    let strong = if row.marked { FAINT } else { 1.0 };
    for (value, key) in row.values.iter().zip(&plot.keys) {
        let to = from + value.unwrap_or(0.0).max(0.0);
        if to > from {
            let style = key.ink.rgb().mix(strong).filled();
            area.draw(&Rectangle::new([(from, y + HALF), (to, y - HALF)], style))?;
        }
        from = to;
    }
    let sum = Text::new(short(from), (10, 0), anchored(Ink::Text, HPos::Left, VPos::Center));
    area.draw(&(EmptyElement::at((from, y)) + sum))
}

fn dots(area: &Grid<'_>, plot: &RowPlot, row: &Row, y: f64) -> Drawn {
    let (low, high) = span(row.values.iter().flatten().copied());
    if low < high {
        area.draw(&PathElement::new(vec![(low, y), (high, y)], Ink::Axis.rgb().stroke_width(2)))?;
    }
    let first = plot.keys.first().map_or(Ink::Text, |key| key.ink);
    if let Some((from, to)) = row.interval {
        let style = first.rgb().stroke_width(4);
        area.draw(&PathElement::new(vec![(from, y), (to, y)], style))?;
        for end in [from, to] {
            area.draw(&(EmptyElement::at((end, y)) + PathElement::new(vec![(0, -9), (0, 9)], style)))?;
        }
    }
    for (number, (value, key)) in row.values.iter().zip(&plot.keys).enumerate() {
        if let Some(value) = value {
            marker(area, (*value, y), number, key.ink, row.marked)?;
        }
    }
    Ok(())
}

const LEFT: u32 = 110;
const HEAT_RIGHT: u32 = 44;
/// Height of all rows together, at most.
const ROWS_MAX: u32 = 700;
const ROW_MAX: u32 = 40;
/// Names closer to each other than this are thinned out.
const NAME_HEIGHT: f64 = 30.0;

/// Height of a heat map in units.
pub(crate) fn heat_height(plot: &HeatPlot) -> u32 {
    let rows = u32::try_from(plot.rows.len()).unwrap_or(1).max(1);
    TOP + BOTTOM + (rows.saturating_mul(ROW_MAX)).min(ROWS_MAX)
}

/// Draws the map, the first row at the top.
pub(crate) fn draw_heat(root: &Area<'_>, plot: &HeatPlot) -> Drawn {
    let count = plot.rows.len().max(1) as f64;
    let row_height = f64::from(heat_height(plot) - TOP - BOTTOM) / count;
    let every = (NAME_HEIGHT / row_height).ceil().max(1.0) as usize;
    let centre = |at: usize| count - at as f64 - 0.5;
    let y = Scale::bare(0.0, count).with_ticks((0..plot.rows.len()).step_by(every).map(centre).collect());
    let (from, to) = plot.x.range(plot.edges.iter().copied());
    let x = Scale::bare(from, to).with_ticks(inner_ticks(from, to));
    let name = |value: &f64| {
        let at = (count - value - 0.5).round() as usize;
        plot.rows.get(at).map_or_else(String::new, |row| row.0.clone())
    };
    let mut chart = ChartBuilder::on(root)
        .margin_top(TOP)
        .margin_right(HEAT_RIGHT)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .axis_style(Ink::Axis.rgb().stroke_width(2))
        .label_style(text(Ink::Muted))
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&name)
        .draw()?;
    x_title(root, &plot.x.label, HEAT_RIGHT)?;
    for (at, (_, parts)) in plot.rows.iter().enumerate() {
        let (top, bottom) = (count - at as f64, count - at as f64 - 1.0);
        for (from, to, step) in runs(&plot.edges, parts) {
            let style = Ink::Heat(step).rgb().filled();
            chart.plotting_area().draw(&Rectangle::new([(from, top), (to, bottom)], style))?;
        }
    }
    Ok(())
}

/// Round ticks that lie in the range.
fn inner_ticks(from: f64, to: f64) -> Vec<f64> {
    let round = Scale::linear(from, to, 6);
    round.ticks().iter().copied().filter(|t| (from..=to).contains(t)).collect()
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
