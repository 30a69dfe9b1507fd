//! Scaling: what each further reactor, core or OSD gives.

use carmine_stats::{Growth, Knee, growth};

use super::View;
use super::curve::limiter;
use super::view::{Panel, context};
use crate::chart::{Axis, Chart, Dot, Ink, Line, LinePlot, Plot};
use crate::data::{LOAD_AXES, PANEL_AXES, SIZE_AXES, Setting};
use crate::table::{Cell, Table};
use crate::units::{grouped, short};

/// What the horizontal axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Along {
    Reactors,
    Cpus,
    Osds,
}

impl Along {
    /// The first that varies, in the order in which people ask.
    fn of(view: &View<'_>) -> Option<Along> {
        let reactors =
            view.axes.varies("reactors") || (view.axes.varies("osds") && !view.axes.varies("cpus"));
        let numbers =
            |of: &dyn Fn(&Setting<'_>) -> Option<f64>| view.settings.iter().filter_map(of).count() > 1;
        if reactors && numbers(&|s| s.reactors()) {
            Some(Along::Reactors)
        } else if view.axes.varies("cpus") && numbers(&|s| s.config.float("cpus")) {
            Some(Along::Cpus)
        } else if view.axes.varies("osds") {
            Some(Along::Osds)
        } else {
            None
        }
    }

    fn value(self, setting: &Setting<'_>) -> Option<f64> {
        match self {
            Along::Reactors => setting.reactors(),
            Along::Cpus => setting.config.float("cpus"),
            Along::Osds => setting.config.float("osds"),
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Along::Reactors => ("reactor", "reactors (all OSDs)"),
            Along::Cpus => ("CPU", "CPUs allowed"),
            Along::Osds => ("OSD", "OSDs"),
        }
    }
}

/// One line: the most IOPS at each size.
struct Series<'a, 'b> {
    name: String,
    points: Vec<(f64, &'b Setting<'a>)>,
    growth: Growth,
    /// Points that the growth is of.
    clean: usize,
}

pub(super) fn charts(view: &View<'_>) -> Vec<Chart> {
    let Some(along) = Along::of(view) else { return Vec::new() };
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
    let Some(along) = Along::of(view) else { return Vec::new() };
    let mut findings = Vec::new();
    for panel in view.panels() {
        for series in series(view, &panel, along).iter().filter(|s| s.points.len() > 1) {
            let name = if series.name.is_empty() { String::new() } else { format!(", {}", series.name) };
            findings.push(format!("{}{name}: {}.", panel.title, sentence(series, along)));
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
    let mut all: Vec<Series> = Vec::new();
    for setting in &panel.settings {
        let Some(x) = along.value(setting) else { continue };
        let name = view.name(setting, &without);
        let at = all.iter().position(|s| s.name == name).unwrap_or_else(|| {
            all.push(Series { name, points: Vec::new(), growth: Growth::default(), clean: 0 });
            all.len() - 1
        });
        keep_best(&mut all[at].points, x, setting);
    }
    all.iter_mut().for_each(finish);
    all
}

/// Of the settings at one size the one with most IOPS stays, a clean one before a marked one.
fn keep_best<'a, 'b>(points: &mut Vec<(f64, &'b Setting<'a>)>, x: f64, setting: &'b Setting<'a>) {
    let rank = |s: &Setting<'_>| (s.is_clean, s.iops());
    match points.iter_mut().find(|(at, _)| *at == x) {
        Some(held) if rank(setting) > rank(held.1) => held.1 = setting,
        Some(_) => {}
        None => points.push((x, setting)),
    }
}

fn finish(series: &mut Series<'_, '_>) {
    series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let clean = series.points.iter().filter(|(_, s)| s.is_clean);
    let points: Vec<(f64, f64)> =
        clean.clone().flat_map(|(x, s)| s.each(|r| r.iops()).into_iter().map(|y| (*x, y))).collect();
    series.clean = clean.count();
    series.growth = growth(&points);
}

fn sentence(series: &Series<'_, '_>, along: Along) -> String {
    let unit = along.names().0;
    let left_out = series.points.len() - series.clean;
    let mut text = match &series.growth.slope {
        Some(slope) => {
            let interval = slope.interval.map_or("no interval: two points only".into(), |(low, high)| {
                format!("95 % interval {} to {}", grouped(low, 0), grouped(high, 0))
            });
            format!("each further {unit} gives {} IOPS ({interval})", grouped(slope.slope, 0))
        }
        None => "no slope: it takes clean points at two sizes at least".to_owned(),
    };
    if let Some(knee) = &series.growth.knee {
        text.push_str(&knee_text(series, knee, unit));
    }
    if left_out > 0 {
        text.push_str(&format!("; {left_out} of {} points are marked and left out", series.points.len()));
    }
    text
}

fn knee_text(series: &Series<'_, '_>, knee: &Knee, unit: &str) -> String {
    let Some(x) = knee.x else { return "; no knee within what was measured".into() };
    let between = match knee.interval {
        Some((low, Some(high))) if low == high => String::new(),
        Some((low, Some(high))) => format!(", between {} and {}", short(low), short(high)),
        Some((low, None)) => format!(", {} or more", short(low)),
        None => String::new(),
    };
    let bound = series.points.iter().find(|(at, _)| *at > x).and_then(|(_, s)| s.limiter());
    let bound = bound.map_or(String::new(), |(name, why)| format!("; beyond it the limit is {name}: {why}"));
    format!("; knee at {} {unit}s{between}{bound}", short(x))
}

fn line(number: usize, series: &Series<'_, '_>, y: impl Fn(f64, f64) -> f64) -> Line {
    let dots = series.points.iter().map(|(x, s)| {
        let each = s.each(|r| r.iops());
        let (low, high) = each.iter().fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(*v), h.max(*v)));
        let bar = (each.len() > 1).then(|| (y(*x, low), y(*x, high)));
        Dot { x: *x, y: y(*x, s.iops()), bar, marked: !s.is_clean }
    });
    let name = if series.name.is_empty() { "measured".into() } else { series.name.clone() };
    Line { name, ink: Ink::Series(number), dotted: false, markers: true, dots: dots.collect() }
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
    let mut chart = chart(panel, series, along, "IOPS", |_, iops| iops);
    chart.id = format!("scaling-{}", panel.id);
    chart.title = format!("IOPS against {}: {}", along.names().1, panel.title);
    if let Plot::Lines(plot) = &mut chart.plot {
        plot.flags = match series {
            [only] => {
                only.growth.knee.and_then(|k| k.x).map(|x| (x, "knee".to_owned())).into_iter().collect()
            }
            _ => Vec::new(),
        };
    }
    for one in series {
        let name = if one.name.is_empty() { String::new() } else { format!("{}: ", one.name) };
        chart.remarks.push(format!("{name}{}.", sentence(one, along)));
    }
    chart.family = format!("scaling-{}", panel.kind);
    chart
}

fn per_unit(panel: &Panel<'_, '_>, series: &[Series<'_, '_>], along: Along) -> Chart {
    let unit = along.names().0;
    let mut chart = chart(panel, series, along, &format!("IOPS per {unit}"), |x, iops| iops / x);
    chart.id = format!("scaling-per-{}-{}", unit.to_lowercase(), panel.id);
    chart.title = format!("IOPS per {unit}: {}", panel.title);
    chart.family = format!("scaling-per-unit-{}", panel.kind);
    chart
}

fn chart(
    panel: &Panel<'_, '_>,
    series: &[Series<'_, '_>],
    along: Along,
    y: &str,
    of: impl Fn(f64, f64) -> f64,
) -> Chart {
    let mut lines: Vec<Line> = series.iter().enumerate().map(|(n, s)| line(n, s, &of)).collect();
    lines.extend(ideal(series, &of));
    let mut remarks = Vec::new();
    if series.iter().flat_map(|s| &s.points).any(|(_, s)| !s.is_clean) {
        remarks.push("Hollow dots are marked (SHARED, NOISY, UNSTEADY or SMOKE) and in no slope.".to_owned());
    }
    let settings: Vec<&Setting> = series.iter().flat_map(|s| &s.points).map(|(_, s)| *s).collect();
    let plot =
        LinePlot { x: Axis::from_zero(along.names().1), y: Axis::from_zero(y), lines, flags: Vec::new() };
    Chart {
        id: String::new(),
        title: String::new(),
        context: context(&settings),
        plot: Plot::Lines(plot),
        table: table(panel, series, along),
        remarks,
        family: String::new(),
    }
}

fn table(panel: &Panel<'_, '_>, series: &[Series<'_, '_>], along: Along) -> Table {
    let (unit, plural) = along.names();
    let per = format!("IOPS per {unit}");
    let mut table = Table::new(&[
        "series",
        plural,
        "at",
        "IOPS",
        &per,
        "of ideal (%)",
        "p99 (µs)",
        "limiter",
        "repeats",
        "marks",
    ]);
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
    table.without_empty_columns()
}
