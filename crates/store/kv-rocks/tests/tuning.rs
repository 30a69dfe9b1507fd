//! The worth of each option: the same work on RocksDB as it is tuned, and with one option as RocksDB has it by default.
//! The variants take turns, because the machine changes meanwhile; prints Markdown. `scripts/rocksdb-benchmarks` runs
//! it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Instant;

use carmine_kv_rocks::{RocksKv, RocksOptions, Tuning};
use carmine_store::{Kv, KvBatch};

/// Overwrites of 4 KiB blocks in so many objects, each with a log entry of one of so many PGs.
const WRITES: u64 = 400_000;
const OBJECTS: u64 = 8_000;
const PIECES: u64 = 16;
const PGS: u64 = 32;
/// As the feeder makes them.
const BATCH_BYTES: usize = 1 << 20;
/// As the log's half full: then it is trimmed.
const TRIM_BYTES: u64 = 48 << 20;
const LOOKUPS: u64 = 50_000;

/// The cost of the work; times are of the CPU, microseconds for each write or lookup.
#[derive(Clone, Copy, Debug)]
struct Cost {
    feed_us: f64,
    flush_us: f64,
    compact_us: f64,
    /// Bytes written to the drive for each byte of keys and values.
    written: f64,
    found_us: f64,
    absent_us: f64,
    /// Until all is written: with what the feeder waited for.
    feed_s: f64,
}

/// A column of the table.
type Column = (&'static str, fn(&Cost) -> f64);

const COLUMNS: [Column; 7] = [
    ("feeder µs/write", |c| c.feed_us),
    ("flush µs/write", |c| c.flush_us),
    ("compaction µs/write", |c| c.compact_us),
    ("bytes per byte", |c| c.written),
    ("found µs", |c| c.found_us),
    ("absent µs", |c| c.absent_us),
    ("feeding s", |c| c.feed_s),
];

/// A number that looks random.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
}

fn key(kind: u8, object: u64, piece: u64) -> Vec<u8> {
    [&[kind][..], &mixed(object).to_be_bytes(), b"rbd_data.12ab", &object.to_be_bytes(), &[piece as u8]]
        .concat()
}

fn entry(pg: u64, version: u64) -> Vec<u8> {
    [&b"L"[..], &pg.to_be_bytes(), &version.to_be_bytes()].concat()
}

/// CPU time of the calling thread, nanoseconds.
fn own_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

/// Bytes that this process sent to drives.
fn written_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap().parse().unwrap()
}

/// Onodes, pieces of block maps and log entries, as `blue`'s feeder writes them; then lookups.
fn work(options: RocksOptions) -> Cost {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kv = RocksKv::open(folder.path(), options).unwrap();
    let (began, own, threads, drive) = (Instant::now(), own_ns(), kv.cpu().unwrap(), written_bytes());
    let (mut batch, mut bytes, mut since_trim) = (KvBatch::default(), 0_u64, 0_u64);
    let mut commit = |batch: &mut KvBatch| {
        let made = std::mem::take(batch);
        bytes += made.bytes() as u64;
        since_trim += made.bytes() as u64;
        kv.commit(&[made], false).unwrap();
        if since_trim > TRIM_BYTES {
            since_trim = 0;
            kv.flush().unwrap();
        }
    };
    for n in 0..WRITES {
        let (object, piece, pg) = (mixed(n) % OBJECTS, mixed(n + 1) % PIECES, n % PGS);
        batch.put(&key(b'O', object, 0), &mixed(n).to_be_bytes().repeat(16));
        batch.put(&key(b'X', object, piece), &mixed(n + 2).to_be_bytes().repeat(50));
        batch.put(&entry(pg, n), &mixed(n + 3).to_be_bytes().repeat(15));
        if n > 1_000 * PGS && (n / PGS).is_multiple_of(64) {
            batch.delete_range(&entry(pg, 0), &entry(pg, n - 1_000 * PGS));
        }
        if batch.bytes() >= BATCH_BYTES {
            commit(&mut batch);
        }
    }
    commit(&mut batch);
    kv.flush().unwrap();
    let (fed, now) = (own_ns() - own, kv.cpu().unwrap());
    let per = |ns: u64, count: u64| ns as f64 / 1e3 / count as f64;
    let feed_s = began.elapsed().as_secs_f64();
    Cost {
        feed_us: per(fed, WRITES),
        flush_us: per(now.flush_ns - threads.flush_ns, WRITES),
        compact_us: per(now.compaction_ns - threads.compaction_ns, WRITES),
        written: (written_bytes() - drive) as f64 / bytes as f64,
        feed_s,
        found_us: lookup_us(&kv, |n| key(b'X', mixed(n) % OBJECTS, mixed(n + 1) % PIECES), true),
        absent_us: lookup_us(&kv, |n| key(b'O', (1 << 40) + mixed(n) % OBJECTS, 0), false),
    }
}

/// CPU of a lookup of what writes at random had, when as many before it have warmed the cache.
fn lookup_us(kv: &RocksKv, key: impl Fn(u64) -> Vec<u8>, found: bool) -> f64 {
    let look = |from: u64| {
        for n in from..from + LOOKUPS {
            let key = key(mixed(n ^ 0x5eed) % WRITES);
            assert_eq!(kv.get(&key).unwrap().is_some(), found, "{key:?}");
        }
    };
    look(0);
    let before = own_ns();
    look(LOOKUPS);
    (own_ns() - before) as f64 / 1e3 / LOOKUPS as f64
}

/// A memtable is smaller than an OSD's, so that a short run has as many tables as a long one.
fn small(untuned: Option<Tuning>) -> RocksOptions {
    RocksOptions {
        block_cache_bytes: 96 << 20,
        write_buffer_bytes: 16 << 20,
        untuned,
        ..RocksOptions::default()
    }
}

/// Median, and the median of the ratios to the cost of the tuned one in the same turn if that is another.
fn cell(costs: &[Cost], tuned: &[Cost], of: fn(&Cost) -> f64, is_tuned: bool) -> String {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let own = median(costs.iter().map(of).collect());
    if is_tuned {
        return format!("{own:.2}");
    }
    let ratio = median(costs.iter().zip(tuned).map(|(own, tuned)| of(own) / of(tuned)).collect());
    format!("{own:.2} (×{ratio:.2})")
}

/// Each option against all of them, in turns: `CARMINE_TURNS` of them, 5 if not said; half a minute each.
/// `cargo test --release -p carmine-kv-rocks --test tuning -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn what_each_option_is_worth() {
    let turns: usize = std::env::var("CARMINE_TURNS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    // The tuned options are measured twice: the difference between the two rows is noise.
    let variants: Vec<Option<Tuning>> =
        [None].into_iter().chain(Tuning::ALL.map(Some)).chain([None]).collect();
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); variants.len()];
    // The first of all warms the machine.
    work(small(None));
    for turn in 0..turns {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        order.into_iter().for_each(|at| costs[at].push(work(small(variants[at]))));
    }
    let titles = COLUMNS.map(|(title, _)| title).join(" | ");
    println!("| without | {titles} |\n|---|{}", "---|".repeat(COLUMNS.len()));
    for (at, variant) in variants.iter().enumerate() {
        let name = variant.map_or_else(|| "(nothing)".to_owned(), |tuning| format!("{tuning:?}"));
        let cells = COLUMNS.map(|(_, of)| cell(&costs[at], &costs[0], of, at == 0));
        println!("| {name} | {} |", cells.join(" | "));
    }
}
