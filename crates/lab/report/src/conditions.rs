//! Under which conditions it was measured, and how to do it again.

use std::collections::BTreeSet;

use carmine_load::samples::{NvmeSamples, SmartLog};
use carmine_study::archive::CarmineResult;
use carmine_types::counted;
use serde_json::Value;

use crate::data::{Ended, RunData, drift, text_of};
use crate::figures::View;
use crate::lists::{grouped, tally};
use crate::report::{Block, Kind, Part};
use crate::table::{Cell, Table};
use crate::units::{date, duration, shortened};

/// Lines of a failed point's log that are shown.
const LOG_LINES: usize = 20;
/// Characters of a file that are shown; the archive has all.
const VERBATIM_MAX: usize = 60_000;

/// All sections, run by run.
pub(crate) fn sections(view: &View<'_>) -> Vec<Block> {
    let mut sections =
        vec![("What could not be measured".to_owned(), vec![Block::Text(Kind::Remarks, not_measured(view))])];
    for run in view.runs {
        let name = if view.runs.len() > 1 { format!(" of {}", run.label) } else { String::new() };
        let table = |table: Table| vec![Block::Table(String::new(), table)];
        let file = |text: String| vec![Block::Verbatim(shortened(&text, VERBATIM_MAX))];
        let commands = std::fs::read_to_string(run.run.dir().join("commands.sh"));
        let doctor = &run.file().doctor;
        let of_run = [
            ("The run", table(facts(run))),
            ("Settings that all points share", table(common(view))),
            ("Machine", table(listed(&run.file().host))),
            ("What the doctor found", doctor_of_machine(doctor)),
            ("What the doctor found of the testbeds", table(doctor_of_points(run))),
            ("NVMe drives by their SMART logs", drives(run)),
            ("Remarks of the points", table(marks(run))),
            ("Plan", file(run.run.plan())),
            ("Exact commands", file(commands.unwrap_or_default())),
            ("Logs of points that failed", file(logs(run))),
        ];
        sections.extend(of_run.map(|(title, blocks)| (format!("{title}{name}"), blocks)));
    }
    sections.into_iter().map(|(title, blocks)| Block::Folded(Part::new("", &title, blocks))).collect()
}

fn pairs(rows: Vec<(&str, String)>) -> Table {
    let mut table = Table::new("fact | value");
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
        ("points", format!("{}, of which {failed} failed", run.points.len())),
        ("seed", file.seed.to_string()),
        ("version", format!("{} {}", build.version, build.git_hash)),
        ("build", [build.profile.as_str(), build.allocator.as_str()].join(" ").trim().to_owned()),
        ("kernel", file.kernel.clone()),
        ("command", file.command.join(" ")),
        ("drift of the first point", drift.unwrap_or_else(|| "not known: it was not run again".into())),
    ])
}

fn common(view: &View<'_>) -> Table {
    pairs(view.axes.common.iter().map(|(axis, value)| (axis.as_str(), value.clone())).collect())
}

/// An object as names and values; nested objects by `outer.inner`.
fn listed(value: &Value) -> Table {
    let mut table = Table::new("fact | value");
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
fn not_measured(view: &View<'_>) -> Vec<String> {
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
            text.push(format!("{what}: missing for {missing} of {}.", counted(results.len(), "setting")));
        }
    }
    text.extend(unsampled(view));
    text
}

/// Points without samples, and sample series that none has.
fn unsampled(view: &View<'_>) -> Vec<String> {
    const WANTED: [(&str, &str); 4] = [
        ("watts", "power"),
        ("mhz", "clock of the CPUs"),
        ("temperature_c", "temperature"),
        ("network_bytes_per_s", "network bytes"),
    ];
    let points = || view.runs.iter().flat_map(|run| &run.points).filter(|m| m.result.is_some());
    let mut text: Vec<String> = points()
        .filter_map(|m| m.samples.as_ref().err())
        .map(|error| format!("Samples can't be read: {error}."))
        .collect();
    let without = points().filter(|m| m.samples == Ok(None)).count();
    if without > 0 {
        let all = counted(points().count(), "point");
        text.push(format!("Samples (second by second): missing for {without} of {all}."));
    }
    let sampled: Vec<_> = points().filter_map(|m| m.samples.as_ref().ok()?.as_ref()).collect();
    let is_absent = |key: &str| sampled.iter().all(|samples| !samples.series.contains(key));
    let absent: Vec<&str> = WANTED.iter().filter(|(key, _)| is_absent(key)).map(|(_, name)| *name).collect();
    if !sampled.is_empty() && !absent.is_empty() {
        text.push(format!("This machine gave no {}.", absent.join(", no ")));
    }
    text
}

/// Fields of a finding.
const COLUMNS: &str = "severity | topic | subject | is | better | cost | source | command";
/// Kinds of findings, the worst first.
const SEVERITIES: [&str; 4] = ["bad", "warn", "info", "ok"];
/// The machine has no such thing.
const ABSENT: &str = "not_present";

/// Findings about the machine, as the run has them.
fn doctor_of_machine(findings: &Value) -> Vec<Block> {
    let Some(list) = findings.as_array() else {
        let text =
            if findings.is_null() { "The doctor was not asked." } else { "The findings can't be read." };
        return vec![Block::Text(Kind::Remarks, vec![text.into()])];
    };
    let mut text = Vec::new();
    let absent: Vec<String> = list.iter().filter(|f| field(f, "severity") == ABSENT).map(title).collect();
    if !absent.is_empty() {
        text.push(format!("Not present on this machine, so not judged: {}.", absent.join(", ")));
    }
    let mut table = Table::new(COLUMNS);
    sorted(list).iter().for_each(|finding| table.push(finding_row(finding)));
    if table.rows.is_empty() {
        text.push("Nothing to change.".into());
    }
    vec![Block::Text(Kind::Remarks, text), Block::Table(String::new(), table.without_empty_columns())]
}

/// Warnings that concern single points and not the machine: the placement differs from point to point.
fn doctor_of_points(run: &RunData) -> Table {
    let known: Vec<&Value> = run.file().doctor.as_array().into_iter().flatten().collect();
    let results = run.points.iter().filter_map(|m| m.result.as_ref());
    let findings = results.flat_map(|result| result.carmine.doctor.as_array().into_iter().flatten());
    let found = tally(findings.filter(|finding| is_warning(finding) && !known.contains(finding)));
    let mut table = Table::new(COLUMNS);
    table.columns.push("points".into());
    for (finding, count) in found {
        table.push([finding_row(finding), vec![Cell::Number(count as f64, 0)]].concat());
    }
    table.without_empty_columns()
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
    let rank = |f: &Value| SEVERITIES.iter().position(|word| *word == field(f, "severity"));
    present.sort_by_key(|f| rank(f).unwrap_or(SEVERITIES.len()));
    present
}

fn finding_row(finding: &Value) -> Vec<Cell> {
    let text = |name| finding.get(name).map(text_of);
    COLUMNS.split(" | ").map(|name| text(name).as_deref().into()).collect()
}

/// A data unit of the log, bytes (NVM Express Base Specification, "SMART / Health Information").
const UNIT_BYTES: f64 = 512_000.0;

/// The logs that a column may show.
#[derive(Clone, Copy)]
enum Of {
    Start,
    End,
    /// What the window changed.
    Since,
}

/// Columns, and the fields of the logs that they show with a factor.
const DRIVE: [(&str, Of, &str, f64); 12] = [
    ("used (%)", Of::End, "percentage_used", 1.0),
    ("spare (%)", Of::End, "available_spare_percent", 1.0),
    ("critical warning (bits)", Of::End, "critical_warning", 1.0),
    ("temperature, start (°C)", Of::Start, "temperature_c", 1.0),
    ("temperature, end (°C)", Of::End, "temperature_c", 1.0),
    ("media errors", Of::End, "media_errors", 1.0),
    ("new media errors", Of::Since, "media_errors", 1.0),
    ("unsafe shutdowns", Of::End, "unsafe_shutdowns", 1.0),
    ("read (MB)", Of::Since, "data_units_read", UNIT_BYTES / 1e6),
    ("written (MB)", Of::Since, "data_units_written", UNIT_BYTES / 1e6),
    ("read commands", Of::Since, "host_read_commands", 1.0),
    ("write commands", Of::Since, "host_write_commands", 1.0),
];

/// The logs of all points that have some; empty on machines without such drives.
fn drives(run: &RunData) -> Vec<Block> {
    let mut table = Table::new(&format!("point | drive | {}", DRIVE.map(|(name, ..)| name).join(" | ")));
    let mut text = BTreeSet::new();
    for point in &run.points {
        let drives = point.samples.as_ref().ok().and_then(Option::as_ref).map(|samples| &samples.nvme);
        for drive in drives.into_iter().flatten() {
            match &drive.missing {
                Some(why) => drop(text.insert(format!("{}: {why}.", drive.drive))),
                None => table.push(drive_row(&point.point.stem, drive)),
            }
        }
    }
    let text = text.into_iter().collect();
    vec![Block::Text(Kind::Remarks, text), Block::Table(String::new(), table.without_empty_columns())]
}

fn drive_row(stem: &str, drive: &NvmeSamples) -> Vec<Cell> {
    let figure = |(_, of, field, factor): (&str, Of, &str, f64)| {
        let log: &SmartLog = match of {
            Of::Start => &drive.start,
            Of::End => &drive.end,
            Of::Since => &drive.difference,
        };
        let value = log.get(field).map(|n| *n as f64 * factor);
        Cell::number(value, if factor == 1.0 { 0 } else { 1 })
    };
    [vec![stem.into(), drive.drive.as_str().into()], DRIVE.map(figure).to_vec()].concat()
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
        let blocks = doctor_of_machine(&findings);
        let [Block::Text(_, remarks), Block::Table(_, table)] = blocks.as_slice() else {
            panic!("{blocks:?}")
        };
        let text = table.csv();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "severity,topic,subject,is,better,cost,source,command");
        assert!(
            lines[1].starts_with("bad,build") && lines[2].starts_with("warn,I/O scheduler,vda"),
            "{text}"
        );
        assert_eq!(lines.len(), 4);
        assert_eq!(*remarks, ["Not present on this machine, so not judged: boost."]);
        assert_eq!(spoils(&findings), ["The doctor: build: debug"]);
    }

    #[test]
    fn strange_findings_do_no_harm() {
        let said = |findings: Value| format!("{:?}", doctor_of_machine(&findings));
        assert!(said(Value::Null).contains("The doctor was not asked."));
        assert!(said(json!({"a": 1})).contains("The findings can't be read."));
        let odd = doctor_of_machine(&json!([7, {"severity": "odd", "is": [1]}]));
        assert!(matches!(&odd[1], Block::Table(_, table) if table.rows.len() == 2), "{odd:?}");
    }
}
