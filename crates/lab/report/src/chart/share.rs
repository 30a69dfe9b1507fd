//! Charts that are compared share their axes.

use std::collections::BTreeMap;

use super::model::{Axis, Chart, Dot, LinePlot, Plot, RowPlot};

type Range = (f64, f64);

fn join(a: Range, b: Range) -> Range {
    (a.0.min(b.0), a.1.max(b.1))
}

/// All values that a line plot shows along x and along y.
pub(crate) fn line_ranges(plot: &LinePlot) -> (Range, Range) {
    let dots = || plot.lines.iter().flat_map(|l| &l.dots);
    let bars = |d: &Dot| [d.y, d.bar.map_or(d.y, |b| b.0), d.bar.map_or(d.y, |b| b.1)];
    (plot.x.range(dots().map(|d| d.x)), plot.y.range(dots().flat_map(bars)))
}

/// All values that a row plot shows.
pub(crate) fn row_range(plot: &RowPlot) -> Range {
    let of = |row: &super::model::Row| -> Vec<f64> {
        let shown = row.values.iter().flatten().copied();
        let shown: Vec<f64> = if plot.stacked { vec![shown.sum()] } else { shown.collect() };
        shown.into_iter().chain(row.interval.into_iter().flat_map(|i| [i.0, i.1])).collect()
    };
    plot.x.range(
        plot.rows
            .iter()
            .flat_map(of)
            .chain(plot.reference)
            .chain(plot.band.into_iter().flat_map(|b| [b.0, b.1])),
    )
}

/// Gives the charts of each family the same axes.
pub(crate) fn share_axes(charts: &mut [Chart]) {
    let mut ranges: BTreeMap<String, (Range, Range)> = BTreeMap::new();
    for chart in charts.iter().filter(|c| !c.family.is_empty()) {
        let Some(own) = ranges_of(&chart.plot) else { continue };
        let all = ranges.entry(chart.family.clone()).or_insert(own);
        *all = (join(all.0, own.0), join(all.1, own.1));
    }
    for chart in charts {
        let Some((x, y)) = ranges.get(&chart.family) else { continue };
        match &mut chart.plot {
            Plot::Lines(plot) => {
                hold(&mut plot.x, *x);
                hold(&mut plot.y, *y);
            }
            Plot::Rows(plot) => hold(&mut plot.x, *x),
            Plot::Heat(_) | Plot::Panels(_) => {}
        }
    }
}

fn ranges_of(plot: &Plot) -> Option<(Range, Range)> {
    match plot {
        Plot::Lines(plot) => Some(line_ranges(plot)),
        Plot::Rows(plot) => Some((row_range(plot), (0.0, 0.0))),
        Plot::Heat(_) | Plot::Panels(_) => None,
    }
}

fn hold(axis: &mut Axis, range: Range) {
    if range.0.is_finite() && range.1.is_finite() {
        axis.at_least = Some(range);
    }
}
