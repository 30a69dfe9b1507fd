//! The unmodified `rbd` of Debian's ceph-common 16.2.15 against a testbed. About 40 s.
#![allow(clippy::disallowed_methods)] // reads and writes files

use std::path::Path;
use std::time::Duration;

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::{ONE_CYAN, THREE_BLUE, refused};
use carmine_tests::{Testbed, installed, run, succeed};

/// The features that `rbd create` gives an image.
const DEFAULT_FEATURES: &str = "layering, exclusive-lock, object-map, fast-diff, deep-flatten";

/// The tool, and the rows of what was seen of it.
struct Rbd<'a> {
    bed: &'a Testbed,
    sheet: Sheet,
}

impl Rbd<'_> {
    fn ok(&self, words: &str) -> String {
        self.bed.rbd_ok(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// A row for `rbd WORDS`, which was looked at.
    fn works(&mut self, words: &str, note: &str) {
        self.sheet.works(&format!("`rbd {words}`"), note);
    }

    /// A row: refused at once, with this said.
    fn refused(&mut self, words: &str, why: &str) {
        let args: Vec<&str> = words.split_whitespace().collect();
        let said = refused(&format!("rbd {words}"), || self.bed.rbd(&args));
        assert!(said.contains(why), "rbd {words} says {said:?}, not {why:?}");
        self.sheet.refused(&format!("`rbd {words}`"), why);
    }

    /// The content of an image.
    fn exported(&self, image: &str) -> Vec<u8> {
        let path = self.bed.file("exported");
        self.ok(&format!("export --no-progress {image} {path}"));
        let bytes = std::fs::read(&path).expect("what was exported");
        std::fs::remove_file(&path).expect("it goes");
        bytes
    }
}

/// A file with bytes, holes and an odd length.
fn content(bed: &Testbed) -> (String, Vec<u8>) {
    let mut bytes: Vec<u8> = (0..9usize << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    bytes[3 << 20..6 << 20].fill(0);
    bytes.truncate((9 << 20) - 512);
    let path = bed.file("content");
    std::fs::write(&path, &bytes).expect("a file");
    (path, bytes)
}

fn images_come_and_go(rbd: &mut Rbd<'_>) {
    rbd.ok("pool init bench");
    rbd.works("pool init POOL", "");
    rbd.ok("create --size 16M --image-feature layering plain");
    rbd.ok("create --size 16M full");
    rbd.works("create --size 16M --image-feature layering IMAGE", "");
    rbd.works("create --size 16M IMAGE", &format!("the default features: {DEFAULT_FEATURES}"));
    rbd.refused("create --size 16M full", "File exists");
    assert_eq!(rbd.ok("ls").lines().collect::<Vec<_>>(), ["full", "plain"]);
    rbd.works("ls", "");
    let info = rbd.ok("info full");
    assert!(info.contains("size 16 MiB in 4 objects") && info.contains(DEFAULT_FEATURES), "{info}");
    assert!(rbd.ok("info plain").contains("features: layering\n"));
    rbd.works("info IMAGE", "size, objects, features");
    rbd.refused("info nothing", "No such file or directory");
}

fn images_grow_and_shrink(rbd: &mut Rbd<'_>) {
    for image in ["plain", "full"] {
        for way in ["write", "read"] {
            let said =
                rbd.ok(&format!("bench --io-type {way} --io-size 4K --io-total 2M --io-threads 4 {image}"));
            assert!(said.contains("elapsed"), "{said}");
        }
        rbd.ok(&format!("resize --no-progress --size 64M {image}"));
        assert!(rbd.ok(&format!("info {image}")).contains("size 64 MiB in 16 objects"));
        rbd.ok(&format!("resize --no-progress --size 2M --allow-shrink {image}"));
        assert!(rbd.ok(&format!("info {image}")).contains("size 2 MiB in 1 objects"));
        assert_eq!(rbd.exported(image).len(), 2 << 20);
        rbd.ok(&format!("resize --no-progress --size 16M {image}"));
        assert!(rbd.exported(image)[2 << 20..].iter().all(|byte| *byte == 0), "old bytes came back");
    }
    rbd.works("bench --io-type write IMAGE", "");
    rbd.works("bench --io-type read IMAGE", "");
    rbd.works("resize --size SIZE IMAGE", "grown: new bytes are zeros");
    rbd.works("resize --size SIZE --allow-shrink IMAGE", "");
    let du = rbd.ok("du --format json");
    assert!(du.contains("\"total_provisioned_size\":33554432"), "{du}");
    rbd.works("du", "of all images, and of one");
}

/// Imported bytes come back; with the object map, used space is known without looking at the objects.
fn bytes_come_back(rbd: &mut Rbd<'_>) {
    let (path, bytes) = content(rbd.bed);
    for (image, features) in
        [("in-plain", "layering"), ("in-full", "layering,exclusive-lock,object-map,fast-diff,deep-flatten")]
    {
        rbd.ok(&format!("import --no-progress --image-feature {features} {path} {image}"));
        assert!(rbd.exported(image) == bytes, "{image} came back different");
        assert!(rbd.ok(&format!("du {image}")).contains(image));
        rbd.ok(&format!("cp --no-progress bench/{image} bench/{image}-copy"));
        assert!(rbd.exported(&format!("{image}-copy")) == bytes, "the copy of {image} is different");
    }
    rbd.works("import FILE IMAGE", "9 MiB with a hole, an odd length");
    rbd.works("export IMAGE FILE", "the same bytes");
    rbd.works("cp IMAGE COPY", "the same bytes");
    assert!(rbd.ok("diff in-full").contains("data"));
    rbd.works("diff IMAGE", "");
    assert_eq!(rbd.ok("object-map check --no-progress in-full"), "");
    rbd.works("object-map check IMAGE", "after an import: it is right");
}

/// Through pipes, where the tool cannot know the length or seek.
fn bytes_come_back_through_pipes(rbd: &mut Rbd<'_>) {
    let (path, bytes) = content(rbd.bed);
    let conf = rbd.bed.conf();
    let tool = format!("rbd -c {conf} -p bench");
    let copied = rbd.bed.file("piped");
    let script = format!(
        "cat {path} | {tool} import --no-progress - 'a näme' && {tool} export --no-progress 'a näme' - > {copied} \
         && {tool} rm --no-progress 'a näme'"
    );
    succeed(run(Path::new("sh"), &["-c", &script], Duration::from_secs(60)), &script);
    // An import from a pipe is made larger step by step; its end is where the data ends.
    assert!(std::fs::read(&copied).expect("what was exported") == bytes, "the piped image is different");
    rbd.works(
        "import - IMAGE`, `rbd export IMAGE -",
        "the same bytes through pipes; a name with spaces and umlauts",
    );
}

/// Offsets of more than 32 bits.
fn images_are_large(rbd: &mut Rbd<'_>) {
    if !installed("fio", "fio") {
        return;
    }
    rbd.ok("create --size 6G --image-feature layering large");
    let place = ["--offset=5g", "--size=1m", "--bs=64k", "--rw=write", "--verify=crc32c"];
    let image = ["--name=large", "--ioengine=rbd", "--clientname=admin", "--pool=bench", "--rbdname=large"];
    let done = rbd.bed.fio(&[&image[..], &place].concat());
    assert!(done.is_good, "{}", done.said);
    let diff = rbd.ok("diff --format json --whole-object large");
    assert!(diff.contains(&(5u64 << 30).to_string()), "{diff}");
    rbd.works("create --size 6G IMAGE", "written and verified by fio at 5 GiB, found there by `rbd diff`");
}

/// An image's name, values and features, and the trash.
fn names_and_values(rbd: &mut Rbd<'_>) {
    rbd.ok("create --size 8M a");
    rbd.ok("mv a b");
    assert!(rbd.ok("ls").lines().any(|name| name == "b"));
    rbd.works("mv IMAGE NAME", "");
    rbd.ok("image-meta set b key value");
    assert_eq!(rbd.ok("image-meta get b key"), "value\n");
    assert!(rbd.ok("image-meta ls b").contains("key"));
    rbd.ok("image-meta rm b key");
    rbd.works("image-meta set|get|ls|rm IMAGE KEY", "");
    rbd.ok("feature disable b fast-diff object-map");
    assert!(!rbd.ok("info b").contains("object-map"));
    rbd.ok("feature enable b object-map fast-diff");
    assert!(rbd.ok("info b").contains("object-map"));
    rbd.works("feature disable|enable IMAGE FEATURE", "object-map, fast-diff");
    rbd.ok("trash mv b");
    let kept = rbd.ok("trash ls");
    let id = kept.split_whitespace().next().expect("an image in the trash");
    rbd.ok(&format!("trash restore {id}"));
    rbd.ok("rm --no-progress b");
    rbd.works("trash mv|ls|restore", "");
    assert!(rbd.ok("status full").contains("Watchers: none"));
    rbd.works("status IMAGE", "its watchers");
    rbd.ok("namespace create --namespace n");
    rbd.ok("create --size 8M bench/n/a");
    assert_eq!(rbd.ok("ls --namespace n"), "a\n");
    rbd.ok("rm --no-progress bench/n/a");
    rbd.ok("namespace remove --namespace n");
    rbd.works("namespace create|remove", "an image in it");
}

/// Verbs of several images, and ways to lay one out.
fn layouts_and_differences(rbd: &mut Rbd<'_>) {
    let (path, bytes) = content(rbd.bed);
    let striped = "--stripe-unit 65536 --stripe-count 4 --object-size 1M";
    rbd.ok(&format!("import --no-progress {striped} {path} striped"));
    assert!(rbd.exported("striped") == bytes, "the striped image is different");
    rbd.works("import --stripe-unit SIZE --stripe-count N --object-size SIZE FILE IMAGE", "the same bytes");
    rbd.ok("deep cp --no-progress bench/striped bench/deep");
    assert!(rbd.exported("deep") == bytes, "the deep copy is different");
    rbd.works("deep cp IMAGE COPY", "the same bytes");
    let (diff, whole) = (rbd.bed.file("diff"), rbd.bed.file("whole"));
    rbd.ok(&format!("export-diff --no-progress striped {diff}"));
    rbd.ok("create --size 1M patched");
    rbd.ok(&format!("import-diff --no-progress {diff} patched"));
    assert!(rbd.exported("patched") == bytes, "the patched image is different");
    rbd.works("export-diff|import-diff IMAGE FILE", "the same bytes");
    rbd.ok(&format!("export --no-progress --export-format 2 striped {whole}"));
    rbd.ok(&format!("import --no-progress --export-format 2 {whole} again"));
    assert!(rbd.exported("again") == bytes, "the image in format 2 is different");
    rbd.works("export|import --export-format 2", "the same bytes");
    rbd.ok("sparsify --no-progress deep");
    assert!(rbd.exported("deep") == bytes, "sparsify changed bytes");
    rbd.works("sparsify IMAGE", "the same bytes");
    rbd.ok("object-map rebuild --no-progress patched");
    assert_eq!(rbd.ok("object-map check --no-progress patched"), "");
    rbd.works("object-map rebuild IMAGE", "");
    rbd.ok("create --size 8M --data-pool bench apart");
    rbd.ok("bench --io-type readwrite --io-total 1M apart");
    rbd.works("create --data-pool POOL", "");
    rbd.ok("trash mv apart");
    rbd.ok("trash purge --no-progress");
    assert_eq!(rbd.ok("trash ls"), "");
    rbd.works("trash purge", "");
    rbd.ok("config image set again rbd_cache false");
    assert_eq!(rbd.ok("config image get again rbd_cache"), "false\n");
    rbd.works("config image set|get|ls IMAGE", "");
    assert_eq!(rbd.ok("children again"), "");
    rbd.works("children IMAGE", "none");
}

/// Services for images, besides snapshots, that Ceph has and Carmine has not.
fn other_services_are_refused(rbd: &mut Rbd<'_>) {
    let not = "Operation not supported";
    rbd.refused("migration prepare bench/full bench/there", not);
    rbd.refused("group create bench/group", not);
    rbd.refused("feature enable full journaling", not);
    for mode in ["pool", "image"] {
        rbd.refused(
            &format!("mirror pool enable {mode}"),
            "failed to allocate mirroring uuid: (95) Operation not supported",
        );
    }
    // What only looks finds that nothing is mirrored.
    assert_eq!(rbd.ok("mirror pool info"), "Mode: disabled\n");
    rbd.works("mirror pool info", "disabled: no image is mirrored");
    rbd.refused("mirror image enable bench/full snapshot", "mirroring is not enabled on a pool");
    rbd.refused("perf image iostat", "Invalid argument");
    rbd.refused("trash purge schedule ls", "Invalid argument");
    rbd.refused("mirror snapshot schedule ls", "Invalid argument");
}

/// Options that the cluster keeps: for all clients, for a pool. Those of images are image-meta.
fn options_are_stored(rbd: &mut Rbd<'_>) {
    rbd.ok("config global set client rbd_cache_size 1048576");
    assert_eq!(rbd.ok("config global get client rbd_cache_size"), "1048576\n");
    assert!(rbd.ok("config global ls client").contains("rbd_cache_size"));
    rbd.ok("config global set global rbd_default_features 1");
    rbd.ok("create --size 8M simple");
    assert!(rbd.ok("info simple").contains("features: layering\n"), "the option did not reach the client");
    rbd.ok("config global rm global rbd_default_features");
    rbd.ok("config global rm client rbd_cache_size");
    rbd.refused("config global get client rbd_cache_size", "rbd_cache_size is not set");
    rbd.works("config global set|get|ls|rm client OPTION", "the next client makes images as it says");
    rbd.ok("config pool set bench rbd_cache false");
    assert_eq!(rbd.ok("config pool get bench rbd_cache"), "false\n");
    assert!(rbd.ok("config pool ls bench").contains("rbd_cache "));
    rbd.ok("config pool rm bench rbd_cache");
    rbd.works("config pool set|get|ls|rm POOL OPTION", "");
    rbd.refused("flatten --no-progress plain", "Invalid argument");
}

fn images_are_removed(rbd: &mut Rbd<'_>) {
    for image in rbd.ok("ls").lines() {
        rbd.ok(&format!("rm --no-progress {image}"));
    }
    assert_eq!(rbd.ok("ls"), "");
    let left = rbd.bed.rados_ok(&["ls"]);
    let expected = ["rbd_directory", "rbd_info", "rbd_trash", "rbd_namespace"];
    assert!(left.lines().all(|name| expected.contains(&name)), "{left}");
    rbd.works("rm IMAGE", "no object of it is left");
}

#[test]
fn rbd_against_one_cyan_osd() {
    if !installed("rbd", "ceph-common") {
        return;
    }
    let bed = Testbed::up(ONE_CYAN);
    let mut rbd = Rbd { bed: &bed, sheet: Sheet::new("rbd") };
    images_come_and_go(&mut rbd);
    images_grow_and_shrink(&mut rbd);
    bytes_come_back(&mut rbd);
    bytes_come_back_through_pipes(&mut rbd);
    images_are_large(&mut rbd);
    names_and_values(&mut rbd);
    layouts_and_differences(&mut rbd);
    options_are_stored(&mut rbd);
    other_services_are_refused(&mut rbd);
    images_are_removed(&mut rbd);
    rbd.sheet.check();
}

#[test]
fn images_outlive_a_restart_of_three_replicated_blue_osds() {
    if !installed("rbd", "ceph-common") {
        return;
    }
    let bed = Testbed::up(THREE_BLUE);
    let mut rbd = Rbd { bed: &bed, sheet: Sheet::unlisted() };
    images_come_and_go(&mut rbd);
    let (path, bytes) = content(&bed);
    rbd.ok(&format!("import --no-progress {path} in"));
    rbd.ok("bench --io-type write --io-pattern rand --io-size 4K --io-total 2M full");
    bed.ok("down", &[]);
    bed.ok("up", &["--reactors", "1", "--overprovisioned"]);
    assert!(rbd.exported("in") == bytes, "the image came back different");
    assert!(rbd.ok("info full").contains("deep-flatten"));
    rbd.ok("rm --no-progress in");
    let contents: Vec<String> = (0..3)
        .map(|osd: u32| bed.ok("admin", &["--osd", &osd.to_string(), r#"{"prefix":"pg_contents"}"#]))
        .map(|text| serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["pgs"].to_string())
        .collect();
    assert!(contents[0] == contents[1] && contents[0] == contents[2], "copies differ");
}
