//! The difference between two epochs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid};

use super::consts::{RELEASE_UNCHANGED, STATE_UP};
use super::{IntervalSet, OsdMap, OsdXinfo, PgPool, Section, StringMap};
use crate::addr::{EntityAddr, EntityAddrVec};
use crate::handshake::features::SIGNIFICANT;

carmine_types::defaults! {
    /// `OSDMap::Incremental`: what to change in epoch `epoch - 1` to get `epoch`. Apply it with `OsdMap::apply`.
    ///
    /// `Incremental::next` starts an empty one; every field's default means "no change".
    #[derive(Clone, Debug, PartialEq)]
    pub struct Incremental {
        /// Identity of the cluster.
        pub fsid: Uuid,
        /// The epoch it leads to.
        pub epoch: Epoch,
        /// When it was made.
        pub modified: UTime,
        /// -1: unchanged.
        pub new_pool_max: i64 = -1,
        /// -1: unchanged.
        pub new_flags: i32 = -1,
        /// An encoded full map that replaces everything, or empty.
        pub fullmap: Vec<u8>,
        /// An encoded crush map, or empty.
        pub crush: Vec<u8>,
        /// -1: unchanged.
        pub new_max_osd: i32 = -1,
        /// New and changed pools.
        pub new_pools: BTreeMap<i64, PgPool>,
        /// New and changed names.
        pub new_pool_names: BTreeMap<i64, String>,
        /// Deleted pools.
        pub old_pools: BTreeSet<i64>,
        /// OSDs that come up, and where clients reach them.
        pub new_up_client: BTreeMap<OsdId, EntityAddrVec>,
        /// State bits to flip; 0 means "goes down".
        pub new_state: BTreeMap<OsdId, u32>,
        /// New weights (16.16).
        pub new_weight: BTreeMap<OsdId, u32>,
        /// New `pg_temp` entries; an empty list removes one.
        pub new_pg_temp: BTreeMap<PgId, Vec<i32>>,
        /// New `primary_temp` entries; -1 removes one.
        pub new_primary_temp: BTreeMap<PgId, i32>,
        /// New primary affinities.
        pub new_primary_affinity: BTreeMap<OsdId, u32>,
        /// New and changed erasure code profiles.
        pub new_erasure_code_profiles: BTreeMap<String, StringMap>,
        /// Deleted ones.
        pub old_erasure_code_profiles: Vec<String>,
        /// New pins.
        pub new_pg_upmap: BTreeMap<PgId, Vec<i32>>,
        /// Removed pins.
        pub old_pg_upmap: BTreeSet<PgId>,
        /// New replacements.
        pub new_pg_upmap_items: BTreeMap<PgId, Vec<(i32, i32)>>,
        /// Removed replacements.
        pub old_pg_upmap_items: BTreeSet<PgId>,
        /// Snapshots removed by this epoch.
        pub new_removed_snaps: BTreeMap<i64, IntervalSet>,
        /// Snapshots purged by this epoch.
        pub new_purged_snaps: BTreeMap<i64, IntervalSet>,
        /// Zero: unchanged.
        pub new_last_up_change: UTime,
        /// Zero: unchanged.
        pub new_last_in_change: UTime,
        /// Envelope of the client section.
        pub client_section: Section = Section::new(8, 1),

        /// Back-side heartbeat addresses of OSDs that come up.
        pub new_hb_back_up: BTreeMap<OsdId, EntityAddrVec>,
        /// New `up_thru`.
        pub new_up_thru: BTreeMap<OsdId, Epoch>,
        /// New clean intervals.
        pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
        /// OSDs declared lost.
        pub new_lost: BTreeMap<OsdId, Epoch>,
        /// Addresses to refuse, and until when.
        pub new_blocklist: Vec<(EntityAddr, UTime)>,
        /// Addresses to accept again.
        pub old_blocklist: Vec<EntityAddr>,
        /// Cluster-side addresses of OSDs that come up.
        pub new_up_cluster: BTreeMap<OsdId, EntityAddrVec>,
        /// Name of a cluster snapshot, usually empty.
        pub cluster_snapshot: String,
        /// New store identities.
        pub new_uuid: BTreeMap<OsdId, Uuid>,
        /// New `osd_xinfo` records.
        pub new_xinfo: BTreeMap<OsdId, OsdXinfo>,
        /// Front-side heartbeat addresses of OSDs that come up.
        pub new_hb_front_up: BTreeMap<OsdId, EntityAddrVec>,
        /// Features with which the full map is to be encoded.
        pub encode_features: u64 = SIGNIFICANT,
        /// Negative: unchanged.
        pub new_nearfull_ratio: f32 = -1.0,
        /// Negative: unchanged.
        pub new_full_ratio: f32 = -1.0,
        /// Negative: unchanged.
        pub new_backfillfull_ratio: f32 = -1.0,
        /// 0xff: unchanged.
        pub new_require_min_compat_client: u8 = RELEASE_UNCHANGED,
        /// 0xff: unchanged.
        pub new_require_osd_release: u8 = RELEASE_UNCHANGED,
        /// New flags of crush nodes; 0 removes an entry.
        pub new_crush_node_flags: BTreeMap<i32, u32>,
        /// New flags of device classes; 0 removes an entry.
        pub new_device_class_flags: BTreeMap<i32, u32>,
        /// Envelope of the OSD section.
        pub osd_section: Section = Section::new(9, 1),

        /// Checksum of the encoded full map it leads to. librados does not check it, Ceph's OSDs do.
        pub full_crc: u32,
        /// Outer envelope; version 7 carries no checksums.
        pub section: Section = Section::new(8, 7),
    }
}

impl Incremental {
    /// An empty change of `map` to its next epoch.
    pub fn next(map: &OsdMap, now: UTime) -> Self {
        Self { fsid: map.fsid, epoch: Epoch(map.epoch.0.saturating_add(1)), modified: now, ..Self::default() }
    }

    /// One that replaces everything by `map`, as the first incremental of a Ceph cluster does.
    pub fn replace(map: &OsdMap) -> Self {
        Self {
            fsid: map.fsid,
            epoch: map.epoch,
            modified: map.modified,
            fullmap: map.encode(),
            ..Self::default()
        }
    }

    /// Marks `osd` down: flips its up bit, so call it only for one that is up.
    pub fn mark_down(&mut self, osd: OsdId) {
        *self.new_state.entry(osd).or_default() |= STATE_UP;
    }

    /// The map this leads to; `map` stays as it is.
    pub fn applied(&self, map: &OsdMap) -> Result<Arc<OsdMap>, super::ApplyError> {
        let mut next = map.clone();
        next.apply(self)?;
        Ok(Arc::new(next))
    }
}
