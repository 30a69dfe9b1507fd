//! How full OSDs are, and what their pools say of it.

use carmine_types::{OsdId, UTime};
use carmine_wire::osdmap::consts::{
    POOL_BACKFILLFULL, POOL_FULL, POOL_FULL_QUOTA, POOL_NEARFULL, STATE_BACKFILLFULL, STATE_FULL,
    STATE_NEARFULL, STATES_FULL,
};
use carmine_wire::osdmap::{Incremental, OsdMap, PgPool};

const POOL_FLAGS: u64 = POOL_FULL | POOL_BACKFILLFULL | POOL_NEARFULL;

/// Of the OSDs that have a part of the data, which are those that are up and in.
fn states(map: &OsdMap) -> u32 {
    let has_data = |osd: &OsdId| map.is_up(*osd) && map.is_in(*osd);
    map.osds().filter(has_data).fold(0, |all, osd| all | map.fullness(osd))
}

/// All pools lie on all OSDs: the fullest one decides.
fn pool_flags(states: u32) -> u64 {
    match states {
        _ if states & STATE_FULL != 0 => POOL_FULL,
        _ if states & STATE_BACKFILLFULL != 0 => POOL_BACKFILLFULL,
        _ if states & STATE_NEARFULL != 0 => POOL_NEARFULL,
        _ => 0,
    }
}

/// An OSD that has a part of the data is full.
pub(super) fn is_any_full(map: &OsdMap) -> bool {
    states(map) & STATE_FULL != 0
}

/// The state of one OSD.
pub(super) fn set(
    map: &OsdMap,
    osd: OsdId,
    used_bytes: u64,
    total_bytes: u64,
    now: UTime,
) -> Option<Incremental> {
    let (was, is) = (map.fullness(osd), map.full_state(used_bytes, total_bytes));
    if was == is || !map.is_up(osd) {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    // The bits that are named are flipped.
    inc.new_state.insert(osd, was ^ is);
    Some(inc)
}

/// Adds the pools' flags that follow from what `inc` does: a full OSD that dies or goes out, or comes back, changes them too.
pub(super) fn follow(map: &OsdMap, mut inc: Incremental) -> Incremental {
    let was_any = map.osds().any(|osd| map.fullness(osd) != 0);
    let is_any = inc.new_state.values().any(|state| state & STATES_FULL != 0);
    if !was_any && !is_any {
        return inc;
    }
    // One that does not apply is refused by who applies it.
    let Ok(next) = inc.applied(map) else { return inc };
    let follows = pool_flags(states(&next));
    for (id, pool) in &next.pools {
        let quota = if pool.flags & POOL_FULL_QUOTA != 0 { POOL_FULL } else { 0 };
        let flags = pool.flags & !POOL_FLAGS | follows | quota;
        if flags != pool.flags {
            inc.new_pools.insert(*id, PgPool { flags, last_change: inc.epoch, ..pool.clone() });
        }
    }
    inc
}
