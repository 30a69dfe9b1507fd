//! Maps that we encode, read by Ceph's own `osdmaptool`: its texts and mappings must be ours.
//!
//! Skipped, with a line that says so, where the tool (Debian: ceph-base) is not installed.
#![allow(clippy::disallowed_methods)] // a test reads its files

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use carmine_crush::print::{PgColumns, pgs_dump, print_map};
use carmine_crush::{Placement, build_simple_crush, pg_mapping};
use carmine_testkit::installed;
use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid};
use carmine_wire::crushmap::{ChooseArg, CrushMap, Rule, RuleStep};
use carmine_wire::monmap::MonMap;
use carmine_wire::osdmap::consts::{POOL_ERASURE, STATE_EXISTS, STATE_UP, WEIGHT_IN};
use carmine_wire::osdmap::{OsdMap, PgPool, PoolOpt, PoolSnap};
use carmine_wire::{EntityAddr, EntityAddrVec};

const NOW: UTime = UTime { sec: 1_795_000_000, nsec: 123_456_789 };

/// The tool and a folder of its own for each test.
struct Tool(tempfile::TempDir);

impl Tool {
    fn find() -> Option<Tool> {
        installed("osdmaptool", "ceph-base").then(|| Tool(tempfile::tempdir().unwrap()))
    }

    fn run(&self, map: &OsdMap, args: &[&str]) -> String {
        let file: PathBuf = self.0.path().join("osdmap");
        fs::write(&file, map.encode()).unwrap();
        let out = Command::new("osdmaptool").arg(&file).args(args).env("TZ", "UTC").output().unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "osdmaptool {args:?}: {errors}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// Both texts and all mappings of a map.
    fn check(&self, map: &OsdMap, what: &str) {
        assert_same(&print_map(map), &self.run(map, &["--print"]), what);
        for (option, columns) in [
            ("--test-map-pgs-dump", PgColumns::Acting),
            ("--test-map-pgs-dump-all", PgColumns::All),
            ("--test-map-pgs", PgColumns::None),
        ] {
            assert_same(&pgs_dump(map, None, columns), &self.run(map, &[option]), what);
        }
    }
}

fn assert_same(found: &str, expected: &str, what: &str) {
    for (n, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{what}, line {}", n + 1);
    }
    assert_eq!(found, expected, "{what}");
}

/// `n` OSDs, up and in, one pool of size 3 as the testbed's monitor makes it.
fn cluster(n: u32, per_host: bool) -> OsdMap {
    let mut map = OsdMap::new(Uuid::from_random(1, 2), NOW);
    map.epoch = Epoch(7);
    map.set_max_osd(n);
    for osd in 0..n as usize {
        let port = 6800 + osd as u16;
        let addr = EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1000 + osd as u32);
        map.osd_state[osd] = STATE_EXISTS | STATE_UP;
        map.osd_weight[osd] = WEIGHT_IN;
        map.client_addrs[osd] = EntityAddrVec::from(addr);
        map.cluster_addrs[osd] = EntityAddrVec::from(addr);
        map.osd_uuid[osd] = Uuid::from_random(osd as u64, 5);
    }
    let osds: Vec<(OsdId, u32)> = (0..n).map(|osd| (OsdId(osd), WEIGHT_IN)).collect();
    map.crush = Arc::new(build_simple_crush(&osds, per_host));
    let mut pool = PgPool::replicated(3.min(n as u8), 1, 32, 0, Epoch(7), NOW);
    pool.application_metadata.insert("rados".to_owned(), BTreeMap::new());
    map.pools.insert(1, pool);
    map.pool_names.insert(1, "bench".to_owned());
    map.pool_max = 1;
    map
}

#[test]
fn simple_clusters() {
    let Some(tool) = Tool::find() else { return };
    for (osds, per_host) in [(1, false), (3, false), (3, true), (17, true), (40, false)] {
        tool.check(&cluster(osds, per_host), &format!("{osds} OSDs, per host: {per_host}"));
    }
}

#[test]
fn empty_and_dead_clusters() {
    let Some(tool) = Tool::find() else { return };
    tool.check(&OsdMap::new(Uuid::default(), UTime::default()), "empty");
    let mut map = cluster(3, false);
    map.osd_weight.fill(0);
    tool.check(&map, "all out");
    let mut map = cluster(3, false);
    map.osd_state.fill(STATE_EXISTS);
    tool.check(&map, "all down");
    map.osd_state[1] = 0;
    tool.check(&map, "one does not exist");
    map.pools.get_mut(&1).unwrap().size = 11;
    tool.check(&map, "a size that no rule serves");
}

#[test]
fn pins_and_temporaries() {
    let Some(tool) = Tool::find() else { return };
    let mut map = cluster(12, true);
    (map.osd_weight[4], map.osd_weight[5]) = (0, 0x8000);
    map.osd_state[6] = STATE_EXISTS;
    map.primary_affinity = vec![WEIGHT_IN; 12];
    for (osd, affinity) in [(0, 0), (1, 0x4000), (2, 0x8000), (7, 0xffff)] {
        map.primary_affinity[osd] = affinity;
    }
    for (ps, osds) in [(0, vec![9, 8, 7]), (1, vec![4, 1, 2]), (2, vec![6, 3, 0]), (3, vec![0])] {
        map.pg_upmap.insert(PgId::new(1, ps), osds);
    }
    for ps in 0..16 {
        let first = pg_mapping(&map, PgId::new(1, ps)).raw[0];
        let kinds = [vec![(first, 11)], vec![(first, 4)], vec![(2, 3), (3, 8)]];
        let items = kinds[ps as usize % 3].clone();
        map.pg_upmap_items.insert(PgId::new(1, ps), items);
    }
    for (ps, osds) in [(20, vec![6, 1, 2]), (21, vec![6]), (22, vec![3, 2]), (1, vec![10])] {
        map.pg_temp.insert(PgId::new(1, ps), osds);
    }
    for (ps, osd) in [(20, 2), (24, 9), (25, 6)] {
        map.primary_temp.insert(PgId::new(1, ps), osd);
    }
    tool.check(&map, "pins");
    let pool = map.pools.get_mut(&1).unwrap();
    (pool.kind, pool.erasure_code_profile) = (POOL_ERASURE, "default".to_owned());
    let mut crush = CrushMap::clone(&map.crush);
    crush.rules[0] = Some(Rule {
        ruleset: 0,
        kind: POOL_ERASURE,
        min_size: 2,
        max_size: 4,
        steps: vec![
            RuleStep::SetChooseTries(100),
            RuleStep::Take(-1),
            RuleStep::ChooseLeafIndep(0, 1),
            RuleStep::Emit,
        ],
    });
    map.crush = Arc::new(crush);
    tool.check(&map, "pins of an erasure coded pool");
}

#[test]
fn odd_numbers_of_pgs_and_replaced_weights() {
    let Some(tool) = Tool::find() else { return };
    let mut map = cluster(12, true);
    let mut pool = map.pools[&1].clone();
    (pool.pg_num, pool.pgp_num, pool.flags) = (23, 12, 0);
    map.pools.insert(5, pool);
    map.pool_names.insert(5, "odd".to_owned());
    tool.check(&map, "pg_num 23, pgp_num 12, no hashpspool");
    let mut crush = CrushMap::clone(&map.crush);
    let weights = |n: u32| (1..13).map(|i| i * n * 0x1000).collect::<Vec<u32>>();
    let ids = (100..112).collect();
    let set = |weight_sets, ids| BTreeMap::from([(0, ChooseArg { weight_sets, ids })]);
    crush.choose_args.insert(-1, set(vec![weights(3)], Vec::new()));
    crush.choose_args.insert(5, set(vec![weights(1), weights(2).into_iter().rev().collect()], ids));
    map.crush = Arc::new(crush);
    tool.check(&map, "choose_args");
}

#[test]
fn everything_that_a_line_can_say() {
    let Some(tool) = Tool::find() else { return };
    let mut map = cluster(3, false);
    let v6 = EntityAddr { kind: 1, nonce: 3, sock: Some("[::1]:6789".parse().unwrap()) };
    map.client_addrs[1].0.push(v6);
    map.client_addrs[2] = EntityAddrVec::default();
    map.cluster_addrs[2] = EntityAddrVec::from(EntityAddr::default());
    map.osd_state[0] |= 0xfffc;
    map.flags = u32::MAX >> 1;
    map.osd_info[0].lost_at = Epoch(3);
    map.osd_weight[2] = 0x1234;
    map.osd_uuid[2] = Uuid::default();
    map.blocklist = vec![(v6, NOW)];
    (map.cluster_snapshot, map.cluster_snapshot_epoch) = ("snap".to_owned(), map.epoch);
    (map.nearfull_ratio, map.full_ratio) = (0.123_456_79, 1e-7);
    let snap = PoolSnap { snapid: 3, stamp: NOW, name: "monday".to_owned() };
    let pool = map.pools.get_mut(&1).unwrap();
    pool.snaps.insert(3, snap);
    pool.removed_snaps = vec![(1, 2), (0x20, 1)];
    pool.flags = u64::MAX >> 40;
    (pool.pg_num_target, pool.pgp_num_target, pool.pg_num_pending) = (16, 8, 31);
    pool.pg_autoscale_mode = 1;
    pool.last_force_op_resend = Epoch(4);
    (pool.quota_max_bytes, pool.quota_max_objects) = (1 << 40, 77);
    (pool.stripe_width, pool.expected_num_objects, pool.fast_read) = (4096, 5, true);
    (pool.tier_of, pool.read_tier, pool.write_tier, pool.cache_mode) = (3, 4, 5, 1);
    pool.tiers.extend([7, 9]);
    (pool.target_max_bytes, pool.target_max_objects) = (9, 8);
    (pool.min_read_recency_for_promote, pool.min_write_recency_for_promote) = (2, 3);
    (pool.auid, pool.crash_replay_interval) = (6, 45);
    for key in 0..24 {
        pool.opts.insert(key, PoolOpt::Int(i64::from(key) + 100));
    }
    pool.opts.insert(6, PoolOpt::Text("aggressive".to_owned()));
    pool.opts.insert(0, PoolOpt::Float(1234.5));
    pool.application_metadata.insert("rbd".to_owned(), BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    assert_same(&print_map(&map), &tool.run(&map, &["--print"]), "everything");
    for mode in [2, 3, 4, 5, 6, 7, 255] {
        map.pools.get_mut(&1).unwrap().cache_mode = mode;
        map.pools.get_mut(&1).unwrap().pg_autoscale_mode = mode;
        assert_same(&print_map(&map), &tool.run(&map, &["--print"]), "cache modes");
    }
}

/// The oldest client that a map serves, by what the map uses.
#[test]
fn tunables_name_the_oldest_client() {
    let Some(tool) = Tool::find() else { return };
    let mut map = cluster(3, false);
    let mut crush = CrushMap::clone(&map.crush);
    crush.tunables.chooseleaf_stable = 0;
    let mut check = |crush: &CrushMap| {
        map.crush = Arc::new(crush.clone());
        tool.check(&map, &format!("{:?}", crush.tunables));
    };
    check(&crush);
    for bucket in crush.buckets.iter_mut().flatten() {
        bucket.kind = carmine_wire::crushmap::BucketKind::Uniform { item_weight: WEIGHT_IN };
    }
    check(&crush);
    crush.tunables.chooseleaf_vary_r = 0;
    check(&crush);
    crush.tunables.chooseleaf_descend_once = 0;
    check(&crush);
    (crush.tunables.choose_local_tries, crush.tunables.choose_local_fallback_tries) = (2, 5);
    crush.tunables.choose_total_tries = 19;
    check(&crush);
    map.pools.get_mut(&1).unwrap().flags = 0;
    tool.check(&map, "no hashpspool");
    map.pools.clear();
    map.pool_names.clear();
    tool.check(&map, "no pools");
}

#[test]
fn objects() {
    let Some(tool) = Tool::find() else { return };
    let map = cluster(5, true);
    for name in ["a", "rbd_directory", "benchmark_data_vm_1_object0", "ü", "a name of thirteen+"] {
        let pg = map.object_pg(1, b"", b"", name.as_bytes()).unwrap();
        let mapping = map.pg_mapping(pg);
        let acting: Vec<String> = mapping.acting.iter().map(i32::to_string).collect();
        let found = tool.run(&map, &["--test-map-object", name, "--pool", "1"]);
        let expected = format!(" object '{name}' -> {pg} -> [{}]\n", acting.join(","));
        assert_eq!(found, expected);
    }
}

#[test]
fn a_mon_map() {
    if !installed("monmaptool", "ceph-base") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("monmap");
    let addr = EntityAddr::msgr2("127.0.0.1:3300".parse().unwrap(), 0);
    let map = MonMap::single(Uuid::from_random(1, 2), NOW, "a", addr.into());
    fs::write(&file, map.encode()).unwrap();
    let out = Command::new("monmaptool").arg("--print").arg(&file).env("TZ", "UTC").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for line in [
        "epoch 1",
        "fsid 00000000-0000-4001-8000-000000000002",
        "created 2026-11-18T11:06:40.123456+0000",
        "min_mon_release 16 (pacific)",
        "0: v2:127.0.0.1:3300/0 mon.a",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in {text}");
    }
}
