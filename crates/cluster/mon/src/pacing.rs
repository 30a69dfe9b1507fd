//! Takes a pool to the number of PGs that a user wants, in steps. In a real cluster the manager does this; there is none here.
//!
//! As in Ceph, new PGs come while all PGs of the pool are well, and are moved to where they belong only as far as about
//! [`MISPLACED_MAX`] of all objects are not there yet.

use carmine_types::PgId;
use carmine_wire::osdmap::PgPool;
use carmine_wire::pg_stat::state;

use crate::change::Change;
use crate::change::pg_num::{is_settled, may_step};
use crate::command::View;
use crate::mon::Mon;
use crate::report::autoscale;
use crate::stats::unsigned;

/// Most PGs that one map adds: each OSD divides a few of its PGs at a time.
const SPLITS_MAX: u32 = 1_024;
/// Share of misplaced objects at which no more are moved (Ceph's `target_max_misplaced_ratio`).
const MISPLACED_MAX: f64 = 0.05;

impl Mon {
    /// Whether some pool has not reached the number of PGs, or their places, that a user wants.
    pub(crate) fn is_pacing(&self) -> bool {
        !self.current().map.pools.values().all(is_settled)
    }

    /// Takes the next step, if it is due; and wishes what the autoscaler would, where it may.
    pub(crate) fn judge_pg_nums(&self) {
        let map = &self.current().map;
        if self.is_pacing()
            && let Some(step) = self.with_view(&[], next_step)
        {
            self.note(map, step);
        }
        if map.pools.values().any(autoscale::acts) {
            self.with_view(&[], autoscale::wishes).into_iter().for_each(|wish| self.note(map, wish));
        }
    }
}

/// The step that is due; one at a time, whatever the pool.
pub(crate) fn next_step(view: &View<'_>) -> Option<Change> {
    let waiting = view.map.pools.iter().filter(|(_, pool)| !is_settled(pool));
    waiting
        .filter(|(id, pool)| may_step(view.map, **id, pool))
        .find_map(|(id, pool)| step_of(view, *id, pool))
}

fn step_of(view: &View<'_>, id: i64, pool: &PgPool) -> Option<Change> {
    let PgPool { pg_num, pgp_num, pg_num_target, pgp_num_target, .. } = *pool;
    if pg_num < pg_num_target {
        let pg_num = pg_num_target.min(pg_num.saturating_add(SPLITS_MAX));
        let is_due = are_all(view, id, pool, state::ACTIVE | state::CLEAN);
        return is_due.then_some(Change::PgStep { pool: id, pg_num, pgp_num });
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

/// Whether all PGs of a pool are in these states, by the word of their primaries since the pool was last changed.
fn are_all(view: &View<'_>, id: i64, pool: &PgPool, states: u64) -> bool {
    let is_well = |pg| {
        let at = view.placement.mapping(pg);
        let stat = at.acting_primary.and_then(|primary| view.stats.pg(pg, primary));
        stat.is_some_and(|stat| {
            stat.states() & states == states
                && stat.reported_epoch >= pool.last_change
                && stat.acting == at.acting.as_slice()
        })
    };
    (0..pool.pg_num).map(|ps| PgId::new(id, ps)).all(is_well)
}
