//! What each option is worth: the same work on RocksDB as it is tuned, and with one option as RocksDB has it by default.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Instant;

use carmine_kv_rocks::{RocksKv, RocksOptions, Tuning};
use carmine_store::{Kv, KvBatch};

/// Overwrites of 4 KiB blocks in so many objects, each with a log entry of one of so many PGs.
const WRITES: u64 = 240_000;
const OBJECTS: u64 = 4_000;
const PIECES: u64 = 16;
const PGS: u64 = 32;
/// As the feeder makes them.
const BATCH_BYTES: usize = 1 << 20;
/// As the log's half full: then it is trimmed.
const TRIM_BYTES: u64 = 48 << 20;
const LOOKUPS: u64 = 20_000;

/// What the work cost; times are of the CPU, microseconds for each write or lookup.
#[derive(Clone, Copy, Default, Debug)]
struct Cost {
    feed_us: f64,
    flush_us: f64,
    compact_us: f64,
    /// Bytes written to the drive for each byte of keys and values.
    written: f64,
    found_us: f64,
    absent_us: f64,
    wall_s: f64,
}

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
    let lookups = |first: u64, found: bool| {
        let before = own_ns();
        for n in 0..LOOKUPS {
            let key = key(b'O', first + mixed(n) % OBJECTS, 0);
            assert_eq!(kv.get(&key).unwrap().is_some(), found, "{key:?}");
        }
        per(own_ns() - before, LOOKUPS)
    };
    Cost {
        feed_us: per(fed, WRITES),
        flush_us: per(now.flush_ns - threads.flush_ns, WRITES),
        compact_us: per(now.compaction_ns - threads.compaction_ns, WRITES),
        written: (written_bytes() - drive) as f64 / bytes as f64,
        wall_s: began.elapsed().as_secs_f64(),
        found_us: lookups(0, true),
        absent_us: lookups(1 << 40, false),
    }
}

fn small(untuned: Option<Tuning>) -> RocksOptions {
    RocksOptions { block_cache_bytes: 32 << 20, write_buffer_bytes: 16 << 20, background_threads: 2, untuned }
}

fn median(costs: &mut [Cost], of: fn(&Cost) -> f64) -> f64 {
    costs.sort_by(|a, b| of(a).total_cmp(&of(b)));
    of(&costs[costs.len() / 2])
}

/// Each option against all of them, in turns; about three minutes:
/// `cargo test --release -p carmine-kv-rocks --test tuning -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn what_each_option_is_worth() {
    println!("{:<18} feed us  flush us  compact us  B/B  found us  absent us  wall s", "without");
    let turns: usize = std::env::var("CARMINE_TURNS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let variants: Vec<Option<Tuning>> = [None].into_iter().chain(Tuning::ALL.map(Some)).collect();
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); variants.len()];
    for turn in 0..turns {
        let order: Vec<usize> = (0..variants.len()).collect();
        let order: Box<dyn Iterator<Item = usize>> =
            if turn % 2 == 0 { Box::new(order.into_iter()) } else { Box::new(order.into_iter().rev()) };
        for at in order {
            costs[at].push(work(small(variants[at])));
        }
    }
    for (variant, costs) in variants.iter().zip(&mut costs) {
        let name = variant.map_or_else(|| "(all as tuned)".to_owned(), |tuning| format!("{tuning:?}"));
        println!(
            "{name:<18} {:7.2} {:9.2} {:11.2} {:4.2} {:9.2} {:10.2} {:7.2}",
            median(costs, |c| c.feed_us),
            median(costs, |c| c.flush_us),
            median(costs, |c| c.compact_us),
            median(costs, |c| c.written),
            median(costs, |c| c.found_us),
            median(costs, |c| c.absent_us),
            median(costs, |c| c.wall_s),
        );
    }
}
