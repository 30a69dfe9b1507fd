//! A store that fills up: clients see it as Ceph's (health, flags of the pool, writes that wait), removing by force makes room,
//! and then all goes on. About 20 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::path::Path;
use std::time::{Duration, Instant};

use carmine_tests::{Background, Testbed, installed, run, succeed};

fn ceph(bed: &Testbed, args: &[&str]) -> String {
    let conf = bed.dir().join("ceph.conf");
    let mut all = vec!["-c", conf.to_str().expect("UTF-8")];
    all.extend(args);
    succeed(run(Path::new("ceph"), &all, Duration::from_secs(30)), &format!("ceph {args:?}"))
}

fn until_health(bed: &Testbed, wanted: impl Fn(&str) -> bool) -> String {
    let begin = Instant::now();
    loop {
        let said = ceph(bed, &["health", "detail"]);
        if wanted(&said) {
            return said;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "health is still {said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_full_store_is_seen_and_emptied() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed =
        Testbed::up(&["--osds", "1", "--osd-size", "256M", "--sparse", "--overprovisioned", "--pgs", "32"]);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = folder.path().join("4m");
    std::fs::write(&file, vec![7; 4 << 20]).expect("a file");
    let file = file.to_str().expect("UTF-8");
    // To 87 %, then over 95 %: of 256 MiB, 8 are the log.
    let put = |from: u32, to: u32| {
        for n in from..to {
            bed.rados_ok(&["put", &format!("object-{n}"), file]);
        }
    };
    put(0, 54);
    let said = until_health(&bed, |said| said.contains("nearfull"));
    assert!(said.starts_with("HEALTH_WARN") && said.contains("OSD_NEARFULL"), "{said}");
    put(54, 60);
    let said = until_health(&bed, |said| said.contains("OSD_FULL"));
    assert!(
        said.starts_with("HEALTH_ERR") && said.contains("POOL_FULL") && said.contains("osd.0 is full"),
        "{said}"
    );
    // A write waits; reading and removing by force go on.
    let waits = Background::rados(&bed, &["put", "one-more", file]);
    bed.rados_ok(&["get", "object-7", "/dev/null"]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(waits.runs(), "a write must wait while the pool is full");
    for n in 0..30 {
        bed.rados_ok(&["rm", "--force-full", &format!("object-{n}")]);
    }
    until_health(&bed, |said| !said.contains("full"));
    succeed(waits.wait(Duration::from_secs(30)), "the write that waited");
    bed.rados_ok(&["stat", "one-more"]);
    bed.ok("down", &[]);
    let dir = bed.dir();
    let fsck = ["store", "fsck", "--deep", "--dir", dir.to_str().expect("UTF-8")];
    succeed(run(&carmine_tests::carmine_bin(), &fsck, Duration::from_secs(60)), "fsck");
}
