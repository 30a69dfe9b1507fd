//! Why an operation, or a step of a repair, failed.

use std::fmt;

use carmine_store::StoreError;
use carmine_types::{Errno, errno};

/// An errno, sent to clients and other OSDs, and its cause, which is only logged. Without a cause it needs no allocation: most
/// are answers that clients expect, such as ENOENT.
#[derive(Debug)]
pub(crate) struct OpError {
    errno: Errno,
    cause: Option<Box<Cause>>,
}

/// The cause of an errno.
#[derive(Debug)]
enum Cause {
    Store(StoreError),
    Said(String),
    /// Text that the client also gets, as the output of the operation.
    Given(&'static str),
}

impl OpError {
    /// An error that says no more than its errno.
    pub(crate) const fn new(errno: i32) -> OpError {
        OpError { errno: Errno(errno), cause: None }
    }

    /// An error with words that say more than the errno.
    pub(crate) fn because(errno: i32, why: impl fmt::Display) -> OpError {
        OpError { errno: Errno(errno), cause: Some(Box::new(Cause::Said(why.to_string()))) }
    }

    /// An error with an output.
    pub(crate) fn with_output(errno: i32, output: &'static str) -> OpError {
        OpError { errno: Errno(errno), cause: Some(Box::new(Cause::Given(output))) }
    }

    /// The output of the operation that failed, if it has one.
    pub(crate) fn output(&self) -> Option<&'static str> {
        match self.cause.as_deref() {
            Some(Cause::Given(output)) => Some(output),
            _ => None,
        }
    }

    /// Logs the cause, if there is one, and returns the errno. Failures of this OSD are logged as errors, those of clients at
    /// debug level.
    pub(crate) fn report(&self) -> i32 {
        match self.cause.as_deref() {
            None | Some(Cause::Given(_)) => {}
            Some(Cause::Said(_)) if self.errno.0 != errno::EIO => tracing::debug!("{self}"),
            Some(_) => tracing::error!("{self}"),
        }
        self.errno()
    }

    /// The negative errno that tools are told.
    pub(crate) fn errno(&self) -> i32 {
        self.errno.0
    }
}

/// Fails with this errno if it `is_wrong`.
#[inline]
pub(crate) fn refuse_if(is_wrong: bool, errno: i32) -> Result<(), OpError> {
    if is_wrong { Err(OpError::new(errno)) } else { Ok(()) }
}

impl From<Errno> for OpError {
    fn from(errno: Errno) -> OpError {
        OpError { errno, cause: None }
    }
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> OpError {
        let errno = Errno(error.errno());
        match error {
            StoreError::NotFound(_) => OpError::from(errno),
            error => OpError { errno, cause: Some(Box::new(Cause::Store(error))) },
        }
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause.as_deref() {
            None => self.errno.fmt(f),
            Some(Cause::Store(error)) => write!(f, "{error} ({:?})", self.errno),
            Some(Cause::Given(why)) => write!(f, "{why} ({:?})", self.errno),
            Some(Cause::Said(why)) => write!(f, "{why} ({:?})", self.errno),
        }
    }
}

#[cfg(test)]
impl PartialEq for OpError {
    /// Tools see the errno only.
    fn eq(&self, other: &OpError) -> bool {
        self.errno == other.errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_its_cause_and_stays_small() {
        assert_eq!(OpError::new(errno::ENOENT).to_string(), Errno(errno::ENOENT).to_string());
        assert_eq!(OpError::because(errno::EINVAL, "too short").to_string(), "too short (EINVAL)");
        assert_eq!(OpError::from(Errno(errno::EIO)).errno(), errno::EIO);
        let given = OpError::with_output(errno::EINVAL, "too much");
        assert_eq!((given.output(), given.to_string()), (Some("too much"), "too much (EINVAL)".into()));
        assert!(size_of::<OpError>() <= 16);
    }
}
