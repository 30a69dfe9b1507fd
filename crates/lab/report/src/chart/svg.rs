//! A chart as SVG: drawn at 960 units wide and shown smaller, so that whole units are finer than a pixel; an element of the page,
//! and a file of its own.

use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ink::Ink;
use super::{Chart, Key, Plot};
use super::{lines, rows};
use crate::units::shortened;

/// A chart that has been drawn.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// `<svg>` for the page: its style sheet paints it.
    pub(crate) inline: String,
    /// `<svg>` as a file: with title, context, legend and background.
    pub(crate) file: String,
}

/// Draws a chart.
pub(crate) fn picture(chart: &Chart) -> Picture {
    let (inner, hits) = drawing(chart);
    Picture { inline: inline(chart, &inner, &hits), file: file(chart, &inner) }
}

pub(super) fn escaped(text: &str) -> String {
    maud::html! { (text) }.into_string()
}

fn inline(chart: &Chart, inner: &str, hits: &[Hit]) -> String {
    let (id, tall) = (escaped(&chart.id), height(&chart.plot));
    let class = if matches!(chart.plot, Plot::Rows(_)) { "plot rows" } else { "plot" };
    let desc = format!("{}. The table after the chart has its figures.", chart.context);
    // One stop of the tab key for a chart; arrow keys walk over its marks.
    let stop = if hits.is_empty() { "" } else { " tabindex=\"0\"" };
    let layer = layer(hits);
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {WIDTH} {tall}\" role=\"group\"{stop} aria-labelledby=\"{id}-t {id}-d\" \
         font-family=\"sans-serif\"><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>\n{inner}\n{layer}</svg>",
        escaped(&chart.title),
        escaped(&desc)
    )
}

fn file(chart: &Chart, inner: &str) -> String {
    let mut head = String::new();
    let mut y = 40;
    let mut line = |x: f64, y: u32, size: u32, ink: Ink, text: &str| {
        let fill = ink.hex();
        let _ = writeln!(
            head,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{fill}\">{}</text>",
            escaped(text)
        );
    };
    line(20.0, y, 28, Ink::Text, &chart.title);
    y += 32;
    line(20.0, y, 20, Ink::Muted, &chart.context);
    let mut legend = String::new();
    let mut x = 20.0;
    y += 34;
    for key in chart.plot.keys() {
        let wide = 44.0 + key.name.chars().count() as f64 * f64::from(TEXT) * CHAR_WIDTH;
        if x > 20.0 && x + wide > f64::from(WIDTH) - 20.0 {
            (x, y) = (20.0, y + 32);
        }
        legend.push_str(&swatch(&key, x, y));
        line(x + 36.0, y, TEXT, Ink::Text, &key.name);
        x += wide + 20.0;
    }
    let (below, paper) = (y + 16, Ink::Paper.hex());
    let tall = below + height(&chart.plot);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{tall}\" viewBox=\"0 0 {WIDTH} {tall}\" \
         role=\"img\" font-family=\"sans-serif\"><title>{}</title>\n<rect width=\"{WIDTH}\" height=\"{tall}\" \
         fill=\"{paper}\"/>\n{head}{legend}<g transform=\"translate(0 {below})\">\n{inner}\n</g></svg>\n",
        escaped(&chart.title)
    )
}

fn swatch(key: &Key, x: f64, y: u32) -> String {
    let (ink, dash) =
        (key.ink.hex(), if key.dotted { " stroke-dasharray=\"2 9\" stroke-linecap=\"round\"" } else { "" });
    let (to, y) = (x + 26.0, y - 8);
    let width = if key.dotted { 4 } else { 8 };
    format!(
        "<line x1=\"{x}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"{ink}\" stroke-width=\"{width}\"{dash}/>\n"
    )
}

/// Units of a chart's width.
pub(crate) const WIDTH: u32 = 960;
/// Height of a line plot.
const LINES_HEIGHT: u32 = 540;
/// Height of one of several panels, without the horizontal axis.
const PANEL_HEIGHT: u32 = 198;
/// Text height in units.
pub(crate) const TEXT: u32 = 22;
/// Plotters draws text smaller than it is told, by this factor.
const TEXT_FACTOR: f64 = 1.24;
/// Lines of this width, and nothing else, are dotted: plotters has no dashes but as one element each.
pub(crate) const DOTTED_WIDTH: u32 = 5;
/// Width of a character in parts of its height, about.
pub(crate) const CHAR_WIDTH: f64 = 0.58;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Plotters can fail where its back end does; ours is memory.
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The text style of charts.
pub(crate) fn text(ink: Ink) -> TextStyle<'static> {
    let font = ("sans-serif", f64::from(TEXT) * TEXT_FACTOR).into_font();
    TextStyle { color: ink.rgb().to_backend_color(), ..TextStyle::from(font) }
}

/// The same, anchored.
pub(crate) fn anchored(ink: Ink, h: HPos, v: VPos) -> TextStyle<'static> {
    text(ink).pos(Pos::new(h, v))
}

/// Writes the name of the horizontal axis below it, so far from the right edge.
pub(crate) fn x_title(root: &Area<'_>, label: &str, right: u32) -> Drawn {
    let (width, tall) = root.dim_in_pixel();
    let style = anchored(Ink::Muted, HPos::Right, VPos::Bottom);
    root.draw_text(label, &style, ((width - right) as i32, tall as i32 - 6))
}

/// The height of a chart in units.
pub(crate) fn height(plot: &Plot) -> u32 {
    match plot {
        Plot::Lines(_) => LINES_HEIGHT,
        Plot::Rows(plot) => rows::height(plot),
        Plot::Heat(plot) => rows::heat_height(plot),
        Plot::Panels(plots) => {
            PANEL_HEIGHT * u32::try_from(plots.len()).unwrap_or(1).max(1) + lines::X_AXIS_HEIGHT
        }
    }
}

/// The drawing, without the element around it: what stands between `<svg>` and `</svg>`; and what its marks tell.
pub(crate) fn drawing(chart: &Chart) -> (String, Vec<Hit>) {
    let (mut text, mut hits) = (String::new(), Vec::new());
    let root = SVGBackend::with_string(&mut text, (WIDTH, height(&chart.plot))).into_drawing_area();
    let drawn = match &chart.plot {
        Plot::Lines(plot) => lines::draw(&root, plot, true, &mut hits),
        Plot::Rows(plot) => rows::draw(&root, plot, &mut hits),
        Plot::Heat(plot) => rows::draw_heat(&root, plot),
        Plot::Panels(plots) => panels(&root, plots, &mut hits),
    };
    let drawn = drawn.and_then(|()| root.present());
    drop(root);
    match drawn {
        Ok(()) => (inner(&text), hits),
        Err(error) => {
            let why = error_text(&error);
            (format!("<text x=\"20\" y=\"40\">this chart could not be drawn: {why}</text>"), Vec::new())
        }
    }
}

fn error_text(error: &dyn std::error::Error) -> String {
    error.to_string().replace(['<', '>', '&'], " ")
}

fn panels(root: &Area<'_>, plots: &[super::LinePlot], hits: &mut Vec<Hit>) -> Drawn {
    let mut rest = root.clone();
    for (at, plot) in plots.iter().enumerate() {
        let last = at + 1 == plots.len();
        if last {
            return lines::draw(&rest, plot, true, hits);
        }
        let (top, below) = rest.split_vertically(PANEL_HEIGHT);
        lines::draw(&top, plot, false, hits)?;
        rest = below;
    }
    Ok(())
}

/// Takes the outer element away, adds dashes, and leaves out what says nothing.
fn inner(svg: &str) -> String {
    let from = svg.find('>').map_or(0, |at| at + 1);
    let to = svg.rfind("</svg>").unwrap_or(svg.len());
    let dotted = format!("stroke-width=\"{DOTTED_WIDTH}\"");
    svg.get(from..to)
        .unwrap_or_default()
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace(" font-family=\"sans-serif\"", "")
        .replace(&dotted, "stroke-width=\"3\" stroke-dasharray=\"2 9\" stroke-linecap=\"round\"")
        .trim()
        .to_owned()
}

/// Half of the least width and height that a finger or pointer finds.
const REACH: i32 = 12;
/// Text height in units.
const TIP: u32 = 20;
/// Characters of a text that fit over a chart; who listens hears all.
const SHOWN_MAX: usize = 76;

/// A mark's place and its figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hit {
    /// Left, top, right, bottom in units of the drawing.
    place: [i32; 4],
    text: String,
}

impl Hit {
    /// Around a point.
    pub(crate) fn around(at: (i32, i32), text: String) -> Hit {
        Hit { place: [at.0 - REACH, at.1 - REACH, at.0 + REACH, at.1 + REACH], text }
    }

    /// Between two corners; what is very narrow is widened.
    pub(crate) fn between(a: (i32, i32), b: (i32, i32), text: String) -> Hit {
        let wide = |low: i32, high: i32| {
            if high - low < REACH { (low - REACH / 2, high + REACH / 2) } else { (low, high) }
        };
        let (left, right) = wide(a.0.min(b.0), a.0.max(b.0));
        let (top, bottom) = wide(a.1.min(b.1), a.1.max(b.1));
        Hit { place: [left, top, right, bottom], text }
    }
}

/// The elements that lie over a drawing. The text is above its mark, and within the drawing.
pub(crate) fn layer(hits: &[Hit]) -> String {
    let mut svg = String::new();
    for Hit { place: [left, top, right, bottom], text } in hits {
        let shown = shortened(text, SHOWN_MAX);
        let half = shown.chars().count() as f64 * f64::from(TIP) * CHAR_WIDTH / 2.0;
        let middle = f64::from(left + right) / 2.0;
        let x = middle
            .clamp(half.min(f64::from(WIDTH) / 2.0), (f64::from(WIDTH) - half).max(f64::from(WIDTH) / 2.0));
        let y = (top - 8).max(TIP as i32 + 2);
        let (label, shown) = (escaped(text), escaped(&shown));
        let (width, height) = (right - left, bottom - top);
        // Writing to a String does not fail.
        let _ = write!(
            svg,
            "<g class=\"hit\" role=\"img\" tabindex=\"-1\" aria-label=\"{label}\"><rect x=\"{left}\" y=\"{top}\" \
             width=\"{width}\" height=\"{height}\"/><text class=\"tip\" x=\"{x:.0}\" y=\"{y}\" text-anchor=\"middle\" \
             font-size=\"{TIP}\">{shown}</text></g>"
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_the_drawing_and_is_text() {
        let long = format!("a<b \"c\" {}", "x".repeat(200));
        let svg = layer(&[Hit::around((5, 5), long), Hit::between((955, 500), (950, 530), "IOPS 5".into())]);
        assert!(svg.contains("aria-label=\"a&lt;b &quot;c&quot; xxx") && svg.contains("…</text>"), "{svg}");
        assert!(svg.contains("y=\"22\""), "not above the drawing: {svg}");
        assert!(svg.contains("x=\"944\" y=\"500\" width=\"17\""), "{svg}");
        assert!(svg.contains("x=\"925\" y=\"492\""), "half of six characters from the edge: {svg}");
    }
}
