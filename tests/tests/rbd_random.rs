//! Images whose snapshots and clones come and go at random while they are written: Debian's librbd 16.2.15 from Python, compared
//! with a model, and fio. About 50 s. `CARMINE_RBD_SEED` repeats a run of the model.
#![allow(clippy::disallowed_methods)] // reads the environment

use std::path::Path;
use std::time::{Duration, Instant};

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::{FioRun, ONE_BLUE, ONE_CYAN, THREE_BLUE};
use carmine_tests::{Background, Testbed, installed, run, skip, succeed, workspace_root};

/// Debian's: the one for which python3-rbd is made; another may come first on the PATH.
const PYTHON: &str = "/usr/bin/python3";
/// Seconds of random steps.
const STEPS_S: &str = "8";
/// librbd's bits: layering; and the default features.
const FEATURES: [(&str, &str); 2] = [("layering", "1"), ("default", "61")];

fn has_rbd() -> bool {
    let found = Path::new(PYTHON).exists()
        && run(Path::new(PYTHON), &["-c", "import rbd"], Duration::from_secs(30)).status.success();
    if !found {
        skip(format_args!("{PYTHON} cannot import rbd: apt-get install python3-rbd"));
    }
    found
}

fn seed() -> String {
    std::env::var("CARMINE_RBD_SEED").unwrap_or_else(|_| std::process::id().to_string())
}

/// Runs the model against each kind of image.
fn images_follow_the_model(bed: &Testbed) {
    let script = workspace_root().join("tests/tests/python/rbd_random.py");
    let script = script.to_str().expect("UTF-8");
    for (what, bits) in FEATURES {
        let args = [script, &bed.conf(), "bench", &seed(), STEPS_S, bits];
        let said = succeed(run(Path::new(PYTHON), &args, Duration::from_secs(120)), what);
        for step in ["write=", "snap_create=", "snap_read=", "clone="] {
            assert!(said.contains(step), "no {step} in {STEPS_S} s: {said}");
        }
        println!("{what}: {said}");
    }
}

#[test]
fn one_cyan_osd_follows_the_model() {
    if has_rbd() {
        images_follow_the_model(&Testbed::up(ONE_CYAN));
    }
}

#[test]
fn three_replicated_blue_osds_follow_the_model() {
    if has_rbd() {
        images_follow_the_model(&Testbed::up(THREE_BLUE));
    }
}

/// Snapshots of the image are made and removed while fio writes to it; fio's writes are then compared.
fn fio_beside_snapshots(bed: &Testbed) -> u32 {
    bed.rbd_ok(&["create", "--size", "32M", "busy"]);
    let target = ["--name=busy", "--ioengine=rbd", "--clientname=admin", "--pool=bench", "--rbdname=busy"];
    let load =
        ["--rw=randwrite", "--bs=4k", "--size=32m", "--iodepth=8", "--rate_iops=800", "--verify=crc32c"];
    let writes = Background::fio(bed, &[&target[..], &load].concat());
    let (mut made, mut random, begin) = (0u32, seed().parse::<u64>().unwrap_or(1), Instant::now());
    let mut there: Vec<String> = Vec::new();
    while writes.runs() && begin.elapsed() < Duration::from_secs(40) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (random >> 33) as usize;
        if there.is_empty() || (draw.is_multiple_of(2) && there.len() < 5) {
            let snap = format!("busy@s{made}");
            bed.rbd_ok(&["snap", "create", "--no-progress", &snap]);
            there.push(snap);
            made += 1;
        } else {
            let snap = there.swap_remove(draw % there.len());
            bed.rbd_ok(&["snap", "rm", "--no-progress", &snap]);
        }
    }
    let done = FioRun::from_output(writes.wait(Duration::from_secs(60)), &load);
    assert!(done.is_good, "{}", done.said);
    made
}

/// fio finds in a clone the blocks that it wrote to the parent, also after it has overwritten some of the clone.
fn fio_on_a_clone(bed: &Testbed) {
    bed.rbd_ok(&["create", "--size", "16M", "parent"]);
    let on = |name: &str, image: &str, load: &[&str]| {
        let (name, image) = (format!("--name={name}"), format!("--rbdname={image}"));
        let target = [name.as_str(), "--ioengine=rbd", "--clientname=admin", "--pool=bench", &image];
        let done = bed.fio(&[&target[..], &["--bs=16k", "--size=16m", "--iodepth=8"], load].concat());
        assert!(done.is_good, "{}", done.said);
    };
    on("fill", "parent", &["--rw=write", "--verify=crc32c", "--do_verify=0"]);
    bed.rbd_ok(&["snap", "create", "--no-progress", "parent@kept"]);
    bed.rbd_ok(&["clone", "--rbd-default-clone-format", "2", "bench/parent@kept", "bench/child"]);
    on("fill", "child", &["--rw=randread", "--verify=crc32c"]);
    let info = serde_json::from_str::<serde_json::Value>(&bed.rbd_ok(&["info", "--format", "json", "child"]));
    let prefix = info.expect("JSON")["block_name_prefix"].as_str().expect("a prefix").to_owned();
    assert!(!bed.rados_ok(&["ls"]).contains(&prefix), "reads have copied the parent's objects");
    // Half of the clone is written: the rest of each object comes along from the parent.
    on("half", "child", &["--rw=write", "--size=8m", "--verify=crc32c"]);
    on("fill", "child", &["--rw=read", "--offset=8m", "--size=8m", "--verify=crc32c"]);
    on("fill", "parent", &["--rw=read", "--verify=crc32c"]);
}

#[test]
fn fio_with_snapshots_and_clones() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(ONE_BLUE);
    let made = fio_beside_snapshots(&bed);
    assert!(made >= 3, "only {made} snapshots while fio wrote");
    fio_on_a_clone(&bed);
    let mut sheet = Sheet::new("fio: snapshots and clones");
    sheet.works(
        "`ioengine=rbd`: `rw=randwrite`",
        "while snapshots of the image come and go: all of it read back and compared by `--verify=crc32c`",
    );
    sheet.works(
        "`ioengine=rbd`: `rw=randread`, `rw=read` of a clone",
        "read through its parent, before and after some of it is written: compared by `--verify=crc32c`",
    );
    sheet.check();
}
