//! The answers and exit codes of `carmine model`, on results whose figures are made up.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts the program, writes files

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Three results of a load inside an OSD with this many reactors, whose added reactors cost 10 % each.
fn results(dir: &Path, reactors: u32, factor: f64, marks: &[&str]) {
    let iops = factor * 250_000.0 * f64::from(reactors) / (1.0 + 0.1 * f64::from(reactors - 1));
    for (repeat, noise) in [1.0, 1.002, 0.999].into_iter().enumerate() {
        let result = json!({
            "jobs": [{"read": {"iops": iops * noise}, "write": {}}],
            "carmine": {"verdict": "OSD", "in_process": true, "marks": marks, "load": {"iodepth": 16, "runtime_ms": 15_000},
                "plan": {"osds": 1, "reactors": reactors, "store": "cyan"}},
        });
        std::fs::write(dir.join(format!("{reactors}.{repeat}.json")), result.to_string()).unwrap();
    }
}

/// Exit code and text of `carmine model` with these words.
fn said(dir: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_carmine")).arg("model").arg(dir).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn one_and_two_reactors_predict_more_as_text_and_as_json() {
    let dir = tempfile::tempdir().unwrap();
    [1, 2].into_iter().for_each(|reactors| results(dir.path(), reactors, 1.0, &[]));
    let (code, text) = said(dir.path(), &[]);
    assert_eq!(code, Some(0), "{text}");
    let words = |start: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let near = |text: &str, want: f64| (text.parse::<f64>().unwrap() / want - 1.0).abs() < 1e-3;
    assert!(near(&words("64 ")[1], 250_000.0 * 64.0 / 7.3), "{text}");
    for part in [
        "It assumes:",
        "error +10.0 %",
        "carmine sweep model --set reactors=1,2,4,8,16,32,64",
        "predicted: 1 of 1 load\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text) = said(dir.path(), &["--json", "--reactors", "2,3"]);
    let model: Value = serde_json::from_str(&text).unwrap();
    let sizes: Vec<&Value> =
        model["lines"][0]["predictions"].as_array().unwrap().iter().map(|p| &p["reactors"]).collect();
    assert_eq!((code, sizes), (Some(0), vec![&json!(2), &json!(3)]));
    assert!((model["lines"][0]["law"]["growth"].as_f64().unwrap() - 0.1).abs() < 1e-6, "{model:#}");
}

#[test]
fn a_larger_size_outside_its_interval_falsifies_it() {
    let dir = tempfile::tempdir().unwrap();
    [(1, 1.0), (2, 1.0), (8, 1.0)]
        .into_iter()
        .for_each(|(reactors, factor)| results(dir.path(), reactors, factor, &[]));
    let (code, text) = said(dir.path(), &[]);
    assert!(code == Some(0) && text.contains("check: 8 reactors from 1 and 2: predicted"), "{text}");
    results(dir.path(), 8, 0.6, &[]);
    let (code, text) = said(dir.path(), &[]);
    assert!(code == Some(1) && text.ends_with("FALSIFIED: 1 measured size outside the interval\n"), "{text}");
}

#[test]
fn what_supports_nothing_is_no_answer_and_what_is_no_result_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    results(dir.path(), 1, 1.0, &[]);
    results(dir.path(), 2, 1.0, &["NOISY: a build"]);
    let (code, text) = said(dir.path(), &[]);
    assert!(
        code == Some(3) && text.contains("at 2: 0 of 3 repeats clean (NOISY 3), and it takes 3"),
        "{text}"
    );
    assert!(
        text.ends_with("no answer: no load supports a prediction\n") && !text.contains("It assumes"),
        "{text}"
    );
    std::fs::copy(dir.path().join("1.0.json"), dir.path().join("copy.json")).unwrap();
    let (code, text) = said(dir.path(), &[]);
    assert!(code == Some(2) && text.contains("copy.json are one result"), "{text}");
    std::fs::write(dir.path().join("copy.json"), "{}").unwrap();
    let (code, text) = said(dir.path(), &[]);
    assert!(code == Some(2) && text.contains("copy.json: it has no operations"), "{text}");
}
