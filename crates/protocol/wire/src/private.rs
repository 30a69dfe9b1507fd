//! Carmine's own messages, in the same frames as Ceph's. Their types are 0x8000 and above, which Ceph does not
//! use, and they are sent only between Carmine's processes: a stock client never sees one.

mod osd;
pub mod rep;
mod tools;

pub use osd::{DownReason, OsdBeacon, OsdBoot, OsdBootAck, OsdDown, PgStuck, PoolUse};
pub use tools::{Admin, AdminReply, Route, RouteReply};

/// Version of all private messages: any change of one of them makes a new version, and processes of different versions
/// do not talk to each other ([`check_version`]).
pub const VERSION: u16 = 4;

#[cfg(test)]
mod tests;
