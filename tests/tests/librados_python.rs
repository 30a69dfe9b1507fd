//! librados through Debian's python3-rados against a testbed: about a hundred different calls, two thousand in all. About 10 s.
#![allow(clippy::disallowed_methods)] // reads files

use std::path::Path;
use std::time::Duration;

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::THREE_CYAN;
use carmine_tests::{Testbed, run, skip, workspace_root};

/// Debian's: the one for which python3-rados is made; another may come first on the PATH.
const PYTHON: &str = "/usr/bin/python3";

fn has_rados() -> bool {
    let found = Path::new(PYTHON).exists()
        && run(Path::new(PYTHON), &["-c", "import rados"], Duration::from_secs(30)).status.success();
    if !found {
        skip(format_args!("{PYTHON} cannot import rados: apt-get install python3-rados"));
    }
    found
}

/// The docstrings of the script's groups, by name.
fn documented(script: &str) -> Vec<(String, String)> {
    let groups = script.split("@group\ndef ").skip(1);
    let one = |group: &str| {
        let name = group.split_once('(').expect("a function").0.to_owned();
        let text = group.split("\"\"\"").nth(1).expect("every group has a docstring").to_owned();
        (name, text)
    };
    groups.map(one).collect()
}

#[test]
fn a_hundred_calls_of_librados() {
    if !has_rados() {
        return;
    }
    let script = workspace_root().join("tests/tests/python/librados.py");
    let script = script.to_str().expect("UTF-8");
    let bed = Testbed::up(THREE_CYAN);
    let out = run(Path::new(PYTHON), &[script, &bed.conf(), "bench"], Duration::from_secs(300));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}{errors}");
    let mut sheet = Sheet::new("librados, from python");
    let mut calls = 0;
    for (name, text) in documented(&std::fs::read_to_string(script).expect("the script")) {
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("ok {name} ")));
        calls +=
            line.unwrap_or_else(|| panic!("{name} was not run:\n{said}")).parse::<u32>().expect("a number");
        sheet.works(&name.replace('_', " "), &text);
    }
    assert!(calls >= 1_000, "only {calls} calls");
    sheet.check();
}
