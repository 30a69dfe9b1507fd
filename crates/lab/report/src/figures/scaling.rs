//! Scaling charts; what they say in words is the study's.

use carmine_study::archive::{Config, PointResult};
use carmine_study::scaling::{Along, Scaling};

use super::View;
use super::curve::limiter;
use super::view::{Panel, context};
use crate::chart::{Chart, Dot, Ink, Line, LinePlot, Plot};
use crate::data::{LOAD_AXES, PANEL_AXES, SIZE_AXES, Setting};
use crate::lists::{grouped, span};
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
            charts.push(total(&panel, &series, along));
            charts.push(per_unit(&panel, &series, along));
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
        let best =
            |(x, settings): (f64, Vec<&'b Setting<'a>>)| Some((x, settings.into_iter().reduce(better)?));
        let mut points: Vec<_> = grouped(sized).into_iter().filter_map(best).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, points, scaling: Scaling::of(along, &all) }
    };
    named.into_iter().map(one).collect()
}

/// Of two settings the one with more IOPS, and a clean one before a marked one; the first of equals.
fn better<'a, 'b>(a: &'b Setting<'a>, b: &'b Setting<'a>) -> &'b Setting<'a> {
    if (b.is_clean, b.iops()) > (a.is_clean, a.iops()) { b } else { a }
}

fn line(number: usize, series: &Series<'_, '_>, y: impl Fn(f64, f64) -> f64) -> Line {
    let dots = series.points.iter().map(|(x, s)| {
        let each = s.each(|r| r.iops());
        let (low, high) = span(each.iter().copied());
        let bar = (each.len() > 1).then(|| (y(*x, low), y(*x, high)));
        Dot { x: *x, y: y(*x, s.iops()), bar, marked: !s.is_clean }
    });
    Line::series(number, &series.name, dots.collect())
}

/// From the first point on, as if every unit gave what the first gave.
fn ideal(series: &[Series<'_, '_>], y: impl Fn(f64, f64) -> f64) -> Option<Line> {
    let all = || series.iter().flat_map(|s| &s.points);
    let (x, first) = all().min_by(|a, b| a.0.total_cmp(&b.0).then(b.1.iops().total_cmp(&a.1.iops())))?;
    let end = all().map(|(x, _)| *x).fold(*x, f64::max);
    let gain = first.iops() / x;
    let dots = [*x, end].map(|x| Dot { x, y: y(x, gain * x), ..Dot::default() });
    let name = "ideal: as the first".into();
    Some(Line { name, ink: Ink::Muted, dotted: true, markers: false, dots: dots.to_vec() })
}

fn total(panel: &Panel<'_, '_>, series: &[Series<'_, '_>], along: Along) -> Chart {
    let title = format!("IOPS against {}", along.title());
    let mut chart = chart(panel, series, along, ("scaling", &title, "IOPS"), |_, iops| iops);
    if let Plot::Lines(plot) = &mut chart.plot {
        let knee = if let [only] = series { only.scaling.knee.and_then(|k| k.x) } else { None };
        plot.flags = knee.map(|x| (x, "knee".to_owned())).into_iter().collect();
    }
    for one in series {
        let name = if one.name.is_empty() { String::new() } else { format!("{}: ", one.name) };
        chart.remarks.push(format!("{name}{}.", one.scaling));
    }
    chart
}

fn per_unit(panel: &Panel<'_, '_>, series: &[Series<'_, '_>], along: Along) -> Chart {
    let unit = along.unit();
    let (id, title) = (format!("scaling-per-{}", unit.to_lowercase()), format!("IOPS per {unit}"));
    chart(panel, series, along, (&id, &title, &title), |x, iops| iops / x)
}

fn chart(
    panel: &Panel<'_, '_>,
    series: &[Series<'_, '_>],
    along: Along,
    (id, title, y): (&str, &str, &str),
    of: impl Fn(f64, f64) -> f64,
) -> Chart {
    let mut lines: Vec<Line> = series.iter().enumerate().map(|(n, s)| line(n, s, &of)).collect();
    lines.extend(ideal(series, &of));
    let mut remarks = Vec::new();
    if series.iter().flat_map(|s| &s.points).any(|(_, s)| !s.is_clean) {
        remarks.push(
            "Hollow dots are marked: those that are SHARED, NOISY or UNSTEADY are in no slope.".to_owned(),
        );
    }
    let settings: Vec<&Setting> = series.iter().flat_map(|s| &s.points).map(|(_, s)| *s).collect();
    let plot = LinePlot::from_zero(along.title(), y, lines);
    let chart = panel.chart(id, title, Plot::Lines(plot), table(panel, series, along), remarks);
    Chart { context: context(&settings), ..chart }
}

fn table(panel: &Panel<'_, '_>, series: &[Series<'_, '_>], along: Along) -> Table {
    let (unit, plural) = (along.unit(), along.title());
    let mut table = Table::new(&format!(
        "series | {plural} | at | IOPS | IOPS per {unit} | of ideal (%) | p99 (µs) | limiter | repeats | marks"
    ));
    for one in series {
        let gain = one.points.first().map(|(x, s)| s.iops() / x);
        for (x, setting) in &one.points {
            let ideal = gain.map(|gain| setting.iops() / (gain * x) * 100.0);
            let name = if one.name.is_empty() { &panel.title } else { &one.name };
            let load = LOAD_AXES.iter().filter_map(|a| crate::data::axis_value(setting.config, a));
            table.push(vec![
                name.as_str().into(),
                Cell::Number(*x, 0),
                load.collect::<Vec<_>>().join(" · ").into(),
                Cell::Number(setting.iops(), 0),
                Cell::Number(setting.iops() / x, 0),
                Cell::number(ideal, 0),
                Cell::number(setting.latency.p99_ns.map(|ns| ns / 1e3), 0),
                limiter(setting),
                Cell::Number(setting.repeats() as f64, 0),
                setting.words.join(" ").into(),
            ]);
        }
    }
    table
}
