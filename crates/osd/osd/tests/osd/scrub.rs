//! Scrub: each kind of damage of one copy is found and repaired, healthy copies under load are never called damaged, and no
//! last good copy is lost.

use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_pgtypes::snaps::{SNAPSET, SnapSet};
use carmine_pgtypes::{ObjectChange, PgInfo, Scrubbed, Step, Transaction};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Epoch, ObjectId, OsdId, PgId, SNAP_HEAD, ScrubStamp, SpgId, UTime, Uuid, errno};
use carmine_wire::osd_op::{OsdOp, ops};
use carmine_wire::osdmap::consts::{FLAG_NODEEP_SCRUB, FLAG_NOSCRUB};
use carmine_wire::pg_stat::state;
use carmine_wire::scrub::{OsdScrub, ScrubLsArg};

use super::attrs::{get, omap, set_omap, xattr};
use super::cluster::{Cluster, Disks, noise};
use super::mon::POOL_ID;
use super::peering::{kill, place, wait_clean};

const PG: SpgId = SpgId::replicated(PgId::new(POOL_ID, 0));
/// Several blocks, and a part of one.
const BYTES: usize = 5 * 4096 + 1000;

fn content(n: u64) -> Vec<u8> {
    noise(n + 1, BYTES)
}

fn name(n: u64) -> String {
    format!("object-{n:02}")
}

fn oid(n: u64) -> ObjectId {
    ObjectId::head(POOL_ID, b"", b"", name(n).as_bytes())
}

async fn write_all(pool: Pool, objects: u64) {
    for n in 0..objects {
        let header = (OsdOp::with_payload(ops::OMAP_SET_HEADER, 0), Payload::from(b"header".to_vec()));
        let entries: Vec<_> = (0..20).map(|key| (format!("key-{key:02}"), noise(key, 40))).collect();
        pool.write_full(name(n), content(n)).await.unwrap();
        let ops = vec![xattr(ops::SET_XATTR, "color", b"red"), header, set_omap(&entries)];
        pool.exec(name(n), ops).await.unwrap();
    }
}

/// Everything that a client sees of an object is as [`write_all`] left it.
async fn check(pool: &Pool, n: u64) {
    assert!(pool.read(name(n), 0, 0).await.unwrap().to_vec() == content(n), "{}", name(n));
    assert_eq!(get(pool, &name(n), xattr(ops::GET_XATTR, "color", b"")).await.unwrap(), b"red");
    let more = get(pool, &name(n), xattr(ops::GET_XATTR, "shape", b"")).await;
    assert_eq!(more.map_err(|error| error.errno()), Err(errno::ENODATA));
    let header = (OsdOp::with_payload(ops::OMAP_GET_HEADER, 0), Payload::new());
    assert_eq!(get(pool, &name(n), header).await.unwrap(), b"header");
    let entries: Vec<_> = (0..20).map(|key| (format!("key-{key:02}"), noise(key, 40))).collect();
    assert_eq!(omap(pool, &name(n)).await, entries);
}

/// One PG, which osd.0 leads, with so many objects.
fn start(seed: u64, size: u8, objects: u64) -> Cluster {
    let reactors: Vec<u16> = (0..size).map(|osd| 1 + u16::from(osd) % 2).collect();
    let cluster = Cluster::start(seed, Disks::Blue, size, 1, &reactors);
    place(&cluster, 1, &all(size));
    cluster.client(RouteMode::Direct, move |_, pool| write_all(pool, objects));
    cluster
}

fn all(size: u8) -> Vec<i32> {
    (0..i32::from(size)).collect()
}

/// Changes the stores of OSDs behind their backs.
fn tamper(cluster: &Cluster, size: u8, harms: Vec<(u32, ObjectId, Vec<Step>)>) {
    (0..size.into()).for_each(|osd| kill(cluster, osd));
    for (osd, oid, steps) in harms {
        let mut txn = Transaction::new(PG, 0);
        txn.changes.push(ObjectChange::new(oid, steps));
        cluster.change_store(osd, txn);
    }
    (0..size.into()).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(size.into());
    wait_clean(cluster, &[0]);
}

/// The report on the PG's scrubs that osd.0 sent the monitor last.
pub(super) fn reported(cluster: &Cluster) -> PgScrubs {
    reported_by(cluster, 0)
}

/// Nothing if it was not the last one that told of the PG.
fn reported_by(cluster: &Cluster, osd: u32) -> PgScrubs {
    let stats = cluster.mon.pg_stats.borrow();
    let told = stats.get(&PG.pgid).filter(|(teller, _)| *teller == OsdId(osd)).map(|(_, stat)| stat);
    told.map_or_else(PgScrubs::default, |stat| PgScrubs {
        last: stat.last_scrub,
        last_deep: stat.last_deep_scrub,
        last_clean: stat.last_clean_scrub_stamp,
        scrubbing: stat.is(state::SCRUBBING),
        errors: stat.stats.sum.num_scrub_errors as u64,
    })
}

/// The part of a PG's statistics that is about scrubs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PgScrubs {
    pub(super) last: ScrubStamp,
    pub(super) last_deep: ScrubStamp,
    pub(super) last_clean: UTime,
    pub(super) scrubbing: bool,
    pub(super) errors: u64,
}

fn ask(cluster: &Cluster, deep: bool, repair: bool) {
    let order = OsdScrub { fsid: Uuid([7; 16]), epoch: Epoch(1), pgs: vec![PG], repair, deep };
    cluster.mon.orders.borrow_mut().push((OsdId(0), order));
}

/// Scrubs the PG by command; the errors that are left.
fn scrub(cluster: &Cluster, deep: bool, repair: bool) -> u64 {
    let before = reported(cluster).last;
    ask(cluster, deep, repair);
    cluster.wait("a scrub", || reported(cluster).last != before && !reported(cluster).scrubbing);
    reported(cluster).errors
}

/// The answer of SCRUBLS: its names are in it.
fn listed(cluster: &Cluster) -> Result<Vec<u8>, i32> {
    listed_of(cluster, 0)
}

/// The same of snapsets: how many are listed, and the answer.
fn listed_sets(cluster: &Cluster) -> (u32, Vec<u8>) {
    let answer = listed_of(cluster, 1).expect("a list");
    // Behind the envelope and the interval.
    (u32::from_le_bytes(answer[10..14].try_into().unwrap()), answer)
}

fn listed_of(cluster: &Cluster, snapsets: u32) -> Result<Vec<u8>, i32> {
    cluster.client(RouteMode::Direct, move |_, pool| async move {
        let arg = ScrubLsArg {
            interval: 0,
            snapsets,
            name: Vec::new(),
            nspace: Vec::new(),
            snap: SNAP_HEAD,
            max: 99,
        };
        let op = (OsdOp::with_payload(ops::SCRUB_LS, 0), Payload::from(arg.encode()));
        get(&pool, &name(0), op).await.map_err(|error| error.errno())
    })
}

fn has(text: &[u8], name: &str) -> bool {
    text.windows(name.len()).any(|part| part == name.as_bytes())
}

/// Each kind of damage, and whether only a deep scrub can see it.
fn harms() -> Vec<(Vec<Step>, bool)> {
    let set =
        |name: &[u8], value: &[u8]| Step::SetXattr { name: name.into(), value: Bytes::from(value.to_vec()) };
    let omap =
        |key: &[u8], value: &[u8]| Step::SetOmap { entries: vec![(key.into(), Bytes::from(value.to_vec()))] };
    let other = Step::Write { off: 4096, data: Payload::from(noise(99, 4096)) };
    // The names of xattrs as clients know them are kept behind an underscore, as in Ceph.
    vec![
        (vec![other], true),
        (vec![Step::Truncate { size: 4096 }], false),
        (vec![Step::Truncate { size: 9 * 4096 }], false),
        (vec![set(b"_color", b"blue")], false),
        (vec![set(b"_shape", b"round")], false),
        (vec![Step::ClearXattrs { prefix: b"_color".as_slice().into() }], false),
        (vec![omap(b"key-07", b"other")], false),
        (vec![omap(b"key-99", b"more")], false),
        (vec![Step::RemoveOmap { keys: vec![b"key-03".as_slice().into()] }], false),
        (vec![Step::SetOmapHeader { header: Bytes::from(b"other".to_vec()) }], false),
        (vec![Step::Remove], false),
    ]
}

#[test]
fn every_kind_of_damage_is_found_and_repaired_on_the_primary_and_on_a_replica() {
    let kinds = harms();
    let count = 2 * kinds.len() as u64;
    let cluster = start(1, 3, count + 2);
    assert_eq!(scrub(&cluster, true, false), 0);
    let damaged = (0..count).map(|n| (2 * (n as u32 % 2), oid(n), kinds[n as usize / 2].0.clone()));
    tamper(&cluster, 3, damaged.collect());
    assert_eq!(listed(&cluster), Err(errno::ENOENT), "nothing is known yet");
    let seen = kinds.iter().filter(|(_, deep)| !deep).count() as u64;
    assert_eq!(scrub(&cluster, false, false), 2 * seen);
    assert_eq!(scrub(&cluster, true, false), count);
    let text = listed(&cluster).unwrap();
    (0..count).for_each(|n| assert!(has(&text, &name(n)), "{} is not listed", name(n)));
    assert!(!has(&text, &name(count)));
    // A scrub that is not deep takes nothing back that it cannot see.
    assert_eq!(scrub(&cluster, false, false), count);
    assert_eq!(scrub(&cluster, false, true), 0, "a repair reads the data, too");
    assert_eq!(cluster.counter(&[0], "scrub_repaired"), count);
    assert_eq!(scrub(&cluster, true, false), 0);
    cluster.check_equal(&[0, 1, 2]);
    for leader in [[0, 1, 2], [2, 1, 0]] {
        place(&cluster, 1, &leader);
        cluster.client(RouteMode::Direct, move |_, pool| async move {
            for n in 0..count + 2 {
                check(&pool, n).await;
            }
        });
    }
}

/// Of two copies the one that can be read is right, wherever the bad one is.
#[test]
fn bit_rot_is_found_and_repaired_from_the_copy_that_can_be_read() {
    for (seed, osd) in [(11, 0), (12, 1)] {
        let cluster = start(seed, 2, 3);
        let disk = cluster.disk(osd);
        for block in [1, 5] {
            let places = disk.find(&content(1)[block * 4096..][..16]);
            assert!(!places.is_empty());
            places.iter().for_each(|at| disk.flip(at + 3, 4));
        }
        assert_eq!(scrub(&cluster, false, false), 0);
        assert_eq!(scrub(&cluster, true, false), 1);
        assert_eq!(scrub(&cluster, true, true), 0);
        assert_eq!(scrub(&cluster, true, false), 0);
        cluster.check_equal(&[0, 1]);
        cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool, 1).await });
    }
}

/// Neither copy can be read whole, and each has the block that the other lacks.
#[test]
fn two_damaged_copies_make_a_good_one() {
    let cluster = start(13, 2, 1);
    for (osd, block) in [(0, 1), (1, 3)] {
        let disk = cluster.disk(osd);
        disk.find(&content(0)[block * 4096..][..16]).iter().for_each(|at| disk.flip(at + 3, 4));
    }
    assert_eq!(scrub(&cluster, true, false), 2);
    assert_eq!(scrub(&cluster, true, true), 0);
    assert_eq!(scrub(&cluster, true, false), 0);
    cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool, 0).await });
}

/// An object that only one member has is given to the others, whoever has it.
#[test]
fn the_last_copy_of_an_object_is_not_taken_for_one_too_many() {
    for (seed, keeper) in [(21, 0), (22, 2)] {
        let cluster = start(seed, 3, 2);
        let others = (0..3).filter(|osd| *osd != keeper);
        tamper(&cluster, 3, others.map(|osd| (osd, oid(0), vec![Step::Remove])).collect());
        assert_eq!(scrub(&cluster, false, false), 2);
        assert_eq!(scrub(&cluster, true, true), 0);
        assert_eq!(scrub(&cluster, true, false), 0);
        cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool, 0).await });
        cluster.check_equal(&[0, 1, 2]);
    }
}

/// The primary lacks the object, and is killed at one moment or another while it is given it again.
#[test]
fn a_repair_that_is_cut_short_loses_nothing() {
    for tenths in [1, 5, 10, 15, 20, 30, 50] {
        let cluster = start(100 + tenths, 2, 2);
        tamper(&cluster, 2, vec![(0, oid(0), vec![Step::Remove])]);
        ask(&cluster, true, true);
        cluster.pass(Duration::from_micros(100 * tenths));
        (0..2).for_each(|osd| kill(&cluster, osd));
        (0..2).for_each(|osd| cluster.start_osd(osd, 1));
        cluster.wait_up(2);
        assert_eq!(scrub(&cluster, true, true), 0, "{tenths}");
        cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool, 0).await });
        cluster.check_equal(&[0, 1]);
    }
}

/// Objects come, change and go while one scrub follows the other.
#[test]
fn healthy_copies_under_writes_are_never_called_damaged() {
    for seed in [31, 32, 33] {
        let cluster = start(seed, 3, 40);
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                cluster.background(RouteMode::Direct, move |_, pool| async move {
                    let dice = noise(seed * 10 + writer, 1200);
                    for (at, dice) in dice.chunks(2).enumerate() {
                        let (n, at) = (u64::from(dice[0]) % 60, at as u64);
                        let _ = match dice[1] % 5 {
                            0 => pool.write_full(name(n), noise(at, 9000)).await,
                            1 => pool.write(name(n), at * 100, noise(at, 700)).await,
                            2 => pool.exec(name(n), vec![xattr(ops::SET_XATTR, "color", &dice[..1])]).await,
                            3 => {
                                pool.exec(name(n), vec![set_omap(&[(format!("k{at}"), noise(at, 30))])]).await
                            }
                            _ => pool.remove(name(n)).await,
                        };
                    }
                })
            })
            .collect();
        let mut deep = false;
        while !writers.iter().all(|writer| writer.is_done()) {
            deep = !deep;
            ask(&cluster, deep, false);
            cluster.pass(Duration::from_millis(10));
        }
        assert_eq!(scrub(&cluster, true, false), 0);
        assert_eq!(cluster.counter(&[0], "scrub_errors"), 0);
        let scrubs = cluster.counter(&[0], "scrubs");
        assert!(scrubs > 5, "{scrubs} scrubs");
        cluster.check_equal(&[0, 1, 2]);
    }
}

/// While an object is looked at its writes wait; others are served, and so are reads of this one.
#[test]
fn only_writes_of_what_is_compared_wait() {
    const BIG: usize = 5 << 20;
    let cluster = Cluster::start(41, Disks::Blue, 2, 1, &[1, 1]);
    cluster.scrub.borrow_mut().bytes_per_second = 4 << 20;
    (0..2).for_each(|osd| kill(&cluster, osd));
    (0..2).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(2);
    place(&cluster, 1, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write_full("a", noise(1, BIG)).await.unwrap();
        pool.write_full("b", noise(2, BIG)).await.unwrap();
    });
    ask(&cluster, true, false);
    cluster.wait("the scrub", || reported(&cluster).scrubbing);
    let times = |write: bool| {
        ["a", "b"].map(|name| {
            let begin = cluster.sim.now_ns();
            cluster.client(RouteMode::Direct, move |_, pool| async move {
                match write {
                    true => drop(pool.write(name, 0, b"new".to_vec()).await.unwrap()),
                    false => drop(pool.read(name, 0, 100).await.unwrap()),
                }
            });
            Duration::from_nanos(cluster.sim.now_ns() - begin)
        })
    };
    let quick = Duration::from_millis(100);
    assert!(times(false).iter().all(|time| *time < quick), "reads wait");
    let before = reported(&cluster).scrubbing;
    let writes = cluster.background(RouteMode::Direct, |_, pool| async move {
        let shard = pool.client().shard().clone();
        let mut times = Vec::new();
        for name in ["a", "b"] {
            let begin = shard.now_ns();
            pool.write(name, 0, b"new".to_vec()).await.unwrap();
            times.push(Duration::from_nanos(shard.now_ns() - begin));
        }
        times
    });
    cluster.wait("the writes", || writes.is_done());
    let times = writes.result();
    assert!(before && times.iter().any(|time| *time > quick), "no write waited: {times:?}");
    assert!(times.iter().any(|time| *time < quick), "all writes waited: {times:?}");
    cluster.wait("the end", || !reported(&cluster).scrubbing);
    assert_eq!(reported(&cluster).errors, 0);
}

/// A new interval ends a scrub; one that was asked for begins anew when its primary leads again, and not otherwise.
#[test]
fn a_new_interval_ends_a_scrub() {
    let cluster = start(51, 3, 1);
    cluster.scrub.borrow_mut().bytes_per_second = 1 << 20;
    (0..3).for_each(|osd| kill(&cluster, osd));
    (0..3).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(3);
    place(&cluster, 1, &[0, 1, 2]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write_full("a", noise(1, 4 << 20)).await.unwrap();
    });
    ask(&cluster, true, false);
    cluster.wait("the scrub", || reported(&cluster).scrubbing);
    kill(&cluster, 2);
    let write = cluster.background(RouteMode::Direct, |_, pool| async move {
        pool.write("a", 0, b"new".to_vec()).await.unwrap();
    });
    cluster.start_osd(2, 1);
    cluster.wait_up(3);
    cluster.wait("the write", || write.is_done());
    cluster.wait("the scrub's end", || {
        reported(&cluster).last.version.version > 0 && !reported(&cluster).scrubbing
    });
    assert_eq!(reported(&cluster).errors, 0);
    place(&cluster, 1, &[1, 0, 2]);
    cluster.pass(Duration::from_secs(5));
    assert_eq!(reported(&cluster), PgScrubs::default(), "who does not lead says nothing");
}

/// All members keep when the last scrubs were and what they left; the objects' names are known to their finder only.
#[test]
fn whoever_leads_next_knows_the_last_scrubs_also_after_a_restart() {
    let cluster = start(52, 3, 4);
    assert_eq!(scrub(&cluster, true, false), 0);
    let clean = reported(&cluster);
    assert_eq!(clean.last_clean, clean.last.time);
    let other = Step::Write { off: 4096, data: Payload::from(noise(99, 4096)) };
    tamper(&cluster, 3, vec![(1, oid(0), vec![other]), (1, oid(1), vec![Step::Truncate { size: 4096 }])]);
    assert_eq!(scrub(&cluster, true, false), 2);
    let last = reported(&cluster);
    assert_eq!(last.last_clean, clean.last.time, "the one before it left no errors");
    let knows = |osd: u32| {
        cluster.wait("a report", || reported_by(&cluster, osd) != PgScrubs::default());
        assert_eq!(reported_by(&cluster, osd), last, "osd.{osd}");
    };
    place(&cluster, 1, &[2, 1, 0]);
    knows(2);
    (0..3).for_each(|osd| kill(&cluster, osd));
    cluster.mon.pg_stats.borrow_mut().clear();
    (0..3).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(3);
    place(&cluster, 1, &[0, 1, 2]);
    knows(0);
    assert_eq!(listed(&cluster), Err(errno::ENOENT), "it has no list");
    // A scrub that does not read the data takes nothing back of what another primary found in it.
    assert_eq!(scrub(&cluster, false, false), 2);
    assert_eq!((reported(&cluster).last_deep, reported(&cluster).last == last.last), (last.last_deep, false));
    assert_eq!(scrub(&cluster, true, true), 0);
    place(&cluster, 1, &[1, 0, 2]);
    cluster.wait("a report", || reported_by(&cluster, 1) != PgScrubs::default());
    let told = reported_by(&cluster, 1);
    assert_eq!((told.errors, told.last_clean), (0, told.last.time));
}

/// A member that led alone while the others were away brings the news; so does one that was told last before a crash.
#[test]
fn the_newest_record_of_scrubs_wins() {
    let cluster = start(53, 3, 2);
    assert_eq!(scrub(&cluster, false, false), 0);
    (0..3).for_each(|osd| kill(&cluster, osd));
    let info = cluster.pg_info(2, PG);
    let scrubs = Scrubbed { count: info.scrubs.count + 1, errors: 7, ..info.scrubs };
    cluster.change_store(
        2,
        Transaction { info: Some(PgInfo { scrubs, ..info }.into()), ..Transaction::new(PG, 0) },
    );
    cluster.mon.pg_stats.borrow_mut().clear();
    (0..3).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(3);
    for leader in [0, 1] {
        place(&cluster, 1, &[leader, 1 - leader, 2]);
        cluster.wait("a report", || reported_by(&cluster, leader as u32).errors == 7);
    }
}

#[test]
fn scrubs_are_scheduled_and_repair_by_themselves_if_asked_to_and_a_flag_keeps_them_off() {
    let cluster = start(61, 2, 3);
    let second = Duration::from_secs(1);
    {
        let mut options = cluster.scrub.borrow_mut();
        (options.min_interval, options.max_interval, options.deep_interval) =
            (second * 10, second * 20, second * 30);
        options.auto_repair = true;
    }
    cluster
        .mon
        .changes_with(|map, inc| inc.new_flags = (map.flags | FLAG_NOSCRUB | FLAG_NODEEP_SCRUB) as i32);
    tamper(&cluster, 2, vec![(1, oid(0), vec![Step::Truncate { size: 4096 }])]);
    cluster.pass(second * 60);
    assert_eq!(cluster.counter(&[0], "scrubs"), 0, "the flags are set");
    cluster
        .mon
        .changes_with(|map, inc| inc.new_flags = (map.flags & !(FLAG_NOSCRUB | FLAG_NODEEP_SCRUB)) as i32);
    cluster.pass(second * 60);
    assert_eq!((reported(&cluster).errors, cluster.counter(&[0], "scrub_repaired")), (0, 1));
    assert!(cluster.counter(&[0], "scrubs") >= 3);
    cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool, 0).await });
    cluster.check_equal(&[0, 1]);
}

/// Clones are compared and repaired like heads; a head and clones that contradict each other are told.
#[test]
fn clones_are_scrubbed_with_their_heads() {
    let cluster = start(58, 2, 8);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..8 {
            pool.with_snaps(2, &[2, 1]).write(name(n), 100, vec![7; 50]).await.unwrap();
        }
        pool.with_snaps(3, &[3, 2, 1]).remove(name(7)).await.unwrap();
    });
    let clone = |n| ObjectId { snap: 2, ..oid(n) };
    assert_eq!(scrub(&cluster, true, false), 0);
    let harms = vec![(1, clone(3), vec![Step::Remove]), (1, clone(4), vec![Step::Truncate { size: 5 }])];
    tamper(&cluster, 2, harms);
    assert_eq!(scrub(&cluster, true, false), 2);
    assert_eq!(scrub(&cluster, true, true), 0);
    cluster.check_equal(&[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..8 {
            check(&pool.at_snap(1), n).await;
        }
    });
    assert_eq!(listed_sets(&cluster).0, 0);
    // Nobody can bring back a clone that is gone everywhere.
    tamper(&cluster, 2, (0..2).map(|osd| (osd, clone(3), vec![Step::Remove])).collect());
    assert_eq!(scrub(&cluster, false, true), 1);
    let (count, answer) = listed_sets(&cluster);
    assert!(count == 1 && has(&answer, &name(3)), "the head that misses its clone");
    // Nor tell whether a damaged head or its clone is right: both are listed, and a head that does not know its clone.
    let damage = |value: &[u8]| Step::SetXattr { name: SNAPSET.into(), value: Bytes::from(value.to_vec()) };
    let forget = SnapSet::default().encode();
    let harms =
        (0..2).flat_map(|osd| [(osd, oid(4), vec![damage(b"?")]), (osd, oid(5), vec![damage(&forget)])]);
    tamper(&cluster, 2, harms.collect());
    assert_eq!(scrub(&cluster, false, true), 4, "one of 3 and 5, two of 4");
    let (count, answer) = listed_sets(&cluster);
    assert_eq!(count, 5);
    assert!([3, 4, 5].iter().all(|n| has(&answer, &name(*n))));
}
