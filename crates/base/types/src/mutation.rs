//! Faults that are put in on purpose, each of which the tests must find (`scripts/mutations`).

use std::sync::OnceLock;

/// Whether this process runs with the fault of this name: the environment variable `CARMINE_MUTATION` has it. Builds for release
/// have no faults, and the condition is gone from their code.
#[inline]
pub fn is_mutated(fault: &str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    cfg!(debug_assertions)
        && CHOSEN.get_or_init(|| std::env::var("CARMINE_MUTATION").ok()).as_deref() == Some(fault)
}
