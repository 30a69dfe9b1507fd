//! `blue` on real files: full devices, reuse of blocks, reads beside writes, refusals, forgotten PGs.

mod common;

use std::time::Duration;

use carmine_pgtypes::{PgInfo, Step, Transaction, pg_bits};
use carmine_store::{BLOCK_BYTES, Store, StoreError, StoreShared, StoreStats};
use carmine_types::{ObjectId, errno};
use common::*;

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
        let cut = only(&oid(0), Step::Truncate { size: 5000 });
        submit(&store, txn([cut])).await.unwrap();
        for n in 1..written {
            submit(&store, txn([remove(&oid(n))])).await.unwrap();
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
                let pg = pg_id(1, ps);
                let empty = Transaction::new(pg, pg_bits(ps, pgs));
                let oid = in_pg(hash);
                let changes =
                    [only(&oid, Step::Touch), only(&ObjectId { snap: 7, ..oid.clone() }, Step::Touch)];
                let prepared = store.prepare(&changes).await.unwrap();
                let of_changes = Transaction { changes: changes.into_iter().collect(), ..empty.clone() };
                let of_log = Transaction { log: [log_entry(1, &oid)].into_iter().collect(), ..empty };
                for txn in [of_changes, of_log] {
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
        let other = pg_id(1, 1);
        for store in [blue, cyan] {
            for pg in [PG, other] {
                let oid = ObjectId { hash: pg.pgid.ps, ..oid(1) };
                let log = (1..=9).map(|version| log_entry(version, &oid)).collect();
                let info = Some(PgInfo { pg, ..info(9) }.into());
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
fn misuse_and_impossible_sizes_are_refused_without_a_trace() {
    on_new_store(4 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let unprepared = store.submit(txn([write(&oid(1), 0, vec![1])]));
        assert!(matches!(unprepared.await, Err(StoreError::NotPrepared(_))));
        for (off, len) in [(u64::MAX, 1), (u64::MAX - 5000, 4096), (4 << 30, 1)] {
            let error = submit(&store, txn([write(&oid(1), off, vec![1; len])])).await.unwrap_err();
            assert_eq!(error.errno(), errno::EFBIG, "{error}");
        }
        let huge = only(&oid(1), Step::Truncate { size: u64::MAX });
        assert_eq!(submit(&store, txn([huge])).await.unwrap_err().errno(), errno::EFBIG);
        let long = ObjectId::head(1, b"", b"", &[b'x'; 70_000]);
        assert!(matches!(
            submit(&store, txn([write(&long, 0, vec![1])])).await,
            Err(StoreError::NameTooLong { .. })
        ));
        let zero = only(&oid(1), Step::Zero { off: 1, len: u64::MAX });
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

/// Submits whole blocks of one object at once, and gives what the store did for them.
async fn submit_together(store: &Store, blocks: std::ops::Range<u64>) -> StoreStats {
    let before = store.stats();
    let txns: Vec<_> =
        blocks.map(|at| txn([write(&oid(1), at * BLOCK_BYTES, noise(at, BLOCK_BYTES as usize))])).collect();
    let changes: Vec<_> = txns.iter().flat_map(|txn| txn.changes.clone()).collect();
    let prepared = store.prepare(&changes).await.unwrap();
    let commits: Vec<_> = txns.into_iter().map(|txn| store.submit(txn)).collect();
    drop(prepared);
    for commit in commits {
        commit.await.unwrap();
    }
    let after = store.stats();
    StoreStats {
        device_writes: after.device_writes - before.device_writes,
        deferred_txns: after.deferred_txns - before.deferred_txns,
        ..StoreStats::default()
    }
}

#[test]
fn writes_that_come_together_and_are_neighbours_on_the_device_are_one() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let did = submit_together(&store, 0..40).await;
        assert!(did.deferred_txns == 0 && did.device_writes == 1, "{did:?}");
        for at in 0..40 {
            let read = store.read(&oid(1), at * BLOCK_BYTES, BLOCK_BYTES).await.unwrap();
            assert!(read.to_vec() == noise(at, BLOCK_BYTES as usize), "block {at}");
        }
        clean(&shared, &shard).await;
    });
}

/// What comes while a group of the log is being written goes to the device with the next one.
#[test]
fn data_that_comes_turn_by_turn_is_written_with_its_group() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let blocks = 0..20;
        let block = |at| write(&oid(1), at * BLOCK_BYTES, noise(at, BLOCK_BYTES as usize));
        let changes: Vec<_> = blocks.clone().map(block).collect();
        let prepared = store.prepare(&changes).await.unwrap();
        let mut commits = Vec::new();
        for change in changes {
            commits.push(store.submit(txn([change])));
            shard.next_turn().await;
        }
        drop(prepared);
        for commit in commits {
            commit.await.unwrap();
        }
        let StoreStats { device_writes, groups, .. } = store.stats();
        assert!(device_writes <= groups, "{device_writes} writes of data beside {groups} groups");
        for at in blocks {
            let read = store.read(&oid(1), at * BLOCK_BYTES, BLOCK_BYTES).await.unwrap();
            assert!(read.to_vec() == noise(at, BLOCK_BYTES as usize), "block {at}");
        }
        clean(&shared, &shard).await;
    });
}

/// One durable write, of the log, in place of two. The block is in its place soon.
#[test]
fn blocks_that_are_written_one_after_another_go_into_the_log_only() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        let mut deferred = 0;
        for at in 0..10 {
            deferred += submit_together(&store, at..at + 1).await.deferred_txns;
        }
        assert!(deferred > 5, "a mark of the log was in flight for {} of 10", 10 - deferred);
        while store.stats().device_write_bytes < 10 * BLOCK_BYTES {
            shard.sleep(Duration::from_millis(1)).await;
        }
        let StoreStats { device_writes, flushes, .. } = store.stats();
        assert!(device_writes < 10, "neighbours are one write: {device_writes}");
        assert!(flushes < 20, "one durable write of the log for each: {flushes}");
        for at in 0..10 {
            let read = store.read(&oid(1), at * BLOCK_BYTES, BLOCK_BYTES).await.unwrap();
            assert!(read.to_vec() == noise(at, BLOCK_BYTES as usize), "block {at}");
        }
        clean(&shared, &shard).await;
    });
}
