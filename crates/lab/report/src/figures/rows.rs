//! Charts with a row for each setting: results, figures per core, CPU time, and how near the raw baselines are.

use super::View;
use super::view::{Panel, context};
use crate::chart::{Axis, Chart, Key, Plot, RowPlot};
use crate::data::{CPU_KINDS, PANEL_AXES, Setting};
use crate::table::{Cell, Table};

/// The part of a chart that does not depend on a single setting.
struct Rows<'a> {
    id: &'a str,
    title: &'a str,
    /// Columns of its table between the setting's name and its marks.
    columns: &'a str,
    plot: RowPlot,
    remarks: Vec<String>,
}

/// One setting in a chart: the values of its row, if it has one, and its cells in the table.
type Shown = (Option<Vec<Option<f64>>>, Vec<Cell>);

impl Rows<'_> {
    /// The chart of a panel, and in its table the settings for which `of` has something to show; `None` if none has a row.
    fn chart(
        self,
        view: &View<'_>,
        panel: &Panel<'_, '_>,
        of: impl Fn(&Setting<'_>) -> Option<Shown>,
    ) -> Option<Chart> {
        let (drawn, cut) = view.rows(panel);
        let mut table = Table::new(&format!("setting | {} | marks", self.columns));
        let (mut rows, mut settings) = (Vec::new(), Vec::new());
        for setting in panel.settings.iter().copied() {
            let Some((values, cells)) = of(setting) else { continue };
            let name: Cell = view.name(setting, &PANEL_AXES).into();
            table.push([vec![name], cells, vec![setting.words.join(" ").into()]].concat());
            settings.push(setting);
            if let Some(values) = values.filter(|_| drawn.iter().any(|s| std::ptr::eq(*s, setting))) {
                rows.push(view.row(setting, values));
            }
        }
        if rows.is_empty() {
            return None;
        }
        let plot = Plot::Rows(RowPlot { rows, ..self.plot });
        let remarks = self.remarks.into_iter().chain(cut).collect();
        let chart = panel.chart(self.id, self.title, plot, table, remarks);
        Some(Chart { context: context(&settings), ..chart })
    }
}

/// A plot of rows without the rows: what stands at its axis, and what its colours mean.
fn plot<'a>(axis: &str, keys: impl IntoIterator<Item = &'a str>) -> RowPlot {
    let keys = keys.into_iter().enumerate().map(|(n, name)| Key::series(n, name)).collect();
    RowPlot { x: Axis::from_zero(axis), keys, ..RowPlot::default() }
}

/// A panel's chart of one kind, if there are figures for it.
type Make = fn(&View<'_>, &Panel<'_, '_>) -> Option<Chart>;

fn all(view: &View<'_>, make: Make) -> Vec<Chart> {
    view.panels().iter().filter_map(|panel| make(view, panel)).collect()
}

/// IOPS and latency of each workload: what plans show that vary neither size nor load.
pub(super) fn results(view: &View<'_>) -> Vec<Chart> {
    let ms = |ns: Option<f64>| ns.map(|ns| ns / 1e6);
    let columns = "IOPS | MB/s | p50 (µs) | mean (µs) | p99 (µs) | limiter | repeats";
    let of = |panel: &Panel<'_, '_>| {
        let iops = RowPlot { stacked: true, ..plot("IOPS", ["IOPS"]) };
        let iops = Rows { id: "iops", title: "IOPS", columns, plot: iops, remarks: Vec::new() };
        let latency = plot("Latency (ms)", ["p50", "mean", "p99"]);
        let latency = Rows { id: "latency", title: "Latency", columns, plot: latency, remarks: Vec::new() };
        [
            iops.chart(view, panel, |s| Some((Some(vec![Some(s.iops())]), result_cells(s)))),
            latency.chart(view, panel, |s| {
                let values = [s.latency.p50_ns, s.latency.mean_ns, s.latency.p99_ns].map(ms).to_vec();
                Some((Some(values), result_cells(s)))
            }),
        ]
    };
    view.panels().iter().flat_map(of).flatten().collect()
}

fn result_cells(setting: &Setting<'_>) -> Vec<Cell> {
    let latency = &setting.latency;
    let us = |ns: Option<f64>| Cell::number(ns.map(|ns| ns / 1e3), 0);
    let mut cells = vec![Cell::Number(setting.iops(), 0), Cell::Number(setting.bw_bytes() / 1e6, 1)];
    cells.extend([latency.p50_ns, latency.mean_ns, latency.p99_ns].map(us));
    cells.extend([super::curve::limiter(setting), Cell::Number(setting.repeats() as f64, 0)]);
    cells
}

/// From this block size on, bytes are the figure and not operations.
const LARGE_BYTES: f64 = 65_536.0;

/// The yield of a core: IOPS per core, and MB/s per core for large blocks.
pub(super) fn per_core(view: &View<'_>) -> Vec<Chart> {
    let is_large = |s: &&Setting<'_>| bytes_per_op(s).is_some_and(|b| b >= LARGE_BYTES);
    let iops = all(view, |view, panel| core_chart(view, panel, false));
    let panels = view.panels();
    let bytes = panels.iter().filter(|panel| panel.settings.iter().all(is_large));
    iops.into_iter().chain(bytes.filter_map(|panel| core_chart(view, panel, true))).collect()
}

fn bytes_per_op(setting: &Setting<'_>) -> Option<f64> {
    setting.mean(|r| Some(r.bw_bytes() / r.iops()).filter(|b| b.is_finite()))
}

/// IOPS (or MB/s) per core allocated, used and busy.
fn core_figures(setting: &Setting<'_>, as_bytes: bool) -> [Option<f64>; 3] {
    let cores = setting.per_core();
    let factor = if as_bytes { bytes_per_op(setting).map(|b| b / 1e6) } else { Some(1.0) };
    [cores.allocated, cores.used, cores.busy].map(|figure| Some(figure? * factor?))
}

fn core_chart(view: &View<'_>, panel: &Panel<'_, '_>, as_bytes: bool) -> Option<Chart> {
    let unit = if as_bytes { "MB/s per core" } else { "IOPS per core" };
    let is_known = |s: &Setting<'_>| core_figures(s, as_bytes).iter().any(Option::is_some);
    let unknown = panel.settings.iter().filter(|s| !is_known(s)).count();
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
    let rows = Rows {
        id: if as_bytes { "mb-per-core" } else { "iops-per-core" },
        title: unit,
        columns: &format!("{unit} allocated | per core used | per core busy | IOPS | MB/s"),
        plot: plot(unit, ["per core allocated", "per core used", "per core busy"]),
        remarks,
    };
    rows.chart(view, panel, |s| {
        let values = core_figures(s, as_bytes);
        let mut cells = values.map(|v| Cell::number(v, 0)).to_vec();
        cells.extend([Cell::Number(s.iops(), 0), Cell::Number(s.bw_bytes() / 1e6, 1)]);
        Some((is_known(s).then(|| values.to_vec()), cells))
    })
}

/// Only stores with RocksDB have them.
const ROCKSDB: std::ops::Range<usize> = 3..6;

/// Where CPU time goes, point by point.
pub(super) fn cpu_time(view: &View<'_>) -> Vec<Chart> {
    all(view, cpu_chart)
}

fn cpu_chart(view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
    let known: Vec<[Option<f64>; CPU_KINDS.len()]> =
        panel.settings.iter().filter_map(|s| s.cores()).collect();
    let has = |kind: &usize| {
        !ROCKSDB.contains(kind) || known.iter().any(|cores| cores[*kind].is_some_and(|cores| cores > 0.0))
    };
    let kinds: Vec<usize> = (0..CPU_KINDS.len()).filter(has).collect();
    let columns: Vec<String> = kinds.iter().map(|kind| format!("{} (cores)", CPU_KINDS[*kind])).collect();
    let mut remarks = Vec::new();
    if known.iter().any(|cores| cores.last().is_some_and(Option::is_none)) {
        remarks.push("Kernel elsewhere is not known where the machine was busy with other things.".into());
    }
    let key = |kind: &usize| Key::series(*kind, CPU_KINDS[*kind]);
    let plot = RowPlot {
        keys: kinds.iter().map(key).collect(),
        stacked: true,
        ..plot("Cores, average of the window", [])
    };
    let columns = format!("{} | machine CPU (µs per op) | OSD CPU (µs per op)", columns.join(" | "));
    let rows = Rows { id: "cpu", title: "Where CPU time goes", columns: &columns, plot, remarks };
    rows.chart(view, panel, |s| {
        let cores = s.cores()?;
        let values: Vec<Option<f64>> = kinds.iter().map(|kind| cores[*kind]).collect();
        let mut cells: Vec<Cell> = values.iter().map(|v| Cell::number(*v, 2)).collect();
        cells.push(Cell::number(s.mean(|r| r.carmine.machine_cpu_us_per_op), 1));
        cells.push(Cell::number(s.mean(|r| r.carmine.osd_cpu_us_per_op), 1));
        Some((Some(values), cells))
    })
}

/// How near a result is to what the raw device and the raw messenger can do.
pub(super) fn baselines(view: &View<'_>) -> Vec<Chart> {
    all(view, baseline_chart)
}

fn baseline_chart(view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
    let mut remarks = vec![
        "Raw device and raw messenger were measured in the same minutes, with the same block size and depth."
            .to_owned(),
    ];
    if panel.settings.iter().flat_map(|s| &s.words).any(|w| w == "ABOVE-BASELINE") {
        remarks.push(
            "ABOVE-BASELINE: a result that is above its raw baseline is a cache's, or a mistake.".into(),
        );
    }
    let columns = "of the raw device (%) | of the raw messenger (%) | IOPS per drive | device bytes per client byte | \
                   wire bytes per client byte | raw device IOPS | raw messenger IOPS";
    let plot = RowPlot {
        reference: Some(100.0),
        ..plot("Percent of the raw baseline", ["raw device", "raw messenger"])
    };
    let rows = Rows { id: "baseline", title: "Against the raw device and messenger", columns, plot, remarks };
    rows.chart(view, panel, |s| {
        let values =
            vec![s.mean(|r| r.carmine.percent_of_device), s.mean(|r| r.carmine.percent_of_messenger)];
        let raw = s.first().and_then(|r| r.carmine.baseline.as_ref());
        let cells = vec![
            Cell::number(values[0], 1),
            Cell::number(values[1], 1),
            Cell::number(s.mean(|r| r.carmine.iops_per_drive), 0),
            Cell::number(s.mean(|r| r.carmine.device_bytes_per_client_byte), 2),
            Cell::number(s.mean(|r| r.carmine.wire_bytes_per_client_byte), 2),
            Cell::number(raw.and_then(|b| b.device.as_ref()).map(|d| d.iops), 0),
            Cell::number(raw.and_then(|b| b.messenger.as_ref()).map(|m| m.iops), 0),
        ];
        Some((values.iter().any(Option::is_some).then_some(values), cells))
    })
}
