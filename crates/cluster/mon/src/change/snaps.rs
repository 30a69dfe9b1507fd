//! Snapshots of pools and ids for snapshots that clients manage themselves; a pool has one kind or the other.
//!
//! A removed snapshot waits in the map's queue until all PGs of its pool have trimmed it.

use carmine_types::{PgId, UTime, errno};
use carmine_wire::osdmap::consts::{POOL_POOL_SNAPS, POOL_SELFMANAGED_SNAPS};
use carmine_wire::osdmap::intervals::{contains, intersection};
use carmine_wire::osdmap::{Incremental, IntervalSet, OsdMap, PgPool, PoolSnap};

use super::{Change, Refusal, refuse};

/// Longest name of a snapshot, bytes: all names are in every map that is sent. Ceph has no limit.
const NAME_BYTES_MAX: usize = 8192;
/// Most snapshots of a pool, for the same reason; those that clients manage themselves are not in the map.
const SNAPS_MAX: usize = 10_000;

/// A wish about the snapshots of a pool.
#[derive(Clone, Debug)]
pub(crate) enum SnapWish {
    /// A snapshot of the whole pool.
    Make(String),
    /// Removes one.
    Remove(String),
    /// An id that clients use as they like: it is the pool's `snap_seq` afterwards.
    TakeId,
    /// Removes the snapshot with such an id.
    GiveBack(u64),
    /// All PGs of the pool have trimmed these.
    Purged(IntervalSet),
}

pub(super) fn plan(
    map: &OsdMap,
    id: i64,
    wish: &SnapWish,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    let Some(old) = map.pool(id) else { return Err(refuse(errno::ENOENT, format!("there is no pool {id}"))) };
    check_mode(map, id, old, wish)?;
    let mut inc = Incremental::next(map, now);
    let mut pool = old.clone();
    pool.snap_epoch = inc.epoch;
    let mut remove = |snap: u64| drop(inc.new_removed_snaps.insert(id, vec![(snap, 1)]));
    match wish {
        SnapWish::Make(name) if pool.snap_id(name).is_some() => return Ok(None),
        SnapWish::Make(name) => {
            check(&pool, name)?;
            pool.flags |= POOL_POOL_SNAPS;
            pool.snap_seq = after(pool.snap_seq)?;
            let snap = PoolSnap { snapid: pool.snap_seq, stamp: now, name: name.clone() };
            pool.snaps.insert(snap.snapid, snap);
        }
        SnapWish::Remove(name) => {
            let Some(snap) = pool.snap_id(name) else { return Ok(None) };
            pool.snaps.remove(&snap);
            pool.snap_seq = after(pool.snap_seq)?;
            remove(snap);
        }
        SnapWish::TakeId => {
            pool.flags |= POOL_SELFMANAGED_SNAPS;
            // The first one is 2, as in Ceph.
            pool.snap_seq = after(pool.snap_seq.max(1))?;
        }
        SnapWish::GiveBack(snap) if is_removed(map, id, *snap) => return Ok(None),
        SnapWish::GiveBack(snap) if *snap > pool.snap_seq => {
            return Err(refuse(errno::ENOENT, format!("no snapshot has the id {snap} yet")));
        }
        SnapWish::GiveBack(snap) => {
            pool.flags |= POOL_SELFMANAGED_SNAPS;
            // The removal has a number of its own: contexts from before it can be told from those after it.
            pool.snap_seq = after(pool.snap_seq)?;
            remove(*snap);
        }
        SnapWish::Purged(snaps) => {
            let waiting = map.removed_snaps_queue.get(&id).map(|queue| intersection(queue, snaps));
            let Some(purged) = waiting.filter(|purged| !purged.is_empty()) else { return Ok(None) };
            inc.new_purged_snaps.insert(id, purged);
            return Ok(Some(inc));
        }
    }
    inc.new_pools.insert(id, PgPool { last_change: inc.epoch, ..pool });
    Ok(Some(inc))
}

/// A pool never has both kinds: EINVAL.
fn check_mode(map: &OsdMap, id: i64, pool: &PgPool, wish: &SnapWish) -> Result<(), Refusal> {
    let (other, mode) = match wish {
        SnapWish::Make(_) | SnapWish::Remove(_) => (POOL_SELFMANAGED_SNAPS, "unmanaged"),
        SnapWish::TakeId | SnapWish::GiveBack(_) => (POOL_POOL_SNAPS, "pool"),
        SnapWish::Purged(_) => return Ok(()),
    };
    if pool.flags & other == 0 {
        return Ok(());
    }
    let name = map.pool_name(id).unwrap_or_default();
    Err(refuse(errno::EINVAL, format!("pool {name} is in {mode} snaps mode")))
}

fn check(pool: &PgPool, name: &str) -> Result<(), Refusal> {
    if name.len() > NAME_BYTES_MAX {
        let text = format!("a snapshot name of {} bytes: take at most {NAME_BYTES_MAX}", name.len());
        return Err(refuse(errno::EINVAL, text));
    }
    if pool.snaps.len() >= SNAPS_MAX {
        return Err(refuse(errno::E2BIG, format!("the pool has {SNAPS_MAX} snapshots, which is the limit")));
    }
    Ok(())
}

/// Ids from 2^63 on would be negative numbers for tools, and the last ones have a meaning.
fn after(seq: u64) -> Result<u64, Refusal> {
    let next = seq.checked_add(1).filter(|next| *next < 1 << 63);
    next.ok_or_else(|| refuse(errno::E2BIG, "the pool has no id left for a snapshot"))
}

/// A snapshot that was trimmed long ago is removed once more: the PGs find nothing of it.
fn is_removed(map: &OsdMap, id: i64, snap: u64) -> bool {
    map.removed_snaps_queue.get(&id).is_some_and(|queue| contains(queue, snap))
}

/// Changes that are due for the snapshots that PGs have trimmed. A PG's trimmed snapshots stay trimmed, whichever OSD
/// reports them.
pub(crate) fn due<'a>(map: &OsdMap, trimmed: impl Fn(PgId) -> Option<&'a IntervalSet>) -> Vec<Change> {
    let news = |(id, queue): (&i64, &IntervalSet)| {
        let pool = map.pool(*id)?;
        let mut purged = queue.clone();
        for ps in 0..pool.pg_num {
            purged = intersection(&purged, trimmed(PgId::new(*id, ps))?);
            if purged.is_empty() {
                return None;
            }
        }
        Some(Change::Snap { pool: *id, wish: SnapWish::Purged(purged) })
    };
    map.removed_snaps_queue.iter().filter_map(news).collect()
}

/// Ends the trimming of a pool that is removed.
pub(super) fn forget(map: &OsdMap, id: i64, inc: &mut Incremental) {
    if let Some(queue) = map.removed_snaps_queue.get(&id) {
        inc.new_purged_snaps.insert(id, queue.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{apply, cluster, now};

    fn snap(wish: SnapWish) -> Change {
        Change::Snap { pool: 1, wish }
    }

    fn code(map: &OsdMap, wish: SnapWish) -> i32 {
        snap(wish).plan(map, now()).unwrap_err().code.0
    }

    #[test]
    fn a_pool_has_snapshots_by_name() {
        let mut map = cluster(2);
        let make = |name: &str| SnapWish::Make(name.into());
        let remove = |name: &str| SnapWish::Remove(name.into());
        assert!(apply(&mut map, snap(make("a"))) && apply(&mut map, snap(make("b"))));
        assert!(!apply(&mut map, snap(make("a"))), "it is there");
        let pool = map.pool(1).unwrap();
        assert_eq!((pool.snap_seq, pool.snap_epoch, pool.snap_id("b")), (2, map.epoch, Some(2)));
        assert!(pool.flags & POOL_POOL_SNAPS != 0);
        assert_eq!(code(&map, SnapWish::TakeId), errno::EINVAL);
        assert_eq!(code(&map, SnapWish::GiveBack(1)), errno::EINVAL);
        assert!(apply(&mut map, snap(remove("a"))) && !apply(&mut map, snap(remove("a"))));
        let pool = map.pool(1).unwrap();
        assert_eq!((pool.snap_seq, pool.snaps.len()), (3, 1));
        assert_eq!(map.removed_snaps_queue, [(1, vec![(1, 1)])].into());
        assert_eq!(map.new_removed_snaps, map.removed_snaps_queue);
        assert_eq!(code(&map, make(&"n".repeat(NAME_BYTES_MAX + 1))), errno::EINVAL);
        let gone = Change::Snap { pool: 7, wish: make("a") };
        assert_eq!(gone.plan(&map, now()).unwrap_err().code.0, errno::ENOENT);
        assert!(apply(&mut map, Change::DeletePool { pool: 1 }) && map.removed_snaps_queue.is_empty());
    }

    #[test]
    fn clients_take_ids_and_give_them_back() {
        let mut map = cluster(2);
        assert!(apply(&mut map, snap(SnapWish::TakeId)) && apply(&mut map, snap(SnapWish::TakeId)));
        assert_eq!(map.pool(1).unwrap().snap_seq, 3);
        assert_eq!(code(&map, SnapWish::Make("a".into())), errno::EINVAL);
        assert_eq!(code(&map, SnapWish::GiveBack(4)), errno::ENOENT);
        assert!(
            apply(&mut map, snap(SnapWish::GiveBack(2))) && !apply(&mut map, snap(SnapWish::GiveBack(2)))
        );
        assert_eq!(map.pool(1).unwrap().snap_seq, 4);
        assert_eq!(map.removed_snaps_queue[&1], [(2, 1)]);
        assert_eq!(code(&map, SnapWish::GiveBack(u64::MAX)), errno::ENOENT);
    }

    #[test]
    fn a_snapshot_is_purged_when_all_pgs_have_trimmed_it() {
        let mut map = cluster(2);
        (0..6).for_each(|_| assert!(apply(&mut map, snap(SnapWish::TakeId))));
        [2, 3, 5].into_iter().for_each(|id| assert!(apply(&mut map, snap(SnapWish::GiveBack(id)))));
        let pgs = map.pool(1).unwrap().pg_num;
        let (most, all) = (vec![(5, 1), (2, 1)], vec![(2, 2), (5, 1)]);
        let told: BTreeMap<_, _> = (0..pgs).map(|ps| (PgId::new(1, ps), &all)).collect();
        let mut trimmed = told.clone();
        trimmed.remove(&PgId::new(1, pgs - 1));
        assert!(due(&map, |pg| trimmed.get(&pg).copied()).is_empty(), "one has not said anything");
        trimmed.insert(PgId::new(1, pgs - 1), &most);
        for news in due(&map, |pg| trimmed.get(&pg).copied()) {
            assert!(apply(&mut map, news));
        }
        assert_eq!(map.removed_snaps_queue[&1], [(3, 1)]);
        assert_eq!(map.new_purged_snaps[&1], [(2, 1), (5, 1)]);
        due(&map, |pg| told.get(&pg).copied()).into_iter().for_each(|news| assert!(apply(&mut map, news)));
        assert!(map.removed_snaps_queue.is_empty() && due(&map, |pg| told.get(&pg).copied()).is_empty());
        assert!(!apply(&mut map, snap(SnapWish::Purged(vec![(1, 9)]))), "nothing waits");
    }
}
