//! Snapshots: what every snapshot shows whatever is written, removed, rolled back, trimmed and killed meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{ClientError, Pool, RouteMode};
use carmine_reactor::Payload;
use carmine_types::{SNAP_DIR, SNAP_HEAD, errno};
use carmine_wire::Decoder;
use carmine_wire::osd_op::{OsdOp, flags, ops};
use carmine_wire::osdmap::intervals;

use super::attrs::{get, omap, set_omap, xattr};
use super::cluster::{Cluster, Disks, noise};
use super::mon::POOL_ID;
use super::peering::{kill, place, wait_clean};

const SECOND: Duration = Duration::from_secs(1);

/// A clone as a client is told of it: id, snapshots, overlap, size.
type Listed = (u64, Vec<u64>, Vec<(u64, u64)>, u64);

async fn list(pool: &Pool, name: &str) -> Result<(Vec<Listed>, u64), ClientError> {
    let op = (OsdOp::with_payload(ops::LIST_SNAPS, 0), Payload::new());
    let out = get(&pool.at_snap(SNAP_DIR), name, op).await?;
    let clone = |d: &mut Decoder<'_>| {
        let mut clone = d.envelope("clone_info", 1)?;
        let d = &mut clone.body;
        let pairs = |d: &mut Decoder<'_>| Ok((d.u64()?, d.u64()?));
        Ok((d.u64()?, d.vec(8, |d| d.u64())?, d.vec(16, pairs)?, d.u64()?))
    };
    let all = Decoder::all(&out, "snaps", |d| {
        let mut all = d.envelope("obj_list_snap_response_t", 2)?;
        Ok((all.body.vec(1, clone)?, all.body.u64()?))
    });
    Ok(all.unwrap())
}

async fn roll_back(pool: &Pool, name: &str, snap: u64) -> Result<(), ClientError> {
    pool.exec(name, vec![(OsdOp::rollback(snap), Payload::new())]).await.map(drop)
}

async fn text(pool: &Pool, name: &str) -> Option<String> {
    match pool.read(name, 0, 0).await {
        Ok(data) => Some(String::from_utf8(data.to_vec()).unwrap()),
        Err(error) => {
            assert!(error.is_not_found(), "{error}");
            None
        }
    }
}

async fn every_answer(pool: Pool) {
    let snaps = |seq, snaps: &[u64]| pool.with_snaps(seq, snaps);
    pool.write_full("o", b"first version".to_vec()).await.unwrap();
    pool.exec("o", vec![xattr(ops::SET_XATTR, "a", b"1"), set_omap(&[("k".to_owned(), b"1".to_vec())])])
        .await
        .unwrap();
    assert_eq!(list(&pool, "o").await.unwrap(), (vec![(SNAP_HEAD, vec![], vec![], 13)], 0));
    // Two snapshots, and the first write after them.
    snaps(4, &[4, 3]).write("o", 0, b"F".to_vec()).await.unwrap();
    snaps(4, &[4, 3]).write("o", 6, b"VERSION".to_vec()).await.unwrap();
    pool.exec("o", vec![xattr(ops::SET_XATTR, "a", b"2"), set_omap(&[("k".to_owned(), b"2".to_vec())])])
        .await
        .unwrap();
    for snap in [3, 4] {
        let then = pool.at_snap(snap);
        assert_eq!(text(&then, "o").await.as_deref(), Some("first version"), "at {snap}");
        assert_eq!(get(&then, "o", xattr(ops::GET_XATTR, "a", b"")).await.unwrap(), b"1");
        assert_eq!(omap(&then, "o").await, [("k".to_owned(), b"1".to_vec())]);
        assert_eq!(then.stat("o").await.unwrap().size, 13);
    }
    assert_eq!(text(&pool.at_snap(2), "o").await, None, "nobody asked to keep that");
    assert_eq!(
        text(&pool.at_snap(9), "o").await.as_deref(),
        Some("First VERSION"),
        "a later one shows the head"
    );
    assert_eq!(omap(&pool, "o").await, [("k".to_owned(), b"2".to_vec())]);
    let clone = (4, vec![3, 4], vec![(1, 5)], 13);
    let head = |size| (SNAP_HEAD, vec![], vec![], size);
    assert_eq!(list(&pool, "o").await.unwrap(), (vec![clone.clone(), head(13)], 4));
    // A name of a snapshot that is gone counts by its number only.
    snaps(7, &[6, 3]).truncate("o", 4).await.unwrap();
    let second = (7, vec![6], vec![(0, 4)], 13);
    assert_eq!(list(&pool, "o").await.unwrap(), (vec![clone.clone(), second.clone(), head(4)], 7));
    assert_eq!(text(&pool.at_snap(6), "o").await.as_deref(), Some("First VERSION"));
    assert_eq!(text(&pool.at_snap(5), "o").await, None, "the clone does not show it");
    // A removed object stays for its snapshots, and clients find no object.
    snaps(8, &[8, 6, 4, 3]).remove("o").await.unwrap();
    assert!(snaps(8, &[8]).remove("o").await.unwrap_err().is_not_found());
    assert_eq!(text(&pool, "o").await, None);
    assert!(pool.stat("o").await.unwrap_err().is_not_found());
    assert!(pool.read("o", 0, 4).await.unwrap_err().is_not_found());
    assert_eq!(text(&pool.at_snap(8), "o").await.as_deref(), Some("Firs"));
    assert_eq!(text(&pool.at_snap(9), "o").await, None);
    assert_eq!(list(&pool, "o").await.unwrap().0.len(), 3, "no head");
    // It is created anew.
    snaps(8, &[8, 6, 4, 3]).create("o", true).await.unwrap();
    assert_eq!(pool.stat("o").await.unwrap().size, 0);
    assert!(get(&pool, "o", xattr(ops::GET_XATTR, "a", b"")).await.is_err());
    assert_eq!(text(&pool.at_snap(3), "o").await.as_deref(), Some("first version"));
    // Rolled back: to a clone, with all that it has; to the head; to what did not exist.
    let writer = snaps(9, &[9, 8, 6, 4, 3]);
    roll_back(&writer, "o", 6).await.unwrap();
    assert_eq!(text(&pool, "o").await.as_deref(), Some("First VERSION"));
    assert_eq!(get(&pool, "o", xattr(ops::GET_XATTR, "a", b"")).await.unwrap(), b"2");
    assert_eq!(omap(&pool, "o").await, [("k".to_owned(), b"2".to_vec())]);
    assert_eq!(text(&pool.at_snap(9), "o").await.as_deref(), Some(""), "that was the head before");
    roll_back(&writer, "o", 10).await.unwrap();
    assert_eq!(text(&pool, "o").await.as_deref(), Some("First VERSION"));
    roll_back(&writer, "o", 1).await.unwrap();
    assert_eq!(text(&pool, "o").await, None);
    roll_back(&writer, "o", 3).await.unwrap();
    assert_eq!(text(&pool, "o").await.as_deref(), Some("first version"), "also what does not exist");
    roll_back(&writer, "nothing", 3).await.unwrap();
    assert_eq!(text(&pool, "nothing").await, None);
    // An object of later.
    writer.write_full("young", b"y".to_vec()).await.unwrap();
    assert_eq!(
        (text(&pool.at_snap(9), "young").await, list(&pool, "young").await.unwrap()),
        (None, (vec![head(1)], 9))
    );
    // Only heads are listed.
    let names: Vec<_> = pool.list().await.unwrap().into_iter().map(|listed| listed.name).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for (seq, bad) in [(3, &[4][..]), (5, &[3, 4]), (5, &[3, 3]), (5, &[0])] {
        let refused = snaps(seq, bad).write_full("o", b"x".to_vec()).await.unwrap_err();
        assert_eq!(refused.errno(), errno::EINVAL, "{seq} {bad:?}");
    }
    assert!(list(&pool, "never").await.unwrap_err().is_not_found());
    let op = (OsdOp::with_payload(ops::LIST_SNAPS, 0), Payload::new());
    assert_eq!(get(&pool, "o", op).await.unwrap_err().errno(), errno::EINVAL);
    assert_eq!(pool.at_snap(SNAP_DIR).stat("o").await.unwrap_err().errno(), errno::EINVAL);
    assert_eq!(pool.at_snap(4).write_full("o", b"x".to_vec()).await.unwrap_err().errno(), errno::EINVAL);
}

#[test]
fn snapshots_show_what_was_there() {
    let cluster = Cluster::start(60, Disks::Cyan, 3, 4, &[2, 1, 1]);
    cluster.client(RouteMode::Direct, |_, pool| every_answer(pool));
    cluster.check_equal(&[0, 1, 2]);
}

#[test]
fn a_writer_may_ask_whether_it_missed_a_snapshot() {
    let cluster = Cluster::start(61, Disks::Cyan, 1, 1, &[1]);
    let raw = super::raw::Raw::new(&cluster, 0);
    let write = |tid, seq, order| {
        let mut request = raw.request(&cluster, "o", OsdOp::write(0, 3));
        (request.snap_seq, request.snaps) = (seq, vec![seq]);
        request.flags |= if order { flags::ORDER_SNAP } else { 0 };
        raw.ask(&cluster, request, b"abc", tid).map(|reply| reply.result)
    };
    assert_eq!(write(1, 5, true), Some(0));
    assert_eq!(write(2, 4, true), Some(errno::EOLDSNAPC));
    assert_eq!(write(3, 4, false), Some(0));
    assert_eq!(write(4, 5, true), Some(0));
}

/// Objects, clones among them, and bytes by the newest statistics of all OSDs.
pub(crate) fn used(cluster: &Cluster) -> (i64, i64, i64) {
    cluster.pass(5 * SECOND);
    let stats = cluster.mon.pg_stats.borrow();
    stats.values().map(|(_, stat)| &stat.stats.sum).fold((0, 0, 0), |all, sum| {
        (all.0 + sum.num_objects, all.1 + sum.num_object_clones, all.2 + sum.num_bytes)
    })
}

/// PGs that say that they have nothing of a snapshot any more.
pub(crate) fn purged(cluster: &Cluster, snap: u64) -> usize {
    let stats = cluster.mon.pg_stats.borrow();
    stats.values().filter(|(_, stat)| intervals::contains(&stat.purged_snaps, snap)).count()
}

pub(crate) fn remove_snap(cluster: &Cluster, snap: u64) {
    cluster.mon.change(move |inc| drop(inc.new_removed_snaps.insert(POOL_ID, vec![(snap, 1)])));
}

#[test]
fn removed_snapshots_are_trimmed() {
    let cluster = Cluster::start(62, Disks::Cyan, 2, 4, &[1, 2]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..20 {
            pool.write_full(format!("o{n}"), vec![1; 100]).await.unwrap();
        }
        for n in 0..20 {
            pool.with_snaps(2, &[2, 1]).write_full(format!("o{n}"), vec![2; 50]).await.unwrap();
            pool.with_snaps(3, &[3, 2, 1]).remove(format!("o{n}")).await.unwrap();
        }
    });
    assert_eq!(used(&cluster), (60, 40, 20 * 150), "heads that are gone count, as in Ceph");
    remove_snap(&cluster, 1);
    cluster.pass(5 * SECOND);
    assert_eq!((used(&cluster), purged(&cluster, 1)), ((60, 40, 20 * 150), 4), "snapshot 2 needs the clones");
    cluster.client(RouteMode::Direct, |_, pool| async move {
        assert_eq!(text(&pool.at_snap(1), "o1").await, None);
        assert_eq!(pool.at_snap(2).stat("o1").await.unwrap().size, 100);
        // A context that still has it makes no clone for it.
        pool.with_snaps(3, &[1]).write_full("late", b"1".to_vec()).await.unwrap();
        pool.remove("late").await.unwrap();
    });
    remove_snap(&cluster, 2);
    assert_eq!((used(&cluster), purged(&cluster, 2)), ((40, 20, 20 * 50), 4));
    remove_snap(&cluster, 3);
    assert_eq!(
        (used(&cluster), purged(&cluster, 3)),
        ((0, 0, 0), 4),
        "and the heads that were kept for them"
    );
    cluster.mon.change(|inc| drop(inc.new_purged_snaps.insert(POOL_ID, vec![(1, 3)])));
    cluster.pass(5 * SECOND);
    assert_eq!(purged(&cluster, 3), 0, "the map does not ask any more");
    cluster.check_equal(&[0, 1]);
}

#[test]
fn snapshots_of_a_pool_need_no_context() {
    let cluster = Cluster::start(63, Disks::Cyan, 2, 4, &[1, 1]);
    let snap = |cluster: &Cluster, snap: u64| {
        let map = cluster.mon.map();
        let mut pool = map.pool(POOL_ID).unwrap().clone();
        pool.flags |= carmine_wire::osdmap::consts::POOL_POOL_SNAPS;
        pool.snap_seq = snap;
        let new = carmine_wire::osdmap::PoolSnap {
            snapid: snap,
            stamp: carmine_types::UTime::ZERO,
            name: snap.to_string(),
        };
        pool.snaps.insert(snap, new);
        cluster.mon.change(move |inc| drop(inc.new_pools.insert(POOL_ID, pool)));
        cluster.pass(SECOND);
    };
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write_full("o", b"one".to_vec()).await.unwrap();
    });
    snap(&cluster, 1);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        // The snapshots that the client gives do not count.
        pool.with_snaps(9, &[9]).write_full("o", b"two".to_vec()).await.unwrap();
        pool.write_full("young", b"two".to_vec()).await.unwrap();
    });
    snap(&cluster, 2);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.remove("o").await.unwrap();
        pool.remove("young").await.unwrap();
        assert_eq!(text(&pool.at_snap(1), "o").await.as_deref(), Some("one"));
        assert_eq!(text(&pool.at_snap(2), "o").await.as_deref(), Some("two"));
        assert_eq!(text(&pool.at_snap(1), "young").await, None);
        assert_eq!(text(&pool.at_snap(2), "young").await.as_deref(), Some("two"));
        assert_eq!(list(&pool, "o").await.unwrap().1, 2);
    });
}

/// The state that the client of a random test expects.
#[derive(Default)]
struct Model {
    seq: u64,
    /// Those that exist, descending.
    snaps: Vec<u64>,
    now: BTreeMap<u64, Vec<u8>>,
    /// All objects at each snapshot.
    then: BTreeMap<u64, BTreeMap<u64, Vec<u8>>>,
    /// Removed, and yet to be told to the monitor.
    removed: Vec<u64>,
}

/// Objects of a random test.
const OBJECTS: u64 = 12;

impl Model {
    async fn act(&mut self, pool: &Pool, seed: u64) {
        let dice = noise(seed, 8);
        let writer = pool.with_snaps(self.seq, &self.snaps);
        let n = u64::from(dice[1]) % OBJECTS;
        let name = format!("o{n}");
        let old = self.now.get(&n).cloned();
        match dice[0] % 16 {
            0..7 => {
                let (off, data) = (usize::from(dice[2]) * 60, noise(seed, 1 + usize::from(dice[3]) * 50));
                let mut new = old.unwrap_or_default();
                new.resize(new.len().max(off + data.len()), 0);
                new[off..off + data.len()].copy_from_slice(&data);
                writer.write(&name, off as u64, data).await.unwrap();
                self.now.insert(n, new);
            }
            7 => {
                writer.write_full(&name, noise(seed, 5000)).await.unwrap();
                self.now.insert(n, noise(seed, 5000));
            }
            8 => {
                let size = usize::from(dice[2]) * 40;
                writer.truncate(&name, size as u64).await.unwrap();
                if let Some(bytes) = self.now.get_mut(&n) {
                    bytes.resize(size, 0);
                }
            }
            9 | 10 => {
                let removed = writer.remove(&name).await;
                assert_eq!(removed.is_ok(), self.now.remove(&n).is_some());
            }
            11..13 => {
                self.seq += 1;
                self.snaps.insert(0, self.seq);
                self.then.insert(self.seq, self.now.clone());
            }
            13 if self.snaps.len() > 3 => {
                let snap = self.snaps.remove(usize::from(dice[2]) % self.snaps.len());
                self.then.remove(&snap);
                self.removed.push(snap);
            }
            14 if !self.snaps.is_empty() => {
                let snap = self.snaps[usize::from(dice[2]) % self.snaps.len()];
                roll_back(&writer, &name, snap).await.unwrap();
                match self.then[&snap].get(&n) {
                    Some(bytes) => drop(self.now.insert(n, bytes.clone())),
                    None => drop(self.now.remove(&n)),
                }
            }
            _ => {}
        }
        if seed.is_multiple_of(16) {
            self.check(pool, n).await;
        }
    }

    /// One object, at all snapshots.
    async fn check(&self, pool: &Pool, n: u64) {
        let name = format!("o{n}");
        let read = async |pool: &Pool| match pool.read(&name, 0, 0).await {
            Ok(data) => Some(data.to_vec()),
            Err(error) => {
                assert!(error.is_not_found(), "{error}");
                None
            }
        };
        assert!(read(pool).await.as_ref() == self.now.get(&n), "{name} is not what was written");
        for (snap, then) in &self.then {
            let found = read(&pool.at_snap(*snap)).await;
            assert!(found.as_ref() == then.get(&n), "{name} is not what it was at snapshot {snap}");
        }
        let Ok((clones, _)) = list(pool, &name).await else { return };
        for (id, snaps, overlap, size) in clones.iter().filter(|clone| clone.0 != SNAP_HEAD) {
            let of_clone = snaps.iter().find_map(|snap| self.then.get(snap)?.get(&n));
            let is_right = of_clone.is_none_or(|bytes| bytes.len() as u64 == *size);
            assert!(is_right && overlap.iter().all(|(off, len)| off + len <= *size), "clone {id} of {name}");
        }
    }
}

/// Random work on objects and snapshots while OSDs die, come back, and trim.
fn survive(seed: u64, disks: Disks) {
    let cluster = Cluster::start(seed, disks, 3, 4, &[2, 1, 1]);
    let (model, at) = (Rc::new(RefCell::new(Model::default())), Rc::new(Cell::new(0u64)));
    const STEPS: u64 = 400;
    let (work, step) = (Rc::clone(&model), Rc::clone(&at));
    let running = cluster.background(RouteMode::Direct, move |_, pool| async move {
        let mut own = Model::default();
        for n in 0..STEPS {
            own.act(&pool, seed * 1000 + n).await;
            work.borrow_mut().removed.append(&mut own.removed);
            step.set(n);
        }
        for n in 0..OBJECTS {
            own.check(&pool, n).await;
        }
        *work.borrow_mut() = own;
    });
    let trim = || {
        let removed = std::mem::take(&mut model.borrow_mut().removed);
        removed.into_iter().for_each(|snap| remove_snap(&cluster, snap));
    };
    for (round, osd) in [2u32, 1, 0, 2].into_iter().enumerate() {
        let until = STEPS / 6 * (round as u64 + 1);
        cluster.wait("work", || at.get() >= until);
        trim();
        kill(&cluster, osd);
        let others: Vec<i32> = (0..3).filter(|other| *other != osd as i32).collect();
        cluster.wait("work without it", || at.get() >= until + STEPS / 12);
        trim();
        cluster.start_osd(osd, 1 + (round as u16 % 2));
        cluster.wait_up(3);
        place(&cluster, 4, &[others[0], osd as i32, others[1]]);
        // Of a store in memory nothing else would be left.
        wait_clean(&cluster, &[others[0] as u32]);
    }
    cluster.wait("all work", || running.is_done());
    cluster.pass(10 * SECOND);
    cluster.check_equal(&[0, 1, 2]);
    // In the end all are removed, and nothing is left of them.
    let (last, objects) = (model.borrow().seq, model.borrow().now.clone());
    cluster.mon.change(move |inc| drop(inc.new_removed_snaps.insert(POOL_ID, vec![(1, last)])));
    cluster.pass(20 * SECOND);
    let bytes: usize = objects.values().map(Vec::len).sum();
    assert_eq!(used(&cluster), (objects.len() as i64, 0, bytes as i64));
    assert_eq!(purged(&cluster, last), 4);
    cluster.check_equal(&[0, 1, 2]);
}

#[test]
fn snapshots_survive_deaths() {
    survive(70, Disks::Cyan);
    (71..73).for_each(|seed| survive(seed, Disks::Blue));
}
