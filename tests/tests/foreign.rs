//! Another implementation of the client against a testbed: the pure-Rust `rados` of crates.io, which speaks MOSDOp version 9.
//! Its first build fetches and compiles some 200 crates (minutes); after that about 5 s.
#![allow(clippy::disallowed_methods)] // starts cargo

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::THREE_CYAN;
use carmine_tests::{Testbed, carmine_bin, run, skip, succeed, workspace_root};

/// The client, built in a folder beside the binary under test; `None`, with the reason, where its crates cannot be had.
fn build() -> Option<PathBuf> {
    let target = carmine_bin().parent().expect("a folder").with_file_name("foreign");
    let manifest = workspace_root().join("tests/foreign/Cargo.toml");
    let cargo = |args: &[&str]| {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(args)
            .arg("--locked")
            .arg("--manifest-path")
            .arg(&manifest)
            .env("CARGO_TARGET_DIR", &target);
        command.output().expect("cargo runs")
    };
    let fetched = cargo(&["fetch"]);
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stderr);
        skip(format_args!("the crates of tests/foreign cannot be fetched: {}", why.trim()));
        return None;
    }
    succeed(cargo(&["build", "--offline"]), "cargo build of tests/foreign");
    Some(target.join("debug/carmine-foreign"))
}

#[test]
fn the_rados_crate_puts_stats_and_lists() {
    let bed = Testbed::up(THREE_CYAN);
    let Some(client) = build() else { return };
    let out = run(&client, &[&bed.conf(), "bench"], Duration::from_secs(120));
    let said = succeed(out, "tests/foreign");
    let mut sheet = Sheet::new("rados (crate 0.1.4 of crates.io)");
    for line in said.lines().filter_map(|line| line.strip_prefix("ok ")) {
        let (what, note) = line.split_once(": ").unwrap_or((line, ""));
        sheet.works(what, note);
    }
    assert_eq!(said.lines().count(), 3, "{said}");
    sheet.check();
}
