//! OSDs' messages to the monitor, and their heartbeats to each other, in Ceph's own encodings as 16.2 sends them.

mod pg_create;
mod pg_query;

use std::collections::BTreeMap;

use carmine_codec::{Fields, coded, fields};
use carmine_types::{Epoch, Eversion, OsdId, PgId, UTime, Uuid};

use crate::header::messages;
use crate::mon_msg::paxos;
use crate::{Decoder, Encoder, EntityAddrVec, Front, Result, kinds};

pub use pg_create::{PastInterval, PastIntervals, PgCreate, PgCreated, PgHistory};
pub use pg_query::{HitSet, HitSets, PgAnswer, PgInfo, PgNotify2, PgQuery2, PgQuestion};

// An OSD that starts, and one that stops.

coded! {
    /// `CompatSet::FeatureSet`: features of the store's format.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct FeatureSet {
        /// Bit n: the feature n.
        pub mask: u64,
        /// The same by number.
        pub names: BTreeMap<u64, String>,
    }
}

coded! {
    /// `OSDSuperblock`: what an OSD's store says of itself.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Superblock: versioned "osd superblock", 10, compat 5, oldest 10 {
        pub cluster_fsid: Uuid,
        pub whoami: OsdId,
        /// Newest map that it has used.
        pub current_epoch: Epoch,
        /// Oldest map that it keeps.
        pub oldest_map: Epoch,
        /// Newest map that it has. Unused behind it: a weight.
        pub newest_map: Epoch [u64],
        pub compat: FeatureSet,
        pub ro_compat: FeatureSet,
        pub incompat: FeatureSet,
        pub clean_thru: Epoch,
        /// Epoch at which the store was mounted last.
        pub mounted: Epoch,
        /// Identity of the store. Unused behind it: when the OSD was full, in all and by pool.
        pub osd_fsid: Uuid [u64],
        pub purged_snaps_last: Epoch,
        pub last_purged_snaps_scrub: UTime,
        pub cluster_osdmap_trim_lower_bound: Epoch,
    }
}

messages! {
    /// MOSDBoot v7: OSD → monitor, it is up. Its public addresses are those of the session; the map in which it is up is
    /// the answer.
    pub struct Boot: OSD_BOOT, 7, compat 7 {
        /// Newest map that it has.
        pub version: u64 = paxos,
        pub superblock: Superblock,
        /// Where other OSDs' heartbeats reach it on the cluster's network.
        pub hb_back: EntityAddrVec,
        /// Where other OSDs reach it.
        pub cluster: EntityAddrVec,
        /// Epoch at which it was up before, in this process; 0 for none.
        pub boot_epoch: Epoch,
        /// Where other OSDs' heartbeats reach it on the clients' network.
        pub hb_front: EntityAddrVec,
        /// Facts about itself and its machine (`hostname`, `osd_objectstore`, …).
        pub metadata: BTreeMap<String, String>,
        pub features: u64,
    }

    /// MOSDMarkMeDown v4: OSD → monitor, it stops. The monitor's answer is the same message.
    pub struct MarkMeDown: OSD_MARK_ME_DOWN, 4, compat 3, oldest 3 {
        /// Newest map that the sender has.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        pub osd: OsdId,
        /// Its public addresses: an OSD that has booted since with others is not meant.
        pub addrs: EntityAddrVec,
        /// The sender's map.
        pub epoch: Epoch,
        /// It waits for an answer before it stops.
        pub request_ack: bool,
        /// Not only down but dead: nobody needs to wait for its leases.
        pub is_dead: bool; since 4,
    }
}

// Signs of life to the monitor.

messages! {
    /// MOSDAlive: OSD → monitor, "note that I was up in this epoch" (`up_thru`), before PGs that it leads go active in an
    /// interval that began then. The map is the answer.
    pub struct Alive: OSD_ALIVE, 1, compat 1 {
        /// Newest map that it has.
        pub version: u64 = paxos,
        pub want: Epoch,
    }

    /// MOSDBeacon v3: OSD → monitor, it lives, now and then.
    pub struct Beacon: OSD_BEACON, 3, compat 1, oldest 3 {
        /// Newest map that it has.
        pub version: u64 = paxos,
        /// PGs that it leads.
        pub pgs: Vec<PgId>,
        /// The oldest of their `last_epoch_clean`: the monitor keeps maps from there on.
        pub min_last_epoch_clean: Epoch,
        pub last_purged_snaps_scrub: UTime,
        /// Seconds to the next one (`osd_beacon_report_interval`).
        pub interval_s: i32,
    }

    /// MOSDPGTemp v2: primary → monitor, these OSDs shall serve its PGs for now.
    pub struct PgTemp: OSD_PG_TEMP, 2, compat 1, oldest 2 {
        /// Newest map that it has.
        pub version: u64 = paxos,
        /// The sender's map.
        pub epoch: Epoch,
        /// By PG; an empty list: nobody but those whom CRUSH wants.
        pub pg_temp: BTreeMap<PgId, Vec<i32>>,
        /// The monitor takes it even if nothing is to be changed.
        pub forced: bool,
    }

    /// MOSDFull v1: OSD → monitor, its store is as full as this, which is not what the map says.
    pub struct Full: OSD_FULL, 1, compat 1 {
        /// Newest map that it has.
        pub version: u64 = paxos,
        /// The sender's map.
        pub epoch: Epoch,
        /// [`OsdMap::full_state`](crate::osdmap::OsdMap::full_state).
        pub state: u32,
    }

    /// MOSDPGReadyToMerge v1: primary → monitor, this PG and the one that it is to be merged into have no writes in flight and get none
    /// until the map says what becomes of them; or they cannot be merged.
    pub struct ReadyToMerge: OSD_PG_READY_TO_MERGE, 1, compat 1 {
        /// Newest map that it has.
        pub version: u64 = paxos,
        /// The PG that ceases to exist.
        pub source: PgId,
        /// Last version of the source, …
        pub source_version: Eversion,
        /// … and of the target.
        pub target_version: Eversion,
        /// Of both PGs.
        pub last_epoch_started: Epoch,
        /// Of both PGs.
        pub last_epoch_clean: Epoch,
        pub ready: bool,
    }

    /// MOSDFailure v4: OSD → monitor, another OSD does not answer, or does again.
    pub struct Failure: OSD_FAILURE, 4, compat 4 {
        /// Newest map that it has.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        /// The OSD that is meant, …
        pub osd: OsdId,
        /// … at these public addresses: one that has booted since with others is not meant.
        pub addrs: EntityAddrVec,
        /// The sender's map.
        pub epoch: Epoch,
        /// [`Failure::FAILED`], [`Failure::IMMEDIATE`].
        pub flags: u8,
        /// For so many seconds it has not answered.
        pub failed_for_s: u32,
    }
}

/// Bits of [`Failure::flags`].
impl Failure {
    /// It does not answer; without this bit an earlier report is taken back.
    pub const FAILED: u8 = 1;
    /// Its process is gone, for its port refuses connections: no grace is needed.
    pub const IMMEDIATE: u8 = 2;
}

// Between OSDs.

fields! {
    /// MOSDPing v5: OSD → OSD on a connection of their heartbeats, and the answer to it. It is padded: a network that loses
    /// long packets only is to be noticed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OsdPing {
        pub fsid: Uuid,
        /// The sender's map.
        pub epoch: Epoch,
        /// [`OsdPing::PING`], [`OsdPing::REPLY`], [`OsdPing::YOU_DIED`].
        pub op: u8,
        /// The asker's clock when it asked; echoed.
        pub stamp: UTime,
        /// Zeros behind the fields.
        pub padding_bytes: u32,
        /// Epoch in which the sender came up.
        pub up_from: Epoch,
        /// The asker's monotonic clock when it asked; echoed.
        pub mono_ping_ns: u64 = span,
        /// The sender's monotonic clock when it sent this.
        pub mono_send_ns: u64 = span,
        /// Upper bound of what the receiver's monotonic clock is ahead of the sender's; for read leases.
        pub delta_ub_ns: Option<i64> = delta,
    }
}

impl OsdPing {
    /// A question.
    pub const PING: u8 = 4;
    /// The answer.
    pub const REPLY: u8 = 5;
    /// The answer to an OSD that is down in the sender's map.
    pub const YOU_DIED: u8 = 2;
    /// Padding that makes the head of the front, up to the padding's length, 2,000 bytes long (Ceph's
    /// `osd_heartbeat_min_size`).
    pub const PADDING_BYTES: u32 = 2000 - 29;
}

impl Front for OsdPing {
    const KIND: u16 = kinds::OSD_PING;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.put_fields(e, Self::VERSION);
        e.zeros(self.padding_bytes as usize);
    }

    fn decode(version: u16, d: &mut Decoder<'_>) -> Result<OsdPing> {
        let ping = OsdPing::get_fields(d, version)?;
        d.bytes(ping.padding_bytes as usize)?;
        Ok(ping)
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// A time span in nanoseconds: u32 seconds and u32 nanoseconds.
mod span {
    use super::*;

    pub(super) const BYTES_MIN: usize = 8;

    pub(super) fn put(ns: &u64, e: &mut Encoder<'_>) {
        e.u32((ns / SECOND_NS) as u32);
        e.u32((ns % SECOND_NS) as u32);
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<u64> {
        Ok(u64::from(d.u32()?) * SECOND_NS + u64::from(d.u32()?))
    }
}

/// An optional difference of times: a bool, i32 seconds and i32 nanoseconds of the same sign.
mod delta {
    use super::*;

    pub(super) const BYTES_MIN: usize = 1;

    pub(super) fn put(ns: &Option<i64>, e: &mut Encoder<'_>) {
        e.bool(ns.is_some());
        if let Some(ns) = ns {
            e.i32((ns / SECOND_NS as i64) as i32);
            e.i32((ns % SECOND_NS as i64) as i32);
        }
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<Option<i64>> {
        if !d.bool()? {
            return Ok(None);
        }
        Ok(Some(i64::from(d.i32()?) * SECOND_NS as i64 + i64::from(d.i32()?)))
    }
}

#[cfg(test)]
mod tests;
