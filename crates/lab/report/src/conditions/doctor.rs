//! What the doctor found: the worst first, what the machine does not have in one sentence.

use serde_json::Value;

use crate::data::{RunData, text_of};
use crate::lists::tally;
use crate::report::Section;
use crate::table::{Cell, Table};

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
/// What the kinds of findings are called, the worst first.
const SEVERITIES: [(&str, &str); 4] =
    [("bad", "bad"), ("warn", "warning"), ("info", "to know"), ("ok", "ok")];
/// The machine has no such thing.
const ABSENT: &str = "not_present";

/// Findings about the machine, as the run has them.
pub(super) fn of_machine(findings: &Value) -> Section {
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
    sorted(list).iter().for_each(|finding| table.push(row(finding)));
    if table.rows.is_empty() {
        text.push("Nothing to change.".into());
    }
    Section { text, table: Some(table.without_empty_columns()), ..Section::default() }
}

/// What is worth a warning of single points, and not of the machine: who sits where differs from point to point.
pub(super) fn of_points(run: &RunData) -> Section {
    let known: Vec<&Value> = run.file().doctor.as_array().into_iter().flatten().collect();
    let results = run.points.iter().filter_map(|m| m.result.as_ref());
    let findings = results.flat_map(|result| result.carmine.doctor.as_array().into_iter().flatten());
    let found = tally(findings.filter(|finding| is_warning(finding) && !known.contains(finding)));
    let mut table = Table::new(&COLUMNS.map(|(name, _)| name).join(" | "));
    table.columns.push("points".into());
    for (finding, count) in found {
        let mut cells = row(finding);
        cells.push(Cell::Number(count as f64, 0));
        table.push(cells);
    }
    Section { table: Some(table.without_empty_columns()), ..Section::default() }
}

/// What spoils a measurement, for the head of the page.
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

fn row(finding: &Value) -> Vec<Cell> {
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
        let section = of_machine(&findings);
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
        assert_eq!(of_machine(&Value::Null).text, ["The doctor was not asked."]);
        assert_eq!(of_machine(&json!({"a": 1})).text, ["The findings can't be read."]);
        let odd = of_machine(&json!([7, {"severity": "odd", "is": [1]}]));
        assert_eq!(odd.table.unwrap().rows.len(), 2);
    }
}
