//! Takes a pool to the number of PGs that a user wants, in steps. In a real cluster the manager does this; there is none here.
//!
//! As in Ceph, new PGs come while all PGs of the pool are well, and are moved to where they belong only as far as about
//! [`MISPLACED_MAX`] of all objects are not there yet. Where there are to be fewer, the last one is merged as soon as it and the PG that gets its
//! objects are well and on the same OSDs, and PGs are moved while that is not so.

use std::collections::BTreeMap;
use std::time::Duration;

use carmine_types::{Epoch, PgId};
use carmine_wire::osdmap::PgPool;
use carmine_wire::pg_stat::state;
use tracing::warn;

use crate::change::merge::{began, exception, is_pending, may_begin, participants};
use crate::change::pg_num::{is_settled, may_step};
use crate::change::{Change, Merge};
use crate::command::View;
use crate::mon::Mon;
use crate::report::autoscale;
use crate::stats::unsigned;

/// Most PGs that one map adds: each OSD divides a few of its PGs at a time.
const SPLITS_MAX: u32 = 1_024;
/// Share of misplaced objects at which no more are moved (Ceph's `target_max_misplaced_ratio`).
const MISPLACED_MAX: f64 = 0.05;
/// Clients of two PGs wait while these get ready to be merged: after this time without a word the merge is given up.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time until it is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// Of each pool whose last merge was not done: when it began, or was given up.
pub(crate) type Merges = BTreeMap<i64, MergeTry>;

/// A merge that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeTry {
    /// The map in which it began.
    epoch: Epoch,
    /// When this monitor saw that it began, or that it was given up, by the reactor's clock.
    at_ns: u64,
    is_given_up: bool,
}

impl MergeTry {
    fn has_lasted(&self, now_ns: u64, time: Duration) -> bool {
        now_ns.saturating_sub(self.at_ns) >= time.as_nanos() as u64
    }
}

impl Mon {
    /// Whether some pool has not reached the number of PGs, or their places, that a user wants.
    pub(crate) fn is_pacing(&self) -> bool {
        !self.current().map.pools.values().all(is_settled)
    }

    /// Takes the next step, if it is due; and wishes what the autoscaler would, where it may.
    pub(crate) fn judge_pg_nums(&self) {
        let map = &self.current().map;
        if self.is_pacing() {
            self.judge_merges();
            let may_merge = |pool| !self.merges.borrow().contains_key(&pool);
            if let Some(step) = self.with_view(&[], |view| next_step(view, may_merge)) {
                self.note(map, step);
            }
        }
        if map.pools.values().any(autoscale::acts) {
            self.with_view(&[], autoscale::wishes).into_iter().for_each(|wish| self.note(map, wish));
        }
    }

    /// Gives up a merge of which no primary says a word, and notes which pools are not to try again yet.
    pub(crate) fn judge_merges(&self) {
        let (current, now_ns) = (self.current(), self.shard.now_ns());
        let pools = &current.map.pools;
        let mut merges = self.merges.borrow_mut();
        for (id, pool) in pools.iter().filter(|(_, pool)| is_pending(pool)) {
            let begun = MergeTry { epoch: began(pool), at_ns: now_ns, is_given_up: false };
            let merge = merges.entry(*id).or_insert(begun);
            if merge.epoch != begun.epoch {
                *merge = begun;
            } else if merge.has_lasted(now_ns, READY_MAX) {
                warn!("no word of the merge of pg {}: it is given up", PgId::new(*id, pool.pg_num_pending));
                self.note(&current.map, Change::Merge { pool: *id, merge: Merge::GiveUp });
            }
        }
        merges.retain(|id, merge| {
            let Some(pool) = pools.get(id) else { return false };
            if !is_pending(pool) && !merge.is_given_up {
                (merge.is_given_up, merge.at_ns) = (true, now_ns);
            }
            let is_over = merge.is_given_up && merge.has_lasted(now_ns, RETRY);
            let is_done = pool.last_pg_merge_meta.ready_epoch > merge.epoch;
            !is_over && !is_done
        });
    }
}

/// The step that is due; one at a time, whatever the pool. Pools merge PGs only if they may.
pub(crate) fn next_step(view: &View<'_>, may_merge: impl Fn(i64) -> bool) -> Option<Change> {
    let waiting = view.map.pools.iter().filter(|(_, pool)| !is_settled(pool));
    waiting
        .filter(|(id, pool)| may_step(view.map, **id, pool))
        .find_map(|(id, pool)| step_of(view, *id, pool, may_merge(*id)))
}

fn step_of(view: &View<'_>, id: i64, pool: &PgPool, may_merge: bool) -> Option<Change> {
    let PgPool { pg_num, pgp_num, pg_num_target, pgp_num_target, .. } = *pool;
    if pg_num < pg_num_target {
        let pg_num = pg_num_target.min(pg_num.saturating_add(SPLITS_MAX));
        let is_due = are_all(view, id, pool, state::ACTIVE | state::CLEAN);
        return is_due.then_some(Change::PgStep { pool: id, pg_num, pgp_num });
    }
    if let Some(merge) = merge_of(view, id, pool).filter(|_| may_merge) {
        return Some(merge);
    }
    let goal = pgp_num_target.min(pg_num);
    if goal == pgp_num || !are_all(view, id, pool, state::ACTIVE) {
        return None;
    }
    let most = ((f64::from(pg_num) * room(view)?) as u32).max(1);
    let next = if goal > pgp_num {
        goal.min(pgp_num.saturating_add(most))
    } else {
        goal.max(pgp_num.saturating_sub(most))
    };
    Some(Change::PgStep { pool: id, pg_num, pgp_num: next })
}

/// The share of the objects that may be misplaced by the next step; `None` if too many are.
fn room(view: &View<'_>) -> Option<f64> {
    let held = view.stats.held();
    let misplaced =
        unsigned(held.num_objects_misplaced) as f64 / unsigned(held.num_object_copies).max(1) as f64;
    (misplaced < MISPLACED_MAX).then(|| (MISPLACED_MAX - misplaced).min(MISPLACED_MAX / 2.0))
}

/// The merge that may begin: both PGs are where CRUSH wants them, whole, and on the same OSDs.
fn merge_of(view: &View<'_>, id: i64, pool: &PgPool) -> Option<Change> {
    let pgs = participants(id, pool).filter(|_| pool.pg_num > pool.pg_num_target)?;
    if let Some(end) = exception(view.map, pgs) {
        return Some(end);
    }
    let [source, target] = pgs.map(|pg| view.placement.mapping(pg));
    let is_same = source.acting == target.acting && source.acting_primary == target.acting_primary;
    let are_in_place = [source, target].iter().all(|at| at.up == at.acting);
    let are_whole = pgs.iter().all(|pg| is_in(view, *pg, pool, state::ACTIVE | state::CLEAN));
    let is_due = may_begin(view.map, id, pool) && is_same && are_in_place && are_whole;
    is_due.then_some(Change::Merge { pool: id, merge: Merge::Begin })
}

/// Whether all PGs of a pool are in these states.
fn are_all(view: &View<'_>, id: i64, pool: &PgPool, states: u64) -> bool {
    (0..pool.pg_num).all(|ps| is_in(view, PgId::new(id, ps), pool, states))
}

/// Whether a PG is in these states, by the word of its primary since the pool was last changed.
fn is_in(view: &View<'_>, pg: PgId, pool: &PgPool, states: u64) -> bool {
    let at = view.placement.mapping(pg);
    let stat = at.acting_primary.and_then(|primary| view.stats.pg(pg, primary));
    stat.is_some_and(|stat| {
        stat.states() & states == states
            && stat.reported_epoch >= pool.last_change
            && stat.acting == at.acting.as_slice()
    })
}
