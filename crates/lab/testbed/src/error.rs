//! Errors of a testbed, told apart by who must act.

use std::path::{Path, PathBuf};

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
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// The attempt: "read", "write", "create" …
        verb: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl TestbedError {
    /// For `map_err`: names the verb and the path of a failed file operation.
    pub fn io(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { verb, path, source }
    }

    /// True if the caller asked for something impossible (exit code 2).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, TestbedError>;

macro_rules! usage {
    ($($t:tt)*) => { $crate::error::TestbedError::Usage(format!($($t)*)) };
}
macro_rules! failed {
    ($($t:tt)*) => { $crate::error::TestbedError::Failed(format!($($t)*)) };
}
pub(crate) use {failed, usage};
