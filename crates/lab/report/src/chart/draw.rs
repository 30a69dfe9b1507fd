//! A chart as SVG: an element of the page, and a file of its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use carmine_topology::Cpu;

use super::ink::Ink;
use super::{Area, At, Chart, Form, Key, Plot, Range, Seat, Shape, Upright};
use crate::lists::grouped;
use crate::units::{short, shortened};

/// Draws a chart: `<svg>` for the page, whose style sheet paints it; and as a file, with title, context, legend and
/// background.
pub(crate) fn picture(chart: &Chart) -> (String, String) {
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
    let (tall, paper) = (below + tall, Ink::PAPER.hex());
    let file = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{tall:.0}\" viewBox=\"0 0 {WIDTH} {tall:.0}\" \
         role=\"img\" font-family=\"sans-serif\"><title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{tall:.0}\" \
         fill=\"{paper}\"/>\n{head}<g transform=\"translate(0 {below:.0})\">\n{drawn}\n</g></svg>\n"
    );
    (inline, file)
}

/// Title, context and legend of a file, and their height.
fn head(chart: &Chart) -> (String, f64) {
    let mut pen = Pen::default();
    pen.text_of(28.0, (20.0, 32.0), "start", Ink::TEXT, &chart.title);
    pen.text((20.0, 66.0), "start", Ink::MUTED, &chart.context);
    let (mut x, mut y) = (20.0, 98.0);
    for Key { name, ink, dotted } in chart.keys() {
        if x > 20.0 && x + wide(name) + 44.0 > WIDTH - 20.0 {
            (x, y) = (20.0, y + 32.0);
        }
        pen.line(&[(x, y), (x + 26.0, y)], *ink, if *dotted { 0 } else { 8 });
        pen.text((x + 36.0, y), "start", Ink::TEXT, name);
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

/// A plot's scales: across from left to right, and upright from the low end to the high one.
struct Field {
    x: Scale,
    y: Scale,
}

/// Draws a plot from `top` on: does it stand alone, and is it the last? Returns where it ends.
fn draw(pen: &mut Pen, plot: &Plot, top: f64, (alone, last): (bool, bool)) -> f64 {
    let [x, y] = plot.ranges();
    let field = match &plot.y {
        Upright::Sockets(seats) => return sockets(pen, seats),
        Upright::Numbers(axis) => {
            let (height, ticks) = if alone { (HEIGHT, 6) } else { (PANEL_HEIGHT, 3) };
            let low = top + height - if last { 0.0 } else { 8.0 };
            let x = Scale::new(x, false, 6, (104.0, WIDTH - 44.0));
            Field { x, y: Scale::new(y, axis.log, ticks, (low, top + TOP)) }
        }
        Upright::Rows(names, tall) => {
            // The page makes the text of rows a little larger on narrow screens.
            let longest = names.iter().map(|name| wide(name) * 1.15 + 20.0).fold(40.0, f64::max);
            let x = Scale::new(x, false, 5, (longest.min(WIDTH * NAME_MAX), WIDTH - 90.0));
            let ends = (top + 14.0, top + 14.0 + tall * names.len() as f64);
            Field { x, y: Scale { ticks: vec![y.0, y.1], log: false, ends } }
        }
    };
    field.axes(pen, plot, last);
    plot.shapes.iter().for_each(|shape| field.shape(pen, shape));
    let (low, high) = field.y.ends;
    if last { low.max(high) + X_AXIS_HEIGHT } else { low + 8.0 }
}

impl Field {
    fn at(&self, (x, y): At) -> At {
        (self.x.place(x), self.y.place(y))
    }

    fn axes(&self, pen: &mut Pen, plot: &Plot, last: bool) {
        let ((left, right), (low, high)) = (self.x.ends, self.y.ends);
        let (top, bottom) = (low.min(high), low.max(high));
        match &plot.y {
            Upright::Rows(names, tall) => {
                let fits = ((left - 20.0) / (wide("x") * 1.15) + 0.01) as usize;
                let every = (NAME_HEIGHT / tall).ceil().max(1.0) as usize;
                for (at, name) in names.iter().enumerate().step_by(every) {
                    let room = (tall / TEXT) as usize;
                    let lines = lines(name, fits, room);
                    let first = top + tall * (at as f64 + 0.5) - TEXT * (lines.len() - 1) as f64 / 2.0;
                    for (number, line) in lines.iter().enumerate() {
                        pen.text((left - 12.0, first + TEXT * number as f64), "end", Ink::TEXT, line);
                    }
                }
            }
            Upright::Numbers(axis) => {
                for tick in &self.y.ticks {
                    let y = self.y.place(*tick);
                    pen.line(&[(left, y), (right, y)], Ink::GRID, 2);
                    pen.text((left - 12.0, y), "end", Ink::MUTED, &short(*tick));
                }
                pen.text((12.0, top - TOP + 20.0), "start", Ink::MUTED, &axis.label);
            }
            Upright::Sockets(_) => {}
        }
        for tick in &self.x.ticks {
            let x = self.x.place(*tick);
            pen.line(&[(x, top), (x, bottom)], Ink::GRID, 2);
            if last {
                pen.text((x, bottom + 24.0), "middle", Ink::MUTED, &short(*tick));
            }
        }
        pen.line(&[(left, top), (left, bottom), (right, bottom)], Ink::AXIS, 2);
        if last {
            pen.text((right, bottom + 64.0), "end", Ink::MUTED, &plot.x.label);
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
                // It is put on the side that has room.
                let fits = x + wide(text) + 10.0 <= WIDTH;
                let (anchor, shift) = if fits { ("start", 10.0) } else { ("end", -10.0) };
                return pen.text((x + shift, y), anchor, *ink, text);
            }
            Form::Dot(at, number, hollow) => pen.marker(self.at(*at), *number, *ink, *hollow),
            Form::Area([left, top, right, bottom], strong) => {
                let ((left, top), (right, bottom)) = (self.at((*left, *top)), self.at((*right, *bottom)));
                pen.fill([left, top, right, bottom], *ink, *strong)
            }
        };
        if !tells.is_empty() {
            pen.tooltip(area, tells);
        }
    }
}

/// Cores beside each other: as many as a socket has, within these, so that few cores have room for their labels.
const ACROSS: (usize, usize) = (8, 16);
/// Height of a hardware thread: two lines of text.
const CPU: f64 = 54.0;
/// Room around a box, and above it for its name.
const GAP: f64 = 10.0;
const NAME: f64 = 34.0;
/// Draws the sockets below each other, each with its cores from one L3 group to the next; returns the height.
fn sockets(pen: &mut Pen, seats: &[(Cpu, Vec<Seat>)]) -> f64 {
    let threads = 1 + seats.iter().map(|(cpu, _)| cpu.thread).max().unwrap_or(0);
    let by_socket = grouped(seats.iter().map(|(cpu, _)| (cpu.socket, (cpu.l3, cpu.core))));
    let cores = by_socket.iter().map(|(_, cores)| cores.iter().collect::<BTreeSet<_>>().len());
    let across = cores.max().unwrap_or(0).clamp(ACROSS.0, ACROSS.1);
    let each = (WIDTH - 4.0 * GAP) / across as f64;
    let mut top = GAP;
    for (socket, cpus) in grouped(seats.iter().map(|seated| (seated.0.socket, seated))) {
        pen.text((2.0 * GAP, top + NAME / 2.0), "start", Ink::TEXT, &format!("Socket {socket}"));
        let mut cores = grouped(cpus.into_iter().map(|seated| ((seated.0.l3, seated.0.core), seated)));
        cores.sort_by_key(|(place, _)| *place);
        // Groups have names only where there are several.
        let one_group = cores
            .first()
            .map(|((l3, _), _)| *l3)
            .filter(|l3| cores.iter().all(|((other, _), _)| other == l3));
        let (mut before, named) = (one_group, if one_group.is_some() { 0.0 } else { NAME });
        let tall = named + threads as f64 * CPU + GAP;
        let bottom = top + NAME + tall * cores.len().div_ceil(across) as f64;
        for (at, ((l3, _), core)) in cores.into_iter().enumerate() {
            let x = 2.0 * GAP + (at % across) as f64 * each;
            let y = top + NAME + named + tall * (at / across) as f64;
            if before.replace(l3) != Some(l3) {
                pen.text((x, y - NAME / 2.0), "start", Ink::MUTED, &format!("L3 {l3}"));
            }
            pen.frame([x + 2.0, y, x + each - 2.0, y + core.len() as f64 * CPU + 4.0], Ink::AXIS, 2);
            for (thread, (cpu, seats)) in core.into_iter().enumerate() {
                let y = y + 2.0 + thread as f64 * CPU;
                hardware_thread(pen, [x + 4.0, y, x + each - 4.0, y + CPU], cpu, seats);
            }
        }
        pen.frame([GAP, top, WIDTH - GAP, bottom], Ink::AXIS, 2);
        top = bottom + GAP;
    }
    top
}

/// Its number and the threads that run there; a CPU that several share has a frame.
fn hardware_thread(pen: &mut Pen, area @ [left, top, right, bottom]: Area, cpu: &Cpu, seats: &[Seat]) {
    let middle = (left + right) / 2.0;
    let number = cpu.cpu.to_string();
    let Some(first) = seats.first() else {
        return pen.text((middle, (top + bottom) / 2.0), "middle", Ink::AXIS, &number);
    };
    pen.fill(area, first.ink, 0.28);
    if seats.len() > 1 {
        pen.frame(area, Ink::series(5), 3);
    }
    let all = |of: fn(&Seat) -> &str, between| seats.iter().map(of).collect::<Vec<_>>().join(between);
    let label = all(|seat| &seat.label, "+");
    // A label may reach into the frame around the area.
    let is_long = wide(&label) > right - left + GAP && seats.len() > 1;
    let label = if is_long { format!("{}×", seats.len()) } else { label };
    pen.text((middle, top + 15.0), "middle", Ink::MUTED, &number);
    pen.text((middle, top + 38.0), "middle", Ink::TEXT, &label);
    let (socket, core, texts) = (cpu.socket, cpu.core, all(|seat| &seat.text, ", "));
    pen.tooltip(area, &format!("CPU {number} (socket {socket}, core {core}): {texts}"));
}

/// Steps between ticks, of each power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 2.5, 5.0];
/// A logarithmic scale of more powers of ten has ticks at these alone.
const DECADES_MAX: f64 = 3.0;

/// A range of values on an axis, from the first of its ticks to the last.
#[derive(Clone, Debug)]
struct Scale {
    ticks: Vec<f64>,
    log: bool,
    /// Places in the drawing of its low and its high end.
    ends: Range,
}

impl Scale {
    /// A scale with about `ticks` ticks that holds a range. Ranges that are empty or not finite become 0 to 1; only those
    /// above 0 can be logarithmic.
    fn new((low, high): Range, log: bool, ticks: usize, ends: Range) -> Scale {
        let log = log && low > 0.0 && low < high && high.is_finite();
        Scale { ticks: if log { logarithmic(low, high) } else { linear(low, high, ticks) }, log, ends }
    }

    /// The place of a value in a drawing; values outside are put at the end.
    fn place(&self, value: f64) -> f64 {
        let at = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let [low, high] = [self.ticks[0], self.ticks[self.ticks.len() - 1]].map(at);
        let (part, (from, to)) = ((at(value) - low) / (high - low), self.ends);
        from + (to - from) * if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }
}

fn linear(low: f64, high: f64, ticks: usize) -> Vec<f64> {
    let (low, high) = match (low.is_finite() && high.is_finite(), low < high) {
        (true, true) => (low, high),
        (true, false) if low != 0.0 => (low.min(0.0), low.max(0.0)),
        _ => (0.0, 1.0),
    };
    // The smallest round step that gives no more ticks.
    let least = (high - low) / ticks.max(2) as f64;
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let step = STEPS.iter().map(|s| s * power).find(|s| *s >= least * 0.9999).unwrap_or(power * 10.0);
    let first = (low / step + 1e-9).floor();
    let last = (high / step - 1e-9).ceil().max(first + 1.0);
    (first as i64..=last as i64).map(|n| n as f64 * step).collect()
}

fn logarithmic(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if (high / low).log10() > DECADES_MAX { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all: Vec<f64> = powers.flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e))).collect();
    let first = all.iter().rposition(|t| *t <= low * 1.0001).unwrap_or(0);
    let last = all.iter().position(|t| *t >= high * 0.9999).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1).min(all.len() - 1)].to_vec()
}

/// Units of a drawing's width. It is shown smaller, so that a unit is finer than a pixel.
const WIDTH: f64 = 960.0;
/// Text height in units.
const TEXT: f64 = 22.0;
/// Width of a character in parts of its height, about.
const CHAR_WIDTH: f64 = 0.58;
/// Half of the smallest width and height that a finger or pointer can hit.
const REACH: f64 = 12.0;
/// Characters of a text that fit over a chart; screen readers read all of it.
const SHOWN_MAX: usize = 76;
/// Half of a marker.
const MARKER: f64 = 8.0;

/// Text as part of an SVG.
fn escaped(text: &str) -> String {
    maud::html! { (text) }.into_string()
}

/// The separator of a name's parts.
const BETWEEN: &str = " · ";

/// A name in up to `room` lines of `most` characters each, broken between its parts; only the last line is cut.
fn lines(name: &str, most: usize, room: usize) -> Vec<String> {
    let count = |text: &str| text.chars().count();
    if count(name) <= most {
        return vec![name.to_owned()];
    }
    let breaks = name.match_indices(BETWEEN).filter(|(at, _)| count(&name[..*at]) <= most);
    match breaks.last().filter(|_| room > 1) {
        Some((at, _)) => {
            let rest = lines(&name[at + BETWEEN.len()..], most, room - 1);
            [vec![name[..at].to_owned()], rest].concat()
        }
        None => vec![shortened(name, most.saturating_sub(1))],
    }
}

/// The width of a text, about.
fn wide(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT * CHAR_WIDTH
}

fn path(points: &[At]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// Writes a drawing. The areas that show the figures of its marks lie above everything else.
#[derive(Debug, Default)]
struct Pen {
    drawn: String,
    hits: String,
}

impl Pen {
    /// Text whose middle is at this height; `anchor` is `start`, `middle` or `end`.
    fn text(&mut self, at: At, anchor: &str, ink: Ink, text: &str) {
        self.text_of(TEXT, at, anchor, ink, text);
    }

    /// The same of another size.
    fn text_of(&mut self, size: f64, (x, y): At, anchor: &str, ink: Ink, text: &str) {
        let (y, ink, text) = (y + TEXT * 0.35, ink.hex(), escaped(text));
        // Writing to a String does not fail: here and below.
        let _ = writeln!(
            self.drawn,
            "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{ink}\">{text}</text>"
        );
    }

    /// A line through all points; one of width 0 is dotted.
    fn line(&mut self, points: &[At], ink: Ink, width: u32) {
        let style = match width {
            0 => "stroke-width=\"3\" stroke-dasharray=\"2 9\" stroke-linecap=\"round\"".to_owned(),
            _ => format!("stroke-width=\"{width}\""),
        };
        let (points, ink) = (path(points), ink.hex());
        let _ =
            writeln!(self.drawn, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{ink}\" {style}/>");
    }

    /// A filled rectangle; `strong` is 1 for the whole colour.
    fn fill(&mut self, area: Area, ink: Ink, strong: f64) -> Area {
        self.rect(area, &format!("fill=\"{}\" fill-opacity=\"{strong}\"", ink.hex()));
        area
    }

    /// The outline of a rectangle.
    fn frame(&mut self, area: Area, ink: Ink, width: u32) {
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
    fn marker(&mut self, (x, y): At, number: usize, ink: Ink, hollow: bool) -> Area {
        const R: f64 = MARKER;
        let corners: &[At] = match number % 4 {
            0 => &[],
            1 => &[(-R, -R), (R, -R), (R, R), (-R, R)],
            2 => &[(0.0, -R - 2.0), (R + 2.0, R), (-R - 2.0, R)],
            _ => &[(0.0, -R - 3.0), (R + 3.0, 0.0), (0.0, R + 3.0), (-R - 3.0, 0.0)],
        };
        let points: Vec<At> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        let form = match corners {
            [] => format!("circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{R}\""),
            _ => format!("polygon points=\"{}\"", path(&points)),
        };
        let (fill, stroke) = (if hollow { Ink::PAPER } else { ink }.hex(), ink.hex());
        let _ = writeln!(self.drawn, "<{form} fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"3\"/>");
        [x - REACH, y - REACH, x + REACH, y + REACH]
    }

    /// A bar with ends across it.
    fn bar(&mut self, from: At, to: At, ink: Ink, width: u32) {
        self.line(&[from, to], ink, width);
        let (dx, dy) = if from.0 == to.0 { (MARKER, 0.0) } else { (0.0, MARKER) };
        for (x, y) in [from, to] {
            self.line(&[(x - dx, y - dy), (x + dx, y + dy)], ink, width);
        }
    }

    /// Shows the figures of the mark in this area, above it and within the drawing; a very narrow area is widened.
    fn tooltip(&mut self, [mut left, top, mut right, bottom]: Area, text: &str) {
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
    fn ticks_are_round_and_hold_the_range() {
        let linear = |low, high| Scale::new((low, high), false, 5, (0.0, 8.0));
        assert_eq!(linear(0.0, 183_000.0).ticks, [0.0, 50_000.0, 100_000.0, 150_000.0, 200_000.0]);
        assert_eq!(linear(0.0, 1.0).ticks, [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear(-3.0, 4.0).place(-4.0), 0.0);
        assert_eq!(linear(-3.0, 4.0).place(f64::INFINITY), 8.0);
        let log = |low, high| Scale::new((low, high), true, 6, (0.0, 8.0));
        assert_eq!(log(0.15, 9.0).ticks, [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(log(0.15, 30_000.0).ticks, [0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0]);
    }

    #[test]
    fn a_long_name_is_broken_before_it_is_cut() {
        let name = "1 OSD · 3 of 4 CPUs · blue";
        assert_eq!(lines(name, 30, 1), [name]);
        assert_eq!(lines(name, 20, 2), ["1 OSD · 3 of 4 CPUs", "blue"]);
        assert_eq!(lines(name, 10, 2), ["1 OSD", "3 of 4 CP…"]);
        assert_eq!(lines(name, 20, 1), ["1 OSD · 3 of 4 CPUs…"]);
    }

    fn labels(cores: usize) -> String {
        let seat = |label: &str| Seat { ink: Ink::TEXT, label: label.into(), text: label.into() };
        let cpu = |n: usize| Cpu { cpu: n, socket: 0, node: 0, l3: 0, core: n, thread: 0 };
        let seats: Vec<_> = (0..cores).map(|n| (cpu(n), vec![seat("0·0"), seat("A0")])).collect();
        let mut pen = Pen::default();
        sockets(&mut pen, &seats);
        pen.drawn
    }

    #[test]
    fn labels_are_whole_where_there_is_room() {
        assert!(labels(4).contains(">0·0+A0<"), "{}", labels(4));
        assert!(labels(32).contains(">2×<"), "{}", labels(32));
    }

    #[test]
    fn absurd_ranges_still_make_a_scale() {
        for range in [(0.0, 0.0), (5.0, 5.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (9.0, 1.0), (-2.0, -2.0)]
        {
            for scale in [false, true].map(|log| Scale::new(range, log, 5, (0.0, 100.0))) {
                assert!(scale.ticks.len() >= 2 && scale.ticks.is_sorted(), "{range:?}: {scale:?}");
                assert!((0.0..=100.0).contains(&scale.place(f64::NAN)));
            }
        }
    }

    #[test]
    fn a_text_stays_on_the_drawing_and_is_text() {
        let mut pen = Pen::default();
        pen.tooltip([-7.0, -7.0, 17.0, 17.0], &format!("a<b \"c\" {}", "x".repeat(200)));
        pen.tooltip([950.0, 500.0, 955.0, 530.0], "IOPS 5");
        let svg = pen.hits;
        assert!(svg.contains("aria-label=\"a&lt;b &quot;c&quot; xxx") && svg.contains("…</text>"), "{svg}");
        assert!(svg.contains("y=\"22\""), "not above the drawing: {svg}");
        assert!(svg.contains("x=\"944\" y=\"500\" width=\"17\""), "{svg}");
        assert!(svg.contains("x=\"922\" y=\"492\""), "half of six characters from the edge: {svg}");
    }
}
