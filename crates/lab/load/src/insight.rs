//! Results in words: what bounded each of them, what to try next, and what a reactor or a copy more made of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

/// What a result was measured with, as far as it is compared here.
const SAME: [&str; 8] = [
    "/plan/store",
    "/plan/cpu/osds",
    "/load/rw",
    "/load/bs_bytes",
    "/load/iodepth",
    "/load/rate_iops",
    "/in_process",
    "/shared",
];
const REACTORS: &str = "/plan/cpu/reactors";
const COPIES: &str = "/plan/pool/size";

/// A line for each result, then a line for each pair that differs in its reactors or in its copies only.
pub(crate) fn words(results: &[(String, Value)]) -> String {
    let mut text = String::new();
    for (name, value) in results {
        text.push_str(&bound(name, &value["carmine"]));
    }
    for (at, (base, old)) in results.iter().enumerate() {
        for (new, young) in &results[at + 1..] {
            text.extend(
                differing(&old["carmine"], &young["carmine"])
                    .map(|said| format!("{base} -> {new}: {said}\n")),
            );
        }
    }
    text
}

/// `disk.randread: DEVICE: 97 % of the raw device were reached [NOISY]`, and below it what to try next.
fn bound(name: &str, carmine: &Value) -> String {
    let Some(verdict) = carmine["verdict"].as_str() else { return String::new() };
    let said = |key: &str| carmine[key].as_str().filter(|said| !said.is_empty());
    let mut text = format!("{name}: {verdict}");
    said("verdict_reason").into_iter().for_each(|reason| text.extend([": ", reason]));
    let marks = carmine["marks"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words = marks.filter_map(|mark| mark.split_once(':').map(|(word, _)| word)).filter(|w| is_word(w));
    let words: BTreeSet<&str> = words.collect();
    if !words.is_empty() {
        let _ = write!(text, " [{}]", words.into_iter().collect::<Vec<_>>().join(", "));
    }
    said("verdict_next").into_iter().for_each(|next| text.extend(["\n  next: ", next]));
    text.push('\n');
    text
}

/// Marks that programs look for begin with one.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_uppercase())
}

/// What the second of two results has more or less than the first, if that can be said.
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
        let first = iops.0 / (osds * reactors.0);
        Some(format!(
            "{:.0} reactors per OSD instead of {:.0} brought {times:.2} times the IOPS: {each:.0} for each added reactor, {:.0} % of \
             what each had before (bounded by {bounded})",
            reactors.1,
            reactors.0,
            100.0 * each / first
        ))
    } else if copies.0 < copies.1 && same(REACTORS) {
        let cpu = both("/osd_cpu_us_per_op").map_or_else(String::new, |(old, new)| {
            format!(" and {:.2} times the OSDs' CPU time per operation", new / old)
        });
        Some(format!(
            "{:.0} copies instead of {:.0} brought {times:.2} times the IOPS{cpu} (bounded by {bounded})",
            copies.1, copies.0
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
