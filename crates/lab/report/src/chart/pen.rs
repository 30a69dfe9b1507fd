//! The elements of a drawing.

use std::fmt::Write as _;

use super::ink::Ink;
use super::{Area, At};
use crate::units::shortened;

/// Units of a drawing's width. It is shown smaller, so that a unit is finer than a pixel.
pub(crate) const WIDTH: f64 = 960.0;
/// Text height in units.
pub(crate) const TEXT: f64 = 22.0;
/// Width of a character in parts of its height, about.
const CHAR_WIDTH: f64 = 0.58;
/// Half of the least width and height that a finger or pointer finds.
const REACH: f64 = 12.0;
/// Characters of a text that fit over a chart; who listens hears all.
const SHOWN_MAX: usize = 76;
/// Half of a marker.
const MARKER: f64 = 8.0;

/// Text as part of an SVG.
pub(crate) fn escaped(text: &str) -> String {
    maud::html! { (text) }.into_string()
}

/// The width of a text, about.
pub(crate) fn wide(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT * CHAR_WIDTH
}

fn path(points: &[At]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// Writes a drawing. What its marks tell lies over all of it.
#[derive(Debug, Default)]
pub(crate) struct Pen {
    pub(crate) drawn: String,
    pub(crate) hits: String,
}

impl Pen {
    /// Text whose middle is at this height; `anchor` is `start`, `middle` or `end`.
    pub(crate) fn text(&mut self, at: At, anchor: &str, ink: Ink, text: &str) {
        self.text_of(TEXT, at, anchor, ink, text);
    }

    /// The same of another size.
    pub(crate) fn text_of(&mut self, size: f64, (x, y): At, anchor: &str, ink: Ink, text: &str) {
        let (y, ink, text) = (y + TEXT * 0.35, ink.hex(), escaped(text));
        // Writing to a String does not fail: here and below.
        let _ = writeln!(
            self.drawn,
            "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{ink}\">{text}</text>"
        );
    }

    /// A line through all points; one of width 0 is dotted.
    pub(crate) fn line(&mut self, points: &[At], ink: Ink, width: u32) {
        let style = match width {
            0 => "stroke-width=\"3\" stroke-dasharray=\"2 9\" stroke-linecap=\"round\"".to_owned(),
            _ => format!("stroke-width=\"{width}\""),
        };
        let (points, ink) = (path(points), ink.hex());
        let _ =
            writeln!(self.drawn, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{ink}\" {style}/>");
    }

    /// A filled rectangle; `strong` is 1 for the whole colour.
    pub(crate) fn fill(&mut self, area: Area, ink: Ink, strong: f64) {
        self.rect(area, &format!("fill=\"{}\" fill-opacity=\"{strong}\"", ink.hex()));
    }

    /// The outline of a rectangle.
    pub(crate) fn frame(&mut self, area: Area, ink: Ink, width: u32) {
        self.rect(area, &format!("fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" rx=\"5\"", ink.hex()));
    }

    fn rect(&mut self, [left, top, right, bottom]: Area, style: &str) {
        let (width, height) = ((right - left).max(0.0), (bottom - top).max(0.0));
        let _ = writeln!(
            self.drawn,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {style}/>"
        );
    }

    /// A marker whose shape goes with the number of its series; hollow for points that are marked. Returns the area in
    /// which a finger or pointer finds it.
    pub(crate) fn marker(&mut self, (x, y): At, number: usize, ink: Ink, hollow: bool) -> Area {
        const R: f64 = MARKER;
        let corners: &[At] = match number % 4 {
            0 => &[],
            1 => &[(-R, -R), (R, -R), (R, R), (-R, R)],
            2 => &[(0.0, -R - 2.0), (R + 2.0, R), (-R - 2.0, R)],
            _ => &[(0.0, -R - 3.0), (R + 3.0, 0.0), (0.0, R + 3.0), (-R - 3.0, 0.0)],
        };
        let (fill, stroke) = (if hollow { Ink::Paper } else { ink }.hex(), ink.hex());
        let style = format!("fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"3\"");
        let points: Vec<At> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        let _ = match corners {
            [] => writeln!(self.drawn, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{R}\" {style}/>"),
            _ => writeln!(self.drawn, "<polygon points=\"{}\" {style}/>", path(&points)),
        };
        [x - REACH, y - REACH, x + REACH, y + REACH]
    }

    /// A bar with ends across it.
    pub(crate) fn bar(&mut self, from: At, to: At, ink: Ink, width: u32) {
        self.line(&[from, to], ink, width);
        let (dx, dy) = if from.0 == to.0 { (MARKER, 0.0) } else { (0.0, MARKER) };
        for (x, y) in [from, to] {
            self.line(&[(x - dx, y - dy), (x + dx, y + dy)], ink, width);
        }
    }

    /// The figures of the mark in this area, shown above it and within the drawing; a very narrow one is widened.
    pub(crate) fn tell(&mut self, [mut left, top, mut right, bottom]: Area, text: &str) {
        if right - left < REACH {
            (left, right) = (left - REACH / 2.0, right + REACH / 2.0);
        }
        let shown = shortened(text, SHOWN_MAX);
        let half = (wide(&shown) / 2.0).min(WIDTH / 2.0);
        let (x, y) = (((left + right) / 2.0).clamp(half, WIDTH - half), (top - 8.0).max(TEXT));
        let (label, shown, width, height) = (escaped(text), escaped(&shown), right - left, bottom - top);
        let _ = write!(
            self.hits,
            "<g class=\"hit\" role=\"img\" tabindex=\"-1\" aria-label=\"{label}\"><rect x=\"{left:.0}\" y=\"{top:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\"/><text class=\"tip\" x=\"{x:.0}\" y=\"{y:.0}\" \
             text-anchor=\"middle\" font-size=\"20\">{shown}</text></g>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_the_drawing_and_is_text() {
        let mut pen = Pen::default();
        pen.tell([-7.0, -7.0, 17.0, 17.0], &format!("a<b \"c\" {}", "x".repeat(200)));
        pen.tell([950.0, 500.0, 955.0, 530.0], "IOPS 5");
        let svg = pen.hits;
        assert!(svg.contains("aria-label=\"a&lt;b &quot;c&quot; xxx") && svg.contains("…</text>"), "{svg}");
        assert!(svg.contains("y=\"22\""), "not above the drawing: {svg}");
        assert!(svg.contains("x=\"944\" y=\"500\" width=\"17\""), "{svg}");
        assert!(svg.contains("x=\"922\" y=\"492\""), "half of six characters from the edge: {svg}");
    }
}
