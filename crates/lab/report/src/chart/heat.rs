//! Heat maps: parts of 1 over time and CPUs.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::draw::{Area, Drawn, anchored, text};
use super::ink::Ink;
use super::model::HeatPlot;
use super::scale::Scale;
use crate::units::short;

const TOP: u32 = 14;
const BOTTOM: u32 = 84;
const LEFT: u32 = 110;
const RIGHT: u32 = 44;
/// Height of all rows together, at most.
const ROWS_MAX: u32 = 700;
const ROW_MAX: u32 = 40;
/// Names closer to each other than this are thinned out.
const NAME_HEIGHT: f64 = 30.0;

/// Height in units.
pub(crate) fn height(plot: &HeatPlot) -> u32 {
    let rows = u32::try_from(plot.rows.len()).unwrap_or(1).max(1);
    TOP + BOTTOM + (rows.saturating_mul(ROW_MAX)).min(ROWS_MAX)
}

/// Draws the map, the first row at the top.
pub(crate) fn draw(root: &Area<'_>, plot: &HeatPlot) -> Drawn {
    let count = plot.rows.len().max(1) as f64;
    let row_height = f64::from(height(plot) - TOP - BOTTOM) / count;
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
        .margin_right(RIGHT)
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
    let (width, tall) = root.dim_in_pixel();
    let style = anchored(Ink::Muted, HPos::Right, VPos::Bottom);
    root.draw_text(&plot.x.label, &style, ((width - RIGHT) as i32, tall as i32 - 6))?;
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
