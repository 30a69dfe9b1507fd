//! Errors of the client.

use carmine_messenger::ConnectError;
use carmine_types::OsdId;
use carmine_types::errno::{self, Errno};
use std::time::Duration;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The OSD (or mon) did what was asked and this is its answer.
    #[error("{what}: {errno}")]
    Errno {
        /// The operation and its object, or the command.
        what: String,
        /// The answer.
        errno: Errno,
    },
    /// Nothing came back in time. A write may or may not have happened.
    #[error("{what}: no answer within {after:?}{hint}")]
    Timeout {
        /// The operation.
        what: String,
        /// The limit.
        after: Duration,
        /// The event that it was waiting for, if that is known.
        hint: String,
    },
    /// The cluster has no pool of that name.
    #[error("there is no pool {0:?}: `rados lspools` shows those that exist")]
    NoPool(String),
    /// No monitor could be reached.
    #[error("no connection to the monitor: {0}")]
    Mon(#[from] ConnectError),
    /// An OSD that is down, or not in the map.
    #[error("{0} is not up in the map of epoch {1}")]
    OsdDown(OsdId, u32),
    /// More data than one message can hold.
    #[error("{what}: {bytes} bytes are more than the {limit} that one message can carry")]
    TooLarge {
        /// The operation.
        what: String,
        /// Its data.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// An answer that makes no sense.
    #[error("{what}: the answer cannot be understood: {reason}")]
    BadReply {
        /// The operation.
        what: String,
        /// Why not.
        reason: String,
    },
    /// The connection on which a request was sent ended before its answer came.
    #[error("{0}: the connection was lost before the answer came")]
    Lost(String),
    /// The client was shut down.
    #[error("the client was shut down")]
    Closed,
}

impl ClientError {
    /// The negative errno that comes closest: what a C client would return.
    pub fn errno(&self) -> i32 {
        match self {
            ClientError::Errno { errno, .. } => errno.0,
            ClientError::Timeout { .. } => errno::ETIMEDOUT,
            ClientError::NoPool(_) => errno::ENOENT,
            ClientError::Mon(_) | ClientError::OsdDown(..) => errno::ENOTCONN,
            ClientError::TooLarge { .. } => errno::E2BIG,
            ClientError::BadReply { .. } => errno::EIO,
            ClientError::Lost(_) => errno::ECONNRESET,
            ClientError::Closed => errno::ESHUTDOWN,
        }
    }

    /// True if the object (or pool) does not exist.
    pub fn is_not_found(&self) -> bool {
        self.errno() == errno::ENOENT
    }
}

/// Result of a client call.
pub type Result<T> = std::result::Result<T, ClientError>;
