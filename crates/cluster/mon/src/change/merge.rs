//! Merges: a pool that has more PGs than are wanted loses its last one, and another PG gets that one's objects.
//!
//! As in Ceph this takes two maps. In the first one `pg_num_pending` is one less than `pg_num`: the primary of both PGs lets no more writes
//! in, and says when none is in flight (MOSDPGReadyToMerge). With that word `pg_num` follows in the second one. If the word is that they
//! cannot be merged, or does not come, `pg_num_pending` goes back, and clients are served as before.

use carmine_crush::pg_mapping;
use carmine_types::{Epoch, PgId, UTime};
use carmine_wire::osd_msg::ReadyToMerge;
use carmine_wire::osdmap::{Incremental, MergeMeta, OsdMap, PgPool};

use super::Change;
use super::pg_num::{is_one_missing, may_step};
use super::pool::changed;
use super::upmap::Upmap;

/// What becomes of a pool's last PG.
#[derive(Clone, Debug)]
pub(crate) enum Merge {
    /// The monitor announces that it merges the PG.
    Begin,
    /// The monitor keeps the PG.
    GiveUp,
    /// The monitor merges the PG, and records what its primary said.
    End(MergeMeta),
}

/// A pool's last PG, and the one that its objects fall to when it has one PG less.
pub(crate) fn participants(id: i64, pool: &PgPool) -> Option<[PgId; 2]> {
    let rest = pool.pg_num.checked_sub(1).filter(|rest| *rest > 0)?;
    Some([PgId::new(id, rest), PgId::of_hash(id, rest, rest)])
}

/// A merge has begun, and not ended.
pub(crate) fn is_pending(pool: &PgPool) -> bool {
    pool.pg_num_pending != pool.pg_num
}

/// The map in which the pending merge began. Clients of before Nautilus know nothing of pending merges and send again at this map.
pub(crate) fn began(pool: &PgPool) -> Epoch {
    pool.last_force_op_resend_prenautilus
}

/// A PG's exception from CRUSH that is to end before it can be merged.
pub(crate) fn exception(map: &OsdMap, pgs: [PgId; 2]) -> Option<Change> {
    let has = |pg: &PgId| (map.pg_upmap.contains_key(pg), map.pg_upmap_items.contains_key(pg));
    pgs.into_iter().find_map(|pg| match has(&pg) {
        (true, _) => Some(Change::Upmap { pg, upmap: Upmap::Osds(Vec::new()) }),
        (_, true) => Some(Change::Upmap { pg, upmap: Upmap::Items(Vec::new()) }),
        _ => None,
    })
}

/// What a primary's word means for the pending merge; `None`, if it is of another one, or of an earlier try.
pub(crate) fn heed(map: &OsdMap, told: &ReadyToMerge) -> Option<Change> {
    let id = told.source.pool;
    let pool = map.pool(id).filter(|pool| is_pending(pool) && told.source.ps == pool.pg_num_pending)?;
    let version = u32::try_from(told.version).ok().filter(|version| *version >= began(pool).0)?;
    let meta = MergeMeta {
        source_pg: told.source,
        ready_epoch: Epoch(version.checked_add(1)?),
        last_epoch_started: told.last_epoch_started,
        last_epoch_clean: told.last_epoch_clean,
        source_version: told.source_version,
        target_version: told.target_version,
    };
    let merge = if told.ready { Merge::End(meta) } else { Merge::GiveUp };
    Some(Change::Merge { pool: id, merge })
}

/// The map of the next step; `None` if that is not due (any longer).
pub(super) fn plan(map: &OsdMap, id: i64, merge: &Merge, now: UTime) -> Option<Incremental> {
    let (pool, epoch) = (map.pool(id)?, Incremental::next(map, now).epoch);
    let is_due = match merge {
        Merge::Begin => may_begin(map, id, pool),
        Merge::GiveUp => is_pending(pool),
        Merge::End(meta) => is_pending(pool) && is_of(map, id, pool, meta),
    };
    if !is_due {
        return None;
    }
    let mut next = PgPool { last_force_op_resend_prenautilus: epoch, ..pool.clone() };
    match merge {
        Merge::Begin => {
            next.pg_num_pending = pool.pg_num - 1;
            next.last_force_op_resend_preluminous = epoch;
        }
        Merge::GiveUp => {
            next.pg_num_pending = pool.pg_num;
            next.last_force_op_resend_preluminous = epoch;
        }
        Merge::End(meta) => {
            next.pg_num = pool.pg_num_pending;
            next.last_pg_merge_meta = *meta;
            assert!(next.pgp_num <= next.pg_num, "a PG was merged that was placed apart: {next:?}");
        }
    }
    let mut inc = changed(map, id, next, now);
    if let Merge::End(MergeMeta { source_pg, .. }) = merge {
        inc.old_pg_upmap.extend(map.pg_upmap.contains_key(source_pg).then_some(*source_pg));
        inc.old_pg_upmap_items.extend(map.pg_upmap_items.contains_key(source_pg).then_some(*source_pg));
    }
    Some(inc)
}

/// Whether this map allows that the pool's last PG is merged. OSDs that are down and may come back with PGs as they were are waited for.
pub(crate) fn may_begin(map: &OsdMap, id: i64, pool: &PgPool) -> bool {
    let Some([source, target]) = participants(id, pool) else { return false };
    let has_temp = |pg| map.pg_temp.contains_key(&pg) || map.primary_temp.contains_key(&pg);
    let is_wanted = pool.pg_num > pool.pg_num_target && pool.pgp_num < pool.pg_num;
    is_wanted && may_step(map, id, pool) && !has_temp(source) && !has_temp(target) && !is_one_missing(map)
}

/// Whether the message names the PG that the map is about to merge, was sent since the map announced that, and both PGs are still on the
/// same OSDs.
fn is_of(map: &OsdMap, id: i64, pool: &PgPool, meta: &MergeMeta) -> bool {
    let at = |pg| pg_mapping(map, pg);
    let is_same =
        |[source, target]: [PgId; 2]| source == meta.source_pg && at(source).acting == at(target).acting;
    meta.ready_epoch > began(pool) && participants(id, pool).is_some_and(is_same)
}
