//! The figures that tables show, each defined once: every table names the columns that it has.

use carmine_study::archive::{Baseline, CarmineResult, PerCore};

use super::View;
use crate::data::{PANEL_AXES, Setting};
use crate::table::{Cell, Table};

/// The cell of a setting, or of a single point.
type Of = fn(&Setting<'_>) -> Cell;

const FIGURES: [(&str, Of); 45] = [
    ("marks", |s| s.words.join(" ").into()),
    ("repeats", |s| Cell::Number(s.repeats() as f64, 0)),
    ("limiter", |s| s.limiter().map(|(name, _)| name).into()),
    ("decided by", |s| s.limiter().map(|(_, why)| why).into()),
    ("IOPS", |s| Cell::Number(s.iops(), 0)),
    ("MB/s", |s| Cell::Number(s.bw_bytes() / 1e6, 1)),
    ("mean (µs)", |s| us(s.mean_ns())),
    ("stddev (µs)", |s| us(s.latency.as_ref().map(|l| l.stddev).filter(|ns| *ns > 0.0))),
    ("p50 (µs)", |s| us(s.latency_ns(50.0))),
    ("p95 (µs)", |s| us(s.latency_ns(95.0))),
    ("p99 (µs)", |s| us(s.latency_ns(99.0))),
    ("p99.9 (µs)", |s| us(s.latency_ns(99.9))),
    ("of", |s| s.direction.into()),
    ("IOPS/core allocated", |s| Cell::number(s.mean(|r| r.carmine.iops_per_core.allocated), 0)),
    ("IOPS/core used", |s| Cell::number(s.mean(|r| r.carmine.iops_per_core.used), 0)),
    ("IOPS/core busy", |s| Cell::number(s.mean(|r| r.carmine.iops_per_core.busy), 0)),
    ("MB/s/core allocated", |s| megabytes(s, |cores| cores.allocated)),
    ("MB/s/core used", |s| megabytes(s, |cores| cores.used)),
    ("MB/s/core busy", |s| megabytes(s, |cores| cores.busy)),
    ("machine µs/op", |s| Cell::number(s.mean(|r| r.carmine.machine_cpu_us_per_op), 1)),
    ("OSD µs/op", |s| Cell::number(s.mean(|r| r.carmine.osd_cpu_us_per_op), 1)),
    ("reactors at work (µs/op)", |s| Cell::number(s.cpu_us()[0], 2)),
    ("the kernel for reactors (µs/op)", |s| Cell::number(s.cpu_us()[1], 2)),
    ("reactors looking for work (µs/op)", |s| Cell::number(s.cpu_us()[2], 2)),
    ("RocksDB (µs/op)", |s| Cell::number(s.cpu_us()[3], 2)),
    ("other aliens (µs/op)", |s| Cell::number(s.cpu_us()[4], 2)),
    ("OSDs, not divided (µs/op)", |s| Cell::number(s.cpu_us()[5], 2)),
    ("after the window (drain) (µs/op)", |s| Cell::number(s.cpu_us()[6], 2)),
    ("the kernel elsewhere (µs/op)", |s| Cell::number(s.cpu_us()[7], 2)),
    ("reactors without a CPU (cores)", |s| Cell::number(s.mean(|r| waiting(&r.carmine)), 2)),
    ("cycles/op", |s| Cell::number(s.mean(|r| r.carmine.cycles_per_op), 0)),
    ("instructions/op", |s| Cell::number(s.mean(|r| r.carmine.instructions_per_op), 0)),
    ("client cores", |s| Cell::number(s.mean(|r| r.carmine.client_cores_used), 2)),
    ("hops/op", |s| Cell::number(s.mean(|r| r.carmine.hops_per_op), 2)),
    ("of the raw device (%)", |s| Cell::number(s.mean(|r| r.carmine.percent_of_device), 1)),
    ("of the raw messenger (%)", |s| Cell::number(s.mean(|r| r.carmine.percent_of_messenger), 1)),
    ("raw device IOPS", |s| raw(s, |b| Some(b.device.as_ref()?.iops))),
    ("raw messenger IOPS", |s| raw(s, |b| Some(b.messenger.as_ref()?.iops))),
    ("IOPS per drive", |s| Cell::number(s.mean(|r| r.carmine.iops_per_drive), 0)),
    ("device bytes per client byte", |s| Cell::number(s.mean(|r| r.carmine.device_bytes_per_client_byte), 2)),
    ("wire bytes per client byte", |s| Cell::number(s.mean(|r| r.carmine.wire_bytes_per_client_byte), 2)),
    ("throttled (s)", |s| Cell::number(s.mean(|r| r.carmine.throttled_seconds), 2)),
    ("cache", |s| s.first().and_then(|r| r.carmine.cache_state.as_deref()).into()),
    ("before it", |s| s.points.first().map(|p| p.condition.as_str()).into()),
    ("seconds", |s| Cell::number(s.points.first().map(|p| p.seconds), 1)),
];

fn us(ns: Option<f64>) -> Cell {
    Cell::number(ns.map(|ns| ns / 1e3), 0)
}

fn raw(setting: &Setting<'_>, iops: fn(&Baseline) -> Option<f64>) -> Cell {
    Cell::number(setting.first().and_then(|r| r.carmine.baseline.as_ref()).and_then(iops), 0)
}

fn waiting(carmine: &CarmineResult) -> Option<f64> {
    let seconds: Option<f64> = carmine.osds.iter().map(|osd| osd.cpu_seconds.wait).sum();
    seconds.map(|seconds| seconds / carmine.window_seconds)
}

/// IOPS per core as MB/s per core.
fn megabytes(setting: &Setting<'_>, of: fn(&PerCore) -> Option<f64>) -> Cell {
    let iops = setting.mean(|r| of(&r.carmine.iops_per_core));
    Cell::number(iops.zip(bytes_per_op(setting)).map(|(iops, bytes)| iops * bytes / 1e6), 1)
}

pub(super) fn bytes_per_op(setting: &Setting<'_>) -> Option<f64> {
    setting.mean(|r| Some(r.bw_bytes() / r.iops()))
}

/// The figures of a setting by the names of their columns, which are separated by ` | `.
pub(crate) fn cells(setting: &Setting<'_>, columns: &str) -> Vec<Cell> {
    let cell = |name: &str| FIGURES.iter().find(|(of, _)| *of == name).map(|(_, of)| of(setting));
    columns.split(" | ").map(|name| cell(name).unwrap_or_default()).collect()
}

/// The number of a figure; `None` if it is not known, or no number.
pub(super) fn number(setting: &Setting<'_>, column: &str) -> Option<f64> {
    match cells(setting, column).first() {
        Some(Cell::Number(value, _)) => Some(*value),
        _ => None,
    }
}

impl View<'_> {
    /// A row for each setting: its name, its figures and its marks.
    pub(super) fn table<'a>(
        &self,
        settings: impl IntoIterator<Item = &'a Setting<'a>>,
        columns: &str,
    ) -> Table {
        let columns = format!("{columns} | marks");
        let mut table = Table::new(&format!("setting | {columns}"));
        for setting in settings {
            let name: Cell = self.name(setting, &PANEL_AXES).into();
            table.push([vec![name], cells(setting, &columns)].concat());
        }
        table
    }
}
