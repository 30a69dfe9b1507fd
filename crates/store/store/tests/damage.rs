//! Damage of a store on real files: flipped bits, lost blocks, healing, damaged metadata.

mod common;

use std::sync::Arc;

use carmine_pgtypes::{Step, Transaction};
use carmine_reactor::Payload;
use carmine_store::blue::{self, MountOptions};
use carmine_store::{BlueShared, KvBatch, Store, StoreError, StoreShared};
use carmine_types::{ObjectId, crc32c, errno};
use common::*;

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
        // This is enough metadata that nothing is prepared until some of it has gone to the key-value store.
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
        let lose = |object, off, len| only(&oid(object), Step::MarkLost { off, len, crc: 0 });
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
        submit(&store, txn([remove(&oid(2))])).await.unwrap();
        assert_eq!(clean(&shared, &shard).await.blocks, 4);
    });
}

/// A lost block whose checksum is known gets its content back from whoever has it, also the last one of an object; of
/// other bytes nothing is taken.
#[test]
fn a_lost_block_whose_checksum_is_known_is_healed() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let data = noise(1, 3 * 4096 + 100);
        let last = [&data[3 * 4096..], &[0; 4096 - 100]].concat();
        {
            let (_, store) = mount(&shard, &path, &kv).await;
            submit(&store, txn([write(&oid(1), 0, data.clone())])).await.unwrap();
            let lose = |off: u64, whole: &[u8]| {
                only(&oid(1), Step::MarkLost { off, len: 4096, crc: crc32c::raw(crc32c::SEED, whole) })
            };
            let blocks = [lose(0, &data[..4096]), lose(4096, &data[4096..8192]), lose(3 * 4096, &last)];
            submit(&store, txn(blocks)).await.unwrap();
            store.umount().await.unwrap();
        }
        let (shared, store) = mount(&shard, &path, &kv).await;
        for block in [3, 0, 1] {
            let (from, to) = (block * 4096, data.len().min((block + 1) * 4096));
            let error = store.read(&oid(1), from as u64, 10).await.unwrap_err();
            assert_eq!(error.lost_block(), Some((&oid(1), from as u64)));
            let heal = |content: Vec<u8>| {
                let content = Payload::from(content);
                async { store.heal(PG, 0, &oid(1), from as u64, &{ content }).await }
            };
            let wrong = heal(noise(9, 4096)).await.err().expect("these bytes are others");
            assert_eq!(wrong.lost_block(), Some((&oid(1), from as u64)), "{wrong}");
            heal(data[from..to].to_vec()).await.unwrap().await.unwrap();
            assert!(store.read(&oid(1), from as u64, 4096).await.unwrap().to_vec() == data[from..to]);
        }
        assert!(store.read(&oid(1), 0, u64::MAX).await.unwrap().to_vec() == data);
        clean(&shared, &shard).await;
    });
}

#[test]
fn a_block_checksum_that_the_caller_knows_is_used() {
    on_new_store(4 << 20, async |shard, path, kv| {
        // A block that goes into the log is read from memory until it is in its place.
        let options = MountOptions { prefer_deferred_bytes: Some(0), ..MountOptions::default() };
        let shared = BlueShared::mount(&shard, &path, Arc::clone(&kv), options).await.unwrap();
        let store = Store::open_shard(&StoreShared::Blue(shared), &shard).await.unwrap();
        let data = Payload::from(noise(4, 4096));
        let op = |crc| only(&oid(1), Step::Write { off: 8192, data: data.clone().with_crc(crc) });
        submit(&store, txn([op(data.crc32c(crc32c::SEED))])).await.unwrap();
        assert_eq!(store.read(&oid(1), 8192, 4096).await.unwrap(), data);
        // A wrong one is believed, so the read says that the data is not what it should be.
        submit(&store, txn([op(1)])).await.unwrap();
        assert!(matches!(
            store.read(&oid(1), 8192, 4096).await,
            Err(StoreError::Corrupt { expected: 1, .. })
        ));
    });
}

#[test]
fn damaged_metadata_is_an_error_that_names_it() {
    on_new_store(4 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let mut first = txn([write(&oid(1), 0, noise(1, 9000)), write(&oid(2), 0, noise(2, 100))]);
        first.log.push(log_entry(1, &oid(1)));
        first.info = Some(info(1).into());
        submit(&store, first).await.unwrap();
        store.umount().await.unwrap();
        drop(store);
        // It takes away what the unmount left: from here on each mount scans the block maps.
        drop(mount(&shard, &path, &kv).await);
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
