//! `bench`, from several tools at once.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_messenger::Message;
use carmine_wire::private::Admin;

use super::cluster::{Cluster, Disks, noise};
use super::raw::Raw;

/// Orders that write the same objects: each is carried out, and none of them frees what another one has.
#[test]
fn benches_on_several_reactors_do_not_meet() {
    let cluster = Cluster::start(70, Disks::Blue, 1, 8, &[2]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write_full("stays", noise(1, 100_000)).await.unwrap();
    });
    // Connections are dealt to the reactors in turn.
    let tools: Vec<Raw> = (0..4).map(|n| Raw::of_client(&cluster, 0, 800 + n)).collect();
    cluster.pass(Duration::from_secs(1));
    // More objects than the cache holds, and each is written several times.
    let order = |blocks: u64| {
        format!(
            r#"{{"prefix": "bench", "count": {}, "size": 4096, "object_size": 4096, "object_num": 500}}"#,
            blocks * 4096
        )
    };
    for (part, tool) in (1_u64..).zip(&tools) {
        tool.send_message(Message::encode(&Admin { json: order(part * 400).into_bytes() }));
    }
    cluster.wait("the benches", || tools.iter().all(|tool| !tool.results().is_empty()));
    assert!(tools.iter().all(|tool| tool.results() == [0]));
    cluster.pass(Duration::from_secs(1));
    let report = cluster.fsck(0);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.objects, 1, "nothing of a bench stays: {report:?}");
    cluster.kill(0);
    cluster.start_osd(0, 2);
    cluster.pass(Duration::from_secs(2));
    let data =
        cluster.client(RouteMode::Direct, |_, pool| async move { pool.read("stays", 0, 0).await.unwrap() });
    assert!(data.to_vec() == noise(1, 100_000));
}
