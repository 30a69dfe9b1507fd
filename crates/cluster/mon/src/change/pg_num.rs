//! The number of PGs of a pool: the number that a user wants, and the steps to it.
//!
//! As in Ceph, `osd pool set POOL pg_num N` only notes what is wanted (`pg_num_target`, and with it `pgp_num_target`). To reach a higher
//! number, steps add PGs (`pg_num`) on the OSDs of their parents, and then move them (`pgp_num`). To reach a lower one, steps move the last
//! PGs to the OSDs of the PGs that get their objects, and then merge one after the other ([`super::merge`]). In a real cluster the manager
//! takes these steps; here the monitor does ([`crate::pacing`]).

use carmine_types::{UTime, errno};
use carmine_wire::osdmap::consts::POOL_CREATING;
use carmine_wire::osdmap::{Incremental, OsdMap, PgPool};

use super::merge::is_pending;
use super::pool::{PG_NUM_MAX, changed, pool_of};
use super::pool_value::{flag, int_option};
use super::{Refusal, refuse};

/// Notes how many PGs a user wants in a pool.
///
/// # Errors
/// With Ceph's words: EPERM: the pool has the flag `nopgchange`; ERANGE: no pool may have so many; EINVAL: the pool's own limits.
pub(super) fn set(map: &OsdMap, name: &str, wanted: i64, now: UTime) -> Result<Option<Incremental>, Refusal> {
    let (id, pool) = pool_of(map, name)?;
    check_flag(pool, "pg_num")?;
    if wanted == i64::from(pool.pg_num_target) {
        return Ok(None);
    }
    let fitting = u32::try_from(wanted).ok().filter(|wanted| (1..=PG_NUM_MAX).contains(wanted));
    let wanted = fitting.ok_or_else(out_of_range)?;
    let limit = |name| int_option(pool, name).filter(|limit| *limit != 0);
    if let Some(least) = limit("pg_num_min").filter(|least| i64::from(wanted) < *least) {
        return Err(refuse(errno::EINVAL, format!("specified pg_num {wanted} < pg_num_min {least}")));
    }
    if let Some(most) = limit("pg_num_max").filter(|most| i64::from(wanted) > *most) {
        return Err(refuse(errno::EINVAL, format!("specified pg_num {wanted} < pg_num_max {most}")));
    }
    // A user who has set the two numbers apart sets both from then on.
    let follows = pool.pgp_num_target == pool.pg_num_target;
    let pgp_num_target = if follows { wanted } else { pool.pgp_num_target.min(wanted) };
    Ok(Some(changed(map, id, PgPool { pg_num_target: wanted, pgp_num_target, ..pool.clone() }, now)))
}

/// Notes by which number of PGs a user wants a pool's PGs placed.
///
/// # Errors
/// With Ceph's words: EPERM: the pool has the flag `nopgchange`; EINVAL: there are not so many PGs.
pub(super) fn set_placed(
    map: &OsdMap,
    name: &str,
    wanted: i64,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    let (id, pool) = pool_of(map, name)?;
    check_flag(pool, "pgp_num")?;
    if wanted <= 0 {
        return Err(refuse(errno::EINVAL, format!("specified pgp_num must > 0, but you set to {wanted}")));
    }
    let target = u32::try_from(wanted).ok().filter(|wanted| *wanted <= pool.pg_num_target);
    let Some(pgp_num_target) = target else {
        let text = format!("specified pgp_num {wanted} > pg_num {}", pool.pg_num_target);
        return Err(refuse(errno::EINVAL, text));
    };
    let next = PgPool { pgp_num_target, ..pool.clone() };
    Ok((next != *pool).then(|| changed(map, id, next, now)))
}

/// The refusal of a number of PGs that no pool may have.
pub(super) fn out_of_range() -> Refusal {
    let text = format!(
        "'pg_num' must be greater than 0 and less than or equal to {PG_NUM_MAX} (you may adjust 'mon max pool pg num' \
         for higher values)"
    );
    refuse(errno::ERANGE, text)
}

/// # Errors
/// EPERM: the pool has the flag `nopgchange`.
pub(crate) fn check_flag(pool: &PgPool, var: &str) -> Result<(), Refusal> {
    if pool.flags & flag("nopgchange") == 0 {
        return Ok(());
    }
    let text = format!("pool {var} change is disabled; you must unset nopgchange flag for the pool first");
    Err(refuse(errno::EPERM, text))
}

/// Whether a pool has the number of PGs that is wanted, placed as wanted, and goes on with them.
pub(crate) fn is_settled(pool: &PgPool) -> bool {
    pool.pg_num == pool.pg_num_target && pool.pgp_num == pool.pgp_num_target && !is_pending(pool)
}

/// Whether this map allows the next step of a pool.
pub(crate) fn may_step(map: &OsdMap, id: i64, pool: &PgPool) -> bool {
    let is_ready = pool.flags & POOL_CREATING == 0 && check_flag(pool, "").is_ok() && !is_pending(pool);
    is_ready && (pool.pg_num >= pool.pg_num_target || may_split(map, id))
}

/// OSDs that are down and may come back with undivided PGs, and acting sets that somebody asked for, are waited for.
fn may_split(map: &OsdMap, id: i64) -> bool {
    let has_temp = map.pg_temp.keys().chain(map.primary_temp.keys()).any(|pg| pg.pool == id);
    !has_temp && !is_one_missing(map)
}

/// An OSD is down, and may come back.
pub(super) fn is_one_missing(map: &OsdMap) -> bool {
    map.osds().any(|osd| map.is_in(osd) && !map.is_up(osd))
}

/// Takes a pool's next step: `pg_num` PGs, which are placed as if there were `pgp_num`.
pub(super) fn step(map: &OsdMap, id: i64, (pg_num, pgp_num): (u32, u32), now: UTime) -> Option<Incremental> {
    let pool = map.pool(id).filter(|pool| may_step(map, id, pool))?;
    // The user may have changed the target since this step was chosen.
    let is_wanted = pg_num == pool.pg_num || (pool.pg_num..=pool.pg_num_target).contains(&pg_num);
    if !is_wanted || pgp_num > pg_num {
        return None;
    }
    let mut next = PgPool { pg_num, pgp_num, pg_num_pending: pg_num, ..pool.clone() };
    if next == *pool {
        return None;
    }
    if pg_num != pool.pg_num {
        next.last_force_op_resend_preluminous = Incremental::next(map, now).epoch;
    }
    Some(changed(map, id, next, now))
}
