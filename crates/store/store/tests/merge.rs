//! Merges of PGs on each store: objects stay where they are, with all that they have, also while it is on its way to the drive; nothing
//! but them is left of the PGs that are merged.

mod common;

use std::path::Path;
use std::sync::Arc;

use carmine_pgtypes::{
    LogEntry, Merge, ObjectChange, PgInfo, PgState, Step, Transaction, merged_away, pg_bits,
};
use carmine_reactor::{Payload, Shard};
use carmine_store::blue::MountOptions;
use carmine_store::{Commit, Kv, MemKv, Store, StoreShared};
use carmine_types::{Epoch, Eversion, ObjectId, SNAP_HEAD, SpgId};
use common::*;

/// PG 0 of a pool of 3 PGs, which grows to 12 and shrinks to 3 again: it has the children 4 and 8.
const FEW: u32 = 3;
const MANY: u32 = 12;

/// An object of PG `ps`, or its clone `snap`.
fn object(ps: u32, snap: u64) -> ObjectId {
    ObjectId { name: (*b"object").into(), snap, ..ObjectId::cursor(1, ps | 0x40) }
}

/// A store, and a model of what it has when all is durable.
struct Pair<'a> {
    store: &'a Store,
    model: Model,
    commits: Vec<Commit>,
}

impl<'a> Pair<'a> {
    fn new(store: &'a Store, model: Model) -> Pair<'a> {
        Pair { store, model, commits: Vec::new() }
    }

    /// Nothing is waited for.
    async fn submit(&mut self, txn: Transaction) {
        self.model.apply(&txn);
        let prepared = self.store.prepare(&txn.changes).await.unwrap();
        self.commits.push(self.store.submit(txn));
        drop(prepared);
    }

    fn info(&self, ps: u32) -> PgInfo {
        let id = pg_id(1, ps);
        let info = self.model.pg(id).map(|state| state.info).unwrap_or_default();
        PgInfo { pg: id, pg_num: info.pg_num.max(FEW), ..info }
    }

    /// The next change of a PG.
    async fn change(&mut self, ps: u32, changes: impl IntoIterator<Item = ObjectChange>) {
        let info = self.info(ps);
        let version = Eversion::new(4, info.last_update.version + 1);
        let mut txn = Transaction::new(info.pg, pg_bits(ps, info.pg_num));
        txn.changes = changes.into_iter().collect();
        txn.log.push(LogEntry { version, ..log_entry(version.version, &txn.changes[0].oid) });
        self.submit(txn).await;
    }

    /// An object of several blocks with a clone that shares most of them, attributes and an omap; and the PG's index of snapshots.
    async fn fill(&mut self, ps: u32) {
        let (head, of_snap) = (object(ps, SNAP_HEAD), object(ps, 4));
        let pair = |key: &[u8]| (key.into(), noise(ps.into(), 20).into());
        self.change(ps, [write(&head, 0, noise(ps.into(), 40_000))]).await;
        let attribute = Step::SetXattr { name: (*b"_a").into(), value: b"value".to_vec().into() };
        let omap = Step::SetOmap { entries: vec![pair(b"key"), pair(b"other")] };
        let header = Step::SetOmapHeader { header: b"header".to_vec().into() };
        self.change(ps, [ObjectChange::new(head.clone(), [attribute, omap, header])]).await;
        self.change(ps, [clone(&of_snap, &head), write(&head, 9000, noise(7, 300))]).await;
        self.change(ps, [only(&mapper(pg_id(1, ps)), Step::SetOmap { entries: vec![pair(b"snapshot")] })])
            .await;
    }

    async fn split(&mut self) {
        let txn = split(&self.info(0), MANY);
        assert_eq!(txn.split.len(), 2);
        self.submit(txn).await;
    }

    async fn merge(&mut self, pg_num: u32) {
        let sources: Vec<SpgId> = merged_into(PG, pg_num, self.model.pgs());
        let sources: Vec<PgInfo> = sources.iter().map(|pg| self.info(pg.pgid.ps)).collect();
        let txn = merge(&self.info(0), &sources, pg_num, 2);
        self.submit(txn).await;
    }

    fn objects_of(&self, ps: u32, pg_num: u32) -> usize {
        self.model.objects_of(pg_id(1, ps), pg_bits(ps, pg_num)).count()
    }

    /// Waits until all is durable, and compares.
    async fn compare(&mut self) {
        for commit in self.commits.drain(..) {
            commit.await.unwrap();
        }
        for pg in self.model.pgs() {
            let pg_num = self.info(pg.pgid.ps).pg_num;
            self.model.compare(self.store, pg, pg_num, 3).await;
            self.model.compare_pg(self.store, pg).await;
        }
        assert_eq!(self.store.list_pgs().await.unwrap(), self.model.pgs());
    }

    /// Splits the PG, fills one of the parts, leaves another one empty, and merges them; then what was a source's is changed.
    async fn live(&mut self) {
        self.fill(0).await;
        self.split().await;
        self.fill(8).await;
        self.change(4, [remove(&mapper(pg_id(1, 4)))]).await;
        assert_eq!([0, 4, 8].map(|ps| self.objects_of(ps, MANY)), [3, 0, 3]);
        self.merge(FEW).await;
        assert!(self.model.pgs() == [PG] && self.objects_of(0, FEW) == 5);
        let (head, of_snap) = (object(8, SNAP_HEAD), object(8, 4));
        self.change(0, [write(&head, 0, noise(9, 5000)), remove(&of_snap)]).await;
        let append = Step::Write { off: 40_000, data: Payload::from(noise(3, 100)) };
        self.change(0, [only(&head, append), only(&head, Step::RemoveOmap { keys: vec![(*b"key").into()] })])
            .await;
        // At once again, and in two steps.
        self.split().await;
        self.merge(6).await;
        assert_eq!(self.model.pgs(), [PG, pg_id(1, 4)]);
        self.merge(FEW).await;
    }
}

async fn live_on_blue(shard: Shard, path: &Path, kv: Arc<dyn Kv>, prefer_deferred_bytes: u64) {
    let options = MountOptions {
        cache_bytes_per_shard: 4096,
        prefer_deferred_bytes: Some(prefer_deferred_bytes),
        ..MountOptions::default()
    };
    let (shared, store) = mount_with(&shard, path, &kv, options).await;
    let mut pair = Pair::new(&store, Model::default());
    pair.live().await;
    assert_eq!(store.stats().deferred_txns > 0, prefer_deferred_bytes > 0);
    pair.compare().await;
    clean(&shared, &shard).await;
    let model = pair.model;
    store.umount().await.unwrap();
    let (shared, store) = mount(&shard, path, &kv).await;
    let mut pair = Pair::new(&store, model);
    pair.compare().await;
    pair.split().await;
    pair.compare().await;
    clean(&shared, &shard).await;
}

#[test]
fn a_merged_pg_has_all_that_its_parts_had() {
    on_reactor(async |shard| {
        let store = Store::open_shard(&StoreShared::cyan(1 << 30), &shard).await.unwrap();
        let mut pair = Pair::new(&store, Model::default());
        pair.live().await;
        pair.compare().await;
    });
    for prefer_deferred_bytes in [0, 64 << 10] {
        on_new_store(64 << 20, async move |shard, path, kv| {
            live_on_blue(shard, &path, kv, prefer_deferred_bytes).await;
        });
    }
}

/// Entries of each part's log.
const ENTRIES: u64 = 3000;

/// A part of a pool of two, with a full log.
fn full_log(ps: u32) -> Transaction {
    let mut txn = Transaction::new(pg_id(1, ps), 1);
    let oid = |n: u64| ObjectId { name: noise(n, 30).into(), ..ObjectId::cursor(1, (n as u32) << 1 | ps) };
    txn.log = (1..=ENTRIES).map(|n| log_entry(n, &oid(n))).collect();
    txn.info = Some(PgInfo { pg: txn.pg, pg_num: 2, ..PgInfo::default() }.into());
    txn
}

/// Merges both parts as an OSD does; what the PG is then.
async fn merge_full_logs(store: &Store) -> PgState {
    for ps in [0, 1] {
        submit(store, full_log(ps)).await.unwrap();
    }
    let target = store.load_pg(pg_id(1, 0)).await.unwrap().unwrap();
    let source = store.load_pg(pg_id(1, 1)).await.unwrap().unwrap();
    let versions = Some((source.info.last_update, target.info.last_update));
    let map = Merge { pg_num: 1, epoch: Epoch(9), versions };
    let merged = PgState::absorb(Some(target), PG, &[source], &map);
    assert!(!merged.info.incomplete && merged.log.len() as u64 == 2 * ENTRIES);
    let merge = vec![pg_id(1, 1)];
    let txn = Transaction {
        changes: merged_away(&merge),
        info: Some(merged.info.clone().into()),
        log: merged.log.clone().into(),
        log_rewind_to: Some(Eversion::ZERO),
        merge,
        ..Transaction::new(PG, 0)
    };
    submit(store, txn).await.unwrap();
    merged
}

#[test]
fn a_merged_log_of_full_ones_is_there_as_a_whole() {
    on_reactor(async |shard| {
        let store = Store::open_shard(&StoreShared::cyan(1 << 30), &shard).await.unwrap();
        let merged = merge_full_logs(&store).await;
        assert!(store.load_pg(PG).await.unwrap() == Some(merged));
    });
    let folder = tempfile::tempdir().unwrap();
    let (path, mem) = (folder.path().join("block"), Arc::new(MemKv::new()));
    let kv = Arc::clone(&mem) as Arc<dyn Kv>;
    let merged = on_reactor(async |shard| {
        mkfs(&shard, &path, &kv, 256 << 20).await;
        let (_, store) = mount(&shard, &path, &kv).await;
        merge_full_logs(&store).await
    });
    // The process is killed, with what its key-value store had in memory.
    mem.crash(0);
    on_reactor(async |shard| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        assert_eq!(store.list_pgs().await.unwrap(), [PG]);
        assert!(store.load_pg(PG).await.unwrap() == Some(merged));
        clean(&shared, &shard).await;
    });
}

#[test]
#[should_panic(expected = "on another shard than its own")]
fn a_pg_of_another_shard_is_not_merged() {
    on_reactor(async |shard| {
        let store = Store::open_shard(&StoreShared::cyan(1 << 30), &shard).await.unwrap();
        let [target, source] = [0, 4].map(|ps| PgInfo { pg: pg_id(1, ps), ..PgInfo::default() });
        submit(&store, merge(&target, &[source], FEW, 0)).await.unwrap();
    });
}
