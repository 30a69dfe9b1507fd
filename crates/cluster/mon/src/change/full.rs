//! How full OSDs are, as the map says it: a state of each OSD, and flags of the pools, at which clients hold back writes
//! (removing with force goes on, as in Ceph: `rados rm --force-full`).

use carmine_types::{OsdId, UTime};
use carmine_wire::osdmap::consts::{
    POOL_BACKFILLFULL, POOL_FULL, POOL_NEARFULL, STATE_BACKFILLFULL, STATE_FULL, STATE_NEARFULL,
};
use carmine_wire::osdmap::{Incremental, OsdMap};

const STATES: u32 = STATE_FULL | STATE_BACKFILLFULL | STATE_NEARFULL;
const POOL_FLAGS: u64 = POOL_FULL | POOL_BACKFILLFULL | POOL_NEARFULL;

/// The state of an OSD of which so much is used: by the map's ratios, the highest that is reached.
fn state_of(map: &OsdMap, used_bytes: u64, total_bytes: u64) -> u32 {
    let share = (used_bytes as f64 / total_bytes.max(1) as f64) as f32;
    match share {
        _ if share >= map.full_ratio => STATE_FULL,
        _ if share >= map.backfillfull_ratio => STATE_BACKFILLFULL,
        _ if share >= map.nearfull_ratio => STATE_NEARFULL,
        _ => 0,
    }
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

/// The state of one OSD, and the flags of the pools that follow from it.
pub(super) fn set(
    map: &OsdMap,
    osd: OsdId,
    used_bytes: u64,
    total_bytes: u64,
    now: UTime,
) -> Option<Incremental> {
    let bits = |osd: OsdId| map.osd_state.get(osd.0 as usize).copied().unwrap_or_default() & STATES;
    let (was, is) = (bits(osd), state_of(map, used_bytes, total_bytes));
    if was == is || !map.is_up(osd) {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    // The bits that are named are flipped.
    inc.new_state.insert(osd, was ^ is);
    let others = map.osds().filter(|other| *other != osd && map.is_in(*other)).map(bits);
    let flags = pool_flags(others.fold(is, |all, state| all | state));
    for (id, pool) in map.pools.iter().filter(|(_, pool)| pool.flags & POOL_FLAGS != flags) {
        let mut pool = pool.clone();
        pool.flags = pool.flags & !POOL_FLAGS | flags;
        pool.last_change = inc.epoch;
        inc.new_pools.insert(*id, pool);
    }
    Some(inc)
}
