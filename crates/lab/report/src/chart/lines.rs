//! Line plots.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::ink::Ink;
use super::line_ranges;
use super::scale::Scale;
use super::svg::{Area, CHAR_WIDTH, DOTTED_WIDTH, Drawn, Hit, TEXT, anchored, text, x_title};
use super::{Dot, Line, LinePlot};
use crate::units::{figure, short};

/// Room below a plot for ticks and the axis' name.
pub(crate) const X_AXIS_HEIGHT: u32 = 84;
/// Room above a plot for the vertical axis' name.
const TOP: u32 = 54;
/// Room left of a plot for tick labels.
const LEFT: u32 = 96;
/// Room right of a plot: half a tick label.
const RIGHT: u32 = 44;
const MARKER: i32 = 8;
const LINE_WIDTH: u32 = 4;

type Chart2d<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

/// Draws a line plot; without the horizontal axis' labels if another plot below has them.
/// The figures of its markers are added to `hits`.
pub(crate) fn draw(root: &Area<'_>, plot: &LinePlot, with_x: bool, hits: &mut Vec<Hit>) -> Drawn {
    let (x, y) = line_ranges(plot);
    let tall = root.dim_in_pixel().1 > 300;
    let x = plot.x.scale([x.0, x.1].into_iter(), 6);
    let y = plot.y.scale([y.0, y.1].into_iter(), if tall { 6 } else { 3 });
    let mut chart = ChartBuilder::on(root)
        .margin_top(TOP)
        .margin_right(RIGHT)
        .x_label_area_size(if with_x { X_AXIS_HEIGHT } else { 8 })
        .y_label_area_size(LEFT)
        .build_cartesian_2d(x, y)?;
    mesh(&mut chart, with_x)?;
    let style = anchored(Ink::Muted, HPos::Left, VPos::Center);
    root.draw_text(&plot.y.label, &style, (12, 20))?;
    if with_x {
        x_title(root, &plot.x.label, RIGHT)?;
    }
    flags(&chart, plot)?;
    for (at, line) in plot.lines.iter().enumerate() {
        draw_line(&chart, line, at)?;
        let area = chart.plotting_area();
        let dots = line.dots.iter().filter(|_| line.markers);
        hits.extend(dots.map(|dot| Hit::around(area.map_coordinate(&(dot.x, dot.y)), told(plot, line, dot))));
    }
    Ok(())
}

/// The figures of a marker in words.
fn told(plot: &LinePlot, line: &Line, dot: &Dot) -> String {
    let name = if line.name.is_empty() { String::new() } else { format!("{}: ", line.name) };
    let bar = dot.bar.map(|(low, high)| (figure(low), figure(high))).filter(|(low, high)| low != high);
    let bar = bar.map_or(String::new(), |(low, high)| format!(" ({low} to {high})"));
    let marked = if dot.marked { "; marked" } else { "" };
    format!("{name}{} {}, {} {}{bar}{marked}", plot.x.label, figure(dot.x), plot.y.label, figure(dot.y))
}

fn mesh(chart: &mut Chart2d<'_, '_>, with_x: bool) -> Drawn {
    let labels = |value: &f64| short(*value);
    let nothing = |_: &f64| String::new();
    chart
        .configure_mesh()
        .bold_line_style(Ink::Grid.rgb().stroke_width(2))
        .light_line_style(TRANSPARENT)
        .axis_style(Ink::Axis.rgb().stroke_width(2))
        .label_style(text(Ink::Muted))
        .x_label_formatter(if with_x { &labels } else { &nothing })
        .y_label_formatter(&labels)
        .draw()
}

/// Vertical marks with a text at the top, on the side that has room.
fn flags(chart: &Chart2d<'_, '_>, plot: &LinePlot) -> Drawn {
    let area = chart.plotting_area();
    let (left, right) = (area.get_x_axis_pixel_range().start, area.get_x_axis_pixel_range().end);
    let (low, high) = (chart.y_range().start, chart.y_range().end);
    for (x, name) in &plot.flags {
        let style = Ink::Muted.rgb().stroke_width(DOTTED_WIDTH);
        area.draw(&PathElement::new(vec![(*x, low), (*x, high)], style))?;
        let at = area.map_coordinate(&(*x, high)).0;
        let wide = (name.chars().count() as f64 * f64::from(TEXT) * CHAR_WIDTH) as i32 + 12;
        let (side, shift) =
            if at + wide > right && at - wide > left { (HPos::Right, -10) } else { (HPos::Left, 10) };
        let label = Text::new(name.clone(), (shift, 6), anchored(Ink::Text, side, VPos::Top));
        area.draw(&(EmptyElement::at((*x, high)) + label))?;
    }
    Ok(())
}

fn draw_line(chart: &Chart2d<'_, '_>, line: &Line, number: usize) -> Drawn {
    let area = chart.plotting_area();
    let width = if line.dotted { DOTTED_WIDTH } else { LINE_WIDTH };
    let style = line.ink.rgb().stroke_width(width);
    let path: Vec<(f64, f64)> = line.dots.iter().map(|d| (d.x, d.y)).collect();
    if path.len() > 1 {
        area.draw(&PathElement::new(path, style))?;
    }
    for dot in &line.dots {
        bar(chart, dot, line.ink)?;
    }
    for dot in line.dots.iter().filter(|_| line.markers || line.dots.len() == 1) {
        marker(area, (dot.x, dot.y), number, line.ink, dot.marked)?;
    }
    Ok(())
}

fn bar(chart: &Chart2d<'_, '_>, dot: &Dot, ink: Ink) -> Drawn {
    let Some((low, high)) = dot.bar else { return Ok(()) };
    let style = ink.rgb().stroke_width(2);
    let area = chart.plotting_area();
    area.draw(&PathElement::new(vec![(dot.x, low), (dot.x, high)], style))?;
    for end in [low, high] {
        area.draw(&(EmptyElement::at((dot.x, end)) + PathElement::new(vec![(-7, 0), (7, 0)], style)))?;
    }
    Ok(())
}

/// A marker whose shape goes with the number of its series; hollow for points that are marked.
pub(crate) fn marker<X, Y>(
    area: &DrawingArea<SVGBackend<'_>, Cartesian2d<X, Y>>,
    at: (f64, f64),
    number: usize,
    ink: Ink,
    hollow: bool,
) -> Drawn
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let fill = if hollow { Ink::Paper } else { ink };
    let r = MARKER;
    let corners = match number % 4 {
        0 => {
            area.draw(&(EmptyElement::at(at) + Circle::new((0, 0), r, fill.rgb().filled())))?;
            return area.draw(&(EmptyElement::at(at) + Circle::new((0, 0), r, ink.rgb().stroke_width(3))));
        }
        1 => vec![(-r, -r), (r, -r), (r, r), (-r, r)],
        2 => vec![(0, -r - 2), (r + 2, r), (-r - 2, r)],
        _ => vec![(0, -r - 3), (r + 3, 0), (0, r + 3), (-r - 3, 0)],
    };
    let mut outline = corners.clone();
    outline.extend([corners[0], corners[1]]);
    area.draw(&(EmptyElement::at(at) + Polygon::new(corners, fill.rgb().filled())))?;
    area.draw(&(EmptyElement::at(at) + PathElement::new(outline, ink.rgb().stroke_width(3))))
}
