//! Golden stores: of each format a tiny one, as a killed process of that format left it. `tests/golden/format-N.bin` holds
//! the blocks of its device that are not zero and the pairs of its key-value store. The program reads those of its own
//! format and of the two before, and refuses those of older formats with a remedy.
//!
//! The golden store of a new format is made when the format is final, by
//! `cargo test -p carmine-store --test golden -- --ignored make_golden`, and checked in; it is never made again. The tests
//! below find it there. Format 3 was made in the same way by commit e27986a.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads and writes files

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use carmine_codec::{Decoder, Encoder};
use carmine_pgtypes::{LogEntry, ObjectChange, PgInfo, Step, Transaction};
use carmine_reactor::Shard;
use carmine_store::blue::{self, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, KvBatch, MemKv, StoreError};
use carmine_types::{Eversion, ObjectId, SpgId, UTime};
use common::*;

const DEVICE_BYTES: u64 = 4 << 20;
const BLOCK: usize = 4096;
/// The oldest format that is read.
const READ_FROM: u32 = 11;
/// The newest format.
const NEWEST: u32 = 13;
/// A PG of an erasure-coded pool.
const SHARDED: SpgId = SpgId { shard: 1, ..pg_id(2, 0) };

/// A store as it lies on a disk.
#[derive(Debug, PartialEq)]
struct Golden {
    device_bytes: u64,
    /// By number, without the zeros at their ends.
    blocks: Vec<(u64, Vec<u8>)>,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Golden {
    /// The content of this file and key-value store.
    fn read(path: &Path, kv: &dyn Kv) -> Golden {
        let device = std::fs::read(path).unwrap();
        let used =
            |block: &[u8]| block.iter().rposition(|byte| *byte != 0).map(|last| block[..=last].to_vec());
        let blocks = device.chunks(BLOCK).zip(0..).filter_map(|(block, n)| Some((n, used(block)?)));
        let mut pairs = Vec::new();
        kv.scan(&[0], &[0xff], &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
        Golden { device_bytes: device.len() as u64, blocks: blocks.collect(), pairs }
    }

    fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| {
            e.u64(self.device_bytes);
            e.vec(&self.blocks, |e, (n, content)| {
                e.u64(*n);
                e.blob(content);
            });
            e.vec(&self.pairs, |e, (key, value)| {
                e.blob(key);
                e.blob(value);
            });
        })
    }

    fn decode(bytes: &[u8]) -> Golden {
        let read = |d: &mut Decoder<'_>| {
            let blob = |d: &mut Decoder<'_>| d.blob().map(<[u8]>::to_vec);
            Ok(Golden {
                device_bytes: d.u64()?,
                blocks: d.map(12, |d| d.u64(), blob)?,
                pairs: d.map(8, blob, blob)?,
            })
        };
        Decoder::all(bytes, "golden store", read).unwrap()
    }

    /// Lays it out in a file; its key-value store.
    fn restore(&self, path: &Path) -> Arc<dyn Kv> {
        let mut device = vec![0; self.device_bytes as usize];
        for (n, content) in &self.blocks {
            device[*n as usize * BLOCK..][..content.len()].copy_from_slice(content);
        }
        std::fs::write(path, device).unwrap();
        let mut batch = KvBatch::default();
        self.pairs.iter().for_each(|(key, value)| batch.put(key, value));
        let kv = MemKv::new();
        kv.commit(&[batch], true).unwrap();
        Arc::new(kv)
    }

    /// As its label says.
    fn version(&self) -> u32 {
        u32::from_le_bytes(*self.blocks[0].1[16..].first_chunk().unwrap())
    }

    /// A store of this program's format, killed in its second life.
    fn new() -> Golden {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block");
        on_reactor(async |shard| {
            let mem = Arc::new(MemKv::new());
            let kv: Arc<dyn Kv> = Arc::clone(&mem) as Arc<dyn Kv>;
            mkfs(&shard, &path, &kv, DEVICE_BYTES).await;
            let history = history(NEWEST);
            let (first, second) = history.split_at(history.len() / 2);
            for (life, txns) in [first, second].into_iter().enumerate() {
                let (_, store) = mount(&shard, &path, &kv).await;
                for txn in txns {
                    submit(&store, txn.clone()).await.unwrap();
                }
                if life == 0 {
                    store.umount().await.unwrap();
                }
            }
            // Changes that are not in the key-value store are in the log.
            mem.crash(0);
            Golden::read(&path, &*kv)
        })
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// All that are checked in, by version.
fn all() -> Vec<Golden> {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let mut all: Vec<_> = files.map(|path| Golden::decode(&std::fs::read(path).unwrap())).collect();
    all.sort_by_key(Golden::version);
    all
}

/// A bit of everything that a store of this format keeps.
fn history(version: u32) -> Vec<Transaction> {
    let bytes = |text: &str| text.as_bytes().into();
    let pair = |key: &str, value: &str| (bytes(key), value.as_bytes().to_vec().into());
    let of_shard = |n| ObjectId { pool: 2, shard: 1, generation: 7, ..oid(n) };
    let meta = |n: u64| Step::SetMeta {
        version: Eversion::new(4, n),
        user_version: n,
        mtime: UTime { sec: n as u32, nsec: 1 },
    };
    let xattr =
        |name, value: &str| Step::SetXattr { name: bytes(name), value: value.as_bytes().to_vec().into() };
    let omap = vec![pair("a", "1"), pair("b", "2"), pair("c", "3"), pair("d", "4")];
    let header = Step::SetOmapHeader { header: b"header".to_vec().into() };
    let changes = [
        vec![write(&oid(1), 3000, noise(1, 6000)), only(&oid(1), meta(1))],
        vec![ObjectChange::new(oid(2), [xattr("_a", "one"), xattr("_b", "two"), meta(2)])],
        vec![ObjectChange::new(oid(2), [Step::SetOmap { entries: omap.clone() }, header])],
        vec![write(&oid(3), 0, noise(3, 100)), only(&oid(3), Step::SetOmap { entries: omap })],
        vec![only(&oid(1), Step::Zero { off: 4096, len: 4096 }), write(&oid(1), 300_000, noise(4, 50))],
        vec![remove(&oid(3))],
        vec![
            only(&oid(2), Step::RemoveOmap { keys: vec![bytes("a")] }),
            only(&oid(2), Step::RemoveOmapRange { from: bytes("b"), to: bytes("c") }),
            only(&oid(2), Step::RemoveXattr { name: bytes("_a") }),
        ],
        vec![only(&oid(1), Step::Truncate { size: 300_020 }), only(&oid(4), Step::Touch)],
        // In the key-value store when the process is killed, and in the log only.
        vec![clone(&oid(5), &oid(1)), write(&oid(1), 0, noise(5, 4096))],
        vec![clone(&oid(6), &oid(2)), only(&oid(2), Step::ClearOmap)],
        vec![clone(&oid(7), &oid(5)), remove(&oid(5)), write(&oid(7), 100, noise(6, 10))],
    ];
    let mut all: Vec<Transaction> = changes.into_iter().map(txn).collect();
    for (txn, version) in all.iter_mut().zip(1..) {
        txn.log.push(log_entry(version, &txn.changes[0].oid));
        txn.info = (version == 3).then(|| info(version).into());
        txn.log_trim_to = (version == 6).then(|| Eversion::new(4, 2));
    }
    for n in 1..=2 {
        let mut txn = Transaction::new(SHARDED, 0);
        txn.changes.push(write(&of_shard(1), 0, noise(n, 5000)));
        txn.log.push(LogEntry { version: Eversion::new(1, n), ..log_entry(n, &of_shard(1)) });
        txn.info = (n == 2).then(|| PgInfo { pg: SHARDED, ..info(n) }.into());
        all.insert(4 * n as usize, txn);
    }
    if version >= 12 {
        all.extend(split_pg(&all));
    }
    if version >= 13 {
        all.extend(merge_pg(&all));
    }
    all
}

/// A merge of the PG with its child after these transactions, and a copy of an object of the child to one of the PG.
fn merge_pg(before: &[Transaction]) -> [Transaction; 2] {
    let mut model = Model::default();
    before.iter().for_each(|txn| model.apply(txn));
    let info = |pg| model.pg(pg).map(|state| state.info).unwrap();
    let child = info(pg_id(1, 1));
    let merged = merge(&info(PG), std::slice::from_ref(&child), 1, 2);
    let newest = merged.version().version + 1;
    let mut last = txn([write(&oid(1), 5000, noise(13, 3000)), clone(&oid(4), &oid(1))]);
    last.log.push(log_entry(newest, &oid(1)));
    [merged, last]
}

/// A split of the PG after these transactions.
fn split_pg(before: &[Transaction]) -> [Transaction; 2] {
    let (mapper, newest) = (mapper(PG), before.last().map_or(0, |last| last.log[0].version.version) + 1);
    let entries = vec![(b"key"[..].into(), b"value".to_vec().into())];
    let mut last = txn([only(&mapper, Step::SetOmap { entries })]);
    last.log.push(log_entry(newest, &mapper));
    let mut model = Model::default();
    before.iter().chain([&last]).for_each(|txn| model.apply(txn));
    let info = PgInfo { pg_num: 1, ..model.pg(PG).unwrap().info };
    [last, split(&info, 2)]
}

/// The PGs of a store with this history, and how many their pools have.
fn pgs_of(history: &[Transaction]) -> Vec<(SpgId, u32)> {
    let merged: Vec<SpgId> = history.iter().flat_map(|txn| txn.merge.clone()).collect();
    let children = history.iter().flat_map(|txn| &txn.split).map(|child| (child.pg, child.pg_num));
    let children: Vec<_> = children.filter(|(pg, _)| !merged.contains(pg)).collect();
    let pg_num = children.first().map_or(1, |(_, pg_num)| *pg_num);
    [(PG, pg_num), (SHARDED, 1)].into_iter().chain(children).collect()
}

#[test]
fn stores_of_this_format_and_the_two_before_are_read() {
    let read = all().into_iter().filter(|golden| golden.version() >= READ_FROM);
    let read: Vec<Golden> = read.chain([Golden::new()]).collect();
    assert!(read.iter().map(Golden::version).eq((READ_FROM..=NEWEST).chain([NEWEST])));
    for golden in read {
        let history = history(golden.version());
        let mut model = Model::default();
        history.iter().for_each(|txn| model.apply(txn));
        let golden = Golden::decode(&golden.encode());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block");
        let kv = golden.restore(&path);
        on_reactor(async |shard| {
            let (shared, store) = mount(&shard, &path, &kv).await;
            assert!(shared.replayed().txns > 0, "it was killed");
            for (pg, pg_num) in pgs_of(&history) {
                model.compare(&store, pg, pg_num, 2).await;
                model.compare_pg(&store, pg).await;
            }
            // From now on it may hold what the format before did not have.
            assert_eq!(Golden::read(&path, &*kv).version(), NEWEST);
            assert_eq!(store.list_pgs().await.unwrap(), model.pgs());
            clean(&shared, &shard).await;
            submit(&store, txn([write(&oid(9), 0, noise(9, 9000))])).await.unwrap();
            clean(&shared, &shard).await;
        });
    }
}

/// The error that each way into a store gives.
async fn refusals(shard: &Shard, path: &Path, kv: &Arc<dyn Kv>) -> Vec<Option<StoreError>> {
    let kv = || Arc::clone(kv);
    vec![
        BlueShared::mount(shard, path, kv(), MountOptions::default()).await.err(),
        blue::expand(shard, path, kv()).await.err(),
        blue::move_log(shard, path, kv(), None).await.err(),
        blue::repair(shard, path, kv()).await.err(),
        blue::labels(shard, path).await.unwrap().any().err(),
    ]
}

#[test]
fn stores_of_older_formats_are_refused_with_a_remedy_and_left_as_they_are() {
    let version = NEWEST;
    let older: Vec<Golden> = all().into_iter().filter(|golden| golden.version() < READ_FROM).collect();
    assert!(older.iter().map(Golden::version).eq(3..READ_FROM), "each older format has its golden store");
    for golden in older {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block");
        let kv = golden.restore(&path);
        on_reactor(async |shard| {
            for error in refusals(&shard, &path, &kv).await {
                let error = error.expect("it is refused").to_string();
                let formats = [golden.version(), version].map(|version| format!("format {version}"));
                assert!(formats.iter().all(|format| error.contains(format)), "{error}");
                assert!(error.contains(path.to_str().unwrap()), "{error}");
                // The program that reads it, and the way on.
                assert!(
                    error.contains("Carmine at commit ") && error.contains("from its replicas"),
                    "{error}"
                );
            }
            let careful = MkfsOptions { force: false, ..mkfs_options(DEVICE_BYTES) };
            let made = blue::mkfs(&shard, path.as_path(), careful, Arc::clone(&kv), &mut |_, _| {}).await;
            assert!(made.is_err(), "it was overwritten");
        });
        assert_eq!(Golden::read(&path, &*kv), golden);
    }
}

#[test]
#[ignore = "writes the golden store of this format, once"]
fn make_golden() {
    let golden = Golden::new();
    let path = folder().join(format!("format-{}.bin", golden.version()));
    assert!(!path.exists(), "{} is there: a golden store is never made again", path.display());
    let bytes = golden.encode();
    std::fs::write(&path, &bytes).unwrap();
    println!("{}: {} bytes", path.display(), bytes.len());
}
