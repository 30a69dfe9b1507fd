//! Statistics of measurements. Pure functions: no clock, no files, no randomness; the same samples give the same answer.
//!
//! | question | function |
//! |---|---|
//! | does a change make a difference? | [`paired_log_ratios`], [`judge`], and [`holm`] over all of a report |
//! | do repeats that make no pairs differ? | [`repeats_log_ratio`] and [`judge`] |
//! | may it be accepted? | [`Comparison::verdict`] |
//! | how many pairs does that take? | [`Comparison::pairs_to_decide`] |
//! | how much does each further reactor add, and where does adding stop paying off? | [`growth`] |
//! | what do more reactors do than the two that were measured? | [`CostLaw`] |
//! | did the figure drift within its window? | [`trend`] |
//! | has the machine drifted too far for the run to decide anything? | [`out_of_reach`] |
//!
//! Percentiles of latencies are not here: they come from merged histograms (`carmine-metrics`).

mod comparison;
mod cost;
mod describe;
mod growth;
mod judgement;
mod trend;

#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod testing;

pub use comparison::{
    Comparison, NoComparison, PAIRS_DEFAULT, PAIRS_MIN, paired_log_ratios, repeats_log_ratio,
};
pub use cost::CostLaw;
pub use describe::{mean_with_interval, median};
pub use growth::{Growth, Knee, Slope, growth};
pub use judgement::{Outcome, Verdict, holm, judge};
pub use trend::{Trend, out_of_reach, trend};

/// Complement of every interval's confidence: 95 % intervals.
const ALPHA: f64 = 0.05;

/// Two-sided level below which arms are called different. It is stricter than the intervals, because a false alarm costs its
/// readers a hunt for nothing: of 200 comparisons of equal arms some two are called different, not ten.
const DIFFERENT: f64 = 0.01;

/// Lower and upper end of a 95 % interval.
pub type Interval = (f64, f64);
