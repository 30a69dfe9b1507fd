//! A pool: `pg_pool_t`.

use std::collections::{BTreeMap, BTreeSet};

use carmine_codec::basic::size;
use carmine_codec::{Coded, coded, layout};
use carmine_types::{Epoch, UTime};

use super::consts::{HASH_RJENKINS, POOL_ERASURE, POOL_HASHPSPOOL, POOL_REPLICATED};
use super::{IntervalSet, MergeMeta, Section, StringMap, put_section, section};
use crate::{DecodeError, Decoder, Encoder, Result};

coded! {
    /// A snapshot of a whole pool.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PoolSnap: versioned "pool_snap", 2, compat 2, oldest 0 {
        /// Snapshot id.
        pub snapid: u64,
        /// When it was made.
        pub stamp: UTime,
        /// Its name.
        pub name: String,
    }
}

/// Value of an entry of a pool's options (`pool_opts_t`).
#[derive(Clone, Debug, PartialEq)]
pub enum PoolOpt {
    /// Type 0.
    Text(String),
    /// Type 1.
    Int(i64),
    /// Type 2.
    Float(f64),
}

/// Parameters of a cache tier's hit sets; only carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitSetParams {
    /// Versions and body of the envelope; the body of "none" is one zero byte.
    pub raw: Section,
}

carmine_types::defaults! {
    /// A pool of the OSDMap. `PgPool::replicated` makes one as Pacific would.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PgPool {
        /// 1 replicated, 3 erasure coded.
        pub kind: u8 = POOL_REPLICATED,
        /// Number of replicas (or of chunks).
        pub size: u8,
        /// Rule that places its PGs: `ruleset` of a crush rule, which is its slot.
        pub crush_rule: u8,
        /// 2 is rjenkins.
        pub object_hash: u8 = HASH_RJENKINS,
        /// Number of PGs.
        pub pg_num: u32,
        /// Number of PGs as used for placement.
        pub pgp_num: u32,
        /// Two former fields, always 0.
        pub localized: [u32; 2],
        /// Epoch of the last change.
        pub last_change: Epoch,
        /// Highest snapshot id.
        pub snap_seq: u64,
        /// Epoch of the last snapshot change.
        pub snap_epoch: Epoch,
        /// Pool snapshots by id.
        pub snaps: BTreeMap<u64, PoolSnap>,
        /// Removed self-managed snapshots.
        pub removed_snaps: IntervalSet,
        /// Former owner id, 0.
        pub auid: u64,
        /// See `consts::POOL_FLAG_NAMES`.
        pub flags: u64 = POOL_HASHPSPOOL,
        /// Former replay interval, 0.
        pub crash_replay_interval: u32,
        /// Replicas needed to take I/O.
        pub min_size: u8,
        /// Byte quota, 0 = none.
        pub quota_max_bytes: u64,
        /// Object quota, 0 = none.
        pub quota_max_objects: u64,
        /// Cache tiers.
        pub tiers: BTreeSet<u64>,
        /// Base pool of this tier, -1 = none.
        pub tier_of: i64 = -1,
        /// 0 = none.
        pub cache_mode: u8,
        /// Tier that takes reads, -1 = none.
        pub read_tier: i64 = -1,
        /// Tier that takes writes, -1 = none.
        pub write_tier: i64 = -1,
        /// Unused dictionary.
        pub properties: StringMap,
        /// Cache tier: hit sets.
        pub hit_set_params: HitSetParams = HitSetParams { raw: Section { version: 1, compat: 1, tail: vec![0] } },
        /// Cache tier: seconds per hit set.
        pub hit_set_period_s: u32,
        /// Cache tier: number of hit sets.
        pub hit_set_count: u32,
        /// Stripe width of an erasure-coded pool, bytes.
        pub stripe_width: u32,
        /// Cache tier: size limit.
        pub target_max_bytes: u64,
        /// Cache tier: object limit.
        pub target_max_objects: u64,
        /// Cache tier: millionths of dirty data at which to flush.
        pub cache_target_dirty_ratio_micro: u32 = 400_000,
        /// Cache tier: millionths at which to evict.
        pub cache_target_full_ratio_micro: u32 = 800_000,
        /// Cache tier: seconds before a flush.
        pub cache_min_flush_age_s: u32,
        /// Cache tier: seconds before an eviction.
        pub cache_min_evict_age_s: u32,
        /// Name of the erasure code profile.
        pub erasure_code_profile: String,
        /// Clients older than Luminous resend ops when this epoch passes.
        pub last_force_op_resend_preluminous: Epoch,
        /// Cache tier.
        pub min_read_recency_for_promote: u32,
        /// Hint for directory splitting.
        pub expected_num_objects: u64,
        /// Cache tier.
        pub cache_target_dirty_high_ratio_micro: u32 = 600_000,
        /// Cache tier.
        pub min_write_recency_for_promote: u32,
        /// Cache tier.
        pub use_gmt_hitset: bool = true,
        /// Erasure coding: read all shards.
        pub fast_read: bool,
        /// Cache tier.
        pub hit_set_grade_decay_rate: i32,
        /// Cache tier.
        pub hit_set_search_last_n: u32,
        /// Options by key number.
        pub opts: BTreeMap<i32, PoolOpt>,
        /// Versions of the options' envelope.
        pub opts_section: Section = Section::new(2, 1),
        /// Clients older than Nautilus resend ops when this epoch passes.
        pub last_force_op_resend_prenautilus: Epoch,
        /// Which application uses the pool, with its own keys.
        pub application_metadata: BTreeMap<String, StringMap>,
        /// When the pool was made.
        pub create_time: UTime,
        /// Wanted number of PGs.
        pub pg_num_target: u32,
        /// Wanted number of PGs for placement.
        pub pgp_num_target: u32,
        /// Number of PGs after the merge under way.
        pub pg_num_pending: u32,
        /// Two former fields, always 0.
        pub old_pg_num_dec: [u32; 2],
        /// Clients resend ops when this epoch passes.
        pub last_force_op_resend: Epoch,
        /// 0 off, 1 warn, 2 on.
        pub pg_autoscale_mode: u8,
        /// The record of the last merge.
        pub last_pg_merge_meta: MergeMeta,
        /// Versions of the merge record's envelope.
        pub merge_section: Section = Section::new(1, 1),
        /// Versions of the pool's envelope, and what a newer writer added.
        pub section: Section = Section::new(29, 5),
    }
}

impl PgPool {
    /// A replicated pool with the values of a fresh Pacific pool; autoscaling off.
    pub fn replicated(size: u8, min_size: u8, pg_num: u32, crush_rule: u8, epoch: Epoch, now: UTime) -> Self {
        Self {
            size,
            min_size,
            crush_rule,
            pg_num,
            pgp_num: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            pg_num_pending: pg_num,
            last_change: epoch,
            create_time: now,
            ..Self::default()
        }
    }

    /// Id of the pool snapshot of this name.
    pub fn snap_id(&self, name: &str) -> Option<u64> {
        self.snaps.values().find(|snap| snap.name == name).map(|snap| snap.snapid)
    }

    /// Whether it is erasure coded, so that the position in a PG's set matters and holes stay.
    pub fn is_erasure(&self) -> bool {
        self.kind == POOL_ERASURE
    }
}

// `pg_pool_t`, versions 27 (Luminous) and up; written as the version it was read with, else 29.

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
