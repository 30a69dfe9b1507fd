//! Splits of PGs on each store: objects stay where they are, each part has its objects and its log, and many splits at once are fed
//! to the key-value store in parts.
// What the test sees of the key-value store is locked on alien threads only.
#![allow(clippy::disallowed_types)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use carmine_pgtypes::{LogEntry, PgInfo, Transaction, pg_bits, pg_children};
use carmine_reactor::Shard;
use carmine_store::{Kv, KvBatch, KvError, MemKv, Store, StoreShared};
use carmine_types::{Eversion, ObjectId, PgId, SpgId};
use common::*;

/// PG 0 of a pool that grows from 3 PGs to 12: it has the children 4 and 8.
const OLD: u32 = 3;
const NEW: u32 = 12;

/// A write of the object number `n`, as the `n`th change of the PG.
fn nth_write(n: u64) -> Transaction {
    let hash = (n as u32) << 2;
    let oid = ObjectId {
        name: format!("{n}").into_bytes().into(),
        snap: u64::MAX - 1,
        ..ObjectId::cursor(1, hash)
    };
    let mut txn = Transaction::new(PG, pg_bits(0, OLD));
    txn.changes.push(write(&oid, 0, noise(n, 5000)));
    txn.log.push(log_entry(n, &oid));
    txn
}

/// Writes, trims and splits the PG, and goes on in all of its parts.
async fn split_and_go_on(store: &Store, model: &mut Model) {
    let run = async |model: &mut Model, txn: Transaction| {
        model.apply(&txn);
        submit(store, txn).await.unwrap();
    };
    for n in 1..=20 {
        run(model, nth_write(n)).await;
    }
    run(
        model,
        Transaction { log_trim_to: Some(Eversion::new(4, 5)), ..Transaction::new(PG, pg_bits(0, OLD)) },
    )
    .await;
    let info = PgInfo { pg_num: OLD, ..model.pg(PG).unwrap().info };
    run(model, split(&info, NEW)).await;
    let parent = model.pg(PG).unwrap();
    assert_eq!((parent.log.len(), parent.info.pg_num), (15, NEW));
    for ps in [0, 4, 8] {
        let id = pg_id(1, ps);
        let hash = ps | 64;
        let oid = ObjectId { name: (*b"later").into(), ..ObjectId::cursor(1, hash) };
        let mut txn = Transaction::new(id, pg_bits(ps, NEW));
        txn.changes.push(write(&oid, 0, noise(7, 100)));
        txn.log.push(log_entry(21, &oid));
        run(model, txn).await;
    }
    // A child that is removed leaves its parent alone.
    let txn = Transaction::new(pg_id(1, 8), pg_bits(8, NEW));
    let changes = model.objects_of(txn.pg, txn.bits).map(remove).collect();
    run(model, Transaction { changes, forget_pg: true, ..txn }).await;
}

async fn compare(store: &Store, model: &Model) {
    for ps in [0, 4, 8] {
        model.compare(store, pg_id(1, ps), NEW, 3).await;
        model.compare_pg(store, pg_id(1, ps)).await;
    }
    assert_eq!(store.list_pgs().await.unwrap(), [pg_id(1, 0), pg_id(1, 4)]);
    let child = store.load_pg(pg_id(1, 4)).await.unwrap().unwrap();
    assert!(child.info.log_tail == Eversion::new(4, 5) && child.log.len() == 16);
    let is_own = |entry: &LogEntry| PgId::of_hash(1, entry.oid.hash, NEW).ps == 4 && !entry.is_stub();
    assert_eq!(child.log.iter().filter(|entry| is_own(entry)).count(), 8, "7, 9, … 19, and the last one");
    // The parent's log is not written anew.
    assert!(!store.load_pg(PG).await.unwrap().unwrap().log.iter().any(LogEntry::is_stub));
}

#[test]
fn each_part_has_its_objects_and_its_log() {
    on_reactor(async |shard| {
        let store = Store::open_shard(&StoreShared::cyan(1 << 30), &shard).await.unwrap();
        let mut model = Model::default();
        split_and_go_on(&store, &mut model).await;
        compare(&store, &model).await;
    });
    on_new_store(64 << 20, async |shard: Shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let mut model = Model::default();
        split_and_go_on(&store, &mut model).await;
        compare(&store, &model).await;
        store.umount().await.unwrap();
        let (shared, store) = mount(&shard, &path, &kv).await;
        compare(&store, &model).await;
        clean(&shared, &shard).await;
    });
}

/// Bytes of each commit.
#[derive(Default)]
struct Sizes(Mutex<Vec<usize>>);

impl Sizes {
    fn forget(&self) -> Vec<usize> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Watch for Sizes {
    fn before(&self, batches: &[KvBatch], _durable: bool) -> Result<(), KvError> {
        if !batches.is_empty() {
            self.0.lock().unwrap().push(batches.iter().map(KvBatch::bytes).sum());
        }
        Ok(())
    }
}

/// PGs of a pool that becomes twice as large, …
const MANY: u32 = 256;
/// … and entries of each one's log.
const ENTRIES: u64 = 3000;
/// Most bytes of a commit: those of one batch of the feeder, and of two transactions more.
const COMMIT_BYTES_MAX: usize = 10 << 20;

/// Far more than it takes on a busy machine, and less than if each split went through all others.
const TIME_MAX: Duration = Duration::from_secs(120);

fn of_many(ps: u32) -> SpgId {
    pg_id(1, ps)
}

/// A PG with a full log: every other entry is the child's.
fn full_log(ps: u32) -> Transaction {
    let mut txn = Transaction::new(of_many(ps), pg_bits(ps, MANY));
    txn.log = (1..=ENTRIES).map(|n| log_entry(n, &ObjectId::cursor(1, (n as u32) << 8 | ps))).collect();
    txn.log.iter_mut().for_each(|entry| entry.returned = None);
    txn
}

#[test]
fn many_full_logs_are_divided_at_once_in_parts_of_bounded_size() {
    let watched = Arc::new(WatchedKv { live: MemKv::new(), watch: Sizes::default() });
    let kv = Arc::clone(&watched) as Arc<dyn Kv>;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    on_reactor(async |shard| {
        mkfs(&shard, &path, &kv, 4 << 30).await;
        let (_, store) = mount(&shard, &path, &kv).await;
        for ps in 0..MANY {
            submit(&store, full_log(ps)).await.unwrap();
        }
        let state = store.load_pg(of_many(0)).await.unwrap().unwrap();
        watched.watch.forget();
        let begun_ns = shard.now_ns();
        let mut commits = Vec::new();
        for ps in 0..MANY {
            let info = PgInfo { pg: of_many(ps), pg_num: MANY, ..state.info.clone() };
            let txn = split(&info, 2 * MANY);
            assert!(txn.split.iter().map(|child| child.pg.pgid.ps).eq(pg_children(ps, MANY, 2 * MANY)));
            let prepared = store.prepare(&txn.changes).await.unwrap();
            commits.push(store.submit(txn));
            drop(prepared);
        }
        for commit in commits {
            commit.await.unwrap();
        }
        for ps in (0..MANY).step_by(51) {
            let child = store.load_pg(of_many(ps + MANY)).await.unwrap().unwrap();
            let stubs = child.log.iter().filter(|entry| entry.is_stub()).count() as u64;
            assert_eq!((child.log.len() as u64, stubs), (ENTRIES, ENTRIES / 2));
        }
        let took = Duration::from_nanos(shard.now_ns() - begun_ns);
        println!("{MANY} logs of {ENTRIES} entries are divided in {took:?}");
        assert!(took < TIME_MAX, "{took:?}");
        let sizes = watched.watch.forget();
        let (most, all) = (sizes.iter().max().copied().unwrap_or(0), sizes.iter().sum::<usize>());
        println!("{} commits with {all} bytes, the largest with {most}", sizes.len());
        assert!(all > MANY as usize * ENTRIES as usize * 100 && most < COMMIT_BYTES_MAX);
        store.umount().await.unwrap();
    });
}
