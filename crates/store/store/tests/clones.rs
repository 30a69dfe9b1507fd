//! Clones: they share what they have not changed, whatever happens to either. (Random ones are among the transactions of
//! `model.rs` and of the crash tests.)

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_pgtypes::{ObjectChange, Step, Transaction};
use carmine_reactor::sim::Sim;
use carmine_reactor::{Bytes, Shard};
use carmine_store::blue::{self, MountOptions};
use carmine_store::{BlueShared, Kv, KvBatch, OmapRange, Store, StoreError, StoreShared};
use carmine_types::{ObjectId, crc32c};
use common::*;
use proptest::prelude::*;

/// Virtual time for a sequence.
const LIMIT: Duration = Duration::from_secs(60);
const OBJECTS: u8 = 4;

/// Applies transactions to `cyan` and to the model.
fn in_memory(txns: Vec<Transaction>) {
    let sim = Sim::new(1);
    let done = Rc::new(Cell::new(false));
    let flag = Rc::clone(&done);
    sim.node("osd", 1, move |shard| {
        let (flag, txns) = (Rc::clone(&flag), txns.clone());
        async move {
            let shared = StoreShared::cyan(1 << 30);
            let store = Store::open_shard(&shared, &shard).await.unwrap();
            let mut model = Model::default();
            for txn in txns {
                model.apply(&txn);
                submit(&store, txn).await.unwrap();
                model.compare(&store, PG, 1, 3).await;
            }
            submit(&store, txn(model.objects.keys().map(remove))).await.unwrap();
            assert_eq!(shared.statfs().used, 0);
            flag.set(true);
        }
    });
    sim.run(|| done.get(), LIMIT).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_clone_in_memory_is_what_its_source_was(changes in prop::collection::vec(
        prop::collection::vec((0..OBJECTS, change_or_clone(OBJECTS)), 1..5), 1..20)) {
        in_memory(changes.iter().map(|changes| txn(changes.iter().map(|(object, change)| change.to_change(&oid(*object))))).collect());
    }
}

/// Bytes of the log and of the device, and those that the key-value store was given, of a transaction.
async fn cost(store: &Store, shared: &Arc<BlueShared>, shard: &Shard, txn: Transaction) -> [u64; 3] {
    let count = async || {
        // It lets the key-value store catch up.
        blue::fsck(shared, shard, false).await.unwrap();
        let stats = store.stats();
        [stats.log_bytes, stats.device_write_bytes, stats.kv_bytes]
    };
    let before = count().await;
    submit(store, txn).await.unwrap();
    let after = count().await;
    [0, 1, 2].map(|n| after[n] - before[n])
}

#[test]
fn a_clone_takes_no_space_no_write_of_data_and_one_record_of_the_log() {
    on_new_store(64 << 20, async |shard, path, kv| {
        let (shared, store) = mount_with(&shard, &path, &kv, MountOptions::default()).await;
        let data = noise(1, 4 << 20);
        submit(&store, txn([write(&oid(1), 0, data.clone())])).await.unwrap();
        let used = store.statfs().used;
        let one = txn([write(&oid(1), 8192, noise(2, 4096))]);
        let [log, device, kv] = cost(&store, &shared, &shard, one).await;
        let copy = txn([clone(&oid(2), &oid(1))]);
        let [clone_log, clone_device, clone_kv] = cost(&store, &shared, &shard, copy).await;
        println!("log {log} and {clone_log} bytes, key-value store {kv} and {clone_kv}");
        assert_eq!((device, clone_device), (4096, 0));
        assert!(clone_log <= 3 * log, "{clone_log} bytes of the log, and {log} for a write");
        assert_eq!(store.statfs().used, used, "a clone takes no space");
        let report = clean(&shared, &shard).await;
        assert_eq!((report.blocks, report.shared_blocks), (1024, 1024));
        // Blocks that differ take space, and those of a removed object give it back.
        submit(&store, txn([write(&oid(1), 0, noise(3, 40_000))])).await.unwrap();
        assert_eq!(store.statfs().used, used + 10 * 4096);
        submit(&store, txn([remove(&oid(1))])).await.unwrap();
        store.sync().await.unwrap();
        let report = clean(&shared, &shard).await;
        assert_eq!((report.blocks, report.shared_blocks, store.statfs().used), (1024, 0, used));
        let found = store.read(&oid(2), 0, u64::MAX).await.unwrap().to_vec();
        assert!(found[..8192] == data[..8192] && found[12_288..] == data[12_288..]);
        submit(&store, txn([remove(&oid(2))])).await.unwrap();
        store.sync().await.unwrap();
        assert_eq!(clean(&shared, &shard).await.blocks, 0);
    });
}

/// More objects than a byte counts, also after a mount.
#[test]
fn a_block_is_free_when_the_last_of_many_objects_lets_go_of_it() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (mut shared, mut store) = mount(&shard, &path, &kv).await;
        let data = noise(1, 3 * 4096);
        let snap = |n: u64| ObjectId { snap: n, ..oid(1) };
        submit(&store, txn([write(&oid(1), 0, data.clone())])).await.unwrap();
        for n in 0..600 {
            submit(&store, txn([clone(&snap(n), &oid(1))])).await.unwrap();
        }
        submit(&store, txn([write(&oid(1), 0, noise(2, 4096)), remove(&snap(0))])).await.unwrap();
        for n in 1..600 {
            if n % 199 == 0 {
                store.umount().await.unwrap();
                drop(store);
                (shared, store) = mount(&shard, &path, &kv).await;
            }
            if n % 97 == 0 {
                assert_eq!(clean(&shared, &shard).await.blocks, 4, "{n}");
            }
            assert!(store.read(&snap(600 - n), 0, u64::MAX).await.unwrap().to_vec() == data);
            submit(&store, txn([remove(&snap(600 - n))])).await.unwrap();
        }
        let report = clean(&shared, &shard).await;
        assert_eq!((report.blocks, report.shared_blocks), (3, 0));
    });
}

/// Nothing waits for anything: clones of blocks whose writes are in flight, of clones of them, and back.
#[test]
fn what_is_in_flight_is_cloned_too() {
    for prefer_deferred_bytes in [0, 64 << 10] {
        on_new_store(16 << 20, async |shard, path, kv| {
            let options = MountOptions {
                cache_bytes_per_shard: 4096,
                prefer_deferred_bytes: Some(prefer_deferred_bytes),
                ..MountOptions::default()
            };
            let (shared, store) = mount_with(&shard, &path, &kv, options).await;
            let (mut model, mut commits) = (Model::default(), Vec::new());
            for round in 0..60u64 {
                let [a, b, c] = [0, 1, 2].map(|n| oid((round as u8 + n) % 4));
                let changes = [
                    write(&a, round * 1000 % 20_000, noise(round, 6000)),
                    clone(&b, &a),
                    ObjectChange::new(
                        c.clone(),
                        [
                            Step::CloneFrom { from: b.clone().into() },
                            Step::Write { off: 100, data: noise(round + 1, 50).into() },
                        ],
                    ),
                    write(&a, 5000, noise(round + 2, 10)),
                ];
                // Now together, now one by one.
                let parts: Vec<Transaction> = match round % 2 {
                    0 => vec![txn(changes)],
                    _ => changes.into_iter().map(|change| txn([change])).collect(),
                };
                for part in parts {
                    model.apply(&part);
                    let prepared = store.prepare(&part.changes).await.unwrap();
                    commits.push(store.submit(part));
                    drop(prepared);
                }
                for oid in [&a, &b, &c] {
                    let found = store.read(oid, 0, u64::MAX).await.unwrap().to_vec();
                    assert!(found == model.objects[oid].bytes, "{oid} in round {round}");
                }
            }
            for commit in commits {
                commit.await.unwrap();
            }
            model.compare(&store, PG, 1, 2).await;
            clean(&shared, &shard).await;
        });
    }
}

#[test]
fn a_copy_of_nothing_is_nothing_and_one_of_itself_changes_nothing() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let cyan = Store::open_shard(&StoreShared::cyan(8 << 20), &shard).await.unwrap();
        for store in [&store, &cyan] {
            submit(store, txn([write(&oid(1), 0, noise(1, 5000)), clone(&oid(2), &oid(1))])).await.unwrap();
            submit(store, txn([clone(&oid(2), &oid(3)), clone(&oid(4), &oid(3))])).await.unwrap();
            submit(store, txn([clone(&oid(1), &oid(1))])).await.unwrap();
            assert_eq!(store.list(PG, 0, None, 9).await.unwrap(), [oid(1)]);
            assert!(store.read(&oid(1), 0, u64::MAX).await.unwrap().to_vec() == noise(1, 5000));
        }
        assert_eq!(clean(&shared, &shard).await.shared_blocks, 0);
        // It has to be prepared, since all of the map of its source is needed.
        let unprepared = store.submit(txn([clone(&oid(7), &oid(8))])).await;
        assert!(matches!(unprepared, Err(StoreError::NotPrepared(_))), "{unprepared:?}");
    });
}

#[test]
#[allow(clippy::single_range_in_vec_init)] // a list of runs that is one run long
fn a_copy_has_the_holes_of_its_source() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, blue) = mount(&shard, &path, &kv).await;
        let cyan = Store::open_shard(&StoreShared::cyan(8 << 20), &shard).await.unwrap();
        for store in [&blue, &cyan] {
            assert!(matches!(store.written(&oid(1), 0, 1).await, Err(StoreError::NotFound(_))));
            submit(
                store,
                txn([write(&oid(1), 5000, noise(1, 5000)), write(&oid(1), 400_000, noise(2, 100))]),
            )
            .await
            .unwrap();
            submit(store, txn([clone(&oid(2), &oid(1)), write(&oid(1), 20_000, noise(3, 1))])).await.unwrap();
            let all = async |n| store.written(&oid(n), 0, u64::MAX).await.unwrap();
            assert_eq!(all(2).await, [4096..12_288, 397_312..400_100]);
            assert_eq!(all(1).await, [4096..12_288, 16_384..20_480, 397_312..400_100]);
            assert_eq!(store.written(&oid(2), 5000, 100).await.unwrap(), [5000..5100]);
            assert_eq!(store.written(&oid(2), 12_288, 8192).await.unwrap(), []);
            let punched = only(&oid(2), Step::Zero { off: 4000, len: 8000 });
            submit(store, txn([punched])).await.unwrap();
            assert_eq!(all(2).await, [8192..12_288, 397_312..400_100]);
        }
    });
}

/// Blocks that have bytes which nobody wrote are told from those whose zeros were written, also behind a mount and in a clone.
#[test]
fn blocks_that_were_written_in_part_are_known() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, blue) = mount(&shard, &path, &kv).await;
        let cyan = Store::open_shard(&StoreShared::cyan(8 << 20), &shard).await.unwrap();
        let truncate = |size| only(&oid(1), Step::Truncate { size });
        for store in [&blue, &cyan] {
            let parts = async |n| store.in_part(&oid(n), 0, u64::MAX).await.unwrap();
            let put = async |off, len| submit(store, txn([write(&oid(1), off, vec![0; len])])).await.unwrap();
            put(0, 3000).await;
            put(3000, 3000).await;
            assert_eq!(parts(1).await, [0; 0], "it ends there");
            put(7000, 100).await;
            assert_eq!(parts(1).await, [4096], "a gap of a thousand bytes");
            put(20_000, 480).await;
            assert_eq!(parts(1).await, [4096, 16_384]);
            put(16_384, 4096).await;
            assert_eq!(parts(1).await, [4096], "the other one is written whole");
            submit(store, txn([clone(&oid(2), &oid(1)), write(&oid(1), 4096, vec![0; 4096])])).await.unwrap();
            assert_eq!((parts(1).await, parts(2).await), (vec![], vec![4096]));
            submit(store, txn([only(&oid(1), Step::Zero { off: 100, len: 100 })])).await.unwrap();
            assert_eq!(parts(1).await, [0]);
            put(8192, 4096).await;
            for size in [9000, 30_000] {
                submit(store, txn([truncate(size)])).await.unwrap();
            }
            assert_eq!(parts(1).await, [0, 8192], "its end was in a block");
            assert_eq!(store.in_part(&oid(1), 4096, 4096).await.unwrap(), [0; 0]);
        }
        blue.umount().await.unwrap();
        drop(blue);
        let (_, blue) = mount(&shard, &path, &kv).await;
        assert_eq!(blue.in_part(&oid(1), 0, u64::MAX).await.unwrap(), [0, 8192]);
        assert_eq!(blue.in_part(&oid(2), 0, u64::MAX).await.unwrap(), [4096]);
    });
}

#[test]
fn an_omap_of_many_keys_is_copied() {
    on_new_store(16 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let key = |n: u32| Box::<[u8]>::from(n.to_be_bytes());
        for part in 0..20u32 {
            let entries = (part * 1000..(part + 1) * 1000).map(|n| (key(n), Bytes::from(vec![1; 40])));
            submit(&store, txn([only(&oid(1), Step::SetOmap { entries: entries.collect() })])).await.unwrap();
        }
        let removed = Step::RemoveOmapRange { from: key(5), to: key(19_990) };
        submit(&store, txn([clone(&oid(2), &oid(1)), only(&oid(1), removed)])).await.unwrap();
        let all = OmapRange::all(usize::MAX);
        assert_eq!(store.omap_page(&oid(2), &all).await.unwrap().entries.len(), 20_000);
        assert_eq!(store.omap_page(&oid(1), &all).await.unwrap().entries.len(), 15);
        assert_eq!(clean(&shared, &shard).await.omap_keys, 20_015);
    });
}

#[test]
fn what_was_lost_is_lost_in_the_copy() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        submit(&store, txn([write(&oid(1), 0, noise(1, 3 * 4096))])).await.unwrap();
        let lose = only(&oid(1), Step::MarkLost { off: 4096, len: 4096, crc: 0 });
        submit(&store, txn([lose, clone(&oid(2), &oid(1))])).await.unwrap();
        let error = store.read(&oid(2), 0, u64::MAX).await.unwrap_err();
        assert_eq!(error.lost_block(), Some((&oid(2), 4096)), "{error}");
        assert!(store.read(&oid(2), 8192, 4096).await.unwrap().to_vec() == noise(1, 3 * 4096)[8192..]);
        submit(&store, txn([remove(&oid(1)), remove(&oid(2))])).await.unwrap();
        assert_eq!(clean(&shared, &shard).await.blocks, 0);
    });
}

/// Changes the value of a key, and its checksum with it.
fn forge(kv: &Arc<dyn Kv>, key: &[u8], change: impl FnOnce(&mut Vec<u8>)) {
    let mut value = kv.get(key).unwrap().unwrap();
    value.truncate(value.len() - 4);
    change(&mut value);
    let crc = crc32c::raw(crc32c::raw(crc32c::SEED, key), &value);
    value.extend_from_slice(&crc.to_le_bytes());
    let mut batch = KvBatch::default();
    batch.put(key, &value);
    kv.commit(&[batch], true).unwrap();
}

#[test]
fn a_block_that_is_claimed_wrongly_is_told_from_one_that_is_shared() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        submit(&store, txn([write(&oid(1), 0, noise(1, 5000)), clone(&oid(2), &oid(1))])).await.unwrap();
        store.umount().await.unwrap();
        drop(store);
        let mut key = None;
        kv.scan(b"X", b"Y", &mut |found, value| {
            // The piece that is marked as a copy.
            key = key.take().or_else(|| (value[1] & 0x80 != 0).then(|| found.to_vec()));
            true
        })
        .unwrap();
        let key = key.unwrap();
        // Another checksum of the first block.
        forge(&kv, &key, |value| value[2 + 5] ^= 1);
        let (shared, store) = mount(&shard, &path, &kv).await;
        let report = blue::fsck(&shared, &shard, false).await.unwrap();
        assert!(report.error_count == 1 && report.errors[0].contains("with checksum"), "{report:?}");
        // Dropped without an unmount, so that the next mounts scan the block maps.
        drop(store);
        forge(&kv, &key, |value| value[2 + 5] ^= 1);
        // It says no more that it is a copy.
        forge(&kv, &key, |value| value[1] &= 0x7f);
        let refused = BlueShared::mount(&shard, &path, Arc::clone(&kv), MountOptions::default()).await;
        let error = refused.err().unwrap().to_string();
        assert!(error.contains("another object has too"), "{error}");
        // A block that no device has.
        forge(&kv, &key, |value| (value[1], value[5]) = (value[1] | 0x80, 1));
        assert!(BlueShared::mount(&shard, &path, Arc::clone(&kv), MountOptions::default()).await.is_err());
    });
}

/// The cost of a transaction, for callgrind: `LOAD=none|writes|clones`, on an object of 4 MiB whose blocks lie
/// anywhere, or in a row with `IN_A_ROW=1`; 64 transactions each. The difference to `none`, divided by 64, is the cost
/// of one. (`valgrind --tool=callgrind TEST-PROGRAM --ignored cost_for_callgrind`)
#[test]
#[ignore = "measures nothing by itself"]
fn cost_for_callgrind() {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let (load, in_a_row) = (var("LOAD"), !var("IN_A_ROW").is_empty());
    let sim = Sim::new(1);
    let done = Rc::new(Cell::new(false));
    let flag = Rc::clone(&done);
    sim.node("osd", 1, move |shard| {
        let (flag, load) = (Rc::clone(&flag), load.clone());
        async move {
            let (path, kv) = (std::path::PathBuf::from("/sim/block"), mem());
            mkfs(&shard, &path, &kv, 256 << 20).await;
            let (_, store) = mount_with(&shard, &path, &kv, MountOptions::default()).await;
            submit(&store, txn([write(&oid(1), 0, noise(1, 4 << 20))])).await.unwrap();
            for n in (0..1024u64).filter(|_| !in_a_row) {
                submit(&store, txn([write(&oid(1), n * 389 % 1024 * 4096, noise(n, 4096))])).await.unwrap();
            }
            store.sync().await.unwrap();
            for n in 0..64u64 {
                let change = match load.as_str() {
                    "writes" => write(&oid(1), n * 389 % 1024 * 4096, noise(n, 4096)),
                    "clones" => clone(&ObjectId { snap: n, ..oid(1) }, &oid(1)),
                    _ => continue,
                };
                let mut txn = txn([change]);
                txn.log.push(log_entry(n + 1, &oid(1)));
                submit(&store, txn).await.unwrap();
            }
            store.umount().await.unwrap();
            flag.set(true);
        }
    });
    sim.run(|| done.get(), LIMIT).unwrap();
}
