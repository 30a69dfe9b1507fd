//! The full map.

use std::collections::BTreeMap;
use std::sync::Arc;

use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid};

use super::consts::{
    AFFINITY_MAX, FLAGS_DEFAULT, RELEASE_LUMINOUS, RELEASE_PACIFIC, STATE_EXISTS, STATE_UP, WEIGHT_OUT,
};
use super::{IntervalSet, OsdInfo, OsdXinfo, PgPool, Section, StringMap};
use crate::addr::{EntityAddr, EntityAddrVec};
use crate::crushmap::CrushMap;

carmine_types::defaults! {
    /// The full OSDMap.
    ///
    /// The per-OSD vectors are indexed by OSD id; `set_max_osd` keeps them equally long, a map off the wire may have
    /// empty ones, so readers use the accessors, which answer as if missing entries were those of an absent OSD.
    #[derive(Clone, Debug, PartialEq)]
    pub struct OsdMap {
        /// Identity of the cluster.
        pub fsid: Uuid,
        /// Number of this map.
        pub epoch: Epoch,
        /// When the cluster was made.
        pub created: UTime,
        /// When this epoch was made.
        pub modified: UTime,
        /// Pools by id.
        pub pools: BTreeMap<i64, PgPool>,
        /// Names of pools by id.
        pub pool_names: BTreeMap<i64, String>,
        /// Highest pool id ever given; -1 before the first (Ceph writes it as an i32).
        pub pool_max: i32 = -1,
        /// See `consts::FLAG_NAMES`.
        pub flags: u32,
        /// Length of the per-OSD vectors.
        pub max_osd: u32,
        /// Bits `consts::STATE_*`.
        pub osd_state: Vec<u32>,
        /// 16.16: 0 is out, 0x10000 is in.
        pub osd_weight: Vec<u32>,
        /// Where clients reach each OSD.
        pub client_addrs: Vec<EntityAddrVec>,
        /// PGs that are served by other OSDs than CRUSH says, for a while.
        pub pg_temp: BTreeMap<PgId, Vec<i32>>,
        /// PGs with another primary, for a while.
        pub primary_temp: BTreeMap<PgId, i32>,
        /// 16.16 by OSD; empty means the default for all.
        pub primary_affinity: Vec<u32>,
        /// Placement rules and tree. Shared, because it is large and changes seldom.
        pub crush: Arc<CrushMap>,
        /// Erasure code profiles by name.
        pub erasure_code_profiles: BTreeMap<String, StringMap>,
        /// PGs pinned to a list of OSDs.
        pub pg_upmap: BTreeMap<PgId, Vec<i32>>,
        /// PGs with OSDs replaced: `(from, to)`.
        pub pg_upmap_items: BTreeMap<PgId, Vec<(i32, i32)>>,
        /// Number of changes of `crush`.
        pub crush_version: i32 = 1,
        /// Snapshots removed by this epoch.
        pub new_removed_snaps: BTreeMap<i64, IntervalSet>,
        /// Snapshots purged by this epoch.
        pub new_purged_snaps: BTreeMap<i64, IntervalSet>,
        /// When an OSD last went up or down.
        pub last_up_change: UTime,
        /// When an OSD last went in or out.
        pub last_in_change: UTime,
        /// Envelope of the client section.
        pub client_section: Section = Section::new(9, 1),

        /// Back-side heartbeat addresses.
        pub hb_back_addrs: Vec<EntityAddrVec>,
        /// Epochs of each OSD.
        pub osd_info: Vec<OsdInfo>,
        /// Refused client addresses and until when; in the order Ceph sorts them.
        pub blocklist: Vec<(EntityAddr, UTime)>,
        /// Where OSDs reach each other.
        pub cluster_addrs: Vec<EntityAddrVec>,
        /// Epoch of the cluster snapshot.
        pub cluster_snapshot_epoch: Epoch,
        /// Name of the cluster snapshot, usually empty.
        pub cluster_snapshot: String,
        /// Identity of each OSD's store.
        pub osd_uuid: Vec<Uuid>,
        /// More about each OSD.
        pub osd_xinfo: Vec<OsdXinfo>,
        /// Front-side heartbeat addresses.
        pub hb_front_addrs: Vec<EntityAddrVec>,
        /// Share at which an OSD counts as nearly full.
        pub nearfull_ratio: f32 = 0.0,
        /// Share at which an OSD counts as full.
        pub full_ratio: f32 = 0.0,
        /// Share at which an OSD takes no backfill.
        pub backfillfull_ratio: f32 = 0.0,
        /// Oldest client release that may connect.
        pub require_min_compat_client: u8,
        /// Oldest OSD release that may boot.
        pub require_osd_release: u8,
        /// Snapshots still to be trimmed.
        pub removed_snaps_queue: BTreeMap<i64, IntervalSet>,
        /// Flags by crush node id.
        pub crush_node_flags: BTreeMap<i32, u32>,
        /// Flags by device class id.
        pub device_class_flags: BTreeMap<i32, u32>,
        /// Envelope of the OSD section.
        pub osd_section: Section = Section::new(9, 1),
        /// Outer envelope.
        pub section: Section = Section::new(8, 7),
    }
}

impl OsdMap {
    /// An empty map, epoch 0, with the flags, ratios and releases of a fresh Pacific cluster.
    pub fn new(fsid: Uuid, created: UTime) -> Self {
        Self {
            fsid,
            created,
            modified: created,
            flags: FLAGS_DEFAULT,
            crush_version: 1,
            nearfull_ratio: 0.85,
            full_ratio: 0.95,
            backfillfull_ratio: 0.90,
            require_min_compat_client: RELEASE_LUMINOUS,
            require_osd_release: RELEASE_PACIFIC,
            ..Self::default()
        }
    }

    /// Grows or shrinks every per-OSD vector. New OSDs do not exist, are down and out.
    pub fn set_max_osd(&mut self, max_osd: u32) {
        let n = max_osd as usize;
        self.max_osd = max_osd;
        self.osd_state.resize(n, 0);
        self.osd_weight.resize(n, WEIGHT_OUT);
        for addrs in [
            &mut self.client_addrs,
            &mut self.hb_back_addrs,
            &mut self.cluster_addrs,
            &mut self.hb_front_addrs,
        ] {
            addrs.resize_with(n, EntityAddrVec::default);
        }
        self.osd_info.resize_with(n, OsdInfo::default);
        self.osd_xinfo.resize_with(n, OsdXinfo::default);
        self.osd_uuid.resize_with(n, Uuid::default);
        if !self.primary_affinity.is_empty() {
            self.primary_affinity.resize(n, AFFINITY_MAX);
        }
    }

    /// State bits; 0 for an id beyond the map.
    pub fn state(&self, osd: OsdId) -> u32 {
        self.osd_state.get(osd.0 as usize).copied().unwrap_or(0)
    }

    /// Whether the id is in use.
    pub fn exists(&self, osd: OsdId) -> bool {
        self.state(osd) & STATE_EXISTS != 0
    }

    /// Whether it exists and is up.
    pub fn is_up(&self, osd: OsdId) -> bool {
        let bits = STATE_EXISTS | STATE_UP;
        self.state(osd) & bits == bits
    }

    /// Weight in 16.16; 0 (out) for an id beyond the map.
    pub fn weight(&self, osd: OsdId) -> u32 {
        self.osd_weight.get(osd.0 as usize).copied().unwrap_or(WEIGHT_OUT)
    }

    /// Whether it exists and is not out.
    pub fn is_in(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.weight(osd) != WEIGHT_OUT
    }

    /// Primary affinity in 16.16.
    pub fn affinity(&self, osd: OsdId) -> u32 {
        self.primary_affinity.get(osd.0 as usize).copied().unwrap_or(AFFINITY_MAX)
    }

    /// Where clients reach it, if it is up.
    pub fn client_addr(&self, osd: OsdId) -> Option<&EntityAddrVec> {
        self.client_addrs.get(osd.0 as usize).filter(|_| self.is_up(osd))
    }

    /// Ids in use, ascending.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        (0..self.osd_state.len() as u32).map(OsdId).filter(|osd| self.exists(*osd))
    }

    /// The pool of that id.
    pub fn pool(&self, pool: i64) -> Option<&PgPool> {
        self.pools.get(&pool)
    }

    /// Id of the pool of that name.
    pub fn pool_id(&self, name: &str) -> Option<i64> {
        self.pool_names.iter().find(|(_, n)| n.as_str() == name).map(|(id, _)| *id)
    }

    /// Name of the pool of that id.
    pub fn pool_name(&self, pool: i64) -> Option<&str> {
        self.pool_names.get(&pool).map(String::as_str)
    }
}
