//! Under which conditions it was measured, and how to do it again.

use std::collections::BTreeSet;

use carmine_load::samples::{NvmeSamples, SmartLog};
use carmine_study::archive::CarmineResult;
use serde_json::Value;

use crate::data::{Ended, RunData, drift, text_of};
use crate::figures::View;
use crate::lists::{grouped, tally};
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
        add("What the doctor found", doctor_of_machine(&run.file().doctor));
        add("What the doctor found of the testbeds", doctor_of_points(run));
        add("NVMe drives by their SMART logs", drives(run));
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

/// Figures that a reader may miss, and why they are not there.
fn not_measured(view: &View<'_>) -> Section {
    let mut text = Vec::new();
    let results: Vec<_> = view.settings.iter().filter_map(|s| s.first()).collect();
    type Has = fn(&CarmineResult) -> bool;
    let wanted: [(Has, &str); 7] = [
        (|r| !r.shared, "Figures per core (CPUs are shared)"),
        (|r| r.machine_cpu_us_per_op.is_some(), "CPU of the whole machine per operation"),
        (|r| r.percent_of_device.is_some(), "Comparison with the raw device"),
        (|r| r.percent_of_messenger.is_some(), "Comparison with the raw messenger"),
        (|r| r.flush_mode.is_some(), "Flush mode"),
        (|r| r.cache_state.is_some(), "State of the caches"),
        (|r| r.latency_histogram.read.is_some() || r.latency_histogram.write.is_some(), "Latency histogram"),
    ];
    for (has, what) in wanted {
        let missing = results.iter().filter(|r| !has(&r.carmine)).count();
        if missing > 0 {
            text.push(format!("{what}: missing for {missing} of {} settings.", results.len()));
        }
    }
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
                    let known = samples.series.into_iter().filter(|(_, v)| v.iter().any(Option::is_some));
                    found.extend(known.map(|(name, _)| name));
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

/// Columns, and the fields that they show.
const COLUMNS: [(&str, &str); 8] = [
    ("severity", "severity"),
    ("topic", "topic"),
    ("of", "subject"),
    ("is", "is"),
    ("better", "better"),
    ("known cost", "cost"),
    ("source", "source"),
    ("change", "command"),
];
/// The names of the kinds of findings, the worst first.
const SEVERITIES: [(&str, &str); 4] =
    [("bad", "bad"), ("warn", "warning"), ("info", "to know"), ("ok", "ok")];
/// The machine has no such thing.
const ABSENT: &str = "not_present";

/// Findings about the machine, as the run has them.
fn doctor_of_machine(findings: &Value) -> Section {
    let Some(list) = findings.as_array() else {
        let text =
            if findings.is_null() { "The doctor was not asked." } else { "The findings can't be read." };
        return Section { text: vec![text.into()], ..Section::default() };
    };
    let mut text = Vec::new();
    let absent: Vec<String> = list.iter().filter(|f| field(f, "severity") == ABSENT).map(title).collect();
    if !absent.is_empty() {
        text.push(format!("Not present on this machine, so not judged: {}.", absent.join(", ")));
    }
    let mut table = Table::new(&COLUMNS.map(|(name, _)| name).join(" | "));
    sorted(list).iter().for_each(|finding| table.push(finding_row(finding)));
    if table.rows.is_empty() {
        text.push("Nothing to change.".into());
    }
    Section { text, table: Some(table.without_empty_columns()), ..Section::default() }
}

/// Warnings that concern single points and not the machine: the placement differs from point to point.
fn doctor_of_points(run: &RunData) -> Section {
    let known: Vec<&Value> = run.file().doctor.as_array().into_iter().flatten().collect();
    let results = run.points.iter().filter_map(|m| m.result.as_ref());
    let findings = results.flat_map(|result| result.carmine.doctor.as_array().into_iter().flatten());
    let found = tally(findings.filter(|finding| is_warning(finding) && !known.contains(finding)));
    let mut table = Table::new(&COLUMNS.map(|(name, _)| name).join(" | "));
    table.columns.push("points".into());
    for (finding, count) in found {
        let mut cells = finding_row(finding);
        cells.push(Cell::Number(count as f64, 0));
        table.push(cells);
    }
    Section { table: Some(table.without_empty_columns()), ..Section::default() }
}

/// Findings that spoil a measurement, for the head of the page.
pub(crate) fn spoils(findings: &Value) -> Vec<String> {
    let bad = findings.as_array().into_iter().flatten().filter(|f| field(f, "severity") == "bad");
    bad.map(|f| format!("The doctor: {}: {}", title(f), field(f, "is"))).collect()
}

fn is_warning(finding: &Value) -> bool {
    matches!(field(finding, "severity"), "bad" | "warn")
}

fn field<'a>(finding: &'a Value, name: &str) -> &'a str {
    finding.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn title(finding: &Value) -> String {
    match field(finding, "subject") {
        "" => field(finding, "topic").to_owned(),
        subject => format!("{} of {subject}", field(finding, "topic")),
    }
}

/// Those that say something of the machine, the worst first; kinds that are not known come last.
fn sorted(list: &[Value]) -> Vec<&Value> {
    let mut present: Vec<&Value> = list.iter().filter(|f| field(f, "severity") != ABSENT).collect();
    let rank = |f: &Value| SEVERITIES.iter().position(|(word, _)| *word == field(f, "severity"));
    present.sort_by_key(|f| rank(f).unwrap_or(SEVERITIES.len()));
    present
}

fn finding_row(finding: &Value) -> Vec<Cell> {
    let cell = |(_, name): &(&str, &str)| {
        let text = finding.get(*name).map(text_of).unwrap_or_default();
        let shown = SEVERITIES.iter().find(|(word, _)| *name == "severity" && *word == text);
        match shown.map_or(text.as_str(), |(_, shown)| *shown) {
            "" => Cell::None,
            text => text.into(),
        }
    };
    COLUMNS.iter().map(cell).collect()
}

/// A data unit of the log, bytes (NVM Express Base Specification, "SMART / Health Information").
const UNIT_BYTES: f64 = 512_000.0;

/// The logs of all points that have some; empty on machines without such drives.
fn drives(run: &RunData) -> Section {
    let mut table = Table::new(
        "point | drive | used (%) | spare (%) | critical warning (bits) | temperature, start (°C) | \
        temperature, end (°C) | media errors | new media errors | unsafe shutdowns | read (MB) | \
        written (MB) | read commands | write commands",
    );
    let mut text = BTreeSet::new();
    for measured in &run.points {
        let Ok(Some(samples)) = run.run.samples(&measured.point) else { continue };
        for drive in &samples.nvme {
            match &drive.missing {
                Some(why) => drop(text.insert(format!("{}: {why}.", drive.drive))),
                None => table.push(drive_row(&measured.point.stem, drive)),
            }
        }
    }
    Section {
        text: text.into_iter().collect(),
        table: Some(table.without_empty_columns()),
        ..Section::default()
    }
}

fn drive_row(stem: &str, drive: &NvmeSamples) -> Vec<Cell> {
    let of = |log: &SmartLog, name: &str| log.get(name).map(|n| *n as f64);
    let count = |log: &SmartLog, name: &str| Cell::number(of(log, name), 0);
    let megabytes = |name: &str| Cell::number(of(&drive.difference, name).map(|n| n * UNIT_BYTES / 1e6), 1);
    let (start, end, since) = (&drive.start, &drive.end, &drive.difference);
    vec![
        stem.into(),
        drive.drive.as_str().into(),
        count(end, "percentage_used"),
        count(end, "available_spare_percent"),
        count(end, "critical_warning"),
        count(start, "temperature_c"),
        count(end, "temperature_c"),
        count(end, "media_errors"),
        count(since, "media_errors"),
        count(end, "unsafe_shutdowns"),
        megabytes("data_units_read"),
        megabytes("data_units_written"),
        count(since, "host_read_commands"),
        count(since, "host_write_commands"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_worst_first_and_the_absent_in_a_sentence() {
        let findings = json!([
            {"topic": "boost", "severity": "not_present", "is": "no switch"},
            {"topic": "SMT", "severity": "info", "is": "on"},
            {"topic": "I/O scheduler", "subject": "vda", "severity": "warn", "is": "mq-deadline", "better": "none",
             "cost": "c", "source": "s", "command": "echo none"},
            {"topic": "build", "severity": "bad", "is": "debug"},
        ]);
        let section = doctor_of_machine(&findings);
        let text = section.table.unwrap().csv();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "severity,topic,of,is,better,known cost,source,change");
        assert!(
            lines[1].starts_with("bad,build") && lines[2].starts_with("warning,I/O scheduler,vda"),
            "{text}"
        );
        assert_eq!(lines.len(), 4);
        assert_eq!(section.text, ["Not present on this machine, so not judged: boost."]);
        assert_eq!(spoils(&findings), ["The doctor: build: debug"]);
    }

    #[test]
    fn strange_findings_do_no_harm() {
        assert_eq!(doctor_of_machine(&Value::Null).text, ["The doctor was not asked."]);
        assert_eq!(doctor_of_machine(&json!({"a": 1})).text, ["The findings can't be read."]);
        let odd = doctor_of_machine(&json!([7, {"severity": "odd", "is": [1]}]));
        assert_eq!(odd.table.unwrap().rows.len(), 2);
    }
}
