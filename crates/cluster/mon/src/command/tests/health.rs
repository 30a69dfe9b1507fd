//! What `health` complains about, and complaints that are muted.

use super::*;

#[test]
fn unfound_objects_are_damage() {
    let map = cluster_up(3);
    let mut stats = reports(&map);
    let (pg, _, stat) = first(&map, &mut stats);
    stat.set_states(state::bits("active+recovery_unfound+degraded"));
    let sum = &mut stat.stats.sum;
    *sum = ObjectStatSum { num_objects: 3, num_objects_unfound: 1, ..*sum };
    let health = text_of(run_with(&map, &stats, r#"{"prefix":"health","detail":"detail"}"#));
    let lines = [
        "[ERR] PG_DAMAGED: Possible data damage: 1 pg recovery_unfound\n".to_owned(),
        format!("pg {pg} is active+recovery_unfound+degraded, acting ["),
        "], 1 unfound\n".to_owned(),
        "[WRN] OBJECT_UNFOUND: 1/23 objects unfound (4.348%)\n".to_owned(),
        format!("    pg {pg} has 1 unfound objects\n"),
    ];
    assert!(lines.iter().all(|line| health.contains(line)), "{health}");
    assert!(!health.contains("SCRUB"), "{health}");
}

/// In the words of a Ceph 16.2.15.
#[test]
fn slow_operations_are_in_health() {
    let map = cluster_up(12);
    let mut stats = reports(&map);
    let mut summary = |osd: u32, count: u64, age_s: u64| {
        let report = stats.reports.get_mut(&OsdId(osd)).unwrap();
        (report.slow_ops, report.slowest_s) = (count, age_s);
        let health = text_of(run_with(&map, &stats, r#"{"prefix":"health","format":"json"}"#));
        let health: Value = serde_json::from_str(&health).unwrap();
        health["checks"]["SLOW_OPS"]["summary"].clone()
    };
    let one = "2 slow ops, oldest one blocked for 11 sec, osd.0 has slow ops";
    assert_eq!(summary(0, 2, 11), json!({ "message": one, "count": 1 }));
    let two = "5 slow ops, oldest one blocked for 40 sec, daemons [osd.0,osd.2] have slow ops.";
    assert_eq!(summary(2, 3, 40)["message"], two);
    for osd in 0..12 {
        summary(osd, 1, 50);
    }
    let most = "12 slow ops, oldest one blocked for 50 sec, daemons [osd.0,osd.1,osd.2,osd.3,osd.4,osd.5,osd.6,osd.7,osd.8,osd.9]... \
                have slow ops.";
    assert_eq!(summary(0, 1, 50)["message"], most);
    let left: Vec<Value> = (0..12).map(|osd| summary(osd, 0, 0)).collect();
    assert_eq!(left.last(), Some(&Value::Null));
}

#[test]
fn an_osd_that_cannot_read_its_metadata_is_an_error() {
    let map = cluster_up(3);
    let mut stats = reports(&map);
    stats.damage.insert(OsdId(1), "block checksum mismatch".to_owned());
    let health = text_of(run_with(&map, &stats, r#"{"prefix":"health","detail":"detail"}"#));
    for line in [
        "HEALTH_ERR",
        "[ERR] OSD_DAMAGED: 1 osds cannot read their metadata and have to be replaced\n",
        "    osd.1: block checksum mismatch\n",
    ] {
        assert!(health.contains(line), "{line} is not in:\n{health}");
    }
}

#[test]
fn what_scrubs_found_is_in_states_and_health() {
    let map = cluster_up(3);
    let mut stats = reports(&map);
    let (pg, _, stat) = first(&map, &mut stats);
    stat.last_scrub = ScrubStamp { version: carmine_types::Eversion::new(4, 9), time: now() };
    stat.set_states(state::bits("active+clean+scrubbing+deep+inconsistent+repair"));
    stat.stats.sum.num_scrub_errors = 2;
    let listed =
        text_of(run_with(&map, &stats, r#"{"prefix":"pg ls","states":["inconsistent"],"format":"json"}"#));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["pg_stats"].as_array().unwrap().len(), 1);
    let one = &listed["pg_stats"][0];
    assert_eq!(one["state"], "active+clean+scrubbing+deep+inconsistent+repair");
    assert_eq!((&one["last_scrub"], &one["last_deep_scrub"]), (&json!("4'9"), &json!("0'0")));
    assert_eq!(one["last_scrub_stamp"], crate::report::dump::time(now()));
    let health = text_of(run_with(&map, &stats, r#"{"prefix":"health","detail":"detail"}"#));
    for line in [
        "HEALTH_ERR",
        "[ERR] OSD_SCRUB_ERRORS: 2 scrub errors",
        "[ERR] PG_DAMAGED: Possible data damage: 1 pg inconsistent",
    ] {
        assert!(health.contains(line), "{line} is not in:\n{health}");
    }
    assert!(
        health.contains(&format!("pg {pg} is active+clean+scrubbing+deep+inconsistent+repair, acting [")),
        "{health}"
    );
    assert!(plain(&map, "pg ls").contains("DEEP_SCRUB_STAMP"));
    // Another OSD leads, and has not told of any yet.
    stats.pgs.get_mut(&pg).unwrap().0 = OsdId(99);
    let dumped =
        text_of(run_with(&map, &stats, r#"{"prefix":"pg ls","states":["inconsistent"],"format":"json"}"#));
    let dumped: Value = serde_json::from_str(&dumped).unwrap();
    let one = &dumped["pg_stats"][0];
    assert_eq!((&one["state"], &one["last_scrub"]), (&json!("inconsistent+peering"), &json!("4'9")));
}

#[test]
fn muted_checks_leave_the_state_until_they_are_over_or_worse() {
    let mut map = cluster_up(3);
    assert!(apply(&mut map, Change::MarkDown { osds: vec![OsdId(2)] }));
    let mut stats = reports(&map);
    stats.pgs.values_mut().for_each(|(_, stat)| stat.set_states(stat.states() | state::DEGRADED));
    let run = |map: &OsdMap, options: &ClientOptions, command: Value| {
        run_under(map, &stats, options, &command.to_string())
    };
    let edited = |map: &OsdMap, options: &ClientOptions, command: Value| match run(map, options, command) {
        Ok(Answer::Options { edit, .. }) => options.edited(&edit).unwrap(),
        other => panic!("{other:?}"),
    };
    let health = |map: &OsdMap, options: &ClientOptions| {
        let told = run(map, options, json!({ "prefix": "health", "format": "json" }));
        serde_json::from_str::<Value>(&text_of(told)).unwrap()
    };
    let none = ClientOptions::default();
    assert_eq!(health(&map, &none)["status"], "HEALTH_WARN");
    let mute = |code: &str| json!({ "prefix": "health mute", "code": code, "ttl": "3h" });
    assert_eq!(run(&map, &none, mute("OSD_FULL")).unwrap_err().code.0, errno::ENOENT);
    let bad = json!({ "prefix": "health mute", "code": "OSD_DOWN", "ttl": "soon" });
    assert_eq!(run(&map, &none, bad).unwrap_err().code.0, errno::EINVAL);
    let mut options = none.clone();
    for code in ["OSD_DOWN", "PG_DEGRADED"] {
        options = edited(&map, &options, mute(code));
    }
    let told = health(&map, &options);
    assert_eq!((&told["status"], &told["checks"]["OSD_DOWN"]["muted"]), (&json!("HEALTH_OK"), &json!(true)));
    assert_eq!(told["mutes"][0]["code"], "OSD_DOWN");
    let detail = text_of(run(&map, &options, json!({ "prefix": "health", "detail": "detail" })));
    assert!(
        detail.starts_with("HEALTH_OK (muted: OSD_DOWN(3h) PG_DEGRADED(3h))\n(MUTED ttl 3h) [WRN] OSD_DOWN"),
        "{detail}"
    );
    // Another OSD goes down: that is worse than what was muted.
    assert!(apply(&mut map, Change::MarkDown { osds: vec![OsdId(1)] }));
    let ended = |map: &OsdMap, options: &ClientOptions| {
        let placement = MapView::new(std::sync::Arc::new(map.clone()));
        crate::report::health::ended_mutes(&view_of(map, (&placement, &[]), &stats, options))
    };
    assert_eq!(ended(&map, &options), ["OSD_DOWN"]);
    let sticky = edited(&map, &none, json!({ "prefix": "health mute", "code": "OSD_FULL", "sticky": true }));
    assert_eq!(ended(&map, &sticky), [""; 0]);
    let unmuted = edited(&map, &options, json!({ "prefix": "health unmute" }));
    assert_eq!((unmuted.mutes.len(), health(&map, &unmuted)["status"].as_str()), (0, Some("HEALTH_WARN")));
}
