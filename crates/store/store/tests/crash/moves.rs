//! Power cuts while a store is made, and while its log moves.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use carmine_reactor::sim::{Sim, Unflushed};
use carmine_reactor::{FileOptions, Shard};
use carmine_store::blue::{Fill, MountOptions, NewLog, expand, fsck, move_log};
use carmine_store::{BlueShared, Kv, Store, StoreShared};

use crate::check::check;
use crate::common::*;
use crate::kv::recorded;
use crate::mix;
use crate::work::{Histories, History, Life, Start, live, make_store, on_node, path, places, wal_path};

/// All that can become of what was not flushed, and some.
fn fates(at: usize) -> [Unflushed; 5] {
    let random = |n: u64| Unflushed::Random(mix(at as u64 ^ n << 40));
    [Unflushed::Lost, Unflushed::Kept, random(1), random(2), random(3)]
}

/// Mounts and examines what is there; `None`: it is not mounted.
async fn empty_and_clean(shard: &Shard, kv: &Arc<dyn Kv>, cut: bool) -> Option<()> {
    let shared = BlueShared::mount(shard, places(), Arc::clone(kv), MountOptions::default()).await.ok()?;
    // If the cut came before the last write of all, that of the first label, fsck tells of that one.
    let report = fsck(&shared, shard, true).await.unwrap();
    let missing =
        report.errors.iter().filter(|error| cut && error.starts_with("the label in block 0")).count();
    assert_eq!((report.objects, report.error_count), (0, missing as u64), "{report:?}");
    let store = Store::open_shard(&StoreShared::Blue(shared), shard).await.unwrap();
    submit(&store, txn([write(&oid(1), 0, noise(1, 9000))])).await.unwrap();
    store.umount().await.unwrap();
    Some(())
}

#[test]
fn a_power_cut_while_a_store_is_made_leaves_none_or_a_whole_one() {
    for with_wal in [false, true] {
        let sim = Sim::new(u64::from(with_wal));
        let tape = sim.record();
        let kv = Arc::new(recorded(tape.clone(), Vec::new()));
        let made = Arc::clone(&kv) as Arc<dyn Kv>;
        on_node(&sim, 1, async move |shard| make_store(&shard, &made, with_wal).await).unwrap();
        let (mut none, mut whole) = (0, 0);
        for at in 0..=tape.len() {
            for unflushed in fates(at) {
                let sim = Sim::new(at as u64);
                sim.restore(&tape, at, unflushed);
                let left: Arc<dyn Kv> = Arc::new(kv.watch.left_kv(at, unflushed));
                let found = on_node(&sim, 1, async move |shard| {
                    let found = empty_and_clean(&shard, &left, true).await;
                    // Whatever is there, it can be made again.
                    make_store(&shard, &left, with_wal).await;
                    empty_and_clean(&shard, &left, false).await.unwrap();
                    found
                });
                match found.unwrap_or_else(|error| panic!("at {at}, {unflushed:?}: {error}")) {
                    None if at == tape.len() => panic!("it was made, and is not mounted: {unflushed:?}"),
                    None => none += 1,
                    Some(()) => whole += 1,
                }
            }
        }
        println!("{none} images without a store, {whole} with one");
        assert!(none > 0 && whole >= 5);
    }
}

/// Somebody was killed as soon as he had made the file, and the store is made again in it.
#[test]
fn a_store_that_is_made_in_a_file_that_was_found_outlasts_a_power_cut() {
    let sim = Sim::new(1);
    let tape = sim.record();
    let kv = Arc::new(recorded(tape.clone(), Vec::new()));
    let made = Arc::clone(&kv) as Arc<dyn Kv>;
    let options = FileOptions { read: true, write: true, create: true, ..FileOptions::default() };
    on_node(&sim, 1, async move |shard| drop(shard.open(&path(), options).await.unwrap())).unwrap();
    on_node(&sim, 1, async move |shard| make_store(&shard, &made, false).await).unwrap();
    for unflushed in fates(0) {
        let (sim, at) = (Sim::new(2), tape.len());
        sim.restore(&tape, at, unflushed);
        let left: Arc<dyn Kv> = Arc::new(kv.watch.left_kv(at, unflushed));
        let found = on_node(&sim, 1, async move |shard| empty_and_clean(&shard, &left, false).await).unwrap();
        assert!(found.is_some(), "{unflushed:?}: it is not mounted");
    }
}

/// A change of a store's devices.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// The log gets this device of its own.
    ToWal(u32),
    /// It gets its place beside the data.
    Home,
    /// The devices have grown.
    Expand,
}

async fn grow(shard: &Shard, path: &std::path::Path, by: u64) {
    let options = FileOptions { read: true, write: true, direct: true, ..FileOptions::default() };
    let file = shard.open(path, options).await.unwrap();
    file.set_len(file.len().await.unwrap() + by).await.unwrap();
    file.fdatasync().await.unwrap();
}

async fn make_change(shard: &Shard, kv: Arc<dyn Kv>, change: Change) {
    let to = |n| NewLog { place: (&wal_path(n)).into(), size_bytes: None, fill: Fill::Nothing, force: true };
    match change {
        Change::ToWal(n) => {
            move_log(shard, places(), kv, Some(to(n))).await.unwrap();
        }
        Change::Home => {
            move_log(shard, places(), kv, None).await.unwrap();
        }
        Change::Expand => {
            let before = expand(shard, places(), kv).await.unwrap();
            assert!(before.block.1 > before.block.0, "{before:?}");
        }
    }
}

/// The store that a life left, killed and without what its key-value store had in memory, while it changes.
fn changed(life: &Life, change: Change) -> Life {
    let sim = Sim::new(7);
    let end = life.tape.len();
    sim.restore(&life.tape, end, Unflushed::Kept);
    if matches!(change, Change::Expand) {
        let wal = life.wal.clone();
        on_node(&sim, 1, async move |shard| {
            grow(&shard, &path(), (1 << 20) + 5000).await;
            if let Some(wal) = wal {
                grow(&shard, &wal, 300_000).await;
            }
        })
        .unwrap();
    }
    let tape = sim.record();
    let kv = Arc::new(recorded(tape.clone(), life.kv.watch.left(end, Unflushed::Lost)));
    let (changing, label) = (Arc::clone(&kv) as Arc<dyn Kv>, Rc::new(RefCell::new(None)));
    let out = Rc::clone(&label);
    let wal = on_node(&sim, 1, async move |shard| {
        make_change(&shard, Arc::clone(&changing), change).await;
        let shared = BlueShared::mount(&shard, places(), changing, MountOptions::default()).await.unwrap();
        *out.borrow_mut() = Some(shared.label().clone());
        shared.wal().map(|place| place.path.clone())
    });
    let mut histories = life.histories.clone();
    histories.iter_mut().for_each(|history: &mut History| history.acknowledged.fill(0));
    let (label, wal) = (label.take().unwrap(), wal.unwrap());
    Life { tape, kv, histories, label, wal, mounted_at: 0, replayed: life.replayed, stats: Vec::new() }
}

/// Every moment of each change, and of a life after it. About 20 s.
#[test]
fn a_power_cut_while_the_log_moves_or_a_device_is_expanded_loses_nothing() {
    let fresh = |seed| live(seed, Start { life: None, histories: Histories::new() }, 6);
    let with_wal = |life: &Life| life.wal.is_some();
    let home = (0..).map(fresh).find(|life| !with_wal(life)).unwrap();
    let own = (0..).map(fresh).find(with_wal).unwrap();
    let mut images = 0;
    for (life, change) in [
        (&home, Change::ToWal(0)),
        (&own, Change::ToWal(1)),
        (&own, Change::Home),
        (&home, Change::Expand),
        (&own, Change::Expand),
    ] {
        let changing = changed(life, change);
        let says = |at, unflushed, error: String| format!("{change:?}, cut at {at}, {unflushed:?}: {error}");
        for at in 0..=changing.tape.len() {
            for unflushed in fates(at) {
                check(&changing, at, unflushed)
                    .unwrap_or_else(|error| panic!("{}", says(at, unflushed, error)));
                images += 1;
            }
        }
        let wanted = match change {
            Change::ToWal(n) => Some(wal_path(n)),
            Change::Home => None,
            Change::Expand => life.wal.clone(),
        };
        assert_eq!(changing.wal, wanted);
        // It is lived in afterwards as before.
        let end = changing.tape.len();
        let histories = check(&changing, end, Unflushed::Lost).unwrap().prefixes;
        let after = live(3, Start { life: Some((&changing, end, Unflushed::Lost)), histories }, 4);
        for at in (0..=after.tape.len()).step_by(9) {
            let unflushed = Unflushed::Random(mix(at as u64));
            check(&after, at, unflushed).unwrap_or_else(|error| panic!("{}", says(at, unflushed, error)));
            images += 1;
        }
    }
    println!("{images} images of changes");
}
