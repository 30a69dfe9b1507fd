//! One row a setting: what plans show that vary neither size nor load.

use super::View;
use super::view::Panel;
use crate::chart::{Axis, Chart, Key, Plot, RowPlot};
use crate::data::{PANEL_AXES, Setting};
use crate::table::{Cell, Table};

/// IOPS and latency of each workload.
pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    view.panels().iter().flat_map(|panel| [iops(view, panel), latency(view, panel)]).collect()
}

fn iops(view: &View<'_>, panel: &Panel<'_, '_>) -> Chart {
    let plot = RowPlot {
        x: Axis::from_zero("IOPS"),
        keys: vec![Key::series(0, "IOPS")],
        stacked: true,
        ..RowPlot::default()
    };
    chart(view, panel, ("iops", "IOPS"), plot, |s| vec![Some(s.iops())])
}

fn latency(view: &View<'_>, panel: &Panel<'_, '_>) -> Chart {
    let plot = RowPlot {
        x: Axis::from_zero("Latency (ms)"),
        keys: vec![Key::series(0, "p50"), Key::series(1, "mean"), Key::series(2, "p99")],
        ..RowPlot::default()
    };
    let ms = |ns: Option<f64>| ns.map(|ns| ns / 1e6);
    chart(view, panel, ("latency", "Latency"), plot, |s| {
        [s.latency.p50_ns, s.latency.mean_ns, s.latency.p99_ns].map(ms).to_vec()
    })
}

fn chart(
    view: &View<'_>,
    panel: &Panel<'_, '_>,
    (id, title): (&str, &str),
    plot: RowPlot,
    values: impl Fn(&Setting<'_>) -> Vec<Option<f64>>,
) -> Chart {
    let (shown, cut) = view.rows(panel);
    let rows = shown.iter().map(|s| view.row(s, values(s))).collect();
    panel.chart(
        id,
        title,
        Plot::Rows(RowPlot { rows, ..plot }),
        table(view, panel),
        cut.into_iter().collect(),
    )
}

fn table(view: &View<'_>, panel: &Panel<'_, '_>) -> Table {
    let mut table =
        Table::new("setting | IOPS | MB/s | p50 (µs) | mean (µs) | p99 (µs) | limiter | repeats | marks");
    for setting in &panel.settings {
        let latency = &setting.latency;
        let mut row = vec![view.name(setting, &PANEL_AXES).into(), Cell::Number(setting.iops(), 0)];
        row.push(Cell::Number(setting.bw_bytes() / 1e6, 1));
        let us = |ns: Option<f64>| Cell::number(ns.map(|ns| ns / 1e3), 0);
        row.extend([latency.p50_ns, latency.mean_ns, latency.p99_ns].map(us));
        row.push(super::curve::limiter(setting));
        row.push(Cell::Number(setting.repeats() as f64, 0));
        row.push(setting.words.join(" ").into());
        table.push(row);
    }
    table
}
