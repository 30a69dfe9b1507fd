//! Why the monitor cannot run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Fatal errors: the monitor ends with them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonError {
    /// The port is taken, or the address is not ours.
    #[error("{source}; is another process using port {}?", addr.port())]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Keys cannot be made.
    #[error("keys of services: {0}")]
    Auth(carmine_auth::AuthError),
    /// A state file could not be used.
    #[error("cannot {verb} {}: {source}", path.display())]
    State {
        /// The operation.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The state failed before; what the disk holds is not known.
    #[error("{}: an earlier write failed; start the monitor again to go on from what is on disk", path.display())]
    StateFailed {
        /// The file.
        path: PathBuf,
    },
    /// Records that were in force cannot be read any more.
    #[error(
        "{}: the record at byte {at} is damaged, and newer epochs than those before it were in force. Bring back a copy \
         of this folder; {remedy}",
        path.display()
    )]
    StateDamaged {
        /// The file.
        path: PathBuf,
        /// Where its first bad record begins.
        at: u64,
        /// The commands that give up what is newer, if there is anything older.
        remedy: String,
    },
    /// The state has the format of the first version, which earlier builds replace.
    #[error(
        "{}: this state has Carmine's first format; start a monitor of commit 4bd758c on this folder once, which \
         rewrites it",
        path.display()
    )]
    FirstVersion {
        /// The file.
        path: PathBuf,
    },
    /// Far too long to be a state file.
    #[error("{} has {len} bytes: this is no monitor state of carmine", path.display())]
    NotAState {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
    /// The stored map cannot be read.
    #[error("the stored map does not decode ({source}): was the state written by another version?")]
    BadMap {
        /// The decoder's error.
        source: carmine_wire::DecodeError,
    },
    /// The state belongs to another cluster.
    #[error(
        "the state is that of cluster {found}, not of {expected}: is this the folder of another testbed?"
    )]
    WrongCluster {
        /// The fsid in the state.
        found: carmine_types::Uuid,
        /// The configured one.
        expected: carmine_types::Uuid,
    },
}

impl MonError {
    pub(crate) fn state(verb: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::State { verb, path: path.to_path_buf(), source }
    }
}
