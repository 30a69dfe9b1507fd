//! Random transactions on the reference model, `cyan` and `blue`: contents, listings, attributes, sizes and logs are the
//! same, also after a restart, `blue` is clean, and its space is what a scan of it says.
//!
//! The long run: `PROPTEST_CASES=5000 cargo test -p carmine-store --test model`.

mod common;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_pgtypes::{PgInfo, Transaction};
use carmine_reactor::Shard;
use carmine_reactor::sim::Sim;
use carmine_store::blue::MountOptions;
use carmine_store::{Commit, Kv, MemKv, OmapRange, Store, StoreError, StoreShared};
use carmine_types::Eversion;
use common::*;
use proptest::prelude::*;

/// Virtual time for a sequence.
const LIMIT: Duration = Duration::from_secs(600);
/// Bytes of the device: enough for five objects of 600 KB, and what their overwrites need until they are durable.
const DEVICE_BYTES: u64 = 32 << 20;

#[derive(Clone, Debug)]
enum Act {
    Txn(Vec<(u8, Change)>),
    Read {
        object: u8,
        off: u64,
        len: u64,
    },
    /// Reads from there on, one after the other, and changes the object after as many of them as are told.
    Stream {
        object: u8,
        off: u64,
        len: u64,
        after: u8,
        change: Change,
    },
    /// Reads the omap from this key on, in pages.
    Omap {
        object: u8,
        range: OmapRange,
    },
    List {
        page: usize,
    },
    WaitForAll,
    Restart,
}

fn omap_range() -> impl Strategy<Value = OmapRange> {
    (key(), any::<bool>(), key(), 1usize..5, prop_oneof![Just(usize::MAX), 0usize..100]).prop_map(
        |(start, is_after, prefix, entries_max, bytes_max)| OmapRange {
            start: start.into(),
            is_after,
            prefix: prefix.into(),
            entries_max,
            bytes_max,
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        10 => prop::collection::vec((0u8..5, change_or_clone(5)), 1..4).prop_map(Act::Txn),
        3 => (0u8..5, place(), length()).prop_map(|(object, off, len)| Act::Read { object, off, len }),
        2 => (0u8..5, place(), 1u64..40_000, 0u8..8, change_or_clone(5))
            .prop_map(|(object, off, len, after, change)| Act::Stream { object, off, len, after, change }),
        3 => (0u8..5, omap_range()).prop_map(|(object, range)| Act::Omap { object, range }),
        1 => (1usize..4).prop_map(|page| Act::List { page }),
        1 => Just(Act::WaitForAll),
        1 => Just(Act::Restart),
    ]
}

/// The `version`th transaction of the PG.
fn transaction(version: u64, changes: &[(u8, Change)]) -> Transaction {
    let mut txn = txn(changes.iter().map(|(object, change)| change.of(&oid(*object))));
    txn.log.push(log_entry(version, &oid(changes[0].0)));
    txn.info = (version == 3).then(|| info(version).into());
    if version.is_multiple_of(11) {
        // Back by a few, and a new tail below the old.
        txn.log_rewind_to = Some(Eversion::new(4, version - 4));
        txn.info = Some(PgInfo { log_tail: Eversion::new(4, 1), ..info(version - 4) }.into());
    }
    txn.log_trim_to = version.is_multiple_of(8).then(|| Eversion::new(4, version - 5));
    txn
}

async fn read(store: &Store, model: &Model, object: u8, off: u64, len: u64) {
    let found = store.read(&oid(object), off, len).await;
    match model.objects.get(&oid(object)) {
        Some(Object { bytes, .. }) => {
            let end = (off + len).min(bytes.len() as u64).max(off) as usize;
            let wanted = bytes.get(off as usize..end).unwrap_or_default();
            assert!(found.unwrap().to_vec() == wanted, "read {object} {off}+{len}");
        }
        None => assert!(matches!(found, Err(StoreError::NotFound(_)))),
    }
}

/// Submits it to all three; `blue` may still be at work on it.
async fn apply(model: &mut Model, cyan: &Store, blue: &Store, txn: Transaction) -> Commit {
    model.apply(&txn);
    submit(cyan, txn.clone()).await.unwrap();
    let prepared = blue.prepare(&txn.changes).await.unwrap();
    let commit = blue.submit(txn);
    drop(prepared);
    commit
}

/// Reads of a stream.
const STREAM: u8 = 10;

/// Objects come and go all the time, so do their blocks, and little is read ahead. Discards of free space must never
/// matter, nor how much goes into the log first.
fn options(seed: u64) -> MountOptions {
    MountOptions {
        cache_bytes_per_shard: 4096,
        data_cache_bytes_per_shard: 20 * 4224,
        readahead_bytes: 32 << 10,
        prefer_deferred_bytes: [None, Some(0), Some(64 << 10)][(seed / 2 % 3) as usize],
        discard: seed.is_multiple_of(2),
        ..MountOptions::default()
    }
}

async fn run(shard: Shard, acts: Vec<Act>, options: MountOptions) {
    let path = PathBuf::from("/sim/block");
    let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
    mkfs(&shard, &path, &kv, DEVICE_BYTES).await;
    let (mut shared, mut blue) = mount_with(&shard, &path, &kv, options).await;
    let cyan = Store::open_shard(&StoreShared::cyan(1 << 30), &shard).await.unwrap();
    let empty = blue.statfs();
    let mut model = Model::default();
    let mut commits: Vec<Commit> = Vec::new();
    let mut version = 0;
    for act in acts {
        match act {
            Act::Txn(changes) => {
                version += 1;
                let txn = transaction(version, &changes);
                commits.push(apply(&mut model, &cyan, &blue, txn).await);
            }
            Act::Stream { object, off, len, after, change } => {
                for n in 0..STREAM {
                    read(&blue, &model, object, off + u64::from(n) * len, len).await;
                    if n == after {
                        version += 1;
                        let txn = transaction(version, &[(object, change.clone())]);
                        commits.push(apply(&mut model, &cyan, &blue, txn).await);
                    }
                }
            }
            Act::Read { object, off, len } => {
                read(&cyan, &model, object, off, len).await;
                read(&blue, &model, object, off, len).await;
            }
            Act::Omap { object, range } => {
                model.compare_pages(&cyan, &oid(object), range.clone()).await;
                model.compare_pages(&blue, &oid(object), range).await;
            }
            Act::List { page } => {
                model.compare(&cyan, PG, 1, page).await;
                model.compare(&blue, PG, 1, page).await;
            }
            Act::WaitForAll => {
                for commit in commits.drain(..) {
                    commit.await.unwrap();
                }
                assert_eq!(blue.stats().txns_in_flight, 0);
            }
            Act::Restart => {
                blue.umount().await.unwrap();
                drop(blue);
                (shared, blue) = mount_with(&shard, &path, &kv, options).await;
            }
        }
    }
    blue.sync().await.unwrap();
    for commit in commits {
        commit.await.unwrap();
    }
    for store in [&cyan, &blue] {
        model.compare(store, PG, 1, 2).await;
        model.compare_pg(store, PG).await;
        assert_eq!(store.list_pgs().await.unwrap(), model.pgs());
    }
    clean(&shared, &shard).await;
    // Nothing is left of what is removed.
    let all = txn(model.objects.keys().map(remove));
    submit(&blue, all).await.unwrap();
    assert_eq!(clean(&shared, &shard).await.blocks, 0);
    assert_eq!(blue.statfs(), empty);
}

fn in_sim(seed: u64, acts: &[Act]) {
    let sim = Sim::new(seed);
    let done = Rc::new(Cell::new(false));
    let (flag, acts) = (Rc::clone(&done), acts.to_vec());
    let options = options(seed);
    sim.node("osd", 1, move |shard| {
        let (flag, acts) = (Rc::clone(&flag), acts.clone());
        async move {
            run(shard, acts, options).await;
            flag.set(true);
        }
    });
    sim.run(|| done.get(), LIMIT).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn blue_cyan_and_the_model_agree(seed in any::<u64>(), acts in prop::collection::vec(act(), 1..40)) {
        in_sim(seed, &acts);
    }
}

/// PROPTEST_CASES for a long run; else what fits into the daily test.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000)
}
