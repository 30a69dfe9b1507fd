//! Views of a map as large as any that Carmine is for: 262,144 PGs on 630 OSDs in racks and hosts.
#![allow(clippy::disallowed_methods)] // a measurement looks at clocks and at the process's memory

use std::sync::Arc;
use std::time::{Duration, Instant};

use carmine_crush::tree::{Location, add_bucket, insert, type_named};
use carmine_crush::{MapView, build_simple_crush};
use carmine_types::{Epoch, OsdId, PgId, UTime};
use carmine_wire::crushmap::RuleStep;
use carmine_wire::osdmap::consts::{STATE_EXISTS, STATE_UP, WEIGHT_IN};
use carmine_wire::osdmap::{OsdMap, PgPool};

const RACKS: u32 = 7;
const HOSTS: u32 = 63;
const OSDS: u32 = 630;
const POOLS: i64 = 4;
const PG_NUM: u32 = 65_536;

/// Racks of 9 hosts of 10 OSDs each; copies go to different hosts.
fn large_map() -> OsdMap {
    let mut crush = build_simple_crush(&[], false);
    crush.max_devices = OSDS as i32;
    let rack = u16::try_from(type_named(&crush, "rack").unwrap()).unwrap();
    let root = crush.item_names[&-1].clone();
    for number in 0..RACKS {
        let id = add_bucket(&mut crush, &format!("rack-{number}"), rack).unwrap();
        insert(&mut crush, id, 0, &Location::from([("root".to_owned(), root.clone())])).unwrap();
    }
    for osd in 0..OSDS {
        let host = osd / (OSDS / HOSTS);
        let at = [("rack", format!("rack-{}", host % RACKS)), ("host", format!("node-{host}"))];
        let at = at.map(|(kind, name)| (kind.to_owned(), name)).into();
        crush.item_names.insert(osd as i32, OsdId(osd).to_string());
        insert(&mut crush, osd as i32, WEIGHT_IN, &at).unwrap();
    }
    crush.rules[0].as_mut().unwrap().steps =
        vec![RuleStep::Take(-1), RuleStep::ChooseLeafFirstn(0, 1), RuleStep::Emit];
    let mut map = OsdMap { epoch: Epoch(1), crush: Arc::new(crush), ..OsdMap::default() };
    map.set_max_osd(OSDS);
    map.osd_state.fill(STATE_EXISTS | STATE_UP);
    map.osd_weight.fill(WEIGHT_IN);
    let pool = PgPool::replicated(3, 2, PG_NUM, 0, Epoch(1), UTime::default());
    map.pools = (1..=POOLS).map(|id| (id, pool.clone())).collect();
    map
}

/// The most memory that this process has had, MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

fn timed(what: &str, make: impl FnOnce() -> MapView) -> (MapView, Duration) {
    let begin = Instant::now();
    let view = make();
    let took = begin.elapsed();
    println!("{what}: {:.1} ms", took.as_secs_f64() * 1e3);
    (view, took)
}

carmine_testkit::measures!(views_of_262144_pgs_are_made_in_time);

fn views_of_262144_pgs_are_made_in_time() {
    let mut map = large_map();
    let (first, whole) = timed("the first view", || MapView::new(Arc::new(map.clone())));
    assert_eq!(first.pgs().filter(|(_, mapping)| mapping.acting.len() == 3).count(), 1 << 18);
    let (same, nothing) = timed("nothing moves", || first.next(Arc::new(map.clone())));
    map.pg_temp.insert(PgId::new(1, 77), vec![4, 5, 6]);
    let (temp, one) = timed("a pg_temp", || same.next(Arc::new(map.clone())));
    assert_eq!(temp.mapping(PgId::new(1, 77)).acting[..], [4, 5, 6]);
    drop((first, same));
    map.osd_state[7] = STATE_EXISTS;
    let (down, fewer) = timed("an OSD is down", || temp.next(Arc::new(map.clone())));
    assert_eq!(
        temp.pgs_of(OsdId(7)).count(),
        down.pgs().filter(|(_, mapping)| mapping.up.len() == 2).count()
    );
    map.pools.get_mut(&2).unwrap().pg_num += 1_024;
    let (split, children) = timed("1,024 PGs more", || down.next(Arc::new(map.clone())));
    assert_eq!(split.pgs().count(), (1 << 18) + 1_024);
    let peak = peak_mib();
    println!("at most {peak} MiB");
    assert!(whole < Duration::from_secs(10) && nothing < Duration::from_millis(5));
    assert!(one < Duration::from_millis(100) && fewer < Duration::from_millis(250));
    assert!(children < Duration::from_millis(150) && peak < 512);
}
