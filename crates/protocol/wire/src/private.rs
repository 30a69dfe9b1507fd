//! Carmine's own messages, in the same frames as Ceph's. Their types are 0x8000 and above, which Ceph does not
//! use, and they are sent only between Carmine's processes: a stock client never sees one.

mod admin;
mod osd_beacon;
mod osd_boot;
mod osd_down;
mod route;

pub use admin::{Admin, AdminReply};
pub use osd_beacon::{OsdBeacon, PgStuck, PoolUse};
pub use osd_boot::{OsdBoot, OsdBootAck};
pub use osd_down::{DownReason, OsdDown};
pub use route::{Route, RouteReply};

#[cfg(test)]
mod tests;
