//! Scrub and repair by the unmodified `ceph` and `rados` of Debian's ceph-common 16.2.15. About 30 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // waits, reads clocks, breaks files

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::THREE_BLUE;
use carmine_tests::{Testbed, installed};
use serde_json::Value;

/// A scrub of a small PG has to end within this.
const LIMIT: Duration = Duration::from_secs(240);
const BLOCK: usize = 4096;

/// The tools, and the rows of what was seen of them.
struct Tools<'a> {
    bed: &'a Testbed,
    sheet: Sheet,
}

impl Tools<'_> {
    fn json(&self, words: &str) -> Value {
        let words: Vec<&str> = words.split(' ').chain(["--format", "json"]).collect();
        let text = self.bed.ceph_ok(&words);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("ceph {words:?}: {e}: {text}"))
    }

    fn rados_json(&self, words: &str) -> Value {
        let text = self.bed.rados_ok(&words.split(' ').collect::<Vec<_>>());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("rados {words}: {e}: {text}"))
    }

    fn pg(&self, id: &str) -> Value {
        let all = self.json("pg dump pgs");
        let mut pgs = all["pg_stats"].as_array().expect("PGs").iter();
        pgs.find(|pg| pg["pgid"] == id).expect("the PG").clone()
    }

    /// Gives an order, and waits until the PG has been scrubbed by it; its state then.
    fn scrub(&mut self, words: &str, pg: &str, status: &str) -> String {
        let stamp = if words.contains(" scrub ") { "last_scrub_stamp" } else { "last_deep_scrub_stamp" };
        let before = self.pg(pg)[stamp].clone();
        let out = self.bed.ceph(&words.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && said.contains(status), "ceph {words} says {said:?}, not {status:?}");
        let begin = Instant::now();
        loop {
            let now = self.pg(pg);
            let state = now["state"].as_str().expect("a state").to_owned();
            if now[stamp] != before && !state.contains("scrubbing") {
                return state;
            }
            assert!(begin.elapsed() < LIMIT, "after ceph {words} the PG is still {now:#}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Flips a bit in each place of a block file that has these bytes.
fn flip(path: &Path, wanted: &[u8]) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the block file");
    let mut block = vec![0; 1 << 20];
    let (mut at, mut flipped) = (0, 0);
    loop {
        let read = file.read_at(&mut block, at).expect("a read");
        for off in (0..read).step_by(BLOCK) {
            if block[off..read].starts_with(wanted) {
                file.write_at(&[block[off] ^ 4], at + off as u64).expect("a write");
                flipped += 1;
            }
        }
        if read == 0 {
            break;
        }
        at += read as u64;
    }
    file.sync_all().expect("a flush");
    assert!(flipped > 0, "{} has no such block", path.display());
}

/// Bytes that are not alike.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

fn healthy(tools: &mut Tools<'_>, pg: &str, primary: u64) {
    for (words, row, status) in [
        (format!("pg scrub {pg}"), "pg scrub PG", format!("instructing pg {pg} on osd.{primary} to scrub")),
        (format!("pg deep-scrub {pg}"), "pg deep-scrub PG", "to deep-scrub".to_owned()),
        (format!("pg repair {pg}"), "pg repair PG", "to repair".to_owned()),
        ("osd scrub all".to_owned(), "osd scrub all", "instructed osd(s) 0,1,2 to scrub".to_owned()),
        (
            format!("osd deep-scrub {primary}"),
            "osd deep-scrub N",
            format!("instructed osd(s) {primary} to deep-scrub"),
        ),
        (format!("osd repair osd.{primary}"), "osd repair osd.N", "to repair".to_owned()),
    ] {
        assert_eq!(tools.scrub(&words, pg, &status), "active+clean");
        tools.sheet.works(&format!("`ceph {row}`"), "the stamps in `ceph pg dump` rise");
    }
    assert_eq!(tools.rados_json("list-inconsistent-pg bench"), Value::Array(Vec::new()));
    assert_eq!(
        tools.rados_json(&format!("list-inconsistent-obj {pg}"))["inconsistents"],
        Value::Array(Vec::new())
    );
    let sets = tools.rados_json(&format!("list-inconsistent-snapset {pg}"));
    assert_eq!(sets["inconsistents"], Value::Array(Vec::new()));
    tools.sheet.works(
        "`rados list-inconsistent-snapset PG`",
        "heads and clones that contradict each other; they are not repaired, for nobody can tell which is right",
    );
    assert_eq!(tools.json("health")["status"], "HEALTH_OK");
}

fn damaged(tools: &mut Tools<'_>, pg: &str, data: &[u8], broken: u64) {
    let path = tools.bed.dir().join(format!("osd.{broken}/block"));
    flip(&path, &data[2 * BLOCK..][..64]);
    assert_eq!(tools.scrub(&format!("pg scrub {pg}"), pg, ""), "active+clean", "it reads no data");
    assert_eq!(tools.scrub(&format!("pg deep-scrub {pg}"), pg, ""), "active+clean+inconsistent");
    assert_eq!(tools.rados_json("list-inconsistent-pg bench"), serde_json::json!([pg]));
    tools.sheet.works("`rados list-inconsistent-pg POOL`", "");
    let found = tools.rados_json(&format!("list-inconsistent-obj {pg}"));
    let [object] = found["inconsistents"].as_array().expect("objects").as_slice() else {
        panic!("{found:#}")
    };
    assert_eq!(object["object"]["name"], "thing");
    assert_eq!(
        (&object["errors"], &object["union_shard_errors"]),
        (&serde_json::json!([]), &serde_json::json!(["read_error"]))
    );
    let shards = object["shards"].as_array().expect("copies");
    assert_eq!(shards.len(), 3, "{object:#}");
    for shard in shards {
        let errors =
            if shard["osd"] == broken { serde_json::json!(["read_error"]) } else { serde_json::json!([]) };
        assert_eq!((&shard["errors"], &shard["size"]), (&errors, &Value::from(data.len())), "{object:#}");
    }
    tools
        .sheet
        .works("`rados list-inconsistent-obj PG`", "the object, its copies, and the error of the bad one");
    let health = tools.bed.ceph_ok(&["health", "detail"]);
    for part in [
        "HEALTH_ERR",
        "OSD_SCRUB_ERRORS: 1 scrub errors",
        "PG_DAMAGED: Possible data damage: 1 pg inconsistent",
    ] {
        assert!(health.contains(part), "{part:?} is not in {health}");
    }
    assert!(health.contains(&format!("pg {pg} is active+clean+inconsistent, acting [")), "{health}");
    tools
        .sheet
        .works("`ceph health detail`", "`OSD_SCRUB_ERRORS` and `PG_DAMAGED` while a PG is `inconsistent`");
    assert_eq!(tools.scrub(&format!("pg repair {pg}"), pg, ""), "active+clean");
    assert_eq!(tools.scrub(&format!("pg deep-scrub {pg}"), pg, ""), "active+clean");
    assert_eq!(tools.rados_json("list-inconsistent-pg bench"), Value::Array(Vec::new()));
    tools.sheet.works(
        "`ceph pg repair PG`",
        "a flipped bit of a copy: repaired from another one, `HEALTH_OK` again",
    );
    let got = tools.bed.file("got");
    tools.bed.rados_ok(&["get", "thing", &got]);
    assert!(std::fs::read(&got).expect("the object") == data);
    assert_eq!(tools.json("health")["status"], "HEALTH_OK");
}

#[test]
fn stock_tools_scrub_and_repair() {
    if !installed("ceph", "ceph-common") || !installed("rados", "ceph-common") {
        return;
    }
    let bed = Testbed::up(THREE_BLUE);
    let data = pattern(5 * BLOCK + 1000);
    let file = bed.file("thing");
    std::fs::write(&file, &data).expect("a file");
    bed.rados_ok(&["put", "thing", &file]);
    let mut tools = Tools { bed: &bed, sheet: Sheet::new("scrub and repair") };
    let place = tools.json("osd map bench thing");
    let pg = place["pgid"].as_str().expect("a PG").to_owned();
    let unknown = bed.rados(&["list-inconsistent-obj", &pg]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("No such file"), "{unknown:?}");
    let primary = place["acting_primary"].as_u64().expect("an OSD");
    healthy(&mut tools, &pg, primary);
    // The primary's copy, then a replica's.
    damaged(&mut tools, &pg, &data, primary);
    let sheet = std::mem::replace(&mut tools.sheet, Sheet::unlisted());
    damaged(&mut tools, &pg, &data, place["acting"][2].as_u64().expect("an OSD"));
    sheet.check();
}
