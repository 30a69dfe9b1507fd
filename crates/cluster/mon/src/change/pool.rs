//! Pools.

use carmine_crush::PGS_MAX;
use carmine_types::{UTime, errno};
use carmine_wire::osdmap::consts::POOL_CREATING;
use carmine_wire::osdmap::{Incremental, OsdMap, PgPool};

use super::pool_value::{self, flag};
use super::{Refusal, pg_num, refuse, snaps};

/// Most PGs a pool may have.
pub(crate) const PG_NUM_MAX: u32 = 65_536;
/// Most pools: each costs about 330 bytes in every map that is sent.
const POOLS_MAX: usize = 1_000;
/// Values that an application may have on a pool, as in Ceph.
const APP_VALUES_MAX: usize = 64;
/// Most applications of a pool, as in Ceph.
const APPS_MAX: usize = 4;
/// Longest pool name, bytes: all names are in every map that is sent. Ceph has no limit.
const POOL_NAME_BYTES_MAX: usize = 8192;
/// Longest application name, key or value, bytes, as in Ceph.
const NAME_BYTES_MAX: usize = 128;
/// Our CRUSH rule 0 takes 1 to 10 replicas.
const SIZE_MAX: u8 = 10;
/// PGs of a pool that was created without a number.
pub(crate) const PG_NUM_DEFAULT: u32 = 32;

/// Replicas that are needed to take writes, if nobody says so: as Ceph has it.
fn min_size_of(size: u8) -> u8 {
    size - size / 2
}

/// Ceph's pools may have any name but an empty one.
fn check_pool_name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > POOL_NAME_BYTES_MAX {
        let text = format!("a pool name of {} bytes: take 1 to {POOL_NAME_BYTES_MAX}", name.len());
        return Err(refuse(errno::EINVAL, text));
    }
    Ok(())
}

fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(good) || name.starts_with('-') {
        let text =
            format!("{what} name {name:?}: take 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-'");
        return Err(refuse(errno::EINVAL, text));
    }
    Ok(())
}

pub(super) fn create(
    map: &OsdMap,
    name: &str,
    (pg_num, size, rule): (Option<u32>, Option<u8>, u8),
    values: &[(String, String)],
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    check_pool_name(name)?;
    if map.pool_id(name).is_some() {
        return Ok(None);
    }
    if map.pools.len() >= POOLS_MAX {
        return Err(refuse(errno::E2BIG, format!("there are {POOLS_MAX} pools already, which is the limit")));
    }
    if !map.crush.rules.get(usize::from(rule)).is_some_and(Option::is_some) {
        return Err(refuse(errno::ENOENT, format!("specified rule {rule} doesn't exist")));
    }
    let pg_num = pg_num.unwrap_or(PG_NUM_DEFAULT);
    if !(1..=PG_NUM_MAX).contains(&pg_num) {
        return Err(pg_num::out_of_range());
    }
    let model = map.pools.values().next();
    let (size, min_size) = match (size, model) {
        (None, Some(model)) => (model.size, model.min_size),
        (size, _) => {
            let size = size.unwrap_or(1);
            (size, min_size_of(size))
        }
    };
    check_size(size)?;
    let mut inc = Incremental::next(map, now);
    let id = map.pool_max.saturating_add(1).max(1);
    inc.new_pool_max = i64::from(id);
    let mut pool = PgPool::replicated(size, min_size, pg_num, rule, inc.epoch, now);
    pool.flags |= POOL_CREATING;
    for (name, value) in values {
        pool = pool_value::with_value(&pool, name, value)?;
    }
    inc.new_pools.insert(i64::from(id), pool);
    inc.new_pool_names.insert(i64::from(id), name.to_string());
    Ok(Some(inc))
}

/// OSDs that are counted at least: a cluster of one or two is expected to grow.
const OSDS_MIN: u32 = 3;

/// A pool that is new, or gets more replicas or PGs, may not bring the OSDs that are in to more PGs than this on average: each PG costs
/// memory on each of its OSDs, and all of them are made at once.
///
/// # Errors
/// ERANGE, with the words of Ceph's monitor.
pub(crate) fn check_pgs(before: &OsdMap, after: &OsdMap, max_pg_per_osd: u32) -> Result<(), Refusal> {
    let pgs = |pool: &PgPool| pool.pg_num.max(pool.pg_num_target);
    let copies = |pool: &PgPool| u64::from(pgs(pool)) * u64::from(pool.size);
    let had = |id: &i64| before.pool(*id).map_or(0, copies);
    let Some((id, pool)) = after.pools.iter().find(|(id, pool)| copies(pool) > had(id)) else {
        return Ok(());
    };
    let all: u64 = after.pools.values().map(|pool| u64::from(pgs(pool))).sum();
    if all > PGS_MAX as u64 {
        let text = format!("there would be {all} PGs of all pools: OSDs and clients place at most {PGS_MAX}");
        return Err(refuse(errno::ERANGE, text));
    }
    let inside = after.osds().filter(|osd| after.is_in(*osd)).count() as u32;
    let (osds, total) = (inside.max(OSDS_MIN), after.pools.values().map(copies).sum::<u64>());
    let max = u64::from(max_pg_per_osd) * u64::from(osds);
    if total <= max {
        return Ok(());
    }
    let which = if before.pool(*id).is_some() { format!("pool id {id}") } else { String::new() };
    let text = format!(
        "{which} pg_num {} size {} would mean {total} total pgs, which exceeds max {max} (mon_max_pg_per_osd {max_pg_per_osd} * \
         num_in_osds {osds})",
        pgs(pool),
        pool.size
    );
    Err(refuse(errno::ERANGE, text))
}

/// More than there are OSDs may be wanted: the PGs are undersized until there are.
fn check_size(size: u8) -> Result<(), Refusal> {
    match size {
        1..=SIZE_MAX => Ok(()),
        _ => Err(refuse(errno::EINVAL, format!("pool size must be between 1 and {SIZE_MAX}"))),
    }
}

pub(super) fn delete(map: &OsdMap, pool: i64, now: UTime) -> Result<Option<Incremental>, Refusal> {
    let Some(old) = map.pool(pool) else { return Ok(None) };
    if old.flags & flag("nodelete") != 0 {
        let text = "pool deletion is disabled; you must unset nodelete flag for the pool first";
        return Err(refuse(errno::EPERM, text));
    }
    let mut inc = Incremental::next(map, now);
    inc.old_pools.insert(pool);
    snaps::forget(map, pool, &mut inc);
    Ok(Some(inc))
}

/// All PGs of a pool were active.
pub(super) fn created(map: &OsdMap, id: i64, now: UTime) -> Option<Incremental> {
    let pool = map.pool(id).filter(|pool| pool.flags & POOL_CREATING != 0)?.clone();
    Some(changed(map, id, PgPool { flags: pool.flags & !POOL_CREATING, ..pool }, now))
}

/// The named pool.
pub(crate) fn pool_of<'a>(map: &'a OsdMap, name: &str) -> Result<(i64, &'a PgPool), Refusal> {
    let found = map.pool_id(name).and_then(|id| Some((id, map.pool(id)?)));
    found.ok_or_else(|| refuse(errno::ENOENT, format!("unrecognized pool '{name}'")))
}

/// The pool as it is to be from the next epoch on.
pub(super) fn changed(map: &OsdMap, id: i64, pool: PgPool, now: UTime) -> Incremental {
    let mut inc = Incremental::next(map, now);
    inc.new_pools.insert(id, PgPool { last_change: inc.epoch, ..pool });
    inc
}

pub(super) fn enable_app(
    map: &OsdMap,
    name: &str,
    app: &str,
    force: bool,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    check_name("application", app)?;
    edit(map, name, now, |pool| {
        let apps = &mut pool.application_metadata;
        if apps.contains_key(app) {
            return Ok(());
        }
        if !apps.is_empty() && !force {
            let text = format!(
                "Are you SURE? Pool '{name}' already has an enabled application; pass --yes-i-really-mean-it to proceed \
                 anyway"
            );
            return Err(refuse(errno::EPERM, text));
        }
        if apps.len() >= APPS_MAX {
            let text = format!("too many enabled applications on pool '{name}'; max {APPS_MAX}");
            return Err(refuse(errno::EINVAL, text));
        }
        apps.insert(app.to_string(), Default::default());
        Ok(())
    })
}

/// Changes a pool; nothing if it is the same afterwards.
pub(super) fn edit(
    map: &OsdMap,
    name: &str,
    now: UTime,
    change: impl FnOnce(&mut PgPool) -> Result<(), Refusal>,
) -> Result<Option<Incremental>, Refusal> {
    let (id, old) = pool_of(map, name)?;
    let mut pool = old.clone();
    change(&mut pool)?;
    Ok((pool != *old).then(|| changed(map, id, pool, now)))
}

pub(super) fn rename(map: &OsdMap, name: &str, to: &str, now: UTime) -> Result<Option<Incremental>, Refusal> {
    check_pool_name(to)?;
    // As in Ceph, it was renamed by an earlier command then.
    if map.pool_id(name).is_none() && map.pool_id(to).is_some() {
        return Ok(None);
    }
    let (id, _) = pool_of(map, name)?;
    if map.pool_id(to).is_some() {
        return Err(refuse(errno::EEXIST, format!("pool '{to}' already exists")));
    }
    let mut inc = Incremental::next(map, now);
    inc.new_pool_names.insert(id, to.to_owned());
    Ok(Some(inc))
}

/// Changes one value of an application of a pool.
pub(super) fn app_value(
    map: &OsdMap,
    (name, app): (&str, &str),
    key: &str,
    value: Option<&str>,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    let (id, pool) = pool_of(map, name)?;
    let mut pool = pool.clone();
    let missing = || refuse(errno::ENOENT, format!("application '{app}' is not enabled on pool '{name}'"));
    let values = pool.application_metadata.get_mut(app).ok_or_else(missing)?;
    if values.get(key).map(String::as_str) == value {
        return Ok(None);
    }
    match value {
        Some(value) => {
            check_name("key", key)?;
            if value.len() > NAME_BYTES_MAX {
                let text = format!("a value of {} bytes: at most {NAME_BYTES_MAX}", value.len());
                return Err(refuse(errno::EINVAL, text));
            }
            if values.len() >= APP_VALUES_MAX {
                let text = format!("application '{app}' has {APP_VALUES_MAX} values already");
                return Err(refuse(errno::EINVAL, text));
            }
            values.insert(key.to_owned(), value.to_owned());
        }
        None => drop(values.remove(key)),
    }
    Ok(Some(changed(map, id, pool, now)))
}

/// Switches the autoscaler off for all pools.
pub(super) fn no_autoscale(map: &OsdMap, now: UTime) -> Option<Incremental> {
    let mut inc = Incremental::next(map, now);
    for (id, pool) in map.pools.iter().filter(|(_, pool)| pool.pg_autoscale_mode != 0) {
        inc.new_pools.insert(*id, PgPool { pg_autoscale_mode: 0, last_change: inc.epoch, ..pool.clone() });
    }
    (!inc.new_pools.is_empty()).then_some(inc)
}

/// Changes the number of replicas.
pub(super) fn set(
    map: &OsdMap,
    name: &str,
    size: Option<u8>,
    min_size: Option<u8>,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    let (id, old) = pool_of(map, name)?;
    let mut pool = old.clone();
    if let Some(size) = size.filter(|size| *size != pool.size) {
        check_size(size)?;
        if pool.flags & flag("nosizechange") != 0 {
            let text = "pool size change is disabled; you must unset nosizechange flag for the pool first";
            return Err(refuse(errno::EPERM, text));
        }
        (pool.size, pool.min_size) = (size, min_size_of(size));
    }
    if let Some(min_size) = min_size {
        if min_size == 0 || min_size > pool.size {
            let text = format!("pool min_size must be between 1 and size, which is set to {}", pool.size);
            return Err(refuse(errno::EINVAL, text));
        }
        pool.min_size = min_size;
    }
    Ok((pool != *old).then(|| changed(map, id, pool, now)))
}
