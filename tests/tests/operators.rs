//! What an operator does to a cluster with a real monitor: each command has its effect on Carmine's OSDs, and no object is lost. Some 60 s.
#![allow(clippy::disallowed_methods)] // waits

use std::path::Path;
use std::time::Duration;

use carmine_tests::{Testbed, has_real_mon, run};
use serde_json::Value;

const OBJECTS: u8 = 12;

fn fill(bed: &Testbed) {
    (0..OBJECTS).for_each(|n| bed.put("bench", &format!("o{n}"), &vec![n; 300_000 + usize::from(n)]));
}

fn assert_whole(bed: &Testbed) {
    (0..OBJECTS).for_each(|n| bed.assert_has("bench", &format!("o{n}"), &vec![n; 300_000 + usize::from(n)]));
}

/// The PGs of `bench` with this OSD in their up set.
fn pgs_of(bed: &Testbed, osd: u64) -> usize {
    let pgs = bed.ceph_json("pg ls-by-pool bench");
    let has = |pg: &&Value| pg["up"].as_array().is_some_and(|up| up.iter().any(|own| *own == osd));
    pgs["pg_stats"].as_array().expect("PGs").iter().filter(has).count()
}

#[test]
fn osds_go_out_move_and_come_back() {
    if !has_real_mon(&[]) {
        return;
    }
    let bed = Testbed::up_real("4", &[]);
    fill(&bed);
    bed.ceph_words("osd out 3");
    bed.wait_until("osd.3 has no PG", || pgs_of(&bed, 3) == 0);
    bed.wait_clean();
    bed.wait_until("it is safe to destroy", || bed.ceph(&["osd", "safe-to-destroy", "3"]).status.success());
    bed.ceph_words("osd in 3");
    bed.ceph_words("osd reweight 2 0.5");
    bed.ceph_words("osd crush reweight osd.1 0.5");
    bed.ceph_words("osd crush add-bucket r1 rack");
    bed.ceph_words("osd crush move r1 root=default");
    bed.ceph_words("osd crush move host-0 rack=r1");
    bed.ceph_words("osd primary-affinity 0 0");
    bed.wait_clean();
    bed.wait_until("osd.0 leads no PG", || {
        let led = bed.ceph_json("pg ls-by-primary 0");
        led["pg_stats"].as_array().is_none_or(Vec::is_empty)
    });
    bed.ceph_words("osd set-require-min-compat-client luminous");
    let up: Vec<u64> = serde_json::from_value(bed.ceph_json("pg map 1.0")["up"].clone()).expect("OSDs");
    let other = (0..4).find(|osd| !up.contains(osd)).expect("four OSDs, three copies");
    bed.ceph_words(&format!("osd pg-upmap-items 1.0 {} {other}", up[1]));
    bed.wait_clean();
    let now: Vec<u64> = serde_json::from_value(bed.ceph_json("pg map 1.0")["acting"].clone()).expect("OSDs");
    assert!(now.contains(&other) && !now.contains(&up[1]), "{up:?}, then {now:?}");
    bed.ceph_words("osd rm-pg-upmap-items 1.0");
    // Maintenance: nobody goes out, and what was missed is recovered.
    bed.ceph_words("osd set-group noout osd.1");
    // The PG that lost its upmap may still be peering.
    bed.wait_until("osd.1 may stop", || bed.ceph(&["osd", "ok-to-stop", "1"]).status.success());
    assert!(bed.osd(&["stop", "1"]).status.success());
    bed.wait_until("osd.1 is down", || !bed.is_up(1));
    bed.put("bench", "o0", &[0; 300_000]);
    assert!(bed.osd(&["start", "1"]).status.success());
    bed.ceph_words("osd unset-group noout osd.1");
    bed.wait_clean();
    // With three OSDs left, each must take all PGs.
    bed.ceph_words("osd reweight 2 1");
    bed.ceph_words("osd crush reweight osd.1 1");
    bed.wait_clean();
    // Replaced: another store under the same number.
    assert!(bed.osd(&["remove", "3"]).status.success());
    let added = bed.osd(&["add"]);
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    bed.wait_until("osd.3 is up", || bed.is_up(3));
    bed.wait_clean();
    assert!(pgs_of(&bed, 3) > 0);
    assert_whole(&bed);
}

#[test]
fn pools_quotas_scrubs_and_snapshots() {
    if !has_real_mon(&[]) {
        return;
    }
    let bed = Testbed::up_real("4", &[]);
    fill(&bed);
    bed.ceph_words("osd pool create other 8 8");
    bed.ceph_words("osd pool application enable other rados");
    bed.ceph_words("osd pool set other size 2");
    bed.ceph_words("osd pool set other min_size 1");
    bed.put("other", "x", b"x");
    bed.ceph_words("osd pool set-quota other max_objects 1");
    let is_full = || {
        bed.ceph_words("osd pool ls detail")
            .lines()
            .any(|line| line.contains("'other'") && line.contains("full_quota"))
    };
    bed.wait_until("the pool is full", is_full);
    let conf = bed.conf();
    let refused = ["5", "rados", "-c", &conf, "-p", "other", "put", "y", "/dev/null"];
    assert!(
        !run(Path::new("timeout"), &refused, Duration::from_secs(60)).status.success(),
        "its quota is used up"
    );
    bed.ceph_words("osd pool set-quota other max_objects 0");
    bed.wait_until("the pool has room", || !is_full());
    // OSDs tell how full they are by the map's ratios.
    let states = || {
        let osds = bed.ceph_json("osd dump")["osds"].as_array().expect("OSDs").clone();
        let is = |osd: &serde_json::Value, word: &str| {
            osd["state"].as_array().is_some_and(|words| words.iter().any(|found| found == word))
        };
        ["full", "nearfull"].map(|word| osds.iter().filter(|osd| is(osd, word)).count())
    };
    let osds = bed.ceph_json("osd ls").as_array().expect("OSDs").len();
    bed.ceph_words("osd set-nearfull-ratio 0.000001");
    bed.wait_until("the OSDs are nearly full", || states() == [0, osds]);
    bed.ceph_words("osd set-full-ratio 0.000001");
    bed.wait_until("the OSDs are full", || states() == [osds, 0]);
    bed.ceph_words("osd set-full-ratio 0.95");
    bed.ceph_words("osd set-nearfull-ratio 0.85");
    bed.wait_until("the OSDs have room", || states() == [0, 0]);
    bed.put("other", "y", b"y");
    bed.ceph_words("config set mon mon_allow_pool_delete true");
    bed.ceph_words("osd pool rm other other --yes-i-really-really-mean-it");
    bed.put("bench", "before", b"before the split");
    bed.ceph_words("osd pool set bench pg_num 32");
    let numbers = || {
        let pools = bed.ceph_json("osd dump")["pools"].as_array().expect("pools").clone();
        let pool = pools.into_iter().find(|pool| pool["pool_name"] == "bench").expect("the pool");
        (pool["pg_num"].clone(), pool["pg_placement_num"].clone())
    };
    bed.wait_until("its PGs are split, and placed", || numbers() == (32.into(), 32.into()));
    bed.wait_clean();
    bed.assert_has("bench", "before", b"before the split");

    let stamps = |pg: &str| {
        let pgs = bed.ceph_json("pg ls-by-pool bench");
        let pgs = pgs["pg_stats"].as_array().expect("PGs").clone();
        let pg = pgs.into_iter().find(|stat| stat["pgid"] == pg).expect("the PG");
        (pg["last_scrub_stamp"].clone(), pg["last_deep_scrub_stamp"].clone())
    };
    let before = ["1.1", "1.2", "1.3"].map(stamps);
    bed.ceph_words("pg scrub 1.1");
    bed.ceph_words("pg deep-scrub 1.2");
    bed.ceph_words("pg repair 1.3");
    bed.wait_until("all are scrubbed", || {
        let now = ["1.1", "1.2", "1.3"].map(stamps);
        now[0].0 != before[0].0 && now[1].1 != before[1].1 && now[2].1 != before[2].1
    });

    bed.rados_ok(&["mksnap", "s1"]);
    bed.put("bench", "o1", b"later");
    let file = bed.file("snapshot");
    bed.rados_ok(&["-s", "s1", "get", "o1", &file]);
    assert_eq!(std::fs::read(&file).expect("read"), vec![1; 300_001]);
    bed.rados_ok(&["rmsnap", "s1"]);
    bed.put("bench", "o1", &vec![1; 300_001]);
    assert!(bed.ceph_words("tell osd.0 version").contains("carmine"));
    assert!(bed.ceph_words("daemon osd.0 status").contains("cluster_fsid"));
    let versions = bed.ceph_json("versions");
    assert_eq!(versions["osd"].as_object().map(serde_json::Map::len), Some(1), "{versions}");
    bed.wait_clean();
    bed.wait_until("the cluster is healthy", || bed.ceph_json("health")["status"] == "HEALTH_OK");
    assert_whole(&bed);
}
