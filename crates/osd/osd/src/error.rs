//! Why an operation, or a step of a repair, failed.

use std::fmt;

use carmine_store::StoreError;
use carmine_types::Errno;

/// An errno, which clients and other OSDs are told, and its cause, which the log is told. One without a cause costs no
/// allocation: most of them are answers that clients expect, as ENOENT is.
#[derive(Debug)]
pub(crate) struct OpError {
    errno: Errno,
    cause: Option<Box<Cause>>,
}

/// What lies behind an errno.
#[derive(Debug)]
enum Cause {
    Store(StoreError),
    Said(String),
}

impl OpError {
    /// An error with words that say more than the errno.
    pub(crate) fn because(errno: i32, why: impl fmt::Display) -> OpError {
        OpError { errno: Errno(errno), cause: Some(Box::new(Cause::Said(why.to_string()))) }
    }

    /// What tools are told: a negative errno.
    pub(crate) fn errno(&self) -> i32 {
        self.errno.0
    }
}

impl From<Errno> for OpError {
    fn from(errno: Errno) -> OpError {
        OpError { errno, cause: None }
    }
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> OpError {
        OpError { errno: Errno(error.errno()), cause: Some(Box::new(Cause::Store(error))) }
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause.as_deref() {
            None => self.errno.fmt(f),
            Some(Cause::Store(error)) => write!(f, "{error} ({:?})", self.errno),
            Some(Cause::Said(why)) => write!(f, "{why} ({:?})", self.errno),
        }
    }
}
