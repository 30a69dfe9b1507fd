//! Charts of lines: hockey sticks, which show latency against IOPS as the load grows; and scaling, which shows what each size gives. The
//! words about scaling are the study's.

use carmine_load::verdict;
use carmine_stats::Knee;
use carmine_study::answer::level_curve;
use carmine_study::archive::{Config, PointResult};
use carmine_study::scaling::{Along, Scaling};

use super::rows::cells;
use super::{Panel, View, context};
use crate::chart::{Chart, Dot, Form, Ink, Key, Plot, Shape, Upright};
use crate::data::{LOAD_AXES, PANEL_AXES, SIZE_AXES, Setting, axis_value, drift_of};
use crate::lists::{grouped, joined};
use crate::table::{Cell, Table};

/// Latencies that differ by more than this factor are drawn on a logarithmic axis.
const LOG_FACTOR: f64 = 40.0;
/// Curves in one chart.
const CURVES_MAX: usize = 8;
const COLUMNS: &str =
    "IOPS | mean (µs) | stddev (µs) | p50 (µs) | p95 (µs) | p99 (µs) | p99.9 (µs) | of | limiter";

/// Hockey sticks.
pub(super) fn latency(view: &View<'_>) -> Vec<Chart> {
    if !LOAD_AXES.iter().any(|axis| view.axes.tells(axis)) {
        return Vec::new();
    }
    let panels = view.panels().into_iter().flat_map(|panel| split(view, panel));
    let mut charts: Vec<Chart> = panels.filter_map(|panel| latency_of(view, &panel)).collect();
    let is_wide = |(low, high)| low > 0.0 && high > low * LOG_FACTOR;
    let is_log = charts.iter().flat_map(|chart| &chart.plots).any(|plot| is_wide(plot.spans()[1]));
    for plot in charts.iter_mut().flat_map(|chart| &mut chart.plots) {
        if let Upright::Numbers(axis) = &mut plot.y {
            axis.log = is_log;
        }
    }
    charts
}

/// More curves than colours can tell apart become a chart for each size.
fn split<'a, 'b>(view: &View<'a>, panel: Panel<'a, 'b>) -> Vec<Panel<'a, 'b>> {
    if curves(view, &panel).len() <= CURVES_MAX {
        return vec![panel];
    }
    let titled = |setting: &'b Setting<'a>| {
        let size = SIZE_AXES.into_iter().filter(|axis| view.axes.tells(axis));
        let size: Vec<String> = size.filter_map(|axis| axis_value(setting.config, axis)).collect();
        ([panel.title.as_str(), &size.join(" · ")].join(", "), setting)
    };
    let parts = grouped(panel.settings.iter().copied().map(titled)).into_iter();
    parts.map(|(title, settings)| Panel::new(title, panel.kind.clone(), settings)).collect()
}

fn latency_of(view: &View<'_>, panel: &Panel<'_, '_>) -> Option<Chart> {
    let curves = curves(view, panel);
    if curves.iter().all(|(_, points)| points.len() < 2) {
        return None;
    }
    let mut plot = Plot::new("IOPS", "Latency (ms)");
    for (n, (name, points)) in curves.iter().enumerate() {
        let dots: Vec<Dot> = points.iter().filter_map(|s| latency_dot(s)).collect();
        plot.series(Key::series(n, or(name, "measured")), &dots);
    }
    let any = |is: fn(&Setting<'_>) -> bool| panel.settings.iter().any(|setting| is(setting));
    let mut remarks = vec!["Dots are mean latencies; bars reach from p50 to p99."];
    if any(|s| !s.is_clean) {
        remarks.push("Hollow dots are marked (SHARED, NOISY, UNSTEADY or SMOKE): read them with care.");
    }
    if any(|s| s.latency.is_none()) {
        remarks.push("Repeats without a histogram have no latency: percentiles can't be averaged.");
    }
    let remarks = remarks.into_iter().map(str::to_owned).collect();
    let table = view.table(&panel.settings, COLUMNS);
    Some(panel.chart("curve", "Latency against IOPS", vec![plot], table, remarks))
}

/// The mean latency, and from p50 to p99.
fn latency_dot(setting: &Setting<'_>) -> Option<Dot> {
    let ms = |ns: Option<f64>| ns.map(|ns| ns / 1e6);
    let bar = ms(setting.latency_ns(50.0)).zip(ms(setting.latency_ns(99.0)));
    Some(Dot { x: setting.iops(), y: ms(setting.mean_ns())?, bar, marked: !setting.is_clean })
}

/// A name, or another if it is empty.
fn or<'n>(name: &'n str, other: &'n str) -> &'n str {
    if name.is_empty() { other } else { name }
}

/// Settings of one curve each: those that differ in load only.
fn curves<'a, 'b>(view: &View<'a>, panel: &Panel<'a, 'b>) -> Vec<(String, Vec<&'b Setting<'a>>)> {
    let without = [&LOAD_AXES[..], &PANEL_AXES].concat();
    let mut curves = grouped(panel.settings.iter().map(|s| (view.name(s, &without), *s)));
    curves.iter_mut().for_each(|(_, points)| points.sort_by(|a, b| asked(a).total_cmp(&asked(b))));
    curves
}

/// The load that is asked for: the rate if there is one, else requests in flight.
fn asked(setting: &Setting<'_>) -> f64 {
    let [depth, jobs] = ["iodepth", "jobs"].map(|axis| setting.config.float(axis).unwrap_or(1.0));
    setting.config.float("rate_iops").unwrap_or(depth * jobs)
}

/// Curves that level off although the OSDs have CPUs left: arms of the same size are looked at together.
pub(crate) fn suspicions(view: &View<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for panel in view.panels() {
        let sized = curves(view, &panel).into_iter().filter_map(|(name, mut points)| {
            points.retain(|setting| setting.supported().is_ok());
            let size = SIZE_AXES.map(|axis| points.first().and_then(|point| point.config.show(axis)));
            let iops: Vec<f64> = points.iter().map(|setting| setting.iops()).collect();
            let top: Vec<&PointResult> = points.last()?.results().collect();
            Some((size, level_curve(or(&name, &panel.title), &iops, &top)?))
        });
        let suspicions = grouped(sized).into_iter().filter_map(|(_, levels)| verdict::curves(&levels));
        found.extend(suspicions.map(|s| format!("{}: {} Next: {}.", panel.title, s.reason, s.next)));
    }
    found
}

/// One line of a scaling chart: the most IOPS at each size.
struct Series<'a, 'b> {
    name: String,
    points: Vec<(f64, &'b Setting<'a>)>,
    /// Of all its settings, also those that are not the best at their size.
    scaling: Scaling,
}

/// The lines of each workload that has one of several sizes.
fn scaled<'a, 'b>(view: &'b View<'a>) -> Vec<(Panel<'a, 'b>, Vec<Series<'a, 'b>>)> {
    let Some(along) = Along::first_varying(view.settings.iter().map(|setting| setting.config)) else {
        return Vec::new();
    };
    let lines = view.panels().into_iter().map(|panel| {
        let series = series(view, &panel, along);
        (panel, series)
    });
    lines.filter(|(_, series)| series.iter().any(|s| s.points.len() > 1)).collect()
}

fn series<'a, 'b>(view: &View<'a>, panel: &Panel<'a, 'b>, along: Along) -> Vec<Series<'a, 'b>> {
    let size_axes: &[&str] = match along {
        Along::Reactors | Along::Osds => &SIZE_AXES,
        Along::Cpus => &["cpus"],
    };
    let size = |setting: &Setting<'_>| along.value(setting.config);
    let settings = panel.settings.iter().copied().filter(|setting| size(setting).is_some());
    let one = |(name, settings): (String, Vec<&'b Setting<'a>>)| {
        let repeats = settings.iter().flat_map(|s| s.points.iter().map(|p| (s.config, p.result.as_ref())));
        let all: Vec<(&Config, Option<&PointResult>)> = repeats.collect();
        let sized = grouped(settings.iter().filter_map(|s| Some((size(s)?, *s)))).into_iter();
        let mut points: Vec<_> = sized.map(|(x, all)| (x, Setting::best(&all))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, points, scaling: Scaling::fit(along, &all, drift(view)) }
    };
    let without = [&LOAD_AXES[..], &PANEL_AXES, size_axes].concat();
    grouped(settings.map(|s| (view.name(s, &without), s))).into_iter().map(one).collect()
}

/// The largest drift of any run; `None` if it is not known of one.
fn drift(view: &View<'_>) -> Option<f64> {
    let all: Option<Vec<f64>> = view.runs.iter().map(|run| Some(drift_of(run)?.largest().abs())).collect();
    all?.into_iter().reduce(f64::max)
}

/// A sentence for each line: slope, knee, and what bound it there.
pub(crate) fn findings(view: &View<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for (panel, series) in scaled(view) {
        let told = series.iter().filter(|s| s.points.len() > 1);
        findings.extend(told.map(|s| format!("{}: {}.", joined([&*panel.title, &s.name], ", "), s.scaling)));
    }
    findings
}

/// Scaling charts.
pub(super) fn scaling(view: &View<'_>) -> Vec<Chart> {
    let charts = |(panel, series): &(Panel<'_, '_>, Vec<_>)| scaling_of(panel, series);
    scaled(view).iter().flat_map(charts).collect()
}

/// The yield of a core at each size, unless CPUs are shared; and that of all.
fn scaling_of(panel: &Panel<'_, '_>, series: &[Series<'_, '_>]) -> Vec<Chart> {
    let sizes = series[0].scaling.along.title();
    let settings: Vec<&Setting> = series.iter().flat_map(|s| &s.points).map(|(_, s)| *s).collect();
    let chart = |id, y: &str, plot, mut remarks: Vec<String>| {
        if settings.iter().any(|s| s.used.len() > 1) {
            remarks.push("Bars are 95 % intervals of the mean of the repeats.".to_owned());
        }
        if settings.iter().any(|s| !s.is_clean) {
            let hollow = "Hollow dots are marked, and in no slope.";
            remarks.push(hollow.to_owned());
        }
        let title = format!("{y} against {sizes}");
        let chart = panel.chart(id, &title, vec![plot], scaling_table(panel, series), remarks);
        Chart { context: context(&settings), ..chart }
    };
    let level = "A level line is perfect scaling: each further core gives what the first gave.".to_owned();
    let per_core = Some(per_core(series, sizes)).filter(|plot| plot.spans()[0].0.is_finite());
    let per_core = per_core.map(|plot| chart("scaling-per-core", "IOPS per core", plot, vec![level]));
    let told = series.iter().map(|one| joined([&*one.name, &format!("{}.", one.scaling)], ": "));
    let total = chart("scaling", "IOPS", total(series, sizes), told.collect());
    per_core.into_iter().chain([total]).collect()
}

/// A dot at each size: the mean of the repeats, and its 95 % interval.
fn dots(series: &Series<'_, '_>, of: fn(&PointResult) -> Option<f64>) -> Vec<Dot> {
    let dot = |(x, setting): &(f64, &Setting<'_>)| {
        let each: Vec<f64> = setting.results().filter_map(of).collect();
        let (y, bar) = carmine_stats::mean_with_interval(&each)?;
        Some(Dot { x: *x, y, bar, marked: !setting.is_clean })
    };
    series.points.iter().filter_map(dot).collect()
}

fn total(series: &[Series<'_, '_>], sizes: &str) -> Plot {
    let mut plot = Plot::new(sizes, "IOPS");
    for (n, one) in series.iter().enumerate() {
        plot.series(Key::series(n, or(&one.name, "measured")), &dots(one, |r| Some(r.iops())));
    }
    // A line from the first point on, as if every unit gave what the first gave.
    let all = || series.iter().flat_map(|s| &s.points);
    let first = all().min_by(|a, b| a.0.total_cmp(&b.0).then(b.1.iops().total_cmp(&a.1.iops())));
    if let Some((x, first)) = first {
        let end = all().map(|(x, _)| *x).fold(*x, f64::max);
        plot.line([*x, end].map(|at| (at, first.iops() / x * at)).into(), Ink::MUTED, 0);
        plot.keys.push(Key { name: "ideal: as the first".into(), ink: Ink::MUTED, dotted: true });
    }
    if let [Series { scaling: Scaling { knee: Some(Knee { x: Some(x), .. }), .. }, .. }] = series {
        let (_, high) = plot.spans()[1];
        plot.upright(*x, Ink::MUTED);
        plot.shapes.push(Shape::new(Form::Text((*x, high), "knee".into()), Ink::TEXT));
    }
    plot
}

fn per_core(series: &[Series<'_, '_>], sizes: &str) -> Plot {
    let mut plot = Plot::new(sizes, "IOPS per core");
    for (n, one) in series.iter().enumerate() {
        let key = |kind: &str| Key::series(n, joined([&*one.name, kind], ", "));
        plot.series(key("per core used"), &dots(one, |r| r.carmine.iops_per_core.used));
        let allocated = dots(one, |r| r.carmine.iops_per_core.allocated);
        plot.series(Key { dotted: true, ..key("per core allocated") }, &allocated);
    }
    plot
}

fn scaling_table(panel: &Panel<'_, '_>, series: &[Series<'_, '_>]) -> Table {
    const COLUMNS: &str =
        "IOPS/core used | IOPS/core allocated | p99 (µs) | limiter | decided by | repeats | marks";
    let along = series[0].scaling.along;
    let (unit, plural) = (along.unit(), along.title());
    let row = |(one, (x, setting)): (&Series<'_, '_>, &(f64, &Setting<'_>))| {
        let gain = one.points.first().map(|(x, s)| s.iops() / x);
        let load: Vec<String> = LOAD_AXES.iter().filter_map(|a| axis_value(setting.config, a)).collect();
        let own = vec![
            or(&one.name, &panel.title).into(),
            Cell::count(*x),
            load.join(" · ").into(),
            Cell::Number(setting.iops(), 0),
            Cell::Number(setting.iops() / x, 0),
            Cell::number(gain.map(|gain| setting.iops() / (gain * x) * 100.0), 0),
        ];
        [own, cells(setting, COLUMNS)].concat()
    };
    let rows = series.iter().flat_map(|one| one.points.iter().map(move |at| (one, at))).map(row);
    Table::new(&format!("series | {plural} | at | IOPS | IOPS per {unit} | of ideal (%) | {COLUMNS}"), rows)
}
