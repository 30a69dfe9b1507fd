//! What is loaded.

use std::future::Future;

use carmine_reactor::Payload;
use thiserror::Error;

/// An operation that failed, with the target's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TargetError(pub String);

/// Named objects that can be read and written: a pool of a cluster, the PGs of one reactor, or a bare store.
pub trait Target {
    /// Reads up to `len` bytes; short at the end of the object, empty if there is none.
    fn read(&self, object: &str, off: u64, len: u64) -> impl Future<Output = Result<Payload, TargetError>>;

    /// Writes; resolves when the write is acknowledged.
    fn write(&self, object: &str, off: u64, data: Payload) -> impl Future<Output = Result<(), TargetError>>;

    /// Size of an object, `None` if it does not exist.
    fn stat(&self, object: &str) -> impl Future<Output = Result<Option<u64>, TargetError>>;
}
