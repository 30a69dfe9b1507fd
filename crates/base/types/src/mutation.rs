//! Faults that are put in on purpose, each of which the tests must find (`scripts/mutations`).

use std::sync::OnceLock;

/// What the variable says after the fault's name where the assertion that would find it is silent.
const UNASSERTED: &str = ",unasserted";

/// Whether this process runs with the fault of this name: the environment variable `CARMINE_MUTATION` has it. Builds for release
/// have no faults, and the condition is gone from their code.
#[inline]
pub fn is_mutated(fault: &str) -> bool {
    cfg!(debug_assertions)
        && chosen().is_some_and(|chosen| chosen.strip_suffix(UNASSERTED).unwrap_or(chosen) == fault)
}

/// Whether it does so, and the assertion that finds the fault at its place lets it pass (`CARMINE_MUTATION=fault,unasserted`): then
/// tests must find it by what clients see.
#[inline]
pub fn is_unasserted(fault: &str) -> bool {
    cfg!(debug_assertions) && chosen().and_then(|chosen| chosen.strip_suffix(UNASSERTED)) == Some(fault)
}

fn chosen() -> Option<&'static str> {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("CARMINE_MUTATION").ok()).as_deref()
}
