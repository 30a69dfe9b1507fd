//! A slow drive is seen: operations that take too long are listed with their stage.

use std::time::Duration;

use carmine_client::RouteMode;

use super::cluster::{Cluster, Disks};

#[test]
fn an_operation_on_a_slow_drive_is_listed_with_its_stage() {
    let cluster = Cluster::start(51, Disks::Blue, 1, 1, &[1]);
    cluster.client(
        RouteMode::Direct,
        |_, pool| async move { pool.write_full("a", vec![1; 8192]).await.unwrap() },
    );
    assert_eq!(cluster.ask(&[0], "dump_blocked_ops")[0]["num_blocked_ops"], 0);
    cluster.disk(0).slower(Duration::from_secs(60));
    let writer = cluster.background(RouteMode::Direct, |_, pool| async move {
        pool.write_full("a", vec![2; 8192]).await.unwrap();
    });
    cluster.pass(Duration::from_secs(40));
    let blocked = cluster.ask(&[0], "dump_blocked_ops").remove(0);
    assert_eq!(blocked["num_blocked_ops"], 1, "{blocked}");
    let op = &blocked["shards"][0]["ops"][0];
    assert_eq!((op["stage"].as_str(), op["object"].as_str()), (Some("store"), Some("a")), "{op}");
    assert!(op["age_ms"].as_f64().unwrap() > 30_000.0, "{op}");
    assert_eq!(cluster.counter(&[0], "slow_ops"), 1);
    cluster.disk(0).slower(Duration::ZERO);
    cluster.wait("the write", || writer.is_done());
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.counter(&[0], "slow_ops"), 0);
}
