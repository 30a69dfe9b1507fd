//! The binary form of a full map: `S(8,7){ client section; OSD section; u32 crc }`.

use std::sync::Arc;

use carmine_types::crc32c;

use super::coding::{STR_MIN, btree, check_osds, put_btree, put_section, section};
use super::{OsdMap, PgPool, Section};
use crate::addr::ADDR_BYTES_MIN;
use crate::crushmap::CrushMap;
use crate::{Decoder, Encoder, Result, WireError};

/// Seed of the checksums over maps.
pub(super) const CRC_SEED: u32 = u32::MAX;
/// Version of the outer envelope that we know: with checksums.
pub(super) const OUTER_VERSION: u8 = 8;
/// Smallest encoding of an address vector: marker and count (or a single address, which is longer).
const ADDRVEC_MIN: usize = 5;

impl OsdMap {
    /// Decodes a whole map and verifies its checksum. Every byte of `bytes` must belong to it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = Decoder::new(bytes, "osdmap");
        let envelope = d.envelope("osdmap", OUTER_VERSION)?;
        envelope.at_least(OUTER_VERSION)?;
        d.finish()?;
        let (mut map, mut body) = (OsdMap::default(), envelope.body);
        ((), map.client_section) =
            section(&mut body, "osdmap client section", 9, 9, |d, _| map.get_client(d))?;
        ((), map.osd_section) = section(&mut body, "osdmap osd section", 9, 9, |d, _| map.get_osd(d))?;
        let covered = bytes.len() - body.remaining();
        let found = body.u32()?;
        let computed = crc32c::raw(CRC_SEED, bytes.get(..covered).unwrap_or_default());
        if found != computed {
            return Err(WireError::BadCrc { what: "osdmap", found, computed });
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
            put_section(e, &self.client_section, |e| self.put_client(e));
            put_section(e, &self.osd_section, |e| self.put_osd(e));
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

    fn get_client(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        self.fsid = d.uuid()?;
        self.epoch = d.epoch()?;
        self.created = d.utime()?;
        self.modified = d.utime()?;
        self.pools = btree(d, 8 + 6, |d| d.i64(), PgPool::decode_from)?;
        self.pool_names = btree(d, 8 + STR_MIN, |d| d.i64(), |d| d.string())?;
        self.pool_max = d.i32()?;
        self.flags = d.u32()?;
        self.max_osd = check_osds("osdmap max_osd", d.i32()?.into())?;
        self.osd_state = d.vec(4, |d| d.u32())?;
        self.osd_weight = d.vec(4, |d| d.u32())?;
        self.client_addrs = d.vec(ADDRVEC_MIN, |d| d.addrvec())?;
        self.pg_temp = d.pg_osds()?;
        self.primary_temp = d.pg_osd()?;
        self.primary_affinity = d.vec(4, |d| d.u32())?;
        self.crush = Arc::new(CrushMap::decode(d.blob()?)?);
        self.erasure_code_profiles = d.string_maps()?;
        self.pg_upmap = d.pg_osds()?;
        self.pg_upmap_items = d.pg_osd_pairs()?;
        self.crush_version = d.i32()?;
        self.new_removed_snaps = d.pool_intervals()?;
        self.new_purged_snaps = d.pool_intervals()?;
        self.last_up_change = d.utime()?;
        self.last_in_change = d.utime()?;
        for (what, len) in [
            ("osdmap osd_state", self.osd_state.len()),
            ("osdmap osd_weight", self.osd_weight.len()),
            ("osdmap client addresses", self.client_addrs.len()),
        ] {
            check_osds(what, len as i64)?;
        }
        Ok(())
    }

    fn put_client(&self, e: &mut Encoder<'_>) {
        e.uuid(self.fsid);
        e.epoch(self.epoch);
        e.utime(self.created);
        e.utime(self.modified);
        put_btree(e, &self.pools, |e, id| e.i64(*id), |e, pool| pool.encode_to(e));
        put_btree(e, &self.pool_names, |e, id| e.i64(*id), |e, name| e.str(name));
        e.i32(self.pool_max);
        e.u32(self.flags);
        e.u32(self.max_osd);
        e.vec(&self.osd_state, |e, state| e.u32(*state));
        e.vec(&self.osd_weight, |e, weight| e.u32(*weight));
        e.vec(&self.client_addrs, |e, addrs| e.addrvec(addrs));
        e.pg_osds(&self.pg_temp);
        e.pg_osd(&self.primary_temp);
        e.vec(&self.primary_affinity, |e, affinity| e.u32(*affinity));
        e.blob(&self.crush.encode());
        e.string_maps(&self.erasure_code_profiles);
        e.pg_osds(&self.pg_upmap);
        e.pg_osd_pairs(&self.pg_upmap_items);
        e.i32(self.crush_version);
        e.pool_intervals(&self.new_removed_snaps);
        e.pool_intervals(&self.new_purged_snaps);
        e.utime(self.last_up_change);
        e.utime(self.last_in_change);
    }

    fn get_osd(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        self.hb_back_addrs = d.vec(ADDRVEC_MIN, |d| d.addrvec())?;
        self.osd_info = d.vec(25, |d| d.osd_info())?;
        self.blocklist = d.map(ADDR_BYTES_MIN + 8, |d| d.addr(), |d| d.utime())?;
        self.cluster_addrs = d.vec(ADDRVEC_MIN, |d| d.addrvec())?;
        self.cluster_snapshot_epoch = d.epoch()?;
        self.cluster_snapshot = d.string()?;
        self.osd_uuid = d.vec(16, |d| d.uuid())?;
        self.osd_xinfo = d.vec(6, |d| d.osd_xinfo())?;
        self.hb_front_addrs = d.vec(ADDRVEC_MIN, |d| d.addrvec())?;
        self.nearfull_ratio = d.f32()?;
        self.full_ratio = d.f32()?;
        self.backfillfull_ratio = d.f32()?;
        self.require_min_compat_client = d.u8()?;
        self.require_osd_release = d.u8()?;
        self.removed_snaps_queue = d.pool_intervals()?;
        self.crush_node_flags = d.i32_flags()?;
        self.device_class_flags = d.i32_flags()?;
        Ok(())
    }

    fn put_osd(&self, e: &mut Encoder<'_>) {
        e.vec(&self.hb_back_addrs, |e, addrs| e.addrvec(addrs));
        e.vec(&self.osd_info, |e, info| e.osd_info(info));
        e.vec(&self.blocklist, |e, (addr, until)| {
            e.addr(addr);
            e.utime(*until);
        });
        e.vec(&self.cluster_addrs, |e, addrs| e.addrvec(addrs));
        e.epoch(self.cluster_snapshot_epoch);
        e.str(&self.cluster_snapshot);
        e.vec(&self.osd_uuid, |e, uuid| e.uuid(*uuid));
        e.vec(&self.osd_xinfo, |e, info| e.osd_xinfo(info));
        e.vec(&self.hb_front_addrs, |e, addrs| e.addrvec(addrs));
        e.f32(self.nearfull_ratio);
        e.f32(self.full_ratio);
        e.f32(self.backfillfull_ratio);
        e.u8(self.require_min_compat_client);
        e.u8(self.require_osd_release);
        e.pool_intervals(&self.removed_snaps_queue);
        e.i32_flags(&self.crush_node_flags);
        e.i32_flags(&self.device_class_flags);
    }
}
