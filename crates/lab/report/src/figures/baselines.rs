//! How near a result is to what the raw device and the raw messenger can do.

use super::View;
use super::view::Panel;
use crate::chart::{Axis, Chart, Key, Plot, RowPlot};
use crate::data::PANEL_AXES;
use crate::table::{Cell, Table};

pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    view.panels().iter().filter_map(|panel| chart(view, panel)).collect()
}

fn chart(view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
    let (shown, cut) = view.rows(panel);
    let mut rows = Vec::new();
    let mut table = Table::new(
        "setting | of the raw device (%) | of the raw messenger (%) | IOPS per drive | \
        device bytes per client byte | wire bytes per client byte | raw device IOPS | raw messenger IOPS | \
        marks",
    );
    let mut above = false;
    for setting in &panel.settings {
        let device = setting.mean(|r| r.carmine.percent_of_device);
        let messenger = setting.mean(|r| r.carmine.percent_of_messenger);
        let raw = setting.first().and_then(|r| r.carmine.baseline.as_ref());
        above |= setting.words.iter().any(|w| w == "ABOVE-BASELINE");
        table.push(vec![
            view.name(setting, &PANEL_AXES).into(),
            Cell::number(device, 1),
            Cell::number(messenger, 1),
            Cell::number(setting.mean(|r| r.carmine.iops_per_drive), 0),
            Cell::number(setting.mean(|r| r.carmine.device_bytes_per_client_byte), 2),
            Cell::number(setting.mean(|r| r.carmine.wire_bytes_per_client_byte), 2),
            Cell::number(raw.and_then(|b| b.device.as_ref()).map(|d| d.iops), 0),
            Cell::number(raw.and_then(|b| b.messenger.as_ref()).map(|m| m.iops), 0),
            setting.words.join(" ").into(),
        ]);
        if device.or(messenger).is_some() && shown.iter().any(|s| std::ptr::eq(*s, *setting)) {
            rows.push(view.row(setting, vec![device, messenger]));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut remarks = vec![
        "Raw device and raw messenger were measured in the same minutes, with the same block size and depth."
            .to_owned(),
    ];
    if above {
        remarks.push(
            "ABOVE-BASELINE: a result that is above its raw baseline is a cache's, or a mistake.".into(),
        );
    }
    remarks.extend(cut);
    let plot = RowPlot {
        x: Axis::from_zero("Percent of the raw baseline"),
        keys: vec![Key::series(0, "raw device"), Key::series(1, "raw messenger")],
        rows,
        reference: Some(100.0),
        ..RowPlot::default()
    };
    Some(panel.chart("baseline", "Against the raw device and messenger", Plot::Rows(plot), table, remarks))
}
