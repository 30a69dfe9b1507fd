//! A chart as an element of the page, and as a file of its own.

use std::fmt::Write as _;

use super::draw::{CHAR_WIDTH, TEXT, WIDTH, drawing, height};
use super::hit::{Hit, layer};
use super::ink::Ink;
use super::model::{Chart, Key, Plot};

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
