//! `pg_pool_t`, versions 27 (Luminous) and up; written as the version it was read with, else 29.

use super::coding::{btree, btset, put_btree, put_section, section};
use super::{HitSetParams, MergeMeta, PgPool, PoolOpt, PoolSnap};
use crate::{Decoder, Encoder, Result, WireError};

/// Oldest version we read: one that has a creation time.
const VERSION_MIN: u8 = 27;
/// First version with `pg_num_target` and the fields up to the autoscale mode.
const VERSION_TARGETS: u8 = 28;
/// First version with the merge record.
const VERSION_MERGE: u8 = 29;

impl PgPool {
    pub(super) fn decode_from(d: &mut Decoder<'_>) -> Result<Self> {
        let (mut pool, section) = section(d, "pg_pool", VERSION_MERGE, VERSION_MIN, |d, version| {
            let mut pool = PgPool::default();
            pool.get_placement(d)?;
            pool.get_snaps_and_limits(d)?;
            pool.get_tiering(d)?;
            pool.get_rest(d, version)?;
            Ok(pool)
        })?;
        pool.section = section;
        Ok(pool)
    }

    fn get_placement(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        self.kind = d.u8()?;
        self.size = d.u8()?;
        self.crush_rule = d.u8()?;
        self.object_hash = d.u8()?;
        self.pg_num = d.u32()?;
        self.pgp_num = d.u32()?;
        self.localized = [d.u32()?, d.u32()?];
        self.last_change = d.epoch()?;
        Ok(())
    }

    fn get_snaps_and_limits(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        self.snap_seq = d.u64()?;
        self.snap_epoch = d.epoch()?;
        self.snaps = btree(d, 8 + 6, |d| d.u64(), get_snap)?;
        self.removed_snaps = d.intervals()?;
        self.auid = d.u64()?;
        self.flags = d.u64()?;
        self.crash_replay_interval = d.u32()?;
        self.min_size = d.u8()?;
        self.quota_max_bytes = d.u64()?;
        self.quota_max_objects = d.u64()?;
        Ok(())
    }

    fn get_tiering(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        self.tiers = btset(d, 8, |d| d.u64())?;
        self.tier_of = d.i64()?;
        self.cache_mode = d.u8()?;
        self.read_tier = d.i64()?;
        self.write_tier = d.i64()?;
        self.properties = d.string_map()?;
        let (_, raw) = section(d, "hit_set_params", 1, 1, |_, _| Ok(()))?;
        self.hit_set_params = HitSetParams { raw };
        self.hit_set_period_s = d.u32()?;
        self.hit_set_count = d.u32()?;
        self.stripe_width = d.u32()?;
        self.target_max_bytes = d.u64()?;
        self.target_max_objects = d.u64()?;
        self.cache_target_dirty_ratio_micro = d.u32()?;
        self.cache_target_full_ratio_micro = d.u32()?;
        self.cache_min_flush_age_s = d.u32()?;
        self.cache_min_evict_age_s = d.u32()?;
        Ok(())
    }

    fn get_rest(&mut self, d: &mut Decoder<'_>, version: u8) -> Result<()> {
        self.erasure_code_profile = d.string()?;
        self.last_force_op_resend_preluminous = d.epoch()?;
        self.min_read_recency_for_promote = d.u32()?;
        self.expected_num_objects = d.u64()?;
        self.cache_target_dirty_high_ratio_micro = d.u32()?;
        self.min_write_recency_for_promote = d.u32()?;
        self.use_gmt_hitset = d.bool()?;
        self.fast_read = d.bool()?;
        self.hit_set_grade_decay_rate = d.i32()?;
        self.hit_set_search_last_n = d.u32()?;
        (self.opts, self.opts_section) =
            section(d, "pool_opts", 2, 1, |d, _| btree(d, 4 + 4 + 4, |d| d.i32(), get_opt))?;
        self.last_force_op_resend_prenautilus = d.epoch()?;
        self.application_metadata = d.string_maps()?;
        self.create_time = d.utime()?;
        if version < VERSION_TARGETS {
            (self.pg_num_target, self.pgp_num_target) = (self.pg_num, self.pgp_num);
            self.pg_num_pending = self.pg_num;
            return Ok(());
        }
        self.pg_num_target = d.u32()?;
        self.pgp_num_target = d.u32()?;
        self.pg_num_pending = d.u32()?;
        self.old_pg_num_dec = [d.u32()?, d.u32()?];
        self.last_force_op_resend = d.epoch()?;
        self.pg_autoscale_mode = d.u8()?;
        if version >= VERSION_MERGE {
            (self.last_pg_merge_meta, self.merge_section) =
                section(d, "pg_merge_meta", 1, 1, |d, _| get_merge(d))?;
        }
        Ok(())
    }

    pub(super) fn encode_to(&self, e: &mut Encoder<'_>) {
        put_section(e, &self.section, |e| {
            self.put_placement(e);
            self.put_snaps_and_limits(e);
            self.put_tiering(e);
            self.put_rest(e);
        });
    }

    fn put_placement(&self, e: &mut Encoder<'_>) {
        e.bytes(&[self.kind, self.size, self.crush_rule, self.object_hash]);
        e.u32(self.pg_num);
        e.u32(self.pgp_num);
        self.localized.into_iter().for_each(|n| e.u32(n));
        e.epoch(self.last_change);
    }

    fn put_snaps_and_limits(&self, e: &mut Encoder<'_>) {
        e.u64(self.snap_seq);
        e.epoch(self.snap_epoch);
        put_btree(e, &self.snaps, |e, id| e.u64(*id), put_snap);
        e.intervals(&self.removed_snaps);
        e.u64(self.auid);
        e.u64(self.flags);
        e.u32(self.crash_replay_interval);
        e.u8(self.min_size);
        e.u64(self.quota_max_bytes);
        e.u64(self.quota_max_objects);
    }

    fn put_tiering(&self, e: &mut Encoder<'_>) {
        e.vec(&self.tiers, |e, tier| e.u64(*tier));
        e.i64(self.tier_of);
        e.u8(self.cache_mode);
        e.i64(self.read_tier);
        e.i64(self.write_tier);
        e.string_map(&self.properties);
        put_section(e, &self.hit_set_params.raw, |_| {});
        e.u32(self.hit_set_period_s);
        e.u32(self.hit_set_count);
        e.u32(self.stripe_width);
        e.u64(self.target_max_bytes);
        e.u64(self.target_max_objects);
        e.u32(self.cache_target_dirty_ratio_micro);
        e.u32(self.cache_target_full_ratio_micro);
        e.u32(self.cache_min_flush_age_s);
        e.u32(self.cache_min_evict_age_s);
    }

    fn put_rest(&self, e: &mut Encoder<'_>) {
        e.str(&self.erasure_code_profile);
        e.epoch(self.last_force_op_resend_preluminous);
        e.u32(self.min_read_recency_for_promote);
        e.u64(self.expected_num_objects);
        e.u32(self.cache_target_dirty_high_ratio_micro);
        e.u32(self.min_write_recency_for_promote);
        e.bool(self.use_gmt_hitset);
        e.bool(self.fast_read);
        e.i32(self.hit_set_grade_decay_rate);
        e.u32(self.hit_set_search_last_n);
        put_section(e, &self.opts_section, |e| put_btree(e, &self.opts, |e, key| e.i32(*key), put_opt));
        e.epoch(self.last_force_op_resend_prenautilus);
        e.string_maps(&self.application_metadata);
        e.utime(self.create_time);
        if self.section.version < VERSION_TARGETS {
            return;
        }
        e.u32(self.pg_num_target);
        e.u32(self.pgp_num_target);
        e.u32(self.pg_num_pending);
        self.old_pg_num_dec.into_iter().for_each(|n| e.u32(n));
        e.epoch(self.last_force_op_resend);
        e.u8(self.pg_autoscale_mode);
        if self.section.version >= VERSION_MERGE {
            put_section(e, &self.merge_section, |e| put_merge(e, &self.last_pg_merge_meta));
        }
    }
}

fn get_snap(d: &mut Decoder<'_>) -> Result<PoolSnap> {
    let mut body = d.envelope("pool_snap", 2)?.body;
    Ok(PoolSnap { snapid: body.u64()?, stamp: body.utime()?, name: body.string()? })
}

fn put_snap(e: &mut Encoder<'_>, snap: &PoolSnap) {
    e.envelope(2, 2, |e| {
        e.u64(snap.snapid);
        e.utime(snap.stamp);
        e.str(&snap.name);
    });
}

fn get_opt(d: &mut Decoder<'_>) -> Result<PoolOpt> {
    match d.i32()? {
        0 => d.string().map(PoolOpt::Text),
        1 => d.i64().map(PoolOpt::Int),
        2 => d.f64().map(PoolOpt::Float),
        kind => Err(WireError::BadValue { what: "type of a pool option", value: kind as u64 }),
    }
}

fn put_opt(e: &mut Encoder<'_>, opt: &PoolOpt) {
    match opt {
        PoolOpt::Text(text) => {
            e.i32(0);
            e.str(text);
        }
        PoolOpt::Int(n) => {
            e.i32(1);
            e.i64(*n);
        }
        PoolOpt::Float(x) => {
            e.i32(2);
            e.f64(*x);
        }
    }
}

fn get_merge(d: &mut Decoder<'_>) -> Result<MergeMeta> {
    Ok(MergeMeta {
        source_pg: d.pg()?,
        ready_epoch: d.epoch()?,
        last_epoch_started: d.epoch()?,
        last_epoch_clean: d.epoch()?,
        source_version: d.eversion()?,
        target_version: d.eversion()?,
    })
}

fn put_merge(e: &mut Encoder<'_>, merge: &MergeMeta) {
    e.pg(merge.source_pg);
    e.epoch(merge.ready_epoch);
    e.epoch(merge.last_epoch_started);
    e.epoch(merge.last_epoch_clean);
    e.versions([merge.source_version, merge.target_version]);
}
