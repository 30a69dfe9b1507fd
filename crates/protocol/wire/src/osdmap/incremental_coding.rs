//! The binary form of an incremental: `S(8,7){ client section; OSD section; u32 inc_crc; u32 full_crc }`.

use carmine_types::crc32c;

use super::coding::{PG_SIZE, STR_MIN, btree, btset, put_btree, put_section, section};
use super::full::{CRC_SEED, OUTER_VERSION};
use super::{Incremental, PgPool, Section};
use crate::addr::ADDR_BYTES_MIN;
use crate::{Decoder, Encoder, Result, WireError};

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
            section(&mut body, "incremental client section", 8, 8, |d, _| inc.get_client(d))?;
        ((), inc.osd_section) = section(&mut body, "incremental osd section", 9, 9, |d, _| inc.get_osd(d))?;
        if envelope.version > VERSION_NO_CRC {
            let at = bytes.len() - body.remaining();
            let found = body.u32()?;
            let computed = crc_around(bytes, at);
            if found != computed {
                return Err(WireError::BadCrc { what: "osdmap incremental", found, computed });
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
            put_section(e, &self.client_section, |e| self.put_client(e));
            put_section(e, &self.osd_section, |e| self.put_osd(e));
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

    fn get_client(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        self.fsid = d.uuid()?;
        self.epoch = d.epoch()?;
        self.modified = d.utime()?;
        self.new_pool_max = d.i64()?;
        self.new_flags = d.i32()?;
        self.fullmap = d.blob()?.to_vec();
        self.crush = d.blob()?.to_vec();
        self.new_max_osd = d.i32()?;
        self.new_pools = btree(d, 8 + 6, |d| d.i64(), PgPool::decode_from)?;
        self.new_pool_names = btree(d, 8 + STR_MIN, |d| d.i64(), |d| d.string())?;
        self.old_pools = btset(d, 8, |d| d.i64())?;
        self.new_up_client = btree(d, 9, |d| d.osd(), |d| d.addrvec())?;
        self.new_state = btree(d, 8, |d| d.osd(), |d| d.u32())?;
        self.new_weight = btree(d, 8, |d| d.osd(), |d| d.u32())?;
        self.new_pg_temp = d.pg_osds()?;
        self.new_primary_temp = d.pg_osd()?;
        self.new_primary_affinity = btree(d, 8, |d| d.osd(), |d| d.u32())?;
        self.new_erasure_code_profiles = d.string_maps()?;
        self.old_erasure_code_profiles = d.vec(STR_MIN, |d| d.string())?;
        self.new_pg_upmap = d.pg_osds()?;
        self.old_pg_upmap = btset(d, PG_SIZE, |d| d.pg())?;
        self.new_pg_upmap_items = d.pg_osd_pairs()?;
        self.old_pg_upmap_items = btset(d, PG_SIZE, |d| d.pg())?;
        self.new_removed_snaps = d.pool_intervals()?;
        self.new_purged_snaps = d.pool_intervals()?;
        self.new_last_up_change = d.utime()?;
        self.new_last_in_change = d.utime()?;
        Ok(())
    }

    fn put_client(&self, e: &mut Encoder<'_>) {
        e.uuid(self.fsid);
        e.epoch(self.epoch);
        e.utime(self.modified);
        e.i64(self.new_pool_max);
        e.i32(self.new_flags);
        e.blob(&self.fullmap);
        e.blob(&self.crush);
        e.i32(self.new_max_osd);
        put_btree(e, &self.new_pools, |e, id| e.i64(*id), |e, pool| pool.encode_to(e));
        put_btree(e, &self.new_pool_names, |e, id| e.i64(*id), |e, name| e.str(name));
        e.vec(&self.old_pools, |e, id| e.i64(*id));
        put_btree(e, &self.new_up_client, |e, osd| e.osd(osd), |e, addrs| e.addrvec(addrs));
        put_btree(e, &self.new_state, |e, osd| e.osd(osd), |e, state| e.u32(*state));
        put_btree(e, &self.new_weight, |e, osd| e.osd(osd), |e, weight| e.u32(*weight));
        e.pg_osds(&self.new_pg_temp);
        e.pg_osd(&self.new_primary_temp);
        put_btree(e, &self.new_primary_affinity, |e, osd| e.osd(osd), |e, affinity| e.u32(*affinity));
        e.string_maps(&self.new_erasure_code_profiles);
        e.vec(&self.old_erasure_code_profiles, |e, name| e.str(name));
        e.pg_osds(&self.new_pg_upmap);
        e.vec(&self.old_pg_upmap, |e, pg| e.pg(*pg));
        e.pg_osd_pairs(&self.new_pg_upmap_items);
        e.vec(&self.old_pg_upmap_items, |e, pg| e.pg(*pg));
        e.pool_intervals(&self.new_removed_snaps);
        e.pool_intervals(&self.new_purged_snaps);
        e.utime(self.new_last_up_change);
        e.utime(self.new_last_in_change);
    }

    fn get_osd(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        self.new_hb_back_up = btree(d, 9, |d| d.osd(), |d| d.addrvec())?;
        self.new_up_thru = btree(d, 8, |d| d.osd(), |d| d.epoch())?;
        self.new_last_clean_interval = btree(d, 12, |d| d.osd(), |d| Ok((d.epoch()?, d.epoch()?)))?;
        self.new_lost = btree(d, 8, |d| d.osd(), |d| d.epoch())?;
        self.new_blocklist = d.map(ADDR_BYTES_MIN + 8, |d| d.addr(), |d| d.utime())?;
        self.old_blocklist = d.vec(ADDR_BYTES_MIN, |d| d.addr())?;
        self.new_up_cluster = btree(d, 9, |d| d.osd(), |d| d.addrvec())?;
        self.cluster_snapshot = d.string()?;
        self.new_uuid = btree(d, 20, |d| d.osd(), |d| d.uuid())?;
        self.new_xinfo = btree(d, 10, |d| d.osd(), |d| d.osd_xinfo())?;
        self.new_hb_front_up = btree(d, 9, |d| d.osd(), |d| d.addrvec())?;
        self.encode_features = d.u64()?;
        self.new_nearfull_ratio = d.f32()?;
        self.new_full_ratio = d.f32()?;
        self.new_backfillfull_ratio = d.f32()?;
        self.new_require_min_compat_client = d.u8()?;
        self.new_require_osd_release = d.u8()?;
        self.new_crush_node_flags = d.i32_flags()?;
        self.new_device_class_flags = d.i32_flags()?;
        Ok(())
    }

    fn put_osd(&self, e: &mut Encoder<'_>) {
        put_btree(e, &self.new_hb_back_up, |e, osd| e.osd(osd), |e, addrs| e.addrvec(addrs));
        put_btree(e, &self.new_up_thru, |e, osd| e.osd(osd), |e, epoch| e.epoch(*epoch));
        put_btree(
            e,
            &self.new_last_clean_interval,
            |e, osd| e.osd(osd),
            |e, (begin, end)| {
                e.epoch(*begin);
                e.epoch(*end);
            },
        );
        put_btree(e, &self.new_lost, |e, osd| e.osd(osd), |e, epoch| e.epoch(*epoch));
        e.vec(&self.new_blocklist, |e, (addr, until)| {
            e.addr(addr);
            e.utime(*until);
        });
        e.vec(&self.old_blocklist, |e, addr| e.addr(addr));
        put_btree(e, &self.new_up_cluster, |e, osd| e.osd(osd), |e, addrs| e.addrvec(addrs));
        e.str(&self.cluster_snapshot);
        put_btree(e, &self.new_uuid, |e, osd| e.osd(osd), |e, uuid| e.uuid(*uuid));
        put_btree(e, &self.new_xinfo, |e, osd| e.osd(osd), |e, info| e.osd_xinfo(info));
        put_btree(e, &self.new_hb_front_up, |e, osd| e.osd(osd), |e, addrs| e.addrvec(addrs));
        e.u64(self.encode_features);
        e.f32(self.new_nearfull_ratio);
        e.f32(self.new_full_ratio);
        e.f32(self.new_backfillfull_ratio);
        e.u8(self.new_require_min_compat_client);
        e.u8(self.new_require_osd_release);
        e.i32_flags(&self.new_crush_node_flags);
        e.i32_flags(&self.new_device_class_flags);
    }
}

/// Checksum of all bytes but the four at `at`.
fn crc_around(bytes: &[u8], at: usize) -> u32 {
    let before = bytes.get(..at).unwrap_or_default();
    let after = bytes.get(at.saturating_add(4)..).unwrap_or_default();
    crc32c::raw(crc32c::raw(CRC_SEED, before), after)
}
