//! Quotas of pools. Clients stop writing to a pool whose flag says that it is full.

use std::collections::BTreeMap;

use carmine_types::UTime;
use carmine_wire::osdmap::consts::{POOL_FULL, POOL_FULL_QUOTA};
use carmine_wire::osdmap::{Incremental, OsdMap, PgPool};
use carmine_wire::pg_stat::ObjectStatSum;

use super::{Change, Refusal, pool};
use crate::stats::unsigned;

/// Limits of a pool; `None` leaves a limit as it is, 0 is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quota {
    pub(crate) objects: Option<u64>,
    pub(crate) bytes: Option<u64>,
}

pub(super) fn set(
    map: &OsdMap,
    name: &str,
    quota: &Quota,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    pool::edit(map, name, now, |pool| {
        pool.quota_max_objects = quota.objects.unwrap_or(pool.quota_max_objects);
        pool.quota_max_bytes = quota.bytes.unwrap_or(pool.quota_max_bytes);
        Ok(())
    })
}

/// Changes that are due for the pools' present use, which is `held`.
pub(crate) fn due(map: &OsdMap, held: &BTreeMap<i64, ObjectStatSum>) -> Vec<Change> {
    let news = |(id, pool): (&i64, &PgPool)| {
        let full = is_over(pool, &held.get(id).copied().unwrap_or_default());
        (full != (pool.flags & POOL_FULL_QUOTA != 0)).then_some(Change::QuotaReached { pool: *id, full })
    };
    map.pools.iter().filter_map(news).collect()
}

fn is_over(pool: &PgPool, held: &ObjectStatSum) -> bool {
    let reached = |limit: u64, held: i64| limit != 0 && unsigned(held) >= limit;
    reached(pool.quota_max_objects, held.num_objects) || reached(pool.quota_max_bytes, held.num_bytes)
}

/// Notes that a quota is reached, or no longer. A pool whose OSDs are full stays full.
pub(super) fn reached(map: &OsdMap, id: i64, full: bool, now: UTime) -> Option<Incremental> {
    let old = map.pool(id).filter(|pool| full != (pool.flags & POOL_FULL_QUOTA != 0))?;
    let kept = old.flags & !POOL_FULL_QUOTA;
    let flags = match full {
        true => kept | POOL_FULL_QUOTA | POOL_FULL,
        false if super::fullness::is_any_full(map) => kept,
        false => kept & !POOL_FULL,
    };
    Some(pool::changed(map, id, PgPool { flags, ..old.clone() }, now))
}
