//! Changes of the cluster map, as pure functions from a map and a wish to an incremental.

use carmine_types::{Errno, OsdId, UTime, Uuid, errno};
use carmine_wire::FEATURES;
use carmine_wire::addr::EntityAddrVec;
use carmine_wire::osdmap::{Incremental, OsdMap, OsdXinfo, PgPool};

/// Most PGs a pool may have; a power of two is needed, because listings walk PGs in bit-reversed order.
pub(crate) const PG_NUM_MAX: u32 = 65_536;
/// Most pools: each costs about 330 bytes in every map that is sent.
const POOLS_MAX: usize = 1_000;
/// Longest pool or application name, bytes.
const NAME_BYTES_MAX: usize = 128;
/// Our CRUSH rule 0 takes 1 to 10 replicas.
const SIZE_MAX: u8 = 10;
/// PGs of a pool that was created without a number.
const PG_NUM_DEFAULT: u32 = 32;

/// A wish to change the map.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// An OSD process runs and can be reached.
    Boot { osd: OsdId, uuid: Uuid, addrs: EntityAddrVec },
    /// The OSD process with these addresses is gone; one that has booted since is not meant.
    Down { osd: OsdId, addrs: EntityAddrVec },
    /// A new replicated pool; the defaults are those of the first pool.
    CreatePool { name: String, pg_num: Option<u32>, size: Option<u8> },
    /// Removes a pool with its PGs.
    DeletePool { pool: i64 },
    /// Notes which application uses a pool.
    EnableApp { pool: String, app: String },
    /// Changes the number of replicas.
    SetPool { pool: String, size: Option<u8>, min_size: Option<u8> },
}

/// Why a change was refused: an errno and a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Errno,
    pub(crate) text: String,
}

pub(crate) fn refuse(code: i32, text: impl Into<String>) -> Refusal {
    Refusal { code: Errno(code), text: text.into() }
}

impl Change {
    /// The incremental that does it; `None` if the map already is as wished.
    pub(crate) fn plan(&self, map: &OsdMap, now: UTime) -> Result<Option<Incremental>, Refusal> {
        match self {
            Self::Boot { osd, uuid, addrs } => boot(map, *osd, *uuid, addrs, now),
            Self::Down { osd, addrs } => Ok(down(map, *osd, addrs, now)),
            Self::CreatePool { name, pg_num, size } => create_pool(map, name, *pg_num, *size, now),
            Self::DeletePool { pool } => delete_pool(map, *pool, now),
            Self::EnableApp { pool, app } => enable_app(map, pool, app, now),
            Self::SetPool { pool, size, min_size } => set_pool(map, pool, *size, *min_size, now),
        }
    }
}

fn boot(
    map: &OsdMap,
    osd: OsdId,
    uuid: Uuid,
    addrs: &EntityAddrVec,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    if !map.exists(osd) {
        let text = format!("{osd} is not in this cluster of {} OSDs", map.max_osd);
        return Err(refuse(errno::ENOENT, text));
    }
    let known = map.osd_uuid.get(osd.0 as usize).copied().unwrap_or_default();
    if !known.is_nil() && known != uuid {
        let text = format!(
            "{osd} has the store {uuid}, the map knows {known}: is this the folder of another cluster?"
        );
        return Err(refuse(errno::EPERM, text));
    }
    if map.client_addr(osd) == Some(addrs) {
        return Ok(None);
    }
    let mut inc = Incremental::next(map, now);
    inc.new_up_client.insert(osd, addrs.clone());
    inc.new_up_cluster.insert(osd, addrs.clone());
    if known.is_nil() {
        inc.new_uuid.insert(osd, uuid);
    }
    let old = map.osd_xinfo.get(osd.0 as usize).copied().unwrap_or_default();
    inc.new_xinfo.insert(osd, OsdXinfo { features: FEATURES, ..old });
    inc.new_last_up_change = now;
    Ok(Some(inc))
}

fn down(map: &OsdMap, osd: OsdId, addrs: &EntityAddrVec, now: UTime) -> Option<Incremental> {
    if map.client_addr(osd) != Some(addrs) {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    inc.mark_down(osd);
    let old = map.osd_xinfo.get(osd.0 as usize).copied().unwrap_or_default();
    inc.new_xinfo.insert(osd, OsdXinfo { down_stamp: now, ..old });
    inc.new_last_up_change = now;
    Some(inc)
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

fn create_pool(
    map: &OsdMap,
    name: &str,
    pg_num: Option<u32>,
    size: Option<u8>,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    check_name("pool", name)?;
    if map.pool_id(name).is_some() {
        return Ok(None);
    }
    if map.pools.len() >= POOLS_MAX {
        return Err(refuse(errno::E2BIG, format!("there are {POOLS_MAX} pools already, which is the limit")));
    }
    let pg_num = pg_num.unwrap_or(PG_NUM_DEFAULT);
    if !pg_num.is_power_of_two() || pg_num > PG_NUM_MAX {
        let text = format!("pg_num {pg_num}: take a power of two from 1 to {PG_NUM_MAX}");
        return Err(refuse(errno::EINVAL, text));
    }
    let model = map.pools.values().next();
    let (size, min_size) = match (size, model) {
        (None, Some(model)) => (model.size, model.min_size),
        (size, _) => {
            let size = size.unwrap_or(1);
            (size, size - size / 2)
        }
    };
    check_size(map, size)?;
    let mut inc = Incremental::next(map, now);
    let id = map.pool_max.saturating_add(1).max(1);
    inc.new_pool_max = i64::from(id);
    inc.new_pools.insert(i64::from(id), PgPool::replicated(size, min_size, pg_num, 0, inc.epoch, now));
    inc.new_pool_names.insert(i64::from(id), name.to_string());
    Ok(Some(inc))
}

fn check_size(map: &OsdMap, size: u8) -> Result<(), Refusal> {
    let osds = map.osds().count();
    if size == 0 || size > SIZE_MAX || usize::from(size) > osds {
        let text =
            format!("size {size}: take 1 to {} (there are {osds} OSDs)", osds.min(usize::from(SIZE_MAX)));
        return Err(refuse(errno::EINVAL, text));
    }
    Ok(())
}

fn delete_pool(map: &OsdMap, pool: i64, now: UTime) -> Result<Option<Incremental>, Refusal> {
    if map.pool(pool).is_none() {
        return Ok(None);
    }
    let mut inc = Incremental::next(map, now);
    inc.old_pools.insert(pool);
    Ok(Some(inc))
}

/// The named pool, ready to be changed in `inc`.
fn pool_of(map: &OsdMap, name: &str) -> Result<(i64, PgPool), Refusal> {
    map.pool_id(name)
        .and_then(|id| Some((id, map.pool(id)?.clone())))
        .ok_or_else(|| refuse(errno::ENOENT, format!("there is no pool '{name}'")))
}

fn enable_app(map: &OsdMap, name: &str, app: &str, now: UTime) -> Result<Option<Incremental>, Refusal> {
    check_name("application", app)?;
    let (id, mut pool) = pool_of(map, name)?;
    if pool.application_metadata.contains_key(app) {
        return Ok(None);
    }
    let mut inc = Incremental::next(map, now);
    pool.application_metadata.insert(app.to_string(), Default::default());
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    Ok(Some(inc))
}

fn set_pool(
    map: &OsdMap,
    name: &str,
    size: Option<u8>,
    min_size: Option<u8>,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    let (id, mut pool) = pool_of(map, name)?;
    if let Some(size) = size.filter(|s| *s != pool.size) {
        // More replicas need backfill, which is not written yet; fewer would leave data behind.
        let text = format!("size {size}: the size of a pool cannot be changed yet (it is {})", pool.size);
        return Err(refuse(errno::EOPNOTSUPP, text));
    }
    let Some(min_size) = min_size.filter(|m| *m != pool.min_size) else { return Ok(None) };
    if min_size == 0 || min_size > pool.size {
        return Err(refuse(errno::EINVAL, format!("min_size {min_size}: take 1 to {}", pool.size)));
    }
    let mut inc = Incremental::next(map, now);
    pool.min_size = min_size;
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    Ok(Some(inc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{addrs_of, apply, cluster, now, up};
    use carmine_types::Epoch;

    fn code(map: &OsdMap, change: Change) -> i32 {
        change.plan(map, now()).unwrap_err().code.0
    }

    #[test]
    fn the_first_map() {
        let map = cluster(3);
        assert_eq!((map.epoch, map.max_osd, map.pool_max), (Epoch(1), 3, 1));
        assert_eq!(map.pool_id("bench"), Some(1));
        assert!(map.osds().all(|osd| map.is_in(osd) && !map.is_up(osd)));
        // A client crashes if this vector is shorter than max_osd.
        assert_eq!(map.osd_xinfo.len(), 3);
        assert_eq!(OsdMap::decode(&map.encode()), Ok(map));
    }

    #[test]
    fn an_osd_comes_and_goes() {
        let mut map = cluster(2);
        up(&mut map, 0, 1);
        assert!(map.is_up(OsdId(0)) && !map.is_up(OsdId(1)));
        assert_eq!(map.osd_info[0].up_from, Epoch(2));
        assert_eq!(map.osd_xinfo[0].features, FEATURES);
        let addrs = map.client_addr(OsdId(0)).unwrap().clone();
        let uuid = map.osd_uuid[0];
        // The same again changes nothing; another store under the same number is refused.
        assert!(
            Change::Boot { osd: OsdId(0), uuid, addrs: addrs.clone() }.plan(&map, now()).unwrap().is_none()
        );
        assert_eq!(
            code(&map, Change::Boot { osd: OsdId(0), uuid: Uuid([7; 16]), addrs: addrs.clone() }),
            errno::EPERM
        );
        assert_eq!(code(&map, Change::Boot { osd: OsdId(9), uuid, addrs }), errno::ENOENT);
        let gone = Change::Down { osd: OsdId(0), addrs: addrs_of(0, 1) };
        assert!(!apply(&mut map, Change::Down { osd: OsdId(0), addrs: addrs_of(0, 9) }), "an earlier start");
        assert!(apply(&mut map, gone.clone()));
        assert!(!map.is_up(OsdId(0)) && map.is_in(OsdId(0)), "down, but its PGs wait for it");
        assert_eq!((map.epoch, map.osd_info[0].down_at), (Epoch(3), Epoch(3)));
        assert!(!apply(&mut map, gone), "down already");
        assert!(!apply(&mut map, Change::Down { osd: OsdId(99), addrs: addrs_of(99, 1) }));
    }

    #[test]
    fn pools_come_and_go() {
        let mut map = cluster(3);
        let create = |name: &str, pg_num| Change::CreatePool { name: name.into(), pg_num, size: None };
        assert!(apply(&mut map, create("rbd", Some(8))));
        assert!(!apply(&mut map, create("rbd", Some(16))), "it exists: fine, unchanged");
        let pool = map.pool(2).unwrap();
        assert_eq!((pool.size, pool.pg_num, pool.last_change, map.pool_max), (3, 8, Epoch(2), 2));
        assert!(apply(&mut map, Change::EnableApp { pool: "rbd".into(), app: "rbd".into() }));
        assert!(map.pool(2).unwrap().application_metadata.contains_key("rbd"));
        assert!(apply(&mut map, Change::DeletePool { pool: 2 }));
        assert!(map.pool(2).is_none() && map.pool_id("rbd").is_none());
        // A number is never given twice: objects of the old pool may still be on disks.
        assert!(apply(&mut map, create("again", None)));
        assert_eq!((map.pool_id("again"), map.pool(3).unwrap().pg_num), (Some(3), PG_NUM_DEFAULT));
    }

    #[test]
    fn bad_wishes_are_refused() {
        let map = cluster(2);
        let pool = |name: &str, pg_num, size| Change::CreatePool { name: name.into(), pg_num, size };
        for bad in ["", "-x", "a b", "ä", "a/b", &"x".repeat(200)] {
            assert_eq!(code(&map, pool(bad, None, None)), errno::EINVAL, "{bad}");
        }
        for pg_num in [0, 3, 1 << 17] {
            assert_eq!(code(&map, pool("p", Some(pg_num), None)), errno::EINVAL);
        }
        assert_eq!(code(&map, pool("p", None, Some(3))), errno::EINVAL);
        assert_eq!(code(&map, pool("p", None, Some(0))), errno::EINVAL);
        assert_eq!(code(&map, Change::EnableApp { pool: "none".into(), app: "rbd".into() }), errno::ENOENT);
        let set = |size, min_size| Change::SetPool { pool: "bench".into(), size, min_size };
        assert_eq!(code(&map, set(Some(1), None)), errno::EOPNOTSUPP);
        assert_eq!(code(&map, set(None, Some(3))), errno::EINVAL);
        assert!(set(None, Some(2)).plan(&map, now()).unwrap().is_some());
    }
}
