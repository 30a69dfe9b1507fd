//! Why two arms are not compared.

use crate::archive::ArchiveError;

/// What is wrong with a comparison that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(
        "{run}: the run is not complete, {missing} of its {all} points were not run; finish it, then compare"
    )]
    Incomplete { run: String, missing: usize, all: usize },
    #[error("{run}: none of its points was measured")]
    Nothing { run: String },
    #[error("{run} has no arm `{arm}`; its arms are: {arms}")]
    NoArm { run: String, arm: String, arms: String },
    #[error(
        "{run}: its plan compares nothing ({found} arms); name a second run, or two arms with --arms A,B"
    )]
    NoArms { run: String, found: usize },
    #[error(
        "{base} and {new} have different flush modes ({base_mode} and {new_mode}): what they promise differs, so their speed is not compared"
    )]
    FlushModes { base: String, new: String, base_mode: String, new_mode: String },
    #[error(
        "{base} and {new} are identical: on this machine both place everything on the same CPUs, so there is nothing to compare"
    )]
    Identical { base: String, new: String },
    #[error("{side} has no counterpart of {names} ({count} configurations); compare runs of the same plan")]
    Mixed { side: String, names: String, count: usize },
    #[error("{most} pairs at the most are too few to decide anything: measure each arm {min} times at least")]
    TooFewPairs { most: usize, min: usize },
    #[error("{path}: {problem}; give results of `carmine bench --json`")]
    NoResult { path: String, problem: String },
}
