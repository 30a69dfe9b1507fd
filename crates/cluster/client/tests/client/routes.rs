//! Each operation on the connection of the reactor that owns its PG.

use super::common::{both, finish, pattern, start, until};
use super::fake::Cluster;
use carmine_client::{Options, RouteMode};
use carmine_reactor::Shard;
use carmine_types::{OsdId, UTime};
use carmine_wire::osdmap::PgPool;
use std::collections::BTreeSet;
use std::time::Duration;

both!(direct, single, direct_follows_restarts, new_pools_are_asked_for);

async fn write_all(pool: &carmine_client::Pool, count: usize) {
    for n in 0..count {
        pool.write(format!("obj-{n}"), 0, pattern(n, 100)).await.unwrap();
    }
}

fn misrouted(cluster: &Cluster) -> u32 {
    cluster.osds.borrow().values().map(|osd| osd.misrouted.get()).sum()
}

async fn direct(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 3).await;
    let client = cluster.client(Options::route(RouteMode::Direct)).await;
    let pool = client.pool("data").unwrap();
    // At once, before any route is known.
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let pool = pool.clone();
            start(&shard, async move { pool.write(format!("obj-{n}"), 0, pattern(n, 100)).await.unwrap() })
        })
        .collect();
    for task in &tasks {
        finish(&shard, task).await;
    }
    write_all(&pool, 60).await;
    assert_eq!(misrouted(&cluster), 0);
    for osd in 0..2 {
        assert_eq!(cluster.osd(osd).routes.get(), 1, "asked once");
        assert!(cluster.osd(osd).by_port.borrow().len() > 1, "several reactors");
    }
    let ports: BTreeSet<(OsdId, u16)> =
        client.connections().iter().map(|(osd, port, _)| (*osd, *port)).collect();
    assert_eq!(ports.len(), client.connections().len(), "one connection per port");
    assert!(pool.list().await.unwrap().len() == 60);
}

async fn single(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 3).await;
    let client = cluster.client(Options::route(RouteMode::Single)).await;
    write_all(&client.pool("data").unwrap(), 60).await;
    for osd in 0..2 {
        let osd = cluster.osd(osd);
        assert_eq!(osd.routes.get(), 0, "never asked: a real OSD would not answer");
        let public = osd.addr.sock.unwrap().port();
        assert_eq!(osd.by_port.borrow().keys().copied().collect::<Vec<_>>(), [public]);
    }
    assert_eq!(client.connections().len(), 2);
}

async fn direct_follows_restarts(shard: Shard) {
    let cluster = Cluster::start(&shard, 2, 3).await;
    let client = cluster.client(Options::route(RouteMode::Direct)).await;
    let pool = client.pool("data").unwrap();
    write_all(&pool, 30).await;
    // Another number of reactors, other ports.
    cluster.boot(OsdId(0), 2).await;
    cluster.boot(OsdId(1), 5).await;
    write_all(&pool, 30).await;
    assert_eq!(misrouted(&cluster), 0);
    // An OSD that loses its connections is not asked again: it is the same one.
    cluster.osd(0).cut();
    cluster.osd(1).cut();
    until(&shard, || client.connections().is_empty()).await;
    write_all(&pool, 30).await;
    assert_eq!(misrouted(&cluster), 0);
}

async fn new_pools_are_asked_for(shard: Shard) {
    let cluster = Cluster::start(&shard, 1, 4).await;
    let client = cluster.client(Options::route(RouteMode::Direct)).await;
    write_all(&client.pool("data").unwrap(), 10).await;
    let epoch = cluster.epoch();
    cluster.change(|inc| {
        inc.new_pool_max = 2;
        inc.new_pools.insert(2, PgPool::replicated(1, 1, 16, 0, epoch, UTime::ZERO));
        inc.new_pool_names.insert(2, "later".to_owned());
    });
    let pool = client.wait_pool("later").await.unwrap();
    write_all(&pool, 40).await;
    assert_eq!((misrouted(&cluster), cluster.osd(0).routes.get()), (0, 2));
}

/// An OSD that does not tell its route gets everything on its public port, after a while. Virtual time only.
#[test]
fn no_route() {
    carmine_testkit::sim(1, async |shard: Shard| {
        let cluster = Cluster::start(&shard, 1, 2).await;
        cluster.osd(0).no_route.set(true);
        let client = cluster.client(Options::route(RouteMode::Direct)).await;
        let started = shard.now_ns();
        write_all(&client.pool("data").unwrap(), 10).await;
        let took = Duration::from_nanos(shard.now_ns() - started);
        assert!((Duration::from_secs(5)..Duration::from_secs(7)).contains(&took), "{took:?}");
    });
}
