//! Results side by side, and in words: what bounded each of them, what to try next, and what one more reactor or copy changed.
//! Repeats of one load on one testbed are a row; a row whose repeats support no figure is no result, and stands apart.

mod depths;

use std::fmt;

use carmine_load::origin::Origin;
use carmine_load::report::show;
use carmine_stats::median;
use carmine_types::columns;

use crate::archive::{Config, Direction, PointResult};
use crate::compare::Measured;
use crate::lists::{grouped, joined, span};
use crate::plan::TOLERANCE;
use crate::repeats::limiter;
use crate::support::{
    Change, REPEATS_MIN, SPARE_REPEATS, change, clean, drift_over, may_be_saved, spoilt_by,
};

type Figure = fn(&PointResult, &Direction) -> Option<f64>;

/// Columns with numbers: name, figure, factor, digits.
const NUMBERS: [(&str, Figure, f64, usize); 8] = [
    ("IOPS", |_, direction| Some(direction.iops), 1.0, 0),
    ("MB/s", |_, direction| Some(direction.bw_bytes), 1e-6, 1),
    ("p50 us", |_, direction| direction.clat_ns.at(50.0), 1e-3, 0),
    ("p99 us", |_, direction| direction.clat_ns.at(99.0), 1e-3, 0),
    ("IOPS/core alloc", |result, _| result.carmine.iops_per_core.allocated, 1.0, 0),
    ("used", |result, _| result.carmine.iops_per_core.used, 1.0, 0),
    ("busy", |result, _| result.carmine.iops_per_core.busy, 1.0, 0),
    ("machine us/op", |result, _| result.carmine.machine_cpu_us_per_op, 1.0, 1),
];

/// Settings that follow from the number of reactors, and from that of copies.
const OF_REACTORS: [&str; 3] = ["reactors", "osd_cpus", "overprovisioned"];
const OF_COPIES: [&str; 2] = ["pool_size", "min_size"];

/// Repeats of one load on one testbed.
pub struct Row<'a> {
    /// What the names of its repeats begin with.
    pub name: String,
    /// In the order of time.
    repeats: Vec<&'a Measured>,
    /// Those that nothing spoils; an error says why they are too few.
    clean: Result<Vec<&'a Measured>, String>,
}

/// Results by rows: those that support figures, and those that do not.
pub struct Results<'a> {
    /// In the order of the first result of each.
    rows: Vec<Row<'a>>,
}

impl<'a> Results<'a> {
    /// Puts repeats together: results of one configuration, build and machine.
    pub fn new(measured: &'a [Measured]) -> Results<'a> {
        let key = |m: &Measured| (m.result.carmine.in_process, m.result.carmine.origin.to_string());
        let keyed = measured.iter().map(|m| ((&m.config, key(m)), m));
        Results { rows: grouped(keyed).into_iter().map(|(_, repeats)| Row::new(repeats)).collect() }
    }

    /// The rows with enough clean repeats for a figure.
    pub fn good(&self) -> Vec<&Row<'a>> {
        self.rows.iter().filter(|row| row.clean.is_ok()).collect()
    }

    /// The rows that support no figure.
    pub fn bad(&self) -> Vec<&Row<'a>> {
        self.rows.iter().filter(|row| row.clean.is_err()).collect()
    }

    /// The rows that another repeat may make results: other work spoilt repeats, and there were not too many yet.
    pub fn lacking(&self) -> impl Iterator<Item = &Row<'a>> {
        self.rows.iter().filter(|row| row.is_lacking())
    }

    /// What one more reactor or copy brought: a sentence for each two rows that differ in nothing else. Then where more depth brought
    /// less.
    pub fn steps(&self) -> Vec<String> {
        let later = self.rows.iter().enumerate().map(|(at, base)| (base, &self.rows[at + 1..]));
        let steps = later.flat_map(|(base, later)| later.iter().filter_map(|new| step(base, new)));
        steps.chain(depths::falls(&self.rows)).collect()
    }
}

/// A table of results, in which each figure is the median of the clean repeats, then what bounded each row, and what one more reactor
/// or copy brought. Below it stand the rows that support no figure, with the reason.
impl fmt::Display for Results<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let section = |head: &str, rows: &[&Row<'_>]| {
            let bound: String = rows.iter().map(|row| row.bound()).collect();
            if rows.is_empty() { String::new() } else { format!("{head}{}\n{bound}", cells(rows)) }
        };
        let good = section("", &self.good());
        let steps: String = self.steps().iter().map(|step| format!("{step}\n")).collect();
        let bad = section("No results, as the repeats support no figure:\n", &self.bad());
        f.write_str(&joined([&*good, &steps, &bad], "\n"))
    }
}

/// The rows under the names of the columns: a line for each direction that has operations.
fn cells(rows: &[&Row<'_>]) -> String {
    let names = NUMBERS.map(|(name, ..)| name);
    let head = ["result", "rw", "repeats"].into_iter().chain(names).chain(["verdict"]);
    let head: Vec<String> = head.map(str::to_owned).collect();
    let all: Vec<Vec<String>> =
        std::iter::once(head).chain(rows.iter().flat_map(|row| row.lines())).collect();
    columns(&all, |at| (3..11).contains(&at))
}

/// The part that the names of all repeats begin with, without the ending of files and what separates the number of the repeat.
fn name(repeats: &[&Measured]) -> String {
    let names: Vec<&str> = repeats.iter().map(|m| m.name.trim_end_matches(".json")).collect();
    let same = |at: usize| names.iter().all(|name| name.get(..at) == names[0].get(..at));
    let shared =
        (0..=names[0].len()).rev().find(|at| names[0].is_char_boundary(*at) && same(*at)).unwrap_or(0);
    let name = names[0][..shared].trim_end_matches(['.', '-', '_']);
    if name.is_empty() { names[0].to_owned() } else { name.to_owned() }
}

/// The marks that spoil a repeat.
fn marks(repeat: &&Measured) -> Vec<&'static str> {
    spoilt_by(&repeat.config, Some(&repeat.result))
}

impl<'a> Row<'a> {
    fn new(mut repeats: Vec<&'a Measured>) -> Row<'a> {
        repeats.sort_by_key(|m| m.result.carmine.origin.started_unix_s);
        let clean = clean(&repeats, marks);
        Row { name: name(&repeats), clean, repeats }
    }

    fn is_lacking(&self) -> bool {
        let spoilt: Vec<Vec<&str>> = self.repeats.iter().map(marks).collect();
        let spare = (REPEATS_MIN + SPARE_REPEATS).saturating_sub(self.repeats.len());
        may_be_saved(&spoilt, spare)
    }

    /// The repeats that its figures are of: the clean ones, or all if those are too few.
    pub fn used(&self) -> &[&'a Measured] {
        self.clean.as_ref().unwrap_or(&self.repeats)
    }

    fn results(&self) -> impl Iterator<Item = &PointResult> {
        self.used().iter().map(|m| &m.result)
    }

    fn config(&self) -> &Config {
        &self.repeats[0].config
    }

    /// The limiter of its repeats, and the reason.
    pub fn limiter(&self) -> Option<(String, String)> {
        limiter(self.results())
    }

    /// The median of a figure; `None` if a repeat does not have it.
    pub fn median(&self, of: impl Fn(&PointResult) -> Option<f64>) -> Option<f64> {
        median(&self.results().map(of).collect::<Option<Vec<f64>>>()?)
    }

    /// The median of the IOPS; 0 without a repeat.
    fn iops(&self) -> f64 {
        self.median(|result| Some(result.iops())).unwrap_or_default()
    }

    /// The least and the largest value of a figure.
    pub fn span(&self, of: impl Fn(&PointResult) -> Option<f64>) -> (f64, f64) {
        span(self.results().filter_map(of))
    }

    /// `3 of 4`: the repeats that its figures are of, and all.
    pub fn repeats(&self) -> String {
        format!("{} of {}", self.used().len(), self.repeats.len())
    }

    /// A line for each direction that has operations.
    fn lines(&self) -> Vec<Vec<String>> {
        type Side = fn(&PointResult) -> Option<&Direction>;
        let sides: [(&str, Side); 2] = [("read", PointResult::read), ("write", PointResult::write)];
        let used = sides.into_iter().filter(|(_, side)| self.results().all(|result| side(result).is_some()));
        used.map(|(word, side)| self.line(word, side)).collect()
    }

    fn line(&self, word: &str, side: fn(&PointResult) -> Option<&Direction>) -> Vec<String> {
        let rw = self.config().show("rw").unwrap_or_else(|| "-".to_owned());
        let rw = if rw == "randrw" { format!("{rw} {word}") } else { rw };
        let mut line = vec![self.name.clone(), rw, self.repeats()];
        line.extend(NUMBERS.map(|(_, of, factor, digits)| {
            show(self.median(|result| Some(of(result, side(result)?)? * factor)), digits)
        }));
        line.push(self.limiter().map_or_else(|| "-".to_owned(), |(name, _)| name));
        line
    }

    /// The limiter of the row with its reason, or why the row gives no answer: `disk.randread: DEVICE: 97 % of the raw device was reached`.
    pub fn sentence(&self) -> String {
        let why = self.clean.as_ref().err().map(|why| format!("no answer: {why}"));
        let (limiter, reason) = self.limiter().unwrap_or_default();
        let limit = joined([&*limiter, &*reason], ": ");
        let limit = if why.is_some() && !limit.is_empty() { format!("measured: {limit}") } else { limit };
        let said = joined([why.as_deref().unwrap_or_default(), &limit], "; ");
        joined([&*self.name, &*said], ": ")
    }

    /// What to try next; empty if nothing follows from it.
    pub fn next(&self) -> &str {
        if self.clean.is_ok() { &self.used()[0].result.carmine.verdict_next } else { "" }
    }

    /// Where its first repeat comes from.
    pub fn origin(&self) -> &Origin {
        &self.used()[0].result.carmine.origin
    }

    /// The sentence, and below it what to try next, and where it comes from.
    fn bound(&self) -> String {
        let origin = Some(self.origin()).filter(|origin| origin.is_known());
        let from = origin.map(|origin| format!("{origin}, {}", origin.started())).unwrap_or_default();
        let below = [("next", self.next()), ("from", &from)].into_iter().filter(|(_, text)| !text.is_empty());
        let below: String = below.map(|(word, text)| format!("  {word}: {text}\n")).collect();
        format!("{}\n{below}", self.sentence())
    }
}

/// How the second of two rows differs from the first, if they differ in their reactors or in their copies only.
fn step(base: &Row<'_>, new: &Row<'_>) -> Option<String> {
    if !is_comparable(base, new) {
        return None;
    }
    let differences = base.config().differences(new.config());
    // Inside an OSD, each reactor is a job.
    let jobs: &[&str] = if base.repeats[0].result.carmine.in_process { &["jobs"] } else { &[] };
    let only = |of: &[&str]| differences.iter().all(|axis| of.contains(axis) || jobs.contains(axis));
    let more = |axis: &str| {
        let (before, now) = (base.config().float(axis)?, new.config().float(axis)?);
        (before < now).then_some((before, now))
    };
    let said = match (more("reactors"), more("pool_size")) {
        (Some(reactors), None) if only(&OF_REACTORS) => {
            supported(base, new, |times| more_reactors(base, new, reactors, times))
        }
        (None, Some(copies)) if only(&OF_COPIES) => {
            supported(base, new, |times| more_copies(base, new, copies, times))
        }
        _ => return None,
    };
    let said = said.unwrap_or_else(|why| format!("no answer: {why}"));
    Some(format!("{} -> {}: {said}", base.name, new.name))
}

/// Two rows are of one build on one machine, with the load at the same place.
fn is_comparable(base: &Row<'_>, new: &Row<'_>) -> bool {
    let place = |row: &Row<'_>| {
        let carmine = &row.repeats[0].result.carmine;
        (carmine.in_process, carmine.origin.build(), carmine.origin.host.clone())
    };
    place(base) == place(new)
}

/// How the IOPS of the second row differ from those of the first.
///
/// # Errors
/// Why the rows do not support an answer.
fn iops_change(base: &Row<'_>, new: &Row<'_>) -> Result<Change, String> {
    for row in [base, new] {
        row.clean.as_ref().map_err(|why| format!("{}: {why}", row.name))?;
    }
    let iops = |row: &Row<'_>| row.results().map(PointResult::iops).collect::<Vec<f64>>();
    let drift = |row: &Row<'_>| drift_over(&row.results().collect::<Vec<_>>());
    change(&iops(base), &iops(new), Some(drift(base).max(drift(new))), TOLERANCE)
}

/// The sentence about two rows, of how many times the IOPS the second has.
///
/// # Errors
/// Why the rows do not support one.
fn supported(base: &Row<'_>, new: &Row<'_>, sentence: impl Fn(&str) -> String) -> Result<String, String> {
    let change = iops_change(base, new)?;
    let (low, high) = change.interval;
    Ok(sentence(&format!("{:.2} times the IOPS (95 %: {low:.2} to {high:.2})", change.ratio)))
}

fn more_reactors(base: &Row<'_>, new: &Row<'_>, (before, now): (f64, f64), times: &str) -> String {
    let osds = new.config().float("osds").unwrap_or(1.0);
    let each = (new.iops() - base.iops()) / (osds * (now - before));
    let part = 100.0 * each * osds * before / base.iops();
    format!(
        "{now:.0} reactors per OSD instead of {before:.0} brought {times}: {each:.0} for each added reactor, {part:.0} % of what each had \
         before (bounded by {})",
        bounded(new)
    )
}

fn more_copies(base: &Row<'_>, new: &Row<'_>, (before, copies): (f64, f64), times: &str) -> String {
    let cpu = |row: &Row<'_>| row.median(|result| result.carmine.osd_cpu_us_per_op);
    let cpu = cpu(base).zip(cpu(new)).filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old);
    let cpu =
        cpu.map(|cpu| format!(" and {cpu:.2} times the OSDs' CPU time per operation")).unwrap_or_default();
    format!("{copies:.0} copies instead of {before:.0} brought {times}{cpu} (bounded by {})", bounded(new))
}

fn bounded(row: &Row<'_>) -> String {
    row.limiter().map_or_else(|| "UNKNOWN".to_owned(), |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table(measured: &[Measured]) -> String {
        Results::new(measured).to_string()
    }

    /// One repeat: its number, reactors and copies; IOPS, limiter and marks.
    fn repeat(at: u64, (reactors, size): (u32, u32), iops: f64, limiter: &str, marks: &[&str]) -> Measured {
        let write = json!({"iops": iops, "bw_bytes": iops * 4096.0,
            "clat_ns": {"percentile": {"50.000000": 100_000, "99.000000": 900_000}}});
        let carmine = json!({"osd_cpu_us_per_op": 3.0 * f64::from(size), "verdict": limiter, "marks": marks,
            "verdict_reason": "reactors were busy 99 %", "verdict_next": "add reactors", "machine_cpu_us_per_op": 80.25});
        let mut result: PointResult =
            serde_json::from_value(json!({"jobs": [{"read": {}, "write": write}], "carmine": carmine}))
                .unwrap();
        result.carmine.setting.origin =
            Origin::here("0.1.0", "abc+", "box".into(), "6.1".into(), 1_700_000_000 + at);
        let config = json!({"rw": "randwrite", "osds": 1, "reactors": reactors, "pool_size": size});
        let name = format!("r{reactors}s{size}.{at}.json");
        Measured { name, config: serde_json::from_value(config).unwrap(), result, ..Measured::default() }
    }

    fn thrice(setting: (u32, u32), iops: f64, limiters: [&str; 3], marks: &[&str]) -> Vec<Measured> {
        let one =
            |at: usize| repeat(at as u64, setting, iops * (1.0 + 0.001 * at as f64), limiters[at], marks);
        (0..3).map(one).collect()
    }

    const OSD: [&str; 3] = ["OSD"; 3];

    #[test]
    fn repeats_are_one_row_with_what_bounded_it() {
        let text = table(&thrice((1, 1), 1e5, ["OSD", "CLIENT", "OSD"], &["in-process: a note"]));
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        let row =
            ["r1s1", "randwrite", "3", "of", "3", "100100", "410.0", "100", "900", "-", "-", "-", "80.2"];
        assert_eq!(lines[1][..13], row, "{text}");
        assert_eq!(lines[1][13..].join(" "), "OSD 2 of 3, CLIENT 1");
        let bound = "r1s1: OSD 2 of 3, CLIENT 1: OSD: reactors were busy 99 %; CLIENT: reactors were busy 99 %\n  next: add reactors\n";
        assert!(text.contains(bound), "{text}");
        let from = "  from: carmine 0.1.0 (abc+) on box, kernel 6.1, Tue Nov 14 22:13:20 2023 UTC\n";
        assert!(text.ends_with(from), "{text}");
    }

    #[test]
    fn a_reactor_and_a_copy_more_are_compared_with_what_differs_in_nothing_else() {
        let rows =
            [thrice((1, 1), 1e5, OSD, &[]), thrice((2, 1), 1.8e5, OSD, &[]), thrice((1, 3), 4e4, OSD, &[])];
        let text = table(&rows.concat());
        let pairs: Vec<&str> = text.lines().filter(|line| line.contains("->")).collect();
        let reactors = "r1s1 -> r2s1: 2 reactors per OSD instead of 1 brought 1.80 times the IOPS (95 %: 1.80 to 1.80): 80080 for each \
                        added reactor, 80 % of what each had before (bounded by OSD)";
        let copies = "r1s1 -> r1s3: 3 copies instead of 1 brought 0.40 times the IOPS (95 %: 0.40 to 0.40) and 3.00 times the OSDs' CPU \
                      time per operation (bounded by OSD)";
        assert_eq!(pairs, [reactors, copies]);
    }

    /// `1.47 times the IOPS` once came from an UNSTEADY row.
    #[test]
    fn rows_that_cannot_be_judged_are_no_results_and_are_compared_with_none() {
        let unsteady = thrice((2, 1), 1.47e5, OSD, &["UNSTEADY: IOPS drifted"]);
        let alone = vec![repeat(0, (1, 3), 4e4, "OSD", &[])];
        let text = table(&[thrice((1, 1), 1e5, OSD, &[]), unsteady, alone].concat());
        let (results, others) =
            text.split_once("No results, as the repeats support no figure:\n").expect("a part");
        assert!(!results.contains("147") && !results.contains("1.47") && others.contains("147147"), "{text}");
        let pair = "r1s1 -> r2s1: no answer: r2s1: 0 of 3 repeats clean (UNSTEADY 3), and it takes 3\n";
        assert!(results.contains(pair), "{text}");
        assert!(
            results.contains("r1s1 -> r1s3.0: no answer: r1s3.0: 1 of 1 repeat clean, and it takes 3\n"),
            "{text}"
        );
        assert!(others.contains("r2s1: no answer: 0 of 3 repeats clean (UNSTEADY 3)"), "{text}");
        assert!(!others.contains("next: "), "nothing follows from them: {text}");
    }

    #[test]
    fn a_row_is_measured_again_while_that_may_help() {
        let row = |marks: &[&str]| -> Vec<Measured> {
            let one = |(at, mark): (usize, &&str)| {
                let marks: &[&str] = if mark.is_empty() { &[] } else { &[*mark] };
                repeat(at as u64, (1, 1), 1e5, "OSD", marks)
            };
            marks.iter().enumerate().map(one).collect()
        };
        let lacking = |marks: &[&str]| -> Vec<String> {
            Results::new(&row(marks)).lacking().map(|row| row.name.clone()).collect()
        };
        assert_eq!(lacking(&["", "NOISY: other work", ""]), ["r1s1"]);
        assert_eq!(lacking(&["", "NOISY: other work", "", "UNSTEADY: IOPS fell"]), ["r1s1"]);
        assert_eq!(lacking(&["", "NOISY: other work", "", ""]), [""; 0], "it has three clean ones");
        let noisy = ["", "NOISY: a", "", "NOISY: b", "NOISY: c"];
        assert_eq!(lacking(&noisy), [""; 0], "two more were tried");
        assert_eq!(lacking(&["", "SHARED: CPUs", ""]), [""; 0]);
    }

    #[test]
    fn a_gain_below_the_drift_is_no_answer() {
        let drifting: Vec<Measured> =
            (0..3).map(|at| repeat(at, (1, 1), 1e5 * (1.0 + 0.1 * at as f64), "OSD", &[])).collect();
        let text = table(&[drifting, thrice((2, 1), 1.15e5, OSD, &[])].concat());
        assert!(text.contains("r1s1 -> r2s1: no answer: "), "{text}");
    }
}
