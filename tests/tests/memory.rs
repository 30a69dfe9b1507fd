//! An OSD's memory stays inside its budget (`--osd-memory`), whatever is written and read: more objects than its cache holds,
//! a log that is full all the time, large writes; and small messages that ask for much. About 60 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads /proc

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{Client, Options, Pool};
use carmine_reactor::{Config, Group, Payload, PollPolicy, Shard, block_on};
use carmine_tests::Testbed;
use carmine_tests::tools::ONE_BLUE;
use carmine_types::errno;
use carmine_wire::Encoder;
use carmine_wire::osd_op::{OsdOp, flags, ops};
use serde_json::Value;

const BUDGET_MIB: u64 = 256;

/// The most that a process ever had resident, MiB.
fn peak_mib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the OSD lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}

/// Sum over the shards of something that an OSD counts of its store.
fn store(bed: &Testbed, name: &str) -> u64 {
    let said = bed.ok("admin", &["--osd", "0", r#"{"prefix": "dump_metrics"}"#]);
    let metrics: Value = serde_json::from_str(&said).expect("JSON");
    let shards = metrics["shards"].as_array().expect("shards");
    shards.iter().map(|shard| shard["store"][name].as_u64().expect("a number")).sum()
}

#[test]
fn an_osd_stays_inside_its_memory() {
    let budget = format!("{BUDGET_MIB}M");
    let options = ["--osd-memory", &budget, "--device-class", "hdd"];
    let bed = Testbed::up(&[ONE_BLUE, &options].concat());
    let load = |rw: &str, bs: &str, object: &str, depth: &str| {
        let args = ["--rw", rw, "--bs", bs, "--object-size", object, "--iodepth", depth, "--size", "200m"];
        bed.ok("bench", &[args.as_slice(), &["--runtime", "1"]].concat());
        println!(
            "{rw} of {bs} in objects of {object}, depth {depth}: at most {} MiB of {BUDGET_MIB}; onodes {} MiB",
            peak_mib(bed.pid("osd.0").expect("it runs")),
            store(&bed, "cache_bytes") >> 20
        );
    };
    // A second of a busy machine may be too little.
    let let_something_go = || {
        load("randwrite", "4k", "4k", "128");
        load("randwrite", "1m", "4m", "32");
        store(&bed, "cache_misses") > 0 && store(&bed, "log_trims") > 0
    };
    assert!((0..20).any(|_| let_something_go()), "it had to let something go");
    let peak = peak_mib(bed.pid("osd.0").expect("it runs"));
    assert!(peak <= BUDGET_MIB, "{peak} MiB resident of {BUDGET_MIB}");
}

/// Memory of the OSD that small messages attack.
const ATTACKED_MIB: u64 = 512;
const MIB: u64 = 1 << 20;
/// Connections that attack at once.
const ATTACKERS: usize = 4;
const WATCHES: u64 = 2500;
/// Answers of 1 MiB to one notification: more than the OSD may have.
const ANSWERS: u64 = 600;

/// A connection of its own.
async fn attacker(shard: &Shard, mon: SocketAddr) -> Pool {
    let options = Options { op_timeout: Some(Duration::from_secs(100)), ..Options::default() };
    let client = Client::connect(shard, &mon.into(), options).await.expect("a session");
    client.pool("bench").expect("the pool")
}

/// Does something several times at once, on each of several connections.
async fn at_once<F>(shard: &Shard, pools: &[Pool], each: u64, work: impl Fn(Pool, u64) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let left = Rc::new(Cell::new(pools.len() as u64 * each));
    for (n, pool) in pools.iter().enumerate() {
        for at in 0..each {
            let (work, left) = (work(pool.clone(), n as u64 * each + at), Rc::clone(&left));
            shard.spawn(Group::Client, "attack", async move {
                work.await;
                left.set(left.get() - 1);
            });
        }
    }
    while left.get() > 0 {
        shard.sleep(Duration::from_millis(5)).await;
    }
}

/// Starts an OSD, attacks it from several connections, and looks at its memory.
fn attacked<F>(what: &str, attack: impl FnOnce(Shard, Vec<Pool>) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let budget = format!("{ATTACKED_MIB}M");
    let one =
        ["--osds", "1", "--size", "1", "--store", "blue", "--sparse", "--pgs", "32", "--overprovisioned"];
    let bed = Testbed::up(&[one.as_slice(), &["--osd-memory", &budget, "--osd-size", "3G"]].concat());
    let mon = std::fs::read_to_string(bed.dir().join("run/mon.addr")).expect("run/mon.addr");
    let mon: SocketAddr = mon.trim().parse().expect("an address");
    let pid = bed.pid("osd.0").expect("it runs");
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("attackers", 1) };
    block_on(config, async move |shard: Shard| {
        let mut pools = Vec::new();
        for _ in 0..ATTACKERS {
            pools.push(attacker(&shard, mon).await);
        }
        attack(shard.clone(), pools.clone()).await;
        // It still serves.
        pools[0].write_full("after", vec![1; 4096]).await.expect("a write");
    })
    .expect("a reactor");
    assert_eq!(bed.pid("osd.0"), Some(pid), "the OSD is the same process");
    let peak = peak_mib(pid);
    println!("{what}: at most {peak} MiB of {ATTACKED_MIB}");
    assert!(peak <= ATTACKED_MIB, "{what}: {peak} MiB resident of {ATTACKED_MIB}");
}

async fn fill(pool: &Pool, name: &str, bytes: u64) {
    for at in (0..bytes).step_by(10 << 20) {
        pool.write(name, at, vec![at as u8; 10 << 20]).await.expect("a write");
    }
}

#[test]
fn requests_of_many_reads_stay_inside_it() {
    attacked("reads", async |shard, pools| {
        fill(&pools[0], "long", 100 * MIB).await;
        // As much as a real Ceph gives is given, to everybody, also to those who do not say how much they want.
        at_once(&shard, &pools, 2, |pool, _| async move {
            assert_eq!(pool.read("long", 0, 90 * MIB).await.expect("90 MiB").len() as u64, 90 * MIB);
            assert_eq!(pool.read("long", 10 * MIB, 0).await.expect("90 MiB").len() as u64, 90 * MIB);
        })
        .await;
        at_once(&shard, &pools, 4, |pool, _| async move {
            let reads = vec![(OsdOp::read(0, 64 * MIB), Payload::new()); 64];
            let error = pool.exec("long", reads).await.map(|_| ()).expect_err("4 GiB at once");
            assert_eq!(error.errno(), errno::EMSGSIZE);
        })
        .await;
    });
}

#[test]
fn patterns_written_over_and_over_stay_inside_it() {
    attacked("patterns", async |shard, pools| {
        at_once(&shard, &pools, 4, |pool, n| async move {
            // One byte, and one that does not fit blocks.
            let len = 1 + 2 * (n % 2);
            let pattern = OsdOp::write_same_op(n % 2, 90_000_000, len as u32);
            let input = Payload::from(vec![7; len as usize]);
            pool.exec(format!("same{}", n % 8), vec![(pattern, input)]).await.expect("a write");
        })
        .await;
    });
}

#[test]
fn notifications_stay_inside_it() {
    attacked("notifications", async |shard, pools| {
        let text = || vec![b'n'; MIB as usize - 100];
        pools[0].create("watched", false).await.expect("an object");
        at_once(&shard, &pools[..1], 50, |pool, n| async move {
            for cookie in (n..WATCHES).step_by(50) {
                let watch = OsdOp::watch_op(flags::watch::WATCH, cookie, 120);
                pool.exec("watched", vec![(watch, Payload::new())]).await.expect("a watch");
            }
        })
        .await;
        let notify = async |pool: &Pool, seconds: u32| {
            let input = Encoder::collect(|e| {
                e.u32(1);
                e.u32(seconds);
                e.blob(&text());
            });
            let op = (OsdOp::notify_op(1, 0), Payload::from(input));
            let id = pool.exec("watched", vec![op]).await.expect("a notification").take_data(0).to_vec();
            u64::from_le_bytes(id.try_into().expect("a number"))
        };
        for pool in &pools {
            notify(pool, 1).await;
        }
        shard.sleep(Duration::from_secs(2)).await;
        let id = notify(&pools[1], 60).await;
        at_once(&shard, &pools[..1], 8, |pool, n| async move {
            for cookie in (n..ANSWERS).step_by(8) {
                let input = Encoder::collect(|e| {
                    e.u64(id);
                    e.u64(cookie);
                    e.blob(&text());
                });
                let answer = (OsdOp::with_payload(ops::NOTIFY_ACK, 0), Payload::from(input));
                pool.exec("watched", vec![answer]).await.expect("an answer");
            }
        })
        .await;
    });
}
