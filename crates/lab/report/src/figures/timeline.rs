//! A point second by second: the load, the OSDs, the machine, and each CPU.

use carmine_study::archive::{CpuSamples, Samples};
use carmine_types::counted;

use super::{Panel, View, slug};
use crate::chart::{Axis, Chart, Form, Ink, Key, Plot, Shape};
use crate::data::{Measured, Setting};
use crate::lists::{grouped, joined};
use crate::report::{Block, Kind};
use crate::table::{Cell, Table};

/// Points that are drawn second by second.
const POINTS_MAX: usize = 6;
/// Points of a run whose samples the page holds as files besides; all lie in the archive.
const FILES_MAX: usize = 400;
/// Columns of a heat map.
const COLUMNS_MAX: usize = 150;
/// Height of all rows of a heat map together, at most, and of one.
const HEAT_MAX: f64 = 700.0;
const HEAT_ROW_MAX: f64 = 40.0;

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
    let sampled = order(view).into_iter().filter_map(|setting| Some((setting, samples(view, setting)?)));
    let (mut charts, mut drawn) = (Vec::new(), Vec::new());
    for (setting, (stem, samples)) in sampled.take(POINTS_MAX) {
        let name = view.name(setting, &[]);
        let title = if name.is_empty() { stem.clone() } else { name };
        let panel = Panel { id: slug(&stem), ..Panel::new(title, String::new(), vec![setting]) };
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
        let is_other = |m: &&Measured| m.samples.is_some() && !drawn.contains(&m.point.stem);
        for measured in run.points.iter().filter(is_other).take(FILES_MAX) {
            let stem = &measured.point.stem;
            let Ok(Some(samples)) = run.run.samples(&measured.point) else { continue };
            files.push((joined([&*run.label, stem], "-"), figures(&samples).1));
        }
    }
    files
}

/// The settings that readers ask for first: the fastest of each panel, then what is unsteady, then the others.
pub(super) fn order<'a, 'b>(view: &'b View<'a>) -> Vec<&'b Setting<'a>> {
    let panels = view.panels();
    let iops = |a: &&Setting<'_>, b: &&Setting<'_>| a.iops().total_cmp(&b.iops());
    let fastest = panels.iter().filter_map(|panel| panel.settings.iter().copied().max_by(iops));
    let unsteady = view.settings.iter().filter(|s| s.words.iter().any(|w| w == "UNSTEADY"));
    let all = fastest.chain(unsteady).chain(&view.settings);
    grouped(all.map(|setting| (std::ptr::from_ref(setting), setting)))
        .into_iter()
        .map(|(_, s)| s[0])
        .collect()
}

/// Samples of the setting's first point that has some. Bad files have none; the page lists them elsewhere.
fn samples(view: &View<'_>, setting: &Setting<'_>) -> Option<(String, Samples)> {
    setting.points.iter().find_map(|m| {
        let samples = view.runs[setting.run].run.samples(&m.point).ok()??;
        (samples.t_ms.len() > 1).then(|| (m.point.stem.clone(), samples))
    })
}

/// Panels and the same figures as a table.
fn figures(samples: &Samples) -> (Vec<Plot>, Table) {
    let times = samples.t_ms.iter().map(|t| vec![Cell::Number(t / 1e3, 0)]);
    let mut table = Table::new("time (s)", times);
    // Panels of one line say what it is; lines that share a panel get colours of their own.
    let (mut plots, mut colour) = (Vec::new(), 0);
    for (label, mut series) in grouped(PANELS) {
        let values = |key: &str| samples.series.get(key).filter(|v| v.iter().any(Option::is_some));
        series.retain(|(_, key, _)| values(key).is_some());
        let unit = label.rsplit_once(" (").map_or("", |(_, unit)| unit.trim_end_matches(')'));
        let mut plot = Plot::new("Seconds", label);
        for (name, key, factor) in &series {
            table.columns.push(if unit.is_empty() { (*name).into() } else { format!("{name} ({unit})") });
            let values = values(key).into_iter().flatten().map(|value| value.map(|v| v * factor));
            let values = values.chain(std::iter::repeat(None));
            let mut line = Vec::new();
            for ((row, t), value) in table.rows.iter_mut().zip(&samples.t_ms).zip(values) {
                row.push(Cell::number(value, 2));
                line.extend(value.map(|value| (t / 1e3, value)));
            }
            colour += usize::from(series.len() > 1);
            let key = Key::series(if series.len() > 1 { colour } else { 0 }, *name);
            plot.line(line, key.ink, 4);
            plot.keys.push(key);
        }
        plots.extend((!series.is_empty()).then_some(plot));
    }
    (plots, table)
}

fn lines(panel: &Panel<'_, '_>, stem: &str, samples: &Samples) -> Option<Chart> {
    let (plots, table) = figures(samples);
    let mut remarks = vec![format!("Point {stem}.")];
    remarks.extend(samples.cores_used_10ms.as_ref().map(|c| {
        let [p50, p99, max] = [c.p50, c.p99, c.max].map(|cores| format!("{cores:.2}"));
        format!("Cores used in windows of 10 ms: {p50} at the median, {p99} at p99, {max} at most.")
    }));
    (!plots.is_empty()).then(|| panel.chart("time", "Second by second", plots, table, remarks))
}

/// Busy parts of each CPU; several seconds go into one column where there are many.
fn heat(panel: &Panel<'_, '_>, samples: &Samples) -> Option<Chart> {
    let count = samples.t_ms.len();
    let per_column = count.div_ceil(COLUMNS_MAX).max(1);
    let interval_s = samples.interval_ms.max(1) as f64 / 1e3;
    let begin = (samples.t_ms.first()? / 1e3 - interval_s).max(0.0);
    let second = |column: usize| begin + (column * per_column).min(count) as f64 * interval_s;
    let mut cpus: Vec<(&CpuSamples, Vec<Option<f64>>)> = samples.cpus.iter().map(|c| (c, busy(c))).collect();
    cpus.retain(|(_, busy)| busy.iter().any(Option::is_some));
    cpus.sort_by_key(|(cpu, _)| cpu.cpu);
    let mut rows = Vec::new();
    let names = cpus.iter().map(|(cpu, _)| format!("CPU {}", cpu.cpu)).collect();
    let tall = (HEAT_MAX / cpus.len().max(1) as f64).min(HEAT_ROW_MAX);
    let mut plot = Plot::rows(Axis::from_zero("Seconds"), names, tall);
    let steps = [(0, "idle"), (2, "25 %"), (4, "50 %"), (6, "75 %"), (8, "busy all the time")];
    plot.keys = steps.map(|(step, name)| Key { ink: Ink::heat(step), ..Key::series(step, name) }).into();
    for (row, (cpu, busy)) in cpus.iter().enumerate() {
        let step = |part: f64| (part.clamp(0.0, 1.0) * (Ink::HEAT_STEPS - 1) as f64).round() as usize;
        let columns: Vec<_> = busy.chunks(per_column).map(|part| mean(part).map(step)).collect();
        let (mut at, top) = (0, row as f64);
        // Neighbours of the same step are one rectangle. Columns without a value are left out.
        for same in columns.chunk_by(|a, b| a == b) {
            let area = [second(at), top, second(at + same.len()), top + 1.0];
            at += same.len();
            plot.shapes.extend(same[0].map(|step| Shape::new(Form::Area(area, 1.0), Ink::heat(step))));
        }
        let irqs = mean(&cpu.irq).zip(mean(&cpu.softirq)).map(|(a, b)| a + b);
        let parts = [mean(busy), p99(busy), mean(&cpu.user), mean(&cpu.system), irqs, mean(&cpu.steal)];
        let parts = parts.map(|part| Cell::number(part.map(|part| part * 100.0), 1));
        rows.push([&[Cell::Number(f64::from(cpu.cpu), 0)], &parts[..]].concat());
    }
    let columns =
        "CPU | busy, mean (%) | busy, p99 (%) | user (%) | system (%) | irq + softirq (%) | steal (%)";
    let table = Table::new(columns, rows);
    (!cpus.is_empty()).then(|| panel.chart("heat", "How busy each CPU is", vec![plot], table, Vec::new()))
}

fn busy(cpu: &CpuSamples) -> Vec<Option<f64>> {
    cpu.idle.iter().map(|idle| idle.map(|idle| (1.0 - idle).clamp(0.0, 1.0))).collect()
}

/// Mean of what is known.
fn mean(values: &[Option<f64>]) -> Option<f64> {
    let known = values.iter().flatten();
    (known.clone().count() > 0).then(|| known.clone().sum::<f64>() / known.count() as f64)
}

/// The value that 1 % of the samples exceed.
fn p99(values: &[Option<f64>]) -> Option<f64> {
    let mut known: Vec<f64> = values.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    let rank = (known.len() as f64 * 0.99).ceil() as usize;
    known.get(rank.max(1) - 1).copied()
}
