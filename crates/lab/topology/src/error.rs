//! What can be wrong with a topology or a plan.

/// A topology that cannot be read, or a plan that does not fit it. The message names the value and what to change.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TopologyError(pub(crate) String);

macro_rules! wrong {
    ($($text:tt)*) => { $crate::TopologyError(format!($($text)*)) };
}
pub(crate) use wrong;
