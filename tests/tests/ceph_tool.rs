//! The unmodified `ceph` of Debian's ceph-common 16.2.15 against a testbed. About a minute: the tool needs half a second to start.
#![allow(clippy::disallowed_methods)] // waits and reads clocks

#[path = "ceph_tool/asked.rs"]
mod asked;
#[path = "ceph_tool/pools.rs"]
mod pools;
#[path = "ceph_tool/tree.rs"]
mod tree;

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::THREE_CYAN;
use carmine_tests::{Testbed, installed, run, succeed};
use serde_json::Value;

/// Every command has to end within this; the tool itself would wait for ever.
const LIMIT: Duration = Duration::from_secs(120);

struct Ceph<'a> {
    bed: &'a Testbed,
    sheet: Sheet,
}

impl Ceph<'_> {
    fn run(&self, words: &str) -> Output {
        let conf = self.bed.conf();
        let mut args = vec!["-c", &conf];
        args.extend(words.split_whitespace());
        run(Path::new("ceph"), &args, LIMIT)
    }

    /// Standard output of a command that must succeed.
    fn ok(&self, words: &str) -> String {
        succeed(self.run(words), &format!("ceph {words}"))
    }

    fn json(&self, words: &str) -> Value {
        let text = self.ok(&format!("{words} --format json"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("ceph {words}: {e}: {text}"))
    }

    /// A row: the plain output has these words, and the JSON has something at these paths (as `jq` takes them).
    fn shows(&mut self, words: &str, plain: &[&str], paths: &[&str]) {
        let text = self.ok(words);
        for wanted in plain {
            assert!(text.contains(wanted), "ceph {words} does not show {wanted:?}:\n{text}");
        }
        let value = self.json(words);
        for path in paths {
            let found = at(&value, path);
            assert!(!found.is_null(), "ceph {words} --format json has nothing at {path}: {value:#}");
        }
        let note = paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(" ");
        self.sheet.works(&format!("`ceph {words}`"), &format!("as text and as JSON with {note}"));
    }

    /// A row: the command changes something; its status, which goes to the standard error, has these words.
    fn says(&mut self, words: &str, status: &str, note: &str) {
        self.said(words, status);
        self.sheet.works(&format!("`ceph {words}`"), note);
    }

    /// A row: the answer is always text, with these words.
    fn tells(&mut self, words: &str, text: &str) {
        assert!(self.ok(words).contains(text), "ceph {words}");
        self.sheet.works(&format!("`ceph {words}`"), "as text");
    }

    /// The command changes something; its status has these words.
    fn said(&self, words: &str, status: &str) {
        let out = self.run(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        succeed(out, &format!("ceph {words}"));
        assert!(said.contains(status), "ceph {words} says {said:?}, not {status:?}");
    }

    /// A row: refused at once, with these words.
    fn refused(&mut self, words: &str, why: &str) {
        self.is_refused(words, why);
        self.sheet.refused(&format!("`ceph {words}`"), why);
    }

    fn is_refused(&self, words: &str, why: &str) {
        let begin = Instant::now();
        let out = self.run(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success(),
            "ceph {words} was not refused: {}",
            String::from_utf8_lossy(&out.stdout)
        );
        assert!(said.contains(why), "ceph {words} says {said:?}, not {why:?}");
        assert!(begin.elapsed() < LIMIT / 2, "ceph {words} took {:?}", begin.elapsed());
    }

    /// Asks until the answer is as wanted.
    fn until(&self, words: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let value = self.json(words);
            if wanted(&value) {
                return value;
            }
            assert!(begin.elapsed() < LIMIT, "ceph {words} still shows {value:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// `.a.b[0].c` of a value.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts.fold(value, |value, part| match part.parse::<usize>() {
        Ok(index) => &value[index],
        Err(_) => &value[part],
    })
}

fn clean(status: &Value) -> bool {
    let states = &status["pgmap"]["pgs_by_state"];
    states.as_array().is_some_and(|all| all.len() == 1) && states[0]["state_name"] == "active+clean"
}

fn look(ceph: &mut Ceph<'_>) {
    ceph.until("status", clean);
    ceph.shows(
        "-s",
        &["health: HEALTH_OK", "osd: 3 osds: 3 up", "active+clean"],
        &[".health.status", ".osdmap.num_up_osds", ".pgmap.num_pgs", ".pgmap.bytes_total"],
    );
    ceph.shows("health", &["HEALTH_OK"], &[".status", ".checks"]);
    ceph.shows("health detail", &["HEALTH_OK"], &[".status"]);
    ceph.shows(
        "df",
        &["--- RAW STORAGE ---", "bench"],
        &[".stats.total_bytes", ".stats.total_used_raw_bytes", ".pools[0].stats.max_avail"],
    );
    let detail = [".pools[0].stats.stored_raw", ".pools[0].stats.avail_raw", ".pools[0].stats.quota_bytes"];
    ceph.shows("df detail", &["QUOTA BYTES", "UNDER COMPR"], &detail);
    ceph.shows("osd tree", &["root default", "osd.2"], &[".nodes[0].children", ".nodes[2].status"]);
    ceph.shows("osd tree up", &["root default", "osd.2"], &[".nodes[2].status"]);
    ceph.shows(
        "osd df",
        &["TOTAL", "STDDEV"],
        &[".nodes[0].kb_used", ".nodes[2].pgs", ".summary.average_utilization"],
    );
    ceph.shows("osd df tree", &["root default"], &[".nodes[0].children", ".nodes[2].device_class"]);
    ceph.shows(
        "osd perf",
        &["commit_latency(ms)"],
        &[".osdstats.osd_perf_infos[2].perf_stats.commit_latency_ns"],
    );
    ceph.shows(
        "osd dump",
        &["max_osd 3", "pool 1 'bench' replicated size 3"],
        &[".epoch", ".osds[2].public_addrs.addrvec[0].addr", ".pools[0].pg_num"],
    );
    ceph.shows("osd stat", &["3 osds: 3 up"], &[".num_osds"]);
    ceph.shows("osd ls", &["0\n1\n2\n"], &["[2]"]);
    ceph.shows(
        "osd map bench foo",
        &["object 'foo' -> pg 1.7fc1f406 ("],
        &[".acting", ".acting_primary", ".pgid"],
    );
    let metadata = ["[0].hostname", "[2].osd_objectstore", "[1].front_addr"];
    ceph.shows("osd metadata", &["\"osd_objectstore\": \"cyan\""], &metadata);
    ceph.shows("osd metadata osd.1", &["\"id\": 1"], &[".kernel_version"]);
    ceph.shows(
        "osd crush show-tunables",
        &["\"profile\": \"jewel\""],
        &[".choose_total_tries", ".optimal_tunables"],
    );
    ceph.shows("osd pool ls", &["bench"], &["[0]"]);
    ceph.shows("osd pool ls detail", &["pool 1 'bench'"], &["[0].pool_name"]);
    ceph.shows("osd pool autoscale-status", &["AUTOSCALE", "off"], &["[0].pg_autoscale_mode"]);
    ceph.shows("pg stat", &["active+clean"], &[".pg_summary.num_pgs"]);
    pgs(ceph);
    ceph.shows("balancer status", &["\"active\": false"], &[".mode"]);
    ceph.shows("mon dump", &["mon.a"], &[".mons[0].name"]);
    maps(ceph);
    ceph.shows("features", &["luminous"], &[".mon[0].features", ".osd[0].num"]);
    ceph.shows(
        "report",
        &["cluster_fingerprint"],
        &[".health.status", ".osdmap.epoch", ".crushmap.rules[0].rule_id"],
    );
    ceph.shows("mgr stat", &["\"available\": true"], &[".active_name"]);
    ceph.ok("config dump");
    assert_eq!(ceph.ok("config get osd.0 osd_max_write_size"), "90\n");
    ceph.shows("config show osd.0", &["osd_max_object_size"], &["[0].value"]);
    ceph.ok("config set client.admin rbd_cache_size 4096");
    assert_eq!(ceph.ok("config get client.admin rbd_cache_size"), "4096\n");
    assert!(ceph.ok("config dump").contains("rbd_cache_size"));
    ceph.ok("config rm client.admin rbd_cache_size");
    assert!(!ceph.ok("config dump").contains("rbd_cache_size"));
    ceph.sheet.works(
        "`ceph config dump|get|set|rm|show|ls`",
        "options of clients, and those of OSDs that can change while they run, are stored and sent to them; the others of \
         daemons have one value",
    );
    osd_options(ceph);
    option_log(ceph);
    ceph.ok("osd set-require-min-compat-client mimic");
    assert_eq!(ceph.ok("osd get-require-min-compat-client"), "mimic\n");
    ceph.sheet
        .works("`ceph osd set-require-min-compat-client mimic`", "librbd makes clones of the second format");
    ceph.refused("osd set-require-min-compat-client jewel", "utilizes features that require luminous");
    ceph.ok("log good news");
    ceph.shows("log last 5", &["client.admin (client.?)", "[INF] good news"], &["[0].message"]);
    ceph.shows(
        "log last 100 debug audit",
        &["audit [INF] from='client.", "entity='client.admin' cmd=[{", "good", ": dispatch"],
        &["[0].channel"],
    );
    ceph.sheet.works("`ceph log TEXT`, `ceph -w`", "a line reaches who watches the log");
}

/// Each change of the options has a version, to which they go back.
fn option_log(ceph: &mut Ceph<'_>) {
    let version = |ceph: &Ceph<'_>| ceph.json("config log 1")[0]["version"].as_u64().expect("a version");
    let before = version(ceph);
    ceph.ok("config set client.admin rbd_cache_size 4096");
    ceph.ok("config set client.admin rbd_cache_size 8192");
    assert_eq!(version(ceph), before + 2);
    ceph.shows(
        "config log",
        &["- client.admin/rbd_cache_size = 4096", "+ client.admin/rbd_cache_size = 8192"],
        &["[0].changes[0].new_value"],
    );
    ceph.ok(&format!("config reset {before}"));
    assert!(!ceph.ok("config dump").contains("rbd_cache_size"));
    assert!(ceph.ok("config log 1").contains(&format!("reset to {before}")));
    ceph.sheet.works("`ceph config reset VERSION`", "the options are as they were then");
    ceph.refused("config reset 9999", "must specify a valid historical version");
}

/// An option of OSDs: for all of them, where the monitor keeps it, and for one of them until it stops.
fn osd_options(ceph: &mut Ceph<'_>) {
    let value = |ceph: &Ceph<'_>, osd: u32| {
        let value = ceph.json(&format!("tell osd.{osd} config get osd_max_backfills"));
        value["osd_max_backfills"].as_str().expect("a value").to_owned()
    };
    let until = |ceph: &Ceph<'_>, wanted: &str| {
        let begin = Instant::now();
        while value(ceph, 1) != wanted {
            assert!(begin.elapsed() < LIMIT, "osd.1 has not got the option");
        }
    };
    assert_eq!(value(ceph, 0), "1");
    ceph.ok("config set osd osd_max_backfills 3");
    until(ceph, "3");
    assert_eq!(ceph.ok("config get osd.1 osd_max_backfills"), "3\n");
    assert!(ceph.ok("tell osd.0 injectargs --osd-max-backfills 5").contains("osd_max_backfills = '5'"));
    assert_eq!((value(ceph, 0), value(ceph, 1)), ("5".into(), "3".into()));
    ceph.ok("tell osd.0 config set osd_max_backfills 4");
    assert_eq!(value(ceph, 0), "4");
    ceph.ok("config rm osd osd_max_backfills");
    until(ceph, "1");
    assert_eq!(value(ceph, 0), "4");
    assert!(ceph.ok("tell osd.0 config unset osd_max_backfills").contains("osd_max_backfills = '1'"));
    assert_eq!(value(ceph, 0), "1");
    ceph.sheet.works("`ceph config set osd[.N] OPTION VALUE`", "an OSD takes it while it runs");
    ceph.sheet.works("`ceph tell osd.N config get|set|unset`, `injectargs`", "for this OSD, until it stops");
    ceph.refused("config set osd osd_max_backfills many", "give a whole number");
    ceph.refused("tell osd.0 injectargs --debug_osd=1", "is no option that can change while an OSD runs");
}

fn pgs(ceph: &mut Ceph<'_>) {
    ceph.shows("pg dump pgs_brief", &["PG_STAT", "1.0", "active+clean"], &[".pg_stats[0].acting_primary"]);
    ceph.shows(
        "pg dump",
        &["PG_STAT", "OSD_STAT", "POOLID"],
        &[
            ".pg_map.pg_stats[0].state",
            ".pg_map.osd_stats[2].kb_used",
            ".pg_map.pool_stats[0].stat_sum.num_bytes",
        ],
    );
    ceph.shows(
        "pg dump pgs",
        &["PG_STAT", "SNAPTRIMQ_LEN"],
        &[".pg_stats[0].up", ".pg_stats[0].snaptrimq_len"],
    );
    ceph.shows("pg dump pools", &["POOLID"], &[".pool_stats[0].num_pg"]);
    ceph.shows("pg dump osds", &["OSD_STAT"], &[".osd_stats[0].num_pgs"]);
    ceph.shows("pg dump sum", &["active+clean"], &[".pg_stats_sum.stat_sum.num_objects"]);
    let listed =
        [".pg_stats[0].pgid", ".pg_stats[0].log_size", ".pg_stats[0].stat_sum.num_objects_misplaced"];
    ceph.shows("pg ls-by-pool bench active clean", &["1.0", "OMAP_KEYS*"], &listed);
    ceph.shows("pg ls-by-primary osd.1", &["MISPLACED"], &[".pg_stats[0].pgid"]);
    ceph.shows("pg dump_stuck", &[], &[".stuck_pg_stats"]);
    let known = [".info.last_update", ".peer_info[0].last_backfill", ".recovery_state[0].name"];
    ceph.shows("pg 1.0 query", &["recovery_state"], &known);
    ceph.shows("tell 1.0 query", &["recovery_state"], &known);
    ceph.shows("pg 1.0 list_unfound", &["num_unfound"], &[".num_missing", ".state", ".more"]);
    ceph.says("pg 1.0 mark_unfound_lost revert", "pg has no unfound objects", "there are none here");
    ceph.refused("pg 1.0 mark_unfound_lost lose", "lose not in revert|delete");
    let none = ceph.json("pg ls inconsistent");
    assert_eq!(none["pg_stats"], serde_json::json!([]));
    ceph.sheet.works("`ceph pg ls [POOL] [STATE ...]`", "what `rados list-inconsistent-pg` asks for");
}

/// Ceph's own tools read what is got.
fn maps(ceph: &mut Ceph<'_>) {
    let dir = ceph.bed.dir();
    let path = |name: &str| dir.join(name).to_str().expect("UTF-8").to_owned();
    let (osdmap, crushmap) = (path("osdmap"), path("crushmap"));
    ceph.ok(&format!("osd getmap -o {osdmap}"));
    ceph.ok(&format!("osd getcrushmap -o {crushmap}"));
    let oldest = ceph.json("osd dump 2");
    assert_eq!(oldest["epoch"], 2, "{oldest}");
    ceph.ok(&format!("osd getmap 2 -o {}", path("old")));
    if installed("osdmaptool", "ceph-base") {
        let shown = succeed(run(Path::new("osdmaptool"), &["--print", &osdmap], LIMIT), "osdmaptool --print");
        assert!(shown.contains("pool 1 'bench'"), "{shown}");
        let old =
            succeed(run(Path::new("osdmaptool"), &["--print", &path("old")], LIMIT), "osdmaptool --print");
        assert!(old.starts_with("epoch 2\n") || old.contains("\nepoch 2\n"), "{old}");
        let shown = succeed(run(Path::new("crushtool"), &["-d", &crushmap], LIMIT), "crushtool -d");
        assert!(shown.contains("step emit"), "{shown}");
        ceph.sheet.works(
            "`ceph osd getmap [EPOCH]`, `ceph osd getcrushmap [EPOCH]`",
            "`osdmaptool` and `crushtool` read them",
        );
    }
}

fn states(ceph: &mut Ceph<'_>) {
    for flag in ["noout", "noscrub", "nodeep-scrub", "noin", "nobackfill", "norecover", "nosnaptrim"] {
        ceph.says(&format!("osd set {flag}"), &format!("{flag} is set"), "");
    }
    held_flags(ceph);
    let health = ceph.json("health");
    assert_eq!(health["checks"]["OSDMAP_FLAGS"]["severity"], "HEALTH_WARN");
    for flag in ["noout", "noscrub", "nodeep-scrub", "noin", "nobackfill", "norecover", "nosnaptrim"] {
        ceph.says(&format!("osd unset {flag}"), &format!("{flag} is unset"), "");
    }
    ceph.bed.rados_ok(&["put", "kept", "/etc/hostname"]);
    let read = || ceph.bed.rados_ok(&["get", "kept", "-"]);
    let kept = read();
    // Three copies need three OSDs: those that have them go on.
    ceph.says(
        "osd out 1",
        "marked out osd.1",
        "no PG loses its data: who has it serves on, or gives it to who joins",
    );
    ceph.until("osd tree", |tree| {
        tree["nodes"].as_array().is_some_and(|n| n.iter().any(|n| n["reweight"] == 0))
    });
    assert_eq!(ceph.bed.rados_ok(&["get", "kept", "-"]), kept);
    ceph.says("osd in osd.1", "marked in osd.1", "");
    ceph.says("osd in all", "osd.1 is already in", "also `any`, for `out` and `down`, too");
    ceph.says("osd down 2", "marked down osd.2", "it runs, so it boots again");
    ceph.until("status", |status| status["osdmap"]["num_up_osds"] == 3 && clean(status));
    assert_eq!(ceph.bed.rados_ok(&["get", "kept", "-"]), kept);
    degraded(ceph);
    weights(ceph);
    primaries_come_back(ceph);
    ceph.says("balancer off", "", "it always is");
}

/// With one of three OSDs down a third of all copies is not there.
fn degraded(ceph: &mut Ceph<'_>) {
    ceph.ok("osd set noup");
    ceph.ok("osd down 2");
    let status = ceph.until("status", |status| {
        let pgmap = &status["pgmap"];
        pgmap["num_objects"].as_u64().is_some_and(|n| n > 0 && pgmap["degraded_objects"] == n)
    });
    let (objects, copies) = (&status["pgmap"]["degraded_objects"], &status["pgmap"]["degraded_total"]);
    assert_eq!(copies.as_u64(), objects.as_u64().map(|objects| 3 * objects));
    let words = format!("Degraded data redundancy: {objects}/{copies} objects degraded (33.333%)");
    assert!(ceph.ok("health detail").contains(&words), "{words}");
    let pools: Value = serde_json::from_str(&ceph.bed.rados_ok(&["df", "--format", "json"])).expect("JSON");
    for pool in pools["pools"].as_array().expect("a list") {
        assert_eq!(pool["num_objects_degraded"], pool["num_objects"], "{pool}");
    }
    ceph.ok("osd unset noup");
    ceph.until("status", |status| status["osdmap"]["num_up_osds"] == 3 && clean(status));
    ceph.sheet.works(
        "`ceph status`, `health`, `pg stat`, `osd pool stats`, `rados df` with an OSD down",
        "degraded objects in numbers, in words and with their share",
    );
}

fn weights(ceph: &mut Ceph<'_>) {
    ceph.says("osd reweight 0 0.8", "reweighted osd.0 to 0.8 (cccc)", "");
    ceph.says("osd reweight osd.0 1", "reweighted osd.0 to 1 (10000)", "");
    ceph.refused("osd reweight 9 0.5", "osd.9 does not exist");
    let crush = |weight| format!("reweighted item id 0 name 'osd.0' to {weight} in crush map");
    ceph.says("osd crush reweight osd.0 1.5", &crush("1.5"), "");
    ceph.says("osd crush reweight osd.0 1", &crush("1"), "");
    ceph.refused("osd crush reweight osd.9 1", "device 'osd.9' does not appear in the crush map");
    ceph.says("osd primary-affinity 0 0.5", "set osd.0 primary-affinity to 0.5 (8000)", "");
    ceph.says("osd primary-affinity osd.0 1", "set osd.0 primary-affinity to 1 (10000)", "");
    ceph.refused("osd primary-affinity 0 1.5", "not in range");
    for (words, why) in [("lost", "osd.0 is not down"), ("purge", "osd.0 is not `down`")] {
        ceph.refused(&format!("osd {words} 0"), "SURE");
        ceph.refused(&format!("osd {words} 0 --yes-i-really-mean-it"), why);
    }
    let placed = |status: &Value| clean(status) && status["osdmap"]["num_remapped_pgs"] == 0;
    ceph.until("status", placed);
    upmaps(ceph);
}

/// PGs that are elsewhere than CRUSH says. There are three OSDs, all of which a PG of three copies has.
fn upmaps(ceph: &mut Ceph<'_>) {
    ceph.ok("osd pool create upmap 1 1 --size 1");
    let pools = ceph.json("osd pool ls detail");
    let pool = pools.as_array().and_then(|all| all.iter().find(|pool| pool["pool_name"] == "upmap"));
    let pg = format!("{}.0", pool.expect("the pool")["pool_id"]);
    let is_clean = |status: &Value| clean(status) && status["osdmap"]["num_remapped_pgs"] == 0;
    let acting = |ceph: &Ceph<'_>| ceph.json(&format!("pg map {pg}"))["acting"][0].as_u64().expect("an OSD");
    ceph.until("status", is_clean);
    ceph.bed.rados_ok(&["-p", "upmap", "put", "kept", "/etc/hostname"]);
    let (from, read) = (acting(ceph), ceph.bed.rados_ok(&["-p", "upmap", "get", "kept", "-"]));
    let to = (from + 1) % 3;
    let moves = format!("set {pg} pg_upmap_items mapping to [{from}->{to}]");
    ceph.said(&format!("osd pg-upmap-items {pg} {from} {to}"), &moves);
    ceph.until("status", is_clean);
    assert_eq!(acting(ceph), to);
    assert_eq!(ceph.bed.rados_ok(&["-p", "upmap", "get", "kept", "-"]), read);
    let ends = |kind: &str| format!("clear {pg} {kind} mapping");
    ceph.said(&format!("osd rm-pg-upmap-items {pg}"), &ends("pg_upmap_items"));
    let sets = format!("set {pg} pg_upmap mapping to [{to}]");
    ceph.said(&format!("osd pg-upmap {pg} {to}"), &sets);
    ceph.until("status", is_clean);
    assert_eq!(acting(ceph), to);
    ceph.said(&format!("osd rm-pg-upmap {pg}"), &ends("pg_upmap"));
    ceph.until("status", is_clean);
    assert_eq!((acting(ceph), ceph.bed.rados_ok(&["-p", "upmap", "get", "kept", "-"])), (from, read));
    let note = "the PG goes there while clients go on, and comes back";
    ceph.sheet.works("`ceph osd pg-upmap PG OSD...`, `ceph osd rm-pg-upmap PG`", note);
    ceph.sheet.works("`ceph osd pg-upmap-items PG FROM TO...`, `ceph osd rm-pg-upmap-items PG`", note);
    for (command, why) in [
        ("osd pg-upmap-items 1.0 0", "you must specify pairs"),
        ("osd pg-upmap-items 1.0 0 9", "osd.9 does not exist"),
        ("osd pg-upmap-items 1.999 0 1", "1.999"),
        ("osd pg-upmap 1.0 0 1 2 0", "> pool size"),
    ] {
        ceph.refused(command, why);
    }
    ceph.ok("osd pool rm upmap upmap --yes-i-really-really-mean-it");
}

/// Flags that hold something up until they are taken away.
fn held_flags(ceph: &mut Ceph<'_>) {
    ceph.says("osd set noup", "noup is set", "an OSD that is down stays so until it is unset");
    ceph.ok("osd down 2");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(ceph.json("osd stat")["num_up_osds"], 2);
    ceph.ok("osd unset noup");
    ceph.until("osd stat", |stat| stat["num_up_osds"] == 3);
    ceph.says("osd set nodown", "nodown is set", "an OSD that is gone counts as up until it is unset");
    ceph.ok("osd unset nodown");
    ceph.says("osd set pause", "pauserd,pausewr is set", "clients wait");
    ceph.says("osd unset pause", "pauserd,pausewr is unset", "");
    ceph.ok("osd pause");
    ceph.ok("osd unpause");
    ceph.sheet.works("`ceph osd pause|unpause`", "");
}

/// Of PGs of two copies some get another primary while an OSD is out. When it is back and has the data, all is as before.
fn primaries_come_back(ceph: &mut Ceph<'_>) {
    ceph.ok("osd pool create two 16 16 --size 2");
    let placed = |status: &Value| clean(status) && status["osdmap"]["num_remapped_pgs"] == 0;
    ceph.until("status", placed);
    let acting = |ceph: &Ceph<'_>| {
        let pgs = ceph.json("pg ls-by-pool two");
        let pgs = pgs["pg_stats"].as_array().expect("PGs").clone();
        pgs.iter().map(|pg| pg["acting"].clone()).collect::<Vec<_>>()
    };
    let before = acting(ceph);
    ceph.ok("osd out 0");
    assert_ne!(acting(ceph), before);
    ceph.ok("osd in 0");
    ceph.until("status", placed);
    assert_eq!(acting(ceph), before);
    ceph.sheet.works("`ceph osd out N`, `ceph osd in N`", "PGs are where they were, none stays remapped");
    ceph.ok("osd pool rm two two --yes-i-really-really-mean-it");
}

/// The one monitor, and what a cluster of Carmine never has.
fn few(ceph: &mut Ceph<'_>) {
    ceph.tells("config generate-minimal-conf", "mon_host = v2:127.0.0.1:");
    ceph.shows("mon feature ls", &["supported: [kraken,luminous,mimic"], &[".monmap.required[0]"]);
    ceph.refused("mon ok-to-stop a", "not enough monitors would be available () after stopping mons [a]");
    ceph.refused("mon ok-to-rm a", "removing mon.a would break quorum");
    ceph.refused("mon ok-to-add-offline", "adding a monitor may break quorum");
    ceph.ok("mon getmap -o /dev/null");
    ceph.sheet.works("`ceph mon getmap`", "the bytes of the MonMap");
    ceph.shows("crash ls", &[], &[]);
    ceph.tells("crash stat", "0 crashes recorded");
    ceph.tells("progress", "Nothing in progress");
    ceph.shows("balancer ls", &["[]"], &[]);
    ceph.refused("auth get client.admin", "failed to find client.admin in keyring");
    ceph.refused("auth get-key client.admin", "don't have client.admin");
    ceph.refused("auth get-or-create client.x", "this cluster has no keys");
    ceph.shows("osd ls-tree default", &["0\n1\n2\n"], &["[2]"]);
    ceph.refused("osd ls-tree nosuch", "does not exist");
    ceph.shows("osd tree-from default", &["osd.2"], &[".nodes[0].children"]);
    ceph.refused("osd tree-from osd.1", "is not a bucket");
    ceph.shows("osd blocked-by", &["num_blocked"], &[".pg_ready"]);
    assert!(ceph.ok("pg map 1.fff").contains(" pg 1.fff (1."));
    ceph.sheet.works("`ceph pg map PG`", "also of a hash beyond the pool's PGs");
    ceph.ok("osd pool deep-scrub bench");
    ceph.sheet.works("`ceph osd pool scrub|deep-scrub|repair POOL...`", "as of each of its PGs");
}

fn daemons(ceph: &mut Ceph<'_>) {
    ceph.shows(
        "tell osd.0 dump_metrics",
        &["reactor_utilization"],
        &[".metrics", ".shards[0].reactor.busy_ns"],
    );
    ceph.shows("tell osd.1 dump_ops_in_flight", &["num_ops"], &[".num_ops"]);
    ceph.shows("tell osd.1 ops", &["num_ops"], &[".num_ops"]);
    ceph.shows("tell osd.1 dump_historic_ops", &["\"ops\": []"], &[".size"]);
    ceph.shows("tell osd.1 dump_historic_slow_ops", &["\"Ops\": []"], &[]);
    ceph.shows("tell osd.1 log flush", &["{}"], &[]);
    let status = [".cluster_fsid", ".osd_fsid", ".whoami", ".newest_map", ".num_pgs"];
    ceph.shows("tell osd.1 status", &["\"state\": \"active\""], &status);
    ceph.shows("tell osd.0 dump_watchers", &["[]"], &[]);
    assert_eq!(ceph.json("tell osd.0 get_mapped_pools"), serde_json::json!([1]));
    ceph.sheet.works("`ceph tell osd.0 get_mapped_pools`", "the pools of its PGs");
    ceph.ok("osd blocklist add 127.0.0.9:0/7");
    ceph.until("tell osd.0 dump_blocklist", |listed| listed[0]["entity_addr_t"]["nonce"] == 7);
    ceph.ok("osd blocklist rm 127.0.0.9:0/7");
    ceph.sheet.works("`ceph tell osd.0 dump_blocklist`", "the clients that its map keeps out");
    ceph.shows("tell osd.2 config show", &["\"store\": \"cyan\""], &[".store", ".cpus"]);
    let bench = ["bytes_written", "elapsed_sec", "bytes_per_sec", "iops"];
    let paths = bench.map(|key| format!(".{key}"));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    ceph.shows("tell osd.0 bench 8388608 65536", &bench, &paths);
    let done = ceph.json("tell osd.0 bench 8388608 65536");
    assert_eq!((&done["bytes_written"], &done["blocksize"]), (&Value::from(8 << 20), &Value::from(64 << 10)));
    assert!(done["iops"].as_f64().is_some_and(|iops| iops > 0.0));
    ceph.refused("tell osd.0 bench 1073741824 4096", "'count' values greater than 12288000");
    ceph.refused("tell osd.0 make tea", "no valid command found");
    ceph.refused("tell osd.9 version", "problem getting command descriptions from osd.9");
    assert_eq!(ceph.ok("tell osd.0 flush_pg_stats").trim(), "0");
    ceph.sheet.works("`ceph tell osd.N flush_pg_stats`", "waits until the monitor has heard");
    ceph.shows("tell mon.a mon_status", &["leader"], &[".state", ".monmap.mons[0].name"]);
    ceph.shows("mon metadata a", &["carmine"], &[".hostname", ".addrs"]);
    ceph.shows("mds stat", &[], &[".fsmap.epoch"]);
    ceph.says("fs ls", "", "there are none");
    ceph.shows("tell mon.a version", &["carmine"], &[".version"]);
    ceph.shows(
        "tell mon.a config get mon_allow_pool_delete",
        &["mon_allow_pool_delete"],
        &[".mon_allow_pool_delete"],
    );
    ceph.refused("tell mon.a config get nosuch", "error getting 'nosuch'");
    ceph.refused("tell mon.a config set mon_allow_pool_delete false", "and stays so");
    ceph.shows("tell mon.a config show", &["osd_max_write_size"], &[".name"]);
    ceph.shows("tell mon.a config diff", &["diff"], &[]);
    ceph.shows("tell mon.a sessions", &["osd.2"], &["[0].name", "[0].addrs.addrvec[0].addr"]);
    ceph.shows("tell mon.a ops", &["num_ops"], &[".num_ops"]);
    ceph.shows("tell mon.a perf dump", &["num_sessions"], &[".mon.num_sessions"]);
    ceph.says("tell mon.a compact", "", "its state file is always in its shortest form");
    ceph.shows("tell mon.a log flush", &["{}"], &[]);
    ceph.shows("tell mgr version", &["carmine"], &[".version"]);
    ceph.refused("tell mgr make tea", "no valid command found");
    let perf = [".osd.op_r", ".osd.op_w_latency.avgtime", ".osd.op_latency.avgcount", ".osd.numpg"];
    ceph.shows("daemon osd.0 perf dump", &["op_w_latency"], &perf);
    let schema = [".osd.op.type", ".osd.op_latency.value_type", ".osd.numpg.description"];
    ceph.shows("daemon osd.0 perf schema", &["real-integer-pair"], &schema);
    ceph.shows("tell osd.0 config get osd_op_complaint_time", &["30.000000"], &[".osd_op_complaint_time"]);
    ceph.shows("daemon osd.0 config show", &["\"store\""], &[".store"]);
    ceph.shows("daemon osd.2 dump_ops_in_flight", &["num_ops"], &[".num_ops"]);
    ceph.refused("daemon osd.0 make tea", "no valid command found");
}

fn inventory(ceph: &mut Ceph<'_>) {
    ceph.shows(
        "osd crush tree",
        &["root default", "osd.2"],
        &[".nodes[0].children", ".nodes[2].crush_weight"],
    );
    ceph.shows("osd crush tree --show-shadow", &["root default"], &[".nodes[2].depth"]);
    ceph.shows("osd crush ls default", &["host-"], &["[0]"]);
    ceph.refused("osd crush ls nosuch", "node 'nosuch' does not exist");
    ceph.shows("osd crush get-tunable straw_calc_version", &["1\n"], &[".straw_calc_version"]);
    device_classes(ceph);
    let spread = [".avg_pgs", ".std_dev", ".expected_baseline_std_dev", ".min_osd_pgs", ".max_osd_pgs"];
    ceph.shows("osd utilization", &["avg ", "stddev ", "min osd.", "max osd."], &spread);
    ceph.shows("osd numa-status", &["AFFINITY"], &["[2].host"]);
    ceph.shows("osd count-metadata osd_objectstore", &["\"cyan\": 3"], &[".cyan"]);
    ceph.shows("osd count-metadata nosuch", &["\"unknown\": 3"], &[".unknown"]);
    ceph.shows("mon count-metadata os", &["\"Linux\": 1"], &[".Linux"]);
    for words in ["osd versions", "mon versions"] {
        let counts = ceph.json(words);
        let counts: Vec<&Value> = counts.as_object().unwrap().values().collect();
        assert_eq!(counts, [&Value::from(if words.starts_with("osd") { 3 } else { 1 })]);
        ceph.sheet.works(&format!("`ceph {words}`"), "as JSON: daemons by version");
    }
    for words in ["mgr versions", "mds versions", "mgr services", "mgr metadata", "mds metadata", "auth ls"] {
        ceph.shows(words, &[], &[]);
    }
    let osd = [".up_from", ".public_addrs.addrvec[0].addr", ".state[1]"];
    ceph.shows("osd info osd.1", &["osd.1 up   in  weight 1"], &osd);
    ceph.shows("osd info", &["osd.2 up"], &["[2].uuid"]);
    ceph.refused("osd info 7", "osd.7 does not exist");
    ceph.shows("osd find 1", &["crush_location"], &[".host", ".crush_location.host", ".crush_location.root"]);
    ceph.shows("node ls", &["\"mon\"", "\"osd\""], &[".mon", ".osd", ".mgr"]);
    ceph.shows("node ls osd", &["2"], &[]);
    ceph.shows("time-sync-status", &["timechecks"], &[".timechecks.round_status"]);
    ceph.shows("mon stat", &["1 mons"], &[".min_mon_release_name", ".quorum[0].name"]);
}

fn mutes(ceph: &mut Ceph<'_>) {
    ceph.ok("osd set noscrub");
    ceph.refused("health mute OSD_DOWN", "health alert OSD_DOWN is not currently raised");
    ceph.ok("health mute OSDMAP_FLAGS 1h");
    assert!(ceph.ok("health").contains("(muted: OSDMAP_FLAGS("));
    assert_eq!(ceph.json("health")["checks"]["OSDMAP_FLAGS"]["muted"], true);
    assert!(ceph.ok("-s").contains("(muted: OSDMAP_FLAGS("));
    ceph.ok("health unmute OSDMAP_FLAGS");
    assert_eq!(ceph.json("health")["mutes"], serde_json::json!([]));
    ceph.ok("health mute OSDMAP_FLAGS");
    ceph.ok("osd unset noscrub");
    ceph.until("health", |health| health["mutes"] == serde_json::json!([]));
    ceph.sheet.works(
        "`ceph health mute CODE [TTL] [--sticky]`, `health unmute [CODE]`",
        "a mute ends with its check",
    );
}

fn limits(ceph: &mut Ceph<'_>) {
    for (state, ratio) in [("full", 0.97), ("backfillfull", 0.92), ("nearfull", 0.8)] {
        ceph.says(
            &format!("osd set-{state}-ratio {ratio}"),
            &format!("osd set-{state}-ratio {ratio}"),
            "in the map",
        );
        let kept = ceph.json("osd dump")[format!("{state}_ratio")].as_f64().unwrap();
        assert!((kept - ratio).abs() < 1e-6, "{state}: {kept}");
    }
    ceph.refused("osd set-full-ratio 1.5", "not in range [0.0, 1.0]");
    ceph.says("osd require-osd-release pacific", "", "it is so from the start");
    ceph.refused(
        "osd require-osd-release octopus",
        "require_osd_release cannot be lowered once it has been set",
    );
}

/// A pool whose rule names a class is on the OSDs of that class.
fn device_classes(ceph: &mut Ceph<'_>) {
    let placed_in = |ceph: &Ceph<'_>| ceph.json("osd map fast object")["up"].clone();
    // Each OSD has told of its drive; memory is no hard disk.
    ceph.shows("osd crush class ls-osd ssd", &["0\n1\n2\n"], &["[2]"]);
    ceph.refused("osd df class nosuch", "'nosuch' not a pool, crush node or device class name");
    ceph.said("osd crush rm-device-class all", "done removing class of osd(s): 0,1,2");
    assert_eq!(ceph.json("osd crush class ls"), serde_json::json!([]));
    ceph.said("osd crush set-device-class quick osd.1", "set osd(s) 1 to class 'quick'");
    ceph.refused("osd crush set-device-class slow osd.1", "has already bound to class 'quick'");
    ceph.shows("osd crush class ls", &["quick"], &["[0]"]);
    ceph.shows("osd crush class ls-osd quick", &["1\n"], &["[0]"]);
    ceph.shows("osd crush get-device-class osd.1", &["quick"], &["[0].device_class"]);
    assert!(ceph.ok("osd crush tree --show-shadow").contains("root default~quick"));
    assert!(ceph.ok("osd tree").lines().any(|line| line.contains("quick") && line.contains("osd.1")));
    let osds = |command: &str| {
        let shown = ceph.json(command);
        let nodes = shown["nodes"].as_array().expect("nodes").iter();
        let osds = nodes.filter(|node| node["type"] == "osd");
        let mut ids: Vec<u64> = osds.filter_map(|node| node["id"].as_u64()).collect();
        // Those of a host stand by their classes.
        ids.sort_unstable();
        ids
    };
    for (part, are) in [
        ("class quick", vec![1]),
        ("name default", vec![0, 1, 2]),
        ("name osd.2", vec![2]),
        ("name bench", vec![0, 1, 2]),
    ] {
        assert_eq!(osds(&format!("osd df plain {part}")), are, "{part}");
        assert_eq!(osds(&format!("osd df tree {part}")), are, "{part}");
    }
    ceph.sheet.works(
        "`ceph osd df plain|tree class|name NAME`",
        "of a device class, a pool, or a part of the tree",
    );
    ceph.ok("osd crush rule create-replicated fast default osd quick");
    ceph.shows("osd crush rule ls-by-class quick", &["fast"], &["[0]"]);
    ceph.ok("osd pool create fast 8 8 replicated fast --size 2");
    assert_eq!(placed_in(ceph), serde_json::json!([1]));
    ceph.said("osd crush set-device-class quick 2", "set osd(s) 2 to class 'quick'");
    ceph.until("status", clean);
    assert_eq!(placed_in(ceph).as_array().map(Vec::len), Some(2));
    ceph.sheet.works(
        "`ceph osd crush set-device-class|rm-device-class CLASS OSD...`",
        "a pool whose rule names the class goes to these OSDs",
    );
    ceph.said("osd crush class rename quick swift", "rename class 'quick' to 'swift'");
    ceph.refused("osd crush class rm swift", "still referenced by crush_rule(s): 'fast'");
    ceph.ok("osd pool rm fast fast --yes-i-really-really-mean-it");
    ceph.said("osd crush rm-device-class all", "done removing class of osd(s): 1,2");
    ceph.ok("osd crush rule rm fast");
    ceph.said("osd crush class create spare", "created class spare with id 0 to crush map");
    ceph.said("osd crush class rm spare", "removed class spare with id 0 from crush map");
    assert_eq!(ceph.json("osd crush class ls"), serde_json::json!([]));
    assert!(!ceph.ok("osd crush tree --show-shadow").contains('~'));
    ceph.sheet.works("`ceph osd crush class create|rm|rename`", "the shadow trees follow");
}

/// Which OSDs may stop, or go for good.
fn leave(ceph: &mut Ceph<'_>) {
    ceph.until("status", clean);
    ceph.shows("osd ok-to-stop 0", &["\"ok_to_stop\":true"], &[".ok_to_stop", ".osds[0]", ".num_ok_pgs"]);
    ceph.refused("osd ok-to-stop 0 1 2", "unsafe to stop osd(s) at this time");
    let answer = run(Path::new("ceph"), &["-c", &ceph.bed.conf(), "osd", "ok-to-stop", "0", "1", "2"], LIMIT);
    let lists: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("the lists");
    assert!(lists["bad_become_inactive"].as_array().is_some_and(|pgs| !pgs.is_empty()), "{lists}");
    ceph.refused("osd safe-to-destroy 0", "pgs currently mapped to them.");
    let lists = ceph.json("osd safe-to-destroy 0");
    assert_eq!(
        (&lists["active"], &lists["safe_to_destroy"]),
        (&serde_json::json!([0]), &serde_json::json!([]))
    );
    ceph.says(
        "osd safe-to-destroy 9",
        "are safe to destroy without reducing data durability",
        "it has no PG",
    );
    ceph.shows("fs dump", &["No filesystems configured"], &[".epoch", ".filesystems"]);
}

fn keys(ceph: &mut Ceph<'_>) {
    ceph.says("config-key set a/b c", "set a/b", "stored by the monitor");
    assert_eq!(ceph.ok("config-key get a/b"), "c");
    ceph.says("config-key exists a/b", "key 'a/b' exists", "by its exit code");
    assert_eq!(ceph.json("config-key ls"), serde_json::json!(["a/b"]));
    assert_eq!(ceph.json("config-key dump a"), serde_json::json!({ "a/b": "c" }));
    assert_eq!(ceph.json("config-key dump b"), serde_json::json!({}));
    ceph.sheet.works("`ceph config-key get\\|ls\\|dump`", "what was stored");
    ceph.refused("config-key exists a/c", "key 'a/c' doesn't exist");
    ceph.says("config-key rm a/b", "key deleted", "forgotten");
    ceph.is_refused("config-key get a/b", "ENOENT");
    let conf = ceph.bed.conf();
    ceph.said(&format!("config-key set conf -i {conf}"), "set conf");
    assert_eq!(ceph.ok("config-key get conf"), std::fs::read_to_string(&conf).expect("ceph.conf"));
    ceph.sheet.works("`ceph config-key set KEY -i FILE`", "stores the file's text");
    ceph.said("config-key rm conf", "key deleted");
    ceph.shows("config help osd_max_backfills", &["Default: 1"], &[".default", ".can_update_at_runtime"]);
}

fn unknown(ceph: &mut Ceph<'_>) {
    ceph.refused("fs status", "no valid command found");
    ceph.refused("osd set full", "unrecognized flag 'full'");
    ceph.refused("mon dump 1001", "there is no map for epoch 1001");
    ceph.refused("config set osd nosuch 1", "unrecognized config option 'nosuch'");
    ceph.refused("config set osd osd_max_write_size 10", "is 90 and stays so");
    ceph.refused("config get osd nosuch", "unrecognized key 'nosuch'");
    ceph.refused("osd getmap 99999", "there is no map for epoch 99999");
    ceph.refused("tell 1.fff query", "i don't have pgid 1.fff");
    ceph.refused("osd dump 99999", "there is no map for epoch 99999");
    ceph.refused("osd out osd.7", "osd.7 does not exist");
    ceph.refused("tell mds.0 version", "problem getting command descriptions from mds.0");
    // The rest of what Ceph has, one of each kind.
    let absent = [
        "osd tier add a b",
        "balancer on",
        "device ls",
        "orch status",
        "telemetry status",
        "iostat",
        "tell osd.0 heap stats",
    ];
    for words in absent {
        ceph.is_refused(words, "invalid command");
    }
    let shown: Vec<String> = absent.iter().map(|words| format!("`{words}`")).collect();
    ceph.sheet.refused(&shown.join(", "), "invalid command");
}

#[test]
fn ceph_against_three_osds() {
    if !installed("ceph", "ceph-common") {
        return;
    }
    let bed = Testbed::up(THREE_CYAN);
    let mut ceph = Ceph { bed: &bed, sheet: Sheet::new("ceph") };
    for part in [
        look,
        leave,
        pools::pools,
        states,
        tree::racks,
        tree::groups,
        few,
        daemons,
        inventory,
        mutes,
        limits,
        keys,
        asked::by_scripts,
        unknown,
    ] {
        part(&mut ceph);
    }
    ceph.sheet.check();
}
