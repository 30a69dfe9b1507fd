//! Errors of a topology or a plan.

/// A topology that cannot be read, or a plan that does not fit it. The message names the value and what to change.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TopologyError(pub(crate) String);

macro_rules! wrong {
    ($($text:tt)*) => { $crate::TopologyError(format!($($text)*)) };
}
/// Returns with an error if the condition holds.
macro_rules! refuse {
    ($broken:expr, $($why:tt)*) => {
        if $broken {
            return Err($crate::error::wrong!($($why)*));
        }
    };
}
pub(crate) use {refuse, wrong};
