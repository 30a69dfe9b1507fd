//! Hockey sticks: latency against IOPS while more and more is asked.

use carmine_load::verdict::{self, LevelCurve};
use carmine_study::archive::PointResult;
use carmine_topology::Grid;

use super::View;
use super::view::{Panel, slug};
use crate::chart::{Chart, Dot, Key, Plot, Upright};
use crate::data::{LOAD_AXES, PANEL_AXES, SIZE_AXES, Setting, axis_value};
use crate::lists::grouped;

/// Latencies that differ by more than this factor are drawn on a logarithmic axis.
const LOG_FACTOR: f64 = 40.0;
/// Curves in one chart.
const CURVES_MAX: usize = 8;
const COLUMNS: &str =
    "IOPS | mean (µs) | stddev (µs) | p50 (µs) | p95 (µs) | p99 (µs) | p99.9 (µs) | of | limiter";

pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    if !LOAD_AXES.iter().any(|axis| view.axes.tells(axis)) {
        return Vec::new();
    }
    let panels = view.panels().into_iter().flat_map(|panel| split(view, panel));
    let mut charts: Vec<Chart> = panels.filter_map(|panel| chart(view, &panel)).collect();
    let is_wide = |(low, high)| low > 0.0 && high > low * LOG_FACTOR;
    let log = charts.iter().flat_map(|chart| &chart.plots).any(|plot| is_wide(plot.spans()[1]));
    for plot in charts.iter_mut().flat_map(|chart| &mut chart.plots) {
        if let Upright::Numbers(axis) = &mut plot.y {
            axis.log = log;
        }
    }
    charts
}

/// More curves than colours can tell apart become a chart for each size.
fn split<'a, 'b>(view: &View<'_>, panel: Panel<'a, 'b>) -> Vec<Panel<'a, 'b>> {
    if curves(view, &panel).len() <= CURVES_MAX {
        return vec![panel];
    }
    let titled = |setting: &'b Setting<'a>| {
        let size = SIZE_AXES.into_iter().filter(|axis| view.axes.tells(axis));
        let size: Vec<String> = size.filter_map(|axis| axis_value(setting.config, axis)).collect();
        ([panel.title.as_str(), &size.join(" · ")].join(", "), setting)
    };
    let part = |(title, settings): (String, _)| Panel {
        id: slug(&title),
        kind: panel.kind.clone(),
        title,
        settings,
    };
    grouped(panel.settings.iter().copied().map(titled)).into_iter().map(part).collect()
}

fn chart(view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
    let curves = curves(view, panel);
    if !curves.iter().any(|(_, points)| points.len() > 1) {
        return None;
    }
    let mut plot = Plot::new("IOPS", "Latency (ms)");
    for (n, (name, points)) in curves.iter().enumerate() {
        let name = if name.is_empty() { "measured" } else { name };
        plot.series(Key::series(n, name), &points.iter().filter_map(|s| dot(s)).collect::<Vec<_>>());
    }
    let mut remarks = vec!["Dots are mean latencies; bars reach from p50 to p99.".to_owned()];
    if panel.settings.iter().any(|s| !s.is_clean) {
        remarks
            .push("Hollow dots are marked (SHARED, NOISY, UNSTEADY or SMOKE): read them with care.".into());
    }
    if panel.settings.iter().any(|s| s.latency.is_none()) {
        remarks.push("Repeats without a histogram have no latency: percentiles can't be averaged.".into());
    }
    let table = view.table(panel.settings.iter().copied(), COLUMNS);
    Some(panel.chart("curve", "Latency against IOPS", vec![plot], table, remarks))
}

type Curves<'a, 'b> = Vec<(String, Vec<&'b Setting<'a>>)>;

/// Settings of one curve each: those that differ in load only.
fn curves<'a, 'b>(view: &View<'_>, panel: &Panel<'a, 'b>) -> Curves<'a, 'b> {
    let without: Vec<&str> = LOAD_AXES.into_iter().chain(PANEL_AXES).collect();
    let named = |setting: &&'b Setting<'a>| (view.name(setting, &without), *setting);
    let mut curves = grouped(panel.settings.iter().map(named));
    for (_, points) in &mut curves {
        points.sort_by(|a, b| asked(a).total_cmp(&asked(b)));
    }
    curves
}

/// How much is asked: the rate if there is one, else requests in flight.
fn asked(setting: &Setting<'_>) -> f64 {
    let depth = setting.config.float("iodepth").unwrap_or(1.0) * setting.config.float("jobs").unwrap_or(1.0);
    setting.config.float("rate_iops").unwrap_or(depth)
}

/// Curves that level off although the OSDs have CPUs left: arms of the same size are looked at together.
pub(crate) fn suspicions(view: &View<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for panel in view.panels() {
        let sized = curves(view, &panel).into_iter().filter_map(|(name, points)| {
            let size = SIZE_AXES.map(|axis| points.first().and_then(|s| s.config.show(axis)));
            Some((size, levelled(if name.is_empty() { &panel.title } else { &name }, &points)?))
        });
        for (_, levels) in grouped(sized) {
            let suspicion = verdict::curves(&levels);
            found.extend(suspicion.map(|s| format!("{}: {} Next: {}.", panel.title, s.reason, s.next)));
        }
    }
    found
}

/// A curve at the level where it ends, if it does.
fn levelled(arm: &str, points: &[&Setting<'_>]) -> Option<LevelCurve> {
    let iops = verdict::level(&points.iter().map(|s| s.iops()).collect::<Vec<_>>())?;
    let last = points.last()?;
    let grid: Grid = serde_json::from_value(last.first()?.carmine.grid.clone()).ok()?;
    let used = |r: &PointResult| {
        let seconds: f64 = r.carmine.osds.iter().map(|osd| osd.cpu_seconds.kernel_total).sum();
        Some(seconds / r.carmine.window_seconds)
    };
    Some(LevelCurve {
        arm: arm.to_owned(),
        iops,
        osd_cpus_used: last.mean(used)?,
        osd_cpus: grid.allocated_cpus().len() as f64,
        client_cpus_used: last.mean(|r| r.carmine.client_cores_used)?,
        client_cpus: grid.clients.len() as f64,
    })
}

/// The mean latency, and from p50 to p99.
fn dot(setting: &Setting<'_>) -> Option<Dot> {
    let ms = |ns: Option<f64>| ns.map(|ns| ns / 1e6);
    let y = ms(setting.mean_ns())?;
    let bar = ms(setting.latency_ns(50.0)).zip(ms(setting.latency_ns(99.0)));
    Some(Dot { x: setting.iops(), y, bar, marked: !setting.is_clean })
}
