//! Errors of a testbed, distinguished by who must act.

/// An error of the testbed controller.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The request cannot be met as it was made: another option or another folder is needed. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The request is fine but the environment is not: a full disk, a dead process, a port in use. Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The request was met in part: what can run does, and the text names the rest. Exit code 3.
    #[error("{0}")]
    Partial(String),
    /// A file of the testbed's folder could not be read or written. Exit code 1.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl TestbedError {
    /// True if the caller asked for something impossible (exit code 2).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

/// Shorthand of this crate and of those that pass its errors on.
pub type Result<T, E = TestbedError> = std::result::Result<T, E>;

/// A usage error with this text.
#[macro_export]
macro_rules! usage {
    ($($t:tt)*) => { $crate::TestbedError::Usage(format!($($t)*)) };
}
/// The other error with this text.
#[macro_export]
macro_rules! failed {
    ($($t:tt)*) => { $crate::TestbedError::Failed(format!($($t)*)) };
}
/// Returns with a usage error if the condition holds.
#[macro_export]
macro_rules! refuse {
    ($broken:expr, $($why:tt)*) => { if $broken { return Err($crate::usage!($($why)*).into()); } };
}
/// Returns with the other error if the condition holds.
#[macro_export]
macro_rules! fail_if {
    ($broken:expr, $($why:tt)*) => { if $broken { return Err($crate::failed!($($why)*)); } };
}
pub(crate) use {fail_if, failed, refuse, usage};
