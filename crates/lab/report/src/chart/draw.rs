//! Charts as SVG. Drawn at 960 units wide and shown smaller, so that whole units are finer than a pixel.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::hit::Hit;
use super::ink::Ink;
use super::model::{Chart, Plot};
use super::{heat, lines, rows};

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

/// The height of a chart in units.
pub(crate) fn height(plot: &Plot) -> u32 {
    match plot {
        Plot::Lines(_) => LINES_HEIGHT,
        Plot::Rows(plot) => rows::height(plot),
        Plot::Heat(plot) => heat::height(plot),
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
        Plot::Heat(plot) => heat::draw(&root, plot),
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

fn panels(root: &Area<'_>, plots: &[super::model::LinePlot], hits: &mut Vec<Hit>) -> Drawn {
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
