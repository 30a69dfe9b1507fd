//! Scaling charts; what they say in words is the study's.

use carmine_stats::Knee;
use carmine_study::archive::{Config, PointResult};
use carmine_study::scaling::{Along, Scaling};

use super::View;
use super::columns::cells;
use super::view::{Panel, context};
use crate::chart::{Chart, Dot, Form, Ink, Key, Plot, Shape};
use crate::data::{LOAD_AXES, PANEL_AXES, SIZE_AXES, Setting};
use crate::lists::{grouped, joined};
use crate::table::{Cell, Table};

/// One line: the most IOPS at each size.
struct Series<'a, 'b> {
    name: String,
    points: Vec<(f64, &'b Setting<'a>)>,
    /// Of all its settings, also those that are not the best at their size.
    scaling: Scaling,
}

/// The horizontal axis of all scaling charts.
fn along(view: &View<'_>) -> Option<Along> {
    Along::of(view.settings.iter().map(|setting| setting.config))
}

pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    let Some(along) = along(view) else { return Vec::new() };
    let mut charts = Vec::new();
    for panel in view.panels() {
        let series = series(view, &panel, along);
        if series.iter().any(|s| s.points.len() > 1) {
            charts.extend(per_core(&panel, &series, along));
            charts.push(total(&panel, &series, along));
        }
    }
    charts
}

/// A sentence for each line: slope, knee, and what bound it there.
pub(crate) fn findings(view: &View<'_>) -> Vec<String> {
    let Some(along) = along(view) else { return Vec::new() };
    let mut findings = Vec::new();
    for panel in view.panels() {
        for series in series(view, &panel, along).iter().filter(|s| s.points.len() > 1) {
            let name = if series.name.is_empty() { String::new() } else { format!(", {}", series.name) };
            findings.push(format!("{}{name}: {}.", panel.title, series.scaling));
        }
    }
    findings
}

fn series<'a, 'b>(view: &View<'_>, panel: &Panel<'a, 'b>, along: Along) -> Vec<Series<'a, 'b>> {
    let size_axes: &[&str] = match along {
        Along::Reactors | Along::Osds => &SIZE_AXES,
        Along::Cpus => &["cpus"],
    };
    let without: Vec<&str> =
        LOAD_AXES.into_iter().chain(PANEL_AXES).chain(size_axes.iter().copied()).collect();
    let settings = panel.settings.iter().filter(|setting| along.value(setting.config).is_some());
    let named = grouped(settings.map(|setting| (view.name(setting, &without), *setting)));
    let one = |(name, settings): (String, Vec<&'b Setting<'a>>)| {
        let repeats = settings.iter().flat_map(|s| s.points.iter().map(|p| (s.config, p.result.as_ref())));
        let all: Vec<(&Config, Option<&PointResult>)> = repeats.collect();
        let sized = settings.iter().map(|s| (along.value(s.config).unwrap_or_default(), *s));
        let best = |(x, settings): (f64, Vec<&'b Setting<'a>>)| {
            Some((x, settings.into_iter().reduce(Setting::better)?))
        };
        let mut points: Vec<_> = grouped(sized).into_iter().filter_map(best).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, points, scaling: Scaling::of(along, &all) }
    };
    named.into_iter().map(one).collect()
}

/// A dot at each size: the mean of the repeats, and its 95 % interval.
fn dots(series: &Series<'_, '_>, of: fn(&PointResult) -> Option<f64>) -> Vec<Dot> {
    let dot = |(x, setting): &(f64, &Setting<'_>)| {
        let (y, bar) = carmine_stats::mean_with_interval(&setting.each(of))?;
        Some(Dot { x: *x, y, bar, marked: !setting.is_clean })
    };
    series.points.iter().filter_map(dot).collect()
}

/// Draws a line from the first point on, as if every unit gave what the first gave.
fn ideal(plot: &mut Plot, series: &[Series<'_, '_>]) {
    let all = || series.iter().flat_map(|s| &s.points);
    let first = all().min_by(|a, b| a.0.total_cmp(&b.0).then(b.1.iops().total_cmp(&a.1.iops())));
    if let Some((x, first)) = first {
        let end = all().map(|(x, _)| *x).fold(*x, f64::max);
        plot.line([*x, end].map(|at| (at, first.iops() / x * at)).into(), Ink::Muted, 0);
        plot.keys.push(Key { name: "ideal: as the first".into(), ink: Ink::Muted, dotted: true });
    }
}

fn total(panel: &Panel<'_, '_>, series: &[Series<'_, '_>], along: Along) -> Chart {
    let mut plot = Plot::new(along.title(), "IOPS");
    for (n, one) in series.iter().enumerate() {
        let name = if one.name.is_empty() { "measured" } else { &one.name };
        plot.series(Key::series(n, name), &dots(one, |r| Some(r.iops())));
    }
    ideal(&mut plot, series);
    if let [Series { scaling: Scaling { knee: Some(Knee { x: Some(x), .. }), .. }, .. }] = series {
        let (_, high) = plot.spans()[1];
        plot.upright(*x, Ink::Muted);
        plot.shapes.push(Shape::new(Form::Text((*x, high), "knee".into()), Ink::Text));
    }
    let remarks = series.iter().map(|one| {
        let name = if one.name.is_empty() { String::new() } else { format!("{}: ", one.name) };
        format!("{name}{}.", one.scaling)
    });
    let title = format!("IOPS against {}", along.title());
    chart(panel, series, along, ("scaling", &title), plot, remarks.collect())
}

/// The yield of a core at each size; `None` where CPUs are shared.
fn per_core(panel: &Panel<'_, '_>, series: &[Series<'_, '_>], along: Along) -> Option<Chart> {
    let mut plot = Plot::new(along.title(), "IOPS per core");
    for (n, one) in series.iter().enumerate() {
        let named = |kind: &str| joined([one.name.as_str(), kind], ", ");
        let used = dots(one, |r| r.carmine.iops_per_core.used);
        let allocated = dots(one, |r| r.carmine.iops_per_core.allocated);
        plot.series(Key::series(n, named("per core used")), &used);
        plot.series(Key { dotted: true, ..Key::series(n, named("per core allocated")) }, &allocated);
    }
    let title = format!("IOPS per core against {}", along.title());
    let remark = "A level line is perfect scaling: each further core gives what the first gave.".to_owned();
    let known = plot.spans()[0].0.is_finite();
    known.then(|| chart(panel, series, along, ("scaling-per-core", &title), plot, vec![remark]))
}

fn chart(
    panel: &Panel<'_, '_>,
    series: &[Series<'_, '_>],
    along: Along,
    (id, title): (&str, &str),
    plot: Plot,
    mut remarks: Vec<String>,
) -> Chart {
    let settings: Vec<&Setting> = series.iter().flat_map(|s| &s.points).map(|(_, s)| *s).collect();
    if settings.iter().any(|s| s.repeats() > 1) {
        remarks.push("Bars are 95 % intervals of the mean of the repeats.".to_owned());
    }
    if settings.iter().any(|s| !s.is_clean) {
        remarks.push("Hollow dots are marked; SHARED, NOISY and UNSTEADY ones are in no slope.".to_owned());
    }
    let chart = panel.chart(id, title, vec![plot], table(panel, series, along), remarks);
    Chart { context: context(&settings), ..chart }
}

fn table(panel: &Panel<'_, '_>, series: &[Series<'_, '_>], along: Along) -> Table {
    const COLUMNS: &str =
        "IOPS/core used | IOPS/core allocated | p99 (µs) | limiter | decided by | repeats | marks";
    let (unit, plural) = (along.unit(), along.title());
    let mut table =
        Table::new(&format!("series | {plural} | at | IOPS | IOPS per {unit} | of ideal (%) | {COLUMNS}"));
    for one in series {
        let gain = one.points.first().map(|(x, s)| s.iops() / x);
        for (x, setting) in &one.points {
            let name = if one.name.is_empty() { &panel.title } else { &one.name };
            let load = LOAD_AXES.iter().filter_map(|a| crate::data::axis_value(setting.config, a));
            let own = vec![
                name.as_str().into(),
                Cell::Number(*x, 0),
                load.collect::<Vec<_>>().join(" · ").into(),
                Cell::Number(setting.iops(), 0),
                Cell::Number(setting.iops() / x, 0),
                Cell::number(gain.map(|gain| setting.iops() / (gain * x) * 100.0), 0),
            ];
            table.push([own, cells(setting, COLUMNS)].concat());
        }
    }
    table
}
