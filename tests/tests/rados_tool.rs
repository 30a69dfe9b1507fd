//! The unmodified `rados` of Debian's ceph-common 16.2.15 against a testbed. About 60 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts a process, reads and writes files

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::{ONE_CYAN, THREE_BLUE, refused};
use carmine_tests::{Testbed, installed, run, succeed};

/// The tool, and the rows of what was seen of it.
struct Rados<'a> {
    bed: &'a Testbed,
    sheet: Sheet,
}

impl Rados<'_> {
    fn ok(&self, words: &str) -> String {
        self.bed.rados_ok(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// A file that goes with the testbed.
    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.bed.file(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    /// The content of an object.
    fn get(&self, words: &str) -> Vec<u8> {
        let path = self.bed.file("got");
        self.ok(&format!("get {words} {path}"));
        std::fs::read(&path).expect("what was got")
    }

    /// A row for `rados WORDS`, which was looked at.
    fn works(&mut self, words: &str, note: &str) {
        self.sheet.works(&format!("`rados {words}`"), note);
    }

    /// A row: refused at once, with this said.
    fn refused(&mut self, words: &str, why: &str) {
        let args: Vec<&str> = words.split_whitespace().collect();
        let said = refused(&format!("rados {words}"), || self.bed.rados(&args));
        assert!(said.contains(why), "rados {words} says {said:?}, not {why:?}");
        self.sheet.refused(&format!("`rados {words}`"), why);
    }
}

/// Bytes that are not alike.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

/// Sizes around block and chunk borders, contents compared.
fn objects_round_trip(rados: &mut Rados<'_>) {
    for size in [0usize, 1, 4095, 4096, 4097, 65_536, 4 << 20, (9 << 20) + 17] {
        let data = pattern(size);
        let file = rados.file("payload", &data);
        let name = format!("object-{size}");
        rados.ok(&format!("put {name} {file}"));
        assert!(rados.get(&name) == data, "{name} came back different");
        let stat = rados.ok(&format!("stat {name}"));
        assert!(stat.contains(&format!("size {size}")), "{stat}");
    }
    rados.works("put|get OBJECT FILE", "0 bytes to 9 MiB, the same bytes");
    assert!(rados.ok("stat2 object-1").contains("size 1"));
    rados.works("stat|stat2 OBJECT", "");
    let listed = rados.ok("ls");
    assert_eq!(listed.lines().count(), 8, "{listed}");
    rados.works("ls", "");
    rados.ok("rm object-4096");
    assert!(!rados.ok("ls").contains("object-4096\n"));
    rados.works("rm OBJECT ...", "");
    rados.refused("get object-4096 -", "No such file or directory");
    assert!(rados.ok("lspools").lines().any(|pool| pool == "bench"));
    rados.works("lspools", "");
    wait_for_objects(rados.bed, 7);
    wait_for_counts(rados);
    rados.works("df", "objects and bytes of each pool, and what clients read and wrote");
}

/// Verbs that change a part of an object.
fn parts_of_objects(rados: &mut Rados<'_>) {
    let file = rados.file("part", b"0123456789");
    rados.ok("create part");
    rados.ok(&format!("append part {file}"));
    rados.ok(&format!("append part {file}"));
    rados.ok("truncate part 15");
    rados.ok(&format!("put part {file} --offset 12"));
    assert_eq!(rados.get("part"), b"0123456789010123456789");
    for words in ["create OBJECT", "append OBJECT FILE", "truncate OBJECT SIZE", "put OBJECT FILE --offset N"]
    {
        rados.works(words, "");
    }
    rados.ok("set-alloc-hint part 4194304 65536");
    rados.works("set-alloc-hint OBJECT SIZE SIZE", "");
    rados.ok("touch part 1000000000");
    assert!(rados.ok("stat part").contains("2001-09-09"));
    rados.works("touch OBJECT [TIME]", "");
    assert!(rados.ok("mapext part").contains("16"), "22 bytes, in hexadecimal digits");
    rados.ok(&format!("put part {file} --offset 100000"));
    let extents = rados.ok("mapext part");
    assert_eq!(extents.lines().count(), 2, "{extents}");
    rados.works("mapext OBJECT", "the extents that were written");
    assert!(rados.ok("listsnaps part").contains("head"));
    rados.works("listsnaps OBJECT", "its head");
    rados.ok("rm part");
}

/// A copy has the object's xattrs and omap, too; source and target may have locator keys, namespaces, other pools.
fn copies(rados: &mut Rados<'_>) {
    let data = pattern(100_000);
    let file = rados.file("part", &data);
    rados.ok(&format!("put part {file}"));
    rados.ok("setxattr part colour red");
    rados.ok("setomapval part key value");
    rados.ok("setomapheader part header");
    rados.ok("cp part copy");
    assert!(rados.get("copy") == data);
    assert_eq!(rados.ok("getxattr copy colour"), "red");
    assert_eq!(rados.ok("listomapkeys copy"), "key\n");
    assert!(rados.ok("getomapheader copy").contains("header"));
    rados.works("cp OBJECT COPY", "bytes, xattrs, omap");
    rados.refused("cp nothing copy", "No such file or directory");
    rados.ok("cp part there --target-nspace n");
    assert!(rados.get("-N n there") == data);
    rados.works("cp OBJECT COPY --target-nspace NAMESPACE", "");
    rados.ok("cp part there --target-locator key");
    assert!(rados.get("--object-locator key there") == data);
    rados.works("cp OBJECT COPY --target-locator KEY", "");
    rados.ok("--object-locator key cp there back");
    assert!(rados.get("back") == data);
    rados.works("--object-locator KEY cp OBJECT COPY", "");
    rados.bed.ceph_ok(&["osd", "pool", "create", "second", "8"]);
    rados.ok("cp part part --target-pool second");
    assert!(rados.get("-p second part") == data);
    rados.works("cp OBJECT COPY --target-pool POOL", "");
    rados.ok("cppool bench second --yes-i-really-mean-it");
    assert!(rados.get("-p second copy") == data && rados.ok("-p second getxattr copy colour") == "red");
    rados.works("cppool POOL POOL", "");
    rados.ok("purge second --yes-i-really-really-mean-it");
    assert_eq!(rados.ok("-p second ls --all"), "");
    rados.works("purge POOL", "");
    rados.bed.ceph_ok(&["osd", "pool", "rm", "second", "second", "--yes-i-really-really-mean-it"]);
    rados.ok("rm part copy back");
    rados.ok("-N n rm there");
    rados.ok("--object-locator key rm there");
}

fn attributes(rados: &mut Rados<'_>) {
    rados.ok("create a");
    rados.ok("setxattr a one 1");
    rados.ok("setxattr a two 2");
    rados.ok("rmxattr a one");
    assert_eq!(rados.ok("listxattr a"), "two\n");
    assert_eq!(rados.ok("getxattr a two"), "2");
    rados.works("setxattr|getxattr|rmxattr|listxattr OBJECT", "");
    rados.refused("getxattr a one", "No data available");
    for key in ["k1", "k2", "k3"] {
        rados.bed.rados_ok(&["setomapval", "a", key, &format!("value of {key}")]);
    }
    rados.ok("rmomapkey a k2");
    assert_eq!(rados.ok("listomapkeys a"), "k1\nk3\n");
    assert!(rados.ok("listomapvals a").contains("value of k3"));
    assert!(rados.ok("getomapval a k1").contains("value of k1"));
    rados.works("setomapval|getomapval|rmomapkey|listomapkeys|listomapvals OBJECT", "");
    rados.ok("setomapheader a header");
    assert!(rados.ok("getomapheader a").contains("header"));
    rados.works("setomapheader|getomapheader OBJECT", "");
    rados.ok("clearomap a");
    assert_eq!(rados.ok("listomapkeys a"), "");
    rados.works("clearomap OBJECT", "");
    locks(rados);
    rados.ok("rm a");
}

fn locks(rados: &mut Rados<'_>) {
    rados.ok("lock get a mine --lock-cookie c");
    rados.refused("lock get a mine --lock-cookie d", "Device or resource busy");
    assert!(rados.ok("lock list a").contains("mine"));
    let info = rados.ok("lock info a mine");
    let holder = info.split('"').find(|word| word.starts_with("client.")).expect("a holder");
    rados.ok(&format!("lock break a mine {holder} --lock-cookie c"));
    assert!(rados.ok("lock info a mine").contains("\"lockers\":[]"));
    rados.ok("lock get a ours --lock-cookie c --lock-type shared");
    rados.ok("lock get a ours --lock-cookie d --lock-type shared");
    rados.works("lock get|list|info|break OBJECT LOCK", "exclusive and shared");
}

/// Two namespaces, the same names.
fn namespaces(rados: &mut Rados<'_>) {
    let (one, two) = (rados.file("one", b"1"), rados.file("two", b"2"));
    rados.ok(&format!("-N one put same {one}"));
    rados.ok(&format!("-N two put same {two}"));
    assert_eq!((rados.get("-N one same"), rados.get("-N two same")), (b"1".to_vec(), b"2".to_vec()));
    assert_eq!(rados.ok("-N one ls"), "same\n");
    let all = rados.ok("ls --all");
    assert!(all.contains("one\tsame") && all.contains("two\tsame"), "{all}");
    rados.works("-N NAMESPACE ...`, `rados ls --all", "");
    rados.ok("-N one rm same");
    rados.ok("-N two rm same");
}

/// A watcher in the background hears a notification, and answers it.
fn watch_and_notify(rados: &mut Rados<'_>) {
    rados.ok("create w");
    // `rados watch` ends when its input does.
    let mut watcher = std::process::Command::new("rados")
        .args(["-c", &rados.bed.conf(), "-p", "bench", "watch", "w"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("rados starts");
    let begin = Instant::now();
    while !rados.ok("listwatchers w").contains("watcher=") {
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody watches");
    }
    let (conf, limit) = (rados.bed.conf(), Duration::from_secs(20));
    let told = run(Path::new("ceph"), &["-c", &conf, "tell", "osd.*", "dump_watchers"], limit);
    let told = succeed(told, "ceph tell osd.* dump_watchers");
    assert!(told.contains("\"object\": \"w\"") && told.contains("\"cookie\""), "{told}");
    let heard = rados.bed.rados_ok(&["notify", "w", "good news"]);
    assert!(heard.contains("reply client."), "{heard}");
    drop(watcher.stdin.take());
    let said = watcher.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&said.stdout).contains("NOTIFY cookie"));
    assert!(!rados.ok("listwatchers w").contains("watcher="));
    rados.works("watch|notify|listwatchers OBJECT", "a notification is heard and answered");
    rados.ok("rm w");
}

/// A pool in a file and back.
fn export_and_import(rados: &mut Rados<'_>) {
    let data = pattern(100_000);
    let (file, out) = (rados.file("data", &data), rados.bed.file("pool.export"));
    rados.ok(&format!("put kept {file}"));
    rados.ok("setxattr kept x 1");
    rados.ok("setomapval kept k v");
    rados.ok("setomapheader kept head");
    rados.ok(&format!("export {out}"));
    rados.ok("rm kept");
    rados.ok(&format!("import {out}"));
    assert!(rados.get("kept") == data);
    assert_eq!(rados.ok("getxattr kept x"), "1");
    assert_eq!(rados.ok("listomapkeys kept"), "k\n");
    assert!(rados.ok("getomapheader kept").contains("head"));
    rados.works("export|import FILE", "bytes, xattrs, omap");
    rados.ok("rm kept");
}

/// OBJECTS of the pool `bench` in `rados df`.
fn df_objects(bed: &Testbed) -> String {
    let df = bed.rados_ok(&["df"]);
    let mut lines = df.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    let pool = lines.find(|line| line.starts_with("bench ")).expect("the pool");
    // USED is a number and a unit: two words under one heading.
    let at = columns.iter().position(|column| *column == "OBJECTS").expect("a column OBJECTS") + 1;
    pool.split_whitespace().nth(at).expect("a number").to_owned()
}

/// OSDs tell the monitor every two seconds what they hold.
fn wait_for_objects(bed: &Testbed, objects: usize) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let shown = df_objects(bed);
        if shown == objects.to_string() {
            return;
        }
        assert!(Instant::now() < end, "rados df shows {shown} objects, there are {objects}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Waits until `rados df` shows what was written and read: each OSD tells it when it comes to it.
fn wait_for_counts(rados: &Rados<'_>) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let df: serde_json::Value = serde_json::from_str(&rados.ok("df --format json")).expect("JSON");
        let least = |count: &str, least: u64| df["pools"][0][count].as_u64() >= Some(least);
        if least("write_ops", 8) && least("read_ops", 8) && least("write_bytes", 9 << 20) {
            return;
        }
        assert!(Instant::now() < end, "{df}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn loads(rados: &mut Rados<'_>) {
    rados.ok("bench 2 write -b 4096 -t 8 --no-cleanup");
    for way in ["seq", "rand"] {
        let said = rados.ok(&format!("bench 2 {way} -t 8"));
        assert!(said.contains("Average IOPS"), "{said}");
    }
    rados.works("bench SECONDS write|seq|rand", "reads compare what was written");
    rados.ok("cleanup");
    assert!(!rados.ok("ls").contains("benchmark_data"));
    rados.works("cleanup", "");
    for place in ["--write-omap", "--write-xattr"] {
        rados.ok(&format!("bench 1 write -b 1024 -t 4 {place}"));
    }
    rados.works("bench SECONDS write --write-omap|--write-xattr", "");
    rados.ok("load-gen --num-objects 8 --min-object-size 65536 --max-object-size 131072 --max-ops 16 --run-length 2");
    rados.works("load-gen", "");
    for object in rados.ok("ls").lines().filter(|name| name.starts_with("obj-")) {
        rados.ok(&format!("rm {object}"));
    }
}

/// Snapshots of the pool.
fn snapshots(rados: &mut Rados<'_>) {
    let (old, new) = (rados.file("old", &pattern(10_000)), rados.file("new", b"new"));
    assert_eq!(rados.ok("lssnap"), "0 snaps\n");
    rados.refused("rmsnap s", "No such file or directory");
    rados.refused("rollback o s", "No such file or directory");
    rados.ok(&format!("put o {old}"));
    rados.ok("mksnap s");
    assert!(rados.ok("lssnap").ends_with("\n1 snaps\n"));
    rados.works("mksnap|lssnap SNAP", "");
    rados.ok(&format!("put o {new}"));
    assert!(rados.get("--snap s o") == pattern(10_000) && rados.get("o") == b"new");
    rados.works("--snap SNAP get OBJECT FILE", "the bytes of then");
    assert!(rados.ok("listsnaps o").contains("10000"), "its clone");
    rados.ok("rollback o s");
    assert!(rados.get("o") == pattern(10_000));
    rados.works("rollback OBJECT SNAP", "");
    rados.ok("rmsnap s");
    rados.refused("--snap s get o -", "No such file or directory");
    rados.works("rmsnap SNAP", "its clones are trimmed");
    rados.ok("rm o");
}

/// Commands that Ceph supports and Carmine does not.
fn unsupported(rados: &mut Rados<'_>) {
    let not = "Operation not supported";
    rados.ok("create o");
    assert_eq!(rados.ok("list-inconsistent-pg bench"), "[]\n");
    rados.works("list-inconsistent-pg POOL", "none");
    for words in ["list-inconsistent-obj 1.0", "list-inconsistent-snapset 1.0"] {
        rados.refused(words, "No scrub information available for pg 1.0");
    }
    // A real Ceph says so as well of a pool that is no cache.
    for words in [
        "cache-flush o",
        "cache-try-flush o",
        "cache-evict o",
        "cache-flush-evict-all",
        "cache-try-flush-evict-all",
    ] {
        rados.refused(words, "Invalid argument");
    }
    for words in [
        "set-redirect o --target-pool bench p",
        "set-chunk o 0 4096 --target-pool bench p 0",
        "tier-promote o",
        "tier-flush o",
        "tier-evict o",
        "unset-manifest o",
    ] {
        rados.refused(words, not);
    }
    rados.ok("rm o");
}

#[test]
fn rados_against_one_cyan_osd() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = Testbed::up(ONE_CYAN);
    let mut rados = Rados { bed: &bed, sheet: Sheet::new("rados") };
    objects_round_trip(&mut rados);
    parts_of_objects(&mut rados);
    copies(&mut rados);
    attributes(&mut rados);
    namespaces(&mut rados);
    watch_and_notify(&mut rados);
    export_and_import(&mut rados);
    loads(&mut rados);
    unsupported(&mut rados);
    snapshots(&mut rados);
    rados.sheet.check();
}

/// The largest object that Ceph allows by default is copied whole, to three OSDs.
fn the_largest_object_is_copied(rados: &Rados<'_>) {
    let data = pattern(128 << 20);
    let file = rados.file("large", &data);
    rados.ok(&format!("put large {file}"));
    rados.ok("cp large copy");
    assert!(rados.get("copy") == data, "the copy is different");
    rados.ok("rm large copy");
}

#[test]
fn rados_against_three_replicated_blue_osds_with_two_reactors() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = Testbed::up(THREE_BLUE);
    let mut rados = Rados { bed: &bed, sheet: Sheet::unlisted() };
    objects_round_trip(&mut rados);
    parts_of_objects(&mut rados);
    attributes(&mut rados);
    the_largest_object_is_copied(&rados);
    rados.ok("bench 2 write -b 4096 -t 8 --no-cleanup");
    rados.ok("bench 2 seq -t 8");
    rados.ok("cleanup");
    // Objects written with two reactors are read with one, and the other way round.
    bed.ok("down", &[]);
    bed.ok("up", &["--reactors", "1", "--overprovisioned"]);
    assert_eq!(rados.ok("ls").lines().count(), 7);
    wait_for_objects(&bed, 7);
    rados.ok("put later /proc/self/status");
    bed.ok("down", &[]);
    bed.ok("up", &["--reactors", "2", "--overprovisioned"]);
    assert!(rados.ok("stat later").contains("later"));
}
