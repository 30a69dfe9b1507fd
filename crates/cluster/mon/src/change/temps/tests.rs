use carmine_wire::osdmap::consts::POOL_ERASURE;

use super::*;
use crate::change::Change;
use crate::testing::{apply, cluster, up};

const PG: PgId = PgId::new(1, 0);

/// Four OSDs of which all are up, and a pool of three replicas.
fn cluster_up() -> OsdMap {
    let mut map = cluster(4);
    (0..4).for_each(|osd| up(&mut map, osd, 1));
    assert!(apply(&mut map, Change::SetPool { pool: "bench".into(), size: Some(3), min_size: Some(2) }));
    map
}

fn at(map: &OsdMap) -> Mapping {
    pg_mapping(map, PG)
}

fn primary(map: &OsdMap) -> OsdId {
    at(map).acting_primary.unwrap()
}

/// The members that CRUSH names, and the OSD that is none.
fn members(map: &OsdMap) -> ([i32; 3], i32) {
    let members = <[i32; 3]>::try_from(&at(map).wanted[..]).unwrap();
    (members, (0..4).find(|osd| !members.contains(osd)).unwrap())
}

fn asks(map: &OsdMap, leader: OsdId, entry: &[i32]) -> Asked {
    Asked { leader, epoch: map.epoch, temps: BTreeMap::from([(PG, entry.to_vec())]), forced: false }
}

/// The primary asks for this acting set.
fn wish(map: &mut OsdMap, entry: &[i32]) -> bool {
    let asked = asks(map, primary(map), entry);
    apply(map, Change::PgTemp(asked))
}

fn entry(map: &OsdMap) -> &[i32] {
    map.pg_temp.get(&PG).map_or(&[], Vec::as_slice)
}

fn down(map: &mut OsdMap, osd: i32) {
    assert!(apply(map, Change::MarkDown { osds: vec![OsdId(osd as u32)] }));
}

#[test]
fn a_primary_gets_the_acting_set_that_it_asks_for() {
    let mut map = cluster_up();
    let ([a, b, c], other) = members(&map);
    assert!(wish(&mut map, &[other, b, c]));
    assert_eq!((&at(&map).acting[..], primary(&map).0 as i32), (&[other, b, c][..], other));
    assert_eq!(at(&map).up[..], [a, b, c], "those that CRUSH names have the place");
    assert!(!wish(&mut map, &[other, b, c]), "it is so already");
    assert!(wish(&mut map, &[b, c]), "fewer are fine");
    assert!(wish(&mut map, &[]));
    assert!(map.pg_temp.is_empty() && !wish(&mut map, &[]));
}

#[test]
fn it_counts_as_alive_by_the_map_that_it_spoke_of() {
    let mut map = cluster_up();
    let ([a, b, c], _) = members(&map);
    let (leader, epoch) = (primary(&map), Epoch(map.epoch.0 - 2));
    let asked = Asked { epoch, ..asks(&map, leader, &[b, a, c]) };
    assert!(apply(&mut map, Change::PgTemp(asked)), "an older map than ours is no reason against it");
    assert_eq!(map.up_thru(leader), epoch);
    let asked = Asked { epoch: Epoch(1_000), ..asks(&map, primary(&map), &[c, a, b]) };
    let (leader, before) = (primary(&map), map.epoch);
    assert!(apply(&mut map, Change::PgTemp(asked)));
    assert_eq!(map.up_thru(leader), before, "there is no such map");
}

#[test]
fn only_the_primary_is_heard_and_only_of_what_can_be() {
    let map = cluster_up();
    let ([a, b, c], other) = members(&map);
    let (leader, second) = (primary(&map), OsdId(b as u32));
    for (asked, why) in [
        (asks(&map, second, &[b, a, c]), "it does not lead"),
        (asks(&map, leader, &[b, 9]), "there is no such OSD"),
        (asks(&map, leader, &[b, b]), "twice"),
        (asks(&map, leader, &[b, NO_OSD, c]), "replicas have no positions"),
        (asks(&map, leader, &[]), "there is none"),
    ] {
        assert!(!apply(&mut map.clone(), Change::PgTemp(asked)), "{why}");
    }
    for pg in [PgId::new(1, 4_096), PgId::new(7, 0)] {
        let asked = Asked { temps: [(pg, vec![b, a])].into(), ..asks(&map, leader, &[]) };
        assert!(!apply(&mut map.clone(), Change::PgTemp(asked)));
    }
    let forced = Asked { forced: true, ..asks(&map, second, &[b, a, c]) };
    assert!(apply(&mut map.clone(), Change::PgTemp(forced)));
    let mut dead = map.clone();
    down(&mut dead, b);
    let forced = Asked { forced: true, ..asks(&dead, second, &[a, c]) };
    assert!(!apply(&mut dead, Change::PgTemp(forced)), "it is down");
    let mut coded = map;
    coded.pools.get_mut(&1).unwrap().kind = POOL_ERASURE;
    assert!(is_possible(&coded, PG, &[b, NO_OSD, other]), "a hole keeps the positions");
}

#[test]
fn an_entry_goes_when_it_says_nothing() {
    let start = cluster_up();
    let ([a, b, c], other) = members(&start);
    // What CRUSH says, also if somebody is down, and more than there are replicas: it never comes into the map.
    let mut map = start.clone();
    wish(&mut map, &[a, b, c]);
    wish(&mut map, &[a, b, c, other]);
    assert!(map.pg_temp.is_empty());
    // CRUSH comes round to it.
    let mut map = start.clone();
    down(&mut map, c);
    assert!(wish(&mut map, &[b, a]) && entry(&map) == [b, a]);
    up(&mut map, c as u32, 2);
    assert_eq!((entry(&map), &at(&map).up[..]), (&[b, a][..], &[a, b, c][..]));
    let mut map = start.clone();
    assert!(wish(&mut map, &[a, b]));
    down(&mut map, c);
    assert!(map.pg_temp.is_empty(), "the two that are left are what CRUSH says");
    // The pool gets smaller.
    let mut map = start.clone();
    assert!(wish(&mut map, &[b, a, other]));
    apply(&mut map, Change::SetPool { pool: "bench".into(), size: Some(2), min_size: None });
    assert!(map.pg_temp.is_empty());
    // Some are down, then all.
    let mut map = start.clone();
    assert!(wish(&mut map, &[other, b]));
    down(&mut map, other);
    assert_eq!((entry(&map), &at(&map).acting[..]), (&[other, b][..], &[b][..]));
    down(&mut map, b);
    assert!(map.pg_temp.is_empty());
    // The pool is gone.
    let mut map = start;
    assert!(wish(&mut map, &[other, b]));
    assert!(apply(&mut map, Change::DeletePool { pool: 1 }) && map.pg_temp.is_empty());
}

#[test]
fn a_chosen_primary_goes_like_an_entry() {
    let start = cluster_up();
    let ([a, b, c], _) = members(&start);
    let chosen = |osd: i32| {
        let mut map = start.clone();
        map.primary_temp.insert(PG, osd);
        map
    };
    let any = || Change::Flags { set: 0x80, clear: 0 };
    let mut map = chosen(b);
    assert!(apply(&mut map, any()) && map.primary_temp.contains_key(&PG));
    down(&mut map, b);
    assert!(map.primary_temp.is_empty(), "it is down");
    let mut map = chosen(a);
    assert!(apply(&mut map, any()) && map.primary_temp.is_empty(), "it leads anyway");
    let mut map = chosen(b);
    assert!(wish(&mut map, &[c, b, a]) && map.primary_temp.is_empty(), "the entry says who leads");
}

/// As epochs 24, 30 and 31 of the capture 4osd-failure: the map that takes an OSD down or in says nothing, and primaries ask.
#[test]
fn priming_keeps_nobody_that_has_no_entry() {
    let mut map = cluster_up();
    let ([a, b, c], other) = members(&map);
    let leader = primary(&map);
    assert!(apply(&mut map, Change::Weight { osds: vec![leader], weight: 0 }));
    assert_eq!((map.pg_temp.len(), at(&map).acting.len()), (0, 3));
    assert!(at(&map).acting.contains(&other), "CRUSH's wish is in force at once");
    assert!(wish(&mut map, &[a, b, c]));
    assert_eq!((entry(&map), primary(&map)), (&[a, b, c][..], leader));
}

#[test]
fn priming_keeps_those_that_serve_by_an_entry() {
    let start = cluster_up();
    let ([a, b, _], other) = members(&start);
    let mut map = start.clone();
    assert!(wish(&mut map, &[b, other, a]));
    down(&mut map, other);
    assert_eq!(entry(&map), [b, other, a], "the entry is the acting set of before");
    // One that comes back does not join by itself, …
    up(&mut map, other as u32, 2);
    assert_eq!((entry(&map), &at(&map).acting[..]), (&[b, a][..], &[b, a][..]));
    // … and what is not enough to serve is kept for nobody.
    let mut map = start.clone();
    assert!(wish(&mut map, &[b, other]));
    down(&mut map, other);
    up(&mut map, other as u32, 2);
    assert_eq!(at(&map).acting[..], [b, other]);
    // A new PG is left alone, and all of them are if priming is off.
    let mut map = start;
    assert!(wish(&mut map, &[b, other, a]));
    down(&mut map, other);
    let mut inc = Incremental::next(&map, map.modified);
    inc.new_up_client.insert(OsdId(other as u32), crate::testing::addrs_of(other as u32, 3));
    let next = inc.applied(&map).unwrap();
    let primed = |is_new: bool| {
        let mut inc = inc.clone();
        prime(&map, &next, &mut inc, |_| is_new);
        inc.new_pg_temp
    };
    assert_eq!((primed(false), primed(true)), ([(PG, vec![b, a])].into(), BTreeMap::new()));
}
