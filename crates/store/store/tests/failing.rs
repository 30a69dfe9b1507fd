//! Drives and key-value stores that fail. After the first failed write or flush of a drive nothing is acknowledged any more,
//! also when the drive works again (a flush that failed is not tried again: what it was to make durable may be gone), and
//! what was acknowledged before is there at the next start. So it is with the first failed commit of a key-value store.
// A key-value store is slow on a thread of its own, which may sleep.
#![allow(clippy::disallowed_methods)]

mod common;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carmine_reactor::Shard;
use carmine_reactor::sim::Sim;
use carmine_store::blue::{self, MountOptions, Places};
use carmine_store::{BlueShared, Kv, KvBatch, KvError, MemKv, Store, StoreError, StoreShared};
use carmine_types::errno;
use common::*;

/// Bytes of an object, by its number.
const LENGTHS: [usize; 2] = [9000, 100];
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Writes,
    Flushes,
}

fn block() -> PathBuf {
    PathBuf::from("/sim/block")
}

fn wal() -> PathBuf {
    PathBuf::from("/sim/wal")
}

fn places(with_wal: bool) -> Places {
    let wal = with_wal.then(|| (&wal()).into());
    Places { wal: wal.into_iter().collect(), ..Places::from(&block()) }
}

async fn open(shard: &Shard, with_wal: bool, kv: &Arc<dyn Kv>) -> Result<Store, StoreError> {
    let options = MountOptions { prefer_deferred_bytes: Some(4096), ..MountOptions::default() };
    let shared = BlueShared::mount(shard, places(with_wal), Arc::clone(kv), options).await?;
    Store::open_shard(&StoreShared::Blue(shared), shard).await
}

/// Parts of a block, which go into the log, and whole blocks, which go to their place; several at once, so that they share
/// what makes them durable.
async fn overwrite(store: &Store, round: u8) -> Result<(), StoreError> {
    let mut commits = Vec::new();
    for object in 1..=4 {
        let txn = txn([write(&oid(object), 0, noise(round.into(), LENGTHS[usize::from(object) % 2]))]);
        let prepared = store.prepare(&txn.changes).await?;
        commits.push(store.submit(txn));
        drop(prepared);
    }
    let mut result = Ok(());
    for commit in commits {
        result = result.and(commit.await);
    }
    result
}

/// A part of the block that the write before it was to change, and that block again.
async fn go_on(store: &Store) -> [Result<(), StoreError>; 2] {
    let part = txn([write(&oid(2), 100, noise(9, 50))]);
    let written = match store.prepare(&part.changes).await {
        Ok(_prepared) => store.submit(part).await,
        Err(error) => Err(error),
    };
    [written, store.read(&oid(2), 0, 50).await.map(drop)]
}

/// State by which a test and its node communicate.
#[derive(Default)]
struct Stage {
    /// Counts up: even ones are the node's to end, odd ones the test's.
    at: Cell<u8>,
    said: RefCell<Vec<Result<(), StoreError>>>,
    /// Of [`go_on`], while the drive fails.
    went_on: RefCell<Vec<Result<(), StoreError>>>,
}

impl Stage {
    async fn reach(&self, shard: &Shard, wanted: u8) {
        while self.at.get() < wanted {
            shard.sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn life(shard: Shard, stage: Rc<Stage>, with_wal: bool, kv: Arc<dyn Kv>) {
    blue::mkfs(&shard, places(with_wal), mkfs_options(8 << 20), Arc::clone(&kv), &mut |_, _| {})
        .await
        .unwrap();
    let store = open(&shard, with_wal, &kv).await.unwrap();
    overwrite(&store, 1).await.unwrap();
    for (begin, round) in [(2, 2), (4, 3)] {
        stage.at.set(begin - 1);
        stage.reach(&shard, begin).await;
        let result = overwrite(&store, round).await;
        stage.said.borrow_mut().push(result);
        let went_on = go_on(&store).await;
        stage.went_on.borrow_mut().extend(went_on);
    }
    stage.at.set(5);
}

fn fails(with_wal: bool, victim: &Path, fault: Fault) {
    let what = format!("{fault:?} of {}, log apart: {with_wal}", victim.display());
    let sim = Sim::new(11);
    let mem = Arc::new(MemKv::new());
    let (stage, kv): (Rc<Stage>, Arc<dyn Kv>) = (Rc::default(), Arc::clone(&mem) as Arc<dyn Kv>);
    let node = {
        let (stage, kv) = (Rc::clone(&stage), Arc::clone(&kv));
        sim.node("osd", 1, move |shard| life(shard, Rc::clone(&stage), with_wal, Arc::clone(&kv)))
    };
    let set = |fail| match fault {
        Fault::Writes => sim.disk("osd", victim).fail_writes(fail),
        Fault::Flushes => sim.disk("osd", victim).fail_flushes(fail),
    };
    for (reached, fail) in [(1, true), (3, false)] {
        sim.run(|| stage.at.get() == reached, LIMIT).unwrap();
        set(fail);
        stage.at.set(reached + 1);
    }
    sim.run(|| stage.at.get() == 5, LIMIT).unwrap();
    let said = stage.said.take();
    let error = said[0].as_ref().expect_err(&format!("{what}: acknowledged while it fails")).to_string();
    assert!(error.contains(&*victim.to_string_lossy()), "{what}: it is only said: {error}");
    assert!(said[1].is_err(), "{what}: acknowledged when it works again");
    for (n, result) in stage.went_on.take().into_iter().enumerate() {
        let is_write = n % 2 == 0;
        match result {
            // A read may give the content from before, or content that reached the drive in spite of all.
            Ok(()) => assert!(!is_write, "{what}: a part was acknowledged"),
            Err(error) => assert!(matches!(error, StoreError::Failed(_)), "{what}: {error}"),
        }
    }
    sim.kill(node);
    mem.crash(0);
    let done = Rc::new(Cell::new(false));
    let flag = Rc::clone(&done);
    sim.node("osd", 1, move |shard| {
        let (flag, kv) = (Rc::clone(&flag), Arc::clone(&kv));
        async move {
            let store = open(&shard, with_wal, &kv).await.unwrap();
            for object in 1..=4 {
                let len = LENGTHS[usize::from(object) % 2];
                let found = store.read(&oid(object), 0, u64::MAX).await.unwrap().to_vec();
                // A write that was not acknowledged may be there, whole, or not.
                assert!((1..=2).any(|round| found == noise(round, len)), "object {object}");
            }
            flag.set(true);
        }
    });
    sim.run(|| done.get(), LIMIT).unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn a_drive_that_failed_once_acknowledges_nothing_any_more() {
    for fault in [Fault::Writes, Fault::Flushes] {
        fails(false, &block(), fault);
        fails(true, &block(), fault);
        fails(true, &wal(), fault);
    }
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

/// Transactions in the log are acknowledged whether the key-value store works or not; a store whose key-value store has
/// failed stops, and the next mount finds the acknowledged transactions in the log.
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
