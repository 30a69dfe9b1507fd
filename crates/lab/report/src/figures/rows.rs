//! Charts with a row for each setting: results, figures per core, CPU time, and how near the raw baselines are. The figures of
//! all tables are defined here, each once: every table names the columns that it has.

use carmine_load::stages::Stage;
use carmine_study::archive::{Baseline, PerCore, PointResult};
use carmine_types::counted;

use super::{Panel, View, context};
use crate::chart::{Axis, Chart, Ink, Key, Plot, Row};
use crate::data::{PANEL_AXES, Setting};
use crate::table::{Cell, Table};

/// The cell of a setting, or of a single point.
type Of = fn(&Setting<'_>) -> Cell;

const FIGURES: [(&str, Of); 48] = [
    ("marks", |s| s.words.join(" ").into()),
    ("repeats", |s| Cell::Number(s.used.len() as f64, 0)),
    ("limiter", |s| Cell::text(s.limiter().as_ref().map(|(name, _)| name.as_str()))),
    ("decided by", |s| Cell::text(s.limiter().as_ref().map(|(_, why)| why.as_str()))),
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
    ("reactors without a CPU (cores)", |s| Cell::number(s.mean(waiting), 2)),
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
    ("all PGs clean after (s)", |s| Cell::number(s.mean(|r| r.carmine.recovery?.clean_s), 1)),
    ("p99 until then (ms)", |s| Cell::number(s.mean(|r| Some(r.carmine.recovery?.p99_ns? / 1e6)), 2)),
    ("p99 after it (ms)", |s| Cell::number(s.mean(|r| Some(r.carmine.recovery?.p99_after_ns? / 1e6)), 2)),
    ("cache", |s| Cell::text(s.first.carmine.cache_state.as_deref())),
    ("before it", |s| Cell::text(s.points.first().map(|p| p.condition.as_str()))),
    ("seconds", |s| Cell::number(s.points.first().map(|p| p.seconds), 1)),
];

/// Parts of the CPU time of the OSDs by the stages of an operation: one colour each.
const STAGES: [(&str, &[Stage]); 8] = [
    ("sockets (µs/op)", &[Stage::Receive, Stage::Send]),
    ("messages (µs/op)", &[Stage::Frame, Stage::Reply]),
    ("PGs (µs/op)", &[Stage::Route, Stage::Pg]),
    ("store (µs/op)", &[Stage::Store]),
    ("log and RocksDB (µs/op)", &[Stage::Log]),
    ("drive (µs/op)", &[Stage::Device]),
    ("other copies (µs/op)", &[Stage::Replicas]),
    ("reactor (µs/op)", &[Stage::Reactor]),
];

fn stages(setting: &Setting<'_>, of: &[Stage]) -> Cell {
    let cost = |result: &PointResult| {
        let stages = &result.carmine.stages.as_ref()?.stages;
        let part = stages.iter().filter(|cost| of.contains(&cost.stage)).filter_map(|cost| cost.cpu_ns);
        Some(part.sum::<f64>() / 1e3)
    };
    Cell::number(setting.mean(cost), 2)
}

fn us(ns: Option<f64>) -> Cell {
    Cell::number(ns.map(|ns| ns / 1e3), 0)
}

fn raw(setting: &Setting<'_>, iops: fn(&Baseline) -> Option<f64>) -> Cell {
    Cell::number(setting.first.carmine.baseline.as_ref().and_then(iops), 0)
}

fn waiting(result: &PointResult) -> Option<f64> {
    Some(result.osd_seconds(|cpu| cpu.wait)? / result.carmine.window_seconds)
}

/// IOPS per core as MB/s per core.
fn megabytes(setting: &Setting<'_>, of: fn(&PerCore) -> Option<f64>) -> Cell {
    let iops = setting.mean(|r| of(&r.carmine.iops_per_core));
    Cell::number(iops.zip(bytes_per_op(setting)).map(|(iops, bytes)| iops * bytes / 1e6), 1)
}

fn bytes_per_op(setting: &Setting<'_>) -> Option<f64> {
    setting.mean(|r| Some(r.bw_bytes() / r.iops()))
}

/// The figures of a setting by the names of their columns, which are separated by ` | `.
pub(crate) fn cells(setting: &Setting<'_>, columns: &str) -> Vec<Cell> {
    let figure = |name: &str| FIGURES.iter().find(|(of, _)| *of == name).map(|(_, of)| of(setting));
    let part = |name: &str| STAGES.iter().find(|(of, _)| *of == name).map(|(_, of)| stages(setting, of));
    columns.split(" | ").map(|name| figure(name).or_else(|| part(name)).unwrap_or_default()).collect()
}

/// The number of a figure; `None` if it is not known, or no number.
fn number(setting: &Setting<'_>, column: &str) -> Option<f64> {
    match cells(setting, column)[..] {
        [Cell::Number(value, _)] => Some(value),
        _ => None,
    }
}

impl View<'_> {
    /// A row for each setting: its name, its figures and its marks.
    pub(super) fn table(&self, settings: &[&Setting<'_>], columns: &str) -> Table {
        let columns = format!("{columns} | marks");
        let row = |s: &&Setting<'_>| [vec![self.name(s, &PANEL_AXES).into()], cells(s, &columns)].concat();
        Table::new(&format!("setting | {columns}"), settings.iter().map(row))
    }
}

/// A chart whose rows show the first columns of its table.
pub(super) struct Kind {
    id: &'static str,
    title: &'static str,
    axis: &'static str,
    shown: usize,
    columns: &'static str,
    remark: &'static str,
    stacked: bool,
    reference: Option<f64>,
}

/// A chart of dots.
const DOTS: Kind = Kind {
    id: "latency",
    title: "Latency",
    axis: "Latency",
    shown: 3,
    columns: "p50 (µs) | mean (µs) | p99 (µs) | IOPS | MB/s | limiter | repeats",
    remark: "",
    stacked: false,
    reference: None,
};

/// IOPS and latency of each workload, for plans that vary neither size nor load.
pub(super) const RESULTS: [Kind; 2] = [
    Kind {
        id: "iops",
        title: "IOPS",
        axis: "IOPS",
        shown: 1,
        columns: "IOPS | MB/s | p50 (µs) | mean (µs) | p99 (µs) | limiter | repeats",
        stacked: true,
        ..DOTS
    },
    DOTS,
];

const PER_CORE: Kind = Kind {
    id: "iops-per-core",
    title: "IOPS per core",
    axis: "IOPS per core",
    columns: "IOPS/core allocated | IOPS/core used | IOPS/core busy | IOPS | MB/s",
    remark: "Allocated: the CPUs of reactors and aliens. Used: the CPU time of all OSD processes. Busy: that without the \
             reactors' looking for work.",
    ..DOTS
};
const MB_PER_CORE: Kind = Kind {
    id: "mb-per-core",
    title: "MB/s per core",
    axis: "MB/s per core",
    columns: "MB/s/core allocated | MB/s/core used | MB/s/core busy | IOPS | MB/s",
    ..PER_CORE
};

/// CPU time of an operation by the work that took it.
pub(super) const CPU_TIME: Kind = Kind {
    id: "cpu",
    title: "Where a microsecond of CPU goes",
    axis: "CPU time per operation (µs)",
    shown: 8,
    columns: "reactors at work (µs/op) | the kernel for reactors (µs/op) | reactors looking for work (µs/op) | RocksDB (µs/op) | \
              other aliens (µs/op) | OSDs, not divided (µs/op) | after the window (drain) (µs/op) | \
              the kernel elsewhere (µs/op) | machine µs/op | OSD µs/op | reactors without a CPU (cores)",
    remark: "The whole bar is the CPU time of the machine without the generator. The kernel's part for reactors is known with \
             samples only, the kernel elsewhere only where the machine did nothing else.",
    stacked: true,
    ..DOTS
};

/// The same of the OSDs alone, by the stages of an operation.
pub(super) const CPU_STAGES: Kind = Kind {
    id: "stages",
    title: "Stages of an operation",
    axis: "CPU time of the OSDs per operation (µs)",
    shown: 8,
    columns: "sockets (µs/op) | messages (µs/op) | PGs (µs/op) | store (µs/op) | log and RocksDB (µs/op) | drive (µs/op) | \
              other copies (µs/op) | reactor (µs/op) | OSD µs/op",
    remark: "Of the profile that was taken before the window. Sockets and drive: the kernel's work for them. \
             The rest to \"OSD µs/op\" belongs to no stage.",
    stacked: true,
    ..DOTS
};

/// How close a result comes to what the raw device and the raw messenger can do.
pub(super) const BASELINES: Kind = Kind {
    id: "baseline",
    title: "Against the raw device and messenger",
    axis: "Against the raw device and messenger (%)",
    shown: 2,
    columns: "of the raw device (%) | of the raw messenger (%) | IOPS per drive | device bytes per client byte | \
              wire bytes per client byte | raw device IOPS | raw messenger IOPS",
    remark: "Raw device and raw messenger were measured in the same minutes, with the same block size and depth.",
    reference: Some(100.0),
    ..DOTS
};

/// How long an OSD that went out kept PGs from being clean, and what clients felt of it.
pub(super) const RECOVERY: Kind = Kind {
    id: "recovery",
    title: "Recovery under the load",
    axis: "Time until all PGs were clean (s)",
    shown: 1,
    columns: "all PGs clean after (s) | p99 until then (ms) | p99 after it (ms) | p99 (µs) | IOPS",
    remark: "An OSD was taken out when the window began. Without a time not all PGs were clean within the window.",
    ..DOTS
};

/// The charts of each workload.
pub(super) fn charts(view: &View<'_>, kinds: &[Kind]) -> Vec<Chart> {
    let panels = view.panels();
    panels.iter().flat_map(|panel| kinds.iter().filter_map(|kind| kind.chart(view, panel))).collect()
}

/// From this block size on, bytes are the figure and not operations.
const LARGE_BYTES: f64 = 65_536.0;

/// The yield of a core: IOPS per core, or MB/s per core for large blocks.
pub(super) fn per_core(view: &View<'_>) -> Vec<Chart> {
    let is_large = |s: &&Setting<'_>| bytes_per_op(s) >= Some(LARGE_BYTES);
    let kind =
        |panel: &Panel<'_, '_>| if panel.settings.iter().all(is_large) { MB_PER_CORE } else { PER_CORE };
    view.panels().iter().filter_map(|panel| kind(panel).chart(view, panel)).collect()
}

impl Kind {
    /// The chart of a panel; `None` if no setting has such figures.
    fn chart(&self, view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
        let columns: Vec<&str> = self.columns.split(" | ").collect();
        let (shown, more) = columns.split_at(self.shown);
        // Parts of a bar that are nothing everywhere are left out.
        let is_drawn = |(_, column): &(usize, &&str)| {
            !self.stacked || panel.settings.iter().any(|s| number(s, column) > Some(0.0))
        };
        let drawn = shown.iter().enumerate().filter(is_drawn);
        let key = |n, column: &str| Key::series(n, column.trim_end_matches(" (µs/op)"));
        let (keys, shown): (Vec<Key>, Vec<&str>) = drawn.map(|(n, column)| (key(n, column), *column)).unzip();
        let values = |s: &Setting<'_>| shown.iter().map(|column| number(s, column)).collect::<Vec<_>>();
        let (rows, cut) = view.rows(panel);
        let is_known = |s: &&Setting<'_>| values(s).iter().any(Option::is_some);
        let (known, unknown): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_known);
        if known.is_empty() {
            return None;
        }
        let rows: Vec<Row> = known.iter().map(|setting| view.row(setting, values(setting))).collect();
        let mut plot = Plot::of_rows(Axis::from_zero(self.axis), keys, &rows, self.stacked);
        self.reference.into_iter().for_each(|x| plot.upright(x, Ink::AXIS));
        let table = view.table(&panel.settings, &[&shown, more].concat().join(" | "));
        let without = (!unknown.is_empty()).then(|| {
            let have = if unknown.len() == 1 { "has" } else { "have" };
            let all = counted(unknown.len(), "setting");
            format!("{all} {have} no such figure: CPUs are shared, or it was not measured.")
        });
        let remark = Some(self.remark.to_owned()).filter(|remark| !remark.is_empty());
        let remarks = remark.into_iter().chain(without).chain(cut).collect();
        let chart = panel.chart(self.id, self.title, vec![plot], table, remarks);
        Some(Chart { context: context(&known), ..chart })
    }
}
