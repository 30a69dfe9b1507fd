//! Under which conditions it was measured, and how to do it again.

pub(crate) mod doctor;
mod drives;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::data::{Ended, RunData, drift, text_of};
use crate::figures::View;
use crate::lists::grouped;
use crate::report::Section;
use crate::table::{Cell, Table};
use crate::units::{date, duration};

/// Lines of a failed point's log that are shown.
const LOG_LINES: usize = 20;
/// Characters of a file that are shown; the archive has all.
const VERBATIM_MAX: usize = 60_000;

/// All sections, run by run.
pub(crate) fn sections(view: &View<'_>) -> Vec<Section> {
    let mut sections = vec![not_measured(view)];
    for run in view.runs {
        let name = if view.runs.len() > 1 { format!(" of {}", run.label) } else { String::new() };
        let mut add = |title: &str, section: Section| {
            sections.push(Section { title: format!("{title}{name}"), ..section });
        };
        add("The run", Section { table: Some(facts(run)), ..Section::default() });
        add("Settings that all points share", Section { table: Some(common(view)), ..Section::default() });
        add("Machine", Section { table: Some(listed(&run.file().host)), ..Section::default() });
        add("What the doctor found", doctor::of_machine(&run.file().doctor));
        add("What the doctor found of the testbeds", doctor::of_points(run));
        add("NVMe drives by their SMART logs", drives::section(run));
        add("Remarks of the points", Section { table: Some(marks(run)), ..Section::default() });
        add("Plan", Section { verbatim: shortened(&run.run.plan()), ..Section::default() });
        add("Exact commands", commands(run));
        add("Logs of points that failed", Section { verbatim: logs(run), ..Section::default() });
    }
    sections.push(words());
    let empty = |s: &Section| {
        s.text.is_empty()
            && s.verbatim.trim().is_empty()
            && s.table.as_ref().is_none_or(|t| t.rows.is_empty())
    };
    sections.retain(|s| !empty(s));
    sections
}

fn pairs(rows: Vec<(&str, String)>) -> Table {
    let mut table = Table::new("what | value");
    for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        table.push(vec![name.into(), value.into()]);
    }
    table
}

fn facts(run: &RunData) -> Table {
    let (file, build) = (run.file(), &run.file().carmine);
    let drift = drift(run).map(|d| format!("{:+.1} % ({})", d.part() * 100.0, d.stem));
    let seconds: f64 = run.points.iter().map(|m| m.seconds).sum();
    let failed = run.points.iter().filter(|m| matches!(m.ended, Ended::Failed(_))).count();
    pairs(vec![
        ("folder", run.run.dir().display().to_string()),
        ("plan", file.name.clone()),
        ("started", date(file.created_unix_s)),
        ("ended", file.finished_unix_s.map_or("not ended".into(), date)),
        ("time in points", duration(seconds)),
        ("points", format!("{}, {failed} of them failed", run.points.len())),
        ("seed", file.seed.to_string()),
        ("version", format!("{} {}", build.version, build.git_hash)),
        ("build", [build.profile.as_str(), build.allocator.as_str()].join(" ").trim().to_owned()),
        ("kernel", file.kernel.clone()),
        ("command", file.command.join(" ")),
        ("drift of the first point", drift.unwrap_or_else(|| "not known: it was not run again".into())),
    ])
}

fn common(view: &View<'_>) -> Table {
    let mut table = Table::new("setting | value");
    for (axis, value) in &view.axes.common {
        table.push(vec![axis.as_str().into(), value.as_str().into()]);
    }
    table
}

/// An object as names and values; nested objects by `outer.inner`.
fn listed(value: &Value) -> Table {
    let mut table = Table::new("what | value");
    flatten("", value, &mut table);
    table
}

fn flatten(name: &str, value: &Value, table: &mut Table) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, table);
            }
        }
        Value::Null => {}
        other => table.push(vec![name.into(), text_of(other).into()]),
    }
}

/// Marks in full, each with how many points have it and one of them.
fn marks(run: &RunData) -> Table {
    let mut table = Table::new("mark | points | for example");
    let marks = run.points.iter().flat_map(|measured| {
        let marks = measured.result.iter().flat_map(|r| &r.carmine.marks);
        marks.map(|mark| (mark.as_str(), measured.point.stem.as_str()))
    });
    for (mark, stems) in grouped(marks) {
        table.push(vec![mark.into(), Cell::Number(stems.len() as f64, 0), stems[0].into()]);
    }
    table
}

fn commands(run: &RunData) -> Section {
    let text = std::fs::read(run.run.dir().join("commands.sh")).unwrap_or_default();
    Section { verbatim: shortened(&String::from_utf8_lossy(&text)), ..Section::default() }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(VERBATIM_MAX) {
        Some((at, _)) => format!("{}\n… (the archive has the rest)\n", &text[..at]),
        None => text.to_owned(),
    }
}

fn logs(run: &RunData) -> String {
    let mut text = String::new();
    for measured in run.points.iter().filter(|m| matches!(m.ended, Ended::Failed(_))) {
        let log = run.run.log(&measured.point);
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        text.push_str(&format!("--- {}\n{tail}\n", measured.point.stem));
    }
    text
}

/// What a reader may miss, and why it is not there.
fn not_measured(view: &View<'_>) -> Section {
    let mut text = Vec::new();
    let results: Vec<_> = view.settings.iter().filter_map(|s| Some((s, s.first()?))).collect();
    let all = results.len();
    let mut say = |count: usize, what: &str| {
        if count > 0 {
            text.push(format!("{what}: missing for {count} of {all} settings."));
        }
    };
    let none = |missing: &dyn Fn(&carmine_study::archive::PointResult) -> bool| {
        results.iter().filter(|(_, r)| missing(r)).count()
    };
    say(none(&|r| r.carmine.shared), "Figures per core (CPUs are shared)");
    say(none(&|r| r.carmine.machine_cpu_us_per_op.is_none()), "CPU of the whole machine per operation");
    say(none(&|r| r.carmine.percent_of_device.is_none()), "Comparison with the raw device");
    say(none(&|r| r.carmine.percent_of_messenger.is_none()), "Comparison with the raw messenger");
    say(none(&|r| r.carmine.flush_mode.is_none()), "Flush mode");
    say(none(&|r| r.carmine.cache_state.is_none()), "State of the caches");
    say(
        none(&|r| r.carmine.latency_histogram.read.is_none() && r.carmine.latency_histogram.write.is_none()),
        "Latency histogram",
    );
    text.extend(unsampled(view));
    Section { title: "What could not be measured".into(), text, ..Section::default() }
}

/// Points without samples, and sample series that none has.
fn unsampled(view: &View<'_>) -> Vec<String> {
    const WANTED: [(&str, &str); 4] = [
        ("watts", "power"),
        ("mhz", "clock of the CPUs"),
        ("temperature_c", "temperature"),
        ("network_bytes_per_s", "network bytes"),
    ];
    let mut text = Vec::new();
    let mut found: BTreeSet<String> = BTreeSet::new();
    let (mut with, mut without) = (0, 0);
    for run in view.runs {
        for measured in run.points.iter().filter(|m| m.result.is_some()) {
            match run.run.samples(&measured.point) {
                Ok(Some(samples)) => {
                    with += 1;
                    found.extend(
                        samples
                            .series
                            .into_iter()
                            .filter(|(_, v)| v.iter().any(Option::is_some))
                            .map(|(n, _)| n),
                    );
                }
                Ok(None) => without += 1,
                Err(error) => text.push(format!("Samples can't be read: {error}.")),
            }
        }
    }
    if without > 0 {
        text.push(format!("Samples (second by second): missing for {without} of {} points.", with + without));
    }
    let absent: Vec<&str> =
        WANTED.iter().filter(|(key, _)| !found.contains(*key)).map(|(_, name)| *name).collect();
    if with > 0 && !absent.is_empty() {
        text.push(format!("This machine gave no {}.", absent.join(", no ")));
    }
    text
}

fn words() -> Section {
    let table = pairs(vec![
        ("SHARED", "Reactors, aliens or generator share CPUs: no figure per core, no slope.".into()),
        ("NOISY", "Other work took CPU time in the window: not in slopes.".into()),
        ("UNSTEADY", "The figure drifted within the window: not in slopes.".into()),
        ("SMOKE", "The window was under 60 s: it shows that it runs.".into()),
        ("ABOVE-BASELINE", "More than the raw device or messenger gave: a cache, or a mistake.".into()),
        ("limiter", "What held the load back: OSD, ALIEN, CLIENT (the generator), DEVICE, NET, IMBALANCED, QD (too little was asked), SHARED, UNKNOWN.".into()),
        ("slope", "Least squares over the clean points up to the knee, with the 95 % interval of Student's t.".into()),
        ("knee", format!("The knee is {}.", carmine_study::scaling::KNEE)),
        ("percentiles", "Of all operations of all repeats: histograms are merged, percentiles never averaged.".into()),
        ("comparison", "Student's t on logarithms of paired ratios, at least 5 pairs; Holm's correction over the report.".into()),
    ]);
    Section { title: "Words".into(), table: Some(table), ..Section::default() }
}
