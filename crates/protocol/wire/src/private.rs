//! Carmine's own messages, in the same frames as Ceph's. Their types are 0x8000 and above, which Ceph does not
//! use, and they are sent only between Carmine's processes: a stock client never sees one.

mod osd;
mod tools;

pub use osd::{DownReason, OsdBeacon, OsdBoot, OsdBootAck, OsdDown, PgStuck, PoolUse};
pub use tools::{Admin, AdminReply, Route, RouteReply};

use crate::{Header2, kinds};

/// Version of all private messages: any change of one of them makes a new version, and processes of different versions
/// do not talk to each other ([`check_version`]).
pub const VERSION: u16 = 4;

/// First type of private messages.
const KIND_FIRST: u16 = 0x8000;

/// The sender of a private message has another version of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sender's private messages have version {found}, those of this process version {VERSION}: \
     run the same release of Carmine on all daemons and tools of the cluster"
)]
pub struct OtherVersion {
    /// The sender's version.
    pub found: u16,
}

/// Checks that a message, if it is private, has our version of them.
///
/// # Errors
/// It has another one; tell its sender by [`version_notice`].
#[inline]
pub fn check_version(header: &Header2) -> Result<(), OtherVersion> {
    if header.kind < KIND_FIRST || header.version == VERSION {
        return Ok(());
    }
    Err(OtherVersion { found: header.version })
}

/// The header of a message with an empty front that tells our version, for a peer that has another one. It is not
/// answered.
pub fn version_notice() -> Header2 {
    Header2::new(kinds::VERSION_NOTICE, VERSION, VERSION)
}

#[cfg(test)]
mod tests;
