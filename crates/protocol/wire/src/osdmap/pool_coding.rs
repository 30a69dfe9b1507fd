//! `pg_pool_t`, versions 27 (Luminous) and up; written as the version it was read with, else 29.

use carmine_codec::basic::size;
use carmine_codec::{Coded, layout};

use super::{HitSetParams, PgPool, PoolOpt, put_section, section};
use crate::{DecodeError, Decoder, Encoder, Result};

/// Oldest version we read: one that has a creation time.
const VERSION_MIN: u8 = 27;
/// First version with `pg_num_target` and the fields up to the autoscale mode.
const VERSION_TARGETS: u8 = 28;
/// First version with the merge record.
const VERSION_MERGE: u8 = 29;

impl Coded for PgPool {
    const BYTES_MIN: usize = size::ENVELOPE;

    fn put(&self, e: &mut Encoder<'_>) {
        let version = self.section.version;
        put_section(e, &self.section, |e| {
            self.put_until_options(e, version);
            put_section(e, &self.opts_section, |e| e.put(&self.opts));
            self.put_after_options(e, version);
            if version >= VERSION_MERGE {
                put_section(e, &self.merge_section, |e| e.put(&self.last_pg_merge_meta));
            }
        });
    }

    fn get(d: &mut Decoder<'_>) -> Result<PgPool> {
        let (mut pool, section) = section(d, "pg_pool", VERSION_MERGE, VERSION_MIN, |d, version| {
            let mut pool = PgPool::default();
            pool.get_until_options(d, version)?;
            (pool.opts, pool.opts_section) = section(d, "pool_opts", 2, 1, |d, _| d.get())?;
            pool.get_after_options(d, version)?;
            if version < VERSION_TARGETS {
                (pool.pg_num_target, pool.pgp_num_target) = (pool.pg_num, pool.pgp_num);
                pool.pg_num_pending = pool.pg_num;
            }
            if version >= VERSION_MERGE {
                (pool.last_pg_merge_meta, pool.merge_section) =
                    section(d, "pg_merge_meta", 1, 1, |d, _| d.get())?;
            }
            Ok(pool)
        })?;
        pool.section = section;
        Ok(pool)
    }
}

layout! { PgPool: put_until_options, get_until_options {
    kind, size, crush_rule, object_hash, pg_num, pgp_num, localized, last_change,
    snap_seq, snap_epoch, snaps, removed_snaps, auid, flags, crash_replay_interval, min_size, quota_max_bytes,
    quota_max_objects,
    tiers, tier_of, cache_mode, read_tier, write_tier, properties, hit_set_params, hit_set_period_s, hit_set_count,
    stripe_width, target_max_bytes, target_max_objects, cache_target_dirty_ratio_micro, cache_target_full_ratio_micro,
    cache_min_flush_age_s, cache_min_evict_age_s,
    erasure_code_profile, last_force_op_resend_preluminous, min_read_recency_for_promote, expected_num_objects,
    cache_target_dirty_high_ratio_micro, min_write_recency_for_promote, use_gmt_hitset, fast_read,
    hit_set_grade_decay_rate, hit_set_search_last_n,
} }

layout! { PgPool: put_after_options, get_after_options {
    last_force_op_resend_prenautilus, application_metadata, create_time,
    // VERSION_TARGETS
    pg_num_target; since 28, pgp_num_target; since 28, pg_num_pending; since 28, old_pg_num_dec; since 28,
    last_force_op_resend; since 28, pg_autoscale_mode; since 28,
} }

impl Coded for HitSetParams {
    const BYTES_MIN: usize = size::ENVELOPE;

    fn put(&self, e: &mut Encoder<'_>) {
        put_section(e, &self.raw, |_| {});
    }

    fn get(d: &mut Decoder<'_>) -> Result<HitSetParams> {
        let ((), raw) = section(d, "hit_set_params", 1, 1, |_, _| Ok(()))?;
        Ok(HitSetParams { raw })
    }
}

impl Coded for PoolOpt {
    const BYTES_MIN: usize = 4 + 4;

    fn put(&self, e: &mut Encoder<'_>) {
        match self {
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

    fn get(d: &mut Decoder<'_>) -> Result<PoolOpt> {
        match d.i32()? {
            0 => d.string().map(PoolOpt::Text),
            1 => d.i64().map(PoolOpt::Int),
            2 => d.f64().map(PoolOpt::Float),
            kind => Err(DecodeError::BadValue { what: "type of a pool option", value: kind as u64 }),
        }
    }
}
