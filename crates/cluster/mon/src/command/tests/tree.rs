//! Commands that shape the CRUSH tree: their words, and where the PGs go.

use carmine_crush::edit::item_named;
use carmine_wire::crushmap::CrushMap;

use super::*;

/// Runs a command that succeeds; its status.
fn done(map: &mut OsdMap, command: Value) -> String {
    match run_on(map, &command.to_string()) {
        Ok(Answer::Done { status, .. }) => status,
        Ok(Answer::Change { change, status }) => {
            let inc = change.plan(map, now()).unwrap_or_else(|refusal| panic!("{command}: {refusal:?}"));
            inc.into_iter().for_each(|inc| *map = (*inc.applied(map).unwrap()).clone());
            status
        }
        other => panic!("{command}: {other:?}"),
    }
}

/// Errno and text of a command that is refused, at once or when its change is planned.
fn refused(map: &OsdMap, input: &[u8], command: Value) -> (i32, String) {
    let refusal = match run_fed(map, input, &command.to_string()) {
        Ok(Answer::Change { change, .. }) => change.plan(map, now()).unwrap_err(),
        other => other.unwrap_err(),
    };
    (refusal.code.0, refusal.text)
}

fn at(prefix: &str, name: &str, args: &[&str]) -> Value {
    json!({ "prefix": prefix, "name": name, "type": "rack", "args": args })
}

fn placed(prefix: &str, osd: u32, weight: f64, args: &[&str]) -> Value {
    json!({ "prefix": prefix, "id": osd, "weight": weight, "args": args })
}

/// Rows of `osd tree`: name, weight, depth.
fn tree(map: &OsdMap) -> Vec<(String, f64)> {
    let nodes = value(map, "osd crush dump")["buckets"].as_array().unwrap().clone();
    let row = |node: &Value| {
        (node["name"].as_str().unwrap().to_owned(), node["weight"].as_f64().unwrap() / 65_536.0)
    };
    nodes.iter().map(row).collect()
}

#[test]
fn buckets_are_made_moved_and_removed_in_ceph_s_words() {
    let mut map = cluster_up(3);
    let make = |name| at("osd crush add-bucket", name, &[]);
    assert_eq!(done(&mut map, make("r1")), "added bucket r1 type rack to crush map");
    assert_eq!(done(&mut map, make("r1")), "bucket 'r1' already exists");
    let below = at("osd crush add-bucket", "r2", &["root=default"]);
    assert_eq!(done(&mut map, below), "added bucket r2 type rack to location {root=default}");
    let (r1, r2) = (item_named(&map.crush, "r1").unwrap(), item_named(&map.crush, "r2").unwrap());
    let up = || at("osd crush move", "r1", &["root=default"]);
    let moved = format!("item id {r1} name 'r1' to location {{root=default}} in crush map");
    assert_eq!(done(&mut map, up()), format!("moved {moved}"));
    assert_eq!(done(&mut map, up()), format!("no need to move {moved}"));
    let link = at("osd crush link", "host-0", &["rack=r1"]);
    assert!(done(&mut map, link).starts_with("linked item id -2 name 'host-0' to location {rack=r1}"));
    let unlink = json!({ "prefix": "osd crush unlink", "name": "host-0", "ancestor": "r1" });
    assert_eq!(done(&mut map, unlink.clone()), "removed item id -2 name 'host-0' from crush map");
    assert_eq!(done(&mut map, unlink), "item -2 does not appear in that position");
    let rename = json!({ "prefix": "osd crush rename-bucket", "srcname": "r2", "dstname": "r3" });
    assert_eq!(done(&mut map, rename.clone()), "renamed bucket r2 into r3");
    assert_eq!(done(&mut map, rename), "srcname = 'r2' does not exist and dstname = 'r3' already exists");
    let remove = |name| json!({ "prefix": "osd crush rm", "name": name });
    assert_eq!(done(&mut map, remove("r3")), format!("removed item id {r2} name 'r3' from crush map"));
    assert_eq!(done(&mut map, remove("r3")), "device 'r3' does not appear in the crush map");
}

#[test]
fn what_cannot_be_is_refused_with_ceph_s_numbers() {
    let mut map = cluster_up(3);
    done(&mut map, at("osd crush add-bucket", "r1", &["root=default"]));
    let code = |command: Value| refused(&map, b"", command).0;
    assert_eq!(code(at("osd crush move", "nosuch", &["root=default"])), errno::ENOENT);
    assert_eq!(code(at("osd crush move", "default", &["rack=r1"])), errno::ELOOP);
    assert_eq!(code(at("osd crush move", "r1", &["foo=x"])), errno::EINVAL);
    assert_eq!(code(at("osd crush move", "r1", &["root=bad!name"])), errno::EINVAL);
    assert_eq!(code(at("osd crush add-bucket", "r2", &["foo=x"])), errno::EINVAL);
    assert_eq!(code(json!({ "prefix": "osd crush add-bucket", "name": "a", "type": "osd" })), errno::EINVAL);
    assert_eq!(code(json!({ "prefix": "osd crush rm", "name": "host-0" })), errno::ENOTEMPTY);
    assert_eq!(code(json!({ "prefix": "osd crush rm", "name": "default" })), errno::EBUSY);
    assert_eq!(code(json!({ "prefix": "osd crush rm", "name": "r1", "ancestor": "x" })), errno::ENOENT);
    let rename = |from, to| json!({ "prefix": "osd crush rename-bucket", "srcname": from, "dstname": to });
    assert_eq!(code(rename("r1", "default")), errno::EEXIST);
    assert_eq!(code(rename("osd.1", "x")), errno::ENOTDIR);
    assert_eq!(code(rename("nosuch", "x")), errno::ENOENT);
    let swap = |source, dest| json!({ "prefix": "osd crush swap-bucket", "source": source, "dest": dest });
    assert_eq!(code(swap("r1", "host-0")), errno::EPERM);
    assert_eq!(code(swap("default", "r1")), errno::EINVAL);
    assert_eq!(code(placed("osd crush set", 9, 1.0, &["root=default"])), errno::ENOENT);
    assert_eq!(code(placed("osd crush set", 0, -1.0, &["root=default"])), errno::EINVAL);
    assert_eq!(code(placed("osd crush set", 0, 70_000.0, &["root=default"])), errno::EOVERFLOW);
    let subtree = |name| json!({ "prefix": "osd crush reweight-subtree", "name": name, "weight": 2.0 });
    assert_eq!((code(subtree("osd.1")), code(subtree("nosuch"))), (errno::EINVAL, errno::ENOENT));
}

#[test]
fn osds_get_places_and_weights() {
    let mut map = cluster_up(3);
    let place = &["host=new", "rack=r", "root=default"][..];
    let words = |weight| {
        format!("item id 0 name 'osd.0' weight {weight} at location {{host=new,rack=r,root=default}}")
    };
    assert_eq!(
        done(&mut map, placed("osd crush set", 0, 2.0, place)),
        format!("set {} to crush map", words(2))
    );
    assert_eq!(
        done(&mut map, placed("osd crush set", 0, 2.0, place)),
        format!("set {}: no change", words(2))
    );
    assert_eq!(
        done(&mut map, placed("osd crush add", 0, 1.0, place)),
        format!("set {} to crush map", words(1))
    );
    let status = done(&mut map, placed("osd crush create-or-move", 0, 3.0, &["host=host-1"]));
    assert_eq!(
        status,
        "create-or-move updating item name 'osd.0' weight 3 at location {host=host-1} to crush map"
    );
    let rows = tree(&map);
    let weight = |name: &str| rows.iter().find(|(own, _)| own == name).unwrap().1;
    assert_eq!((weight("new"), weight("host-0"), weight("host-1")), (0.0, 2.0, 1.0), "it keeps its weight");
    let subtree = json!({ "prefix": "osd crush reweight-subtree", "name": "default", "weight": 2.0 });
    assert_eq!(done(&mut map, subtree), "reweighted subtree id -1 name 'default' to 2 in crush map");
    assert_eq!(tree(&map)[0], ("default".to_owned(), 4.0), "osd.0 is elsewhere");
    assert_eq!(done(&mut map, json!({ "prefix": "osd crush reweight-all" })), "reweighted crush hierarchy");
}

/// The PGs of a root that loses an OSD move, and their owners keep them until others have them.
#[test]
fn pgs_follow_what_moves() {
    let mut map = cluster_up(3);
    let hosts = |map: &OsdMap| {
        MapView::new(std::sync::Arc::new(map.clone())).pgs().map(|(_, at)| at.wanted.len()).max()
    };
    assert_eq!(hosts(&map), Some(3));
    done(&mut map, at("osd crush move", "osd.2", &["host=far", "root=apart"]));
    assert_eq!(hosts(&map), Some(2));
    done(&mut map, at("osd crush move", "osd.2", &["host=host-0"]));
    assert_eq!(hosts(&map), Some(3));
}

#[test]
fn tunables_have_ceph_s_profiles() {
    let mut map = cluster_up(3);
    for name in ["argonaut", "bobtail", "firefly", "hammer", "jewel"] {
        let status = done(&mut map, json!({ "prefix": "osd crush tunables", "profile": name }));
        assert_eq!(status, format!("adjusted tunables profile to {name}"));
        assert_eq!(value(&map, "osd crush show-tunables")["profile"], name);
    }
    done(&mut map, json!({ "prefix": "osd crush tunables", "profile": "legacy" }));
    let shown = value(&map, "osd crush show-tunables");
    assert_eq!((&shown["legacy_tunables"], &shown["allowed_bucket_algs"]), (&json!(1), &json!(22)));
    assert_eq!(
        (&shown["straw_calc_version"], &shown["minimum_required_version"]),
        (&json!(0), &json!("hammer"))
    );
    let set =
        |value| json!({ "prefix": "osd crush set-tunable", "tunable": "straw_calc_version", "value": value });
    assert_eq!(done(&mut map, set(1)), "adjusted tunable straw_calc_version to 1");
    assert_eq!(refused(&map, b"", set(7)), (errno::EINVAL, "value must be 0 or 1; got 7".into()));
}

#[test]
fn another_map_is_taken_and_a_hostile_one_is_not() {
    let map = cluster_up(3);
    let set = json!({ "prefix": "osd setcrushmap" });
    let fed = |crush: &CrushMap| run_fed(&map, &crush.encode(), &set.to_string());
    let version = map.crush_version;
    assert!(
        matches!(fed(&map.crush), Ok(Answer::Change { status, .. }) if status == (version + 1).to_string())
    );
    let (code, text) = refused(&map, b"", set.clone());
    assert!(code == errno::EINVAL && text.starts_with("Failed to parse crushmap: "), "{text}");
    let prior = json!({ "prefix": "osd setcrushmap", "prior_version": version - 1 });
    assert_eq!(refused(&map, &map.crush.encode(), prior).0, errno::EPERM);
    let mut looped = CrushMap::clone(&map.crush);
    looped.buckets[1].as_mut().unwrap().items[0] = -1;
    let (code, text) = refused(&map, &looped.encode(), set.clone());
    assert!(code == errno::EINVAL && text.contains("below itself"), "{text}");
    let mut bare = CrushMap::clone(&map.crush);
    (bare.rules, bare.rule_names) = (Vec::new(), Default::default());
    let (code, text) = refused(&map, &bare.encode(), set);
    assert!(code == errno::ENOENT && text.contains("pool 'bench' references crush_rule 0"), "{text}");
}

proptest! {
    /// Whatever bytes come, the monitor answers.
    #[test]
    fn no_bytes_stop_the_monitor(at in 0usize..2000, byte: u8, cut in 0usize..2000) {
        let map = cluster_up(3);
        let mut bytes = map.crush.encode();
        let len = bytes.len();
        bytes[at % len] = byte;
        bytes.truncate(len - cut % len / 2 * usize::from(byte & 1));
        if let Ok(Answer::Change { change, .. }) = run_fed(&map, &bytes, "{\"prefix\":\"osd setcrushmap\"}") {
            let _ = change.plan(&map, now());
        }
    }
}
