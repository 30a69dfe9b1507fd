//! Operations when something goes wrong.

use super::common::{both, finish, pattern, start, until};
use super::fake::{Cluster, PGS};
use super::fake_osd::whole_pg;
use carmine_client::{Client, ClientError, Options, Pool, RouteMode};
use carmine_messenger::Message;
use carmine_reactor::Shard;
use carmine_types::{Epoch, OsdId, PgId};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

both!(
    restarts_under_load,
    cuts_under_load,
    told_to_try_again,
    waits_for_a_primary,
    limits_name_the_reason,
    holds_back,
    maps_from_osds,
    maps_that_do_not_fit,
    the_mon_comes_and_goes,
    silent_mons_are_passed_over,
    ends_with_the_client,
);

/// Writers that keep two writes in flight on an object of their own, `rounds` times.
fn load(shard: &Shard, pool: &Pool, writers: usize, rounds: usize) -> Vec<Rc<RefCell<Option<()>>>> {
    let writer = |object: usize| {
        let (pool, task_shard) = (pool.clone(), shard.clone());
        async move {
            let name = format!("steady-{object}");
            for round in 0..rounds {
                let (one, two) = (pool.clone(), pool.clone());
                let (first_name, second_name) = (name.clone(), name.clone());
                let first = start(&task_shard, async move {
                    one.write(&first_name, 0, pattern(round, 500)).await.unwrap().user_version
                });
                let second = start(&task_shard, async move {
                    two.write(&second_name, 0, pattern(round + 1000, 500)).await.unwrap().user_version
                });
                let (first, second) = (finish(&task_shard, &first).await, finish(&task_shard, &second).await);
                assert!(first < second, "the second write was applied first");
                let read = pool.read(&name, 0, 0).await.unwrap().to_vec();
                assert!(read == pattern(round + 1000, 500), "round {round} of {name}");
            }
        }
    };
    (0..writers).map(|object| start(shard, writer(object))).collect()
}

/// Every write was applied exactly once, and per object in the order of submission.
fn check_exactly_once(cluster: &Cluster, writers: usize, rounds: usize) {
    let objects = cluster.objects.borrow();
    assert_eq!(objects.len(), writers);
    for object in objects.values() {
        assert_eq!(object.writers.len(), 2 * rounds);
        assert!(object.writers.is_sorted_by(|a, b| a < b));
    }
}

async fn restarts_under_load(shard: Shard) {
    let cluster = Cluster::start(&shard, 3, 2).await;
    (0..3).for_each(|osd| cluster.osd(osd).delay.set(Duration::from_millis(4)));
    let client = cluster.client(Options::route(RouteMode::Direct)).await;
    let tasks = load(&shard, &client.pool("data").unwrap(), 12, 30);
    for n in 0..6_u32 {
        shard.sleep(Duration::from_millis(15)).await;
        cluster.boot(OsdId(n % 3), 1 + (n % 4) as u16).await;
        cluster.osd(n % 3).delay.set(Duration::from_millis(4));
        if n == 3 {
            // Out for a while: its PGs move to others, and back. Then down: they wait.
            for weight in [0, 0x10000] {
                cluster.change(|inc| {
                    inc.new_weight.insert(OsdId(1), weight);
                });
                shard.sleep(Duration::from_millis(20)).await;
            }
            cluster.down(0);
            cluster.osd(0).stop();
            shard.sleep(Duration::from_millis(20)).await;
        }
    }
    cluster.boot(OsdId(0), 2).await;
    for task in &tasks {
        finish(&shard, task).await;
    }
    check_exactly_once(&cluster, 12, 30);
}

async fn cuts_under_load(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 0).await;
    (0..2).for_each(|osd| cluster.osd(osd).delay.set(Duration::from_millis(4)));
    let client = cluster.client(Options::default()).await;
    let tasks = load(&shard, &client.pool("data").unwrap(), 8, 60);
    for n in 0..4 {
        shard.sleep(Duration::from_millis(30)).await;
        cluster.osd(n % 2).cut();
        shard.sleep(Duration::from_millis(250)).await;
    }
    for task in &tasks {
        finish(&shard, task).await;
    }
    check_exactly_once(&cluster, 8, 60);
    assert!(cluster.osd(0).retries.get() + cluster.osd(1).retries.get() > 0, "nothing was sent again");
}

async fn told_to_try_again(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    cluster.osd(0).again.set(3);
    let client = cluster.client(Options::default()).await;
    client.pool("data").unwrap().write("obj", 0, pattern(1, 10)).await.unwrap();
    assert_eq!(cluster.osd(0).retries.get(), 3);
}

async fn waits_for_a_primary(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap();
    pool.write("obj", 0, pattern(1, 10)).await.unwrap();
    cluster.down(0);
    let reading = pool.clone();
    let read = start(&shard, async move { reading.read("obj", 0, 0).await });
    shard.sleep(Duration::from_millis(50)).await;
    assert!(read.borrow().is_none());
    cluster.boot(OsdId(0), 0).await;
    assert_eq!(finish(&shard, &read).await.unwrap().to_vec(), pattern(1, 10));
}

async fn limits_name_the_reason(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap().with_timeout(Some(Duration::from_millis(250)));
    let fail = async || pool.read("obj", 0, 8).await.unwrap_err().to_string();
    cluster.osd(0).mute.set(true);
    let text = fail().await;
    assert!(
        text.starts_with("read 0~8 of \"obj\" in pool 1: no answer within 250ms (sent to osd.0 "),
        "{text}"
    );
    cluster.osd(0).stop();
    until(&shard, || client.connections().is_empty()).await;
    let text = fail().await;
    assert!(text.contains("(no connection to osd.0: "), "{text}");
    cluster.down(0);
    client.mon().wait_for_map(cluster.epoch(), Duration::from_secs(5)).await.unwrap();
    let text = fail().await;
    assert!(text.contains("has no OSD that is up in the map of epoch"), "{text}");
    assert_eq!(client.in_flight(), 0);
}

async fn holds_back(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap();
    let osd = cluster.osd(0);
    *osd.backoff.borrow_mut() = Some(whole_pg(PgId::new(1, 0)));
    let writing = pool.clone();
    let write = start(&shard, async move { writing.write("obj", 0, pattern(1, 10)).await });
    until(&shard, || osd.acked_backoffs.get() == 1).await;
    shard.sleep(Duration::from_millis(300)).await;
    assert_eq!(osd.acked_backoffs.get(), 1, "it was sent again while it should have been held");
    assert!(write.borrow().is_none());
    osd.unblock((0..PGS).map(|ps| PgId::new(1, ps)));
    finish(&shard, &write).await.unwrap();
    assert_eq!(osd.retries.get(), 1);
}

/// The mon says nothing, but OSDs send their map to clients that use an older one.
async fn maps_from_osds(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 0).await;
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap();
    let name = (0..).map(|n| format!("obj-{n}")).find(|name| {
        let pg = pool.pg_of(name).unwrap();
        client.view().unwrap().acting_primary(pg) == Some(OsdId(1))
    });
    let name = name.unwrap();
    cluster.mon.mute.set(true);
    // Out, but it goes on talking to clients.
    cluster.change(|inc| {
        inc.new_weight.insert(OsdId(1), 0);
    });
    assert!(client.osdmap().unwrap().epoch < cluster.epoch());
    pool.write(&name, 0, pattern(1, 10)).await.unwrap();
    assert_eq!(client.osdmap().unwrap().epoch, cluster.epoch());
    assert_eq!(cluster.osd(0).retries.get(), 1, "sent to the wrong one first");
}

/// An OSD sends an increment to a map that the client does not have, or nonsense: the mon has to help.
async fn maps_that_do_not_fit(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap();
    pool.write("obj", 0, pattern(1, 10)).await.unwrap();
    cluster.mon.mute.set(true);
    for _ in 0..2 {
        cluster.change(|_| ());
    }
    let conn = Rc::clone(&cluster.osd(0).conns.borrow()[0]);
    conn.send(Message::encode(&cluster.mon.gap()));
    client.mon().wait_for_map(cluster.epoch(), Duration::from_secs(5)).await.unwrap();
    let epoch = client.osdmap().unwrap().epoch;
    for change in [0, 1, 2] {
        let mut bad = cluster.mon.full_map();
        match change {
            0 => bad.fsid.0[0] ^= 1,
            1 => bad.full = vec![(Epoch(99), b"not a map".to_vec())],
            _ => bad.full.clear(),
        }
        conn.send(Message::encode(&bad));
    }
    conn.send(Message::new(carmine_wire::kinds::OSD_MAP, 4, 3, vec![1, 2, 3]));
    pool.write("obj", 0, pattern(1, 10)).await.unwrap();
    assert_eq!(client.osdmap().unwrap().epoch, epoch);
}

async fn the_mon_comes_and_goes(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 0).await;
    let client = cluster.client(Options::default()).await;
    let gid = client.global_id();
    for _ in 0..3 {
        cluster.mon.cut();
        until(&shard, || client.mon().connection().is_none()).await;
        // Missed by the session that was cut: the next one catches up.
        cluster.boot(OsdId(0), 0).await;
        client.mon().wait_for_map(cluster.epoch(), Duration::from_secs(5)).await.unwrap();
        cluster.boot(OsdId(1), 0).await;
        client.mon().wait_for_map(cluster.epoch(), Duration::from_secs(5)).await.unwrap();
    }
    assert_eq!(client.global_id(), gid, "a process keeps its id");
    client.pool("data").unwrap().write("obj", 0, pattern(1, 10)).await.unwrap();
}

async fn silent_mons_are_passed_over(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    let any = "127.0.0.1:0".parse().unwrap();
    let silent = [shard.listen(any).await.unwrap(), shard.listen(any).await.unwrap()];
    let [first, second] = [&silent[0], &silent[1]].map(|listener| listener.local_addr());
    let options = Options { connect_timeout: Duration::from_secs(5), ..Options::default() };
    let begin_ns = shard.now_ns();
    for mons in [[first, second, cluster.mon.addr], [cluster.mon.addr, first, second]] {
        let client = Client::connect(&shard, &mons.to_vec().into(), options.clone()).await.unwrap();
        client.mon_command("{}").await.unwrap();
        client.shutdown();
    }
    assert!(shard.now_ns() - begin_ns < 4_000_000_000, "the handshake's limit is 10 s");
}

async fn ends_with_the_client(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 0).await;
    cluster.osd(0).mute.set(true);
    let client = cluster.client(Options::default()).await;
    let pool = client.pool("data").unwrap();
    let writing = pool.clone();
    let write = start(&shard, async move { writing.write("obj", 0, pattern(1, 10)).await });
    until(&shard, || !cluster.osd(0).by_port.borrow().is_empty()).await;
    client.shutdown();
    assert!(matches!(finish(&shard, &write).await, Err(ClientError::Closed)));
    assert!(matches!(pool.read("obj", 0, 0).await, Err(ClientError::Closed)));
    until(&shard, || cluster.osd(0).conns.borrow().is_empty()).await;
    // Without a word: dropping the last handle ends the connections too.
    let client: Rc<Client> = cluster.client(Options::default()).await;
    let session = Rc::downgrade(client.mon());
    cluster.osd(0).mute.set(false);
    client.pool("data").unwrap().write("obj", 0, pattern(1, 10)).await.unwrap();
    drop(client);
    until(&shard, || cluster.osd(0).conns.borrow().is_empty() && session.upgrade().is_none()).await;
}
