//! The binary form of a full map: `S(8,7){ client section; OSD section; u32 crc }`.

use std::sync::Arc;

use carmine_codec::layout;
use carmine_types::crc32c;

use super::{OsdMap, Section, check_osds, put_section, section};
use crate::crushmap::CrushMap;
use crate::{DecodeError, Decoder, Encoder, Result};

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
