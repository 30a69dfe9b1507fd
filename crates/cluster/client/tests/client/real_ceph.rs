//! Against a real Ceph 16.2.15, whose monitor `CARMINE_CEPH_MON` names:
//! `CARMINE_CEPH_MON=127.0.0.1:3300 cargo test -p carmine-client -- --ignored`.
//! The pool is `CARMINE_CEPH_POOL`, or `bench`.

use carmine_client::{Client, Options};
use carmine_messenger::with_timeout;
use carmine_reactor::{Config, Payload, PollPolicy, Shard, block_on};
use carmine_types::errno::{EEXIST, ENOENT};
use carmine_wire::osd_op::OsdOp;
use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

#[test]
#[ignore = "needs a running Ceph: CARMINE_CEPH_MON=IP:PORT"]
fn reads_writes_and_lists() {
    let mon =
        std::env::var("CARMINE_CEPH_MON").expect("CARMINE_CEPH_MON names the monitor of a running Ceph");
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("real-ceph", 1) };
    let done = block_on(config, async |shard: Shard| {
        let options = Options { op_timeout: Some(Duration::from_secs(10)), ..Options::default() };
        let client = Client::connect(&shard, &mon.parse::<std::net::SocketAddr>().unwrap().into(), options)
            .await
            .unwrap();
        with_timeout(&shard, Duration::from_secs(60), everything(client)).await.is_some()
    });
    assert!(done.unwrap(), "it took more than a minute");
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + (at >> 8)) as u8).collect()
}

async fn everything(client: Rc<Client>) {
    let name = std::env::var("CARMINE_CEPH_POOL").unwrap_or_else(|_| "bench".to_owned());
    assert!(client.pool("no such pool").is_err());
    assert!(client.wait_pool("no such pool").await.is_err());
    let pool = client.pool(&name).unwrap();
    for object in pool.list_all_namespaces().await.unwrap() {
        pool.in_namespace(&object.nspace).remove(&object.name).await.unwrap();
    }
    one_object(&pool).await;
    large_objects(&pool).await;
    listing(&pool).await;
    in_parallel(&pool).await;
    mon(&client).await;
    osd_down(&client, &pool).await;
}

async fn one_object(pool: &carmine_client::Pool) {
    assert_eq!(pool.read("obj", 0, 10).await.unwrap_err().errno(), ENOENT);
    assert_eq!(pool.remove("obj").await.unwrap_err().errno(), ENOENT);
    let written = pool.write("obj", 0, pattern(1, 4096)).await.unwrap();
    assert!(written.version.version > 0 && written.user_version == written.version.version);
    assert_eq!(pool.read("obj", 0, 0).await.unwrap().to_vec(), pattern(1, 4096));
    assert_eq!(pool.read("obj", 4000, 4096).await.unwrap().to_vec(), pattern(1, 4096)[4000..]);
    pool.write("obj", 8192, b"tail".to_vec()).await.unwrap();
    let stat = pool.stat("obj").await.unwrap();
    assert_eq!(stat.size, 8196);
    let now = pool.client().shard().unix_now().as_secs();
    assert!((now - 60..=now + 60).contains(&u64::from(stat.mtime.sec)));
    assert_eq!(pool.read("obj", 4096, 4096).await.unwrap().to_vec(), vec![0; 4096]);
    pool.zero("obj", 0, 100).await.unwrap();
    pool.truncate("obj", 200).await.unwrap();
    let expected = [vec![0; 100], pattern(1, 200)[100..].to_vec()].concat();
    assert_eq!(pool.read("obj", 0, 0).await.unwrap().to_vec(), expected);
    assert_eq!(pool.create("obj", true).await.unwrap_err().errno(), EEXIST);
    pool.write_full("obj", b"all new".to_vec()).await.unwrap();
    let both = vec![(OsdOp::stat(), Payload::new()), (OsdOp::read(4, 3), Payload::new())];
    let mut reply = pool.exec("obj", both).await.unwrap();
    assert_eq!(reply.take_data(1).to_vec(), b"new");
    assert_eq!(reply.take_data(0).to_vec()[..8], 7_u64.to_le_bytes());
    pool.remove("obj").await.unwrap();
    assert!(pool.stat("obj").await.unwrap_err().is_not_found());
}

async fn large_objects(pool: &carmine_client::Pool) {
    for len in [1 << 20, (4 << 20) + 1, 12_000_000] {
        let data = pattern(len, len);
        pool.write_full("large", data.clone()).await.unwrap();
        assert!(pool.read("large", 0, 0).await.unwrap().to_vec() == data, "{len}");
    }
    pool.remove("large").await.unwrap();
}

async fn listing(pool: &carmine_client::Pool) {
    let other = pool.in_namespace("other");
    assert_eq!(pool.list().await.unwrap(), []);
    let names: BTreeSet<String> = (0..100).map(|n| format!("object-{n}")).collect();
    for name in &names {
        pool.create(name, true).await.unwrap();
    }
    other.write_full("elsewhere", b"x".to_vec()).await.unwrap();
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let listed: Vec<String> = pool.list().await.unwrap().iter().map(|object| text(&object.name)).collect();
    assert_eq!(listed.len(), names.len(), "each exactly once");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    assert_eq!(other.list().await.unwrap().len(), 1);
    assert_eq!(pool.list_all_namespaces().await.unwrap().len(), 101);
    // In small pages.
    let mut cursor = carmine_client::Cursor::start();
    let mut paged = BTreeSet::new();
    while !cursor.is_end() {
        let page = pool.list_page(&cursor, 2).await.unwrap();
        assert!(page.objects.len() <= 2);
        paged.extend(page.objects.iter().map(|object| text(&object.name)));
        cursor = page.cursor;
    }
    assert_eq!(paged, names);
    for name in &names {
        pool.remove(name).await.unwrap();
    }
    other.remove("elsewhere").await.unwrap();
}

/// More operations than may be in flight.
async fn in_parallel(pool: &carmine_client::Pool) {
    let shard = pool.client().shard().clone();
    let left = Rc::new(std::cell::Cell::new(2000));
    for n in 0..2000_usize {
        let (pool, left) = (pool.clone(), Rc::clone(&left));
        shard.spawn(carmine_reactor::Group::Client, "parallel", async move {
            let name = format!("parallel-{}", n % 50);
            pool.write(&name, (n as u64 / 50) * 4096, pattern(n, 4096)).await.unwrap();
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        shard.sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(pool.client().in_flight(), 0);
    for n in 0..50 {
        let data = pool.read(format!("parallel-{n}"), 0, 0).await.unwrap().to_vec();
        let expected: Vec<u8> = (0..40).flat_map(|block| pattern(n + block * 50, 4096)).collect();
        assert!(data == expected, "object {n}");
        pool.remove(format!("parallel-{n}")).await.unwrap();
    }
}

async fn mon(client: &Rc<Client>) {
    let pools = client.mon_command(r#"{"prefix": "osd pool ls"}"#).await.unwrap();
    assert!(String::from_utf8(pools.data).unwrap().lines().count() >= 1);
    let error = client.mon_command(r#"{"prefix": "no such command"}"#).await.unwrap_err();
    assert!(error.errno() < 0, "{error}");
    let space = client.mon().statfs(None, Duration::from_secs(10)).await.unwrap();
    assert!(space.fsid == client.mon().fsid());
    let map = client.wait_newest_map().await.unwrap();
    assert!(map.epoch >= client.osdmap().unwrap().epoch);
    assert!(client.global_id() > 0);
    // A change of the map reaches us by itself: the subscription is for good.
    let before = map.epoch.0;
    client.mon_command(r#"{"prefix": "osd set", "key": "noscrub"}"#).await.unwrap();
    client.mon_command(r#"{"prefix": "osd unset", "key": "noscrub"}"#).await.unwrap();
    let after = carmine_types::Epoch(before + 1);
    client.mon().wait_for_map(after, Duration::from_secs(20)).await.unwrap();
}

/// The map says that the OSD is down; it protests and comes back, with other epochs. Nothing is lost, and the operations on
/// each object keep their order.
async fn osd_down(client: &Rc<Client>, pool: &carmine_client::Pool) {
    const OBJECTS: usize = 16;
    const ROUNDS: usize = 60;
    let shard = client.shard().clone();
    let left = Rc::new(std::cell::Cell::new(OBJECTS));
    let started = client.osdmap().unwrap().epoch.0;
    for object in 0..OBJECTS {
        let (pool, left, shard) =
            (pool.with_timeout(Some(Duration::from_secs(40))), Rc::clone(&left), shard.clone());
        shard.clone().spawn(carmine_reactor::Group::Client, "writer", async move {
            let name = format!("steady-{object}");
            for round in 0..ROUNDS {
                // Two in flight on one object: the second must win.
                let first = pool.write(&name, 0, pattern(round, 4096));
                let second = pool.write(&name, 0, pattern(round + 1000, 4096));
                let (first, second) = both(first, second).await;
                assert!(first.unwrap().version < second.unwrap().version);
                assert!(pool.read(&name, 0, 0).await.unwrap().to_vec() == pattern(round + 1000, 4096));
                shard.sleep(Duration::from_millis(20)).await;
            }
            pool.remove(&name).await.unwrap();
            left.set(left.get() - 1);
        });
    }
    for _ in 0..2 {
        shard.sleep(Duration::from_millis(300)).await;
        client.mon_command(r#"{"prefix": "osd down", "ids": ["0"]}"#).await.unwrap();
    }
    while left.get() > 0 {
        shard.sleep(Duration::from_millis(5)).await;
    }
    assert!(client.osdmap().unwrap().epoch.0 >= started + 2);
}

/// Both results; the first is polled first.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut done_a, mut done_b) = (None, None);
    std::future::poll_fn(|cx| {
        use std::task::Poll::{Pending, Ready};
        if done_a.is_none()
            && let Ready(value) = a.as_mut().poll(cx)
        {
            done_a = Some(value);
        }
        if done_b.is_none()
            && let Ready(value) = b.as_mut().poll(cx)
        {
            done_b = Some(value);
        }
        if done_a.is_some() && done_b.is_some() { Ready(()) } else { Pending }
    })
    .await;
    (done_a.unwrap(), done_b.unwrap())
}
