//! The full map.

use std::collections::BTreeMap;
use std::sync::Arc;

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, Fields, Result, coded, fields, layout};
use carmine_types::{Epoch, Eversion, OsdId, PgId, UTime, Uuid, crc32c};

use super::consts::{
    AFFINITY_MAX, FLAGS_DEFAULT, RELEASE_LUMINOUS, RELEASE_PACIFIC, STATE_BACKFILLFULL, STATE_EXISTS,
    STATE_FULL, STATE_NEARFULL, STATE_UP, STATES_FULL, WEIGHT_OUT,
};
use super::{Incremental, IntervalSet, PgPool, Section, StringMap, check_osds, put_section, section};
use crate::addr::{EntityAddr, EntityAddrVec, kind};
use crate::crushmap::CrushMap;
use crate::handshake::features::CARMINE;

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

    /// Whether an OSD of a real cluster said at its last boot that it is Carmine's ([`CARMINE`]).
    pub fn is_carmine(&self, osd: OsdId) -> bool {
        self.osd_xinfo.get(osd.0 as usize).is_some_and(|xinfo| xinfo.features & CARMINE != 0)
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

    /// How full an OSD is: its bits of `osd_state` for that.
    pub fn fullness(&self, osd: OsdId) -> u32 {
        self.state(osd) & STATES_FULL
    }

    /// The bit of `osd_state` for an OSD of which so much is used: by the map's ratios, the highest that is reached; 0: none is.
    pub fn full_state(&self, used_bytes: u64, total_bytes: u64) -> u32 {
        let share = (used_bytes as f64 / total_bytes.max(1) as f64) as f32;
        match share {
            _ if share >= self.full_ratio => STATE_FULL,
            _ if share >= self.backfillfull_ratio => STATE_BACKFILLFULL,
            _ if share >= self.nearfull_ratio => STATE_NEARFULL,
            _ => 0,
        }
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

    /// Epoch up to which it was surely alive; 0 for an id beyond the map.
    pub fn up_thru(&self, osd: OsdId) -> Epoch {
        self.osd_info.get(osd.0 as usize).map_or(Epoch(0), |info| info.up_thru)
    }

    /// Epoch at which what this OSD had was given up (`ceph osd lost`); zero: it never was.
    pub fn lost_at(&self, osd: OsdId) -> Epoch {
        self.osd_info.get(osd.0 as usize).map_or(Epoch(0), |info| info.lost_at)
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

// The binary form of a full map: `S(8,7){ client section; OSD section; u32 crc }`.

/// Seed of the checksums over maps.
pub(super) const CRC_SEED: u32 = u32::MAX;
/// Version of the outer envelope that we know: with checksums.
pub(super) const OUTER_VERSION: u8 = 8;

impl OsdMap {
    /// Decodes a whole map and verifies its checksum. Every byte of `bytes` must belong to it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = Decoder::new(bytes, "osdmap");
        let envelope = d.envelope("osdmap", OUTER_VERSION)?;
        envelope.at_least(OUTER_VERSION)?;
        d.finish()?;
        let (mut map, mut body) = (OsdMap::default(), envelope.body);
        ((), map.client_section) = section(&mut body, "osdmap client section", 9, 9, |d, v| {
            map.get_client(d, v)?;
            map.check_sizes()
        })?;
        ((), map.osd_section) = section(&mut body, "osdmap osd section", 9, 9, |d, v| map.get_osd(d, v))?;
        let covered = bytes.len() - body.remaining();
        let found = body.u32()?;
        let computed = crc32c::raw(CRC_SEED, bytes.get(..covered).unwrap_or_default());
        if found != computed {
            return Err(DecodeError::BadCrc { what: "osdmap", found, computed });
        }
        map.section =
            Section { version: envelope.version, compat: envelope.compat, tail: body.rest().to_vec() };
        Ok(map)
    }

    /// The binary form, with its checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        let mut e = Encoder::new(&mut out);
        let mut crc_at = 0;
        put_section(&mut e, &self.section, |e| {
            put_section(e, &self.client_section, |e| self.put_client(e, self.client_section.version));
            put_section(e, &self.osd_section, |e| self.put_osd(e, self.osd_section.version));
            crc_at = e.position();
            e.u32(0);
        });
        // The checksum covers the outer length, which is known only now.
        let crc = crc32c::raw(CRC_SEED, out.get(..crc_at).unwrap_or_default());
        Encoder::new(&mut out).patch_u32(crc_at, crc);
        out
    }

    /// The checksum of the encoded map: what an incremental that leads to it carries as `full_crc`.
    pub fn crc(&self) -> u32 {
        let bytes = self.encode();
        let at = bytes.len().saturating_sub(4 + self.section.tail.len());
        bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    }
}

impl OsdMap {
    /// Bounds what readers allocate for each OSD.
    fn check_sizes(&self) -> Result<()> {
        for (what, len) in [
            ("osdmap osd_state", self.osd_state.len()),
            ("osdmap osd_weight", self.osd_weight.len()),
            ("osdmap client addresses", self.client_addrs.len()),
        ] {
            check_osds(what, len as i64)?;
        }
        Ok(())
    }
}

/// A number of OSDs: an i32 that is not negative and below the limit.
mod osd_count {
    use super::*;

    pub(super) fn put(count: &u32, e: &mut Encoder<'_>) {
        e.u32(*count);
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<u32> {
        check_osds("osdmap max_osd", d.i32()?.into())
    }
}

/// A crush map, as a blob.
mod crush_blob {
    use super::*;

    pub(super) fn put(map: &CrushMap, e: &mut Encoder<'_>) {
        e.blob(&map.encode());
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<Arc<CrushMap>> {
        CrushMap::decode(d.blob()?).map(Arc::new)
    }
}

layout! { OsdMap: put_client, get_client {
    fsid, epoch, created, modified, pools, pool_names, pool_max, flags, max_osd = osd_count, osd_state,
    osd_weight, client_addrs, pg_temp, primary_temp, primary_affinity, crush = crush_blob,
    erasure_code_profiles, pg_upmap, pg_upmap_items, crush_version, new_removed_snaps, new_purged_snaps,
    last_up_change, last_in_change,
} }

layout! { OsdMap: put_osd, get_osd {
    hb_back_addrs, osd_info, blocklist, cluster_addrs, cluster_snapshot_epoch, cluster_snapshot, osd_uuid,
    osd_xinfo, hb_front_addrs, nearfull_ratio, full_ratio, backfillfull_ratio, require_min_compat_client,
    require_osd_release, removed_snaps_queue, crush_node_flags, device_class_flags,
} }

// Per-OSD history records of the OSD section, and the record of a pool's last PG merge.

/// The one byte that an `osd_info` has in place of an envelope.
const OSD_INFO_VERSION: u8 = 1;

fields! {
    /// `osd_info`: epochs that matter for peering. 25 bytes on the wire.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OsdInfo {
        /// First epoch of the last interval that ended with a clean shutdown.
        pub last_clean_begin: Epoch,
        /// Last epoch of that interval.
        pub last_clean_end: Epoch,
        /// Epoch in which it last came up.
        pub up_from: Epoch,
        /// Epoch up to which it was surely alive.
        pub up_thru: Epoch,
        /// Epoch in which it last went down.
        pub down_at: Epoch,
        /// Epoch in which it was declared lost.
        pub lost_at: Epoch,
    }
}

impl Coded for OsdInfo {
    const BYTES_MIN: usize = 1 + OsdInfo::FIELDS_BYTES_MIN;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(OSD_INFO_VERSION);
        self.put_fields(e, OSD_INFO_VERSION.into());
    }

    fn get(d: &mut Decoder<'_>) -> Result<OsdInfo> {
        match d.u8()? {
            OSD_INFO_VERSION => OsdInfo::get_fields(d, OSD_INFO_VERSION.into()),
            version => Err(DecodeError::BadValue { what: "osd_info version", value: version.into() }),
        }
    }
}

coded! {
    /// `osd_xinfo`: more of the same, versioned. A client crashes if a map holds fewer of them than `max_osd`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OsdXinfo: versioned "osd_xinfo", 4, compat 1, oldest 3 {
        /// When it was last marked down.
        pub down_stamp: UTime,
        /// Probability, out of 2^32, that a missing heartbeat means "slow".
        pub laggy_probability: u32,
        /// Seconds it is usually away.
        pub laggy_interval_s: u32,
        /// Feature mask of the running OSD.
        pub features: u64,
        /// Weight it had before it was marked out automatically (16.16).
        pub old_weight: u32,
        /// When it last checked for left-over snapshots.
        pub last_purged_snaps_scrub: UTime; since 4,
        /// Last epoch in which it is known to be dead.
        pub dead_epoch: Epoch; since 4,
    }
}

coded! {
    /// `pg_merge_meta`: what the last merge of two PGs found. We only carry it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MergeMeta {
        /// PG that was merged away.
        pub source_pg: PgId,
        /// Epoch in which it was ready.
        pub ready_epoch: Epoch,
        /// `last_epoch_started` of both.
        pub last_epoch_started: Epoch,
        /// `last_epoch_clean` of both.
        pub last_epoch_clean: Epoch,
        /// Last version of the source.
        pub source_version: Eversion,
        /// Last version of the target.
        pub target_version: Eversion,
    }
}

// Clients that are kept out, by address.

impl OsdMap {
    /// A client with this address is kept out: it is listed itself (protocol aside), or all of its host is (port and nonce 0).
    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        if self.blocklist.is_empty() {
            return false;
        }
        let itself = EntityAddr { kind: kind::ANY, ..*addr };
        let host = addr.sock.map(|sock| EntityAddr::client(sock.ip(), 0));
        self.blocklist.iter().any(|(listed, _)| *listed == itself || Some(*listed) == host)
    }

    pub(super) fn apply_blocklist(&mut self, inc: &Incremental) {
        if inc.new_blocklist.is_empty() && inc.old_blocklist.is_empty() {
            return;
        }
        let bytes = |addr: &EntityAddr| Encoder::collect(|e| addr.put_fields(e));
        let mut sorted = BTreeMap::new();
        for (addr, until) in self.blocklist.iter().chain(&inc.new_blocklist) {
            // An entry that is there already keeps its end, as in Ceph.
            sorted.entry(bytes(addr)).or_insert((*addr, *until));
        }
        for addr in &inc.old_blocklist {
            sorted.remove(&bytes(addr));
        }
        self.blocklist = sorted.into_values().collect();
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::UTime;

    use super::*;

    #[test]
    fn a_client_is_kept_out_by_itself_or_with_its_host() {
        let addr = |text: &str| EntityAddr::parse_any(text).unwrap();
        let mut map = OsdMap::default();
        assert!(!map.is_blocklisted(&addr("10.0.0.1:0/5")));
        map.blocklist = vec![(addr("10.0.0.1:0/5"), UTime::ZERO), (addr("10.0.0.2"), UTime::ZERO)];
        assert!(map.is_blocklisted(&addr("10.0.0.1:0/5")));
        assert!(map.is_blocklisted(&EntityAddr { kind: kind::MSGR2, ..addr("10.0.0.1:0/5") }));
        assert!(!map.is_blocklisted(&addr("10.0.0.1:0/6")) && !map.is_blocklisted(&addr("10.0.0.1")));
        assert!(map.is_blocklisted(&addr("10.0.0.2:0/5")) && map.is_blocklisted(&addr("10.0.0.2:6800/1")));
        assert!(!map.is_blocklisted(&EntityAddr::default()), "no address at all");
    }
}
