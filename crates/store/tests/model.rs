//! Random transactions on a trivial model, `cyan` and `blue`: contents, listings, sizes and logs are the same, also
//! after a restart, and `blue` is clean.

mod common;

use std::sync::Arc;

use carmine_reactor::Payload;
use carmine_store::{Commit, Kv, MemKv, PgInfo, Store, StoreError, StoreShared, Transaction, TxnOp};
use carmine_types::{Eversion, UTime};
use common::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Touch,
    Write { off: u64, len: usize, seed: u64 },
    Zero { off: u64, len: u64 },
    Truncate { size: u64 },
    Remove,
    SetMeta(u64),
}

#[derive(Clone, Debug)]
enum Step {
    Txn(Vec<(u8, Change)>),
    Read { object: u8, off: u64, len: u64 },
    List { page: usize },
    WaitForAll,
    Restart,
}

/// Places around the borders of blocks and of pieces of the block map, and any.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0u64..9000,
        2 => (0u64..30).prop_map(|block| block * 4096),
        1 => 250_000u64..270_000,
        1 => Just(262_144u64),
        1 => 0u64..600_000,
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0u64..200,
        3 => Just(4096u64),
        2 => (1u64..20).prop_map(|blocks| blocks * 4096),
        2 => 0u64..20_000,
        1 => 0u64..300_000,
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => Just(Change::Touch),
        8 => (place(), length(), any::<u64>()).prop_map(|(off, len, seed)| Change::Write { off, len: len as usize, seed }),
        3 => (place(), length()).prop_map(|(off, len)| Change::Zero { off, len }),
        3 => place().prop_map(|size| Change::Truncate { size }),
        1 => Just(Change::Remove),
        2 => any::<u64>().prop_map(Change::SetMeta),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => prop::collection::vec((0u8..5, change()), 1..4).prop_map(Step::Txn),
        3 => (0u8..5, place(), length()).prop_map(|(object, off, len)| Step::Read { object, off, len }),
        1 => (1usize..4).prop_map(|page| Step::List { page }),
        1 => Just(Step::WaitForAll),
        1 => Just(Step::Restart),
    ]
}

fn op(object: u8, change: &Change) -> TxnOp {
    let oid = oid(object);
    match *change {
        Change::Touch => TxnOp::Touch { oid },
        Change::Write { off, len, seed } => {
            // In pieces, as messages arrive.
            let bytes = noise(seed, len);
            let (a, b) = bytes.split_at(len / 3);
            let mut data = Payload::new();
            data.push(a.to_vec().into());
            data.push(b.to_vec().into());
            TxnOp::Write { oid, off, data, crc: None }
        }
        Change::Zero { off, len } => TxnOp::Zero { oid, off, len },
        Change::Truncate { size } => TxnOp::Truncate { oid, size },
        Change::Remove => TxnOp::Remove { oid },
        Change::SetMeta(n) => TxnOp::SetMeta {
            oid,
            version: Eversion::new(1, n),
            user_version: n,
            mtime: UTime { sec: n as u32, nsec: 1 },
        },
    }
}

async fn both(cyan: &Store, blue: &Store, txn: Transaction, commits: &mut Vec<Commit>) {
    submit(cyan, txn.clone()).await.unwrap();
    let prepared = blue.prepare(&txn.ops).await.unwrap();
    commits.push(blue.submit(txn));
    drop(prepared);
}

fn run(steps: Vec<Step>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    on_reactor(async |shard| {
        let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
        mkfs(&shard, &path, &kv, 32 << 20).await;
        let (mut shared, mut blue) = mount(&shard, &path, &kv).await;
        let cyan = Store::open_shard(&StoreShared::cyan(1 << 30), &shard).await.unwrap();
        let mut model = Model::default();
        let mut commits: Vec<Commit> = Vec::new();
        let mut version = 0;
        for step in steps {
            match step {
                Step::Txn(changes) => {
                    let mut txn = txn(changes.iter().map(|(object, change)| op(*object, change)));
                    txn.ops.iter().for_each(|op| model.apply(op));
                    version += 1;
                    txn.log.push(log_entry(version, &oid(changes[0].0)));
                    txn.info = (version == 3).then(|| info(version));
                    if version % 11 == 0 {
                        // Back by a few, and a new tail below the old.
                        txn.log_rewind_to = Some(Eversion::new(4, version - 4));
                        txn.info = Some(PgInfo { log_tail: Eversion::new(4, 1), ..info(version - 4) });
                    }
                    txn.log_trim_to = (version % 8 == 0).then(|| Eversion::new(4, version - 5));
                    both(&cyan, &blue, txn, &mut commits).await;
                }
                Step::Read { object, off, len } => {
                    let wanted = model.objects.get(&oid(object)).map(|(bytes, _)| {
                        let end = (off + len).min(bytes.len() as u64).max(off) as usize;
                        bytes.get(off as usize..end).unwrap_or_default().to_vec()
                    });
                    for store in [&cyan, &blue] {
                        let found = store.read(&oid(object), off, len).await;
                        match &wanted {
                            Some(wanted) => {
                                assert!(found.unwrap().to_vec() == *wanted, "read {object} {off}+{len}")
                            }
                            None => assert!(matches!(found, Err(StoreError::NotFound(_)))),
                        }
                    }
                }
                Step::List { page } => {
                    model.compare(&cyan, page).await;
                    model.compare(&blue, page).await;
                }
                Step::WaitForAll => {
                    for commit in commits.drain(..) {
                        commit.await.unwrap();
                    }
                    assert_eq!(blue.stats().txns_in_flight, 0);
                }
                Step::Restart => {
                    blue.umount().await.unwrap();
                    drop(blue);
                    (shared, blue) = mount(&shard, &path, &kv).await;
                }
            }
        }
        blue.sync().await.unwrap();
        for commit in commits {
            commit.await.unwrap();
        }
        model.compare(&blue, 2).await;
        assert_eq!(blue.load_pg(PG).await.unwrap(), cyan.load_pg(PG).await.unwrap());
        assert_eq!(blue.list_pgs().await.unwrap(), cyan.list_pgs().await.unwrap());
        clean(&shared, &shard).await;
        // Nothing is left of what is removed.
        let all = txn(model.objects.keys().map(|oid| TxnOp::Remove { oid: oid.clone() }));
        submit(&blue, all).await.unwrap();
        assert_eq!(clean(&shared, &shard).await.blocks, 0);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn blue_cyan_and_the_model_agree(steps in prop::collection::vec(step(), 1..40)) {
        run(steps);
    }
}

/// PROPTEST_CASES for a long run; else what fits into the daily test.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}
