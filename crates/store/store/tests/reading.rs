//! The read path's memory: the cache of data within its budget, and what is read ahead of a stream.

mod common;

use carmine_store::Store;
use carmine_store::blue::MountOptions;
use common::*;

const BLOCK: u64 = 4096;
/// Blocks of the object that is read: as many as an RBD object has.
const BLOCKS: u64 = 1024;

/// Runs `main` beside a store that holds one object, with the object's data.
fn with_object(options: MountOptions, main: impl AsyncFnOnce(Store, Vec<u8>)) {
    on_new_store(32 << 20, async |shard, path, kv| {
        let (_, store) = mount_with(&shard, &path, &kv, options).await;
        let data = noise(1, (BLOCKS * BLOCK) as usize);
        submit(&store, txn([write(&oid(1), 0, data.clone())])).await.unwrap();
        main(store, data).await;
    });
}

async fn expect(store: &Store, data: &[u8], block: u64, blocks: u64) {
    let found = store.read(&oid(1), block * BLOCK, blocks * BLOCK).await.unwrap().to_vec();
    assert!(found == data[(block * BLOCK) as usize..][..found.len()], "block {block}");
}

#[test]
fn a_stream_is_read_ahead_in_few_reads_of_the_device() {
    with_object(MountOptions::default(), async |store, data| {
        let before = store.stats().device_reads;
        for block in 0..BLOCKS {
            expect(&store, &data, block, 1).await;
        }
        let stats = store.stats();
        // Two alone, then half a window of 256 KiB at a time.
        assert!(stats.device_reads - before <= 2 + BLOCKS / 32 + 1, "{}", stats.device_reads - before);
        assert!(stats.readahead_hits >= BLOCKS - 4, "{}", stats.readahead_hits);
        assert!(stats.readahead_blocks <= BLOCKS, "{}", stats.readahead_blocks);
    });
}

#[test]
fn a_stream_sees_what_is_written_before_it() {
    with_object(MountOptions::default(), async |store, mut data| {
        for block in 0..BLOCKS {
            if block % 7 == 5 {
                // Not only the block that comes next: one that was read ahead, too.
                for at in [block, block + 9].into_iter().filter(|at| *at < BLOCKS) {
                    let fresh = noise(block, BLOCK as usize);
                    data[(at * BLOCK) as usize..][..BLOCK as usize].copy_from_slice(&fresh);
                    submit(&store, txn([write(&oid(1), at * BLOCK, fresh)])).await.unwrap();
                }
            }
            expect(&store, &data, block, 1).await;
        }
        assert!(store.stats().readahead_hits > 0);
    });
}

#[test]
fn reads_from_place_to_place_read_nothing_ahead() {
    with_object(MountOptions::default(), async |store, data| {
        for n in 0..BLOCKS {
            expect(&store, &data, n * 769 % BLOCKS, 1).await;
        }
        assert_eq!((store.stats().readahead_blocks, store.stats().data_cache_bytes), (0, 0));
    });
}

#[test]
fn the_cache_of_data_stays_within_its_budget_and_forgets_what_is_overwritten() {
    let budget = 100 * 4224;
    let options =
        MountOptions { data_cache_bytes_per_shard: budget, readahead_bytes: 0, ..MountOptions::default() };
    with_object(options, async |store, mut data| {
        for _ in 0..2 {
            for block in 0..90 {
                expect(&store, &data, block * 5, 1).await;
            }
        }
        let stats = store.stats();
        assert_eq!(stats.data_cache_hits, 90);
        for block in 0..90 {
            let fresh = noise(block, BLOCK as usize);
            data[(block * 5 * BLOCK) as usize..][..BLOCK as usize].copy_from_slice(&fresh);
            submit(&store, txn([write(&oid(1), block * 5 * BLOCK, fresh)])).await.unwrap();
            expect(&store, &data, block * 5, 1).await;
        }
        assert_eq!(store.stats().data_cache_hits, 90, "new content is read from the device once");
        expect(&store, &data, 0, BLOCKS).await;
        assert!(store.stats().data_cache_bytes <= budget as u64);
    });
}
