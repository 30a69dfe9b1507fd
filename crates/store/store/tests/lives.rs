//! How a store is made and started again: with another number of shards, over an older store, and what is refused.
// The tests look at the files from outside.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carmine_pgtypes::{LogEntry, Step, Transaction, pg_bits};
use carmine_reactor::{Config, Reactors, Shard, ShardId};
use carmine_store::blue::{self, Fill, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, Store, StoreShared};
use carmine_types::{Eversion, ObjectId, PgId, UTime};
use common::*;

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

/// The content of an object after some round.
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
                let id = pg_id(1, pg);
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
                    txn.changes.push(write(&oid, 0, data));
                    txn.changes.push(only(&oid, Step::Truncate { size }));
                    let set_meta = Step::SetMeta { version, user_version: 1, mtime: UTime::ZERO };
                    txn.changes.push(only(&oid, set_meta));
                    txn.log.push(LogEntry { version, ..log_entry(1, &oid) });
                    let prepared = store.prepare(&txn.changes).await.unwrap();
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

/// The turn of the shard that has the PG: what the other one wrote is there, and parts of it are written over. What it read, it may keep
/// in memory.
async fn turn(store: &Store, turn: u64) {
    for (n, oid) in pg_objects(0).enumerate() {
        if turn > 0 {
            let before = store.read(&oid, 0, u64::MAX).await.unwrap();
            assert!(before.to_vec() == content(&oid, turn - 1), "{oid} in turn {turn}");
        }
        let version = Eversion::new(turn as u32 + 1, n as u64 + 1);
        let (data, mut txn) = (content(&oid, turn), Transaction::new(pg_id(1, 0), pg_bits(0, PGS)));
        let size = data.len() as u64;
        txn.changes.push(write(&oid, 0, data));
        txn.changes.push(only(&oid, Step::Truncate { size }));
        txn.log.push(LogEntry { version, ..log_entry(1, &oid) });
        submit(store, txn).await.unwrap();
        store.read(&oid, 0, u64::MAX).await.unwrap();
    }
}

const TURNS: u16 = 5;

/// Two shards have a PG in turns, while one of them writes another PG.
async fn take_turns(shard: &Shard) {
    for n in 0..TURNS {
        let have = async move |shard: Shard| {
            let store = shard.local::<Store>().unwrap();
            turn(&store, n.into()).await;
            store.release(pg_id(1, 0), pg_bits(0, PGS)).await.unwrap()
        };
        let released = shard.call(ShardId(n % 2), have).await;
        let other = pg_objects(1).next().unwrap();
        let mut txn = Transaction::new(pg_id(1, 1), pg_bits(1, PGS));
        txn.changes.push(write(&other, 0, content(&other, n.into())));
        submit(&shard.local::<Store>().unwrap(), txn).await.unwrap();
        let adopt = async move |shard: Shard| shard.local::<Store>().unwrap().adopt(released).await;
        shard.call(ShardId((n + 1) % 2), adopt).await;
    }
}

fn a_pg_changes_its_shard(shared: StoreShared) {
    let open = Arc::new(AtomicUsize::new(0));
    on_shards(2, move |shard| {
        let (shared, open) = (shared.clone(), Arc::clone(&open));
        async move {
            shard.set_local(Rc::new(Store::open_shard(&shared, &shard).await.unwrap()));
            open.fetch_add(1, Ordering::SeqCst);
            // The other one answers until all is done, and closes the store then.
            let wanted = if shard.id().0 == 0 { 2 } else { 3 };
            while open.load(Ordering::SeqCst) < wanted {
                shard.sleep(Duration::from_millis(1)).await;
            }
            if shard.id().0 == 0 {
                take_turns(&shard).await;
                open.fetch_add(1, Ordering::SeqCst);
            }
            shard.local::<Store>().unwrap().umount().await.unwrap();
        }
    });
}

#[test]
fn a_pg_goes_from_shard_to_shard_while_the_store_is_mounted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    let kv = mem();
    on_reactor(async |shard| mkfs(&shard, &path, &kv, 64 << 20).await);
    let options = MountOptions { data_cache_bytes_per_shard: 1 << 20, ..MountOptions::default() };
    let shared: Arc<BlueShared> =
        on_reactor(async |shard| BlueShared::mount(&shard, &path, Arc::clone(&kv), options).await.unwrap());
    a_pg_changes_its_shard(StoreShared::Blue(Arc::clone(&shared)));
    let report = on_reactor(async |shard| clean(&shared, &shard).await);
    assert_eq!(report.objects, 1 + pg_objects(0).count() as u64);
    on_reactor(async |shard| {
        let (_, store) = mount(&shard, &path, &kv).await;
        turn(&store, TURNS.into()).await;
    });
    a_pg_changes_its_shard(StoreShared::cyan(64 << 20));
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
