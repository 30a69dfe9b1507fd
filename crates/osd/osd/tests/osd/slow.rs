//! A slow drive is seen: operations that take too long are listed with their stage.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::OsdId;

use super::cluster::{Cluster, Disks};

const OSD: OsdId = OsdId(0);

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

/// Operations are slow from the age on that an option says, which may change while they wait.
#[test]
fn the_complaint_time_is_an_option() {
    let cluster = Cluster::start(52, Disks::Blue, 1, 1, &[1]);
    cluster.client(
        RouteMode::Direct,
        |_, pool| async move { pool.write_full("a", vec![1; 8192]).await.unwrap() },
    );
    cluster.disk(0).slower(Duration::from_secs(20));
    let writer = cluster.background(RouteMode::Direct, |_, pool| async move {
        pool.write_full("a", vec![2; 8192]).await.unwrap();
    });
    cluster.pass(Duration::from_secs(4));
    let blocked = || cluster.ask(&[0], "dump_blocked_ops").remove(0);
    assert_eq!((&blocked()["num_blocked_ops"], &blocked()["complaint_time"]), (&0.into(), &30.into()));
    let set = |value: &str| {
        let ask = format!(r#"{{"prefix": "config set", "var": "osd_op_complaint_time", "val": "{value}"}}"#);
        cluster.client(RouteMode::Direct, move |client, _| async move {
            client.admin(OSD, &ask).await.map_err(|e| e.to_string())
        })
    };
    let answer = set("1.5").unwrap();
    assert!(answer.contains("osd_op_complaint_time = '1.5' "), "{answer}");
    let blocked = blocked();
    assert_eq!((&blocked["num_blocked_ops"], &blocked["complaint_time"]), (&1.into(), &1.5.into()));
    assert!(blocked["ops"][0]["age"].as_f64().is_some_and(|age| age > 1.5), "{blocked}");
    let told = || cluster.mon.stats.borrow().get(&OSD).map(|report| (report.slow_ops, report.slowest_s));
    cluster.wait("the monitor hears of it", || told().is_some_and(|(count, age_s)| count == 1 && age_s >= 4));
    cluster.wait("the write", || writer.is_done());
    cluster.wait("the monitor hears of its end", || told() == Some((0, 0)));
}
