//! The metrics and the operations in flight that an OSD shows, and that no scraper can hurt it.

use std::net::SocketAddr;
use std::time::Duration;

use carmine_client::RouteMode;
use carmine_messenger::with_timeout;
use carmine_reactor::{Chunk, Shard};
use serde_json::Value;

use super::cluster::{Cluster, Disks, METRICS_PORT};

const OSD: &str = "10.0.0.1";

fn http() -> SocketAddr {
    SocketAddr::new(OSD.parse().unwrap(), METRICS_PORT)
}

/// Sends bytes to the metrics port and returns all that comes back until the OSD closes; `None` if it never does.
async fn send_raw(shard: &Shard, bytes: &[u8]) -> Option<String> {
    let stream = shard.connect(http()).await.unwrap();
    // Refused half way is an answer, too.
    let _ = stream.send(vec![Chunk::Bytes(bytes.to_vec())]).await;
    let all = async {
        let mut text = Vec::new();
        loop {
            let (received, buf) = stream.recv(shard.buf(64 << 10), 0).await;
            match received {
                Ok(n) if n > 0 => text.extend_from_slice(&buf.as_slice()[..n]),
                _ => return String::from_utf8_lossy(&text).into_owned(),
            }
        }
    };
    with_timeout(shard, Duration::from_secs(60), all).await
}

async fn get(shard: &Shard, target: &str) -> String {
    send_raw(shard, format!("GET {target} HTTP/1.1\r\nHost: osd\r\n\r\n").as_bytes()).await.unwrap()
}

fn body(answer: &str) -> &str {
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1
}

/// Writes and reads some objects so that there is something to count.
async fn work(pool: &carmine_client::Pool) {
    for n in 0..20 {
        let name = format!("object{n}");
        pool.write_full(&name, vec![7_u8; 4096]).await.unwrap();
        pool.read(&name, 0, 4096).await.unwrap();
    }
}

#[test]
fn every_shard_is_shown_under_the_same_names_everywhere() {
    let cluster = Cluster::start(11, Disks::Cyan, 1, 16, &[3]);
    let (text, json, dump) = cluster.client(RouteMode::Direct, |client, pool| async move {
        work(&pool).await;
        let shard = client.shard().clone();
        let dump = client.admin(carmine_types::OsdId(0), r#"{"prefix": "dump_metrics"}"#).await.unwrap();
        (get(&shard, "/metrics").await, get(&shard, "/metrics.json?prefix=reactor_").await, dump)
    });
    let text = body(&text);
    for shard in 0..3 {
        for name in ["reactor_utilization", "reactor_cpu_busy_ms", "smp_total_sent_messages", "osd_write_ops"]
        {
            let series = format!("{name}{{osd=\"0\",shard=\"{shard}\"}} ");
            assert!(text.contains(&series), "no {series} in\n{text}");
        }
    }
    let writes: f64 = text
        .lines()
        .filter(|line| line.starts_with("osd_write_ops{"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert!(writes >= 20.0, "{writes} writes");
    let json: Value = serde_json::from_str(body(&json)).unwrap();
    let metrics = json["metrics"].as_array().unwrap();
    for metric in metrics {
        assert!(metric["name"].as_str().unwrap().starts_with("reactor_"));
        assert!(!metric["description"].as_str().unwrap().is_empty() && metric["unit"].is_string());
        assert_eq!(metric["values"].as_array().unwrap().len(), 3, "{metric}");
        assert_eq!(metric["values"][2]["shard"], "2");
        // One source: what is in JSON is in the text.
        assert!(text.contains(&format!("# TYPE {} ", metric["name"].as_str().unwrap())));
    }
    assert!(metrics.len() > 10);
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let flat = dump["metrics"].as_array().unwrap();
    assert!(flat.iter().any(|m| m["reactor_cpu_busy_ms"]["shard"] == "1"), "{flat:?}");
}

/// The keys of a JSON object.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

#[test]
fn counters_and_their_schema_have_the_same_names() {
    let cluster = Cluster::start(16, Disks::Cyan, 1, 8, &[2]);
    cluster.client(RouteMode::Direct, |_, pool| async move { work(&pool).await });
    let (dump, schema) =
        (cluster.ask(&[0], "perf dump").remove(0), cluster.ask(&[0], "perf schema").remove(0));
    assert_eq!(keys(&dump), keys(&schema));
    for section in keys(&dump) {
        assert_eq!(keys(&dump[section]), keys(&schema[section]), "{section}");
    }
    assert!(dump["osd"]["op"].as_u64() >= Some(40), "{dump}");
    let one = cluster.client(RouteMode::Direct, |client, _| async move {
        let ask = r#"{"prefix": "perf dump", "logger": "osd", "counter": "op_w"}"#;
        client.admin(carmine_types::OsdId(0), ask).await.unwrap()
    });
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!((keys(&one), keys(&one["osd"])), (vec!["osd"], vec!["op_w"]));
}

#[test]
fn bad_requests_are_refused_and_slow_ones_closed() {
    let cluster = Cluster::start(12, Disks::Cyan, 1, 8, &[2]);
    cluster.client(RouteMode::Direct, |client, pool| async move {
        let shard = client.shard().clone();
        for (request, status) in [
            (b"\x00\xff\x16garbage\r\n\r\n".to_vec(), "400"),
            (b"POST /metrics HTTP/1.1\r\n\r\n".to_vec(), "405"),
            (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n".to_vec(), "404"),
            (format!("GET /{} HTTP/1.1\r\n", "a".repeat(1 << 20)).into_bytes(), "431"),
        ] {
            let answer = send_raw(&shard, &request).await.expect("the connection stays open");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer:?}");
        }
        // Half a request: closed without an answer, and in time.
        let before_ns = shard.now_ns();
        assert_eq!(send_raw(&shard, b"GET /metrics HT").await.as_deref(), Some(""));
        assert!(shard.now_ns() - before_ns < 10_000_000_000);
        // Those that ask properly, and clients, do not notice.
        assert!(body(&get(&shard, "/metrics").await).contains("reactor_utilization"));
        work(&pool).await;
    });
}

#[test]
fn slow_scrapers_give_way_to_those_that_ask() {
    let cluster = Cluster::start(13, Disks::Cyan, 1, 8, &[1]);
    cluster.client(RouteMode::Direct, |client, _| async move {
        let shard = client.shard().clone();
        let mut idle = Vec::new();
        for _ in 0..40 {
            let stream = shard.connect(http()).await.unwrap();
            stream.send(vec![Chunk::Bytes(b"GET /metr".to_vec())]).await.unwrap();
            idle.push(stream);
            shard.sleep(Duration::from_millis(1)).await;
        }
        let before_ns = shard.now_ns();
        assert!(body(&get(&shard, "/metrics").await).contains("reactor_utilization"));
        assert!(shard.now_ns() - before_ns < 1_000_000_000, "it waited for the others");
        // Only so many are open: the first ones are closed.
        let (end, _) = idle[0].recv(shard.buf(64), 0).await;
        assert!(end.is_ok_and(|bytes| bytes == 0));
        drop(idle);
    });
}

/// The operations that an OSD has in flight.
fn in_flight(cluster: &Cluster, osd: u32) -> Vec<Value> {
    let dump = cluster.ask(&[osd], "dump_ops_in_flight").remove(0);
    let shards = dump["shards"].as_array().unwrap();
    let ops: Vec<Value> = shards.iter().flat_map(|shard| shard["ops"].as_array().unwrap().clone()).collect();
    assert_eq!(dump["num_ops"].as_u64().unwrap(), ops.len() as u64, "{dump}");
    ops
}

#[test]
fn operations_in_flight_say_what_they_wait_for() {
    let cluster = Cluster::start(14, Disks::Blue, 2, 8, &[2, 2]);
    cluster.mon.min_size(2);
    cluster.client(RouteMode::Direct, |_, pool| async move { work(&pool).await });
    assert!(in_flight(&cluster, 0).is_empty());
    cluster.kill(1);
    // Many objects: whatever their PGs, some have osd.0 as primary.
    let writers: Vec<_> = (0..12)
        .map(|n| {
            cluster.background(RouteMode::Direct, move |_, pool| async move {
                pool.write_full(format!("late{n}"), vec![n; 100]).await.is_ok()
            })
        })
        .collect();
    cluster.pass(Duration::from_millis(300));
    let ops = in_flight(&cluster, 0);
    let op = ops.iter().find(|op| op["stage"] == "replicas").unwrap_or_else(|| panic!("{ops:?}"));
    assert!(op["waits_for"].as_str().unwrap().contains("osd.1"), "{op}");
    assert!(op["object"].as_str().unwrap().starts_with("late") && op["kind"] == "write", "{op}");
    assert!(op["reqid"].as_str().unwrap().starts_with(op["client"].as_str().unwrap()), "{op}");
    assert!(op["age_ms"].as_f64().unwrap() > 100.0 && op["pg"].as_str().unwrap().contains('.'), "{op}");
    // Marked down: its PGs have too few members, and what was in flight starts over.
    cluster.mon.down(1);
    cluster.pass(Duration::from_secs(1));
    let ops = in_flight(&cluster, 0);
    let op = ops.iter().find(|op| op["stage"] == "waiting_for_pg").unwrap_or_else(|| panic!("{ops:?}"));
    assert!(op["waits_for"].as_str().unwrap().starts_with("pg is undersized+degraded+peered: 1 of"), "{op}");
    cluster.start_osd(1, 2);
    cluster.wait("the writes", || writers.iter().all(|writer| writer.is_done()));
    assert!(in_flight(&cluster, 0).is_empty());
}

/// Names that a query in PromQL uses, without the suffixes of histograms.
fn names_of(query: &str) -> Vec<String> {
    let prefixes = ["reactor_", "osd_", "smp_", "alien_", "store_", "net_", "scheduler_"];
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)));
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn the_dashboard_asks_only_for_metrics_that_there_are() {
    let cluster = Cluster::start(15, Disks::Cyan, 1, 8, &[1]);
    let text = cluster.client(RouteMode::Direct, |client, _| async move {
        let shard = client.shard().clone();
        get(&shard, "/metrics").await
    });
    let dashboard: Value = serde_json::from_str(include_str!("../../grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut asked = 0;
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let query = target["expr"].as_str().unwrap();
        let names = names_of(query);
        assert!(!names.is_empty(), "{query} asks for nothing of ours");
        for name in names {
            let plain = name.trim_end_matches("_sum").trim_end_matches("_count");
            let has = |name: &str| text.contains(&format!("# TYPE {name} "));
            assert!(has(&name) || has(plain), "{name} of the dashboard is no metric");
            asked += 1;
        }
    }
    assert!(asked >= 20, "only {asked} metrics are shown");
}
