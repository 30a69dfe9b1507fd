//! Where CPU time goes, point by point.

use super::View;
use super::view::{Panel, context};
use crate::chart::{Axis, Chart, Key, Plot, RowPlot};
use crate::data::{Cores, PANEL_AXES, Setting};
use crate::table::{Cell, Table};

const KINDS: [&str; 8] = [
    "reactors busy",
    "reactors spinning",
    "waiting for a CPU",
    "RocksDB's feeder",
    "RocksDB's flushes",
    "RocksDB's compactions",
    "other aliens",
    "kernel elsewhere",
];
/// Only stores with RocksDB have them.
const ROCKSDB: std::ops::Range<usize> = 3..6;

pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    view.panels().iter().filter_map(|panel| chart(view, panel)).collect()
}

fn chart(view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
    let known: Vec<(&Setting, Cores)> =
        panel.settings.iter().filter_map(|s| Some((*s, s.cores()?))).collect();
    if known.is_empty() {
        return None;
    }
    let parts: Vec<[Option<f64>; KINDS.len()]> = known.iter().map(|(_, cores)| parts(cores)).collect();
    let has = |kind: &usize| {
        !ROCKSDB.contains(kind) || parts.iter().any(|of| of[*kind].is_some_and(|cores| cores > 0.0))
    };
    let kinds: Vec<usize> = (0..KINDS.len()).filter(has).collect();
    let (shown, cut) = view.rows(panel);
    let mut rows = Vec::new();
    let mut table = Table::new("setting");
    table.columns.extend(kinds.iter().map(|kind| format!("{} (cores)", KINDS[*kind])));
    table.columns.extend(["machine CPU (µs per op)", "OSD CPU (µs per op)", "marks"].map(str::to_owned));
    for ((setting, _), parts) in known.iter().zip(&parts) {
        let values: Vec<Option<f64>> = kinds.iter().map(|kind| parts[*kind]).collect();
        let mut row: Vec<Cell> = vec![view.name(setting, &PANEL_AXES).into()];
        row.extend(values.iter().map(|v| Cell::number(*v, 2)));
        row.push(Cell::number(setting.mean(|r| r.carmine.machine_cpu_us_per_op), 1));
        row.push(Cell::number(setting.mean(|r| r.carmine.osd_cpu_us_per_op), 1));
        row.push(setting.words.join(" ").into());
        table.push(row);
        if shown.iter().any(|s| std::ptr::eq(*s, *setting)) {
            rows.push(view.row(setting, values));
        }
    }
    let mut remarks: Vec<String> = cut.into_iter().collect();
    if known.iter().any(|(_, c)| c.kernel_elsewhere.is_none()) {
        remarks.push("Kernel elsewhere is not known where the machine was busy with other things.".into());
    }
    let key = |kind: &usize| Key::series(*kind, KINDS[*kind]);
    let plot = RowPlot {
        x: Axis::from_zero("Cores, average of the window"),
        keys: kinds.iter().map(key).collect(),
        rows,
        stacked: true,
        ..RowPlot::default()
    };
    let settings: Vec<&Setting> = known.iter().map(|(s, _)| *s).collect();
    let chart = panel.chart("cpu", "Where CPU time goes", Plot::Rows(plot), table, remarks);
    Some(Chart { context: context(&settings), ..chart })
}

/// In the order of [`KINDS`].
fn parts(c: &Cores) -> [Option<f64>; KINDS.len()] {
    let osds = [c.busy, c.spin, c.wait, c.feeder, c.flush, c.compaction, c.other_aliens];
    std::array::from_fn(|kind| osds.get(kind).copied().or(c.kernel_elsewhere))
}
