//! The unmodified `rbd` (ceph-common 16.2.15) and fio's engines `rbd` and `rados` against a testbed. About 40 s in all.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes, reads and writes files

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use carmine_tests::{Testbed, installed, kill_nine, run, succeed};

const ONE_CYAN: &[&str] =
    &["--osds", "1", "--size", "1", "--reactors", "2", "--store", "cyan", "--pgs", "32", "--overprovisioned"];
const ONE_BLUE: &[&str] = &[
    "--osds",
    "1",
    "--size",
    "1",
    "--store",
    "blue",
    "--osd-size",
    "1G",
    "--sparse",
    "--pgs",
    "32",
    "--overprovisioned",
];
const THREE_BLUE: &[&str] = &[
    "--osds",
    "3",
    "--size",
    "3",
    "--reactors",
    "2",
    "--store",
    "blue",
    "--osd-size",
    "1G",
    "--sparse",
    "--pgs",
    "32",
    "--overprovisioned",
];

fn conf(bed: &Testbed) -> String {
    bed.dir().join("ceph.conf").to_str().expect("UTF-8").to_owned()
}

fn rbd(bed: &Testbed, args: &[&str]) -> Output {
    let conf = conf(bed);
    let mut all = vec!["-c", &conf, "-p", "bench"];
    all.extend(args);
    run(Path::new("rbd"), &all, Duration::from_secs(60))
}

fn rbd_ok(bed: &Testbed, args: &[&str]) -> String {
    succeed(rbd(bed, args), &format!("rbd {args:?}"))
}

/// What a refused command prints; it must come soon.
fn refused(output: Output, begin: Instant) -> String {
    assert!(!output.status.success(), "it was done");
    assert!(begin.elapsed() < Duration::from_secs(10), "a refusal took {:?}", begin.elapsed());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// fio, which takes the cluster's address from the environment.
fn fio(bed: &Testbed, args: &[&str]) -> Command {
    let mut fio = Command::new("env");
    // Without librbd's cache every request goes to the OSDs.
    let conf = conf(bed);
    let uncached = bed.dir().join("uncached.conf");
    let text = std::fs::read_to_string(&conf).expect("the testbed's ceph.conf");
    std::fs::write(&uncached, format!("{text}\n[client]\nrbd_cache = false\n")).expect("a file");
    fio.arg(format!("CEPH_CONF={}", uncached.display())).arg("fio").args(args);
    fio
}

fn fio_ok(bed: &Testbed, args: &[&str]) {
    let mut all = vec!["fio"];
    let fio = fio(bed, args);
    let words: Vec<String> = fio.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
    all.clear();
    all.extend(words.iter().map(String::as_str));
    let said = succeed(run(Path::new("env"), &all, Duration::from_secs(90)), &format!("fio {args:?}"));
    assert!(said.contains("err= 0"), "{said}");
}

/// Every kind of load on an image, what was written read back and compared.
fn fio_on_image(bed: &Testbed, image: &str) {
    let image = format!("--rbdname={image}");
    let common = [
        "--name=t",
        "--ioengine=rbd",
        "--clientname=admin",
        "--pool=bench",
        &image,
        "--iodepth=16",
        "--size=8m",
    ];
    let kinds: [&[&str]; 6] = [
        &["--rw=write", "--bs=64k", "--verify=crc32c"],
        &["--rw=randwrite", "--bs=4k", "--verify=crc32c", "--io_size=4m"],
        &["--rw=randrw", "--bs=4k", "--verify=crc32c", "--io_size=4m"],
        &["--rw=read", "--bs=256k"],
        &["--rw=randread", "--bs=4k", "--io_size=4m"],
        &["--rw=randtrim", "--bs=4k", "--io_size=4m"],
    ];
    for kind in kinds {
        let args: Vec<&str> = common.iter().chain(kind).copied().collect();
        fio_ok(bed, &args);
    }
}

fn fio_on_objects(bed: &Testbed) {
    let conf = format!("--conf={}", conf(bed));
    let common = [
        "--name=t",
        "--ioengine=rados",
        "--clientname=admin",
        "--pool=bench",
        &conf,
        "--iodepth=16",
        "--size=4m",
        "--bs=4k",
    ];
    for rw in ["--rw=randwrite", "--rw=randrw", "--rw=randread"] {
        let mut args = common.to_vec();
        args.extend([rw, "--nrfiles=4"]);
        if rw != "--rw=randread" {
            args.push("--verify=crc32c");
        }
        fio_ok(bed, &args);
    }
}

/// A file with bytes, holes and an odd length.
fn content(bed: &Testbed) -> (PathBuf, Vec<u8>) {
    let mut bytes: Vec<u8> = (0..9usize << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    bytes[3 << 20..6 << 20].fill(0);
    bytes.truncate((9 << 20) - 512);
    let path = bed.dir().join("content");
    std::fs::write(&path, &bytes).expect("a file");
    (path, bytes)
}

/// What an image holds.
fn exported(bed: &Testbed, image: &str) -> Vec<u8> {
    let path = bed.dir().join("exported");
    rbd_ok(bed, &["export", "--no-progress", image, path.to_str().expect("UTF-8")]);
    let bytes = std::fs::read(&path).expect("what was exported");
    std::fs::remove_file(&path).expect("it goes");
    bytes
}

fn images_come_and_go(bed: &Testbed) {
    rbd_ok(bed, &["pool", "init", "bench"]);
    rbd_ok(bed, &["create", "--size", "16M", "--image-feature", "layering", "plain"]);
    rbd_ok(bed, &["create", "--size", "16M", "full"]);
    let taken = rbd(bed, &["create", "--size", "16M", "full"]);
    assert!(refused(taken, Instant::now()).contains("File exists"));
    assert_eq!(rbd_ok(bed, &["ls"]).lines().collect::<Vec<_>>(), ["full", "plain"]);
    let info = rbd_ok(bed, &["info", "full"]);
    assert!(info.contains("size 16 MiB in 4 objects"), "{info}");
    assert!(info.contains("layering, exclusive-lock, object-map, fast-diff, deep-flatten"), "{info}");
    assert!(rbd_ok(bed, &["info", "plain"]).contains("features: layering\n"));
    let missing = rbd(bed, &["info", "nothing"]);
    assert!(refused(missing, Instant::now()).contains("No such file or directory"));
}

fn images_grow_and_shrink(bed: &Testbed) {
    for image in ["plain", "full"] {
        rbd_ok(
            bed,
            &[
                "bench",
                "--io-type",
                "write",
                "--io-size",
                "4K",
                "--io-total",
                "2M",
                "--io-threads",
                "4",
                image,
            ],
        );
        rbd_ok(
            bed,
            &[
                "bench",
                "--io-type",
                "read",
                "--io-size",
                "4K",
                "--io-total",
                "2M",
                "--io-threads",
                "4",
                image,
            ],
        );
        rbd_ok(bed, &["resize", "--no-progress", "--size", "64M", image]);
        assert!(rbd_ok(bed, &["info", image]).contains("size 64 MiB in 16 objects"));
        rbd_ok(bed, &["resize", "--no-progress", "--size", "2M", "--allow-shrink", image]);
        assert!(rbd_ok(bed, &["info", image]).contains("size 2 MiB in 1 objects"));
        assert_eq!(exported(bed, image).len(), 2 << 20);
        rbd_ok(bed, &["resize", "--no-progress", "--size", "16M", image]);
        assert!(exported(bed, image)[2 << 20..].iter().all(|byte| *byte == 0), "old bytes came back");
    }
    let du = rbd_ok(bed, &["du", "--format", "json"]);
    assert!(du.contains("\"total_provisioned_size\":33554432"), "{du}");
}

/// What is imported comes back; with the object map, used space is told without looking at the objects.
fn bytes_come_back(bed: &Testbed) {
    let (path, bytes) = content(bed);
    for (image, feature) in
        [("in-plain", "layering"), ("in-full", "layering,exclusive-lock,object-map,fast-diff,deep-flatten")]
    {
        let file = path.to_str().expect("UTF-8");
        rbd_ok(bed, &["import", "--no-progress", "--image-feature", feature, file, image]);
        assert!(exported(bed, image) == bytes, "{image} came back different");
        assert!(rbd_ok(bed, &["du", image]).contains(image));
    }
}

fn snapshots_are_refused(bed: &Testbed) {
    for verb in [
        &["snap", "create", "--no-progress", "full@s"][..],
        &["snap", "create", "--no-progress", "plain@s"],
        &["clone", "plain@s", "bench/child"],
        &["snap", "protect", "plain@s"],
        &["snap", "rollback", "--no-progress", "plain@s"],
        &["snap", "rm", "--no-progress", "plain@s"],
    ] {
        let begin = Instant::now();
        let said = refused(rbd(bed, verb), begin);
        assert!(said.contains("not supported") || said.contains("No such file"), "{verb:?}: {said}");
    }
    let begin = Instant::now();
    assert!(refused(bed.rados(&["mksnap", "s"]), begin).contains("not supported"));
    // Nothing is left of the attempts.
    assert_eq!(rbd_ok(bed, &["snap", "ls", "full"]), "");
    assert!(rbd_ok(bed, &["info", "full"]).contains("snapshot_count: 0"));
}

fn images_are_removed(bed: &Testbed) {
    for image in rbd_ok(bed, &["ls"]).lines() {
        rbd_ok(bed, &["rm", "--no-progress", image]);
    }
    assert_eq!(rbd_ok(bed, &["ls"]), "");
    let left = bed.rados_ok(&["ls"]);
    let expected = ["rbd_directory", "rbd_info", "rbd_trash"];
    assert!(left.lines().all(|name| expected.contains(&name)), "{left}");
}

#[test]
fn rbd_and_fio_against_one_cyan_osd() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(ONE_CYAN);
    images_come_and_go(&bed);
    images_grow_and_shrink(&bed);
    bytes_come_back(&bed);
    snapshots_are_refused(&bed);
    fio_on_image(&bed, "plain");
    fio_on_image(&bed, "full");
    images_are_removed(&bed);
    fio_on_objects(&bed);
}

#[test]
fn images_outlive_a_restart_of_three_replicated_blue_osds() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(THREE_BLUE);
    images_come_and_go(&bed);
    let (path, bytes) = content(&bed);
    rbd_ok(&bed, &["import", "--no-progress", path.to_str().expect("UTF-8"), "in"]);
    let args = [
        "--name=t",
        "--ioengine=rbd",
        "--clientname=admin",
        "--pool=bench",
        "--rbdname=full",
        "--iodepth=16",
    ];
    let mut args = args.to_vec();
    args.extend(["--size=8m", "--rw=randrw", "--bs=4k", "--io_size=2m", "--verify=crc32c"]);
    fio_ok(&bed, &args);
    bed.ok("down", &[]);
    bed.ok("up", &["--reactors", "1", "--overprovisioned"]);
    assert!(exported(&bed, "in") == bytes, "the image came back different");
    assert!(rbd_ok(&bed, &["info", "full"]).contains("deep-flatten"));
    rbd_ok(&bed, &["rm", "--no-progress", "in"]);
    let contents: Vec<String> = (0..3)
        .map(|osd: u32| bed.ok("admin", &["--osd", &osd.to_string(), r#"{"prefix":"pg_contents"}"#]))
        .map(|text| serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["pgs"].to_string())
        .collect();
    assert!(contents[0] == contents[1] && contents[0] == contents[2], "copies differ");
}

/// A child that is killed if the test ends before it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many watch an image.
fn watchers(bed: &Testbed, image: &str) -> usize {
    rbd_ok(bed, &["status", image]).matches("watcher=").count()
}

/// The OSD dies under a client that holds an image's lock: the client comes back, watches again, and goes on.
#[test]
fn a_locked_image_is_written_on_when_its_osd_was_killed() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(ONE_BLUE);
    rbd_ok(&bed, &["pool", "init", "bench"]);
    rbd_ok(&bed, &["create", "--size", "16M", "full"]);
    let args =
        ["--name=t", "--ioengine=rbd", "--clientname=admin", "--pool=bench", "--rbdname=full", "--size=16m"];
    let mut args = args.to_vec();
    args.extend([
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=8",
        "--rate_iops=300",
        "--verify=crc32c",
        "--io_size=12m",
    ]);
    let out = bed.dir().join("fio.out");
    let file = std::fs::File::create(&out).expect("a file");
    let child =
        fio(&bed, &args).stdin(Stdio::null()).stdout(file).stderr(Stdio::null()).spawn().expect("fio starts");
    let mut child = Killed(child);
    let begin = Instant::now();
    while watchers(&bed, "full") == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "fio does not open the image");
    }
    let lock = rbd_ok(&bed, &["lock", "ls", "full"]);
    assert!(lock.contains("exclusive lock"), "{lock}");
    let osd = bed.pid("osd.0").expect("it runs");
    assert_eq!(kill_nine(&[osd]), 1);
    bed.ok("restart", &["--osd", "0"]);
    assert_eq!(watchers(&bed, "full"), 1, "who watches is not forgotten");
    let status = loop {
        if let Some(status) = child.0.try_wait().expect("a child can be waited for") {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(90), "fio hangs");
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = std::fs::read_to_string(&out).expect("fio's output");
    assert!(status.success() && said.contains("err= 0"), "{said}");
    assert_eq!(watchers(&bed, "full"), 0, "closing ends the watch");
    assert_eq!(rbd_ok(&bed, &["lock", "ls", "full"]), "");
}
