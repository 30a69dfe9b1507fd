//! Helpers of the store's tests: the reference model, random changes, and stores on temporary files.
// The tests change files from outside.
#![allow(dead_code, unreachable_pub, unused_imports, clippy::disallowed_methods, clippy::disallowed_types)]

mod change;
mod kv;
mod model;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carmine_pgtypes::{
    Interval, LogEntry, ObjectChange, OmapSize, Omaps, OsdSet, PgHistory, PgInfo, Promised, Returned,
    Scrubbed, Step, Transaction, merged_away, pg_bits, pg_children, pg_parent,
};
use carmine_reactor::{Config, Payload, PollPolicy, Shard};
use carmine_store::blue::{self, Fill, FsckReport, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, MemKv, Store, StoreError, StoreShared};
use carmine_types::{
    Epoch, Eversion, LogOp, NO_GENERATION, NO_OSD, NO_SHARD, ObjectId, OsdId, PgId, ReqId, ScrubStamp, SpgId,
    UTime, Uuid,
};

pub use change::{Change, change, change_or_clone, key, length, place};
pub use kv::{Watch, WatchedKv};
pub use model::{Model, Object};

pub const PG: SpgId = pg_id(1, 0);

/// A PG of a replicated pool.
pub const fn pg_id(pool: i64, ps: u32) -> SpgId {
    SpgId::replicated(PgId::new(pool, ps))
}

/// The number of PGs of the pool that [`part`] is about.
pub const PART_PGS: u32 = 3;

/// The `index`th of four PGs of a random load. The second and the third are two shards of one.
pub fn part(index: usize) -> SpgId {
    let (ps, shard) = [(0, NO_SHARD), (1, 0), (1, 1), (2, NO_SHARD)][index];
    SpgId { shard, ..pg_id(1, ps) }
}

/// The `n`th object of [`part`] `index`. Every other one is a second generation of the one before, and the two shards of a PG have the
/// same names.
pub fn object_of(index: usize, n: usize) -> ObjectId {
    let (pg, name) = (part(index), |i: u32| ObjectId::head(1, b"", b"", format!("o{i}").as_bytes()));
    let mut here = (0..).map(name).filter(|oid| PgId::of_hash(1, oid.hash, PART_PGS) == pg.pgid);
    let generation = if n.is_multiple_of(2) { NO_GENERATION } else { 7 };
    ObjectId { shard: pg.shard, generation, ..here.nth(n / 2).unwrap() }
}

/// The object without a name of a PG, which has entries about the PG's other objects.
pub fn mapper(pg: SpgId) -> ObjectId {
    ObjectId { shard: pg.shard, ..ObjectId::cursor(pg.pgid.pool, pg.pgid.ps) }
}

/// The split of a PG with this info: `pg_num` becomes that of its pool. Each child gets a copy of its mapper.
pub fn split(info: &PgInfo, pg_num: u32) -> Transaction {
    let (pg, ps) = (info.pg, info.pg.pgid.ps);
    let divide = |ps| info.divide(SpgId { pgid: PgId { ps, ..pg.pgid }, ..pg }, pg_num, Epoch(pg_num));
    let mut txn = Transaction::new(pg, pg_bits(ps, pg_num));
    txn.info = Some(divide(ps).into());
    txn.split = pg_children(ps, info.pg_num, pg_num).map(divide).collect();
    txn.changes = txn.split.iter().map(|child| clone(&mapper(child.pg), &mapper(pg))).collect();
    txn
}

/// Those of the PGs that become a part of this one when their pool has only `pg_num` PGs.
pub fn merged_into(target: SpgId, pg_num: u32, pgs: impl IntoIterator<Item = SpgId>) -> Vec<SpgId> {
    let becomes = |pg: SpgId| SpgId { pgid: PgId { ps: pg_parent(pg.pgid.ps, pg_num), ..pg.pgid }, ..pg };
    pgs.into_iter().filter(|pg| *pg != target && becomes(*pg) == target).collect()
}

/// The merge of PGs with these infos into the one with the first: `pg_num` becomes that of its pool. Of their logs so many answers are
/// kept, with versions above all that they had.
pub fn merge(target: &PgInfo, sources: &[PgInfo], pg_num: u32, answers: u64) -> Transaction {
    let mut txn = Transaction::new(target.pg, pg_bits(target.pg.pgid.ps, pg_num));
    let newest = sources.iter().chain([target]).map(|info| info.last_update.version).max().unwrap();
    let log_tail = Eversion::new(4, newest + 50);
    txn.merge = sources.iter().map(|source| source.pg).collect();
    txn.changes = merged_away(&txn.merge);
    txn.log_rewind_to = Some(Eversion::ZERO);
    let of_source =
        |n| ObjectId { name: (*b"answer").into(), ..mapper(txn.merge[n as usize % txn.merge.len()]) };
    txn.log = (1..=answers).map(|n| log_entry(log_tail.version + n, &of_source(n))).collect();
    let last_update = Eversion { version: log_tail.version + answers, ..log_tail };
    txn.info = Some(PgInfo { pg_num, log_tail, last_update, ..target.clone() }.into());
    txn
}

pub fn config() -> Config {
    Config {
        poll: PollPolicy::Sleep,
        arena_bytes_per_shard: 16 << 20,
        ring_entries: 64,
        ..Config::unpinned("store-test", 1)
    }
}

pub fn on_reactor<R>(main: impl AsyncFnOnce(Shard) -> R) -> R {
    carmine_reactor::block_on(config(), main).unwrap()
}

/// Runs `main` on a reactor beside a new store, with the path of its file and its key-value store.
pub fn on_new_store<R>(size_bytes: u64, main: impl AsyncFnOnce(Shard, PathBuf, Arc<dyn Kv>) -> R) -> R {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    on_reactor(async |shard| {
        let kv = mem();
        mkfs(&shard, &path, &kv, size_bytes).await;
        main(shard, path, kv).await
    })
}

pub fn mem() -> Arc<dyn Kv> {
    Arc::new(MemKv::new())
}

pub fn mkfs_options(size_bytes: u64) -> MkfsOptions {
    MkfsOptions {
        fsid: Uuid([7; 16]),
        osd: OsdId(3),
        size_bytes: Some(size_bytes),
        fill: Fill::Nothing,
        force: true,
    }
}

/// Makes a store on a file.
pub async fn mkfs(shard: &Shard, path: &Path, kv: &Arc<dyn Kv>, size_bytes: u64) {
    blue::mkfs(shard, path, mkfs_options(size_bytes), Arc::clone(kv), &mut |_, _| {}).await.unwrap();
}

/// Mounts it and opens this shard's part.
pub async fn mount(shard: &Shard, path: &Path, kv: &Arc<dyn Kv>) -> (Arc<BlueShared>, Store) {
    // A cache of next to nothing: objects come and go all the time.
    let options = MountOptions { cache_bytes_per_shard: 4096, ..MountOptions::default() };
    mount_with(shard, path, kv, options).await
}

/// The same with these options.
pub async fn mount_with(
    shard: &Shard,
    path: &Path,
    kv: &Arc<dyn Kv>,
    options: MountOptions,
) -> (Arc<BlueShared>, Store) {
    let shared = BlueShared::mount(shard, path, Arc::clone(kv), options).await.unwrap();
    let store = Store::open_shard(&StoreShared::Blue(Arc::clone(&shared)), shard).await.unwrap();
    (shared, store)
}

pub async fn clean(shared: &Arc<BlueShared>, shard: &Shard) -> FsckReport {
    let report = blue::fsck(shared, shard, true).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(report.blocks_read == report.blocks || report.shared_blocks > 0, "{report:?}");
    assert_eq!(shared.statfs().used, report.blocks * 4096);
    report
}

/// Flips a bit of the byte at `at` of the block file, behind the store's back.
pub fn damage(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    file.sync_all().unwrap();
}

pub async fn submit(store: &Store, txn: Transaction) -> Result<(), StoreError> {
    let prepared = store.prepare(&txn.changes).await?;
    let commit = store.submit(txn);
    drop(prepared);
    commit.await
}

pub fn oid(n: u8) -> ObjectId {
    ObjectId::head(1, b"", b"", format!("object-{n}").as_bytes())
}

/// Bytes that differ from place to place and from seed to seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// One step of an object.
pub fn only(oid: &ObjectId, step: Step) -> ObjectChange {
    ObjectChange::new(oid.clone(), [step])
}

pub fn write(oid: &ObjectId, off: u64, data: Vec<u8>) -> ObjectChange {
    only(oid, Step::Write { off, data: Payload::from(data) })
}

pub fn clone(to: &ObjectId, from: &ObjectId) -> ObjectChange {
    only(to, Step::CloneFrom { from: from.clone().into() })
}

pub fn remove(oid: &ObjectId) -> ObjectChange {
    only(oid, Step::Remove)
}

/// A transaction of a PG that is all of its pool.
pub fn txn(changes: impl IntoIterator<Item = ObjectChange>) -> Transaction {
    Transaction { changes: changes.into_iter().collect(), ..Transaction::new(PG, 0) }
}

pub fn log_entry(version: u64, oid: &ObjectId) -> LogEntry {
    LogEntry {
        version: Eversion::new(4, version),
        prior: Eversion::new(4, version.saturating_sub(1)),
        reqid: ReqId { client: 4100, inc: 2, tid: version },
        oid: oid.clone().into(),
        op: if version.is_multiple_of(5) { LogOp::Delete } else { LogOp::Modify },
        user_version: version,
        result: 0,
        mtime: UTime { sec: version as u32, nsec: 9 },
        clones: Box::default(),
        returned: version.is_multiple_of(4).then(|| {
            Returned([(0, Box::default()), (version as i32, b"returned".to_vec().into())].into()).into()
        }),
    }
}

pub fn info(version: u64) -> PgInfo {
    PgInfo {
        pg: PG,
        pg_num: 8,
        last_update: Eversion::new(4, version),
        log_tail: Eversion::ZERO,
        last_epoch_started: Epoch(4),
        made: Epoch(1),
        history: PgHistory {
            epoch: Epoch(5),
            same_interval_since: Epoch(3),
            last_epoch_clean: Epoch(2),
            past: vec![Interval { first: Epoch(2), last: Epoch(2), acting: [OsdId(2), OsdId(1)].into() }],
        },
        acting: OsdSet::new(&[0, NO_OSD, 2], Some(OsdId(2))),
        promised: Promised { holder: OsdId(0), interval: Epoch(4), length_ms: 16_000 },
        incomplete: version % 2 == 1,
        complete_to: Eversion::new(3, version / 2),
        last_backfill: (version % 3 == 1).then(|| ObjectId::cursor(PG.pgid.pool, version as u32)),
        clean_before: UTime::ZERO,
        created: Epoch(0),
        split: Epoch(0),
        unfound: Vec::new(),
        scrubs: Scrubbed {
            count: version,
            last: ScrubStamp { version: Eversion::new(4, version), time: UTime { sec: 9, nsec: 8 } },
            last_deep: ScrubStamp { version: Eversion::new(3, 1), time: UTime { sec: 7, nsec: 6 } },
            errors: 5,
            deep_errors: 2,
            omaps: Omaps { objects: 3, large: 1, size: OmapSize { keys: 8, bytes: 90 } },
        },
    }
}
