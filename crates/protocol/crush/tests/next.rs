//! A view that is made from the one before it is the view of its map.

use std::sync::Arc;

use carmine_crush::{MapView, Mapping, PGS_MAX, build_simple_crush};
use carmine_types::{Epoch, OsdId, PgId, UTime};
use carmine_wire::osdmap::consts::{
    AFFINITY_MAX, POOL_ERASURE, POOL_HASHPSPOOL, STATE_EXISTS, STATE_UP, WEIGHT_IN,
};
use carmine_wire::osdmap::{OsdMap, PgPool};
use proptest::prelude::*;

const OSDS: u32 = 8;

fn pool(size: u8, pg_num: u32) -> PgPool {
    PgPool::replicated(size, 1, pg_num, 0, Epoch(1), UTime::default())
}

fn map(pg_nums: &[u32]) -> OsdMap {
    let osds: Vec<(OsdId, u32)> = (0..OSDS).map(|osd| (OsdId(osd), WEIGHT_IN)).collect();
    let crush = Arc::new(build_simple_crush(&osds, true));
    let mut map = OsdMap { epoch: Epoch(1), crush, ..OsdMap::default() };
    map.set_max_osd(OSDS);
    map.osd_state.fill(STATE_EXISTS | STATE_UP);
    map.osd_weight.fill(WEIGHT_IN);
    map.pools = (1..).zip(pg_nums.iter().map(|pg_num| pool(3, *pg_num))).collect();
    map
}

fn all(view: &MapView) -> Vec<(PgId, Mapping)> {
    view.pgs().map(|(pg, mapping)| (pg, mapping.clone())).collect()
}

/// What a map may change.
#[derive(Clone, Debug)]
enum Change {
    State(u32, u32),
    Weight(u32, u32),
    Affinity(u32, u32),
    Temp(PgId, Vec<i32>),
    PrimaryTemp(PgId, Option<i32>),
    Upmap(PgId, Vec<i32>),
    UpmapItems(PgId, Vec<(i32, i32)>),
    PgNum(i64, u32),
    PgpNum(i64, u32),
    Size(i64, u8),
    Flag(i64, u64),
    Kind(i64, u8),
    Pool(i64, Option<u32>),
    Tries(u32),
    Devices(i32),
}

fn change() -> impl Strategy<Value = Change> {
    let osd = 0..OSDS;
    let item = -1..OSDS as i32 + 1;
    let list = prop::collection::vec(item.clone(), 0..4);
    let pg = (1..4i64, 0..20u32).prop_map(|(pool, ps)| PgId::new(pool, ps));
    let id = 1..4i64;
    prop_oneof![
        4 => (osd.clone(), 0..4u32).prop_map(|(osd, state)| Change::State(osd, state)),
        1 => (osd.clone(), prop_oneof![Just(0), Just(WEIGHT_IN / 2), Just(WEIGHT_IN)]).prop_map(|(o, w)| Change::Weight(o, w)),
        2 => (osd, prop_oneof![Just(0), Just(AFFINITY_MAX / 2), Just(AFFINITY_MAX)]).prop_map(|(o, a)| Change::Affinity(o, a)),
        3 => (pg.clone(), list.clone()).prop_map(|(pg, osds)| Change::Temp(pg, osds)),
        2 => (pg.clone(), prop::option::of(item.clone())).prop_map(|(pg, osd)| Change::PrimaryTemp(pg, osd)),
        2 => (pg.clone(), list).prop_map(|(pg, osds)| Change::Upmap(pg, osds)),
        2 => (pg, prop::collection::vec((item.clone(), item), 0..3)).prop_map(|(pg, items)| Change::UpmapItems(pg, items)),
        3 => (id.clone(), 1..40u32).prop_map(|(pool, n)| Change::PgNum(pool, n)),
        3 => (id.clone(), 1..40u32).prop_map(|(pool, n)| Change::PgpNum(pool, n)),
        1 => (id.clone(), 1..5u8).prop_map(|(pool, n)| Change::Size(pool, n)),
        1 => (id.clone(), prop_oneof![Just(0), Just(POOL_HASHPSPOOL)]).prop_map(|(pool, flags)| Change::Flag(pool, flags)),
        1 => (id.clone(), prop_oneof![Just(1), Just(POOL_ERASURE)]).prop_map(|(pool, kind)| Change::Kind(pool, kind)),
        1 => (id, prop::option::of(1..30u32)).prop_map(|(pool, n)| Change::Pool(pool, n)),
        1 => prop_oneof![Just(50), Just(u32::MAX)].prop_map(Change::Tries),
        1 => (6..9i32).prop_map(Change::Devices),
    ]
}

/// An empty list takes an entry away.
fn put<V>(entries: &mut std::collections::BTreeMap<PgId, Vec<V>>, pg: PgId, value: Vec<V>) {
    entries.insert(pg, value);
    entries.retain(|_, value| !value.is_empty());
}

fn apply(map: &mut OsdMap, change: Change) {
    let edit = |map: &mut OsdMap, id: i64, edit: &dyn Fn(&mut PgPool)| {
        map.pools.get_mut(&id).into_iter().for_each(edit);
    };
    match change {
        Change::State(osd, state) => map.osd_state[osd as usize] = state,
        Change::Weight(osd, weight) => map.osd_weight[osd as usize] = weight,
        Change::Affinity(osd, affinity) => {
            map.primary_affinity.resize(OSDS as usize, AFFINITY_MAX);
            map.primary_affinity[osd as usize] = affinity;
        }
        Change::Temp(pg, osds) => put(&mut map.pg_temp, pg, osds),
        Change::PrimaryTemp(pg, Some(osd)) => drop(map.primary_temp.insert(pg, osd)),
        Change::PrimaryTemp(pg, None) => drop(map.primary_temp.remove(&pg)),
        Change::Upmap(pg, osds) => put(&mut map.pg_upmap, pg, osds),
        Change::UpmapItems(pg, items) => put(&mut map.pg_upmap_items, pg, items),
        Change::PgNum(id, n) => edit(map, id, &|pool| pool.pg_num = n),
        Change::PgpNum(id, n) => edit(map, id, &|pool| pool.pgp_num = n),
        Change::Size(id, n) => edit(map, id, &|pool| pool.size = n),
        Change::Flag(id, flags) => edit(map, id, &|pool| pool.flags = flags),
        Change::Kind(id, kind) => edit(map, id, &|pool| pool.kind = kind),
        Change::Pool(id, Some(n)) => drop(map.pools.insert(id, pool(3, n))),
        Change::Pool(id, None) => drop(map.pools.remove(&id)),
        Change::Tries(tries) => Arc::make_mut(&mut map.crush).tunables.choose_total_tries = tries,
        Change::Devices(n) => Arc::make_mut(&mut map.crush).max_devices = n,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn the_next_view_is_that_of_its_map(steps in prop::collection::vec(prop::collection::vec(change(), 0..4), 1..6)) {
        let mut map = map(&[16, 5]);
        let mut view = MapView::new(Arc::new(map.clone()));
        for changes in steps {
            changes.into_iter().for_each(|change| apply(&mut map, change));
            let map = Arc::new(map.clone());
            view = view.next(Arc::clone(&map));
            prop_assert_eq!(all(&view), all(&MapView::new(Arc::clone(&map))));
            prop_assert!(Arc::ptr_eq(view.map(), &map));
        }
    }
}

/// Whether both views have this pool's placements in the same memory.
fn share(one: &MapView, other: &MapView, pool: i64) -> bool {
    std::ptr::eq(one.mapping(PgId::new(pool, 0)), other.mapping(PgId::new(pool, 0)))
}

#[test]
fn pools_of_which_nothing_moves_are_shared() {
    let mut map = map(&[16, 16]);
    let first = MapView::new(Arc::new(map.clone()));
    map.epoch = Epoch(2);
    map.pg_temp.insert(PgId::new(2, 3), vec![7, 6, 5]);
    let second = first.next(Arc::new(map.clone()));
    assert!(share(&first, &second, 1) && !share(&first, &second, 2), "pg_temp of pool 2");
    assert_eq!(second.mapping(PgId::new(2, 3)).acting[..], [7, 6, 5]);
    map.osd_state[0] = STATE_EXISTS;
    let third = second.next(Arc::new(map.clone()));
    assert!(!share(&second, &third, 1) && !share(&second, &third, 2), "an OSD is down");
    map.epoch = Epoch(4);
    map.pools.get_mut(&1).unwrap().quota_max_bytes = 7;
    // The bytes that came are another copy of the same tree.
    map.crush = Arc::new((*map.crush).clone());
    let fourth = third.next(Arc::new(map));
    assert!(share(&third, &fourth, 1) && share(&third, &fourth, 2), "a quota");
}

/// It is no OSD that CRUSH gives.
#[test]
fn an_osd_of_a_pg_temp_goes_down() {
    let mut map = map(&[16]);
    let pg = PgId::new(1, 3);
    let known = MapView::new(Arc::new(map.clone())).mapping(pg).wanted.clone();
    let other = (0..OSDS as i32).find(|osd| !known.contains(osd)).unwrap();
    map.pg_temp.insert(pg, vec![other, known[0]]);
    let before = MapView::new(Arc::new(map.clone()));
    assert_eq!(before.mapping(pg).acting[..], [other, known[0]]);
    map.osd_state[other as usize] = STATE_EXISTS;
    assert_eq!(before.next(Arc::new(map)).mapping(pg).acting[..], [known[0]]);
}

#[test]
fn children_of_a_split_are_where_their_parents_are() {
    let mut map = map(&[8]);
    let before = MapView::new(Arc::new(map.clone()));
    map.pools.get_mut(&1).unwrap().pg_num = 32;
    let after = before.next(Arc::new(map));
    assert_eq!(after.pgs().count(), 32);
    assert!(after.pgs().all(|(pg, mapping)| mapping == before.mapping(PgId::new(1, pg.ps % 8))));
}

#[test]
fn a_pool_that_does_not_fit_is_named() {
    let mut map = map(&[4]);
    let fits = MapView::new(Arc::new(map.clone()));
    assert_eq!(fits.unplaced().count(), 0);
    map.pools.insert(2, pool(1, PGS_MAX as u32));
    map.pool_names.insert(2, "huge".to_owned());
    let view = fits.next(Arc::new(map.clone()));
    assert_eq!(view.unplaced().collect::<Vec<_>>(), [2]);
    let lines = view.complaints(Some(&fits));
    assert!(lines.len() == 1 && lines[0].starts_with("pool 2 'huge' is not placed"), "{lines:?}");
    assert_eq!((&view.complaints(None), view.next(Arc::new(map)).complaints(Some(&view)).len()), (&lines, 0));
    assert!(view.mapping(PgId::new(2, 0)).acting.is_empty() && share(&fits, &view, 1));
}

/// What is found of pool 2 depends on how often CRUSH gave up before: such a view is no help for the next one.
#[test]
fn a_view_after_one_whose_rule_did_not_end_is_made_anew() {
    let mut map = map(&[32, 8]);
    Arc::make_mut(&mut map.crush).tunables.choose_total_tries = u32::MAX;
    map.pools.get_mut(&1).unwrap().size = 10;
    let none = MapView::new(Arc::new(map.clone()));
    assert!(none.pgs().all(|(_, mapping)| mapping.acting.is_empty()));
    map.pools.remove(&1);
    let view = none.next(Arc::new(map));
    assert!(view.pgs().count() == 8 && view.pgs().all(|(_, mapping)| mapping.acting.len() == 3));
}
