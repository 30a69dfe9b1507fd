//! Locks of images, and clients that die or are broken while they hold one, with the unmodified `rbd` and fio. About 35 s, of
//! which most is the half minute for which a client that is gone still counts as a watcher, as in Ceph.
#![allow(clippy::disallowed_methods)] // reads clocks and waits

use std::time::{Duration, Instant};

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::{FioRun, ONE_BLUE, THREE_BLUE, refused};
use carmine_tests::{Background, Testbed, installed, kill_nine};

/// Longest wait for a client: the half minute after a death, and what a busy machine adds.
const LIMIT: Duration = Duration::from_secs(240);

/// fio's words for an image of 16 MiB.
fn on(image: &str) -> [String; 7] {
    ["--name=t", "--ioengine=rbd", "--clientname=admin", "--pool=bench", "--size=16m", "--bs=4k"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("--rbdname={image}")])
        .collect::<Vec<_>>()
        .try_into()
        .expect("seven words")
}

/// A client that writes for a while, so that it still does when something happens to it.
fn writer(bed: &Testbed, image: &str, more: &[&str]) -> Background {
    let target = on(image);
    let mut args: Vec<&str> = target.iter().map(String::as_str).collect();
    args.extend(["--rw=randwrite", "--iodepth=8", "--rate_iops=300", "--io_size=12m"]);
    args.extend(more);
    let writer = Background::fio(bed, &args);
    let begin = Instant::now();
    while !lock(bed, image).contains("exclusive lock") {
        assert!(begin.elapsed() < LIMIT, "fio takes no lock");
    }
    writer
}

/// A client that writes all of an image and compares it.
fn rewrite(bed: &Testbed, image: &str) {
    let target = on(image);
    let mut args: Vec<&str> = target.iter().map(String::as_str).collect();
    args.extend(["--rw=write", "--iodepth=16", "--verify=crc32c"]);
    let run = bed.fio(&args);
    assert!(run.is_good, "{}", run.said);
    assert_eq!(run.ios("t"), [4096, 4096, 0]);
}

fn lock(bed: &Testbed, image: &str) -> String {
    bed.rbd_ok(&["lock", "ls", image])
}

/// The line of `lock ls` about the one holder: locker, id, address.
fn holder(bed: &Testbed, image: &str) -> [String; 3] {
    let said = lock(bed, image);
    let line = said.lines().find(|line| line.starts_with("client.")).expect("a holder");
    let words: Vec<&str> = line.split_whitespace().collect();
    let (Some(first), Some(last)) = (words.first(), words.last()) else { panic!("{said}") };
    let id = words[1..words.len() - 1].join(" ");
    [(*first).to_owned(), id, (*last).to_owned()]
}

fn watchers(bed: &Testbed, image: &str) -> usize {
    bed.rbd_ok(&["status", image]).matches("watcher=").count()
}

/// Addresses that are kept out.
fn blocklist(bed: &Testbed) -> Vec<String> {
    let said = bed.ceph_ok(&["osd", "blocklist", "ls"]);
    said.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Locks that people take.
fn advisory(bed: &Testbed, sheet: &mut Sheet) {
    bed.rbd_ok(&["create", "--size", "16M", "--image-feature", "layering", "plain"]);
    bed.rbd_ok(&["lock", "add", "plain", "mine"]);
    let busy = refused("a second lock", || bed.rbd(&["lock", "add", "plain", "yours"]));
    assert!(busy.contains("lock is already held by someone else"), "{busy}");
    let [locker, id, _] = holder(bed, "plain");
    assert_eq!(id, "mine");
    bed.rbd_ok(&["lock", "rm", "plain", "mine", &locker]);
    assert_eq!(lock(bed, "plain"), "");
    sheet.works("`rbd lock add|ls|rm`", "of an image with layering only; a second one is refused");
}

/// A client that lives loses its lock: it is kept out, and the next one has the image for itself.
fn a_lock_is_broken(bed: &Testbed, sheet: &mut Sheet) {
    bed.rbd_ok(&["create", "--size", "16M", "broken"]);
    let writer = writer(bed, "broken", &[]);
    let [locker, id, addr] = holder(bed, "broken");
    bed.rbd_ok(&["lock", "rm", "broken", &id, &locker]);
    assert!(blocklist(bed).contains(&addr), "{addr} is not in {:?}", blocklist(bed));
    let out = writer.wait(LIMIT);
    let run = FioRun::from_output(out, &["the client whose lock is broken"]);
    assert!(!run.is_good, "it went on: {}", run.said);
    rewrite(bed, "broken");
    sheet.works(
        "`rbd lock rm` of a client at work",
        "it is blocklisted and gets errors, the next client's data is right",
    );
    sheet.works("`ceph osd blocklist ls`", "the client whose lock was broken");
    bed.ceph_ok(&["osd", "blocklist", "rm", &addr]);
    assert!(!blocklist(bed).contains(&addr));
    let missing = refused("a second rm", || bed.ceph(&["osd", "blocklist", "rm", &addr]));
    assert!(missing.contains("isn't blocklisted"), "{missing}");
    sheet.works("`ceph osd blocklist rm ADDRESS`", "");
    bed.ceph_ok(&["osd", "blacklist", "add", "127.0.0.1:0/7", "3600"]);
    assert!(blocklist(bed).contains(&"127.0.0.1:0/7".to_owned()));
    bed.ceph_ok(&["osd", "blocklist", "clear"]);
    assert!(blocklist(bed).is_empty());
    sheet.works("`ceph osd blocklist add ADDRESS SECONDS`, `clear`", "also as `blacklist`");
}

/// All clients of this host are kept out for a while.
fn a_host_is_kept_out(bed: &Testbed, sheet: &mut Sheet) {
    bed.ceph_ok(&["osd", "blocklist", "add", "127.0.0.1:0/0", "3600"]);
    let said = refused("a read", || bed.rados(&["get", "rbd_directory", "-"]));
    assert!(said.contains("(108) Cannot send after transport endpoint shutdown"), "{said}");
    sheet.refused("`rados` of a blocklisted client", "(108) Cannot send after transport endpoint shutdown");
    bed.ceph_ok(&["osd", "blocklist", "rm", "127.0.0.1:0/0"]);
    bed.rados_ok(&["stat", "rbd_directory"]);
}

/// `kill -9` of a client that holds a lock: the next one waits until it is no watcher any more, has it blocklisted, takes the
/// lock and goes on.
fn the_next_client_takes_a_dead_one_s_lock(bed: &Testbed, dead: [String; 3], sheet: &mut Sheet) {
    rewrite(bed, "dead");
    assert!(blocklist(bed).contains(&dead[2]), "{dead:?} is not in {:?}", blocklist(bed));
    assert_eq!(lock(bed, "dead"), "", "it was given back at the end");
    sheet.works(
        "client killed (`kill -9`) that holds an image's lock",
        "the next client has it blocklisted, takes the lock, and its data is right",
    );
}

/// The longest one: by its name it is the first to start.
#[test]
fn a_client_that_holds_a_lock_of_three_replicated_osds_dies_or_is_broken() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(THREE_BLUE);
    let mut sheet = Sheet::new("rbd: locks");
    bed.rbd_ok(&["pool", "init", "bench"]);
    bed.rbd_ok(&["create", "--size", "16M", "dead"]);
    let dying = writer(&bed, "dead", &[]);
    let dead = holder(&bed, "dead");
    dying.kill();
    // The half minute until it is no watcher any more passes beside the rest.
    advisory(&bed, &mut sheet);
    a_lock_is_broken(&bed, &mut sheet);
    the_next_client_takes_a_dead_one_s_lock(&bed, dead, &mut sheet);
    a_host_is_kept_out(&bed, &mut sheet);
    sheet.check();
}

/// An OSD dies under a client that holds an image's lock: the client comes back, watches again, and goes on.
fn an_osd_dies_under_a_lock(options: &[&str]) {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(options);
    bed.rbd_ok(&["pool", "init", "bench"]);
    bed.rbd_ok(&["create", "--size", "16M", "full"]);
    let writer = writer(&bed, "full", &["--verify=crc32c"]);
    let osd = bed.pid("osd.0").expect("it runs");
    assert_eq!(kill_nine(&[osd]), 1);
    bed.ok("restart", &["--osd", "0"]);
    assert_eq!(watchers(&bed, "full"), 1, "who watches is not forgotten");
    let run = FioRun::from_output(writer.wait(LIMIT), &["the client whose OSD died"]);
    assert!(run.is_good, "{}", run.said);
    assert_eq!(watchers(&bed, "full"), 0, "closing ends the watch");
    assert_eq!(lock(&bed, "full"), "");
    assert!(blocklist(&bed).is_empty(), "nobody was taken for dead");
}

#[test]
fn a_locked_image_is_written_on_when_its_only_osd_was_killed() {
    an_osd_dies_under_a_lock(ONE_BLUE);
}

#[test]
fn a_locked_image_is_written_on_when_one_of_three_osds_was_killed() {
    an_osd_dies_under_a_lock(THREE_BLUE);
}
