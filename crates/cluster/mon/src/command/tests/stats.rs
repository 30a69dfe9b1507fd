//! Statistics of PGs in what tools read: every key that a real Ceph has there, and true numbers.

use carmine_types::{Epoch, Eversion, UTime};

use super::*;

/// Answers of Ceph 16.2.15, each list with one item.
const PG_DUMP: &str = include_str!("../../../tests/data/pg-dump.json");
const DF_DETAIL: &str = include_str!("../../../tests/data/df-detail.json");
const OSD_DF_TREE: &str = include_str!("../../../tests/data/osd-df-tree.json");
const PGMAP_DEGRADED: &str = include_str!("../../../tests/data/pgmap-degraded.json");

/// Keys of a real answer that ours lacks: what nobody knows here, and the class of its devices.
const UNKNOWN: [&str; 3] = ["pg_stats_delta", "pool_statfs", "hdd"];

/// The paths of keys that `theirs` has and `ours` has not. Of lists the first items are compared.
fn missing(theirs: &Value, ours: &Value, path: &str, out: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in theirs.iter().filter(|(key, _)| !UNKNOWN.contains(&key.as_str())) {
                let path = format!("{path}.{key}");
                match ours.get(key) {
                    Some(own) => missing(value, own, &path, out),
                    None => out.push(path),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            if let (Some(value), Some(own)) = (theirs.first(), ours.first()) {
                missing(value, own, &format!("{path}[]"), out);
            }
        }
        (theirs, ours) => {
            assert_eq!(theirs.is_number(), ours.is_number(), "{path}: {theirs} and {ours}");
        }
    }
}

#[track_caller]
fn has_all_keys(theirs: &str, ours: &Value) {
    let (theirs, mut lacking) = (serde_json::from_str(theirs).unwrap(), Vec::new());
    missing(&theirs, ours, "", &mut lacking);
    assert!(lacking.is_empty(), "{lacking:?} of {ours:#}");
}

fn asked(map: &OsdMap, stats: &ClusterStats, command: &Value) -> Value {
    serde_json::from_str(&text_of(run_with(map, stats, &command.to_string()))).unwrap()
}

fn said(map: &OsdMap, stats: &ClusterStats, command: &Value) -> String {
    text_of(run_with(map, stats, &command.to_string()))
}

#[test]
fn tools_find_every_key_of_a_real_cluster() {
    let map = cluster_up(3);
    has_all_keys(PG_DUMP, &value(&map, "pg dump"));
    let pg_stats = serde_json::from_str::<Value>(PG_DUMP).unwrap()["pg_map"]["pg_stats"].take();
    has_all_keys(&pg_stats.to_string(), &value(&map, "pg ls")["pg_stats"]);
    has_all_keys(
        DF_DETAIL,
        &asked(&map, &reports(&map), &json!({ "prefix": "df", "detail": "detail", "format": "json" })),
    );
    let tree = asked(
        &map,
        &reports(&map),
        &json!({ "prefix": "osd df", "output_method": "tree", "format": "json" }),
    );
    let theirs: Value = serde_json::from_str(OSD_DF_TREE).unwrap();
    for kind in ["root", "host", "osd"] {
        let of_kind = |all: &Value| {
            let nodes = all["nodes"].as_array().unwrap().clone();
            nodes.into_iter().find(|node| node["type"] == kind).unwrap()
        };
        has_all_keys(&of_kind(&theirs).to_string(), &of_kind(&tree));
    }
    has_all_keys(&theirs["summary"].to_string(), &tree["summary"]);
    let top = &tree["nodes"][0];
    assert_eq!(
        (&top["kb"], &top["pgs"], top["children"].as_array().map(Vec::len)),
        (&json!(3 << 20), &json!(0), Some(1))
    );
}

/// A real one with 30 objects at size 3, and one of its three OSDs down.
#[test]
fn degraded_objects_are_counted_in_status_and_health() {
    let mut map = cluster_up(3);
    let mut stats = reports(&map);
    assert!(value(&map, "status")["pgmap"].get("degraded_objects").is_none());
    apply(&mut map, Change::MarkDown { osds: vec![OsdId(2)] });
    let placement = MapView::new(std::sync::Arc::new(map.clone()));
    stats.reports.remove(&OsdId(2));
    for (n, (pg, mapping)) in placement.pgs().enumerate() {
        let mut stat = empty_stat(&map, mapping);
        if n < 6 {
            stat.set_states(stat.states() | state::DEGRADED);
            (stat.stats.sum.num_objects, stat.stats.sum.num_object_copies) = (5, 15);
            stat.stats.sum.num_objects_degraded = 5;
        }
        stats.pgs.insert(pg, (mapping.acting_primary.unwrap(), stat));
    }
    let pgmap = asked(&map, &stats, &json!({ "prefix": "status", "format": "json" }))["pgmap"].take();
    has_all_keys(PGMAP_DEGRADED, &pgmap);
    assert_eq!((&pgmap["degraded_objects"], &pgmap["degraded_total"]), (&json!(30), &json!(90)));
    assert!((pgmap["degraded_ratio"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9);
    let text = said(&map, &stats, &json!({ "prefix": "status" }));
    assert!(
        text.contains(
            "    pgs:     30/90 objects degraded (33.333%)\n             6 active+undersized+degraded\n"
        ),
        "{text}"
    );
    assert!(
        said(&map, &stats, &json!({ "prefix": "pg stat" })).ends_with("; 30/90 objects degraded (33.333%)\n")
    );
    let pool = asked(&map, &stats, &json!({ "prefix": "osd pool stats", "format": "json" }));
    assert_eq!(pool[0]["recovery"]["degraded_total"], 90);
    let health = |stats: &ClusterStats| said(&map, stats, &json!({ "prefix": "health", "detail": "detail" }));
    let word =
        "[WRN] PG_DEGRADED: Degraded data redundancy: 30/90 objects degraded (33.333%), 6 pgs degraded\n";
    assert!(health(&stats).contains(word), "{}", health(&stats));
    assert!(health(&stats).contains(" is active+undersized+degraded, acting ["), "{}", health(&stats));
    // After a minute PGs without objects are worth a word, too.
    for (_, stat) in stats.pgs.values_mut() {
        stat.last_fullsized = UTime { sec: now().sec - 61, ..now() };
    }
    let health = health(&stats);
    assert!(
        health.contains("30/90 objects degraded (33.333%), 6 pgs degraded, 8 pgs undersized\n"),
        "{health}"
    );
    assert!(
        health.contains(" is stuck undersized for 61s, current state active+undersized, last acting ["),
        "{health}"
    );
}

#[test]
fn a_pg_s_statistics_are_shown_as_its_primary_tells_them() {
    let map = cluster_up(3);
    let mut stats = reports(&map);
    let (pg, _, stat) = first(&map, &mut stats);
    (stat.version, stat.reported_epoch, stat.reported_seq) = (Eversion::new(7, 300), Epoch(9), 12);
    (stat.log_size, stat.snaptrimq_len, stat.last_change) = (250, 3, UTime { sec: now().sec - 42, ..now() });
    let sum = &mut stat.stats.sum;
    (sum.num_omap_keys, sum.num_omap_bytes, sum.num_objects_misplaced) = (20, 2000, 7);
    (sum.num_large_omap_objects, sum.num_read, sum.num_objects_omap) = (1, 4, 2);
    let shown = asked(&map, &stats, &json!({ "prefix": "pg ls", "format": "json" }))["pg_stats"][0].take();
    let sum = &shown["stat_sum"];
    assert_eq!((&shown["pgid"], &shown["version"]), (&json!(pg.to_string()), &json!("7'300")));
    for (key, value) in [("reported_epoch", 9), ("reported_seq", 12), ("log_size", 250), ("snaptrimq_len", 3)]
    {
        assert_eq!(shown[key], value, "{key}");
    }
    for (key, value) in
        [("num_objects", 10), ("num_bytes", 40_960), ("num_omap_bytes", 2000), ("num_read", 4)]
    {
        assert_eq!(sum[key], value, "{key}");
    }
    let listed = said(&map, &stats, &json!({ "prefix": "pg ls" }));
    assert!(listed.lines().nth(1).unwrap().contains("active+clean    42s    7'300"), "{listed}");
    let dump = asked(&map, &stats, &json!({ "prefix": "pg dump", "format": "json" }))["pg_map"].take();
    assert_eq!(
        (&dump["osd_stats_sum"]["snap_trim_queue_len"], &dump["osd_stats_sum"]["num_osds"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(dump["pool_stats"][0]["stat_sum"]["num_omap_keys"], 20);
    let df = asked(&map, &stats, &json!({ "prefix": "df", "detail": "detail", "format": "json" }))["pools"]
        [0]["stats"]
        .take();
    let held = asked(&map, &stats, &json!({ "prefix": "pg dump", "format": "json" }))["pg_map"]["pg_stats_sum"]["stat_sum"].take();
    let bytes = held["num_bytes"].as_u64().unwrap();
    assert_eq!((df["stored_data"].as_u64(), df["stored_omap"].as_u64()), (Some(bytes), Some(2000)));
    assert_eq!(df["stored_raw"].as_u64(), Some(3 * (bytes + 2000)));
    let health = said(&map, &stats, &json!({ "prefix": "health", "detail": "detail" }));
    let large = "[WRN] LARGE_OMAP_OBJECTS: 1 large omap objects\n    1 large objects found in pool 'bench'\n    Search the cluster log for \
                 'Large omap object found' for more details.\n";
    assert!(health.contains(large), "{health}");
    let checks = asked(&map, &stats, &json!({ "prefix": "health", "format": "json" }))["checks"].take();
    assert_eq!(checks["LARGE_OMAP_OBJECTS"]["summary"]["count"], 1);
    let misplaced = asked(&map, &stats, &json!({ "prefix": "status", "format": "json" }))["pgmap"].take();
    assert_eq!(misplaced["misplaced_objects"], 7);
}
