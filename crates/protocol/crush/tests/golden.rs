//! Every stored mapping and text of Ceph 16.2.15's own tools is reproduced.
#![allow(clippy::disallowed_methods)] // a test reads its files

use std::fs;
use std::path::Path;
use std::sync::Arc;

use carmine_crush::print::{PgColumns, pgs_dump, print_map};
use carmine_crush::{MapView, Placement, do_rule, pg_mapping};
use carmine_types::{OsdId, PgId};
use carmine_wire::crushmap::CrushMap;
use carmine_wire::osdmap::OsdMap;
use carmine_wire::osdmap::consts::{STATE_EXISTS, STATE_UP, WEIGHT_IN, WEIGHT_OUT};

fn data(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn text(path: &str) -> String {
    String::from_utf8(data(path)).unwrap()
}

fn osdmap(folder: &str) -> OsdMap {
    OsdMap::decode(&data(&format!("{folder}/osdmap.bin"))).unwrap()
}

/// Marks all OSDs up and in. `osdmaptool --mark-up-in` does the same, but does not keep the mark in the file.
fn mark_up_in(mut map: OsdMap) -> OsdMap {
    map.osd_state.iter_mut().for_each(|state| *state |= STATE_EXISTS | STATE_UP);
    map.osd_weight.iter_mut().for_each(|weight| *weight = WEIGHT_IN);
    map
}

/// Compares texts line by line, so that a difference is readable.
fn assert_same(found: &str, expected: &str, name: &str) {
    for (n, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{name}, line {}", n + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}: number of lines");
    assert_eq!(found, expected, "{name}: ends of lines");
}

/// Mappings as `crushtool --test --show-mappings` prints them for x = 0..count.
fn mappings(map: &CrushMap, rule: usize, replicas: usize, weights: &[u32], count: u32) -> String {
    let mut out = String::new();
    for x in 0..count {
        let osds = do_rule(map, rule, x, replicas, weights, None).unwrap();
        let osds: Vec<String> = osds.iter().map(i32::to_string).collect();
        out += &format!("CRUSH rule {rule} x {x} [{}]\n", osds.join(","));
    }
    out
}

#[test]
fn crushtool_mappings() {
    for folder in ["synthetic-8osd", "synthetic-60osd"] {
        let map = CrushMap::decode(&data(&format!("{folder}/crushmap.bin"))).unwrap();
        let all_in = vec![WEIGHT_IN; map.max_devices as usize];
        let mut reweighted = all_in.clone();
        for (osd, weight) in [(0, 0.0), (3, 0.5), (4, 0.25), (7, 0.9)] {
            reweighted[osd] = (weight * 65536.0) as u32;
        }
        for (rule, file, replicas, weights) in [
            (0, "rep3", 3, &all_in),
            (0, "rep8", 8, &all_in),
            (0, "reweighted", 3, &reweighted),
            (1, "rep3", 3, &all_in),
            (1, "rep8", 8, &all_in),
            (1, "reweighted", 8, &reweighted),
        ] {
            let name = format!("{folder}/mappings.rule{rule}.{file}.txt");
            assert_same(&mappings(&map, rule, replicas, weights, 1024), &text(&name), &name);
        }
    }
}

#[test]
fn every_bucket_algorithm_and_old_tunables() {
    for name in ["uniform", "list", "tree", "straw", "straw2"] {
        for name in [format!("algorithms/{name}"), format!("algorithms/{name}.legacy")] {
            let bytes = data(&format!("{name}.bin"));
            let map = CrushMap::decode(&bytes).unwrap();
            assert_eq!(map.encode(), bytes, "{name}");
            let mut weights = vec![WEIGHT_IN; 30];
            for (osd, weight) in [(3, 0.0), (4, 0.5), (8, 0.0), (9, 0.0), (16, 0.3)] {
                weights[osd] = (weight * 65536.0) as u32;
            }
            let found: String = [4, 5, 5, 5]
                .iter()
                .enumerate()
                .map(|(rule, replicas)| mappings(&map, rule, *replicas, &weights, 128))
                .collect();
            assert_same(&found, &text(&format!("{name}.txt")), &name);
        }
    }
}

#[test]
fn live_pg_dumps() {
    for folder in ["live-1osd", "live-3osd"] {
        let map = osdmap(folder);
        for (file, columns) in
            [("map-pgs-dump.txt", PgColumns::Acting), ("map-pgs-dump-all.txt", PgColumns::All)]
        {
            let name = format!("{folder}/{file}");
            assert_same(&pgs_dump(&map, None, columns), &text(&name), &name);
        }
    }
}

#[test]
fn synthetic_pg_dumps() {
    for folder in ["synthetic-8osd", "synthetic-60osd"] {
        let mut map = mark_up_in(osdmap(folder));
        let head = "marking all OSDs up and in\n";
        let name = format!("{folder}/map-pgs-dump.up-in.txt");
        assert_same(&(head.to_owned() + &pgs_dump(&map, None, PgColumns::Acting)), &text(&name), &name);

        map.osd_weight[5] = WEIGHT_OUT;
        let head = head.to_owned() + "marking OSD@5 as out\n";
        let name = format!("{folder}/map-pgs-dump.up-in.out-5.txt");
        assert_same(&(head + &pgs_dump(&map, None, PgColumns::Acting)), &text(&name), &name);
    }
}

#[test]
fn printed_maps() {
    for folder in ["live-1osd", "live-3osd", "synthetic-8osd", "synthetic-60osd"] {
        let name = format!("{folder}/osdmap.txt");
        assert_same(&print_map(&osdmap(folder)), &text(&name), &name);
    }
}

#[test]
fn a_view_answers_like_the_map() {
    let map = Arc::new(mark_up_in(osdmap("synthetic-60osd")));
    let view = MapView::new(map.clone());
    for ps in 0..map.pools[&1].pg_num {
        let pg = PgId::new(1, ps);
        assert_eq!(*view.mapping(pg), pg_mapping(&map, pg));
    }
    let pg = view.object_pg(1, b"", b"", b"obj1").unwrap();
    assert_eq!(Some(pg), map.object_pg(1, b"", b"", b"obj1"));
    let primary = view.acting_primary(pg).unwrap();
    assert!(view.pgs_of(primary).any(|(at, mapping)| at == pg && mapping.acting_primary == Some(primary)));
    assert_eq!(view.pgs_of(OsdId(44)).count(), 141);
    assert_eq!(view.object_pg(2, b"", b"", b"obj1"), None);
    assert!(view.mapping(PgId::new(1, 99_999)).acting.is_empty());
    assert!(view.mapping(PgId::new(9, 0)).acting.is_empty());
}
