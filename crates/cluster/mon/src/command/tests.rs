mod health;
mod merge;
mod pg_num;
mod stats;
mod tree;
mod weights;

use carmine_crush::Mapping;
use carmine_types::{OsdId, PgId, ScrubStamp, errno};
use carmine_wire::osdmap::consts::WEIGHT_IN;
use carmine_wire::pg_stat::{ObjectStatSum, PgStat, state};
use carmine_wire::private::OsdStats;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::change::ClassEdit;
use crate::testing::{apply, cluster, now, up};

fn run_with(map: &OsdMap, stats: &ClusterStats, text: &str) -> Outcome {
    let mut options = ClientOptions::default();
    options.keys.insert("noout".into(), "v".into());
    run_under(map, stats, &options, text)
}

fn run_under(map: &OsdMap, stats: &ClusterStats, options: &ClientOptions, text: &str) -> Outcome {
    let bytes = map.encode();
    let placement = MapView::new(std::sync::Arc::new(map.clone()));
    run(&[text.to_string()], &view_of(map, (&placement, &bytes), stats, options))
}

/// With this data, as from a file.
fn run_fed(map: &OsdMap, input: &[u8], text: &str) -> Outcome {
    let (stats, bytes, mut options) = (reports(map), map.encode(), ClientOptions::default());
    options.keys.insert("noout".into(), "v".into());
    let placement = MapView::new(std::sync::Arc::new(map.clone()));
    let view = view_of(map, (&placement, &bytes), &stats, &options);
    run(&[text.to_string()], &View { input, ..view })
}

const FILE: &[u8] = b"from a file";

fn view_of<'a>(
    map: &'a OsdMap,
    (placement, map_bytes): (&'a MapView, &'a [u8]),
    stats: &'a ClusterStats,
    options: &'a ClientOptions,
) -> View<'a> {
    // As long as the tests run.
    let history = Box::leak(Box::default());
    let log = Box::leak(Box::default());
    let facts = Box::leak(Box::new([("hostname".to_owned(), "here".to_owned())].into()));
    View {
        map,
        placement,
        map_bytes,
        history,
        stats,
        log,
        options,
        services: &[],
        facts,
        sessions: &Vec::new,
        monmap: &Vec::new,
        addr: "127.0.0.1:3300".into(),
        uptime_s: 300,
        now: now(),
        input: FILE,
    }
}

fn run_on(map: &OsdMap, text: &str) -> Outcome {
    run_with(map, &reports(map), text)
}

/// As if every OSD that is up had reported: a GiB each, a tenth of it used, and ten objects of 4 KiB in all PGs that it leads.
fn reports(map: &OsdMap) -> ClusterStats {
    let mut stats = ClusterStats::default();
    let placement = MapView::new(std::sync::Arc::new(map.clone()));
    for osd in map.osds().filter(|osd| map.is_up(*osd)) {
        let led = placement.pgs().filter(|(_, mapping)| mapping.acting_primary == Some(osd));
        let mut pgs: Vec<(PgId, PgStat)> = led.map(|(pg, mapping)| (pg, empty_stat(map, mapping))).collect();
        if let Some((_, stat)) = pgs.first_mut() {
            (stat.stats.sum.num_objects, stat.stats.sum.num_bytes) = (10, 40_960);
            stat.stats.sum.num_object_copies = 30;
        }
        let (total_bytes, used_bytes) = (1 << 30, (1 << 30) / 10);
        let report = OsdStats {
            total_bytes,
            used_bytes,
            commit_latency_ns: 2_600_000,
            pgs,
            slow_ops: 0,
            slowest_s: 0,
        };
        stats.accept(osd, report, 0, |_| true);
        stats.metadata.insert(
            osd,
            [("hostname".into(), "here".into()), ("osd_objectstore".into(), "blue".into())].into(),
        );
    }
    stats
}

/// The statistics of a PG without objects.
fn empty_stat(map: &OsdMap, mapping: &Mapping) -> PgStat {
    let mut stat = PgStat {
        reported_epoch: map.epoch,
        up: mapping.up.to_vec(),
        acting: mapping.acting.to_vec(),
        last_fullsized: now(),
        last_change: now(),
        ..PgStat::default()
    };
    let short = mapping.acting_osds().count() < usize::from(map.pool(1).unwrap().size);
    stat.set_states(state::ACTIVE | if short { state::UNDERSIZED } else { state::CLEAN });
    stat
}

/// The statistics of the first PG, as its primary reported them.
fn first<'a>(map: &OsdMap, stats: &'a mut ClusterStats) -> (PgId, OsdId, &'a mut PgStat) {
    let view = MapView::new(std::sync::Arc::new(map.clone()));
    let (pg, osd) = view.pgs().next().map(|(pg, mapping)| (pg, mapping.acting_primary.unwrap())).unwrap();
    let (teller, stat) = stats.pgs.get_mut(&pg).unwrap();
    assert_eq!(*teller, osd);
    (pg, osd, stat)
}

fn text_of(outcome: Outcome) -> String {
    match outcome {
        Ok(Answer::Done { data, .. }) => String::from_utf8_lossy(&data).into_owned(),
        other => panic!("{other:?}"),
    }
}

fn data(map: &OsdMap, text: &str) -> String {
    text_of(run_on(map, text))
}

fn value(map: &OsdMap, prefix: &str) -> Value {
    serde_json::from_str(&data(map, &json!({ "prefix": prefix, "format": "json" }).to_string())).unwrap()
}

fn plain(map: &OsdMap, prefix: &str) -> String {
    data(map, &json!({ "prefix": prefix }).to_string())
}

fn cluster_up(osds: u32) -> OsdMap {
    let mut map = cluster(osds);
    (0..osds).for_each(|osd| up(&mut map, osd, 1));
    map
}

#[test]
fn every_command_is_described_and_answers() {
    let mut map = cluster_up(3);
    assert!(apply(&mut map, Change::Class(ClassEdit::Create { name: "fast".into() })));
    let described = value(&map, "get_command_descriptions");
    assert_eq!(described.as_object().unwrap().len(), all().count());
    let find =
        |help: &str| described.as_object().unwrap().values().find(|c| c["help"] == help).unwrap().clone();
    assert_eq!(
        find("list the pools")["sig"][3],
        json!({"name": "detail", "type": "CephChoices", "strings": "detail", "req": false})
    );
    assert_eq!(find("put OSDs back")["sig"][2], json!({"name": "ids", "type": "CephString", "n": "N"}));
    for known in all() {
        for format in ["plain", "json", "json-pretty", "xml", "xml-pretty"] {
            let mut command = json!({
                "prefix": known.words(), "format": format, "pool": "bench", "app": "rgw", "var": "size", "val": "3",
                "pool2": "bench", "yes_i_really_really_mean_it": true, "pg_num": 8, "ids": ["0", "osd.1"], "id": 1,
                "key": "noout", "object": "o", "pgid": "1.3", "profile": "optimal", "dumpcontents": ["pgs_brief"],
                "blocklistop": "add", "blacklistop": "add", "addr": "127.0.0.1:0/5",
                "value": "v", "poolstr": "bench", "osd": 1, "srcpool": "bench", "destpool": "b", "field": "max_bytes",
                "name": "osd.1", "weight": 0.5, "yes_i_really_mean_it": true, "root": "default", "type": "osd", "srcname": "replicated_rule", "dstname": "r",
                "logtext": ["a", "line"], "who": "osd", "snap": "s", "class": "fast",
                "property": "hostname", "node": "default", "bucket": "default", "num": 1, "entity": "client.a", "ratio": 0.5, "release": "pacific", "val": "3",
            });
            match known.words() {
                "osd scrub" | "osd deep-scrub" | "osd repair" => command["who"] = json!("osd.1"),
                words if words.starts_with("osd erasure-code-profile") => command["name"] = json!("default"),
                "osd crush rule dump" => command["name"] = json!("replicated_rule"),
                "config set" => {
                    command["name"] = json!("osd_max_write_size");
                    command["value"] = json!("90");
                }
                "health mute" => {
                    command["code"] = json!("OSD_DOWN");
                    command["sticky"] = json!(true);
                }
                "osd safe-to-destroy" => command["ids"] = json!(["7"]),
                "mon metadata" => command["id"] = json!("a"),
                "mon ok-to-rm" => command["id"] = json!("b"),
                words if words.starts_with("osd pool") && words.ends_with("scrub") => {
                    command["who"] = json!(["bench"]);
                }
                "osd pool repair" => command["who"] = json!(["bench"]),
                "config get" | "config show" | "config show-with-defaults" | "config help" => {
                    command["key"] = json!("osd_max_write_size")
                }
                "osd pool application get" => {
                    command["app"] = json!("rbd");
                    command["key"] = Value::Null;
                }
                "osd pool application disable" => command["yes_i_really_mean_it"] = json!(true),
                "osd new" => {
                    command["uuid"] = json!("00000000-0000-0000-0000-000000000009");
                    command["id"] = json!(7);
                }
                "osd pg-upmap" => command["id"] = json!([0]),
                "osd pg-upmap-items" => command["id"] = json!([0, 1]),
                "osd crush add" | "osd crush set" | "osd crush create-or-move" => {
                    command["args"] = json!(["host=localhost"]);
                }
                "osd crush add-bucket" => {
                    command["name"] = json!("rack-1");
                    command["type"] = json!("rack");
                }
                "osd set-group" | "osd unset-group" => {
                    command["flags"] = json!("noup,noout");
                    command["who"] = json!(["osd.0", "host-0", "fast"]);
                }
                "osd setmaxosd" => command["newmax"] = json!(9),
                "osd crush move" | "osd crush link" => command["args"] = json!(["root=other"]),
                "osd crush rename-bucket" => {
                    command["srcname"] = json!("default");
                    command["dstname"] = json!("other");
                }
                "osd crush reweight-subtree" => command["name"] = json!("default"),
                "osd crush set-tunable" => {
                    command["tunable"] = json!("straw_calc_version");
                    command["value"] = json!(1);
                }
                "osd crush swap-bucket" => {
                    command["source"] = json!("default");
                    command["dest"] = json!("host-0");
                }
                "osd set-require-min-compat-client" => command["version"] = json!("mimic"),
                words if words.starts_with("pg ls") => command["pool"] = json!(1), // a name elsewhere
                _ => {}
            }
            let input = if known.words() == "osd setcrushmap" { &map.crush.encode()[..] } else { FILE };
            let answer = run_fed(&map, input, &command.to_string());
            assert_eq!(answer.is_ok(), !is_always_refused(known.words()), "{}: {answer:?}", known.words());
        }
    }
}

/// One monitor, and no users: the answer is always the same.
fn is_always_refused(words: &str) -> bool {
    // Eight PGs do not say who has more than others.
    words.ends_with("reweight-by-pg")
        || words == "mon ok-to-add-offline"
        || words.starts_with("auth ") && !matches!(words, "auth ls" | "auth list")
}

#[test]
fn what_a_monitor_is_told_counts_before_what_all_are_asked() {
    let map = cluster_up(3);
    let told = |question: Value| {
        let (stats, bytes) = (reports(&map), map.encode());
        let placement = MapView::new(std::sync::Arc::new(map.clone()));
        let options = ClientOptions::default();
        let view = view_of(&map, (&placement, &bytes), &stats, &options);
        run_told(&[question.to_string()], &view)
    };
    let option = told(json!({ "prefix": "config get", "var": "mon_allow_pool_delete" }));
    assert!(text_of(option).contains("\"mon_allow_pool_delete\": \"true\""));
    let absent = told(json!({ "prefix": "config get", "var": "tea" })).unwrap_err();
    assert_eq!(absent.code.0, errno::ENOENT);
    let fixed = |val| told(json!({ "prefix": "config set", "var": "mon_allow_pool_delete", "val": [val] }));
    assert!(fixed("true").is_ok() && fixed("false").is_err());
    // Ceph's answers so to one monitor whatever the format.
    let version: Value = serde_json::from_str(&text_of(told(json!({ "prefix": "version" })))).unwrap();
    assert!(version["version"].is_string() && version["release"].is_string(), "{version}");
    // All others are those of the cluster.
    assert!(text_of(told(json!({ "prefix": "osd ls" }))).starts_with("0\n1"));
    let described = text_of(told(json!({ "prefix": "get_command_descriptions" })));
    let described: Value = serde_json::from_str(&described).unwrap();
    let gets =
        described.as_object().unwrap().values().filter(|c| c["sig"][0] == "config" && c["sig"][1] == "get");
    let gets: Vec<&Value> = gets.map(|c| &c["sig"][2]["name"]).collect();
    assert_eq!(gets, ["var"]);
    for known in tell::COMMANDS {
        let question = json!({ "prefix": known.words(), "var": "mon_allow_pool_delete", "val": "true" });
        assert!(told(question).is_ok(), "{}", known.words());
    }
}

#[test]
fn parts_of_the_cluster_are_named() {
    let mut map = cluster_up(3);
    let class = |osds: &[u32], class: &str| {
        let osds = osds.iter().map(|osd| OsdId(*osd)).collect();
        Change::Class(ClassEdit::Set { osds, class: Some(class.to_owned()) })
    };
    assert!(apply(&mut map, class(&[1, 2], "quick")));
    assert!(apply(&mut map, class(&[0], "slow")));
    let osds = |name: &str| {
        let text = json!({ "prefix": "osd df", "format": "json", "filter_by": "class", "filter": name });
        let df: Value = serde_json::from_str(&data(&map, &text.to_string())).unwrap();
        let nodes = df["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_i64().unwrap());
        (nodes.collect::<Vec<_>>(), df["summary"]["total_kb"].as_u64().unwrap() >> 20)
    };
    assert_eq!((osds("quick"), osds("osd.0")), ((vec![1, 2], 2), (vec![0], 1)));
    // A class stands together, as in Ceph.
    assert_eq!((osds("default"), osds("bench")), ((vec![1, 2, 0], 3), (vec![1, 2, 0], 3)));
    let absent = run_on(&map, r#"{"prefix":"osd df","filter":"tea"}"#).unwrap_err();
    assert_eq!(absent.code.0, errno::EINVAL);
    // Objects with this hash are in the PG that remains of it.
    assert!(data(&map, r#"{"prefix":"pg map","pgid":"1.fff"}"#).contains("pg 1.fff (1.7) -> up ["));
    assert_eq!(run_on(&map, r#"{"prefix":"pg map","pgid":"9.0"}"#).unwrap_err().code.0, errno::ENOENT);
}

#[test]
fn osds_by_state_and_by_all_names() {
    let mut map = cluster_up(3);
    let says = |map: &OsdMap, text: &str| match run_on(map, text).unwrap() {
        Answer::Change { change, status } => (format!("{change:?}"), status),
        _ => panic!("{text} changes nothing"),
    };
    let (change, status) = says(&map, r#"{"prefix":"osd out","ids":["osd.1","2"]}"#);
    assert!(change.contains("[OsdId(1), OsdId(2)]"), "{change}");
    assert_eq!(status, "marked out osd.1. marked out osd.2.");
    for all in ["any", "all", "*"] {
        let text = json!({ "prefix": "osd down", "ids": [all] }).to_string();
        assert!(says(&map, &text).0.contains("[OsdId(0), OsdId(1), OsdId(2)]"), "{all}");
    }
    assert!(apply(&mut map, Change::MarkDown { osds: vec![OsdId(1)] }));
    assert_eq!(
        says(&map, r#"{"prefix":"osd down","ids":["0","1"]}"#).1,
        "marked down osd.0. osd.1 is already down."
    );
    assert_eq!(says(&map, r#"{"prefix":"osd in","ids":["1"]}"#).1, "osd.1 is already in.");
    let nodes = |states: Value| {
        let text = json!({ "prefix": "osd tree", "format": "json", "states": states }).to_string();
        let Answer::Done { data, .. } = run_on(&map, &text).unwrap() else {
            panic!("osd tree changes nothing")
        };
        let tree: Value = serde_json::from_slice(&data).unwrap();
        tree["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(nodes(json!(["down"])), [-1, -2, 1]);
    assert_eq!(nodes(json!(["up", "in"])), [-1, -2, 0, 1, 2]);
    assert_eq!(nodes(json!("up")), [-1, -2, 0, 2]);
    assert_eq!(nodes(json!(["out"])), [0; 0]);
}

#[test]
fn words_are_told_apart() {
    let mut words: Vec<&str> = all().map(|known| known.words()).collect();
    let count = words.len();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), count, "a command is listed twice");
}

#[test]
fn pools_and_health() {
    let mut map = cluster(3);
    assert_eq!(plain(&map, "osd pool ls"), "bench\n");
    assert_eq!(value(&map, "osd pool ls"), json!(["bench"]));
    assert_eq!(data(&map, r#"{"prefix":"osd pool get","pool":"bench","var":"size"}"#), "size: 3\n");
    assert!(
        plain(&map, "health")
            .starts_with("HEALTH_WARN 3 osds down; Reduced data availability: 8 pgs inactive")
    );
    (0..3).for_each(|osd| up(&mut map, osd, 1));
    assert_eq!(plain(&map, "health"), "HEALTH_OK\n");
    map.flags |= 0x800;
    assert_eq!(plain(&map, "health"), "HEALTH_WARN noscrub flag(s) set\n");
    assert_eq!(value(&map, "health")["checks"]["OSDMAP_FLAGS"]["severity"], "HEALTH_WARN");
    assert_eq!(value(&map, "osd pool autoscale-status")[0]["pg_autoscale_mode"], "off");
    assert_eq!(value(&map, "balancer status")["active"], false);
}

#[test]
fn the_state_of_pgs_is_what_their_primaries_say() {
    let map = cluster_up(3);
    assert_eq!(
        value(&map, "status")["pgmap"]["pgs_by_state"],
        json!([{ "state_name": "active+clean", "count": 8 }])
    );
    let mut stats = reports(&map);
    let (_, osd, stat) = first(&map, &mut stats);
    stat.set_states(state::PEERING);
    let brief = text_of(run_with(
        &map,
        &stats,
        r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"],"format":"json"}"#,
    ));
    let brief: Value = serde_json::from_str(&brief).unwrap();
    assert_eq!(brief["pg_stats"].as_array().unwrap().len(), 8);
    assert_eq!(brief["pg_stats"][0]["state"], "peering");
    assert_eq!(brief["pg_stats"][0]["acting_primary"], osd.0);
    let stuck = |words: &str| {
        let command = format!(r#"{{"prefix":"pg dump_stuck","format":"json"{words}}}"#);
        let stuck: Value = serde_json::from_str(&text_of(run_with(&map, &stats, &command))).unwrap();
        stuck["stuck_pg_stats"].as_array().unwrap().len()
    };
    assert_eq!(
        (stuck(""), stuck(r#","stuckops":["inactive"]"#), stuck(r#","stuckops":["stale"]"#)),
        (1, 1, 0)
    );
    stats.reports.remove(&OsdId(0));
    stats.reports.remove(&OsdId(1));
    stats.reports.remove(&OsdId(2));
    let stat = text_of(run_with(&map, &stats, r#"{"prefix":"pg stat"}"#));
    assert!(stat.starts_with("8 pgs: 8 unknown; "), "{stat}");
}

#[test]
fn scrubs_are_ordered_from_primaries() {
    let mut map = cluster_up(3);
    let says = |map: &OsdMap, text: &str| match run_on(map, text) {
        Ok(Answer::Scrub { orders, status }) => (orders, status),
        other => panic!("{text}: {other:?}"),
    };
    let (orders, status) = says(&map, r#"{"prefix":"pg deep-scrub","pgid":"1.3"}"#);
    let [(primary, order)] = orders.as_slice() else { panic!("{orders:?}") };
    assert_eq!(status, format!("instructing pg 1.3 on {primary} to deep-scrub"));
    assert_eq!((order.pgs.len(), order.deep, order.repair), (1, true, false));
    let (orders, status) = says(&map, r#"{"prefix":"osd repair","who":"all"}"#);
    assert_eq!(status, "instructed osd(s) 0,1,2 to repair");
    assert_eq!(orders.iter().map(|(_, order)| order.pgs.len()).sum::<usize>(), 8);
    assert!(orders.iter().all(|(_, order)| order.repair));
    let (orders, _) = says(&map, r#"{"prefix":"osd scrub","who":"1"}"#);
    assert!(orders.iter().all(|(osd, order)| osd.0 == 1 && !order.deep && !order.repair), "{orders:?}");
    apply(&mut map, Change::MarkDown { osds: vec![OsdId(1)] });
    let refused = run_on(&map, r#"{"prefix":"osd scrub","who":"osd.1"}"#).unwrap_err();
    assert_eq!((refused.code.0, refused.text.as_str()), (errno::EAGAIN, "osd(s) 1 are not up"));
    assert!(run_on(&map, r#"{"prefix":"pg scrub","pgid":"1.8"}"#).is_err(), "there is no such PG");
}

#[test]
fn pgs_are_dumped_and_listed() {
    let map = cluster_up(3);
    let dump = value(&map, "pg dump");
    assert_eq!(dump["pg_map"]["pg_stats"].as_array().unwrap().len(), 8);
    let pool = &dump["pg_map"]["pool_stats"][0];
    assert_eq!((&pool["poolid"], &pool["num_pg"]), (&json!(1), &json!(8)));
    let sum = &pool["stat_sum"];
    assert_eq!((&sum["num_objects"], &sum["num_bytes"]), (&json!(30), &json!(122_880)));
    assert_eq!(
        (&dump["pg_map"]["osd_stats"][2]["osd"], &dump["pg_map"]["osd_stats"][2]["num_pgs"]),
        (&json!(2), &json!(8))
    );
    assert_eq!(dump["pg_map"]["osd_stats_sum"]["kb"], 3 << 20);
    for part in ["PG_STAT", "OSD_STAT", "POOLID", "last_osdmap_epoch", "8 active+clean"] {
        assert!(plain(&map, "pg dump").contains(part), "no {part}");
    }
    let pools = data(&map, r#"{"prefix":"pg dump","dumpcontents":["pools"],"format":"json"}"#);
    assert!(pools.contains("pool_stats") && !pools.contains("pg_stats"), "{pools}");
    let listed = |more: &str| {
        let text = data(&map, &format!(r#"{{"prefix":"pg ls","format":"json"{more}}}"#));
        serde_json::from_str::<Value>(&text).unwrap()["pg_stats"].as_array().unwrap().len()
    };
    assert_eq!((listed(""), listed(r#","states":["clean","active"]"#)), (8, 8));
    // `rados list-inconsistent-pg` sends this.
    assert_eq!(listed(r#","pool":1,"states":["inconsistent"]"#), 0);
    let missing = run_on(&map, r#"{"prefix":"pg ls","pool":7,"format":"json"}"#).unwrap_err();
    assert_eq!((missing.code.0, missing.text.as_str()), (errno::ENOENT, "pool 7 does not exist"));
    let of = |by: &str, osd: u32| {
        let text = data(&map, &format!(r#"{{"prefix":"pg ls-by-{by}","osd":"osd.{osd}","format":"json"}}"#));
        serde_json::from_str::<Value>(&text).unwrap()["pg_stats"].as_array().unwrap().len()
    };
    assert_eq!((0..3).map(|osd| of("primary", osd)).sum::<usize>(), 8);
    assert_eq!((0..3).map(|osd| of("osd", osd)).sum::<usize>(), 24);
    assert_eq!(data(&map, r#"{"prefix":"pg ls-by-pool","poolstr":"bench"}"#).lines().count(), 11);
}

#[test]
fn space_and_trees() {
    let map = cluster_up(3);
    let df = value(&map, "df");
    assert_eq!(df["stats"]["total_bytes"], 3_u64 << 30);
    assert_eq!(df["pools"][0]["stats"]["objects"], 30);
    assert!(plain(&map, "df").contains("--- POOLS ---\nPOOL   ID  PGS"), "{}", plain(&map, "df"));
    let osd_df = value(&map, "osd df");
    assert_eq!(osd_df["nodes"].as_array().unwrap().len(), 3);
    assert_eq!((&osd_df["nodes"][1]["kb"], &osd_df["nodes"][1]["pgs"]), (&json!(1 << 20), &json!(8)));
    assert!((osd_df["summary"]["average_utilization"].as_f64().unwrap() - 10.0).abs() < 0.01);
    let perf = value(&map, "osd perf");
    assert_eq!(perf["osdstats"]["osd_perf_infos"][1]["perf_stats"]["commit_latency_ns"], 2_600_000);
    assert!(plain(&map, "osd perf").contains("\n  2                   2                  2\n"));
    assert!(plain(&map, "osd df").contains("MIN/MAX VAR: 1.00/1.00  STDDEV: 0.00"));
    let tree = plain(&map, "osd tree");
    assert!(tree.contains("root default") && tree.contains("osd.2") && tree.contains("up"), "{tree}");
    let metadata = value(&map, "osd metadata");
    assert_eq!((&metadata[2]["id"], &metadata[2]["osd_objectstore"]), (&json!(2), &json!("blue")));
    assert!(plain(&map, "status").contains("osd: 3 osds: 3 up, 3 in"));
    assert_eq!(value(&map, "osd crush show-tunables")["profile"], "jewel");
}

#[test]
fn an_object_is_found() {
    let map = cluster_up(3);
    let text = data(&map, r#"{"prefix":"osd map","pool":"bench","object":"foo"}"#);
    // The hash of "foo" is 0x7fc1f406; pool 1 has eight PGs.
    assert!(
        text.starts_with("osdmap e4 pool 'bench' (1) object 'foo' -> pg 1.7fc1f406 (1.6) -> up (["),
        "{text}"
    );
}

#[test]
fn wrong_commands_are_refused() {
    let map = cluster(1);
    for (text, code) in [
        ("", errno::EINVAL),
        ("[]", errno::EINVAL),
        ("{}", errno::EINVAL),
        ("}", errno::EINVAL),
        (r#"{"prefix":"make tea"}"#, errno::EINVAL),
        (r#"{"prefix":7}"#, errno::EINVAL),
        (r#"{"prefix":"pg dump","dumpcontents":["pgs","tea"]}"#, errno::EINVAL),
        (r#"{"prefix":"pg ls-by-osd","osd":"osd.9"}"#, errno::ENOENT),
        (r#"{"prefix":"pg ls-by-pool","poolstr":"none"}"#, errno::ENOENT),
        (r#"{"prefix":"osd pool create"}"#, errno::EINVAL),
        (r#"{"prefix":"osd pool create","pool":"x","pg_num":"many"}"#, errno::EINVAL),
        (r#"{"prefix":"osd pool create","pool":"x","pg_num":-1}"#, errno::EINVAL),
        (r#"{"prefix":"osd pool create","pool":"x","pool_type":"erasure"}"#, errno::EOPNOTSUPP),
        (r#"{"prefix":"osd pool create","pool":"x","rule":"none"}"#, errno::ENOENT),
        (r#"{"prefix":"osd pool delete","pool":"bench","pool2":"bench"}"#, errno::EPERM),
        (r#"{"prefix":"osd pool get","pool":"none","var":"size"}"#, errno::ENOENT),
        (r#"{"prefix":"osd pool get","pool":"bench","var":"colour"}"#, errno::EINVAL),
        (r#"{"prefix":"osd out","ids":["x"]}"#, errno::EINVAL),
        (r#"{"prefix":"osd out","ids":[]}"#, errno::EINVAL),
        (r#"{"prefix":"osd getmap","epoch":9999}"#, errno::ENOENT),
        (r#"{"prefix":"osd dump","epoch":9999}"#, errno::ENOENT),
        (r#"{"prefix":"osd tree","epoch":-1}"#, errno::EINVAL),
        (r#"{"prefix":"osd set","key":"full"}"#, errno::EINVAL),
        (r#"{"prefix":"mon dump","epoch":1001}"#, errno::ENOENT),
        (r#"{"prefix":"osd metadata","id":9}"#, errno::ENOENT),
        (r#"{"prefix":"osd map","pool":"none","object":"o"}"#, errno::ENOENT),
        (r#"{"prefix":"pg map","pgid":"9.ff"}"#, errno::ENOENT),
        (r#"{"prefix":"osd crush tunables","profile":"tea"}"#, errno::EINVAL),
        (r#"{"prefix":"osd blocklist","blocklistop":"add"}"#, errno::EINVAL),
        (r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"somewhere"}"#, errno::EINVAL),
        (r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"1.2.3.4","expire":-1}"#, errno::EINVAL),
        (r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"1.2.3.4","expire":1e300}"#, errno::EINVAL),
        (r#"{"prefix":"osd blocklist","blocklistop":"turn","addr":"1.2.3.4"}"#, errno::EINVAL),
    ] {
        assert_eq!(run_on(&map, text).unwrap_err().code.0, code, "{text}");
    }
}

/// librbd's command when it breaks a lock, with either word, and the blocklist that tools show.
#[test]
fn clients_are_blocklisted() {
    let mut map = cluster(1);
    for (word, op, nonce) in [("blocklist", "blocklistop", 1), ("blacklist", "blacklistop", 2)] {
        let text = format!(
            r#"{{"prefix":"osd {word}","{op}":"add","addr":"127.0.0.1:0/{nonce}","expire":{nonce}0.0}}"#
        );
        let Ok(Answer::Change { change, status }) = run_on(&map, &text) else { panic!("{text}") };
        assert!(
            status.starts_with(&format!("blocklisting 127.0.0.1:0/{nonce} until 2023-11-14T22:13:")),
            "{status}"
        );
        assert!(status.ends_with(&format!("({nonce}0 sec)")), "{status}");
        assert!(apply(&mut map, change));
        let shown = value(&map, &format!("osd {word} ls"));
        assert_eq!(shown[nonce - 1]["addr"], format!("127.0.0.1:0/{nonce}"));
        assert!(shown[nonce - 1]["until"].is_string());
    }
    assert!(plain(&map, "osd blocklist ls").starts_with("127.0.0.1:0/1 2023-11-14T22:13:"));
    assert_eq!(value(&map, "osd dump")["blocklist"].as_object().unwrap().len(), 2);
}

proptest! {
    #[test]
    fn any_text_is_answered(text in ".{0,60}", prefix: prop::sample::Index, key in "[a-z_]{1,8}", value: Option<i64>) {
        let map = cluster(2);
        let _ = run_on(&map, &text);
        let words = all().nth(prefix.index(all().count())).unwrap().words();
        let mut command = json!({ "prefix": words, "pool": "bench" });
        command[key] = json!(value);
        let _ = run_on(&map, &command.to_string());
    }
}

/// The answers are those of Ceph 16.2.15, but for the warnings' words.
#[test]
fn osds_get_weights_and_are_given_up() {
    let mut map = cluster_up(3);
    let mut says = |text: Value| match run_on(&map, &text.to_string()) {
        Ok(Answer::Change { change, status }) => match change.plan(&map, now()) {
            Ok(inc) => {
                inc.iter().for_each(|inc| map.apply(inc).unwrap());
                Ok((map.clone(), status))
            }
            Err(refusal) => Err((refusal.code.0, refusal.text)),
        },
        Ok(Answer::Done { status, .. }) => Ok((map.clone(), status)),
        Ok(_) => panic!("{text} changes nothing"),
        Err(refusal) => Err((refusal.code.0, refusal.text)),
    };
    let reweight = |id: Value, weight: Value| json!({ "prefix": "osd reweight", "id": id, "weight": weight });
    let (after, status) = says(reweight(json!(0), json!(0.8))).unwrap();
    assert_eq!((status.as_str(), after.weight(OsdId(0))), ("reweighted osd.0 to 0.8 (cccc)", 0xcccc));
    assert_eq!(says(reweight(json!("osd.0"), json!("1"))).unwrap().1, "reweighted osd.0 to 1 (10000)");
    let affinity =
        |id: u32, weight: f64| json!({ "prefix": "osd primary-affinity", "id": id, "weight": weight });
    let (after, status) = says(affinity(0, 0.5)).unwrap();
    assert_eq!(status, "set osd.0 primary-affinity to 0.5 (8000)");
    assert_eq!([0, 1].map(|osd| after.affinity(OsdId(osd))), [0x8000, 0x10000]);
    assert_eq!(says(affinity(9, 0.5)), Err((errno::ENOENT, "osd.9 does not exist".into())));
    assert_eq!(says(affinity(0, 1.5)).unwrap_err().0, errno::EINVAL);
    assert_eq!(says(reweight(json!(9), json!(0.5))), Err((errno::ENOENT, "osd.9 does not exist".into())));
    assert_eq!(says(reweight(json!(0), json!(1.5))).unwrap_err().0, errno::EINVAL);
    let crush =
        |name: &str, weight: f64| json!({ "prefix": "osd crush reweight", "name": name, "weight": weight });
    let (after, status) = says(crush("osd.0", 2.5)).unwrap();
    assert_eq!(status, "reweighted item id 0 name 'osd.0' to 2.5 in crush map");
    assert_eq!(after.crush.bucket(-1).unwrap().weight, 4 * WEIGHT_IN + WEIGHT_IN / 2);
    let unknown = "device 'osd.9' does not appear in the crush map".to_owned();
    assert_eq!(says(crush("osd.9", 1.0)), Err((errno::ENOENT, unknown)));
    let no_leaf = "device 'default' is not a leaf in the crush map".to_owned();
    assert_eq!(says(crush("default", 1.0)), Err((errno::EINVAL, no_leaf)));
    let about = |what: &str, id: u32, sure: bool| json!({ "prefix": format!("osd {what}"), "id": id, "yes_i_really_mean_it": sure });
    for what in ["purge", "lost"] {
        assert_eq!(says(about(what, 2, false)).unwrap_err().0, errno::EPERM);
    }
    assert_eq!(says(about("lost", 2, true)), Err((errno::EBUSY, "osd.2 is not down".into())));
    assert_eq!(says(about("lost", 9, true)), Err((errno::ENOENT, "osd.9 does not exist".into())));
    assert_eq!(says(about("purge", 2, true)), Err((errno::EBUSY, "osd.2 is not `down`.".into())));
    assert_eq!(says(about("purge", 9, true)).unwrap().1, "osd.9 does not exist");
    let (after, _) = says(json!({ "prefix": "osd down", "ids": ["2"] })).unwrap();
    let down_at = after.epoch;
    let (after, status) = says(about("lost", 2, true)).unwrap();
    assert_eq!((status, after.osd_info[2].lost_at), (format!("marked osd lost in epoch {down_at}"), down_at));
    let (after, status) = says(about("purge", 2, true)).unwrap();
    assert_eq!((status.as_str(), after.osds().count()), ("purged osd.2", 2));
    assert!(after.crush.item_name(2).is_none() && !after.is_in(OsdId(2)));
}

#[test]
fn options_of_osds_that_can_change_are_stored() {
    let map = cluster_up(1);
    let set = |who: &str, name: &str, value: &str| {
        run_on(&map, &json!({ "prefix": "config set", "who": who, "name": name, "value": value }).to_string())
    };
    for who in ["osd", "osd.0", "global"] {
        assert!(matches!(set(who, "osd_max_backfills", "3"), Ok(Answer::Options { .. })), "{who}");
    }
    for (who, name, value) in [
        ("osd", "osd_max_backfills", "0"),
        ("osd", "osd_scrub_auto_repair", "2"),
        ("client", "osd_max_backfills", "3"),
        ("osd.x", "osd_max_backfills", "3"),
        ("mon", "osd_max_backfills", "3"),
    ] {
        let refusal = set(who, name, value).unwrap_err();
        assert_eq!(refusal.code.0, errno::EINVAL, "{who} {name} {value}");
    }
    let get = json!({ "prefix": "config get", "who": "osd", "key": "osd_max_backfills" }).to_string();
    assert_eq!(data(&map, &get), "1\n");
}

#[test]
fn the_audit_log_has_each_command_at_its_level() {
    let level = |prefix: &str| Some(audited(&[json!({ "prefix": prefix }).to_string()])?.0);
    assert_eq!(level("osd out"), Some(log_level::INFO));
    assert_eq!((level("osd dump"), level("make tea")), (Some(log_level::DEBUG), Some(log_level::DEBUG)));
    assert_eq!(level("get_command_descriptions"), None);
    assert_eq!(audited(&[]), Some((log_level::DEBUG, String::new())));
}

#[test]
fn what_tools_keep_stands_in_no_log() {
    let cmd = json!({ "prefix": "config-key set", "key": "token", "val": "secret" }).to_string();
    let (_, text) = audited(&[cmd]).unwrap();
    assert!(text.contains("token") && !text.contains("secret"), "{text}");
    let key = json!({ "prefix": "config-key put", "key": "token" }).to_string();
    for cmd in [
        vec![r#"{"prefix": "config-key set", "val": "secret","#.to_owned()],
        vec![json!({ "prefix": "config-key set", "val": "secret".repeat(COMMAND_BYTES_MAX) }).to_string()],
        vec![format!(r#"{key}{{"val": "secret"}}"#)],
        vec![key, "secret".to_owned()],
    ] {
        let (_, text) = audited(&cmd).unwrap();
        assert!(!text.contains("secret"), "{text}");
    }
    let edit = OptionEdit::Key { key: "token".into(), value: Some("secret".into()) };
    let text = format!("{:?}", edit.shown());
    assert!(text.contains("token") && !text.contains("secret"), "{text}");
    let cmd = json!({ "prefix": "osd out", "ids": ["1"], "val": "2" }).to_string();
    assert_eq!(audited(std::slice::from_ref(&cmd)).unwrap().1, cmd, "others stand there as they came");
}

#[test]
fn osds_may_stop_while_enough_copies_are_left() {
    let mut map = cluster_up(3);
    let ask = |map: &OsdMap, prefix: &str, ids: Value| {
        run_on(map, &json!({ "prefix": prefix, "ids": ids, "format": "json" }).to_string())
    };
    let lists = |outcome: Outcome| serde_json::from_str::<Value>(&text_of(outcome)).unwrap();
    // Each of the 8 PGs has 3 copies and serves with one.
    let told = lists(ask(&map, "osd ok-to-stop", json!(["0", "osd.1"])));
    assert_eq!(
        (&told["ok_to_stop"], &told["num_ok_pgs"], &told["osds"]),
        (&json!(true), &json!(8), &json!([0, 1]))
    );
    assert_eq!(told["ok_become_degraded"].as_array().unwrap().len(), 8);
    let Ok(Answer::Not { code, status, data }) = ask(&map, "osd ok-to-stop", json!(["all"])) else {
        panic!()
    };
    assert_eq!(code.0, errno::EBUSY);
    assert!(status.contains("8 PGs are or would become offline"), "{status}");
    let told: Value = serde_json::from_slice(&data).unwrap();
    assert_eq!(told["bad_become_inactive"].as_array().unwrap().len(), 8);
    assert_eq!(lists(ask(&map, "osd ok-to-stop", json!(["9"])))["num_ok_pgs"], 0);
    let silent = ClusterStats::default();
    let unknown = run_with(&map, &silent, &json!({ "prefix": "osd ok-to-stop", "ids": ["0"] }).to_string());
    assert_eq!(unknown.unwrap_err().code.0, errno::EAGAIN);
    assert!(apply(&mut map, Change::MarkDown { osds: vec![OsdId(2)] }));
    let told = lists(ask(&map, "osd ok-to-stop", json!(["0"])));
    assert_eq!(
        (&told["ok_become_more_degraded"][0], &told["ok_become_degraded"]),
        (&json!("1.0"), &Value::Null)
    );
}

#[test]
fn osds_without_pgs_may_go() {
    let mut map = cluster_up(3);
    let ask = |map: &OsdMap, id: u32| {
        let command = json!({ "prefix": "osd safe-to-destroy", "ids": [id.to_string()] });
        let lists = json!({ "prefix": "osd safe-to-destroy", "ids": [id.to_string()], "format": "json" });
        let lists: Value = serde_json::from_str(&data(map, &lists.to_string())).unwrap();
        (run_on(map, &command.to_string()).map(drop).map_err(|refusal| refusal.text), lists)
    };
    let (refused, lists) = ask(&map, 0);
    assert_eq!(refused, Err("OSD(s) 0 have 8 pgs currently mapped to them. ".to_owned()));
    assert_eq!(lists["active"], json!([0]));
    let (fine, lists) = ask(&map, 9);
    assert_eq!((fine, &lists["safe_to_destroy"]), (Ok(()), &json!([9])));
    // It serves nothing, but a PG has too few copies: it may want what that OSD has.
    assert!(apply(&mut map, Change::MarkDown { osds: vec![OsdId(2)] }));
    let (refused, lists) = ask(&map, 2);
    assert!(refused.is_err() && lists["stored_pgs"] == json!([2]), "{refused:?} {lists}");
}

#[test]
fn keys_are_given_or_come_from_a_file() {
    let map = cluster_up(1);
    let set = |command: Value| match run_on(&map, &command.to_string()) {
        Ok(Answer::Options { edit: OptionEdit::Key { value, .. }, .. }) => value,
        other => panic!("{other:?}"),
    };
    assert_eq!(set(json!({ "prefix": "config-key set", "key": "k", "val": "v" })).as_deref(), Some("v"));
    assert_eq!(set(json!({ "prefix": "config-key put", "key": "k" })).as_deref(), Some("from a file"));
}
