//! A chart as SVG: an element of the page, and a file of its own.

use super::ink::Ink;
use super::pen::{Pen, TEXT, WIDTH, escaped, wide};
use super::scale::Scale;
use super::{Area, At, Chart, Form, Key, Plot, Shape, Upright, sockets};
use crate::units::{short, shortened};

/// A chart that has been drawn.
pub(crate) struct Picture {
    /// `<svg>` for the page: its style sheet paints it.
    pub(crate) inline: String,
    /// `<svg>` as a file: with title, context, legend and background.
    pub(crate) file: String,
}

/// Draws a chart.
pub(crate) fn picture(chart: &Chart) -> Picture {
    let (mut pen, mut tall) = (Pen::default(), 0.0);
    for (at, plot) in chart.plots.iter().enumerate() {
        tall = draw(&mut pen, plot, tall, (chart.plots.len() == 1, at + 1 == chart.plots.len()));
    }
    let kind = match chart.plots.first().map(|plot| &plot.y) {
        Some(Upright::Rows(..)) => "rows",
        Some(Upright::Sockets(_)) => "sockets",
        _ => "lines",
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
    pen.text_of(28.0, (20.0, 32.0), "start", Ink::Text, &chart.title);
    pen.text((20.0, 66.0), "start", Ink::Muted, &chart.context);
    let (mut x, mut y) = (20.0, 98.0);
    for Key { name, ink, dotted } in chart.keys() {
        if x > 20.0 && x + wide(name) + 44.0 > WIDTH - 20.0 {
            (x, y) = (20.0, y + 32.0);
        }
        pen.line(&[(x, y), (x + 26.0, y)], *ink, if *dotted { 0 } else { 8 });
        pen.text((x + 36.0, y), "start", Ink::Text, name);
        x += wide(name) + 64.0;
    }
    (pen.drawn, y + TEXT)
}

/// Room below a plot for ticks and the axis' name.
const X_AXIS_HEIGHT: f64 = 84.0;
/// Height of a plot of numbers that stands alone, and of one of several, without the horizontal axis.
const HEIGHT: f64 = 456.0;
const PANEL_HEIGHT: f64 = 198.0;
/// Room above a plot of numbers for the vertical axis' name.
const TOP: f64 = 54.0;
/// Names longer than this part of the width are cut.
const NAME_MAX: f64 = 0.46;
/// Names closer to each other than this are thinned out.
const NAME_HEIGHT: f64 = 30.0;

/// A plot's place and scales; the low end of the vertical axis is at `low`.
struct Field {
    x: Scale,
    y: Scale,
    left: f64,
    right: f64,
    low: f64,
    high: f64,
}

/// Draws a plot from `top` on: does it stand alone, and is it the last? Returns where it ends.
fn draw(pen: &mut Pen, plot: &Plot, top: f64, (alone, last): (bool, bool)) -> f64 {
    let [x, y] = plot.ranges();
    let field = match &plot.y {
        Upright::Sockets(seats) => return sockets::draw(pen, seats),
        Upright::Numbers(axis) => {
            let (height, ticks) = if alone { (HEIGHT, 6) } else { (PANEL_HEIGHT, 3) };
            let low = top + height - if last { 0.0 } else { 8.0 };
            let (x, y) = (Scale::new(x, plot.x.log, 6), Scale::new(y, axis.log, ticks));
            Field { x, y, left: 104.0, right: WIDTH - 44.0, low, high: top + TOP }
        }
        Upright::Rows(names, tall) => {
            // The page makes the text of rows a little larger on narrow screens.
            let longest = names.iter().map(|name| wide(name) * 1.15 + 20.0).fold(40.0, f64::max);
            let (low, high) = (top + 14.0, top + 14.0 + tall * names.len() as f64);
            let (x, y) = (Scale::new(x, plot.x.log, 5), Scale::exact(y));
            Field { x, y, left: longest.min(WIDTH * NAME_MAX), right: WIDTH - 90.0, low, high }
        }
    };
    field.axes(pen, plot, last);
    plot.shapes.iter().for_each(|shape| field.shape(pen, shape));
    if last { field.low.max(field.high) + X_AXIS_HEIGHT } else { field.low + 8.0 }
}

impl Field {
    fn at(&self, (x, y): At) -> At {
        (self.x.place(x, self.left, self.right), self.y.place(y, self.low, self.high))
    }

    fn axes(&self, pen: &mut Pen, plot: &Plot, last: bool) {
        let Field { left, right, low, high, .. } = *self;
        let (top, bottom) = (low.min(high), low.max(high));
        match &plot.y {
            Upright::Rows(names, tall) => {
                let fits = ((left - 20.0) / (wide("x") * 1.15) + 0.01) as usize;
                let every = (NAME_HEIGHT / tall).ceil().max(1.0) as usize;
                for (at, name) in names.iter().enumerate().step_by(every) {
                    let long = name.chars().count() > fits;
                    let name = if long { shortened(name, fits.saturating_sub(1)) } else { name.clone() };
                    pen.text((left - 12.0, top + tall * (at as f64 + 0.5)), "end", Ink::Text, &name);
                }
            }
            Upright::Numbers(axis) => {
                for tick in &self.y.ticks {
                    let y = self.y.place(*tick, low, high);
                    pen.line(&[(left, y), (right, y)], Ink::Grid, 2);
                    pen.text((left - 12.0, y), "end", Ink::Muted, &short(*tick));
                }
                pen.text((12.0, top - TOP + 20.0), "start", Ink::Muted, &axis.label);
            }
            Upright::Sockets(_) => {}
        }
        for tick in &self.x.ticks {
            let x = self.x.place(*tick, left, right);
            pen.line(&[(x, top), (x, bottom)], Ink::Grid, 2);
            if last {
                pen.text((x, bottom + 24.0), "middle", Ink::Muted, &short(*tick));
            }
        }
        pen.line(&[(left, top), (left, bottom), (right, bottom)], Ink::Axis, 2);
        if last {
            pen.text((right, bottom + 64.0), "end", Ink::Muted, &plot.x.label);
        }
    }

    fn shape(&self, pen: &mut Pen, Shape { form, ink, tells }: &Shape) {
        let area = match form {
            Form::Line(points, width) => {
                let path: Vec<At> = points.iter().map(|at| self.at(*at)).collect();
                return pen.line(&path, *ink, *width);
            }
            Form::Bar(from, to, width) => return pen.bar(self.at(*from), self.at(*to), *ink, *width),
            Form::Text(at, text) => {
                let (x, y) = self.at(*at);
                // It stands on the side that has room.
                let fits = x + wide(text) + 10.0 <= WIDTH;
                let (anchor, shift) = if fits { ("start", 10.0) } else { ("end", -10.0) };
                return pen.text((x + shift, y), anchor, *ink, text);
            }
            Form::Dot(at, number, hollow) => pen.marker(self.at(*at), *number, *ink, *hollow),
            Form::Area([left, top, right, bottom], strong) => {
                let ((left, top), (right, bottom)) = (self.at((*left, *top)), self.at((*right, *bottom)));
                let area: Area = [left, top, right, bottom];
                pen.fill(area, *ink, *strong);
                area
            }
        };
        if !tells.is_empty() {
            pen.tell(area, tells);
        }
    }
}
