//! Charts with a row for each setting: results, figures per core, CPU time, and how near the raw baselines are.

use carmine_types::counted;

use super::View;
use super::columns::{bytes_per_op, number};
use super::view::{Panel, context};
use crate::chart::{Axis, Chart, Ink, Key, Plot, Row};
use crate::data::Setting;

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

/// IOPS and latency of each workload: what plans show that vary neither size nor load.
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

/// How near a result is to what the raw device and the raw messenger can do.
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

/// The charts of each workload.
pub(super) fn charts(view: &View<'_>, kinds: &[Kind]) -> Vec<Chart> {
    let panels = view.panels();
    panels.iter().flat_map(|panel| kinds.iter().filter_map(|kind| kind.chart(view, panel))).collect()
}

/// From this block size on, bytes are the figure and not operations.
const LARGE_BYTES: f64 = 65_536.0;

/// The yield of a core: IOPS per core, or MB/s per core for large blocks.
pub(super) fn per_core(view: &View<'_>) -> Vec<Chart> {
    let is_large = |s: &&Setting<'_>| bytes_per_op(s).is_some_and(|b| b >= LARGE_BYTES);
    let kind =
        |panel: &Panel<'_, '_>| if panel.settings.iter().all(is_large) { MB_PER_CORE } else { PER_CORE };
    view.panels().iter().filter_map(|panel| kind(panel).chart(view, panel)).collect()
}

impl Kind {
    /// The chart of a panel; `None` if no setting has such figures.
    fn chart(&self, view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
        let columns = || self.columns.split(" | ").enumerate();
        // Parts of a bar that are nothing everywhere are left out.
        let is_drawn = |column: &str| {
            let values = || panel.settings.iter().filter_map(|s| number(s, column));
            !self.stacked || values().any(|value| value > 0.0)
        };
        let shown: Vec<_> = columns().take(self.shown).filter(|(_, column)| is_drawn(column)).collect();
        let values = |s: &Setting<'_>| shown.iter().map(|(_, column)| number(s, column)).collect::<Vec<_>>();
        let (drawn, cut) = view.rows(panel);
        let (known, unknown): (Vec<_>, Vec<_>) =
            drawn.into_iter().partition(|s| values(s).iter().any(Option::is_some));
        if known.is_empty() {
            return None;
        }
        let key = |(n, column): &(usize, &str)| Key::series(*n, column.trim_end_matches(" (µs/op)"));
        let rows: Vec<Row> = known.iter().map(|setting| view.row(setting, values(setting))).collect();
        let keys = shown.iter().map(key).collect();
        let mut plot = Plot::of_rows(Axis::from_zero(self.axis), keys, &rows, self.stacked);
        if let Some(x) = self.reference {
            plot.upright(x, Ink::Axis);
        }
        let told = columns().filter(|(n, column)| *n >= self.shown || is_drawn(column));
        let told: Vec<&str> = told.map(|(_, column)| column).collect();
        let table = view.table(panel.settings.iter().copied(), &told.join(" | "));
        let without = (!unknown.is_empty()).then(|| {
            let (all, have) =
                (counted(unknown.len(), "setting"), if unknown.len() == 1 { "has" } else { "have" });
            format!("{all} {have} no such figure: CPUs are shared, or nothing measured it.")
        });
        let remark = Some(self.remark.to_owned()).filter(|remark| !remark.is_empty());
        let remarks = remark.into_iter().chain(without).chain(cut).collect();
        let chart = panel.chart(self.id, self.title, vec![plot], table, remarks);
        Some(Chart { context: context(&known), ..chart })
    }
}
