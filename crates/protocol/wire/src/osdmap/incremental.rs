//! The difference between two epochs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carmine_codec::layout;
use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid, crc32c};

use super::consts::{RELEASE_UNCHANGED, STATE_UP};
use super::map::{CRC_SEED, OUTER_VERSION};
use super::{IntervalSet, OsdMap, OsdXinfo, PgPool, Section, StringMap, put_section, section};
use crate::addr::{EntityAddr, EntityAddrVec};
use crate::handshake::features::SIGNIFICANT;
use crate::{DecodeError, Decoder, Encoder, Result};

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
    pub fn applied(&self, map: &OsdMap) -> std::result::Result<Arc<OsdMap>, super::ApplyError> {
        let mut next = map.clone();
        next.apply(self)?;
        Ok(Arc::new(next))
    }
}

// The binary form of an incremental: `S(8,7){ client section; OSD section; u32 inc_crc; u32 full_crc }`.

/// Outer version without the two checksums.
const VERSION_NO_CRC: u8 = 7;

impl Incremental {
    /// Decodes an incremental and verifies its checksum. Every byte of `bytes` must belong to it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = Decoder::new(bytes, "osdmap incremental");
        let envelope = d.envelope("osdmap incremental", OUTER_VERSION)?;
        envelope.at_least(VERSION_NO_CRC)?;
        d.finish()?;
        let (mut inc, mut body) = (Incremental::default(), envelope.body);
        ((), inc.client_section) =
            section(&mut body, "incremental client section", 8, 8, |d, v| inc.get_client(d, v))?;
        ((), inc.osd_section) =
            section(&mut body, "incremental osd section", 9, 9, |d, v| inc.get_osd(d, v))?;
        if envelope.version > VERSION_NO_CRC {
            let at = bytes.len() - body.remaining();
            let found = body.u32()?;
            let computed = crc_around(bytes, at);
            if found != computed {
                return Err(DecodeError::BadCrc { what: "osdmap incremental", found, computed });
            }
            inc.full_crc = body.u32()?;
        }
        inc.section =
            Section { version: envelope.version, compat: envelope.compat, tail: body.rest().to_vec() };
        Ok(inc)
    }

    /// The binary form, with its checksum; `full_crc` is written as it is.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        let mut crc_at = None;
        put_section(&mut Encoder::new(&mut out), &self.section, |e| {
            put_section(e, &self.client_section, |e| self.put_client(e, self.client_section.version));
            put_section(e, &self.osd_section, |e| self.put_osd(e, self.osd_section.version));
            if self.section.version > VERSION_NO_CRC {
                crc_at = Some(e.position());
                e.u32(0);
                e.u32(self.full_crc);
            }
        });
        if let Some(at) = crc_at {
            let crc = crc_around(&out, at);
            Encoder::new(&mut out).patch_u32(at, crc);
        }
        out
    }
}

layout! { Incremental: put_client, get_client {
    fsid, epoch, modified, new_pool_max, new_flags, fullmap, crush, new_max_osd, new_pools, new_pool_names,
    old_pools, new_up_client, new_state, new_weight, new_pg_temp, new_primary_temp, new_primary_affinity,
    new_erasure_code_profiles, old_erasure_code_profiles, new_pg_upmap, old_pg_upmap, new_pg_upmap_items,
    old_pg_upmap_items, new_removed_snaps, new_purged_snaps, new_last_up_change, new_last_in_change,
} }

layout! { Incremental: put_osd, get_osd {
    new_hb_back_up, new_up_thru, new_last_clean_interval, new_lost, new_blocklist, old_blocklist,
    new_up_cluster, cluster_snapshot, new_uuid, new_xinfo, new_hb_front_up, encode_features,
    new_nearfull_ratio, new_full_ratio, new_backfillfull_ratio, new_require_min_compat_client,
    new_require_osd_release, new_crush_node_flags, new_device_class_flags,
} }

/// Checksum of all bytes but the four at `at`.
fn crc_around(bytes: &[u8], at: usize) -> u32 {
    let before = bytes.get(..at).unwrap_or_default();
    let after = bytes.get(at.saturating_add(4)..).unwrap_or_default();
    crc32c::raw(crc32c::raw(CRC_SEED, before), after)
}
