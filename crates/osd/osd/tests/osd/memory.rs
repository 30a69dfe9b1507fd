//! Memory that requests bring in is bounded, for each request and for all of them together.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_reactor::{Group, Payload};
use carmine_types::errno;
use carmine_wire::Encoder;
use carmine_wire::osd_op::{NotifyDone, OsdOp, WatchNotify, flags, ops};

use super::cluster::{Cluster, Disks, noise};
use super::raw::Raw;

const MIB: u64 = 1 << 20;

fn no_input(op: OsdOp) -> (OsdOp, Payload) {
    (op, Payload::new())
}

/// Runs operations of one request; its errno, or the bytes of their outputs.
async fn outputs(pool: &Pool, ops: Vec<(OsdOp, Payload)>) -> Result<Vec<usize>, i32> {
    let count = ops.len();
    let mut reply = pool.exec("long", ops).await.map_err(|error| error.errno())?;
    Ok((0..count).map(|at| reply.take_data(at).len()).collect())
}

fn copy(from: &str) -> (OsdOp, Payload) {
    let input = Encoder::collect(|e| {
        e.str(from);
        e.envelope(6, 3, |e| {
            e.i64(super::mon::POOL_ID);
            e.i32(-1);
            e.blob(b"");
            e.blob(b"");
            e.i64(-1);
        });
    });
    let mut op = OsdOp::with_payload(ops::COPY_FROM, 0);
    op.arg[..8].copy_from_slice(&carmine_types::SNAP_HEAD.to_le_bytes());
    (op, Payload::from(input))
}

/// A real Ceph gave 89 MiB at once.
#[test]
fn one_request_gets_96_mib_and_no_more() {
    for (seed, route) in [(61, RouteMode::Direct), (62, RouteMode::Single)] {
        let cluster = Cluster::start(seed, Disks::Cyan, 1, 8, &[2]);
        cluster.client(route, |_, pool| async move {
            pool.truncate("none", 1).await.unwrap();
            pool.write("long", 100 * MIB - 4, b"tail".to_vec()).await.unwrap();
            let read = |off: u64, len: u64| no_input(OsdOp::read(off * MIB, len * MIB));
            assert_eq!(outputs(&pool, vec![read(0, 90)]).await, Ok(vec![90 << 20]));
            assert_eq!(outputs(&pool, vec![read(4, 0)]).await, Ok(vec![96 << 20]), "up to the end");
            assert_eq!(outputs(&pool, vec![read(4, 200)]).await, Ok(vec![96 << 20]));
            assert_eq!(outputs(&pool, vec![read(3, 0)]).await, Err(errno::EMSGSIZE));
            assert_eq!(outputs(&pool, vec![read(0, 97)]).await, Err(errno::EMSGSIZE));
            assert_eq!(outputs(&pool, vec![read(0, 48), read(0, 48)]).await, Ok(vec![48 << 20; 2]));
            assert_eq!(outputs(&pool, vec![read(0, 48), read(0, 49)]).await, Err(errno::EMSGSIZE));
            assert_eq!(outputs(&pool, vec![read(0, 64); 64]).await, Err(errno::EMSGSIZE));
            // Patterns that are written over and over count as well.
            let pattern = || (OsdOp::write_same_op(0, 90 * MIB, 4), Payload::from(b"abcd".to_vec()));
            assert_eq!(outputs(&pool, vec![pattern(), pattern()]).await, Err(errno::EMSGSIZE));
            assert_eq!(outputs(&pool, vec![pattern()]).await, Ok(vec![0]));
            assert_eq!(pool.read("long", 90 * MIB - 4, 8).await.unwrap().to_vec(), b"abcd\0\0\0\0");
            let odd = (OsdOp::write_same_op(3, 1_000_002, 3), Payload::from(b"xyz".to_vec()));
            assert_eq!(outputs(&pool, vec![odd]).await, Ok(vec![0]));
            let text = pool.read("long", 0, 1_000_006).await.unwrap().to_vec();
            let expected = [b"abc".to_vec(), b"xyz".repeat(333_334), b"b".to_vec()].concat();
            assert!(text == expected, "from {:?} to {:?}", &text[..8], &text[text.len() - 8..]);
        });
    }
}

/// A name that is asked for a thousand times is answered once, as by Ceph.
#[test]
fn omap_values_come_once_however_often_they_are_asked_for() {
    let cluster = Cluster::start(63, Disks::Cyan, 1, 1, &[1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        let set = Encoder::collect(|e| {
            e.count(2);
            for (name, len) in [("a", 10), ("b", 200_000)] {
                e.str(name);
                e.blob(&vec![7; len]);
            }
        });
        pool.exec("o", vec![(OsdOp::with_payload(ops::OMAP_SET_VALS, 0), set.into())]).await.unwrap();
        let ask = Encoder::collect(|e| {
            e.count(1_001);
            (0..1_000).for_each(|_| e.str("b"));
            e.str("a");
        });
        let ask = (OsdOp::with_payload(ops::OMAP_GET_VALS_BY_KEYS, 0), Payload::from(ask));
        let found = pool.exec("o", vec![ask]).await.unwrap().take_data(0).to_vec();
        assert_eq!(found.len(), 4 + (4 + 1 + 4 + 10) + (4 + 1 + 4 + 200_000));
        assert_eq!(found[4..9], [1, 0, 0, 0, b'a'], "in order");
    });
}

/// The bytes that the OSD counts as held, on all shards.
fn used_bytes(cluster: &Cluster) -> u64 {
    cluster.pass(Duration::from_secs(6)); // it is noted at every look
    cluster.counter(&[0], "request_bytes")
}

/// Requests of all sizes from several clients, on an OSD that has room for very few: each is answered, in the end nothing is
/// counted as held, and a client with small requests is not stopped by the others.
#[test]
fn everybody_gets_through_with_little_memory() {
    for (seed, route) in [(64, RouteMode::Direct), (65, RouteMode::Single)] {
        let cluster = Cluster::with_memory(seed, Disks::Cyan, 1, 8, &[2], 1 << 20);
        let done = Rc::new(Cell::new(0));
        let clients: Vec<_> = (0..4u64)
            .map(|n| {
                let done = Rc::clone(&done);
                cluster.background(route, move |client, pool| async move {
                    let shard = client.shard().clone();
                    for at in 0..3 {
                        let (pool, done) = (pool.clone(), Rc::clone(&done));
                        shard.spawn(Group::Client, "work", async move {
                            work(&pool, seed, n * 3 + at).await;
                            done.set(done.get() + 1);
                        });
                    }
                    while done.get() < 12 {
                        shard.sleep(Duration::from_millis(1)).await;
                    }
                })
            })
            .collect();
        cluster.wait("all clients", || clients.iter().all(super::cluster::Running::is_done));
        assert_eq!(used_bytes(&cluster), 0);
    }
}

async fn work(pool: &Pool, seed: u64, n: u64) {
    let (own, next) = (format!("o{n}"), format!("o{}", (n + 1) % 12));
    let data = noise(seed + n, 5 << 20);
    pool.write_full(&own, data.clone()).await.unwrap();
    for round in 0..2 {
        assert!(pool.read(&own, 0, 0).await.unwrap().to_vec() == data, "the whole of {own}");
        assert!(pool.read(&own, 1 << 20, 2 << 20).await.unwrap().to_vec() == data[1 << 20..3 << 20]);
        pool.write("all", n << 12, noise(n, 4096)).await.unwrap();
        assert!(pool.read("all", n << 12, 4096).await.unwrap().to_vec() == noise(n, 4096));
        // A copy may meet one that waits for it.
        let copied = pool.exec(format!("copy{n}-{round}"), vec![copy(&next)]).await;
        assert!(copied.is_ok() || copied.is_err_and(|error| error.is_not_found()));
        pool.exec(format!("same{n}"), vec![(OsdOp::write_same_op(0, 2 * MIB, 1), Payload::from(vec![9]))])
            .await
            .unwrap();
    }
}

/// A client that takes all the room and reads nothing is disconnected when others wait for it, and not before.
#[test]
fn a_client_that_does_not_read_loses_the_room() {
    for (seed, reactors) in [(67, 1), (68, 2)] {
        let cluster = Cluster::with_memory(seed, Disks::Cyan, 1, 8, &[reactors], 1 << 20);
        cluster.client(RouteMode::Single, |_, pool| async move {
            pool.write_full("o", noise(1, 8 << 20)).await.unwrap();
        });
        let silent = Raw::silent(&cluster, 0, 21);
        let read = silent.request(&cluster, "o", OsdOp::read(0, 8 << 20));
        (1..=30).for_each(|tid| silent.send(&read, b"", tid));
        cluster.pass(Duration::from_secs(20));
        assert!(used_bytes(&cluster) > 8 << 20, "nobody else wants the room");
        // A small request is answered all the same, at once; a large one gets the room, on every reactor.
        let from = cluster.sim.now_ns();
        cluster.client(RouteMode::Single, |_, pool| async move {
            assert_eq!(pool.read("o", 0, 4096).await.unwrap().len(), 4096);
        });
        assert!(cluster.sim.now_ns() - from < 1_000_000_000);
        assert!(used_bytes(&cluster) > 8 << 20);
        let from = cluster.sim.now_ns();
        let others: Vec<_> = (0..4)
            .map(|n| {
                // Over connections to each reactor, so that one of them meets the silent client.
                cluster.background(RouteMode::Direct, move |_, pool| async move {
                    for at in 0..4 {
                        pool.write_full(format!("other{n}-{at}"), noise(n, 2 << 20)).await.unwrap();
                    }
                })
            })
            .collect();
        cluster.wait("the others", || others.iter().all(super::cluster::Running::is_done));
        assert!(cluster.sim.now_ns() - from < 15_000_000_000);
        assert_eq!(used_bytes(&cluster), 0);
    }
}

/// Answers to a notification that there is no room for are missed, and its sender is told so at once.
#[test]
fn answers_to_a_notification_are_bounded() {
    const WATCHES: u64 = 20;
    let cluster = Cluster::start(69, Disks::Cyan, 1, 1, &[2]);
    let raw = Raw::new(&cluster, 0);
    let tid = Cell::new(0);
    let ask = |op: OsdOp, data: &[u8]| {
        tid.set(tid.get() + 1);
        let answer = raw.ask(&cluster, raw.request(&cluster, "o", op), data, tid.get()).expect("an answer");
        assert_eq!(answer.result, 0);
        answer.data
    };
    ask(OsdOp::create(false), b"");
    for cookie in 0..WATCHES {
        ask(OsdOp::watch_op(flags::watch::WATCH, cookie, 600), b"");
    }
    let text = noise(5, 1_000_000);
    for _ in 0..2 {
        let input = Encoder::collect(|e| {
            e.u32(1);
            e.u32(300);
            e.blob(&text);
        });
        let from = cluster.sim.now_ns();
        let id = ask(OsdOp::notify_op(7, input.len() as u32), &input);
        let id = u64::from_le_bytes(id.try_into().unwrap());
        let mut events = Vec::new();
        cluster.wait("all watchers", || {
            events.extend(raw.take_events());
            events.len() as u64 == WATCHES
        });
        let cookies: Vec<u64> = events.iter().map(|(event, _)| event.cookie).collect();
        assert_eq!(cookies, (0..WATCHES).collect::<Vec<_>>());
        assert!(events.iter().all(|(event, _)| event.payload == text && event.notify_id == id));
        for cookie in 0..WATCHES {
            let input = Encoder::collect(|e| {
                e.u64(id);
                e.u64(cookie);
                e.blob(&text);
            });
            ask(OsdOp::with_payload(ops::NOTIFY_ACK, input.len() as u32), &input);
        }
        cluster.wait("the end", || raw.has_events());
        let (event, data) = raw.take_events().remove(0);
        assert_eq!((event.op, event.result), (WatchNotify::DONE, errno::ETIMEDOUT));
        let done = NotifyDone::decode(&data).unwrap();
        assert!(done.acked.iter().all(|(_, answer)| *answer == text));
        assert_eq!((done.acked.len(), done.missed.len()), (16, 4), "16 MiB of answers");
        assert!(cluster.sim.now_ns() - from < 10_000_000_000, "long before its time is over");
    }
}
