//! Tests that cannot run everywhere. By default they pass with a printed reason; a machine that is to run every test sets
//! `CARMINE_NO_SKIP=1`, and there they fail.
#![allow(clippy::disallowed_methods, reason = "tests look at the machine")]

use std::fmt::Display;

/// Says why a test ends before it has tested anything.
///
/// # Panics
/// If `CARMINE_NO_SKIP=1` is set. `why` is then what to change.
#[track_caller]
pub fn skip(why: impl Display) {
    assert!(
        std::env::var_os("CARMINE_NO_SKIP").is_none_or(|value| value != "1"),
        "this test cannot run, and CARMINE_NO_SKIP=1 forbids to skip it: {why}"
    );
    eprintln!("SKIPPED: {why}");
}

/// Whether a program is on the PATH. If it is not, the test is skipped.
///
/// # Panics
/// As [`skip`].
#[track_caller]
#[must_use]
pub fn installed(program: &str, package: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        skip(format_args!("{program} is not installed: apt-get install {package}"));
    }
    found
}
