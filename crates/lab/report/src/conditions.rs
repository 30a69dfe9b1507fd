//! The conditions of the measurement, and how to repeat it.

use std::collections::BTreeSet;

use carmine_load::origin::Origin;
use carmine_load::samples::{NvmeSamples, SmartLog};
use carmine_study::archive::CarmineResult;
use carmine_types::counted;
use serde_json::Value;

use crate::data::{Measured, RunData, drift, text_of};
use crate::figures::View;
use crate::lists::{grouped, joined, sorted, tally};
use crate::report::{Block, Kind, Part, run_suffix};
use crate::table::{Cell, Table};
use crate::units::{date, duration, shortened};

/// Lines of a failed point's log that are shown.
const LOG_LINES: usize = 20;
/// Characters of a file that are shown; the archive has all.
const VERBATIM_MAX: usize = 60_000;

/// All sections, run by run.
pub(crate) fn sections(view: &View<'_>) -> Vec<Block> {
    let not_measured = vec![Block::Text(Kind::Remarks, not_measured(view))];
    let mut sections = vec![("What could not be measured".to_owned(), not_measured)];
    for run in view.runs {
        let table = |table: Table| vec![Block::Table(String::new(), table)];
        let file = |text: String| vec![Block::Verbatim(shortened(&text, VERBATIM_MAX))];
        let commands = std::fs::read_to_string(run.run.dir().join("commands.sh"));
        let of_run = [
            ("The run", table(facts(run))),
            ("Settings that all points share", table(pairs(view.axes.common.clone()))),
            ("Machine", table(pairs(flat("", &run.file().host)))),
            ("What the doctor found", doctor_of_machine(&run.file().doctor)),
            ("What the doctor found of the testbeds", table(doctor_of_points(run))),
            ("NVMe drives by their SMART logs", drives(run)),
            ("Load hosts", table(load_hosts(run))),
            ("Remarks of the points", table(marks(run))),
            ("Plan", file(run.run.plan())),
            ("Exact commands", file(commands.unwrap_or_default())),
            ("Logs of points that failed", file(logs(run))),
        ];
        sections.extend(of_run.map(|(title, blocks)| (format!("{title}{}", run_suffix(run)), blocks)));
    }
    sections.into_iter().map(|(title, blocks)| Block::Folded(Part::new("", &title, blocks))).collect()
}

fn facts(run: &RunData) -> Table {
    let (file, build) = (run.file(), &run.file().carmine);
    let seconds: f64 = run.points.iter().map(|m| m.seconds).sum();
    let failed = run.points.iter().filter(|m| m.state == "failed").count();
    pairs([
        ("folder", run.run.dir().display().to_string()),
        ("plan", file.name.clone()),
        ("started", date(file.created_unix_s)),
        ("ended", file.finished_unix_s.map_or("not ended".into(), date)),
        ("time in points", duration(seconds)),
        ("points", format!("{}, of which {failed} failed", run.points.len())),
        ("seed", file.seed.to_string()),
        ("version", format!("{} {}", build.version, build.git_hash)),
        ("build", joined([build.profile.as_str(), &build.allocator], " ")),
        ("kernel", file.kernel.clone()),
        ("host", of_origins(run, |origin| origin.host.clone())),
        ("drives", of_origins(run, Origin::drive_names)),
        ("age of raw baselines", baseline_ages(run)),
        ("command", file.command.join(" ")),
        ("drift", drift(run).unwrap_or_else(|| "not known: the first point was not run again".into())),
    ])
}

/// A fact about where the points come from; several values only if they differ.
fn of_origins(run: &RunData, of: fn(&Origin) -> String) -> String {
    let origins = run.points.iter().filter_map(|m| m.result.as_ref()).map(|r| &r.carmine.origin);
    sorted(origins.filter(|origin| origin.is_known()).map(of), "; ")
}

/// How long before their points the raw baselines were measured; empty if there are none.
fn baseline_ages(run: &RunData) -> String {
    let results = run.points.iter().filter_map(|m| m.result.as_ref());
    let oldest_s = results.filter_map(|r| r.carmine.baseline_age_seconds).max();
    oldest_s.map(|s| format!("at most {} before their points", duration(s as f64))).unwrap_or_default()
}

fn pairs<N: Into<String>>(rows: impl IntoIterator<Item = (N, String)>) -> Table {
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    Table::new("fact | value", rows.map(|(name, value)| vec![name.into().into(), value.into()]))
}

/// An object as names and values; nested objects by `outer.inner`.
fn flat(name: &str, value: &Value) -> Vec<(String, String)> {
    let Value::Object(map) = value else { return vec![(name.to_owned(), text_of(value))] };
    map.iter().flat_map(|(key, value)| flat(&joined([name, key], "."), value)).collect()
}

/// Marks in full, each with how many points have it and one of them.
fn marks(run: &RunData) -> Table {
    let marks = run.points.iter().flat_map(|measured| {
        let marks = measured.result.iter().flat_map(|r| &r.carmine.marks);
        marks.map(|mark| (mark.as_str(), measured.point.stem.as_str()))
    });
    let row = |(mark, stems): (&str, Vec<&str>)| {
        vec![mark.into(), Cell::Number(stems.len() as f64, 0), stems[0].into()]
    };
    Table::new("mark | points | for example", grouped(marks).into_iter().map(row))
}

/// The hosts that made the load, where it was not this one.
fn load_hosts(run: &RunData) -> Table {
    let rows = run.points.iter().flat_map(|measured| {
        let hosts = measured.result.iter().flat_map(|r| &r.carmine.load_hosts);
        hosts.map(|host| {
            let ms = |ns: f64| Cell::Number(ns / 1e6, 3);
            vec![
                measured.point.stem.as_str().into(),
                host.host.as_str().into(),
                Cell::Number(host.jobs.into(), 0),
                Cell::Number(host.iops, 0),
                Cell::number(host.client_busy.map(|part| part * 100.0), 0),
                Cell::Number(host.client_cores_used, 2),
                ms(host.clock.offset_ns as f64),
                ms(host.clock.error_ns as f64),
            ]
        })
    });
    let columns =
        "point | host | jobs | IOPS | hottest thread (%) | cores | clock ahead (ms) | known within (ms)";
    Table::new(columns, rows)
}

fn logs(run: &RunData) -> String {
    let end = |measured: &Measured| {
        let log = run.run.log(&measured.point);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        format!("--- {}\n{end}\n", measured.point.stem)
    };
    run.points.iter().filter(|m| m.state == "failed").map(end).collect()
}

/// Figures that a reader may miss, and why they are not there.
fn not_measured(view: &View<'_>) -> Vec<String> {
    type Has = fn(&CarmineResult) -> bool;
    let wanted: [(Has, &str); 7] = [
        (|r| !r.shared, "Figures per core (CPUs are shared)"),
        (|r| r.machine_cpu_us_per_op.is_some(), "CPU of the whole machine per operation"),
        (|r| r.percent_of_device.is_some(), "Comparison with the raw device"),
        (|r| r.percent_of_messenger.is_some(), "Comparison with the raw messenger"),
        (|r| !r.flush_mode.is_empty(), "Flush mode"),
        (|r| r.cache_state.is_some(), "State of the caches"),
        (|r| r.latency_histogram.read.is_some() || r.latency_histogram.write.is_some(), "Latency histogram"),
    ];
    let told = wanted.iter().filter_map(|(has, what)| {
        let missing = view.settings.iter().filter(|s| !has(&s.first.carmine)).count();
        let all = counted(view.settings.len(), "setting");
        (missing > 0).then(|| format!("{what}: missing for {missing} of {all}."))
    });
    told.chain(unsampled(view)).collect()
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
    let errors = points().filter_map(|m| m.samples_error.as_ref());
    let mut text: Vec<String> = errors.map(|why| format!("Samples can't be read: {why}.")).collect();
    let sampled: Vec<_> = points().filter_map(|m| m.samples.as_ref()).collect();
    let without = points().count() - sampled.len() - text.len();
    if without > 0 {
        let all = counted(points().count(), "point");
        text.push(format!("Samples (second by second): missing for {without} of {all}."));
    }
    let is_absent = |key: &str| sampled.iter().all(|samples| !samples.series.contains_key(key));
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

/// Findings about the machine, as the run has them: the worst first, kinds that are not known last.
fn doctor_of_machine(findings: &Value) -> Vec<Block> {
    let list = findings.as_array().map_or(&[][..], Vec::as_slice);
    // The machine has no such thing.
    let (absent, mut present): (Vec<&Value>, Vec<&Value>) =
        list.iter().partition(|finding| field(finding, "severity") == "not_present");
    let rank = |f: &&Value| SEVERITIES.iter().position(|word| *word == field(f, "severity"));
    present.sort_by_key(|finding| rank(finding).unwrap_or(SEVERITIES.len()));
    let absent = absent.into_iter().map(title).collect::<Vec<_>>().join(", ");
    let absent =
        Some(format!("Not present on this machine, so not judged: {absent}.")).filter(|_| !absent.is_empty());
    let told = match findings {
        Value::Array(_) => present.is_empty().then_some("Nothing to change."),
        Value::Null => Some("The doctor was not asked."),
        _ => Some("The findings can't be read."),
    };
    let text = absent.into_iter().chain(told.map(str::to_owned)).collect();
    let table = Table::new(COLUMNS, present.into_iter().map(finding_row)).without_empty_columns();
    vec![Block::Text(Kind::Remarks, text), Block::Table(String::new(), table)]
}

/// Warnings that concern single points and not the machine: the placement differs from point to point.
fn doctor_of_points(run: &RunData) -> Table {
    let known = run.file().doctor.as_array();
    let results = run.points.iter().filter_map(|m| m.result.as_ref());
    let findings = results.flat_map(|result| result.carmine.doctor.as_array().into_iter().flatten());
    let is_warning = |finding: &Value| matches!(field(finding, "severity"), "bad" | "warn");
    let is_known = |finding: &Value| known.is_some_and(|known| known.contains(finding));
    let found = tally(findings.filter(|finding| is_warning(finding) && !is_known(finding)));
    let row = |(finding, n)| [finding_row(finding), vec![Cell::Number(n as f64, 0)]].concat();
    Table::new(&format!("{COLUMNS} | points"), found.into_iter().map(row)).without_empty_columns()
}

/// Findings that spoil a measurement, for the head of the page.
pub(crate) fn spoils(findings: &Value) -> Vec<String> {
    let bad = findings.as_array().into_iter().flatten().filter(|f| field(f, "severity") == "bad");
    bad.map(|f| format!("The doctor: {}: {}", title(f), field(f, "is"))).collect()
}

fn field<'a>(finding: &'a Value, name: &str) -> &'a str {
    finding.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn title(finding: &Value) -> String {
    joined([field(finding, "topic"), field(finding, "subject")], " of ")
}

fn finding_row(finding: &Value) -> Vec<Cell> {
    let text = |name| finding.get(name).map(text_of);
    COLUMNS.split(" | ").map(|name| Cell::text(text(name).as_deref())).collect()
}

/// A data unit of the log, bytes (NVM Express Base Specification, "SMART / Health Information").
const UNIT_BYTES: f64 = 512_000.0;

type Log = fn(&NvmeSamples) -> &SmartLog;
const START: Log = |drive| &drive.start;
const END: Log = |drive| &drive.end;
/// Of what the window changed.
const SINCE: Log = |drive| &drive.difference;

/// Column title, log, field, and the factor to scale it by.
const DRIVE: [(&str, Log, &str, f64); 12] = [
    ("used (%)", END, "percentage_used", 1.0),
    ("spare (%)", END, "available_spare_percent", 1.0),
    ("critical warning (bits)", END, "critical_warning", 1.0),
    ("temperature, start (°C)", START, "temperature_c", 1.0),
    ("temperature, end (°C)", END, "temperature_c", 1.0),
    ("media errors", END, "media_errors", 1.0),
    ("new media errors", SINCE, "media_errors", 1.0),
    ("unsafe shutdowns", END, "unsafe_shutdowns", 1.0),
    ("read (MB)", SINCE, "data_units_read", UNIT_BYTES / 1e6),
    ("written (MB)", SINCE, "data_units_written", UNIT_BYTES / 1e6),
    ("read commands", SINCE, "host_read_commands", 1.0),
    ("write commands", SINCE, "host_write_commands", 1.0),
];

/// The logs of all points that have some; empty on machines without such drives.
fn drives(run: &RunData) -> Vec<Block> {
    let drives = run.points.iter().flat_map(|point| {
        let drives = point.samples.iter().flat_map(|samples| &samples.nvme);
        drives.map(|drive| (point.point.stem.as_str(), drive))
    });
    let (known, unknown): (Vec<_>, Vec<_>) = drives.partition(|(_, drive)| drive.missing.is_none());
    let why =
        |(_, drive): &(&str, &NvmeSamples)| Some(format!("{}: {}.", drive.drive, drive.missing.as_ref()?));
    let text: BTreeSet<String> = unknown.iter().filter_map(why).collect();
    let columns = format!("point | drive | {}", DRIVE.map(|(name, ..)| name).join(" | "));
    let table = Table::new(&columns, known.into_iter().map(|(stem, drive)| drive_row(stem, drive)));
    let text = Block::Text(Kind::Remarks, text.into_iter().collect());
    vec![text, Block::Table(String::new(), table.without_empty_columns())]
}

fn drive_row(stem: &str, drive: &NvmeSamples) -> Vec<Cell> {
    let figure = |(_, log, field, factor): (&str, Log, &str, f64)| {
        let value = log(drive).get(field).map(|n| *n as f64 * factor);
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
