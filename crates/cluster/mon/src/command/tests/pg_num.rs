//! A pool gets more PGs. The commands answer with the words of Ceph 16.2.15, and the maps are those that its monitor and manager made after
//! `osd pool set sp pg_num 16`.

use carmine_types::Epoch;
use carmine_wire::osdmap::consts::POOL_CREATING;
use carmine_wire::osdmap::{Incremental, PgPool};

use super::*;
use crate::pacing::next_step;
use crate::testing::addrs_of;

/// A pool `bench` with this many PGs on three OSDs.
pub(super) fn pool(pg_num: u32) -> OsdMap {
    let mut map = cluster_up(3);
    let mut inc = Incremental::next(&map, now());
    let bench = map.pool(1).unwrap().clone();
    let [pgp_num, pg_num_target, pgp_num_target, pg_num_pending] = [pg_num; 4];
    let flags = bench.flags & !POOL_CREATING;
    let sized = PgPool { pg_num, pgp_num, pg_num_target, pgp_num_target, pg_num_pending, flags, ..bench };
    inc.new_pools.insert(1, sized);
    map.apply(&inc).unwrap();
    map
}

fn with_view<T>(map: &OsdMap, stats: &ClusterStats, look: impl FnOnce(&View<'_>) -> T) -> T {
    let (options, bytes) = (ClientOptions::default(), map.encode());
    let placement = MapView::new(std::sync::Arc::new(map.clone()));
    look(&view_of(map, (&placement, &bytes), stats, &options))
}

/// Sets a value: an errno and a text, if that is refused by the command or by the map.
fn set(map: &mut OsdMap, var: &str, val: &str) -> Result<(), (i32, String)> {
    let text = json!({ "prefix": "osd pool set", "pool": "bench", "var": var, "val": val }).to_string();
    let outcome = with_view(map, &reports(map), |view| run(&[text], view));
    let refused = |refusal: Refusal| (refusal.code.0, refusal.text);
    match outcome.map_err(refused)? {
        Answer::Change { change, status } => {
            assert_eq!(status, format!("set pool 1 {var} to {val}"));
            if change.plan(map, now()).map_err(refused)?.is_some() {
                assert!(apply(map, change));
            }
            Ok(())
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn step(map: &OsdMap, stats: &ClusterStats) -> Option<Change> {
    with_view(map, stats, |view| next_step(view, |_| true))
}

/// Applies the step that is due; the pool's numbers after it.
pub(super) fn apply_step(map: &mut OsdMap) -> (u32, u32) {
    let due = step(map, &reports(map)).expect("a step is due");
    assert!(apply(map, due));
    let pool = map.pool(1).unwrap();
    assert_eq!(pool.pg_num_pending, pool.pg_num);
    (pool.pg_num, pool.pgp_num)
}

pub(super) fn numbers(map: &OsdMap) -> [u32; 5] {
    let pool = map.pool(1).unwrap();
    [pool.pg_num, pool.pgp_num, pool.pg_num_target, pool.pgp_num_target, pool.pg_num_pending]
}

#[test]
fn more_pgs_come_first_and_move_then() {
    let mut map = pool(8);
    assert!(step(&map, &reports(&map)).is_none(), "all is as wanted");
    set(&mut map, "pg_num", "16").unwrap();
    assert_eq!(numbers(&map), [8, 8, 16, 16, 8], "the wish is a map of its own");
    assert_eq!(map.pool(1).unwrap().last_force_op_resend_preluminous, Epoch(0));
    assert_eq!(apply_step(&mut map), (16, 8));
    let split = map.epoch;
    let pool = map.pool(1).unwrap();
    assert_eq!((pool.last_force_op_resend_preluminous, pool.last_change), (split, split));
    assert_eq!((pool.last_force_op_resend, pool.last_force_op_resend_prenautilus), (Epoch(0), Epoch(0)));
    let moves: Vec<_> =
        std::iter::from_fn(|| step(&map, &reports(&map)).map(|_| apply_step(&mut map))).collect();
    assert_eq!(moves, (9..17).map(|pgp_num| (16, pgp_num)).collect::<Vec<_>>());
    assert_eq!(
        map.pool(1).unwrap().last_force_op_resend_preluminous,
        split,
        "nobody sends anything again for these"
    );
    assert_eq!(numbers(&map), [16; 5]);
}

#[test]
fn a_map_adds_at_most_1024_pgs_and_moves_a_fortieth_of_them() {
    let mut map = pool(1_024);
    set(&mut map, "pg_num", "4096").unwrap();
    assert_eq!(
        [(); 4].map(|()| apply_step(&mut map)),
        [(2_048, 1_024), (3_072, 1_024), (4_096, 1_024), (4_096, 1_126)]
    );
    set(&mut map, "pgp_num", "1000").unwrap();
    assert_eq!([(); 2].map(|()| apply_step(&mut map)), [(4_096, 1_024), (4_096, 1_000)], "back, as slowly");
}

#[test]
fn a_step_waits_until_it_is_safe() {
    let mut wished = pool(8);
    set(&mut wished, "pg_num", "16").unwrap();
    let is_due = |change: &dyn Fn(&mut OsdMap, &mut ClusterStats)| {
        let (mut map, mut stats) = (wished.clone(), reports(&wished));
        change(&mut map, &mut stats);
        step(&map, &stats).is_some()
    };
    assert!(is_due(&|_, _| ()));
    assert!(!is_due(&|map, stats| first(map, stats).2.set_states(state::ACTIVE)), "a PG is not clean");
    assert!(!is_due(&|_, stats| drop(stats.pgs.remove(&PgId::new(1, 0)))), "nobody has told of a PG");
    assert!(!is_due(&|map, stats| first(map, stats).2.reported_epoch = Epoch(map.epoch.0 - 1)), "old news");
    assert!(!is_due(&|map, stats| first(map, stats).2.acting.clear()), "news of another interval");
    let with_map = |change: &dyn Fn(&mut OsdMap)| {
        let mut map = wished.clone();
        change(&mut map);
        step(&map, &reports(&map)).is_some()
    };
    let down = Change::Down { osd: OsdId(2), addrs: addrs_of(2, 1), is_dead: true };
    assert!(!with_map(&|map| {
        apply(map, down.clone());
    }));
    let pg = PgId::new(1, 3);
    assert!(!with_map(&|map| drop(map.pg_temp.insert(pg, vec![1, 0, 2]))), "an acting set was asked for");
    assert!(!with_map(&|map| map.pools.get_mut(&1).unwrap().flags |= 0x20), "nopgchange");
    assert!(!with_map(&|map| map.pools.get_mut(&1).unwrap().flags |= POOL_CREATING), "PGs are being created");
    // One that is not meant to come back is not waited for; its PGs are clean without it.
    let mut out = wished.clone();
    (0..3).for_each(|osd| _ = apply(&mut out, Change::Weight { osds: vec![OsdId(osd)], weight: WEIGHT_IN }));
    assert!(apply(&mut out, Change::SetPool { pool: "bench".into(), size: Some(2), min_size: None }));
    assert!(apply(&mut out, down.clone()));
    assert!(step(&out, &reports(&out)).is_none());
    assert!(apply(&mut out, Change::Weight { osds: vec![OsdId(2)], weight: 0 }));
    assert!(step(&out, &reports(&out)).is_some());
    // What was thought of before something happened is not done after it.
    let late = step(&wished, &reports(&wished)).unwrap();
    let mut map = wished.clone();
    assert!(apply(&mut map, down));
    assert!(late.plan(&map, now()).unwrap().is_none());
}

#[test]
fn pgs_are_moved_while_few_objects_are_misplaced() {
    let mut map = pool(400);
    set(&mut map, "pgp_num", "200").unwrap();
    let moved = |misplaced: i64, states: u64| {
        let mut stats = reports(&map);
        let (_, _, stat) = first(&map, &mut stats);
        (stat.stats.sum.num_object_copies, stat.stats.sum.num_objects_misplaced) = (10_000, misplaced);
        stat.set_states(states);
        // The other OSDs' PGs have 60 copies.
        let left = map.clone();
        step(&left, &stats).map(|change| match change {
            Change::PgStep { pgp_num, .. } => 400 - pgp_num,
            other => panic!("{other:?}"),
        })
    };
    let clean = state::ACTIVE | state::CLEAN;
    assert_eq!(
        [0, 300, 450, 503, 900].map(|misplaced| moved(misplaced, clean)),
        [Some(10), Some(8), Some(2), None, None]
    );
    assert_eq!(moved(300, state::ACTIVE), Some(8), "it is being moved");
    assert_eq!(moved(0, state::DOWN), None);
    // What is moved has such entries meanwhile, and no PG is divided.
    map.pg_temp.insert(PgId::new(1, 399), vec![2, 1, 0]);
    assert_eq!(apply_step(&mut map), (400, 390));
}

#[test]
fn what_cannot_be_is_refused_with_ceph_s_words() {
    let mut map = pool(8);
    let range = "'pg_num' must be greater than 0 and less than or equal to 65536 (you may adjust 'mon max pool pg num' for higher values)";
    let number = "error parsing integer value 'x': Expected option value to be integer, got 'x'";
    for (var, val, code, text) in [
        ("pg_num", "0", errno::ERANGE, range),
        ("pg_num", "-1", errno::ERANGE, range),
        ("pg_num", "65537", errno::ERANGE, range),
        ("pg_num", "x", errno::EINVAL, number),
        ("pgp_num", "0", errno::EINVAL, "specified pgp_num must > 0, but you set to 0"),
        ("pgp_num", "-2", errno::EINVAL, "specified pgp_num must > 0, but you set to -2"),
        ("pgp_num", "9", errno::EINVAL, "specified pgp_num 9 > pg_num 8"),
        ("pgp_num", "x", errno::EINVAL, number),
        ("pg_num_max", "4", errno::EINVAL, "specified pg_num_max 4 < pg_num 8"),
        ("pg_num_max", "-4", errno::EINVAL, "specified pg_num_max -4 < pg_num 8"),
        ("pg_num_min", "9", errno::EINVAL, "specified pg_num_min 9 > pg_num 8"),
        ("pg_autoscale_mode", "foo", errno::EINVAL, "specified invalid mode foo"),
    ] {
        assert_eq!(set(&mut map, var, val), Err((code, text.to_owned())), "{var} {val}");
    }
    let before = map.clone();
    ["pg_num", "pgp_num"].iter().for_each(|var| set(&mut map, var, "8").unwrap());
    assert_eq!(map, before, "they are so already");
    set(&mut map, "pg_num_min", "5").unwrap();
    set(&mut map, "pg_num_max", "12").unwrap();
    let refused = |map: &mut OsdMap, var, val| set(map, var, val).unwrap_err();
    let text = "specified pg_num 16 < pg_num_max 12".to_owned();
    assert_eq!(refused(&mut map, "pg_num", "16"), (errno::EINVAL, text));
    set(&mut map, "pg_num", "10").unwrap();
    set(&mut map, "pg_num_max", "0").unwrap();
    assert_eq!(
        refused(&mut map, "pg_num", "4"),
        (errno::EINVAL, "specified pg_num 4 < pg_num_min 5".to_owned())
    );
    // The wish may be taken back.
    set(&mut map, "pg_num", "9").unwrap();
    assert_eq!(numbers(&map), [8, 8, 9, 9, 8]);
    set(&mut map, "pg_num", "5").unwrap();
    assert_eq!(numbers(&map), [8, 8, 5, 5, 8], "fewer are a wish, too");
    set(&mut map, "nopgchange", "1").unwrap();
    for (var, val) in [("pg_num", "x"), ("pgp_num", "8")] {
        let text =
            format!("pool {var} change is disabled; you must unset nopgchange flag for the pool first");
        assert_eq!(refused(&mut map, var, val), (errno::EPERM, text));
    }
}

#[test]
fn numbers_that_users_set_apart_stay_apart() {
    let mut map = pool(8);
    set(&mut map, "pgp_num", "4").unwrap();
    set(&mut map, "pg_num", "16").unwrap();
    assert_eq!(numbers(&map), [8, 8, 16, 4, 8]);
    let health = with_view(&map, &reports(&map), |view| crate::report::health::text(view, true));
    assert!(
        health.contains(
            "SMALLER_PGP_NUM: 1 pools have pg_num > pgp_num\n    pool bench pg_num 16 > pgp_num 4\n"
        ),
        "{health}"
    );
    set(&mut map, "pgp_num", "16").unwrap();
    set(&mut map, "pg_num", "12").unwrap();
    assert_eq!(numbers(&map), [8, 8, 12, 12, 8]);
    set(&mut map, "pgp_num", "11").unwrap();
    set(&mut map, "pg_num", "10").unwrap();
    assert_eq!(numbers(&map), [8, 8, 10, 10, 8], "not more are placed than there are");
    set(&mut map, "pg_num", "12").unwrap();
    let health = with_view(&map, &reports(&map), |view| crate::report::health::text(view, true));
    assert!(health.contains("POOL_PG_NUM_NOT_POWER_OF_TWO: 1 pool(s) have non-power-of-two pg_num\n    pool 'bench' pg_num 12 is not a power of two\n"), "{health}");
}

#[test]
fn new_pgs_are_unknown_until_somebody_tells_of_them() {
    let mut map = pool(8);
    set(&mut map, "pg_num", "16").unwrap();
    let stats = reports(&map);
    apply_step(&mut map);
    let states = with_view(&map, &stats, crate::report::pg::states);
    let unknown: Vec<u32> =
        states.iter().filter(|(_, state)| state == "unknown").map(|(pg, _)| pg.ps).collect();
    assert_eq!((states.len(), unknown), (16, (8..16).collect()));
    assert!(step(&map, &stats).is_none(), "nothing moves before");
}

/// As the manager of Ceph 16.2.15 has them: three OSDs of 4 GiB without data, and the same values of the pools, one after the other.
#[test]
fn the_autoscaler_s_figures_are_those_of_a_real_one() {
    let mut map = pool(8);
    for name in ["dev", "a", "b", "d"] {
        let values = if name == "dev" { vec![("pg_num_min".to_owned(), "1".to_owned())] } else { Vec::new() };
        let pg_num = Some(if name == "dev" { 1 } else { 4 });
        assert!(apply(
            &mut map,
            Change::CreatePool { name: name.into(), pg_num, size: Some(3), rule: 0, values }
        ));
    }
    let mut stats = reports(&map);
    stats.reports.values_mut().for_each(|report| report.total_bytes = 4 << 30);
    stats.pgs.values_mut().for_each(|(_, stat)| stat.stats.sum = ObjectStatSum::default());
    let value = |map: &mut OsdMap, pool: &str, var: &str, value: &str| {
        assert!(apply(map, Change::PoolValue { pool: pool.into(), var: var.into(), value: value.into() }));
    };
    ["bench", "a", "b", "d"].iter().for_each(|pool| value(&mut map, pool, "pg_autoscale_mode", "on"));
    let advice = |map: &OsdMap| {
        let all = with_view(map, &stats, crate::report::autoscale::json);
        let of = |name: &str| {
            let found = all.as_array().unwrap().iter().find(|pool| pool["pool_name"] == name).unwrap();
            assert_eq!(
                (&found["subtree_capacity"], &found["crush_root_id"]),
                (&json!(12_884_901_888_u64), &json!(-1))
            );
            let [ideal, last] = ["pg_num_ideal", "pg_num_final"].map(|key| found[key].as_u64().unwrap());
            (ideal, last, found["would_adjust"].as_bool().unwrap())
        };
        ["bench", "dev", "a", "b", "d"].map(of)
    };
    let (dev, least) = ((0, 1, false), (0, 32, true));
    assert_eq!(advice(&map), [least, dev, least, least, least]);
    value(&mut map, "a", "target_size_ratio", "0.4");
    assert_eq!(advice(&map), [least, dev, (100, 128, true), least, least]);
    value(&mut map, "b", "target_size_bytes", "1G");
    assert_eq!(advice(&map), [least, dev, (75, 64, true), (6, 32, true), least]);
    value(&mut map, "d", "bulk", "true");
    value(&mut map, "bench", "bulk", "true");
    assert_eq!(advice(&map), [(9, 32, true), dev, (75, 64, true), (6, 32, true), (9, 32, true)]);
    value(&mut map, "a", "pg_autoscale_bias", "4");
    assert_eq!(advice(&map)[2], (300, 256, true));
    value(&mut map, "a", "pg_autoscale_mode", "warn");
    value(&mut map, "a", "pg_num_max", "20");
    assert_eq!(advice(&map)[2], (300, 20, false));
    let text = with_view(&map, &stats, crate::report::autoscale::text);
    let row = |name: &str| {
        text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(row("b ")[..].join(" "), "b 0 B 1 GiB 3.0 12 GiB 0.2500 1.0 4 32 on False");
    assert_eq!(row("a ")[..].join(" "), "a 0 B 3.0 12 GiB 0.7500 0.4000 0.7500 4.0 4 20 warn False");
    let health = with_view(&map, &stats, |view| crate::report::health::text(view, true));
    assert!(health.contains("POOL_TOO_FEW_PGS: 1 pools have too few placement groups\n    Pool a has 4 placement groups, should have 20\n"), "{health}");
    // What it may change it changes, also where there are too many.
    let (many, values) = (Some(128), vec![("pg_autoscale_mode".to_owned(), "on".to_owned())]);
    let pool = Change::CreatePool { name: "many".into(), pg_num: many, size: Some(3), rule: 0, values };
    assert!(apply(&mut map, pool));
    value(&mut map, "dev", "pg_autoscale_mode", "on");
    let wishes = with_view(&map, &stats, crate::report::autoscale::wishes);
    let wishes: Vec<_> = wishes
        .iter()
        .map(|wish| match wish {
            Change::PgNum { pool, wanted } => (pool.as_str(), *wanted),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(wishes, [("bench", 32), ("b", 32), ("d", 32), ("many", 32)]);
    assert!(apply(&mut map, Change::NoAutoscale) && !apply(&mut map, Change::NoAutoscale));
    assert!(with_view(&map, &stats, crate::report::autoscale::wishes).is_empty());
}
