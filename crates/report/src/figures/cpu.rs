//! Where CPU time goes, point by point.

use super::View;
use super::view::{Panel, context};
use crate::chart::{Axis, Chart, Ink, Key, Plot, Row, RowPlot};
use crate::data::{Cores, PANEL_AXES, Setting};
use crate::table::{Cell, Table};

const KINDS: [&str; 5] =
    ["reactors busy", "reactors spinning", "waiting for a CPU", "aliens", "kernel elsewhere"];

pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    view.panels().iter().filter_map(|panel| chart(view, panel)).collect()
}

fn chart(view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
    let known: Vec<(&Setting, Cores)> =
        panel.settings.iter().filter_map(|s| Some((*s, s.cores()?))).collect();
    if known.is_empty() {
        return None;
    }
    let (shown, cut) = view.rows(panel);
    let mut rows = Vec::new();
    let mut table = Table::new(&["setting"]);
    table.columns.extend(KINDS.iter().map(|kind| format!("{kind} (cores)")));
    table.columns.extend(["machine CPU (µs per op)", "OSD CPU (µs per op)", "marks"].map(str::to_owned));
    for (setting, cores) in &known {
        let values = vec![
            Some(cores.busy),
            Some(cores.spin),
            Some(cores.wait),
            Some(cores.alien),
            cores.kernel_elsewhere,
        ];
        let mut row: Vec<Cell> = vec![view.name(setting, &PANEL_AXES).into()];
        row.extend(values.iter().map(|v| Cell::number(*v, 2)));
        row.push(Cell::number(setting.mean(|r| r.carmine.machine_cpu_us_per_op), 1));
        row.push(Cell::number(setting.mean(|r| r.carmine.osd_cpu_us_per_op), 1));
        row.push(setting.words.join(" ").into());
        table.push(row);
        if shown.iter().any(|s| std::ptr::eq(*s, *setting)) {
            let name = view.row_name(setting);
            rows.push(Row { name, values, interval: None, marked: !setting.is_clean });
        }
    }
    let mut remarks: Vec<String> = cut.into_iter().collect();
    if known.iter().any(|(_, c)| c.kernel_elsewhere.is_none()) {
        remarks.push("Kernel elsewhere is not known where the machine was busy with other things.".into());
    }
    let key = |(n, kind): (usize, &&str)| Key { name: (*kind).into(), ink: Ink::Series(n), dotted: false };
    let plot = RowPlot {
        x: Axis::from_zero("Cores, average of the window"),
        keys: KINDS.iter().enumerate().map(key).collect(),
        rows,
        stacked: true,
        ..RowPlot::default()
    };
    let settings: Vec<&Setting> = known.iter().map(|(s, _)| *s).collect();
    Some(Chart {
        id: format!("cpu-{}", panel.id),
        title: format!("Where CPU time goes: {}", panel.title),
        context: context(&settings),
        plot: Plot::Rows(plot),
        table: table.without_empty_columns(),
        remarks,
        family: format!("cpu-{}", panel.kind),
    })
}
