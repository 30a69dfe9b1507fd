//! The short report of results side by side: the answer in words, and a chart of the rows that support a figure.

use carmine_load::origin::Origin;
use carmine_study::archive::PointResult;
use carmine_study::table::{Results, Row as Measured};

use crate::chart::{Axis, Chart, Form, Ink, Key, Plot, Row, Shape};
use crate::lists::distinct;
use crate::report::{Block, Kind, Part, Report};
use crate::table::{Cell, Table};
use crate::units::short;

const TITLE: &str = "IOPS per core, and what bounds them";
const FOOTER: &str = "Written by carmine table. The files that it was given have all figures.";
const AXIS: &str = "IOPS for each core that the OSDs used";
const COLUMNS: &str =
    "result | repeats | IOPS | IOPS/core used | lowest | highest | OSD µs/op | machine µs/op | limiter";
const REMARK: &str =
    "A dot is the median of the clean repeats, and its bar reaches from the lowest to the highest of them.";

/// The report of results.
pub(crate) fn report(results: &Results<'_>) -> Report {
    let (good, bad) = (results.good(), results.bad());
    let subtitle = builds(&[good.as_slice(), &bad].concat());
    let mut answers = results.steps();
    answers.extend(good.iter().map(|row| row.sentence()));
    if good.is_empty() {
        answers.insert(0, "No answer: no row has repeats that support a figure.".to_owned());
    }
    let head = vec![
        Block::Text(Kind::Answer, answers),
        Block::Charts(chart(&good, &subtitle).into_iter().collect()),
        Block::Table("What to try next".to_owned(), advice(&good)),
    ];
    let without = bad.iter().map(|row| row.sentence()).collect();
    let parts = vec![
        Part::new("headline", "What was found", head),
        Part::new("without", "No results", vec![Block::Text(Kind::Notices, without)]),
    ];
    Report { title: TITLE.to_owned(), subtitle, notices: Vec::new(), parts, footer: FOOTER }.with_glossary()
}

/// The builds and machines of the rows, each once.
fn builds(rows: &[&Measured<'_>]) -> String {
    let known = rows.iter().map(|row| row.origin()).filter(|origin| origin.is_known());
    // Rows in memory and on drives are of one machine.
    let place = |origin: &Origin| Origin { drives: Vec::new(), ..origin.clone() }.to_string();
    distinct(known.map(place)).join(" | ")
}

/// Operations per second for each core of CPU time that the OSDs took.
fn per_core(result: &PointResult) -> Option<f64> {
    result.carmine.iops_per_core.used
}

/// A dot for each row with the span of its repeats; `None` if no row has the figure.
fn chart(rows: &[&Measured<'_>], context: &str) -> Option<Chart> {
    let known = |row: &&&Measured<'_>| row.median(per_core).is_some();
    let (shown, others): (Vec<&Measured<'_>>, Vec<_>) = rows.iter().partition(known);
    let dots: Vec<Row> = shown.iter().map(|row| dot(row)).collect();
    let mut plot = Plot::of_rows(Axis::from_zero(AXIS), vec![Key::series(0, AXIS)], &dots, false);
    plot.shapes.extend(dots.iter().enumerate().filter_map(|(at, row)| label(at, row)));
    let without = others.iter().map(|row| format!("{} has no such figure.", row.name));
    let remarks = std::iter::once(REMARK.to_owned()).chain(without).collect();
    (!dots.is_empty()).then(|| Chart {
        id: "iops-per-core".to_owned(),
        title: "IOPS per OSD core".to_owned(),
        context: context.to_owned(),
        plots: vec![plot],
        table: Table::new(COLUMNS, shown.iter().map(|row| figures(row))),
        remarks,
        family: String::new(),
    })
}

fn dot(row: &Measured<'_>) -> Row {
    Row {
        name: row.name.clone(),
        values: vec![row.median(per_core)],
        interval: Some(row.span(per_core)),
        marked: false,
    }
}

/// The figure in digits, after the end of the bar.
fn label(at: usize, row: &Row) -> Option<Shape> {
    let (value, (_, high)) = (row.values[0]?, row.interval?);
    Some(Shape::new(Form::Text((high, at as f64 + 0.5), short(value)), Ink::TEXT))
}

fn figures(row: &Measured<'_>) -> Vec<Cell> {
    let (lowest, highest) = row.span(per_core);
    vec![
        row.name.as_str().into(),
        row.repeats().into(),
        Cell::number(row.median(|result| Some(result.iops())), 0),
        Cell::number(row.median(per_core), 0),
        Cell::number(Some(lowest), 0),
        Cell::number(Some(highest), 0),
        Cell::number(row.median(|result| result.carmine.osd_cpu_us_per_op), 1),
        Cell::number(row.median(|result| result.carmine.machine_cpu_us_per_op), 1),
        Cell::text(row.limiter().as_ref().map(|(limiter, _)| limiter.as_str())),
    ]
}

/// What to try next, for each row that has such advice.
fn advice(rows: &[&Measured<'_>]) -> Table {
    let advised = rows.iter().filter(|row| !row.next().is_empty());
    Table::new("result | try next", advised.map(|row| vec![row.name.as_str().into(), row.next().into()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_study::compare;
    use serde_json::json;

    use crate::page::html;

    /// Three repeats of a row on this many reactors, each a little faster than the one before.
    fn repeats(name: &str, reactors: u32, iops: f64, marks: &[&str]) -> Vec<compare::Measured> {
        let repeat = |at: u32| {
            let iops = iops + f64::from(at) * 100.0;
            let carmine = json!({"verdict": "OSD", "verdict_reason": "reactors were busy 99 %", "verdict_next": "add reactors",
                "marks": marks, "iops_per_core": {"used": iops * 1.5}, "osd_cpu_us_per_op": 12.3,
                "origin": {"version": "0.1.0", "commit": "abc", "host": "box", "kernel": "6.1", "started_unix_s": at}});
            let result = json!({"jobs": [{"write": {"iops": iops}}], "carmine": carmine});
            compare::Measured {
                name: format!("{name}.randwrite.{at}.json"),
                config: serde_json::from_value(json!({"rw": "randwrite", "osds": 1, "reactors": reactors}))
                    .expect("a configuration"),
                result: serde_json::from_value(result).expect("a result"),
                ..compare::Measured::default()
            }
        };
        (0..3).map(repeat).collect()
    }

    #[test]
    fn a_chart_and_the_sentences_of_the_terminal() {
        let all = [repeats("one", 1, 1e5, &[]), repeats("two", 2, 1.8e5, &["in-process: a note"])].concat();
        let results = Results::new(&all);
        let page = html(&report(&results));
        assert_eq!(page.matches("<figure class=\"chart\"").count(), 1, "{page}");
        for interval in ["150,150 (150,000 to 150,300)", "270,150 (270,000 to 270,300)"] {
            assert!(page.contains(interval), "{interval}: {page}");
        }
        let text = crate::markdown::markdown(&report(&results));
        let terminal = results.to_string();
        let sentences: Vec<&str> =
            terminal.lines().filter(|line| line.contains("brought") || line.contains(": OSD: ")).collect();
        assert_eq!(sentences.len(), 3, "{terminal}");
        for sentence in sentences {
            assert!(text.contains(&crate::table::escape(sentence)), "{sentence}: {text}");
        }
        assert!(text.contains("| one.randwrite | add reactors |"), "{text}");
        assert!(text.contains("carmine 0.1.0 (abc) on box, kernel 6.1\n"), "{text}");
    }

    /// `1.47 times the IOPS` once came from an UNSTEADY row.
    #[test]
    fn a_row_that_cannot_be_judged_is_only_named_with_the_reason() {
        let unsteady = repeats("two", 2, 1.47e5, &["UNSTEADY: IOPS drifted"]);
        let all = [repeats("one", 1, 1e5, &[]), unsteady].concat();
        let report = report(&Results::new(&all));
        let text = crate::markdown::markdown(&report);
        let why = "two.randwrite: no answer: 0 of 3 repeats clean (UNSTEADY 3), and it takes 3";
        let (found, without) = text.split_once("## No results").expect("a part for it");
        assert!(without.contains(why) && !found.contains("| two.randwrite"), "{text}");
        assert!(!found.contains("times the IOPS") && !text.contains("147,"), "{text}");
        assert_eq!(html(&report).matches("class=\"hit\"").count(), 1, "one dot");
    }

    #[test]
    fn without_a_figure_there_is_no_chart() {
        let all = repeats("one", 1, 1e5, &["NOISY: other work"]);
        let page = html(&report(&Results::new(&all)));
        assert!(page.contains("No answer: no row has repeats that support a figure."), "{page}");
        assert!(!page.contains("<figure"), "{page}");
    }
}
