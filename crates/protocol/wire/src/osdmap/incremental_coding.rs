//! The binary form of an incremental: `S(8,7){ client section; OSD section; u32 inc_crc; u32 full_crc }`.

use carmine_codec::layout;
use carmine_types::crc32c;

use super::full::{CRC_SEED, OUTER_VERSION};
use super::{Incremental, Section, put_section, section};
use crate::{DecodeError, Decoder, Encoder, Result};

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
