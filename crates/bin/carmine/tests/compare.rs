//! The answers and exit codes of `carmine compare`, on results whose figures are made up.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts the program, writes files

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Results with these IOPS in `dir/arm`, and the folder's name.
fn arm(dir: &Path, arm: &str, iops: &[f64]) -> String {
    arm_of(dir, arm, iops, &json!({"iodepth": 16}), &json!({"pool_size": 1}))
}

/// The same of this load and this testbed.
fn arm_of(dir: &Path, arm: &str, iops: &[f64], load: &Value, plan: &Value) -> String {
    let folder = dir.join(arm);
    std::fs::create_dir(&folder).unwrap();
    for (at, iops) in iops.iter().enumerate() {
        let result = json!({
            "jobs": [{"read": {"iops": iops, "bw_bytes": 4096.0 * iops}, "write": {"iops": 0.0}}],
            "timestamp_ms": at, "time": arm,
            "carmine": {"iops": iops, "osd_cpu_us_per_op": 2e5 / iops, "flush_mode": "fdatasync", "load": load, "plan": plan},
        });
        std::fs::write(folder.join(format!("{at}.json")), result.to_string()).unwrap();
    }
    folder.display().to_string()
}

/// Exit code, and what `carmine compare` with these words says.
fn said(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_carmine")).arg("compare").args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
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
fn another_load_is_refused_unless_its_axes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let base = arm(dir.path(), "base", &[1e5; 6]);
    let load = json!({"iodepth": 32, "runtime_ms": 5000, "rate_iops": null});
    let new = arm_of(dir.path(), "new", &[1e5; 6], &load, &json!({"pool_size": 3}));
    let (code, text) = said(&[&base, &new]);
    // A build that did not record the window's length has the same load.
    assert!(code == Some(2) && text.contains("iodepth 16 / 32; pool_size 1 / 3; name"), "{text}");
    let (code, text) = said(&[&base, &new, "--axis", "iodepth"]);
    assert!(code == Some(2) && text.contains("pool_size 1 / 3") && !text.contains("iodepth 16"), "{text}");
    let (code, text) = said(&[&base, &new, "--axis", "iodepth", "--axis", "pool_size"]);
    assert!(code == Some(0) && text.contains("differs   iodepth: 16 -> 32"), "{text}");
}

#[test]
fn an_axis_that_does_not_differ_or_is_not_known_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (base, new) = (arm(dir.path(), "base", &[1e5; 6]), arm(dir.path(), "new", &[1e5; 6]));
    let (code, text) = said(&[&base, &new, "--axis", "iodepth"]);
    assert!(code == Some(2) && text.contains("--axis iodepth: it does not differ: 16 / 16"), "{text}");
    let (code, text) = said(&[&base, &new, "--axis", "depth"]);
    assert!(code == Some(2) && text.contains("--axis depth: the results have no such setting"), "{text}");
}

#[test]
fn results_of_another_machine_or_commit_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let (base, new) = (arm(dir.path(), "base", &[1e5; 6]), arm(dir.path(), "new", &[1e5; 6]));
    let from = |folder: &str, host: &str, commit: &str| {
        for at in 0..6 {
            let path = format!("{folder}/{at}.json");
            let mut result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            result["carmine"]["origin"] = json!({"version": "0.1.0", "commit": commit, "host": host, "kernel": "6", "started_unix_s": at});
            std::fs::write(&path, result.to_string()).unwrap();
        }
    };
    from(&base, "one", "abc");
    from(&new, "one", "def");
    let (code, text) = said(&[&base, &new]);
    assert!(code == Some(0) && text.contains("differs   git hash: abc -> def"), "{text}");
    assert!(
        text.contains("from carmine 0.1.0 (abc) on one, kernel 6, Thu Jan  1 00:00:00 1970 UTC to"),
        "{text}"
    );
    assert!(!text.contains("CONFOUNDED"), "a new build is what is compared: {text}");
    from(&new, "two", "abc");
    let (_, text) = said(&[&base, &new]);
    assert!(text.contains("differs   host: one -> two"), "{text}");
    from(&new, "one", "def");
    std::fs::copy(format!("{base}/0.json"), dir.path().join("held.json")).unwrap();
    std::fs::rename(dir.path().join("held.json"), format!("{new}/held.json")).unwrap();
    std::fs::remove_file(format!("{base}/0.json")).unwrap();
    let (_, text) = said(&[&base, &new]);
    assert!(text.contains("new mixes results of 2 builds, machines or drives"), "{text}");
}

#[test]
fn a_measurement_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let (base, new) = (arm(dir.path(), "base", &[1e5; 6]), arm(dir.path(), "new", &[1e5; 6]));
    let file = format!("{base}/0.json");
    let five = [file.as_str(); 5].join(",");
    let (code, text) = said(&[&five, &new]);
    assert!(code == Some(2) && text.contains("0.json are one result"), "{text}");
    assert_eq!(said(&[&base, &base]).0, Some(2));
    std::fs::copy(&file, format!("{new}/copy.json")).unwrap();
    let (code, text) = said(&[&base, &new]);
    assert!(code == Some(2) && text.contains("copy.json are one result"), "{text}");
}

#[test]
fn help_names_the_exit_codes() {
    let output = Command::new(env!("CARGO_BIN_EXE_carmine")).args(["compare", "--help"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["0 accepted", "1 rejected", "2 ", "3 undecided"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
