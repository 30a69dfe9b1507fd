//! The answers and exit codes of `carmine compare`, on results whose figures are made up.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts the program, writes files

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Results with these IOPS in `dir/arm`, and the folder's name.
fn arm(dir: &Path, arm: &str, iops: &[f64]) -> String {
    let folder = dir.join(arm);
    std::fs::create_dir(&folder).unwrap();
    for (at, iops) in iops.iter().enumerate() {
        let result = json!({
            "jobs": [{"read": {"iops": iops, "bw_bytes": 4096.0 * iops}, "write": {"iops": 0.0}}],
            "carmine": {"iops": iops, "osd_cpu_us_per_op": 2e5 / iops, "flush_mode": "fdatasync"},
        });
        std::fs::write(folder.join(format!("{at}.json")), result.to_string()).unwrap();
    }
    folder.display().to_string()
}

/// Exit code, text and JSON of the comparison of six results with 100,000 IOPS and six with `new`.
fn compare(new: [f64; 6]) -> (Option<i32>, String, Value) {
    let dir = tempfile::tempdir().unwrap();
    let (base, new) = (arm(dir.path(), "base", &[1e5; 6]), arm(dir.path(), "new", &new));
    let json = dir.path().join("comparison.json");
    let program = env!("CARGO_BIN_EXE_carmine");
    let words = ["compare", &base, &new, "--tolerance", "5%", "--json"];
    let output = Command::new(program).args(words).arg(&json).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text, serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap())
}

#[test]
fn without_evidence_it_is_undecided_and_says_how_many_pairs_would_decide() {
    let (code, text, json) = compare([0.8e5, 1.25e5, 0.9e5, 1.1e5, 0.7e5, 1.3e5]);
    assert_eq!(code, Some(3), "{text}");
    let last = text.lines().last().unwrap_or_default();
    let pairs = json["pairs_to_decide"].as_u64().unwrap_or_default();
    assert!(
        last.starts_with("undecided: 2 of 2 figures") && last.contains(&format!("{pairs} pairs")),
        "{text}"
    );
    assert_eq!(json["verdict"], "undecided", "{json:#}");
    for row in json["rows"].as_array().unwrap() {
        let detects = row["comparison"]["detectable"].as_f64().unwrap();
        assert!(detects > 0.28, "{row:#}");
        let want = (6.0 * (detects / 0.05).powi(2)).ceil() as u64;
        assert_eq!((&row["verdict"], row["pairs_to_decide"].as_u64()), (&json!("undecided"), Some(want)));
        assert!(want <= pairs && text.contains(&format!("about {want} pairs")), "{text}");
    }
}

#[test]
fn a_slowdown_is_rejected_and_equal_arms_are_accepted() {
    let (code, text, json) = compare([0.9e5, 0.91e5, 0.9e5, 0.89e5, 0.9e5, 0.9e5]);
    assert_eq!((code, &json["verdict"]), (Some(1), &json!("rejected")), "{text}");
    let (code, text, json) = compare([1e5, 1.01e5, 1e5, 0.99e5, 1e5, 1e5]);
    assert_eq!(
        (code, &json["verdict"], &json["pairs_to_decide"]),
        (Some(0), &json!("accepted"), &Value::Null),
        "{text}"
    );
}

#[test]
fn help_names_the_exit_codes() {
    let output = Command::new(env!("CARGO_BIN_EXE_carmine")).args(["compare", "--help"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["0 accepted", "1 rejected", "2 ", "3 undecided"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
