//! Listing a PG in a store that also holds another shard of it, and several generations of its objects.

mod common;

use carmine_pgtypes::{Step, Transaction, pg_bits};
use carmine_reactor::Shard;
use carmine_store::{Store, StoreShared};
use carmine_types::{NO_SHARD, ObjectId};
use common::*;

/// The two shards of one PG.
const SHARDS: [usize; 2] = [1, 2];
const OBJECTS: usize = 4;

/// Runs `check` on a store of each kind.
fn on_stores(check: impl AsyncFn(&Store)) {
    on_new_store(4 << 20, async |shard: Shard, path, kv| {
        check(&mount(&shard, &path, &kv).await.1).await;
        check(&Store::open_shard(&StoreShared::cyan(1 << 20), &shard).await.unwrap()).await;
    });
}

async fn touch(store: &Store, txn: Transaction, objects: &[ObjectId]) {
    let changes = objects.iter().map(|oid| only(oid, Step::Touch)).collect();
    submit(store, Transaction { changes, ..txn }).await.unwrap();
}

/// Clients and the members that hold other shards do not know the shard: they name places without it, or with theirs.
#[test]
fn a_listing_begins_at_the_place_that_it_is_given_whatever_shard_that_names() {
    on_stores(async |store| {
        for index in SHARDS {
            let bits = pg_bits(part(index).pgid.ps, PART_PGS);
            let objects: Vec<_> = (0..OBJECTS).map(|n| object_of(index, n)).collect();
            touch(store, Transaction::new(part(index), bits), &objects).await;
        }
        for index in SHARDS {
            let (pg, bits) = (part(index), pg_bits(part(index).pgid.ps, PART_PGS));
            let mut objects: Vec<_> = (0..OBJECTS).map(|n| object_of(index, n)).collect();
            objects.sort();
            for (at, oid) in objects.iter().enumerate() {
                for shard in [NO_SHARD, 0, 1, 2] {
                    let from = ObjectId { shard, ..oid.clone() };
                    let listed = store.list(pg, bits, Some(&from), OBJECTS).await.unwrap();
                    assert_eq!(listed, objects[at..], "{pg} from {from} on {}", store.kind());
                }
            }
        }
    });
}

#[test]
fn all_generations_of_the_first_possible_object_are_listed() {
    on_stores(async |store| {
        let first = |generation| ObjectId { generation, ..ObjectId::cursor(1, 0) };
        let objects = [0, 7, u64::MAX].map(first);
        touch(store, txn([]), &objects).await;
        let listed = store.list(PG, 0, None, OBJECTS).await.unwrap();
        assert_eq!(listed, objects, "on {}", store.kind());
    });
}
