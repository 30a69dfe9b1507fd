//! Line plots.

use super::ink::Ink;
use super::pen::{At, Pen, WIDTH, wide};
use super::scale::Scale;
use super::{Dot, Line, LinePlot, line_ranges};
use crate::units::{figure, short};

/// Room below a plot for ticks and the axis' name.
pub(super) const X_AXIS_HEIGHT: f64 = 84.0;
/// Height of a plot that stands alone, and of one of several without the horizontal axis.
const HEIGHT: f64 = 540.0;
const PANEL_HEIGHT: f64 = 198.0;
/// Room above a plot for the vertical axis' name.
const TOP: f64 = 54.0;
/// Room left of a plot for tick labels.
const LEFT: f64 = 104.0;
/// Room right of a plot: half a tick label.
const RIGHT: f64 = WIDTH - 44.0;

/// Draws plots below each other; the last has the horizontal axis. Returns the height.
pub(super) fn draw(pen: &mut Pen, plots: &[LinePlot]) -> f64 {
    let height = if plots.len() == 1 { HEIGHT - X_AXIS_HEIGHT } else { PANEL_HEIGHT };
    for (at, plot) in plots.iter().enumerate() {
        let top = at as f64 * height;
        let below = if at + 1 == plots.len() { 0.0 } else { 8.0 };
        Panel::new(plot, top + TOP, top + height - below).draw(pen, plot, below == 0.0);
    }
    plots.len() as f64 * height + X_AXIS_HEIGHT
}

/// A plot's place and scales.
struct Panel {
    x: Scale,
    y: Scale,
    top: f64,
    bottom: f64,
}

impl Panel {
    fn new(plot: &LinePlot, top: f64, bottom: f64) -> Panel {
        let (x, y) = line_ranges(plot);
        Panel {
            x: plot.x.scale([x.0, x.1].into_iter(), 6),
            y: plot.y.scale([y.0, y.1].into_iter(), if bottom - top > 200.0 { 6 } else { 3 }),
            top,
            bottom,
        }
    }

    fn at(&self, x: f64, y: f64) -> At {
        (self.x.place(x, LEFT, RIGHT), self.y.place(y, self.bottom, self.top))
    }

    fn draw(&self, pen: &mut Pen, plot: &LinePlot, with_x: bool) {
        for tick in self.y.ticks() {
            let y = self.y.place(*tick, self.bottom, self.top);
            pen.line(&[(LEFT, y), (RIGHT, y)], Ink::Grid, 2);
            pen.text((LEFT - 12.0, y), "end", Ink::Muted, &short(*tick));
        }
        for tick in self.x.ticks() {
            let x = self.x.place(*tick, LEFT, RIGHT);
            pen.line(&[(x, self.top), (x, self.bottom)], Ink::Grid, 2);
            if with_x {
                pen.text((x, self.bottom + 24.0), "middle", Ink::Muted, &short(*tick));
            }
        }
        pen.line(&[(LEFT, self.top), (LEFT, self.bottom), (RIGHT, self.bottom)], Ink::Axis, 2);
        pen.text((12.0, self.top - TOP + 20.0), "start", Ink::Muted, &plot.y.label);
        if with_x {
            pen.text((RIGHT, self.bottom + 64.0), "end", Ink::Muted, &plot.x.label);
        }
        // A flag's text stands on the side that has room.
        for (value, name) in &plot.flags {
            let x = self.x.place(*value, LEFT, RIGHT);
            pen.dots(&[(x, self.top), (x, self.bottom)], Ink::Muted);
            let (anchor, shift) =
                if x + wide(name) + 12.0 > RIGHT { ("end", -10.0) } else { ("start", 10.0) };
            pen.text((x + shift, self.top + 16.0), anchor, Ink::Text, name);
        }
        for (number, line) in plot.lines.iter().enumerate() {
            self.line(pen, plot, line, number);
        }
    }

    fn line(&self, pen: &mut Pen, plot: &LinePlot, line: &Line, number: usize) {
        let path: Vec<At> = line.dots.iter().map(|d| self.at(d.x, d.y)).collect();
        match path.len() {
            0 | 1 => {}
            _ if line.dotted => pen.dots(&path, line.ink),
            _ => pen.line(&path, line.ink, 4),
        }
        for (dot, at) in line.dots.iter().zip(path) {
            if let Some((low, high)) = dot.bar {
                pen.bar(self.at(dot.x, low), self.at(dot.x, high), line.ink, 2);
            }
            if line.markers || line.dots.len() == 1 {
                pen.marker(at, number, line.ink, dot.marked);
            }
            if line.markers {
                pen.tell_at(at, &told(plot, line, dot));
            }
        }
    }
}

/// The figures of a marker in words.
fn told(plot: &LinePlot, line: &Line, dot: &Dot) -> String {
    let name = if line.name.is_empty() { String::new() } else { format!("{}: ", line.name) };
    let bar = dot.bar.map(|(low, high)| (figure(low), figure(high))).filter(|(low, high)| low != high);
    let bar = bar.map_or(String::new(), |(low, high)| format!(" ({low} to {high})"));
    let marked = if dot.marked { "; marked" } else { "" };
    format!("{name}{} {}, {} {}{bar}{marked}", plot.x.label, figure(dot.x), plot.y.label, figure(dot.y))
}
