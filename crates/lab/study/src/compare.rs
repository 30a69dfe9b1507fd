//! Comparing two arms: pairs of points with the same configuration, a verdict for each figure, Holm over all of them.

mod arm;
mod files;
mod judgement;
mod metric;
mod pairs;
mod refusal;
mod run;
mod settings;

#[cfg(test)]
mod tests;

pub use arm::{Arm, Measured};
pub use files::arm_of_files;
pub use judgement::{Judgement, Row, compare};
pub use metric::{METRICS, Metric, merged_percentile};
pub use pairs::{Group, pair_up};
pub use refusal::Refusal;
pub use run::{arm_of_run, arms_of_run};
pub use settings::{Difference, differing_axes};
