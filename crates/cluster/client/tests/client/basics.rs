//! The client when nothing goes wrong.

use super::common::{both, finish, pattern, start, until};
use super::fake::Cluster;
use carmine_client::{Client, ClientError, Cursor, Options};
use carmine_reactor::{Payload, Shard};
use carmine_types::errno::{EEXIST, EINVAL, ENOENT};
use carmine_types::{OsdId, UTime};
use carmine_wire::EntityAddr;
use carmine_wire::frame::DATA_BYTES_MAX;
use carmine_wire::osd_op::OsdOp;
use carmine_wire::osdmap::PgPool;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

both!(
    operations,
    listings,
    several_at_once,
    limits_in_flight,
    commands,
    admin_requests,
    nobody_there,
    new_pools
);

async fn operations(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 0).await;
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap();
    assert_eq!((pool.id(), pool.name()), (1, "data"));
    let missing = pool.read("obj", 0, 10).await.unwrap_err();
    assert_eq!(missing.errno(), ENOENT);
    assert_eq!(missing.to_string(), "read 0~10 of \"obj\" in pool 1: no such object or pool (ENOENT, -2)");
    let first = pool.write("obj", 0, pattern(1, 5000)).await.unwrap();
    assert_eq!((first.version.version, first.user_version), (1, 1));
    assert_eq!(pool.read("obj", 0, 0).await.unwrap().to_vec(), pattern(1, 5000));
    assert_eq!(pool.read("obj", 4990, 100).await.unwrap().to_vec(), pattern(1, 5000)[4990..]);
    pool.truncate("obj", 100).await.unwrap();
    pool.zero("obj", 0, 50).await.unwrap();
    let stat = pool.stat("obj").await.unwrap();
    assert_eq!(stat.size, 100);
    assert_eq!(u64::from(stat.mtime.sec), shard.unix_now().as_secs());
    assert_eq!(pool.create("obj", true).await.unwrap_err().errno(), EEXIST);
    pool.create("obj", false).await.unwrap();
    let both = vec![
        (OsdOp::write(0, 0), Payload::from(b"ab".to_vec())),
        (OsdOp::write(4, 0), b"cd".to_vec().into()),
    ];
    pool.exec("obj", both).await.unwrap();
    let two = vec![(OsdOp::read(0, 2), Payload::new()), (OsdOp::read(4, 2), Payload::new())];
    let mut reply = pool.exec("obj", two).await.unwrap();
    assert_eq!((reply.take_data(0).to_vec(), reply.take_data(1).to_vec()), (b"ab".to_vec(), b"cd".to_vec()));
    assert_eq!(reply.take_data(9).len(), 0);
    pool.write_full("obj", pattern(2, 300_000)).await.unwrap();
    assert!(pool.read("obj", 0, 0).await.unwrap().to_vec() == pattern(2, 300_000));
    // Another namespace is another object.
    let other = pool.in_namespace("other");
    assert!(other.stat("obj").await.unwrap_err().is_not_found());
    pool.remove("obj").await.unwrap();
    assert!(pool.remove("obj").await.unwrap_err().is_not_found());
    let large = Payload::from(vec![0; DATA_BYTES_MAX + 1]);
    assert!(matches!(pool.write("obj", 0, large).await, Err(ClientError::TooLarge { .. })));
    assert!(matches!(client.pool("nope"), Err(ClientError::NoPool(_))));
    assert_eq!(client.in_flight(), 0);
}

async fn listings(shard: Shard) {
    let cluster = Cluster::start(&shard, 3, 0).await;
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap();
    assert_eq!(pool.list().await.unwrap(), []);
    let names: BTreeSet<Vec<u8>> = (0..50).map(|n| format!("object-{n}").into_bytes()).collect();
    for name in &names {
        pool.create(name, true).await.unwrap();
    }
    pool.in_namespace("other").create("elsewhere", true).await.unwrap();
    let listed = pool.list().await.unwrap();
    assert_eq!(listed.len(), 50);
    assert_eq!(listed.iter().map(|object| object.name.to_vec()).collect::<BTreeSet<_>>(), names);
    assert_eq!(pool.list_all_namespaces().await.unwrap().len(), 51);
    let mut cursor = Cursor::start();
    let mut paged = Vec::new();
    while !cursor.is_end() {
        let page = pool.list_page(&cursor, 1).await.unwrap();
        assert!(page.objects.len() <= 1);
        paged.extend(page.objects);
        cursor = page.cursor;
    }
    assert_eq!(paged, listed, "the same order, one at a time");
}

async fn several_at_once(shard: Shard) {
    let cluster = Cluster::start(&shard, 3, 0).await;
    (0..3).for_each(|osd| cluster.osd(osd).delay.set(Duration::from_millis(5)));
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap();
    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let pool = pool.clone();
            start(&shard, async move {
                pool.write("obj", 0, pattern(n, 1000)).await.map(|reply| reply.user_version)
            })
        })
        .collect();
    let mut versions = Vec::new();
    for task in &tasks {
        versions.push(finish(&shard, task).await.unwrap());
    }
    assert!(versions.is_sorted(), "in the order of submission");
    assert_eq!(pool.read("obj", 0, 0).await.unwrap().to_vec(), pattern(499, 1000));
}

async fn limits_in_flight(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    cluster.osd(0).delay.set(Duration::from_millis(3));
    let options = Options { ops_in_flight: 4, bytes_in_flight: 10_000, ..Options::default() };
    let client = cluster.client(options).await;
    let pool = client.pool("data").unwrap();
    let run = async |len: usize, count: usize| {
        cluster.osd(0).in_flight_max.set(0);
        let write = |n| {
            let pool = pool.clone();
            start(&shard, async move { pool.write(format!("o{n}"), 0, pattern(n, len)).await.unwrap() })
        };
        let tasks: Vec<_> = (0..count).map(write).collect();
        for task in &tasks {
            finish(&shard, task).await;
        }
        cluster.osd(0).in_flight_max.get()
    };
    assert_eq!(run(10, 40).await, 4, "by operations");
    assert_eq!(run(3000, 20).await, 3, "by bytes");
    assert_eq!(run(50_000, 4).await, 1, "one that is too large for the budget goes alone");
    // Giving up an operation makes room for others.
    cluster.osd(0).mute.set(true);
    for n in 0..4 {
        let impatient = pool.with_timeout(Some(Duration::from_millis(50)));
        let given_up = impatient.write(format!("o{n}"), 0, pattern(1, 10)).await;
        assert!(matches!(given_up, Err(ClientError::Timeout { .. })));
    }
    cluster.osd(0).mute.set(false);
    assert_eq!(run(10, 40).await, 4);
}

async fn commands(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    let client = cluster.client(Options::default()).await;
    let reply = client.mon_command("{\"prefix\": \"status\"}").await.unwrap();
    assert_eq!((reply.result, reply.status.as_str()), (0, "did {\"prefix\": \"status\"}"));
    let error = client.mon_command("bad").await.unwrap_err();
    assert_eq!(error.errno(), EINVAL);
    assert!(error.to_string().contains("did bad"), "{error}");
    let space = client.mon().statfs(None, Duration::from_secs(5)).await.unwrap();
    assert_eq!(space.total_kib, 100);
    assert_eq!(client.mon().newest_osdmap(Duration::from_secs(5)).await.unwrap(), cluster.epoch());
    assert!(client.global_id() > 4096);
    assert_eq!(client.mon().monmap().unwrap().mons.len(), 1);
    // Lost with its connection: sent again on the next one.
    cluster.mon.drop_commands.set(1);
    let asking = Rc::clone(&client);
    let answer = start(&shard, async move { asking.mon_command("again").await });
    until(&shard, || cluster.mon.commands.get() == 3).await;
    cluster.mon.cut();
    assert_eq!(finish(&shard, &answer).await.unwrap().status, "did again");
}

async fn admin_requests(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 1).await;
    let client =
        cluster.client(Options { op_timeout: Some(Duration::from_millis(300)), ..Options::default() }).await;
    assert_eq!(client.admin(OsdId(1), "{\"status\":1}").await.unwrap(), "{\"status\":1}");
    let error = client.admin(OsdId(0), "bad").await.unwrap_err();
    assert_eq!(error.errno(), EINVAL);
    assert!(matches!(client.admin(OsdId(7), "x").await, Err(ClientError::OsdDown(OsdId(7), _))));
    cluster.osd(1).mute.set(true);
    assert!(matches!(client.admin(OsdId(1), "x").await, Err(ClientError::Timeout { .. })));
}

async fn nobody_there(shard: Shard) {
    let listener = shard.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = listener.local_addr();
    drop(listener);
    let options = Options { connect_timeout: Duration::from_millis(500), ..Options::default() };
    let error = Client::connect(&shard, &addr.into(), options).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no answer within 500ms") && text.contains("cannot connect to"), "{text}");
    assert!(text.contains(&EntityAddr::msgr2(addr, 0).to_string()), "{text}");
}

async fn new_pools(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 0).await;
    let client = cluster.client(Options::default()).await;
    assert!(matches!(client.wait_pool("later").await, Err(ClientError::NoPool(_))));
    let epoch = cluster.epoch();
    cluster.change(|inc| {
        inc.new_pool_max = 2;
        inc.new_pools.insert(2, PgPool::replicated(1, 1, 16, 0, epoch, UTime::ZERO));
        inc.new_pool_names.insert(2, "later".to_owned());
    });
    let pool = client.wait_pool("later").await.unwrap();
    pool.write("obj", 0, pattern(1, 10)).await.unwrap();
    // Operations on a pool that goes away end.
    cluster.osd(0).mute.set(true);
    cluster.osd(1).mute.set(true);
    let reading = pool.clone();
    let read = start(&shard, async move { reading.read("obj", 0, 0).await });
    shard.sleep(Duration::from_millis(20)).await;
    cluster.change(|inc| {
        inc.old_pools.insert(2);
    });
    assert_eq!(finish(&shard, &read).await.unwrap_err().errno(), ENOENT);
    assert_eq!(pool.read("obj", 0, 0).await.unwrap_err().errno(), ENOENT);
}
