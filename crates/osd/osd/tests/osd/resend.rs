//! Requests that come too early, in the wrong place, or again.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::{Epoch, ObjectId, OsdId, UTime, errno};
use carmine_wire::osd_op::{OsdOp, OsdRequest, flags};
use carmine_wire::osdmap::PgPool;
use carmine_wire::osdmap::consts::{POOL_FULL, POOL_FULL_QUOTA};

use super::cluster::{Cluster, Disks};
use super::mon::POOL_ID;
use super::peering::place;
use super::raw::{Answer, Raw};

/// A client may have a new pool's map before the OSD has it: the requests wait, wherever their PGs will be.
#[test]
fn requests_wait_for_the_map_that_they_were_sent_with() {
    for seed in 0..4 {
        let cluster = Cluster::start(seed, Disks::Cyan, 1, 8, &[3]);
        let raw = Raw::new(&cluster, 0);
        cluster.mon.deaf.borrow_mut().push(0);
        let before = cluster.mon.map().epoch;
        cluster.mon.change(|inc| {
            inc.new_pools.insert(2, PgPool::replicated(1, 1, 16, 0, Epoch(1), UTime::ZERO));
            inc.new_pool_names.insert(2, "second".into());
            inc.new_pool_max = 2;
        });
        cluster.wait("the new pool", || cluster.mon.map().epoch > before);
        for n in 0..40 {
            let request = raw.request_in(&cluster, 2, &format!("o{n}"), OsdOp::write(0, 1));
            raw.send(&request, b"x", n);
        }
        // And one for an old PG, with the new epoch.
        raw.send(&raw.request(&cluster, "old", OsdOp::write(0, 1)), b"x", 40);
        cluster.pass(Duration::from_millis(100));
        assert!((0..41).all(|tid| raw.answers(tid).is_empty()));
        cluster.mon.hear();
        cluster.wait("all answers", || (0..41).all(|tid| !raw.answers(tid).is_empty()));
        assert!((0..41).all(|tid| raw.answers(tid)[0].result == 0));
    }
}

/// Requests that this OSD does not lead are dropped; that must not use up the connection, on whatever reactor they end.
#[test]
fn dropped_requests_give_their_room_back() {
    let cluster = Cluster::start(7, Disks::Cyan, 2, 16, &[2, 2]);
    let raw = Raw::new(&cluster, 0);
    let map = cluster.mon.map();
    let view = carmine_crush::MapView::new(map);
    let leads = |name: &str, osd: u32| {
        let oid = ObjectId::head(POOL_ID, b"", b"", name.as_bytes());
        let pg = view.object_pg(POOL_ID, b"", b"", &oid.name).unwrap();
        view.acting_primary(pg) == Some(OsdId(osd))
    };
    let names = || (0..).map(|n| format!("o{n}"));
    let others: Vec<String> = names().filter(|name| leads(name, 1)).take(6000).collect();
    for (n, name) in others.iter().enumerate() {
        raw.send(&raw.request(&cluster, name, OsdOp::write(0, 1)), b"x", n as u64);
    }
    let ours: Vec<String> = names().filter(|name| leads(name, 0)).take(20).collect();
    for (n, name) in ours.iter().enumerate() {
        let answer =
            raw.ask(&cluster, raw.request(&cluster, name, OsdOp::write(0, 1)), b"x", 10_000 + n as u64);
        assert_eq!(answer.unwrap().result, 0);
    }
    assert!((0..6000).all(|tid| raw.answers(tid).is_empty()));
}

/// The same request again, on the same and on another connection: applied once, answered each time, with the attempt's
/// number.
#[test]
fn a_resend_is_answered_and_not_applied_again() {
    let cluster = Cluster::start(8, Disks::Cyan, 2, 8, &[2, 2]);
    let raw = Raw::new(&cluster, 0);
    let view = carmine_crush::MapView::new(cluster.mon.map());
    let names = (0..).map(|n| format!("o{n}"));
    let is_ours = |name: &String| {
        let pg = view.object_pg(POOL_ID, b"", b"", name.as_bytes()).unwrap();
        view.acting_primary(pg) == Some(OsdId(0))
    };
    let name = names.into_iter().find(is_ours).unwrap();
    let mut append = raw.request(&cluster, &name, OsdOp::append(3));
    let first = raw.ask(&cluster, append.clone(), b"abc", 5).unwrap();
    assert_eq!((first.result, first.retry_attempt), (0, 0));
    append.retry_attempt = 1;
    let second = raw.ask(&cluster, append.clone(), b"abc", 5).unwrap();
    assert_eq!((second.result, second.retry_attempt, second.version), (0, 1, first.version));
    let other = Raw::new(&cluster, 0);
    append.retry_attempt = 2;
    // Twice in a row: the second joins the first.
    other.send(&append, b"abc", 5);
    let third = other.ask(&cluster, append, b"abc", 5).unwrap();
    assert_eq!((third.result, third.retry_attempt, third.version), (0, 2, first.version));
    let data = raw.ask(&cluster, raw.request(&cluster, &name, OsdOp::read(0, 0)), b"", 6).unwrap();
    assert_eq!(data.data, b"abc");
    // A new request, sent many times at once.
    let append = raw.request(&cluster, &name, OsdOp::append(3));
    (0..10).for_each(|_| raw.send(&append, b"def", 7));
    cluster.wait("ten answers", || raw.answers(7).len() == 10);
    assert!(raw.answers(7).iter().all(|answer| *answer == raw.answers(7)[0]));
    let data = raw.ask(&cluster, raw.request(&cluster, &name, OsdOp::read(0, 0)), b"", 8).unwrap();
    assert_eq!(data.data, b"abcdef");
    assert!(cluster.counter(&[0], "dups") >= 12);
}

/// Two OSDs of which osd.0 leads every PG, and then, if asked, osd.1.
fn led_by(cluster: &Cluster, first: i32) {
    place(cluster, 4, &[first, 1 - first]);
    cluster.pass(Duration::from_millis(200));
}

/// A request that was sent before another OSD led for a while is late: its client sends it again, with those before it that were
/// dropped then (`carmine sim --seed 756`).
#[test]
fn a_request_from_before_another_primary_is_dropped() {
    let cluster = Cluster::start(12, Disks::Blue, 2, 4, &[2, 2]);
    led_by(&cluster, 0);
    let raw = Raw::new(&cluster, 0);
    let late = raw.request(&cluster, "a", OsdOp::append(1));
    led_by(&cluster, 1);
    led_by(&cluster, 0);
    assert!(raw.ask(&cluster, late.clone(), b"2", 2).is_none(), "it is dropped");
    let again = OsdRequest { epoch: cluster.mon.map().epoch, retry_attempt: 1, ..late };
    assert_eq!(raw.ask(&cluster, raw.request(&cluster, "a", OsdOp::append(1)), b"1", 1).unwrap().result, 0);
    assert_eq!(raw.ask(&cluster, again, b"2", 2).unwrap().result, 0);
    let data = raw.ask(&cluster, raw.request(&cluster, "a", OsdOp::read(0, 0)), b"", 3).unwrap().data;
    assert_eq!(data, b"12");
}

/// A write that failed did so once and for all: sent again, on whatever connection, after a restart, or to another primary,
/// it is answered the same, and has no effect on what was written after it.
#[test]
fn a_failed_write_is_answered_the_same_when_it_is_sent_again() {
    let cluster = Cluster::start(10, Disks::Blue, 2, 4, &[2, 2]);
    led_by(&cluster, 0);
    let raw = Raw::new(&cluster, 0);
    let delete = raw.request(&cluster, "a", OsdOp::delete());
    let create = raw.request(&cluster, "b", OsdOp::create(true));
    let hint = raw.request(&cluster, "a", OsdOp::truncate(0));
    let first_hint = raw.ask(&cluster, hint.clone(), b"", 4).unwrap();
    assert_eq!(first_hint.result, 0, "nothing is made by truncating what does not exist");
    let first_delete = raw.ask(&cluster, delete.clone(), b"", 5).unwrap();
    assert_eq!(first_delete.result, errno::ENOENT);
    assert_eq!(raw.ask(&cluster, raw.request(&cluster, "b", OsdOp::write(0, 1)), b"x", 6).unwrap().result, 0);
    let first_create = raw.ask(&cluster, create.clone(), b"", 7).unwrap();
    assert_eq!(first_create.result, errno::EEXIST);
    assert_eq!(raw.ask(&cluster, raw.request(&cluster, "b", OsdOp::delete()), b"", 8).unwrap().result, 0);
    assert_eq!(
        raw.ask(&cluster, raw.request(&cluster, "a", OsdOp::write(0, 3)), b"new", 9).unwrap().result,
        0
    );

    let same_again = |osd: u32, attempt: i32| {
        let raw = Raw::new(&cluster, osd);
        for (request, tid, first) in
            [(&hint, 4, &first_hint), (&delete, 5, &first_delete), (&create, 7, &first_create)]
        {
            let mut again = request.clone();
            (again.retry_attempt, again.epoch) = (attempt, cluster.mon.map().epoch);
            let answer = raw.ask(&cluster, again, b"", tid).unwrap();
            assert_eq!(
                (answer.result, answer.version),
                (first.result, first.version),
                "tid {tid} at osd.{osd}"
            );
        }
        let read = raw
            .ask(&cluster, raw.request(&cluster, "a", OsdOp::read(0, 0)), b"", 20 + u64::from(osd))
            .unwrap();
        assert_eq!((read.result, read.data), (0, b"new".to_vec()));
        let stat =
            raw.ask(&cluster, raw.request(&cluster, "b", OsdOp::stat()), b"", 30 + u64::from(osd)).unwrap();
        assert_eq!(stat.result, errno::ENOENT);
    };
    same_again(0, 1);
    led_by(&cluster, 1);
    same_again(1, 2);
    for osd in 0..2 {
        cluster.kill(osd);
        cluster.mon.down(osd);
    }
    (0..2).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(2);
    cluster.pass(Duration::from_secs(1));
    same_again(1, 3);
    cluster.check_equal(&[0, 1]);
}

/// Operations wait for a PG, and for a map, on every reactor; those of a client that is gone do so no longer.
#[test]
fn operations_of_a_dead_client_are_forgotten() {
    let cluster = Cluster::start(12, Disks::Blue, 2, 4, &[3, 1]);
    cluster.mon.min_size(2);
    led_by(&cluster, 0);
    cluster.kill(1);
    cluster.mon.down(1);
    cluster.wait("the map", || !cluster.mon.map().is_up(OsdId(1)));
    cluster.pass(Duration::from_millis(100));
    let (dead, alive) = (Raw::new(&cluster, 0), Raw::new(&cluster, 0));
    for n in 0..30u64 {
        let (dying, staying) = (format!("dead-{n}"), format!("alive-{n}"));
        dead.send(&dead.request(&cluster, &dying, OsdOp::write(0, 1)), b"x", n);
        alive.send(&alive.request(&cluster, &staying, OsdOp::write(0, 1)), b"x", 100 + n);
    }
    let mut early = dead.request(&cluster, "early", OsdOp::write(0, 1));
    early.epoch = Epoch(early.epoch.0 + 1000);
    dead.send(&early, b"x", 50);
    cluster.pass(Duration::from_millis(100));
    let waiting = || {
        let in_flight = cluster.ask(&[0], "dump_ops_in_flight").remove(0);
        let shards = in_flight["shards"].as_array().unwrap();
        let ops = shards.iter().flat_map(|shard| shard["ops"].as_array().unwrap());
        let stages: Vec<&str> = ops.map(|op| op["stage"].as_str().unwrap()).collect();
        let count = |stage| stages.iter().filter(|s| **s == stage).count();
        (count("waiting_for_pg"), count("waiting_for_map"))
    };
    assert_eq!(waiting(), (60, 1));
    dead.kill(&cluster);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(waiting(), (30, 0));
    cluster.start_osd(1, 1);
    cluster.wait("the answers", || (0..30).all(|n| alive.answers(100 + n).len() == 1));
    let listed = cluster.client(RouteMode::Direct, |_, pool| async move { pool.list().await.unwrap().len() });
    assert_eq!(listed, 30);
}

/// A client with an old map is sent the new one, once.
#[test]
fn maps_are_shared_with_clients_that_are_behind() {
    let cluster = Cluster::start(9, Disks::Cyan, 1, 8, &[2]);
    let raw = Raw::new(&cluster, 0);
    let mut request = raw.request(&cluster, "x", OsdOp::write(0, 1));
    let newest = request.epoch;
    request.epoch = Epoch(newest.0 - 1);
    for tid in 1..4 {
        assert_eq!(raw.ask(&cluster, request.clone(), b"x", tid).unwrap().result, 0);
        assert_eq!(raw.maps(), 1);
    }
    let raw = Raw::new(&cluster, 0);
    request.epoch = newest;
    assert_eq!(raw.ask(&cluster, request, b"x", 4).unwrap().result, 0);
    assert_eq!(raw.maps(), 0);
}

/// The results of a write's operations are told again when it is sent again; and a request that wants to run in
/// parallel is refused, as in Ceph, where it was never built.
#[test]
fn results_are_told_again_and_odd_flags_are_refused() {
    let cluster = Cluster::start(11, Disks::Cyan, 1, 8, &[1]);
    let raw = Raw::new(&cluster, 0);
    let method = b"hellowrite_return_data";
    let mut request = raw.request(&cluster, "o", OsdOp::call_method(5, 17, 0));
    request.flags = flags::CLIENT_WRITE | flags::RETURN_VEC;
    let first = raw.ask(&cluster, request.clone(), method, 1).unwrap();
    assert_eq!((first.result, first.data.as_slice()), (42, &b"you might see this"[..]));
    assert_eq!(raw.ask(&cluster, request.clone(), method, 1).unwrap(), first);
    let mut removal = raw.request(&cluster, "o", OsdOp::delete());
    removal.flags |= flags::PARALLEL_EXEC;
    assert_eq!(raw.ask(&cluster, removal, b"", 2).unwrap().result, errno::EINVAL);
    assert_eq!(raw.ask(&cluster, raw.request(&cluster, "o", OsdOp::stat()), b"", 3).unwrap().result, 0);
}

/// Results and outputs of a write's operations, and of one that failed, are in the log: whoever leads then tells them again, on
/// what the replica wrote down, and after a restart on what the store has.
#[test]
fn outputs_of_a_write_outlive_its_primary() {
    let cluster = Cluster::start(13, Disks::Blue, 2, 4, &[2, 2]);
    led_by(&cluster, 0);
    let raw = Raw::new(&cluster, 0);
    let returning = |name: &str, input: &[u8]| {
        let mut request = raw.request(&cluster, name, OsdOp::call_method(5, 17, input.len() as u32));
        request.flags = flags::CLIENT_WRITE | flags::RETURN_VEC;
        request.ops.insert(0, OsdOp::write(0, 1));
        request.ops.push(OsdOp::stat());
        (request, [b"xhellowrite_return_data", input].concat())
    };
    let (works, works_input) = returning("works", b"");
    let (fails, fails_input) = returning("fails", b"in");
    let (mut plain, plain_input) = returning("plain", b"");
    plain.flags = flags::CLIENT_WRITE;
    let requests = [(works, works_input, 1), (fails, fails_input, 2), (plain, plain_input, 3)];
    let first = requests
        .each_ref()
        .map(|(request, input, tid)| raw.ask(&cluster, request.clone(), input, *tid).unwrap());
    assert_eq!((first[0].result, &first[0].rvals[..], first[0].data.len()), (42, &[0, 42, 42][..], 18 + 16));
    assert_eq!((first[1].result, first[1].data.as_slice()), (errno::EINVAL, &b"too much input data!"[..]));
    assert_eq!((first[2].result, first[2].data.len()), (0, 0));

    let same_again = |osd: u32, attempt: i32| {
        let raw = Raw::new(&cluster, osd);
        for ((request, input, tid), first) in requests.iter().zip(&first).take(2) {
            let (epoch, retry_attempt) = (cluster.mon.map().epoch, attempt);
            let again = OsdRequest { epoch, retry_attempt, ..request.clone() };
            let answer = raw.ask(&cluster, again, input, *tid).unwrap();
            assert_eq!(Answer { retry_attempt: 0, ..answer }, *first, "tid {tid} at osd.{osd}");
        }
    };
    same_again(0, 1);
    led_by(&cluster, 1);
    same_again(1, 2);
    for osd in 0..2 {
        cluster.kill(osd);
        cluster.mon.down(osd);
    }
    (0..2).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(2);
    cluster.pass(Duration::from_secs(1));
    same_again(1, 3);
    led_by(&cluster, 0);
    same_again(0, 4);
    cluster.check_equal(&[0, 1]);
}

/// A client that wants to know it is told that a pool holds as much as it may; operations that take no room are done,
/// and the result of one that was done before is told again.
#[test]
fn a_full_pool_takes_nothing_of_who_does_not_wait() {
    let cluster = Cluster::start(12, Disks::Cyan, 1, 8, &[1]);
    let raw = Raw::new(&cluster, 0);
    let ask = |op: OsdOp, data: &[u8], tid: u64, flags: u32| {
        let mut request = raw.request(&cluster, "o", op);
        request.flags |= flags;
        raw.ask(&cluster, request, data, tid).unwrap().result
    };
    assert_eq!(ask(OsdOp::write_full(4), b"full", 1, flags::FULL_TRY), 0);
    let before = cluster.mon.map().epoch;
    cluster.mon.changes_with(|map, inc| {
        let old = map.pool(POOL_ID).unwrap().clone();
        let flags = old.flags | POOL_FULL | POOL_FULL_QUOTA;
        inc.new_pools.insert(POOL_ID, PgPool { flags, ..old });
    });
    cluster.wait("the full pool", || cluster.mon.map().epoch > before);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(ask(OsdOp::write_full(4), b"full", 1, flags::FULL_TRY), 0, "it was done before");
    assert_eq!(ask(OsdOp::append(1), b"x", 2, flags::FULL_TRY), errno::EDQUOT);
    assert_eq!(ask(OsdOp::append(1), b"x", 3, flags::FULL_TRY | flags::FULL_FORCE), 0);
    assert_eq!(ask(OsdOp::write(0, 1), b"x", 4, flags::FULL_TRY), 0, "no byte more");
    assert_eq!(ask(OsdOp::delete(), b"", 5, flags::FULL_TRY), 0);
}
