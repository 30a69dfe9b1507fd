//! Errors of a testbed, told apart by who must act.

use std::path::Path;

/// An error of the testbed controller.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The wish cannot be met as it was put: another option or another folder is needed. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The wish is fine but the world is not: a full disk, a dead process, a port in use. Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// A file of the testbed's folder could not be read or written. Exit code 1.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl TestbedError {
    /// For `map_err`: names the verb and the path of a failed operation, where `fs_err` does not.
    pub fn io(verb: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().display().to_string();
        move |e| Self::Io(std::io::Error::new(e.kind(), format!("cannot {verb} {path}: {e}")))
    }

    /// True if the caller asked for something impossible (exit code 2).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

/// Shorthand of this crate and of those that pass its errors on.
pub type Result<T, E = TestbedError> = std::result::Result<T, E>;

macro_rules! usage {
    ($($t:tt)*) => { $crate::error::TestbedError::Usage(format!($($t)*)) };
}
macro_rules! failed {
    ($($t:tt)*) => { $crate::error::TestbedError::Failed(format!($($t)*)) };
}
/// Returns with a usage error if the condition holds.
macro_rules! refuse {
    ($broken:expr, $($why:tt)*) => { if $broken { return Err($crate::error::usage!($($why)*)); } };
}
/// Returns with the other error if the condition holds.
macro_rules! fail_if {
    ($broken:expr, $($why:tt)*) => { if $broken { return Err($crate::error::failed!($($why)*)); } };
}
pub(crate) use {fail_if, failed, refuse, usage};
