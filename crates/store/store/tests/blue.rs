//! `blue` on real files: damage, full devices, restarts with another number of shards, refusals.
// The tests look at the files from outside.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use carmine_reactor::{Config, Payload, Reactors, Shard};
use carmine_store::blue::{self, Fill, MkfsOptions, MountOptions};
use carmine_store::{
    BlueShared, Kv, KvBatch, KvError, MemKv, Store, StoreError, StoreShared, Transaction, TxnOp, pg_bits,
};
use carmine_types::{Eversion, ObjectId, PgId, UTime, crc32c, errno};
use common::*;

/// Changes bytes of the block file behind the store's back.
fn damage(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_flipped_bit_in_any_block_is_found_and_never_returned() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let data = noise(1, 5 * 4096 + 100);
        submit(&store, txn([write(&oid(1), 4096, data.clone())])).await.unwrap();
        store.umount().await.unwrap();
        drop(store);
        for block in 0..6u64 {
            // A fresh file writes its blocks in order, from the first behind the label.
            let at = (1 + block) * 4096 + 17 * block;
            damage(&path, at);
            let (shared, store) = mount(&shard, &path, &kv).await;
            let error = store.read(&oid(1), 0, u64::MAX).await.unwrap_err();
            let StoreError::Corrupt { oid: named, offset, device_offset, expected, found } = error else {
                panic!("{error}");
            };
            assert_eq!((named, offset, device_offset), (oid(1), (block + 1) * 4096, (1 + block) * 4096));
            assert_ne!(expected, found);
            // Other blocks are still good, …
            let other = (block + 1) % 6;
            let len = if other == 5 { 100 } else { 4096 };
            let good = store.read(&oid(1), (other + 1) * 4096, len).await.unwrap();
            assert_eq!(good.to_vec(), data[other as usize * 4096..][..len as usize]);
            // … a write of a part of the bad one is refused without changing anything, …
            let part = txn([write(&oid(1), (block + 1) * 4096 + 50, vec![1; 10])]);
            assert_eq!(submit(&store, part).await.unwrap_err().errno(), errno::EIO);
            // … fsck sees it, …
            let report = blue::fsck(&shared, &shard, true).await.unwrap();
            assert_eq!(report.error_count, 1, "{report:?}");
            assert_eq!(store.stats().corrupt_blocks, 2);
            store.umount().await.unwrap();
            damage(&path, at);
        }
        // … and a write of all of it heals it.
        let (shared, store) = mount(&shard, &path, &kv).await;
        submit(&store, txn([write(&oid(1), 4096, data.clone())])).await.unwrap();
        clean(&shared, &shard).await;
    });
}

/// A write that comes while the content of a damaged block waits for room in the queue stays: the older content does not
/// go over it.
#[test]
fn healing_never_overwrites_a_newer_write() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let (old, new) = (noise(1, 4096), noise(2, 4096));
        submit(&store, txn([write(&oid(1), 0, old.clone())])).await.unwrap();
        store.umount().await.unwrap();
        drop(store);
        damage(&path, 4096);
        let (shared, store) = mount_with(&shard, &path, &kv, MountOptions::default()).await;
        assert!(store.read(&oid(1), 0, 4096).await.unwrap_err().lost_block().is_some());
        // So much metadata that nothing is prepared until some of it went to the key-value store.
        let long_name = ObjectId::head(1, b"", b"", &[b'x'; 4000]);
        let many =
            |n: u64| (1000 * n..1000 * (n + 1)).map(|version| log_entry(version, &long_name)).collect();
        let commits: Vec<_> = (0..5).map(|n| store.submit(Transaction { log: many(n), ..txn([]) })).collect();
        let old = Payload::from(old);
        let mut healing = std::pin::pin!(async { store.heal(PG, 0, &oid(1), 0, &old).await?.await });
        std::future::poll_fn(|cx| {
            assert!(healing.as_mut().poll(cx).is_pending(), "it waits");
            std::task::Poll::Ready(())
        })
        .await;
        let newer = store.submit(txn([write(&oid(1), 0, new.clone())]));
        let _ = healing.await;
        newer.await.unwrap();
        for commit in commits {
            commit.await.unwrap();
        }
        assert!(store.read(&oid(1), 0, 4096).await.unwrap().to_vec() == new);
        clean(&shared, &shard).await;
    });
}

/// A lost block is an error to read, and to change in part, until all of it is overwritten, also after a restart; it takes
/// no room, and fsck names it.
#[test]
fn a_lost_block_is_an_error_until_it_is_overwritten() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let data = noise(1, 3 * 4096 + 100);
        submit(&store, txn([write(&oid(1), 0, data.clone()), write(&oid(2), 0, data.clone())]))
            .await
            .unwrap();
        let lose = |object, off, len| TxnOp::Lose { oid: oid(object), off, len };
        // The second one is cut at the end of the object, whatever is asked for.
        submit(&store, txn([lose(1, 4096, 4096), lose(2, 8192, u64::MAX)])).await.unwrap();
        store.umount().await.unwrap();
        drop(store);
        let (shared, store) = mount(&shard, &path, &kv).await;
        for (object, at) in [(1, 4096), (2, 8192), (2, 3 * 4096)] {
            let error = store.read(&oid(object), at, 10).await.unwrap_err();
            assert_eq!(
                (error.lost_block(), error.errno()),
                (Some((&oid(object), at)), errno::EIO),
                "{error}"
            );
            let part = txn([write(&oid(object), at + 7, vec![1; 9])]);
            assert_eq!(submit(&store, part).await.unwrap_err().errno(), errno::EIO);
            let zeros = Payload::from(vec![0; 4096]);
            assert!(store.heal(PG, 0, &oid(object), at, &zeros).await.is_err(), "nothing tells what it held");
        }
        assert!(store.read(&oid(1), 8192, 4196).await.unwrap().to_vec() == data[8192..]);
        let report = blue::fsck(&shared, &shard, true).await.unwrap();
        assert_eq!((report.error_count, report.blocks), (3, 3 + 2), "{report:?}");
        assert!(report.errors.iter().all(|error| error.contains("lost")), "{report:?}");
        submit(&store, txn([write(&oid(1), 4096, data[4096..8192].to_vec())])).await.unwrap();
        assert!(store.read(&oid(1), 0, u64::MAX).await.unwrap().to_vec() == data);
        submit(&store, txn([TxnOp::Remove { oid: oid(2) }])).await.unwrap();
        assert_eq!(clean(&shared, &shard).await.blocks, 4);
    });
}

#[test]
fn a_full_device_refuses_writes_cleanly_and_still_deletes() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let mut written = 0;
        let error = loop {
            match submit(&store, txn([write(&oid(written), 0, noise(written.into(), 100_000))])).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.errno(), errno::ENOSPC, "{error}");
        assert!(written > 70, "{written}");
        assert_eq!(store.stat(&oid(written)).await.unwrap(), None);
        assert!(store.statfs().free < 101 * 1024);
        for n in 0..written {
            assert!(store.read(&oid(n), 0, u64::MAX).await.unwrap().to_vec() == noise(n.into(), 100_000));
        }
        clean(&shared, &shard).await;
        // Cutting in the middle of a block needs a block: there are some kept back for it.
        let cut = TxnOp::Truncate { oid: oid(0), size: 5000 };
        submit(&store, txn([cut])).await.unwrap();
        for n in 1..written {
            submit(&store, txn([TxnOp::Remove { oid: oid(n) }])).await.unwrap();
        }
        assert_eq!(clean(&shared, &shard).await.blocks, 2);
        submit(&store, txn([write(&oid(9), 0, noise(9, 1 << 20))])).await.unwrap();
    });
}

/// By whatever name it comes in: stopping is better than two shards that change one object.
#[test]
fn a_transaction_with_an_object_of_another_pg_is_not_taken() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (shared, blue) = mount(&shard, &path, &kv).await;
        let cyan = Store::open_shard(&StoreShared::cyan(8 << 20), &shard).await.unwrap();
        let null = Store::open_shard(&StoreShared::null(), &shard).await.unwrap();
        // PG 1 of 6 shares three bits, PG 2 only two: it has the objects of PG 6, which is not there.
        let (pgs, in_pg) = (6, |hash: u32| ObjectId { hash, ..oid(1) });
        for store in [&blue, &cyan, &null] {
            for (ps, hash, is_taken) in
                [(1, 1, true), (1, 0xfff1, true), (1, 5, false), (2, 6, true), (2, 4, false), (0, 1, false)]
            {
                let pg = PgId::new(1, ps);
                let empty = Transaction::new(pg, pg_bits(ps, pgs));
                let oid = in_pg(hash);
                let ops = [TxnOp::Touch { oid: oid.clone() }, TxnOp::Touch { oid: oid.attrs() }];
                let prepared = store.prepare(&ops).await.unwrap();
                let of_ops = Transaction { ops: ops.into_iter().collect(), ..empty.clone() };
                let of_log = Transaction { log: [log_entry(1, &oid)].into_iter().collect(), ..empty };
                for txn in [of_ops, of_log] {
                    let submit = || store.submit(txn);
                    let commit = std::panic::catch_unwind(std::panic::AssertUnwindSafe(submit));
                    assert_eq!(commit.is_ok(), is_taken, "an object of hash {hash:x} in PG {pg} of {pgs}");
                    if let Ok(commit) = commit {
                        commit.await.unwrap();
                    }
                }
                drop(prepared);
            }
        }
        clean(&shared, &shard).await;
    });
}

/// Its log, trimmed and not, its info, and its place in the list of PGs; another PG keeps its own.
#[test]
fn a_forgotten_pg_is_unknown_afterwards() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, blue) = mount(&shard, &path, &kv).await;
        let cyan = Store::open_shard(&StoreShared::cyan(8 << 20), &shard).await.unwrap();
        let other = PgId { ps: PG.ps + 1, ..PG };
        for store in [blue, cyan] {
            for pg in [PG, other] {
                let oid = ObjectId { hash: pg.ps, ..oid(1) };
                let log = (1..=9).map(|version| log_entry(version, &oid)).collect();
                let info = Some(carmine_store::PgInfo { pg, ..info(9) });
                submit(&store, Transaction { log, info, ..Transaction::new(pg, 1) }).await.unwrap();
                let log_trim_to = Some(log_entry(4, &oid).version);
                submit(&store, Transaction { log_trim_to, ..Transaction::new(pg, 1) }).await.unwrap();
            }
            assert_eq!(store.list_pgs().await.unwrap(), [PG, other]);
            submit(&store, Transaction { forget_pg: true, ..Transaction::new(PG, 1) }).await.unwrap();
            assert_eq!(store.list_pgs().await.unwrap(), [other]);
            assert_eq!(store.load_pg(PG).await.unwrap(), None);
            assert_eq!(store.load_pg(other).await.unwrap().unwrap().log.len(), 5);
        }
    });
}

#[test]
fn overwriting_in_a_small_device_reuses_freed_blocks() {
    on_new_store(4 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let mut last = Vec::new();
        for round in 0..40 {
            last = noise(round, 1 << 20);
            submit(&store, txn([write(&oid(1), 0, last.clone())])).await.unwrap();
        }
        assert!(store.read(&oid(1), 0, u64::MAX).await.unwrap().to_vec() == last);
        assert_eq!(clean(&shared, &shard).await.blocks, 256);
    });
}

/// Everything that is read of an object is of one moment: the blocks that a read needs are not reused under it.
#[test]
fn reads_see_one_moment_while_blocks_are_overwritten() {
    on_new_store(4 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let version = |n: u8| vec![n; 200_000];
        submit(&store, txn([write(&oid(1), 0, version(0))])).await.unwrap();
        let done = std::rc::Rc::new(std::cell::Cell::new(0));
        for _ in 0..4 {
            let (store, done) = (store.clone(), std::rc::Rc::clone(&done));
            shard.spawn(carmine_reactor::Group::Client, "reader", async move {
                for _ in 0..60 {
                    let data = store.read(&oid(1), 0, u64::MAX).await.unwrap().to_vec();
                    assert!(data.len() == 200_000 && data.iter().all(|byte| *byte == data[0]));
                }
                done.set(done.get() + 1);
            });
        }
        let mut n = 0u8;
        while done.get() < 4 {
            n = n.wrapping_add(1);
            submit(&store, txn([write(&oid(1), 0, version(n))])).await.unwrap();
        }
        clean(&shared, &shard).await;
    });
}

#[test]
fn a_block_checksum_that_the_caller_knows_is_used() {
    on_new_store(4 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let data = Payload::from(noise(4, 4096));
        let crc = Some(data.crc32c(crc32c::SEED));
        let op = |crc| TxnOp::Write { oid: oid(1), off: 8192, data: data.clone(), crc };
        submit(&store, txn([op(crc)])).await.unwrap();
        assert_eq!(store.read(&oid(1), 8192, 4096).await.unwrap(), data);
        // A wrong one is believed, so the read says that the data is not what it should be.
        submit(&store, txn([op(Some(1))])).await.unwrap();
        assert!(matches!(
            store.read(&oid(1), 8192, 4096).await,
            Err(StoreError::Corrupt { expected: 1, .. })
        ));
    });
}

#[test]
fn misuse_and_impossible_sizes_are_refused_without_a_trace() {
    on_new_store(4 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let unprepared = store.submit(txn([write(&oid(1), 0, vec![1])]));
        assert!(matches!(unprepared.await, Err(StoreError::NotPrepared(_))));
        for (off, len) in [(u64::MAX, 1), (u64::MAX - 5000, 4096), (4 << 30, 1)] {
            let error = submit(&store, txn([write(&oid(1), off, vec![1; len])])).await.unwrap_err();
            assert_eq!(error.errno(), errno::EFBIG, "{error}");
        }
        let huge = TxnOp::Truncate { oid: oid(1), size: u64::MAX };
        assert_eq!(submit(&store, txn([huge])).await.unwrap_err().errno(), errno::EFBIG);
        let long = ObjectId::head(1, b"", b"", &[b'x'; 70_000]);
        assert!(matches!(
            submit(&store, txn([write(&long, 0, vec![1])])).await,
            Err(StoreError::NameTooLong { .. })
        ));
        let zero = TxnOp::Zero { oid: oid(1), off: 1, len: u64::MAX };
        submit(&store, txn([zero])).await.unwrap();
        assert_eq!(store.stat(&oid(1)).await.unwrap(), None);
        // The last byte that can be.
        submit(&store, txn([write(&oid(1), (4 << 30) - 1, vec![9])])).await.unwrap();
        assert_eq!(store.read(&oid(1), (4 << 30) - 3, 100).await.unwrap().to_vec(), [0, 0, 9]);
        assert_eq!(clean(&shared, &shard).await.blocks, 1);
        store.umount().await.unwrap();
        assert!(matches!(
            submit(&store, txn([write(&oid(1), 0, vec![1])])).await,
            Err(StoreError::Failed(_))
        ));
    });
}

/// Of all commits one fails, after so many good ones; the next would be good again.
struct Failing {
    good_commits: AtomicUsize,
}

impl Watch for Failing {
    fn before(&self, batches: &[KvBatch], _durable: bool) -> Result<(), KvError> {
        if !batches.is_empty() && self.good_commits.fetch_sub(1, Ordering::SeqCst) == 0 {
            // Time for others to queue up behind it.
            std::thread::sleep(std::time::Duration::from_millis(100));
            return Err(KvError::new("commit", "the disk is on fire"));
        }
        Ok(())
    }
}

/// What the log has is acknowledged whether the key-value store works or not; a store whose key-value store has failed
/// stops, and the next mount finds in the log what was acknowledged.
#[test]
fn a_failed_key_value_store_stops_the_store_and_the_log_keeps_what_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    on_reactor(async |shard| {
        // One commit each of mkfs and of the mount.
        let watch = Failing { good_commits: AtomicUsize::new(3) };
        let kv: Arc<dyn Kv> = Arc::new(WatchedKv { live: MemKv::new(), watch });
        mkfs(&shard, &path, &kv, 4 << 20).await;
        let (_, store) = mount(&shard, &path, &kv).await;
        let (mut acknowledged, mut n) = (0, 0);
        let refused = loop {
            let txn = txn([write(&oid(n), 0, noise(n.into(), 4096))]);
            match submit(&store, txn).await {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
            n += 1;
            // Time for the feeder.
            shard.sleep(std::time::Duration::from_millis(30)).await;
        };
        assert!(acknowledged >= 2, "{acknowledged}");
        assert!(refused.to_string().contains("on fire"), "{refused}");
        assert_eq!(refused.errno(), errno::ESHUTDOWN);
        assert!(store.sync().await.is_err() && store.umount().await.is_err());
        drop(store);
        let (shared, store) = mount(&shard, &path, &kv).await;
        let listed = store.list(PG, 0, None, 100).await.unwrap();
        assert!(listed.len() >= acknowledged, "{acknowledged} of {listed:?}");
        for n in 0..acknowledged as u8 {
            assert!(store.read(&oid(n), 0, 4096).await.unwrap().to_vec() == noise(n.into(), 4096));
        }
        assert!(shared.replayed().txns >= 1, "{:?}", shared.replayed());
        clean(&shared, &shard).await;
    });
}

#[test]
fn mkfs_overwrites_nothing_and_mount_takes_only_what_belongs_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    on_reactor(async |shard| {
        let kv = mem();
        let make = async |path: &Path, kv: &Arc<dyn Kv>, options: MkfsOptions| {
            blue::mkfs(&shard, path, options, Arc::clone(kv), &mut |_, _| {})
                .await
                .map_err(|error| error.to_string())
        };
        let options = MkfsOptions { force: false, ..mkfs_options(8 << 20) };
        let says = |result: Result<blue::Label, String>, words: &str| {
            let error = result.unwrap_err();
            assert!(error.contains(words), "{error:?} should say {words:?}");
        };
        says(make(&path, &kv, MkfsOptions { size_bytes: None, ..options }).await, "needs a size");
        says(make(&path, &kv, MkfsOptions { size_bytes: Some(5000), ..options }).await, "too few");
        assert!(!path.exists());
        says(make(&folder.path().join("no/such"), &kv, options).await, "no/such");
        std::fs::write(&path, b"precious").unwrap();
        says(make(&path, &kv, options).await, "not empty");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        // Written through, with progress.
        let mut seen = Vec::new();
        let through = MkfsOptions { fill: Fill::Zeros, ..options };
        let label =
            blue::mkfs(&shard, &path, through, Arc::clone(&kv), &mut |done, all| seen.push((done, all)))
                .await;
        let label = label.unwrap();
        assert_eq!(seen, [(0, 8 << 20), (8 << 20, 8 << 20)]);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
        assert!(blocks * 512 >= 8 << 20);
        says(make(&path, &mem(), options).await, "not empty");
        says(make(&folder.path().join("other"), &kv, options).await, "belongs to a store already");

        let mounted = async |path: &Path, kv: &Arc<dyn Kv>| {
            let shared = BlueShared::mount(&shard, path, Arc::clone(kv), MountOptions::default()).await;
            shared.map(|shared| shared.label().clone()).map_err(|error| error.to_string())
        };
        assert_eq!(mounted(&path, &kv).await.unwrap(), label);
        says(mounted(&path, &mem()).await, "is empty");
        says(mounted(&folder.path().join("none"), &kv).await, "none");
        let (other, other_kv) = (folder.path().join("other"), mem());
        make(&other, &other_kv, options).await.unwrap();
        says(mounted(&other, &kv).await, "do not belong together");
        // The copy of the label serves when the first is damaged; without both there is no store.
        damage(&path, 20);
        assert_eq!(mounted(&path, &kv).await.unwrap(), label);
        damage(&path, (8 << 20) - 4096 + 20);
        says(mounted(&path, &kv).await, "damaged");
        // A file that was cut.
        std::fs::OpenOptions::new().write(true).open(&other).unwrap().set_len(6 << 20).unwrap();
        says(mounted(&other, &other_kv).await, "was it cut");
        // With force it begins anew.
        make(&path, &kv, MkfsOptions { force: true, ..options }).await.unwrap();
        let (shared, store) = mount(&shard, &path, &kv).await;
        assert!(store.list(PG, 0, None, 9).await.unwrap().is_empty());
        clean(&shared, &shard).await;
    });
}

#[test]
fn damaged_metadata_is_an_error_that_names_it() {
    on_new_store(4 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let mut first = txn([write(&oid(1), 0, noise(1, 9000)), write(&oid(2), 0, noise(2, 100))]);
        first.log.push(log_entry(1, &oid(1)));
        first.info = Some(info(1));
        submit(&store, first).await.unwrap();
        store.umount().await.unwrap();
        drop(store);
        let mut all = Vec::new();
        kv.scan(&[0], &[0xff], &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
        let put = |key: &[u8], value: &[u8]| {
            let mut batch = KvBatch::default();
            batch.put(key, value);
            kv.commit(&[batch], true).unwrap();
        };
        for (key, value) in &all {
            for bit in (0..value.len() * 8).step_by(13) {
                let mut bad = value.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                put(key, &bad);
                let shared = BlueShared::mount(&shard, &path, Arc::clone(&kv), MountOptions::default()).await;
                match (key[0], shared) {
                    (b'S' | b'X', shared) => assert!(shared.is_err()),
                    (kind, Err(error)) => panic!("{kind}: {error}"),
                    (kind, Ok(shared)) => {
                        let shared_store = StoreShared::Blue(Arc::clone(&shared));
                        let store = Store::open_shard(&shared_store, &shard).await.unwrap();
                        let report = blue::fsck(&shared, &shard, false).await.unwrap();
                        assert_eq!(report.error_count, 1, "{report:?}");
                        let errors = [
                            store.load_pg(PG).await.err(),
                            store.stat(&oid(1)).await.err(),
                            store.read(&oid(2), 0, 10).await.err(),
                        ];
                        let hit = errors.iter().flatten().count();
                        assert_eq!(hit, 1, "kind {kind}, bit {bit}: {errors:?}");
                        store.umount().await.unwrap();
                    }
                }
                put(key, value);
            }
        }
        // Two objects with the same blocks.
        let (key, value) = all.iter().find(|(key, _)| key[0] == b'X').unwrap();
        let mut stray = key.clone();
        stray.extend_from_slice(b"x");
        put(&stray, value);
        let shared = BlueShared::mount(&shard, &path, Arc::clone(&kv), MountOptions::default()).await;
        assert!(shared.is_err());
    });
}

/// Runs `main` on every one of `shards` reactors and waits.
fn on_shards<Fut: Future<Output = ()> + 'static>(
    shards: u16,
    main: impl Fn(Shard) -> Fut + Send + Clone + 'static,
) {
    let config = Config { cpus: vec![None; shards.into()], alien_threads: 2, ..config() };
    let running = Arc::new(AtomicUsize::new(usize::from(shards)));
    let reactors = Reactors::start(config, move |shard| {
        let (main, running) = (main.clone(), Arc::clone(&running));
        async move {
            main(shard.clone()).await;
            if running.fetch_sub(1, Ordering::SeqCst) == 1 {
                shard.stop();
            }
        }
    })
    .unwrap();
    reactors.join().unwrap();
}

const PGS: u32 = 8;

fn pg_objects(pg: u32) -> impl Iterator<Item = ObjectId> {
    (0u32..400)
        .map(|n| ObjectId::head(1, b"", b"", format!("thing-{n}").as_bytes()))
        .filter(move |oid| PgId::of_hash(1, oid.hash, PGS).ps == pg)
}

/// What object `n` of a PG holds after some round.
fn content(oid: &ObjectId, round: u64) -> Vec<u8> {
    let seed = u64::from(oid.hash) ^ round;
    noise(seed, (seed % 30_000) as usize + 1)
}

/// One round: every shard checks and overwrites the objects of its PGs.
fn round(path: &Path, kv: &Arc<dyn Kv>, shards: u16, round: u64) {
    let path = path.to_owned();
    let shared: Arc<BlueShared> = {
        let (path, kv) = (path.clone(), Arc::clone(kv));
        on_reactor(async move |shard| {
            BlueShared::mount(&shard, &path, kv, MountOptions::default()).await.unwrap()
        })
    };
    let on_all = Arc::clone(&shared);
    on_shards(shards, move |shard| {
        let shared = StoreShared::Blue(Arc::clone(&on_all));
        async move {
            let store = Store::open_shard(&shared, &shard).await.unwrap();
            let mut commits = Vec::new();
            for pg in (0..PGS).filter(|pg| *pg as u16 % shard.shards() == shard.id().0) {
                let id = PgId::new(1, pg);
                let log = store.load_pg(id).await.unwrap().map_or(0, |state| state.log.len());
                assert_eq!(log as u64, round * pg_objects(pg).count() as u64);
                for (n, oid) in pg_objects(pg).enumerate() {
                    if round > 0 {
                        let before = store.read(&oid, 0, u64::MAX).await.unwrap();
                        assert!(before.to_vec() == content(&oid, round - 1), "{oid} in round {round}");
                    }
                    let version = Eversion::new(round as u32 + 1, n as u64 + 1);
                    let data = content(&oid, round);
                    let size = data.len() as u64;
                    let mut txn = Transaction::new(id, pg_bits(pg, PGS));
                    txn.ops.push(write(&oid, 0, data));
                    txn.ops.push(TxnOp::Truncate { oid: oid.clone(), size });
                    txn.ops.push(TxnOp::SetMeta {
                        oid: oid.clone(),
                        version,
                        user_version: 1,
                        mtime: UTime::ZERO,
                    });
                    txn.log.push(carmine_store::LogEntry { version, ..log_entry(1, &oid) });
                    let prepared = store.prepare(&txn.ops).await.unwrap();
                    commits.push(store.submit(txn));
                    drop(prepared);
                }
                let mut sorted: Vec<_> = pg_objects(pg).collect();
                sorted.sort();
                assert_eq!(store.list(id, pg_bits(pg, PGS), None, 1000).await.unwrap(), sorted);
            }
            for commit in commits {
                commit.await.unwrap();
            }
            store.umount().await.unwrap();
        }
    });
    let report = on_reactor(async |shard| clean(&shared, &shard).await);
    assert_eq!(report.objects, 400);
}

#[test]
fn the_number_of_shards_may_change_at_every_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    let kv = mem();
    on_reactor(async |shard| mkfs(&shard, &path, &kv, 64 << 20).await);
    for (number, shards) in [1, 2, 1, 3, 2].into_iter().enumerate() {
        round(&path, &kv, shards, number as u64);
    }
}

/// Nothing but the labels is written anew: what an older store has left in the same places, its log above all, is none of the
/// new one's, though it is of the same cluster and OSD.
#[test]
fn a_store_made_over_an_old_one_has_nothing_of_it() {
    const BYTES: u64 = 16 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    on_reactor(async |shard| {
        for life in 0..3u64 {
            let kv = mem();
            mkfs(&shard, &path, &kv, BYTES).await;
            // More mounts each time, so that the log of the one before is of older epochs, and of newer ones the other way.
            for round in 0..=(life ^ 1) {
                let (shared, store) = mount(&shard, &path, &kv).await;
                let names = store.list(PG, 0, None, 99).await.unwrap();
                assert_eq!(names.len() as u64, round, "life {life}: {names:?}");
                for older in 0..round {
                    let name = oid((10 * life + older) as u8);
                    assert_eq!(store.read(&name, 0, 9000).await.unwrap().to_vec(), noise(life, 9000));
                }
                clean(&shared, &shard).await;
                let name = oid((10 * life + round) as u8);
                submit(&store, txn([write(&name, 0, noise(life, 9000))])).await.unwrap();
                // No umount: what was written stands in the log.
                drop((shared, store));
            }
        }
    });
}
