//! One object with a million omap keys, in an OSD of 512 MiB: filled, looked up, listed from the middle and trimmed by range.
//! About 60 s. Figures that it printed are in benches/notebook/2026-11-22-core-rebuilt-and-long-omap.md.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads /proc, and the time

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carmine_client::{Client, Options, Pool};
use carmine_reactor::{Config, Payload, PollPolicy, Shard, block_on};
use carmine_tests::Testbed;
use carmine_wire::osd_op::{OsdOp, ops};
use carmine_wire::{Decoder, Encoder};

const BUDGET_MIB: u64 = 512;
const KEYS: u64 = 1_000_000;
/// Keys of one write, and of one page of a listing.
const PAGE: u64 = 1000;
const LOOKUPS: u64 = 1000;
const NAME: &str = "index";

fn key(n: u64) -> Vec<u8> {
    format!("key.{n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    format!("value of key {n:08}, as long as an entry of a bucket's index may be: {n:064}").into_bytes()
}

/// The output of one operation on the object.
async fn ask(pool: &Pool, code: u16, input: Vec<u8>) -> Vec<u8> {
    let op = OsdOp::with_payload(code, input.len() as u32);
    let mut reply = pool.exec(NAME, vec![(op, Payload::from(input))]).await.expect("an answer");
    reply.take_data(0).to_vec()
}

async fn fill(pool: &Pool) {
    for first in (0..KEYS).step_by(PAGE as usize) {
        let input = Encoder::collect(|e| {
            e.vec((first..first + PAGE).collect::<Vec<_>>(), |e, n| {
                e.blob(&key(n));
                e.blob(&value(n));
            });
        });
        ask(pool, ops::OMAP_SET_VALS, input).await;
    }
}

/// The keys behind `after`, until `keys` have been listed or there are no more: the numbers of the first and last, and how many.
async fn list(pool: &Pool, after: &[u8], keys: u64) -> (Option<u64>, Option<u64>, u64) {
    let (mut after, mut found, mut first) = (after.to_vec(), 0, None);
    let number = |key: &[u8]| std::str::from_utf8(&key[4..]).expect("text").parse::<u64>().expect("a number");
    let mut last = None;
    while found < keys {
        let input = Encoder::collect(|e| {
            e.blob(&after);
            e.u64(PAGE);
            e.blob(b"");
        });
        let page = ask(pool, ops::OMAP_GET_VALS, input).await;
        let read = |d: &mut Decoder<'_>| {
            let own = |d: &mut Decoder<'_>| Ok(d.blob()?.to_vec());
            Ok((d.map(8, own, own)?, d.bool()?))
        };
        let (entries, more) = Decoder::all(&page, "page", read).expect("a page");
        for (key, found_value) in &entries {
            assert!(*found_value == value(number(key)), "{}", key.escape_ascii());
            first.get_or_insert(number(key));
            last = Some(number(key));
            found += 1;
        }
        let Some((key, _)) = entries.last() else { break };
        after.clone_from(key);
        if !more {
            break;
        }
    }
    (first, last, found)
}

/// Looks keys up one by one, spread over all of them.
async fn look_up(pool: &Pool) {
    for n in (0..LOOKUPS).map(|n| n * 7919 % KEYS) {
        let input = Encoder::collect(|e| e.vec([key(n)], |e, key| e.blob(&key)));
        let found = ask(pool, ops::OMAP_GET_VALS_BY_KEYS, input).await;
        let found = Decoder::all(&found, "values", |d| d.map(8, |d| d.blob(), |d| d.blob())).expect("values");
        assert_eq!(found, [(&*key(n), &*value(n))]);
    }
}

async fn trim(pool: &Pool, from: u64, to: u64) {
    let input = Encoder::collect(|e| {
        e.blob(&key(from));
        e.blob(&key(to));
    });
    ask(pool, ops::OMAP_RM_RANGE, input).await;
}

#[test]
fn an_object_has_a_million_omap_keys() {
    let budget = format!("{BUDGET_MIB}M");
    let bed = Testbed::up(&[
        "--osds",
        "1",
        "--size",
        "1",
        "--store",
        "blue",
        "--sparse",
        "--pgs",
        "8",
        "--overprovisioned",
        "--osd-size",
        "3G",
        "--osd-memory",
        &budget,
    ]);
    let mon = std::fs::read_to_string(bed.dir().join("run/mon.addr")).expect("run/mon.addr");
    let mon: SocketAddr = mon.trim().parse().expect("an address");
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("omap", 1) };
    block_on(config, async move |shard: Shard| {
        let options = Options { op_timeout: Some(Duration::from_secs(100)), ..Options::default() };
        let client = Client::connect(&shard, &mon.into(), options).await.expect("a session");
        let pool = client.pool("bench").expect("the pool");
        let begin = Instant::now();
        let said = |what: &str, keys: u64, begin: Instant| {
            let seconds = begin.elapsed().as_secs_f64();
            println!("{what}: {keys} keys in {seconds:.2} s, {:.0} a second", keys as f64 / seconds);
        };
        fill(&pool).await;
        said("filled", KEYS, begin);
        let begin = Instant::now();
        look_up(&pool).await;
        said("looked up one by one", LOOKUPS, begin);
        let begin = Instant::now();
        let listed = list(&pool, &key(KEYS / 2), 100_000).await;
        assert_eq!((listed.0, listed.2 >= 100_000), (Some(KEYS / 2 + 1), true));
        said("listed from the middle", listed.2, begin);
        let begin = Instant::now();
        trim(&pool, 1000, KEYS - 1000).await;
        said("trimmed by range", KEYS - 2000, begin);
        let begin = Instant::now();
        assert_eq!(list(&pool, b"", KEYS).await, (Some(0), Some(KEYS - 1), 2000));
        said("listed what is left", 2000, begin);
    })
    .expect("a reactor");
    let status = std::fs::read_to_string(format!("/proc/{}/status", bed.pid("osd.0").expect("it runs")))
        .expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let peak_mib = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10;
    println!("peak resident memory: {peak_mib} MiB of {BUDGET_MIB}");
    assert!(peak_mib <= BUDGET_MIB, "{peak_mib} MiB resident of {BUDGET_MIB}");
}
