//! Fuzz targets: functions from any bytes to nothing, which must not panic, hang, or take more memory than their limits.
//!
//! Each target is listed once in [`TARGETS`], with its seeds. libFuzzer runs them from `tests/fuzz` (a workspace of its own,
//! nightly: `scripts/fuzz`); `tests/tests/fuzz.rs` runs the same functions over mutated seeds on stable. A new target is a
//! file beside this one, a line in [`TARGETS`], and a file of three lines in `tests/fuzz/fuzz_targets`.

mod cephx;
mod frames;
mod maps;
mod messages;
mod mutate;
mod seeds;
mod store;
mod transaction;

pub use mutate::Mutator;

/// A decoder under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Also the name of its file in `tests/fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Decodes the bytes.
    pub run: fn(&[u8]),
    /// Real inputs, as they were captured or written.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets, by name.
pub const TARGETS: &[Target] = &[
    Target { name: "cephx", run: cephx::all_sides, seeds: cephx::seeds },
    Target { name: "control", run: frames::control, seeds: frames::control_seeds },
    Target { name: "crushmap", run: maps::crushmap, seeds: maps::crushmap_seeds },
    Target { name: "frames", run: frames::stream, seeds: frames::stream_seeds },
    Target { name: "osdmap_inc", run: maps::incremental, seeds: maps::incremental_seeds },
    Target { name: "message", run: messages::message, seeds: messages::message_seeds },
    Target { name: "monmap", run: maps::monmap, seeds: maps::monmap_seeds },
    Target { name: "mon_state", run: store::mon_state, seeds: store::mon_state_seeds },
    Target { name: "on_disk", run: store::on_disk, seeds: store::on_disk_seeds },
    Target { name: "osdmap", run: maps::osdmap, seeds: maps::osdmap_seeds },
    Target { name: "secure_frames", run: frames::secure, seeds: frames::secure_seeds },
    Target { name: "transaction", run: transaction::transaction, seeds: transaction::transaction_seeds },
];

/// Runs the target of this name over the bytes.
///
/// # Panics
/// If there is none: the name is the caller's, not the input's.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("there is no fuzz target {name:?}")).run)(bytes);
}
