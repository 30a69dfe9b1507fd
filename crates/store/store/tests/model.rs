//! Random transactions on the reference model, `cyan` and `blue`: contents, listings, attributes, sizes and logs are the
//! same, also after a restart, `blue` is clean, and its space is what a scan of it says. Two of the PGs are shards of one, and some
//! objects are generations of one: none has to do with another. PGs are split, their children too, and merged again.
//!
//! The long run: `PROPTEST_CASES=5000 cargo test -p carmine-store --test model`.

mod common;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_pgtypes::{ObjectChange, PgInfo, Step, Transaction, pg_bits, pg_contains};
use carmine_reactor::Shard;
use carmine_reactor::sim::Sim;
use carmine_store::blue::MountOptions;
use carmine_store::{Commit, Kv, MemKv, OmapRange, Store, StoreError, StoreShared};
use carmine_types::{Eversion, ObjectId, SpgId};
use common::*;
use proptest::prelude::*;

/// Virtual time for a sequence.
const LIMIT: Duration = Duration::from_secs(600);
/// Bytes of the device: enough for fifteen objects of 600 KB, and what their overwrites need until they are durable.
const DEVICE_BYTES: u64 = 64 << 20;
/// PGs that are there at the beginning, of those of [`part`].
const PARTS: usize = 3;
const OBJECTS: u8 = 5;
/// PGs that there may be for one to be split.
const PGS_MAX: usize = 30;

/// An object: the number of its PG, and its own there.
type At = (usize, u8);

#[derive(Clone, Debug)]
enum Act {
    /// Changes of a PG.
    Txn(usize, Vec<(u8, Change)>),
    Read {
        object: At,
        off: u64,
        len: u64,
    },
    /// Reads from there on, one after the other, and changes the object after as many of them as are told.
    Stream {
        object: At,
        off: u64,
        len: u64,
        after: u8,
        change: Change,
    },
    /// Reads the omap from this key on, in pages.
    Omap {
        object: At,
        range: OmapRange,
    },
    List {
        page: usize,
    },
    /// Removes a PG: its objects, so many at a time, then its log and info.
    RemovePg {
        part: usize,
        page: usize,
    },
    /// Splits one of the PGs that there are: it gets a part of twice, or of four times, as many as before.
    Split {
        pg: usize,
        by_four: bool,
    },
    /// Merges PGs into one of them, which gets a half, or a quarter, of as many as before.
    Merge {
        pg: usize,
        by_four: bool,
        answers: u64,
    },
    WaitForAll,
    Restart,
}

fn omap_range() -> impl Strategy<Value = OmapRange> {
    (key(), any::<bool>(), key(), 1usize..5, prop_oneof![Just(usize::MAX), 0usize..100]).prop_map(
        |(start, is_after, prefix, entries_max, bytes_max)| OmapRange {
            start: start.into(),
            is_after,
            prefix: prefix.into(),
            entries_max,
            bytes_max,
        },
    )
}

fn at() -> impl Strategy<Value = At> {
    (0..PARTS, 0..OBJECTS)
}

fn act() -> impl Strategy<Value = Act> {
    let changes = prop::collection::vec((0..OBJECTS, change_or_clone(OBJECTS)), 1..4);
    prop_oneof![
        10 => (0..PARTS, changes).prop_map(|(part, changes)| Act::Txn(part, changes)),
        3 => (at(), place(), length()).prop_map(|(object, off, len)| Act::Read { object, off, len }),
        2 => (at(), place(), 1u64..40_000, 0u8..8, change_or_clone(OBJECTS))
            .prop_map(|(object, off, len, after, change)| Act::Stream { object, off, len, after, change }),
        3 => (at(), omap_range()).prop_map(|(object, range)| Act::Omap { object, range }),
        1 => (1usize..4).prop_map(|page| Act::List { page }),
        1 => (0..PARTS, 1usize..4).prop_map(|(part, page)| Act::RemovePg { part, page }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(pg, by_four)| Act::Split { pg, by_four }),
        2 => (any::<usize>(), any::<bool>(), 0u64..3)
            .prop_map(|(pg, by_four, answers)| Act::Merge { pg, by_four, answers }),
        1 => Just(Act::WaitForAll),
        1 => Just(Act::Restart),
    ]
}

fn oid_at((part, object): At) -> ObjectId {
    object_of(part, object.into())
}

/// A PG, and what the test knows of it.
#[derive(Clone, Copy)]
struct Pg {
    id: SpgId,
    /// Of its pool, as far as this PG was split.
    pg_num: u32,
    version: u64,
}

impl Pg {
    fn bits(&self) -> u32 {
        pg_bits(self.id.pgid.ps, self.pg_num)
    }

    fn contains(&self, oid: &ObjectId) -> bool {
        pg_contains(self.id, self.bits(), oid)
    }

    /// An empty transaction.
    fn nothing(&self) -> Transaction {
        Transaction::new(self.id, self.bits())
    }
}

/// The PGs that there are.
struct Pgs(Vec<Pg>);

impl Pgs {
    fn new() -> Pgs {
        Pgs((0..PARTS).map(|index| Pg { id: part(index), pg_num: PART_PGS, version: 0 }).collect())
    }

    fn owner(&mut self, oid: &ObjectId) -> &mut Pg {
        self.0.iter_mut().find(|pg| pg.contains(oid)).unwrap()
    }

    /// The next transaction of the PG that has the first object. Changes of other PGs' objects are left out, and so are copies of
    /// such.
    fn next(&mut self, part: usize, changes: &[(u8, Change)]) -> Transaction {
        let oid = |object| oid_at((part, object));
        let pg = self.owner(&oid(changes[0].0));
        let own = changes.iter().map(|(object, change)| (oid(*object), change));
        let own = own.filter(|(oid, _)| pg.contains(oid));
        let changes = own.map(|(target, change)| {
            change.with_sources(&target, |from| {
                Some(oid(from)).filter(|from| pg.contains(from)).unwrap_or(target.clone())
            })
        });
        let changes: Vec<ObjectChange> = changes.collect();
        pg.version += 1;
        transaction(pg, changes)
    }

    /// The split of a PG; `None` if it gets no children.
    fn split(&mut self, at: usize, by_four: bool, model: &Model) -> Option<Transaction> {
        let at = at % self.0.len();
        let pg = self.0[at];
        let info = model.pg(pg.id).map_or(PgInfo { pg: pg.id, ..PgInfo::default() }, |state| state.info);
        let info = PgInfo { pg_num: pg.pg_num, ..info };
        let pg_num = pg.pg_num * if by_four { 4 } else { 2 };
        let txn = split(&info, pg_num);
        self.0[at].pg_num = pg_num;
        self.0.extend(txn.split.iter().map(|child| Pg { id: child.pg, pg_num, version: pg.version }));
        (!txn.split.is_empty()).then_some(txn)
    }

    /// The merge of PGs into this one; `None` if it has nothing to absorb.
    fn merge(&mut self, at: usize, by_four: bool, answers: u64, model: &Model) -> Option<Transaction> {
        let at = at % self.0.len();
        let (id, pg_num) = (self.0[at].id, self.0[at].pg_num / if by_four { 4 } else { 2 });
        if pg_num < PART_PGS || id.pgid.ps >= pg_num {
            return None;
        }
        let sources = merged_into(id, pg_num, self.0.iter().map(|pg| pg.id));
        if sources.is_empty() {
            return None;
        }
        let info =
            |id: SpgId| model.pg(id).map_or(PgInfo { pg: id, ..PgInfo::default() }, |state| state.info);
        let infos: Vec<PgInfo> = sources.iter().map(|source| info(*source)).collect();
        let txn = merge(&info(id), &infos, pg_num, answers);
        let version = txn.info.as_ref().map_or(0, |info| info.last_update.version);
        self.0[at] = Pg { id, pg_num, version };
        self.0.retain(|pg| !sources.contains(&pg.id));
        Some(txn)
    }
}

/// The next transaction of a PG, which makes these changes.
fn transaction(pg: &Pg, changes: Vec<ObjectChange>) -> Transaction {
    let version = pg.version;
    let mut txn = Transaction { changes: changes.into(), ..pg.nothing() };
    let info = |version| PgInfo { pg: pg.id, ..info(version) };
    txn.log.push(log_entry(version, &txn.changes[0].oid));
    txn.info = (version == 3).then(|| info(version).into());
    if version.is_multiple_of(5) {
        let entries = vec![(version.to_be_bytes().into(), noise(version, 9).into())];
        txn.changes.push(only(&mapper(pg.id), Step::SetOmap { entries }));
    }
    if version.is_multiple_of(11) {
        // Back by a few, and a new tail below the old.
        txn.log_rewind_to = Some(Eversion::new(4, version - 4));
        txn.info = Some(PgInfo { log_tail: Eversion::new(4, 1), ..info(version - 4) }.into());
    }
    txn.log_trim_to = version.is_multiple_of(8).then(|| Eversion::new(4, version - 5));
    txn
}

async fn read(store: &Store, model: &Model, object: At, off: u64, len: u64) {
    let oid = oid_at(object);
    let found = store.read(&oid, off, len).await;
    match model.objects.get(&oid) {
        Some(Object { bytes, .. }) => {
            let end = (off + len).min(bytes.len() as u64).max(off) as usize;
            let wanted = bytes.get(off as usize..end).unwrap_or_default();
            assert!(found.unwrap().to_vec() == wanted, "read {oid} {off}+{len}");
        }
        None => assert!(matches!(found, Err(StoreError::NotFound(_)))),
    }
}

/// Submits it to all three; `blue` may still be at work on it.
async fn apply(model: &mut Model, cyan: &Store, blue: &Store, txn: Transaction) -> Commit {
    model.apply(&txn);
    submit(cyan, txn.clone()).await.unwrap();
    let prepared = blue.prepare(&txn.changes).await.unwrap();
    let commit = blue.submit(txn);
    drop(prepared);
    commit
}

/// Removes a PG in steps of `page` objects, as an OSD does.
async fn remove_pg(model: &mut Model, cyan: &Store, blue: &Store, pg: &Pg, page: usize) -> Vec<Commit> {
    let (mut commits, mut txn) = (Vec::new(), pg.nothing());
    loop {
        let listed = blue.list(txn.pg, txn.bits, None, page).await.unwrap();
        assert_eq!(cyan.list(txn.pg, txn.bits, None, page).await.unwrap(), listed);
        assert!(listed.iter().eq(model.objects_of(txn.pg, txn.bits).take(page)), "{listed:?}");
        txn.changes = listed.iter().map(remove).collect();
        txn.forget_pg = listed.is_empty();
        commits.push(apply(model, cyan, blue, txn.clone()).await);
        if txn.forget_pg {
            return commits;
        }
    }
}

/// Reads of a stream.
const STREAM: u8 = 10;

/// Objects come and go all the time, so do their blocks, and little is read ahead. Discards of free space must never
/// matter, nor how much goes into the log first.
fn options(seed: u64) -> MountOptions {
    MountOptions {
        cache_bytes_per_shard: 4096,
        data_cache_bytes_per_shard: 20 * 4224,
        readahead_bytes: 32 << 10,
        prefer_deferred_bytes: [None, Some(0), Some(64 << 10)][(seed / 2 % 3) as usize],
        discard: seed.is_multiple_of(2),
        ..MountOptions::default()
    }
}

async fn run(shard: Shard, acts: Vec<Act>, options: MountOptions) {
    let path = PathBuf::from("/sim/block");
    let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
    mkfs(&shard, &path, &kv, DEVICE_BYTES).await;
    let (mut shared, mut blue) = mount_with(&shard, &path, &kv, options).await;
    let cyan = Store::open_shard(&StoreShared::cyan(1 << 30), &shard).await.unwrap();
    let empty = blue.statfs();
    let mut model = Model::default();
    let mut commits: Vec<Commit> = Vec::new();
    let mut pgs = Pgs::new();
    for act in acts {
        match act {
            Act::Txn(part, changes) => {
                commits.push(apply(&mut model, &cyan, &blue, pgs.next(part, &changes)).await);
            }
            Act::Split { pg, by_four } if pgs.0.len() < PGS_MAX => {
                if let Some(txn) = pgs.split(pg, by_four, &model) {
                    commits.push(apply(&mut model, &cyan, &blue, txn).await);
                }
            }
            Act::Split { .. } => {}
            Act::Merge { pg, by_four, answers } => {
                if let Some(txn) = pgs.merge(pg, by_four, answers, &model) {
                    commits.push(apply(&mut model, &cyan, &blue, txn).await);
                }
            }
            Act::Stream { object, off, len, after, change } => {
                for n in 0..STREAM {
                    read(&blue, &model, object, off + u64::from(n) * len, len).await;
                    if n == after {
                        let txn = pgs.next(object.0, &[(object.1, change.clone())]);
                        commits.push(apply(&mut model, &cyan, &blue, txn).await);
                    }
                }
            }
            Act::Read { object, off, len } => {
                read(&cyan, &model, object, off, len).await;
                read(&blue, &model, object, off, len).await;
            }
            Act::Omap { object, range } => {
                model.compare_pages(&cyan, &oid_at(object), range.clone()).await;
                model.compare_pages(&blue, &oid_at(object), range).await;
            }
            Act::List { page } => {
                for Pg { id, pg_num, .. } in &pgs.0 {
                    model.compare(&cyan, *id, *pg_num, page).await;
                    model.compare(&blue, *id, *pg_num, page).await;
                }
            }
            Act::RemovePg { part, page } => {
                commits.extend(remove_pg(&mut model, &cyan, &blue, &pgs.0[part], page).await);
            }
            Act::WaitForAll => {
                for commit in commits.drain(..) {
                    commit.await.unwrap();
                }
                assert_eq!(blue.stats().txns_in_flight, 0);
            }
            Act::Restart => {
                blue.umount().await.unwrap();
                drop(blue);
                (shared, blue) = mount_with(&shard, &path, &kv, options).await;
            }
        }
    }
    blue.sync().await.unwrap();
    for commit in commits {
        commit.await.unwrap();
    }
    for store in [&cyan, &blue] {
        for Pg { id, pg_num, .. } in &pgs.0 {
            model.compare(store, *id, *pg_num, 2).await;
            model.compare_pg(store, *id).await;
        }
        assert_eq!(store.list_pgs().await.unwrap(), model.pgs());
    }
    clean(&shared, &shard).await;
    // Nothing is left of what is removed.
    for pg in &pgs.0 {
        let changes = model.objects_of(pg.id, pg.bits()).map(remove).collect();
        submit(&blue, Transaction { changes, ..pg.nothing() }).await.unwrap();
    }
    assert_eq!(clean(&shared, &shard).await.blocks, 0);
    assert_eq!(blue.statfs(), empty);
}

fn in_sim(seed: u64, acts: &[Act]) {
    let sim = Sim::new(seed);
    let done = Rc::new(Cell::new(false));
    let (flag, acts) = (Rc::clone(&done), acts.to_vec());
    let options = options(seed);
    sim.node("osd", 1, move |shard| {
        let (flag, acts) = (Rc::clone(&flag), acts.clone());
        async move {
            run(shard, acts, options).await;
            flag.set(true);
        }
    });
    sim.run(|| done.get(), LIMIT).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn blue_cyan_and_the_model_agree(seed in any::<u64>(), acts in prop::collection::vec(act(), 1..40)) {
        in_sim(seed, &acts);
    }
}

/// PROPTEST_CASES for a long run; else what fits into the daily test.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000)
}
