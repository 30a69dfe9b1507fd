//! Charts with a row for each setting: results, figures per core, CPU time, and how near the raw baselines are.

use carmine_types::counted;

use super::View;
use super::columns::{bytes_per_op, number};
use super::view::{Panel, context};
use crate::chart::{Axis, Chart, Key, Plot, RowPlot};
use crate::data::{CPU_PARTS, Setting};
use crate::table::{Cell, Table};

/// A chart whose rows show the first columns of its table.
struct Kind {
    id: &'static str,
    title: &'static str,
    shown: usize,
    columns: &'static str,
    remark: &'static str,
    stacked: bool,
    reference: Option<f64>,
}

/// A chart of dots.
const fn dots(
    id: &'static str,
    title: &'static str,
    shown: usize,
    columns: &'static str,
    remark: &'static str,
) -> Kind {
    Kind { id, title, shown, columns, remark, stacked: false, reference: None }
}

const IOPS: Kind = Kind {
    stacked: true,
    ..dots("iops", "IOPS", 1, "IOPS | MB/s | p50 (µs) | mean (µs) | p99 (µs) | limiter | repeats", "")
};
const LATENCY: Kind =
    dots("latency", "Latency", 3, "p50 (µs) | mean (µs) | p99 (µs) | IOPS | MB/s | limiter | repeats", "");
const PER_CORE_REMARK: &str = "Allocated: the CPUs of reactors and aliens. Used: the CPU time of all OSD processes. Busy: that \
                               without the reactors' looking for work.";
const PER_CORE: Kind = dots(
    "iops-per-core",
    "IOPS per core",
    3,
    "IOPS/core allocated | IOPS/core used | IOPS/core busy | IOPS | MB/s",
    PER_CORE_REMARK,
);
const MB_PER_CORE: Kind = dots(
    "mb-per-core",
    "MB/s per core",
    3,
    "MB/s/core allocated | MB/s/core used | MB/s/core busy | IOPS | MB/s",
    PER_CORE_REMARK,
);
const BASELINE: Kind = Kind {
    reference: Some(100.0),
    ..dots(
        "baseline",
        "Against the raw device and messenger",
        2,
        "of the raw device (%) | of the raw messenger (%) | IOPS per drive | device bytes per client byte | \
         wire bytes per client byte | raw device IOPS | raw messenger IOPS",
        "Raw device and raw messenger were measured in the same minutes, with the same block size and depth.",
    )
};

impl Kind {
    /// The chart of a panel; `None` if no setting has such figures.
    fn chart(&self, view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
        let shown: Vec<&str> = self.columns.split(" | ").take(self.shown).collect();
        let plot = RowPlot {
            x: Axis::from_zero(self.title),
            keys: shown.iter().enumerate().map(|(n, name)| Key::series(n, *name)).collect(),
            stacked: self.stacked,
            reference: self.reference,
            ..RowPlot::default()
        };
        let values = |s: &Setting<'_>| shown.iter().map(|column| number(s, column)).collect();
        let table = view.table(panel.settings.iter().copied(), self.columns);
        let remark = Some(self.remark.to_owned()).filter(|remark| !remark.is_empty());
        rows(view, panel, (self.id, self.title), plot, table, remark, values)
    }
}

/// A chart with a row for each setting that has a value.
fn rows(
    view: &View<'_>,
    panel: &Panel<'_, '_>,
    (id, title): (&str, &str),
    plot: RowPlot,
    table: Table,
    remark: Option<String>,
    values: impl Fn(&Setting<'_>) -> Vec<Option<f64>>,
) -> Option<Chart> {
    let (drawn, cut) = view.rows(panel);
    let all = drawn.into_iter().map(|setting| (setting, values(setting)));
    let (shown, unknown): (Vec<_>, Vec<_>) = all.partition(|(_, values)| values.iter().any(Option::is_some));
    if shown.is_empty() {
        return None;
    }
    let settings: Vec<&Setting> = shown.iter().map(|(setting, _)| *setting).collect();
    let rows = shown.into_iter().map(|(setting, values)| view.row(setting, values)).collect();
    let without = (!unknown.is_empty()).then(|| {
        let has = if unknown.len() == 1 { "has" } else { "have" };
        format!(
            "{} {has} no such figure: CPUs are shared, or nothing measured it.",
            counted(unknown.len(), "setting")
        )
    });
    let remarks = remark.into_iter().chain(without).chain(cut).collect();
    let chart = panel.chart(id, title, Plot::Rows(RowPlot { rows, ..plot }), table, remarks);
    Some(Chart { context: context(&settings), ..chart })
}

fn all(view: &View<'_>, make: impl Fn(&Panel<'_, '_>) -> Option<Chart>) -> Vec<Chart> {
    view.panels().iter().filter_map(make).collect()
}

/// IOPS and latency of each workload: what plans show that vary neither size nor load.
pub(super) fn results(view: &View<'_>) -> Vec<Chart> {
    view.panels()
        .iter()
        .flat_map(|panel| [IOPS.chart(view, panel), LATENCY.chart(view, panel)])
        .flatten()
        .collect()
}

/// From this block size on, bytes are the figure and not operations.
const LARGE_BYTES: f64 = 65_536.0;

/// The yield of a core: IOPS per core, or MB/s per core for large blocks.
pub(super) fn per_core(view: &View<'_>) -> Vec<Chart> {
    let is_large = |s: &&Setting<'_>| bytes_per_op(s).is_some_and(|b| b >= LARGE_BYTES);
    all(view, |panel| {
        let kind = if panel.settings.iter().all(is_large) { MB_PER_CORE } else { PER_CORE };
        kind.chart(view, panel)
    })
}

/// How near a result is to what the raw device and the raw messenger can do.
pub(super) fn baselines(view: &View<'_>) -> Vec<Chart> {
    all(view, |panel| BASELINE.chart(view, panel))
}

/// CPU time of an operation by the work that took it.
pub(super) fn cpu_time(view: &View<'_>) -> Vec<Chart> {
    all(view, |panel| cpu_chart(view, panel))
}

fn cpu_chart(view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
    let all: Vec<_> = panel.settings.iter().map(|s| s.cpu_us()).collect();
    let is_shown = |part: &usize| all.iter().any(|us| us[*part].is_some_and(|us| us > 0.0));
    let shown: Vec<usize> = (0..CPU_PARTS.len()).filter(is_shown).collect();
    let plot = RowPlot {
        x: Axis::from_zero("CPU time per operation (µs)"),
        keys: shown.iter().map(|part| Key::series(*part, CPU_PARTS[*part])).collect(),
        stacked: true,
        ..RowPlot::default()
    };
    let mut table = view
        .table(panel.settings.iter().copied(), "machine µs/op | OSD µs/op | reactors without a CPU (cores)");
    for (at, part) in shown.iter().enumerate() {
        table.columns.insert(1 + at, format!("{} (µs/op)", CPU_PARTS[*part]));
        table.rows.iter_mut().zip(&all).for_each(|(row, us)| row.insert(1 + at, Cell::number(us[*part], 2)));
    }
    let mut remark = "The whole bar is the CPU time of the machine without the generator.".to_owned();
    if all.iter().any(|us| us[0].is_some() && us[1].is_none()) {
        remark.push_str(" Without samples, the kernel's part of the reactors' work is not told apart.");
    }
    if all.iter().any(|us| us[CPU_PARTS.len() - 1].is_none()) {
        remark.push_str(" The kernel elsewhere is not known where the machine was busy with other things.");
    }
    let values = |s: &Setting<'_>| {
        let us = s.cpu_us();
        shown.iter().map(|part| us[*part]).collect()
    };
    rows(view, panel, ("cpu", "Where a microsecond of CPU goes"), plot, table, Some(remark), values)
}
