//! A chart as SVG: an element of the page, and a file of its own.

use std::fmt::Write as _;

use super::ink::Ink;
use super::pen::{Pen, TEXT, WIDTH, escaped, wide};
use super::{Chart, Key, Plot};
use super::{lines, rows, sockets};

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
    let mut pen = Pen::default();
    let (kind, tall) = match &chart.plot {
        Plot::Lines(plots) => ("lines", lines::draw(&mut pen, plots)),
        Plot::Rows(plot) => ("rows", rows::draw(&mut pen, plot)),
        Plot::Heat(plot) => ("heat", rows::draw_heat(&mut pen, plot)),
        Plot::Sockets(machine) => ("sockets", sockets::draw(&mut pen, machine)),
    };
    let (id, title, Pen { drawn, hits }) = (escaped(&chart.id), escaped(&chart.title), pen);
    let desc = escaped(&format!("{}. The table after the chart has its figures.", chart.context));
    // One stop of the tab key for a chart; arrow keys walk over its marks.
    let stop = if hits.is_empty() { "" } else { " tabindex=\"0\"" };
    let inline = format!(
        "<svg class=\"plot {kind}\" viewBox=\"0 0 {WIDTH} {tall:.0}\" role=\"group\"{stop} aria-labelledby=\"{id}-t {id}-d\" \
         font-family=\"sans-serif\"><title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{desc}</desc>\n{drawn}\n{hits}</svg>"
    );
    let (head, below) = head(chart);
    let (tall, paper) = (below + tall, Ink::Paper.hex());
    let file = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{tall:.0}\" viewBox=\"0 0 {WIDTH} {tall:.0}\" \
         role=\"img\" font-family=\"sans-serif\"><title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{tall:.0}\" \
         fill=\"{paper}\"/>\n{head}<g transform=\"translate(0 {below:.0})\">\n{drawn}\n</g></svg>\n"
    );
    Picture { inline, file }
}

/// Title, context and legend of a file, and their height.
fn head(chart: &Chart) -> (String, f64) {
    let mut pen = Pen::default();
    let size = format!("font-size=\"28\" fill=\"{}\"", Ink::Text.hex());
    // Writing to a String does not fail.
    let _ = writeln!(pen.drawn, "<text x=\"20\" y=\"40\" {size}>{}</text>", escaped(&chart.title));
    pen.text((20.0, 66.0), "start", Ink::Muted, &chart.context);
    let (mut x, mut y) = (20.0, 98.0);
    for Key { name, ink, dotted } in chart.plot.keys() {
        if x > 20.0 && x + wide(&name) + 44.0 > WIDTH - 20.0 {
            (x, y) = (20.0, y + 32.0);
        }
        let swatch = [(x, y), (x + 26.0, y)];
        if dotted {
            pen.dots(&swatch, ink)
        } else {
            pen.line(&swatch, ink, 8)
        }
        pen.text((x + 36.0, y), "start", Ink::Text, &name);
        x += wide(&name) + 64.0;
    }
    (pen.drawn, y + TEXT)
}
