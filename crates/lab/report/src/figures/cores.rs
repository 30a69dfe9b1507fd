//! What a core gives: IOPS per core, and MB/s per core for large blocks.

use super::View;
use super::view::Panel;
use crate::chart::{Axis, Chart, Key, Plot, RowPlot};
use crate::data::{PANEL_AXES, Setting};
use crate::table::{Cell, Table};

/// From this block size on, bytes are the figure and not operations.
const LARGE_BYTES: f64 = 65_536.0;
/// What the three figures per core divide by.
const KINDS: [&str; 3] = ["allocated", "used", "busy"];

pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    let panels = view.panels();
    let iops = panels.iter().filter_map(|panel| chart(view, panel, false));
    let bytes = panels.iter().filter(|p| is_large(p)).filter_map(|panel| chart(view, panel, true));
    iops.chain(bytes).collect()
}

/// All its operations are large.
fn is_large(panel: &Panel<'_, '_>) -> bool {
    panel.settings.iter().all(|s| bytes_per_op(s).is_some_and(|b| b >= LARGE_BYTES))
}

fn bytes_per_op(setting: &Setting<'_>) -> Option<f64> {
    setting.mean(|r| Some(r.bw_bytes() / r.iops()).filter(|b| b.is_finite()))
}

/// IOPS (or MB/s) per core allocated, used and busy.
fn figures(setting: &Setting<'_>, as_bytes: bool) -> [Option<f64>; 3] {
    let cores = setting.per_core();
    let factor = if as_bytes { bytes_per_op(setting).map(|b| b / 1e6) } else { Some(1.0) };
    [cores.allocated, cores.used, cores.busy].map(|figure| Some(figure? * factor?))
}

fn chart(view: &View<'_>, panel: &Panel<'_, '_>, as_bytes: bool) -> Option<Chart> {
    let unit = if as_bytes { "MB/s per core" } else { "IOPS per core" };
    let (shown, cut) = view.rows(panel);
    let (mut rows, mut unknown) = (Vec::new(), 0);
    let mut table = Table::new(&format!(
        "setting | {unit} allocated | per core used | per core busy | IOPS | MB/s | marks"
    ));
    for setting in &panel.settings {
        let values = figures(setting, as_bytes);
        let mut row: Vec<Cell> = vec![view.name(setting, &PANEL_AXES).into()];
        row.extend(values.map(|v| Cell::number(v, 0)));
        row.extend([Cell::Number(setting.iops(), 0), Cell::Number(setting.bw_bytes() / 1e6, 1)]);
        row.push(setting.words.join(" ").into());
        table.push(row);
        let is_known = values.iter().any(Option::is_some);
        unknown += usize::from(!is_known);
        if is_known && shown.iter().any(|s| std::ptr::eq(*s, *setting)) {
            rows.push(view.row(setting, values.to_vec()));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let key = |(n, kind): (usize, &&str)| Key::series(n, format!("per core {kind}"));
    let mut remarks = vec![
        "Allocated: distinct CPUs of reactors and aliens. Used: CPU seconds of all OSD processes by the kernel. Busy: \
         used without spinning."
            .to_owned(),
    ];
    if unknown > 0 {
        remarks.push(format!(
            "{unknown} settings have no figure per core: their CPUs are shared, or the clocks are missing."
        ));
    }
    remarks.extend(cut);
    let plot = RowPlot {
        x: Axis::from_zero(unit),
        keys: KINDS.iter().enumerate().map(key).collect(),
        rows,
        ..RowPlot::default()
    };
    let id = if as_bytes { "mb-per-core" } else { "iops-per-core" };
    Some(panel.chart(id, unit, Plot::Rows(plot), table, remarks))
}
