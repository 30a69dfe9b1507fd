//! Carmine's own messages, in the same frames as Ceph's. Their types are 0x8000 and above, which Ceph does not
//! use, and they are sent only between Carmine's processes: a stock client never sees one.

use carmine_codec::coded;
use carmine_types::{Epoch, OsdId, PgId, ScrubStamp, UTime};

use crate::header::messages;
use crate::osdmap::IntervalSet;
use crate::{Header2, kinds};

/// Version of all private messages: any change of one of them makes a new version, and processes of different versions
/// do not talk to each other ([`check_version`]).
pub const VERSION: u16 = 13;

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

// How an OSD is: what Ceph's OSDs tell the manager (MPGStats), and the PGs that keep the monitor from changing the map.

coded! {
    /// Operations of clients that were answered without an error, and the bytes that they read and wrote.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PoolIo {
        pub reads: u64,
        pub read_bytes: u64,
        pub writes: u64,
        pub write_bytes: u64,
    }
}

impl PoolIo {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: PoolIo) -> PoolIo {
        PoolIo {
            reads: self.reads.saturating_add(other.reads),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            writes: self.writes.saturating_add(other.writes),
            write_bytes: self.write_bytes.saturating_add(other.write_bytes),
        }
    }
}

coded! {
    /// The use of one pool by the PGs whose primary is this OSD: summed over all OSDs, each object counts once.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PoolUse {
        pub pool: i64,
        pub objects: u64,
        /// Sum of the objects' sizes; not their replicas'.
        pub bytes: u64,
        /// How many of the objects are clones, which snapshots keep.
        pub clones: u64,
        /// Since this OSD runs.
        pub io: PoolIo,
    }
}

coded! {
    /// A PG that this OSD leads and that has trimmed removed snapshots: none of its objects has a clone only for them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgPurged {
        pub pg: PgId,
        /// Some of those in the map's `removed_snaps_queue`.
        pub snaps: IntervalSet,
    }
}

coded! {
    /// A PG that this OSD leads and that does not serve clients, or not with all copies, or not all objects.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PgStuck {
        pub pg: PgId,
        /// `peering`, `down`, `incomplete`, …
        pub state: String,
        /// Objects of which no member can give all, while an OSD that is down may.
        pub unfound: u64,
    }
}

messages! {
    /// OSD → monitor: how full it is, every few seconds. There is no answer.
    pub struct OsdStats: OSD_STATS, VERSION, compat VERSION {
        /// The map that all its reactors have: what is said of PGs is so in that epoch's intervals, or in later ones.
        pub epoch: Epoch,
        /// Size of its store.
        pub total_bytes: u64,
        /// Taken, metadata included where it is known.
        pub used_bytes: u64,
        /// Mean time from a write's submission until it was durable in the store, since the last report; 0 if there was none.
        pub commit_latency_ns: u64,
        /// Ascending by pool; empty if it is not known.
        pub pools: Vec<PoolUse>,
        /// The PGs that it leads and that are not active, or not clean.
        pub stuck: Vec<PgStuck>,
        /// The PGs that it leads, of pools whose snapshots are being trimmed. Each is told again until the map's queue has
        /// lost its snapshots.
        pub purged: Vec<PgPurged>,
        /// Operations of clients that are slow, and the age of the oldest in seconds.
        pub slow_ops: u64,
        pub slowest_s: u64,
    }
}

coded! {
    /// A PG that this OSD leads and has scrubbed, or scrubs.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PgScrubs {
        pub pg: PgId,
        /// The last scrub, deep or not.
        pub last: ScrubStamp,
        pub last_deep: ScrubStamp,
        /// When the last one was that left no errors; zero: there was none.
        pub last_clean: UTime,
        /// One is under way: …
        pub scrubbing: bool,
        /// … a deep one, …
        pub deep: bool,
        /// … which repairs what it finds.
        pub repair: bool,
        /// Errors of copies that were found and not repaired.
        pub errors: u64,
    }
}

messages! {
    /// OSD → monitor: the scrubs of its PGs, every few seconds. There is no answer.
    pub struct OsdScrubs: OSD_SCRUBS, VERSION, compat VERSION {
        pub osd: OsdId,
        pub pgs: Vec<PgScrubs>,
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
