//! Carmine's own messages, in the same frames as Ceph's. Their types are 0x8000 and above, which Ceph does not
//! use, and they are sent only between Carmine's processes: a stock client never sees one.

use carmine_types::{Epoch, OsdId, PgId, Uuid};

use crate::header::messages;
use crate::pg_stat::PgStat;
use crate::{Header2, kinds};

/// Version of all private messages: any change of one of them makes a new version, and processes of different versions
/// do not talk to each other ([`check_version`]).
pub const VERSION: u16 = 14;

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
pub fn check_version(header: &Header2) -> std::result::Result<(), OtherVersion> {
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

// How an OSD is: what Ceph's OSDs tell the manager (MPGStats).

messages! {
    /// OSD → monitor: how full it is, and how its PGs are, every few seconds, and at once when PGs change their state. One that leads
    /// many PGs sends several messages. There is no answer.
    pub struct OsdStats: OSD_STATS, VERSION, compat VERSION {
        /// Size of its store.
        pub total_bytes: u64,
        /// Taken, metadata included where it is known.
        pub used_bytes: u64,
        /// Mean time from a write's submission until it was durable in the store, since the last report; 0 if there was none.
        pub commit_latency_ns: u64,
        /// PGs that it leads.
        pub pgs: Vec<(PgId, PgStat)>,
        /// Operations of clients that are slow, and the age of the oldest in seconds.
        pub slow_ops: u64,
        pub slowest_s: u64,
    }

    /// OSD → monitor: it cannot read its metadata, and ends itself as soon as others can do without it, or cannot serve at all. There
    /// is no answer.
    pub struct OsdDamage: OSD_DAMAGE, VERSION, compat VERSION {
        pub osd: OsdId,
        /// Its store.
        pub uuid: Uuid,
        /// The first error, for people.
        pub what: String,
    }
}

// Questions to a process: where its PGs are, and anything else, in JSON.

messages! {
    /// Client → OSD: "how are your PGs dealt to reactors?" The reply has the same tid.
    pub struct Route: ROUTE, VERSION, compat VERSION {
        /// The client's map; the OSD answers for this epoch or a newer one.
        pub epoch: Epoch,
    }

    /// OSD → client. A PG that is not listed may be sent anywhere: the OSD forwards it.
    pub struct RouteReply: ROUTE_REPLY, VERSION, compat VERSION {
        /// Map that the answer is for.
        pub epoch: Epoch,
        /// TCP port on which each reactor listens for its own clients; the address is the OSD's.
        pub reactors: Vec<u16>,
        /// Each PG of this OSD, and the reactor (index into `reactors`) that owns it.
        pub pgs: Vec<(PgId, u16)>,
    }

    /// Tool → process: status, counters, start of an in-process load.
    pub struct Admin: ADMIN, VERSION, compat VERSION {
        /// One JSON object.
        pub json: Vec<u8>,
    }

    /// The answer, with the tid of the question.
    pub struct AdminReply: ADMIN_REPLY, VERSION, compat VERSION {
        /// 0 or a negative errno.
        pub result: i32,
        /// One JSON object.
        pub json: Vec<u8>,
    }
}

#[cfg(test)]
mod tests;
