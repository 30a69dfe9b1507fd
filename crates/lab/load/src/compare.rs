//! Several results in one table, and in words: what bounded each of them, what to try next, and what one more reactor or copy
//! changed.

use std::collections::BTreeSet;

use carmine_types::columns;
use serde::Deserialize as _;
use serde_json::Value;

use crate::origin::Origin;

/// Columns with numbers: name, place in the result (`*`: the direction), factor, digits.
const NUMBERS: [(&str, &str, f64, usize); 8] = [
    ("IOPS", "/jobs/0/*/iops", 1.0, 0),
    ("MB/s", "/jobs/0/*/bw_bytes", 1e-6, 1),
    ("p50 us", "/jobs/0/*/clat_ns/percentile/50.000000", 1e-3, 0),
    ("p99 us", "/jobs/0/*/clat_ns/percentile/99.000000", 1e-3, 0),
    ("IOPS/core alloc", "/carmine/iops_per_core/allocated", 1.0, 0),
    ("used", "/carmine/iops_per_core/used", 1.0, 0),
    ("busy", "/carmine/iops_per_core/busy", 1.0, 0),
    ("machine us/op", "/carmine/machine_cpu_us_per_op", 1.0, 1),
];

/// Settings in which two results must agree to be compared in words.
const SAME: [&str; 11] = [
    "/plan/store",
    "/plan/cpu/osds",
    "/load/rw",
    "/load/bs_bytes",
    "/load/bssplit",
    "/load/jobfile",
    "/load/random_distribution",
    "/load/iodepth",
    "/load/rate_iops",
    "/in_process",
    "/shared",
];
const REACTORS: &str = "/plan/cpu/reactors";
const COPIES: &str = "/plan/pool/size";

/// A table of result files, given as (name, content), followed by a line for each that says what bounded it. Values
/// that a file does not have are shown as `-`.
pub fn compare(results: &[(String, Value)]) -> String {
    let header = ["result", "rw"].into_iter().chain(NUMBERS.map(|(name, ..)| name)).chain(["verdict"]);
    let mut rows: Vec<Vec<String>> = vec![header.map(str::to_owned).collect()];
    rows.extend(results.iter().flat_map(|(name, value)| result_rows(name, value)));
    columns(&rows, |at| (2..10).contains(&at)) + "\n" + &words(results)
}

/// A row for each direction that has operations; one empty row if none has.
fn result_rows(name: &str, value: &Value) -> Vec<Vec<String>> {
    let used = |direction: &&str| value["jobs"][0][direction]["total_ios"].as_u64().unwrap_or(0) > 0;
    let used: Vec<&str> = ["read", "write"].into_iter().filter(used).collect();
    let directions = if used.is_empty() { vec!["-"] } else { used };
    directions.into_iter().map(|direction| row(name, value, direction)).collect()
}

fn row(name: &str, value: &Value, direction: &str) -> Vec<String> {
    let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
    let rw = word("/carmine/load/rw");
    let mut row = vec![name.to_owned(), if rw == "randrw" { format!("{rw} {direction}") } else { rw }];
    row.extend(NUMBERS.map(|(_, pointer, factor, digits)| {
        let number = value.pointer(&pointer.replace('*', direction)).and_then(Value::as_f64);
        number.map_or_else(|| "-".to_owned(), |n| format!("{:.digits$}", n * factor))
    }));
    row.push(word("/carmine/verdict"));
    row
}

/// A line for each result, then a line for each pair that differs in its reactors or in its copies only.
fn words(results: &[(String, Value)]) -> String {
    let mut text: String = results.iter().map(|(name, value)| bound(name, &value["carmine"])).collect();
    for (at, (base, old)) in results.iter().enumerate() {
        for (new, young) in &results[at + 1..] {
            let said = differing(&old["carmine"], &young["carmine"]);
            text.extend(said.map(|said| format!("{base} -> {new}: {said}\n")));
        }
    }
    text
}

/// `disk.randread: DEVICE: 97 % of the raw device was reached [NOISY]`, and below it what to try next.
fn bound(name: &str, carmine: &Value) -> String {
    let Some(verdict) = carmine["verdict"].as_str() else { return String::new() };
    let said = |before: &str, key: &str| {
        let said = carmine[key].as_str().filter(|said| !said.is_empty());
        said.map(|said| format!("{before}{said}")).unwrap_or_default()
    };
    // Marks that programs look for begin with a word in capitals.
    let is_word = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_uppercase());
    let marks = carmine["marks"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words = marks.filter_map(|mark| mark.split_once(':').map(|(word, _)| word)).filter(is_word);
    let words = words.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
    let words = if words.is_empty() { words } else { format!(" [{words}]") };
    let (reason, next) = (said(": ", "verdict_reason"), said("\n  next: ", "verdict_next"));
    let origin = Origin::deserialize(&carmine["origin"]).ok().filter(Origin::is_known);
    let from = origin.map(|origin| format!("\n  from: {origin}, {}", origin.started())).unwrap_or_default();
    format!("{name}: {verdict}{reason}{words}{next}{from}\n")
}

/// Says how the second of two results differs from the first, if that can be said.
fn differing(old: &Value, new: &Value) -> Option<String> {
    let same = |pointer: &str| old.pointer(pointer) == new.pointer(pointer);
    // Inside an OSD, each reactor is a job.
    let same_jobs = old["in_process"] == true || same("/load/numjobs");
    if old["shared"] != false || !same_jobs || !SAME.iter().all(|pointer| same(pointer)) {
        return None;
    }
    let number = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_f64);
    let both = |pointer: &str| number(old, pointer).zip(number(new, pointer)).filter(|(old, _)| *old > 0.0);
    let (iops, times) = both("/iops").map(|(old, new)| ((old, new), new / old))?;
    let bounded = new["verdict"].as_str().unwrap_or("UNKNOWN");
    let (reactors, copies) = (both(REACTORS)?, both(COPIES)?);
    if reactors.0 < reactors.1 && same(COPIES) {
        let osds = number(new, "/plan/cpu/osds").unwrap_or(1.0);
        let each = (iops.1 - iops.0) / (osds * (reactors.1 - reactors.0));
        let part = 100.0 * each * osds * reactors.0 / iops.0;
        let (before, now) = reactors;
        Some(format!(
            "{now:.0} reactors per OSD instead of {before:.0} brought {times:.2} times the IOPS: {each:.0} for each added \
             reactor, {part:.0} % of what each had before (bounded by {bounded})"
        ))
    } else if copies.0 < copies.1 && same(REACTORS) {
        let cpu = both("/osd_cpu_us_per_op").map(|(old, new)| new / old);
        let cpu = cpu.map(|times| format!(" and {times:.2} times the OSDs' CPU time per operation"));
        let (copies, before, cpu) = (copies.1, copies.0, cpu.unwrap_or_default());
        Some(format!(
            "{copies:.0} copies instead of {before:.0} brought {times:.2} times the IOPS{cpu} (bounded by {bounded})"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_results_and_of_rubbish() {
        let direction = json!({"total_ios": 5, "iops": 1234.4, "bw_bytes": 5_056_000,
            "clat_ns": {"percentile": {"50.000000": 100_000, "99.000000": 900_000}}});
        let result = json!({"jobs": [{"read": {"total_ios": 0}, "write": direction}],
            "carmine": {"load": {"rw": "randwrite"}, "verdict": "SHARED", "machine_cpu_us_per_op": 80.25,
                        "iops_per_core": {"allocated": null, "used": null, "busy": null}}});
        let text = compare(&[("one".into(), result), ("two".into(), json!([1]))]);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(
            lines[1],
            ["one", "randwrite", "1234", "5.1", "100", "900", "-", "-", "-", "80.2", "SHARED"]
        );
        assert_eq!(lines[2], ["two", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"]);
    }

    fn result(reactors: u32, size: u32, iops: f64, shared: bool) -> (String, Value) {
        let plan = json!({"store": "cyan", "cpu": {"osds": 1, "reactors": reactors}, "pool": {"size": size}});
        let carmine = json!({"plan": plan, "load": {"rw": "randwrite"}, "iops": iops, "osd_cpu_us_per_op": 3.0 * f64::from(size),
            "shared": shared, "in_process": false, "verdict": "OSD", "verdict_reason": "reactors were busy 99 %",
            "verdict_next": "add reactors", "marks": ["NOISY: the hypervisor", "NOISY: other work", "in-process load: the generator"]});
        (format!("r{reactors}s{size}"), json!({"carmine": carmine}))
    }

    #[test]
    fn each_result_says_what_bounded_it_and_what_to_try() {
        let text = words(&[result(1, 1, 1e5, false), ("rubbish".to_owned(), json!([1]))]);
        assert_eq!(text, "r1s1: OSD: reactors were busy 99 % [NOISY]\n  next: add reactors\n");
    }

    #[test]
    fn each_result_says_where_it_comes_from() {
        let (name, mut value) = result(1, 1, 1e5, false);
        let origin = Origin::here("0.1.0", "abc+", "box".into(), "6.1".into(), 1_700_000_000);
        value["carmine"]["origin"] = serde_json::to_value(origin).unwrap();
        let text = words(&[(name, value)]);
        let line = "  from: carmine 0.1.0 (abc+) on box, kernel 6.1, Tue Nov 14 22:13:20 2023 UTC\n";
        assert!(text.ends_with(line), "{text}");
    }

    #[test]
    fn a_reactor_and_a_copy_more_are_compared_with_what_differs_in_nothing_else() {
        let text = words(&[
            result(1, 1, 1e5, false),
            result(2, 1, 1.8e5, false),
            result(1, 3, 4e4, false),
            result(2, 3, 1.0, true),
        ]);
        let pairs: Vec<&str> = text.lines().filter(|line| line.contains("->")).collect();
        assert_eq!(
            pairs,
            [
                "r1s1 -> r2s1: 2 reactors per OSD instead of 1 brought 1.80 times the IOPS: 80000 for each added reactor, 80 % of what each \
                 had before (bounded by OSD)",
                "r1s1 -> r1s3: 3 copies instead of 1 brought 0.40 times the IOPS and 3.00 times the OSDs' CPU time per operation (bounded by OSD)",
            ]
        );
    }
}
