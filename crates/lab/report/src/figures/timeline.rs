//! A point second by second: the load, the OSDs, the machine, and each CPU.

use std::collections::BTreeMap;

use carmine_study::archive::{CpuSamples, Samples};
use carmine_types::counted;

use super::View;
use super::view::{Panel, slug};
use crate::chart::{Chart, Dot, HeatPlot, Ink, Line, LinePlot, Plot};
use crate::data::{Measured, Setting};
use crate::lists::grouped;
use crate::report::{Block, Kind};
use crate::table::{Cell, Table};

/// Points that are drawn second by second.
const POINTS_MAX: usize = 6;
/// Points of a run whose samples the page holds as files besides; all lie in the archive.
const FILES_MAX: usize = 400;
/// Columns of a heat map.
const COLUMNS_MAX: usize = 150;

/// The panels, line by line: the panel's name with its unit, the line's name, its series, and the factor to the unit.
const PANELS: [(&str, (&str, &str, f64)); 9] = [
    ("IOPS", ("IOPS", "iops", 1.0)),
    ("p99 latency (ms)", ("p99 latency", "p99_ns", 1e-6)),
    ("CPU (cores)", ("OSDs", "osd_cores", 1.0)),
    ("CPU (cores)", ("generator", "generator_cores", 1.0)),
    ("CPU (cores)", ("OSDs waiting", "osd_wait_cores", 1.0)),
    ("Memory of OSDs (GiB)", ("memory", "memory_bytes", 1.0 / (1u64 << 30) as f64)),
    ("Device (MB/s)", ("device reads", "device_read_bytes_per_s", 1e-6)),
    ("Device (MB/s)", ("device writes", "device_write_bytes_per_s", 1e-6)),
    ("Network (MB/s)", ("network", "network_bytes_per_s", 1e-6)),
];

/// This part of the page: charts of some points, and the samples of all others as files.
pub(super) fn timeline(view: &View<'_>) -> Vec<Block> {
    let (mut charts, mut drawn) = (Vec::new(), Vec::new());
    for setting in order(view) {
        if drawn.len() == POINTS_MAX {
            break;
        }
        let Some((stem, samples)) = samples(view, setting) else { continue };
        let name = view.name(setting, &[]);
        let title = if name.is_empty() { stem.clone() } else { name };
        let panel = Panel { id: slug(&stem), title, kind: String::new(), settings: vec![setting] };
        charts.extend(lines(&panel, &stem, &samples));
        charts.extend(heat(&panel, &samples));
        drawn.push(stem);
    }
    let files = others(view, &drawn);
    let text = (!files.is_empty()).then(|| {
        format!(
            "Drawn: {}, the fastest of each workload first, then what is unsteady, then the first of the plan. The samples of \
             {}, repeats among them, are on the page as CSV; the archive has all as points/NAME.samples.json.",
            counted(drawn.len(), "point"),
            counted(files.len(), "other point")
        )
    });
    vec![Block::Text(Kind::Remarks, text.into_iter().collect()), Block::Charts(charts), Block::Files(files)]
}

/// Figures of every point with samples that is not drawn, repeats as well.
fn others(view: &View<'_>, drawn: &[String]) -> Vec<(String, Table)> {
    let mut files = Vec::new();
    for run in view.runs {
        let is_other = |m: &&Measured| matches!(m.samples, Ok(Some(_))) && !drawn.contains(&m.point.stem);
        for measured in run.points.iter().filter(is_other).take(FILES_MAX) {
            let stem = &measured.point.stem;
            let Ok(Some(samples)) = run.run.samples(&measured.point) else { continue };
            let name = if view.runs.len() > 1 { format!("{}-{stem}", run.label) } else { stem.clone() };
            files.push((name, figures(&samples).1));
        }
    }
    files
}

/// The settings that readers ask for first: the fastest of each panel, then what is unsteady, then the others.
pub(super) fn order<'a, 'b>(view: &'b View<'a>) -> Vec<&'b Setting<'a>> {
    let panels = view.panels();
    let best =
        |settings: &[&'b Setting<'a>]| settings.iter().copied().max_by(|a, b| a.iops().total_cmp(&b.iops()));
    let mut order: Vec<&Setting> = panels.iter().filter_map(|p| best(&p.settings)).collect();
    let unsteady = view.settings.iter().filter(|s| s.words.iter().any(|w| w == "UNSTEADY"));
    for setting in unsteady.chain(&view.settings) {
        if !order.iter().any(|held| std::ptr::eq(*held, setting)) {
            order.push(setting);
        }
    }
    order
}

/// Samples of the setting's first point that has some. Bad files have none; the page lists them elsewhere.
fn samples(view: &View<'_>, setting: &Setting<'_>) -> Option<(String, Samples)> {
    let run = &view.runs.get(setting.run)?.run;
    setting.points.iter().find_map(|m| {
        let samples = run.samples(&m.point).ok()??;
        (samples.t_ms.len() > 1).then(|| (m.point.stem.clone(), samples))
    })
}

/// Panels and the same figures as a table.
fn figures(samples: &Samples) -> (Vec<LinePlot>, Table) {
    let seconds: Vec<f64> = samples.t_ms.iter().map(|t| t / 1e3).collect();
    let mut table = Table::new("time (s)");
    table.rows = seconds.iter().map(|t| vec![Cell::Number(*t, 0)]).collect();
    let mut plots = Vec::new();
    for (label, series) in grouped(PANELS) {
        let mut lines = Vec::new();
        for (at, (name, key, factor)) in series.into_iter().enumerate() {
            let Some(values) = samples.series.get(key).filter(|v| v.iter().any(Option::is_some)) else {
                continue;
            };
            let unit = label.rsplit_once(" (").map_or("", |(_, unit)| unit.trim_end_matches(')'));
            table.columns.push(if unit.is_empty() { name.into() } else { format!("{name} ({unit})") });
            for (n, row) in table.rows.iter_mut().enumerate() {
                row.push(Cell::number(values.get(n).copied().flatten().map(|v| v * factor), 2));
            }
            let dot = |(t, v): (&f64, &Option<f64>)| Some(Dot { x: *t, y: (*v)? * factor, ..Dot::default() });
            let dots = seconds.iter().zip(values).filter_map(dot).collect();
            lines.push(Line { markers: false, ..Line::series(at, name, dots) });
        }
        if !lines.is_empty() {
            plots.push(LinePlot::from_zero("Seconds", label, lines));
        }
    }
    (plots, table)
}

fn lines(panel: &Panel<'_, '_>, stem: &str, samples: &Samples) -> Option<Chart> {
    let (mut plots, table) = figures(samples);
    distinct_inks(&mut plots);
    let mut remarks = vec![format!("Point {stem}.")];
    remarks.extend(samples.cores_used_10ms.as_ref().map(|c| {
        let [p50, p99, max] = [c.p50, c.p99, c.max].map(|cores| format!("{cores:.2}"));
        format!("Cores used in windows of 10 ms: {p50} at the median, {p99} at p99, {max} at most.")
    }));
    (!plots.is_empty()).then(|| panel.chart("time", "Second by second", Plot::Lines(plots), table, remarks))
}

/// Panels of one line say what it is; lines that share a panel get colours of their own.
fn distinct_inks(plots: &mut [LinePlot]) {
    let mut next = 1;
    for plot in plots {
        let several = plot.lines.len() > 1;
        for line in &mut plot.lines {
            line.ink = Ink::Series(if several { next } else { 0 });
            next += usize::from(several);
        }
    }
}

/// Busy parts of each CPU; several seconds go into one column where there are many.
fn heat(panel: &Panel<'_, '_>, samples: &Samples) -> Option<Chart> {
    let count = samples.t_ms.len();
    let per_column = count.div_ceil(COLUMNS_MAX).max(1);
    let interval_s = samples.interval_ms.max(1) as f64 / 1e3;
    let begin = samples.t_ms.first()? / 1e3 - interval_s;
    let columns = count.div_ceil(per_column);
    let edges: Vec<f64> =
        (0..=columns).map(|n| begin.max(0.0) + (n * per_column).min(count) as f64 * interval_s).collect();
    let by_cpu: BTreeMap<u32, &CpuSamples> = samples.cpus.iter().map(|c| (c.cpu, c)).collect();
    let mut table = Table::new(
        "CPU | busy, mean (%) | busy, p99 (%) | user (%) | system (%) | irq + softirq (%) | steal (%)",
    );
    let mut rows = Vec::new();
    for (number, cpu) in by_cpu {
        let busy: Vec<Option<f64>> =
            cpu.idle.iter().map(|idle| idle.map(|idle| (1.0 - idle).clamp(0.0, 1.0))).collect();
        if busy.iter().all(Option::is_none) {
            continue;
        }
        let parts = busy.chunks(per_column).map(mean).collect();
        rows.push((format!("CPU {number}"), parts));
        let percent = |values: &[Option<f64>]| Cell::number(mean(values).map(|m| m * 100.0), 1);
        let both = mean(&cpu.irq).zip(mean(&cpu.softirq)).map(|(a, b)| (a + b) * 100.0);
        table.push(vec![
            Cell::Number(f64::from(number), 0),
            percent(&busy),
            Cell::number(nearly_most(&busy).map(|m| m * 100.0), 1),
            percent(&cpu.user),
            percent(&cpu.system),
            Cell::number(both, 1),
            percent(&cpu.steal),
        ]);
    }
    let known = !rows.is_empty();
    let plot = Plot::Heat(HeatPlot { edges, rows });
    known.then(|| panel.chart("heat", "How busy each CPU is", plot, table, Vec::new()))
}

/// Mean of what is known.
fn mean(values: &[Option<f64>]) -> Option<f64> {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// The value that 1 % of the samples exceed.
fn nearly_most(values: &[Option<f64>]) -> Option<f64> {
    let mut known: Vec<f64> = values.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    let rank = (known.len() as f64 * 0.99).ceil() as usize;
    known.get(rank.max(1) - 1).copied()
}
