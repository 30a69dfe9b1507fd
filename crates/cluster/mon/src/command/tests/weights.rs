//! Weights that follow from how much OSDs have, and a PG that peers again.

use super::*;

fn pool(pg_num: u32) -> OsdMap {
    let mut map = cluster_up(3);
    let create = Change::CreatePool {
        name: "p".into(),
        pg_num: Some(pg_num),
        size: Some(1),
        rule: 0,
        values: Vec::new(),
    };
    apply(&mut map, create);
    map
}

#[test]
fn osds_with_many_pgs_get_lower_weights() {
    let map = pool(128);
    let ask = |words: &str, more: &str| {
        run_on(&map, &format!(r#"{{"prefix":"osd {words}","oload":101,"pools":["p"]{more}}}"#))
    };
    let Ok(Answer::Done { status, data }) = ask("test-reweight-by-pg", r#","format":"json""#) else {
        panic!()
    };
    assert_eq!(status, "no change");
    let shown: Value = serde_json::from_slice(&data).unwrap();
    let number =
        |path: &str| shown.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {shown}"));
    assert_eq!(
        (number("/overload_min"), number("/max_change"), number("/max_change_osds")),
        (101.0, 0.05, 4.0)
    );
    assert_eq!(number("/utilization/total_pgs"), 128.0);
    assert!(number("/utilization/moved_pgs") > 0.0);
    assert!(number("/utilization/std_dev") > 0.0 && number("/utilization/new_std_dev") > 0.0);
    assert!(number("/reweights/0/new_weight") < 1.0 && number("/reweights/0/new_weight") >= 0.95 - 1e-4);
    let Ok(Answer::Done { data, .. }) = ask("test-reweight-by-pg", "") else { panic!() };
    let text = String::from_utf8(data).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("moved ") && lines[0].contains(" / 128 ("), "{text}");
    assert_eq!((lines[5], lines[6], lines[7]), ("", "oload 101", "max_change 0.05"), "{text}");
    assert!(lines[11].contains(" weight 1.0000 -> 0.9"), "{text}");
    let Ok(Answer::ChangeAndTell { change, data }) = ask("reweight-by-pg", "") else { panic!() };
    assert_eq!(data, text.as_bytes(), "the same, and done");
    let mut after = map.clone();
    assert!(apply(&mut after, change));
    let osd = shown["reweights"][0]["osd"].as_u64().unwrap() as u32;
    assert!(after.weight(OsdId(osd)) < WEIGHT_IN);
    // A few at a time, and never heavier than whole.
    let Ok(Answer::ChangeAndTell { change: Change::Weights { weights }, .. }) =
        ask("reweight-by-pg", r#","max_osds":1"#)
    else {
        panic!()
    };
    assert_eq!(weights.len(), 1);
    assert!(weights.values().all(|weight| *weight <= WEIGHT_IN));
    let xml = text_of(ask("test-reweight-by-pg", r#","format":"xml""#));
    assert!(
        xml.starts_with("<reweight_by_utilization>") && xml.contains("<reweights><osd><new_weight>"),
        "{xml}"
    );
}

#[test]
fn what_says_nothing_changes_no_weights() {
    let map = pool(128);
    let refused = |words: &str| {
        let refusal = run_on(&map, &format!(r#"{{"prefix":"osd test-reweight-by-{words}}}"#)).unwrap_err();
        (refusal.code.0, refusal.text)
    };
    let (code, text) = refused(r#"pg","oload":100"#);
    assert_eq!(code, errno::EINVAL);
    assert!(
        text.starts_with("You must give a percentage higher than 100.")
            && text.ends_with("\nFAILED reweight-by-pg")
    );
    assert_eq!(
        refused(r#"pg","max_change":-1"#),
        (errno::EINVAL, "max_change -1 must be positive".to_owned())
    );
    assert_eq!(refused(r#"pg","max_osds":0"#), (errno::EINVAL, "max_osds 0 must be positive".to_owned()));
    assert_eq!(refused(r#"pg","pools":["no"]"#), (errno::ENOENT, "pool 'no' does not exist".to_owned()));
    let (code, text) = refused(r#"pg","pools":["bench"]"#);
    assert_eq!(
        (code, text.lines().next()),
        (errno::EDOM, Some("Refusing to reweight: we only have 24 PGs across 3 osds!"))
    );
    let none = run_with(&map, &ClusterStats::default(), r#"{"prefix":"osd test-reweight-by-utilization"}"#);
    assert_eq!(none.unwrap_err().code.0, errno::EDOM, "nothing is stored");
    // One has more than the others.
    let mut stats = reports(&map);
    let mut report = |osd: u32, used_bytes| {
        let report = stats.reports.get_mut(&OsdId(osd)).unwrap();
        (report.used_bytes, report.total_bytes) = (used_bytes, 1 << 30);
    };
    (0..3).for_each(|osd| report(osd, 100 << 20));
    report(1, 300 << 20);
    let ask =
        |more: &str| run_with(&map, &stats, &format!(r#"{{"prefix":"osd reweight-by-utilization"{more}}}"#));
    let Ok(Answer::ChangeAndTell { change: Change::Weights { weights }, .. }) = ask("") else { panic!() };
    assert_eq!(weights, [(OsdId(1), WEIGHT_IN - (0.05 * f64::from(WEIGHT_IN)) as u32)].into());
    assert!(matches!(ask(r#","oload":300"#), Ok(Answer::Done { .. })), "none has three times the mean");
    // One that was made lighter gets heavier again, unless that is forbidden.
    let mut light = map.clone();
    apply(&mut light, Change::Weight { osds: vec![OsdId(0)], weight: 0xc000 });
    let ask = |more: &str| {
        run_with(&light, &stats, &format!(r#"{{"prefix":"osd reweight-by-utilization","oload":300{more}}}"#))
    };
    let Ok(Answer::ChangeAndTell { change: Change::Weights { weights }, .. }) = ask("") else { panic!() };
    assert_eq!(weights, [(OsdId(0), 0xc000 + (0.05 * f64::from(WEIGHT_IN)) as u32)].into());
    let Ok(Answer::Done { status, .. }) = ask(r#","no_increasing":"--no-increasing""#) else { panic!() };
    assert_eq!(status, "no change");
}

#[test]
fn a_pg_peers_again_after_its_primary_served_it_alone() {
    let map = cluster_up(3);
    let ask = |map: &OsdMap, pg: &str| run_on(map, &format!(r#"{{"prefix":"pg repeer","pgid":"{pg}"}}"#));
    let pg = carmine_types::PgId::new(1, 3);
    let acting = |map: &OsdMap| carmine_crush::pg_mapping(map, pg).acting.to_vec();
    let after = |map: &OsdMap| {
        let Ok(Answer::Change { change, status }) = ask(map, "1.3") else { panic!() };
        assert_eq!(status, "");
        let mut next = map.clone();
        assert!(apply(&mut next, change));
        acting(&next)
    };
    let [primary, ..] = acting(&map)[..] else { panic!("no member") };
    assert_eq!(after(&map), [primary]);
    // One that serves alone gets company.
    let mut lone = map.clone();
    lone.pg_temp.insert(pg, vec![primary]);
    let company = after(&lone);
    assert_eq!((company.len(), company[0]), (2, primary));
    for absent in ["1.ff", "9.1", "x"] {
        let refusal = ask(&map, absent).unwrap_err();
        assert_eq!((refusal.code.0, refusal.text), (errno::ENOENT, format!("pg '{absent}' does not exist")));
    }
    let mut alone = map.clone();
    apply(&mut alone, Change::MarkDown { osds: vec![OsdId(1), OsdId(2)] });
    assert!(matches!(ask(&alone, "1.3"), Ok(Answer::Done { .. })), "nobody else is up");
    apply(&mut alone, Change::MarkDown { osds: vec![OsdId(0)] });
    assert_eq!(ask(&alone, "1.3").unwrap_err().code.0, errno::EAGAIN);
}
