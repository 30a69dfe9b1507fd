//! A pool loses PGs. The maps are those that a monitor and a manager of Ceph 16.2.15 made after `osd pool set sp pg_num 8`
//! (oracle2/split, epochs 48 to 85).

use carmine_types::{Epoch, Eversion};
use carmine_wire::osd_msg::ReadyToMerge;
use carmine_wire::osdmap::consts::POOL_CREATING;
use carmine_wire::osdmap::{Incremental, MergeMeta, PgPool};

use super::pg_num::{apply_step, numbers, pool, step};
use super::*;
use crate::change::merge::heed;
use crate::change::{Merge, Upmap};
use crate::testing::addrs_of;

/// A pool of 16 PGs that is to have 8, of which so many are placed apart.
fn shrinking(pgp_num: u32) -> OsdMap {
    let mut map = pool(16);
    edit(&mut map, |pool| (pool.pgp_num, pool.pg_num_target, pool.pgp_num_target) = (pgp_num, 8, 8));
    map
}

fn edit(map: &mut OsdMap, change: impl FnOnce(&mut PgPool)) {
    let mut inc = Incremental::next(map, now());
    let mut pool = map.pool(1).unwrap().clone();
    change(&mut pool);
    inc.new_pools.insert(1, pool);
    map.apply(&inc).unwrap();
}

/// What the primary of the pool's last PG says by this map.
fn word(map: &OsdMap, ready: bool) -> ReadyToMerge {
    let source = PgId::new(1, map.pool(1).unwrap().pg_num - 1);
    ReadyToMerge {
        version: map.epoch.0.into(),
        source,
        source_version: Eversion::new(21, 46),
        target_version: Eversion::new(20, 40),
        last_epoch_started: map.epoch,
        last_epoch_clean: Epoch(map.epoch.0 - 1),
        ready,
    }
}

fn epochs(map: &OsdMap) -> [Epoch; 4] {
    let pool = map.pool(1).unwrap();
    let resend = [pool.last_force_op_resend, pool.last_force_op_resend_prenautilus];
    [pool.last_change, resend[0], resend[1], pool.last_force_op_resend_preluminous]
}

/// The monitor heeds this word.
fn tell(map: &mut OsdMap, told: &ReadyToMerge) {
    let change = heed(map, told).expect("it is of the pending merge");
    assert!(apply(map, change));
}

/// Begins the merge that is due.
fn begin(map: &mut OsdMap) {
    let due = step(map, &reports(map));
    assert!(matches!(due, Some(Change::Merge { pool: 1, merge: Merge::Begin })), "{due:?}");
    assert!(apply(map, due.unwrap()));
}

#[test]
fn a_merge_takes_two_maps_and_the_word_of_the_primary() {
    let mut map = shrinking(14);
    begin(&mut map);
    let begun = map.epoch;
    assert_eq!(numbers(&map), [16, 14, 8, 8, 15]);
    assert_eq!(epochs(&map), [begun, Epoch(0), begun, begun]);
    assert!(step(&map, &reports(&map)).is_none(), "nothing happens meanwhile");
    // The map in which the primary got its up_thru comes in between.
    map.apply(&Incremental::next(&map, now())).unwrap();
    let told = word(&map, true);
    tell(&mut map, &told);
    assert_eq!(numbers(&map), [15, 14, 8, 8, 15]);
    assert_eq!(epochs(&map), [map.epoch, Epoch(0), map.epoch, begun]);
    let meta = MergeMeta {
        source_pg: PgId::new(1, 15),
        ready_epoch: Epoch(begun.0 + 2),
        last_epoch_started: told.last_epoch_started,
        last_epoch_clean: told.last_epoch_clean,
        source_version: told.source_version,
        target_version: told.target_version,
    };
    assert_eq!(map.pool(1).unwrap().last_pg_merge_meta, meta);
    assert!(heed(&map, &told).is_none(), "twice");
    assert!(heed(&map, &word(&map, true)).is_none(), "no merge has begun");
    // On with the next one.
    begin(&mut map);
    assert_eq!(numbers(&map), [15, 14, 8, 8, 14]);
    assert!(heed(&map, &told).is_none(), "that was another PG");
}

#[test]
fn a_pool_loses_one_pg_after_the_other() {
    let mut map = shrinking(16);
    assert_eq!(apply_step(&mut map), (16, 15), "the last one is placed where its objects go");
    let mut seen = Vec::new();
    while let Some(due) = step(&map, &reports(&map)) {
        assert!(apply(&mut map, due));
        let [pg_num, pgp_num, .., pending] = numbers(&map);
        seen.push((pg_num, pgp_num, pending));
        assert!(pgp_num <= pending && pending + 1 >= pg_num && pending >= 8);
        if pending < pg_num {
            let told = word(&map, true);
            tell(&mut map, &told);
        }
    }
    assert_eq!(numbers(&map), [8; 5]);
    // Others move while PGs with the right places are merged.
    let moves = seen.iter().filter(|(pg_num, _, pending)| pg_num == pending).count();
    assert_eq!((seen.len() - moves, moves), (8, 7));
    assert_eq!(map.pool(1).unwrap().last_pg_merge_meta.source_pg, PgId::new(1, 8));
}

#[test]
fn a_merge_that_is_given_up_leaves_the_pool_as_it_was() {
    let mut map = shrinking(14);
    begin(&mut map);
    let begun = map.epoch;
    let told = word(&map, false);
    tell(&mut map, &told);
    assert_eq!(numbers(&map), [16, 14, 8, 8, 16]);
    assert_eq!(epochs(&map), [map.epoch, Epoch(0), map.epoch, map.epoch]);
    assert_eq!(map.pool(1).unwrap().last_pg_merge_meta, MergeMeta::default());
    assert!(!apply(&mut map, Change::Merge { pool: 1, merge: Merge::GiveUp }));
    // A word of the first try is none of the second one.
    begin(&mut map);
    let late = ReadyToMerge { version: begun.0.into(), ..word(&map, true) };
    assert!(heed(&map, &late).is_none());
    let strange = [
        ReadyToMerge { version: u64::MAX, ..late.clone() },
        ReadyToMerge { version: u32::MAX.into(), ..late.clone() },
        ReadyToMerge { source: PgId::new(1, 14), ..word(&map, true) },
        ReadyToMerge { source: PgId::new(2, 15), ..word(&map, true) },
    ];
    assert!(strange.iter().all(|told| heed(&map, told).is_none()));
    // Nor is a word that was right when it was queued.
    let change = heed(&map, &word(&map, true)).unwrap();
    assert!(apply(&mut map, Change::Merge { pool: 1, merge: Merge::GiveUp }));
    assert!(!apply(&mut map, change.clone()));
    begin(&mut map);
    assert!(!apply(&mut map, change));
}

#[test]
fn a_merge_waits_until_it_is_safe() {
    let wished = shrinking(14);
    let begins = |map: &OsdMap, stats: &ClusterStats| {
        matches!(step(map, stats), Some(Change::Merge { merge: Merge::Begin, .. }))
    };
    assert!(begins(&wished, &reports(&wished)));
    let with_stat = |ps: u32, change: &dyn Fn(&mut PgStat)| {
        let mut stats = reports(&wished);
        change(&mut stats.pgs.get_mut(&PgId::new(1, ps)).unwrap().1);
        begins(&wished, &stats)
    };
    for ps in [15, 7] {
        assert!(!with_stat(ps, &|stat| stat.set_states(state::ACTIVE)), "{ps} is not clean");
        assert!(!with_stat(ps, &|stat| stat.set_states(state::CLEAN)), "{ps} is not active");
        assert!(!with_stat(ps, &|stat| stat.reported_epoch = Epoch(wished.epoch.0 - 1)), "old news");
        assert!(!with_stat(ps, &|stat| stat.acting.clear()), "news of another interval");
    }
    assert!(with_stat(3, &|stat| stat.set_states(state::ACTIVE)), "others may recover");
    let with_map = |change: &dyn Fn(&mut OsdMap)| {
        let mut map = wished.clone();
        change(&mut map);
        let due = begins(&map, &reports(&map));
        let begin = Change::Merge { pool: 1, merge: Merge::Begin };
        assert!(!due || begin.plan(&map, now()).unwrap().is_some());
        due
    };
    let pools = |change: fn(&mut PgPool)| with_map(&|map| edit(map, change));
    assert!(pools(|_| ()));
    assert!(!pools(|pool| pool.pgp_num = 16), "it is placed apart");
    assert!(!pools(|pool| pool.pg_num_target = 16), "nobody wants it");
    assert!(!pools(|pool| pool.flags |= 0x20), "nopgchange");
    assert!(!pools(|pool| pool.flags |= POOL_CREATING));
    for ps in [15, 7] {
        let pg = PgId::new(1, ps);
        assert!(!with_map(&|map| drop(map.pg_temp.insert(pg, vec![1, 0, 2]))), "an acting set was asked for");
        assert!(!with_map(&|map| _ = map.primary_temp.insert(pg, 1)));
    }
    let down = Change::Down { osd: OsdId(2), addrs: addrs_of(2, 1), is_dead: true };
    let without_one = |map: &mut OsdMap| {
        edit(map, |pool| (pool.size, pool.min_size) = (2, 1));
        assert!(apply(map, down.clone()));
    };
    assert!(!with_map(&without_one), "it may come back with what is merged");
    assert!(with_map(&|map| {
        without_one(map);
        (0..2).for_each(|osd| _ = apply(map, Change::Weight { osds: vec![OsdId(osd)], weight: WEIGHT_IN }));
        apply(map, Change::Weight { osds: vec![OsdId(2)], weight: 0 });
    }));
    // Late: it was safe when it was thought of.
    let mut map = wished.clone();
    let late = step(&map, &reports(&map)).unwrap();
    without_one(&mut map);
    assert!(!apply(&mut map, late));
}

#[test]
fn exceptions_from_crush_end_before_a_merge_and_with_it() {
    let mut map = shrinking(14);
    let [source, target] = [15, 7].map(|ps| PgId::new(1, ps));
    let osds = [2, 0, 1].map(OsdId).to_vec();
    for pg in [source, target] {
        assert!(apply(&mut map, Change::Upmap { pg, upmap: Upmap::Osds(osds.clone()) }));
    }
    let items = Upmap::Items(vec![(OsdId(0), OsdId(1))]);
    assert!(apply(&mut map, Change::Upmap { pg: target, upmap: items.clone() }));
    for left in [2, 1, 0] {
        let due = step(&map, &reports(&map)).unwrap();
        assert!(matches!(due, Change::Upmap { .. }) && apply(&mut map, due));
        assert_eq!(map.pg_upmap.len() + map.pg_upmap_items.len(), left);
    }
    begin(&mut map);
    // The PG may get one once more; and it may be that it has the same OSDs all the same.
    let same = carmine_crush::pg_mapping(&map, target).up.iter().map(|osd| OsdId(*osd as u32)).collect();
    assert!(apply(&mut map, Change::Upmap { pg: source, upmap: Upmap::Osds(same) }));
    let told = word(&map, true);
    tell(&mut map, &told);
    assert!(map.pg_upmap.is_empty() && map.pool(1).unwrap().pg_num == 15);
    begin(&mut map);
    let at = carmine_crush::pg_mapping(&map, PgId::new(1, 6));
    let turned = at.up.iter().rev().map(|osd| OsdId(*osd as u32)).collect();
    assert!(apply(&mut map, Change::Upmap { pg: PgId::new(1, 14), upmap: Upmap::Osds(turned) }));
    let told = word(&map, true);
    let change = heed(&map, &told).unwrap();
    assert!(!apply(&mut map, change), "they have other OSDs now");
}
