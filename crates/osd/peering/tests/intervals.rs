//! Past intervals: the cases of Ceph's documentation of peering, and every sequence of maps up to a bound.

use std::net::SocketAddr;

use carmine_peering::intervals::{Intervals, PriorSet, gap};
use carmine_peering::{Map, Member, OsdState};
use carmine_pgtypes::PgHistory;
use carmine_types::{Epoch, OsdId};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

/// Whoever makes the maps of a small cluster with one PG.
#[derive(Clone)]
struct Cluster {
    epoch: u32,
    /// The epochs since when each is up.
    up_from: [Option<u32>; 3],
    up_thru: [u32; 3],
    lost_at: [u32; 3],
    is_gone: [bool; 3],
    wanted: Vec<usize>,
    /// The acting set that a primary asked for (`pg_temp`); empty: that of CRUSH.
    temp: Vec<usize>,
    min_size: usize,
}

impl Cluster {
    fn new(wanted: &[usize], min_size: usize) -> Cluster {
        Cluster {
            epoch: 1,
            up_from: [Some(1); 3],
            up_thru: [0; 3],
            lost_at: [0; 3],
            is_gone: [false; 3],
            wanted: wanted.to_vec(),
            temp: Vec::new(),
            min_size,
        }
    }

    fn map(&self) -> Map {
        let those_up = |osds: &[usize]| -> Vec<usize> {
            osds.iter().copied().filter(|osd| self.up_from[*osd].is_some()).collect()
        };
        let (up, temp) = (those_up(&self.wanted), those_up(&self.temp));
        let acting = if temp.is_empty() { &up } else { &temp };
        let member = |osd: &usize| Member {
            osd: OsdId(*osd as u32),
            addr: SocketAddr::from(([127, 0, 0, 1], *osd as u16)),
            nonce: self.up_from[*osd].unwrap(),
            up_from: Epoch(self.up_from[*osd].unwrap()),
        };
        let state = |osd: usize| {
            let (lost_at, up_thru) = (Epoch(self.lost_at[osd]), Epoch(self.up_thru[osd]));
            match (self.up_from[osd], self.is_gone[osd]) {
                (_, true) => OsdState::Gone,
                (None, _) => OsdState::Down { lost_at, up_thru },
                (Some(_), _) => OsdState::Up { up_thru },
            }
        };
        Map {
            epoch: Epoch(self.epoch),
            acting: ids(acting).into(),
            members: acting.iter().map(member).collect(),
            up: ids(&up).into(),
            osds: [A, B, C].map(state).into(),
            size: self.wanted.len(),
            min_size: self.min_size,
            ..Map::default()
        }
    }

    /// The next map, with this change.
    fn next(&mut self, change: impl FnOnce(&mut Cluster)) -> Map {
        self.epoch += 1;
        change(self);
        self.map()
    }

    fn down(&mut self, osd: usize) -> Map {
        self.next(|cluster| cluster.up_from[osd] = None)
    }

    fn boot(&mut self, osd: usize) -> Map {
        self.next(|cluster| cluster.up_from[osd] = Some(cluster.epoch))
    }

    /// The monitor writes down that the OSD was up in the epoch before.
    fn alive(&mut self, osd: usize) -> Map {
        self.next(|cluster| cluster.up_thru[osd] = cluster.epoch - 1)
    }
}

fn ids(osds: &[usize]) -> Vec<OsdId> {
    osds.iter().map(|osd| OsdId(*osd as u32)).collect()
}

fn acting(intervals: &Intervals) -> Vec<Vec<OsdId>> {
    intervals.past().iter().map(|interval| interval.acting.osds().collect()).collect()
}

/// A and B, then B alone, then nobody, then A alone. B got so far that the map shows its `up_thru`, or did not.
fn b_went_on_alone(min_size: usize, is_alive: bool) -> (Cluster, Intervals) {
    let mut cluster = Cluster::new(&[A, B], min_size);
    let mut intervals = Intervals::default();
    intervals.load(&PgHistory::default());
    intervals.follow(&cluster.map());
    intervals.follow(&cluster.alive(A));
    intervals.follow(&cluster.down(A));
    if is_alive {
        intervals.follow(&cluster.alive(B));
    }
    intervals.follow(&cluster.down(B));
    intervals.follow(&cluster.boot(A));
    (cluster, intervals)
}

fn prior(cluster: &Cluster, intervals: &Intervals) -> PriorSet {
    PriorSet::new(intervals.past(), intervals.last_epoch_clean(), &cluster.map())
}

#[test]
fn a_waits_for_b_if_the_map_showed_that_b_was_up_in_its_interval() {
    let (mut cluster, mut intervals) = b_went_on_alone(1, true);
    assert_eq!(acting(&intervals), [ids(&[A, B]), ids(&[B])]);
    assert_eq!(prior(&cluster, &intervals).blocked_by, ids(&[B]));
    intervals.follow(&cluster.boot(B));
    assert_eq!(prior(&cluster, &intervals), PriorSet { probe: ids(&[A, B]), blocked_by: Vec::new() });
}

#[test]
fn a_does_not_wait_for_b_if_b_cannot_have_served() {
    for (min_size, is_alive) in [(1, false), (2, true)] {
        let (cluster, intervals) = b_went_on_alone(min_size, is_alive);
        assert_eq!(acting(&intervals), [ids(&[A, B])]);
        assert_eq!(prior(&cluster, &intervals), PriorSet { probe: ids(&[A]), blocked_by: Vec::new() });
    }
}

#[test]
fn what_a_lost_osd_had_is_given_up_up_to_then() {
    let (mut cluster, mut intervals) = b_went_on_alone(1, true);
    let down_at = cluster.epoch - 1;
    intervals.follow(&cluster.next(|cluster| cluster.lost_at[B] = down_at));
    assert_eq!(prior(&cluster, &intervals).blocked_by, []);
    // It comes back and leads alone again: what it wrote then was not given up.
    intervals.follow(&cluster.down(A));
    intervals.follow(&cluster.boot(B));
    intervals.follow(&cluster.alive(B));
    intervals.follow(&cluster.down(B));
    intervals.follow(&cluster.boot(A));
    assert_eq!(prior(&cluster, &intervals).blocked_by, ids(&[B]));
    cluster.next(|cluster| cluster.is_gone[B] = true);
    assert_eq!(prior(&cluster, &intervals).blocked_by, [], "it was purged");
}

#[test]
fn nobody_waits_for_writes_that_an_activation_had() {
    let (cluster, intervals) = b_went_on_alone(1, true);
    let of_b = intervals.past().last().unwrap();
    let blocked_by = |started| PriorSet::new(intervals.past(), started, &cluster.map()).blocked_by;
    assert_eq!(blocked_by(of_b.last), ids(&[B]));
    assert_eq!(blocked_by(intervals.same_interval_since()), []);
}

#[test]
fn an_osd_that_restarts_unnoticed_begins_an_interval() {
    let (mut cluster, mut intervals) = (Cluster::new(&[A, B], 1), Intervals::default());
    assert!(intervals.follow(&cluster.map()));
    assert!(!intervals.follow(&cluster.alive(A)), "up_thru is no change of the members");
    assert!(intervals.follow(&cluster.boot(B)));
    assert!(intervals.follow(&cluster.next(|cluster| cluster.min_size = 2)));
    assert!(intervals.follow(&cluster.next(|cluster| cluster.wanted = vec![B, A])));
    assert!(!intervals.follow(&cluster.boot(C)), "it has nothing to do with this PG");
    assert!(intervals.follow(&cluster.next(|cluster| cluster.temp = vec![A])), "another acting set");
    assert!(intervals.follow(&cluster.next(|cluster| cluster.wanted = vec![C, B])), "another up set");
    assert!(intervals.follow(&cluster.boot(A)), "the member of pg_temp");
}

#[test]
fn the_past_ends_when_all_copies_are_whole() {
    let (mut cluster, mut intervals) = b_went_on_alone(1, true);
    intervals.follow(&cluster.boot(B));
    intervals.clean();
    assert_eq!(intervals.past(), []);
    assert_eq!(intervals.last_epoch_clean(), intervals.same_interval_since());
}

/// A copy may have been made between two intervals with the same acting set (`carmine sim --seed 10472`: it counted as lost).
#[test]
fn the_same_acting_set_counts_once_only_if_there_are_many_intervals() {
    let (mut cluster, mut intervals) = (Cluster::new(&[A, B], 1), Intervals::default());
    intervals.load(&PgHistory::default());
    intervals.follow(&cluster.map());
    for n in 1..=50 {
        intervals.follow(&cluster.alive(A));
        intervals.follow(&cluster.down(B));
        intervals.follow(&cluster.alive(A));
        intervals.follow(&cluster.boot(B));
        assert_eq!(intervals.past().len(), (2 * n).min(32));
    }
    let runs: Vec<_> = intervals.past().iter().map(|past| (past.first.0, past.last.0)).collect();
    let newest = cluster.epoch - 1;
    assert_eq!((runs[0].0, runs[1].0), (1, 3), "the oldest begin where the first began");
    let each = (0..30).rev().map(|n| (newest - 2 * n - 1, newest - 2 * n));
    assert_eq!(runs[2..], each.collect::<Vec<_>>());
}

/// Writes are where they were acknowledged, not where CRUSH looks.
#[test]
fn those_that_serve_are_the_acting_set() {
    let (mut cluster, mut intervals) = (Cluster::new(&[B, C], 1), Intervals::default());
    cluster.temp = vec![A];
    intervals.load(&PgHistory::default());
    intervals.follow(&cluster.map());
    intervals.follow(&cluster.alive(B));
    intervals.follow(&cluster.next(|cluster| cluster.wanted = vec![C, B]));
    assert_eq!(acting(&intervals), Vec::<Vec<OsdId>>::new(), "the primary did not ask for up_thru");
    intervals.follow(&cluster.alive(A));
    intervals.follow(&cluster.down(A));
    assert_eq!(acting(&intervals), [ids(&[A])]);
    assert_eq!(prior(&cluster, &intervals), PriorSet { probe: ids(&[B, C]), blocked_by: ids(&[A]) });
    intervals.follow(&cluster.boot(A));
    assert_eq!(prior(&cluster, &intervals), PriorSet { probe: ids(&[A, B, C]), blocked_by: Vec::new() });
}

#[test]
fn epochs_whose_maps_are_gone_belong_to_nobody() {
    let (mut cluster, mut intervals) = (Cluster::new(&[A, B], 1), Intervals::default());
    cluster.epoch = 9;
    intervals.follow(&cluster.alive(A));
    let known = PgHistory { epoch: Epoch(5), same_interval_since: Epoch(3), ..PgHistory::default() };
    intervals.load(&known);
    let [unknown] = intervals.past() else { panic!("{:?}", intervals.past()) };
    assert_eq!(gap(intervals.past(), Epoch(4)), Some((Epoch(3), Epoch(9))));
    assert_eq!((unknown.first, unknown.last, unknown.acting.len()), (Epoch(3), Epoch(9), 0));
    assert_eq!(prior(&cluster, &intervals), PriorSet { probe: ids(&[A, B]), blocked_by: Vec::new() });
    // Each that may have led then is needed, by the epoch in which the maps say that it was up.
    cluster.up_thru = [3, 3, 3];
    assert_eq!(prior(&cluster, &intervals).probe, ids(&[A, B, C]));
    cluster.down(B);
    cluster.down(C);
    assert_eq!(prior(&cluster, &intervals), PriorSet { probe: ids(&[A]), blocked_by: ids(&[B, C]) });
    cluster.up_thru[B] = 2;
    assert_eq!(prior(&cluster, &intervals).blocked_by, ids(&[C]));
    cluster.lost_at[C] = 9;
    assert_eq!(prior(&cluster, &intervals).blocked_by, ids(&[C]));
    cluster.lost_at[C] = 10;
    assert_eq!(prior(&cluster, &intervals).blocked_by, []);
}

/// The epochs between the last that the teller saw and the first that was seen here belong to nobody.
#[test]
fn who_learns_the_past_knows_which_part_of_it_nobody_told() {
    let (mut cluster, told) = b_went_on_alone(1, true);
    let told = told.known();
    cluster.epoch = told.epoch.0 + 3;
    let mut intervals = Intervals::default();
    intervals.load(&PgHistory::default());
    intervals.follow(&cluster.boot(B));
    let made = Epoch(cluster.epoch);
    intervals.follow(&cluster.alive(A));
    intervals.follow(&cluster.down(A));
    intervals.learn(&told, made);
    assert_eq!(gap(intervals.past(), told.epoch), Some((Epoch(told.epoch.0 + 1), Epoch(made.0 - 1))));
    assert_eq!(acting(&intervals), [ids(&[A, B]), ids(&[B]), Vec::new(), ids(&[A, B])]);
    assert_eq!(intervals.same_interval_since(), Epoch(cluster.epoch), "it began after the teller's last map");
}

#[test]
fn who_learns_the_past_in_the_same_interval_knows_when_it_began() {
    let (mut cluster, mut seen) = b_went_on_alone(1, true);
    let since = seen.same_interval_since();
    seen.clean();
    let mut intervals = Intervals::default();
    intervals.load(&PgHistory::default());
    intervals.follow(&cluster.alive(C));
    seen.follow(&cluster.map());
    assert_ne!(intervals.same_interval_since(), since);
    intervals.learn(&seen.known(), Epoch(cluster.epoch));
    assert_eq!((intervals.same_interval_since(), intervals.last_epoch_clean()), (since, since));
    assert!(intervals.is_known());
}

/// The maps of this OSD's epochs 1 to 3 and 7 are there; when it wrote down what it knew, it had seen that of `epoch`.
fn with_a_hole(epoch: u32) -> (Cluster, Intervals) {
    let (mut cluster, mut intervals) = (Cluster::new(&[A, B], 1), Intervals::default());
    assert!(intervals.follow(&cluster.map()));
    assert!(!intervals.follow(&cluster.alive(A)));
    assert!(!intervals.follow(&cluster.boot(C)));
    cluster.epoch = 6;
    assert!(
        intervals.follow(&cluster.boot(C)),
        "after a gap an interval begins, though its members are the same"
    );
    intervals.load(&PgHistory { epoch: Epoch(epoch), same_interval_since: Epoch(1), ..PgHistory::default() });
    (cluster, intervals)
}

#[test]
fn a_hole_in_the_maps_is_an_interval_of_which_nobody_is_known() {
    for (seen, expected) in [
        (1, &[(1, 3, 2), (4, 6, 0)][..]),
        (3, &[(1, 3, 2), (4, 6, 0)]),
        // What it saw in the hole is gone: its members then are not known any more.
        (5, &[(1, 6, 0)]),
        (7, &[]),
    ] {
        let (mut cluster, mut intervals) = with_a_hole(seen);
        let past = |intervals: &Intervals| -> Vec<_> {
            intervals.past().iter().map(|past| (past.first.0, past.last.0, past.acting.len())).collect()
        };
        assert_eq!(past(&intervals), expected, "seen: {seen}");
        let hole =
            expected.iter().find(|(.., members)| *members == 0).map(|hole| (Epoch(hole.0), Epoch(hole.1)));
        assert_eq!(gap(intervals.past(), Epoch(1)), hole);
        assert_eq!(gap(intervals.past(), Epoch(7)), None, "it was active since then");
        // A second hole joins the first.
        cluster.epoch = 9;
        intervals.follow(&cluster.boot(C));
        assert_eq!(gap(intervals.past(), Epoch(1)), Some((hole.map_or(Epoch(8), |hole| hole.0), Epoch(9))));
        intervals.clean();
        assert_eq!(gap(intervals.past(), Epoch(1)), None);
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Toggle(usize),
    Restart(usize),
    Alive,
    Write,
}

const CHANGES: [Change; 6] = [
    Change::Toggle(A),
    Change::Toggle(B),
    Change::Toggle(C),
    Change::Restart(A),
    Change::Alive,
    Change::Write,
];

/// A cluster, an observer who sees every map, and the OSDs that have the newest acknowledged write.
#[derive(Clone)]
struct World {
    cluster: Cluster,
    maps: Vec<Map>,
    intervals: Intervals,
    newest: Vec<OsdId>,
}

impl World {
    fn new(min_size: usize) -> World {
        let (cluster, mut intervals) = (Cluster::new(&[A, B, C], min_size), Intervals::default());
        intervals.load(&PgHistory::default());
        intervals.follow(&cluster.map());
        World { maps: vec![cluster.map()], cluster, intervals, newest: Vec::new() }
    }

    /// False if nothing would change.
    fn step(&mut self, change: Change) -> bool {
        let map = self.cluster.map();
        let primary = map.members.first().map(|member| member.osd.0 as usize);
        let next = match (change, primary) {
            (Change::Toggle(osd), _) if self.cluster.up_from[osd].is_some() => self.cluster.down(osd),
            (Change::Toggle(osd), _) => self.cluster.boot(osd),
            (Change::Restart(osd), _) if self.cluster.up_from[osd].is_some() => self.cluster.boot(osd),
            (Change::Alive, Some(primary)) => self.cluster.alive(primary),
            (Change::Write, Some(_)) => return self.write(&map),
            _ => return false,
        };
        self.intervals.follow(&next);
        self.maps.push(next);
        true
    }

    /// All members write, if the PG may be active.
    fn write(&mut self, map: &Map) -> bool {
        let is_enough = map.members.len() >= map.min_size;
        let is_known_up = map.up_thru() >= self.intervals.same_interval_since();
        let blocked = PriorSet::new(self.intervals.past(), Epoch(0), map).blocked_by;
        let writes = is_enough && is_known_up && blocked.is_empty();
        if writes {
            self.newest = map.members.iter().map(|member| member.osd).collect();
        }
        writes
    }

    /// Whoever knows these intervals and is not told to wait for others asks somebody who has the newest write.
    fn check_prior(&self, intervals: &Intervals, way: &[Change]) {
        let map = self.cluster.map();
        let PriorSet { probe, blocked_by } = PriorSet::new(intervals.past(), Epoch(0), &map);
        let is_found = self.newest.is_empty() || self.newest.iter().any(|osd| probe.contains(osd));
        assert!(is_found || !blocked_by.is_empty(), "{:?} have the write: {way:?}", self.newest);
        // Nobody is waited for whose copy is not needed.
        assert!(blocked_by.iter().all(|osd| !map.state_of(*osd).is_up()), "{way:?}");
    }

    fn check(&self, way: &[Change]) {
        self.check_prior(&self.intervals, way);
        // An OSD that wrote down what it knew at any epoch, and then sees the maps since, knows the same.
        for (at, stored) in self.maps.iter().enumerate() {
            let mut before = Intervals::default();
            before.load(&PgHistory::default());
            for map in &self.maps[..=at] {
                before.follow(map);
            }
            for is_late in [false, true] {
                let mut later = Intervals::default();
                later.follow(stored);
                if !is_late {
                    later.load(&before.known());
                }
                for map in &self.maps[at + 1..] {
                    later.follow(map);
                }
                if is_late {
                    later.load(&before.known());
                }
                assert_eq!(later, self.intervals, "written down at epoch {}: {way:?}", at + 1);
            }
            self.check_gaps(&before, at, way);
            self.check_learners(&before, at, way);
        }
    }

    /// An OSD that wrote this down, and for which the monitor then has only the newest maps.
    fn check_gaps(&self, before: &Intervals, at: usize, way: &[Change]) {
        for next in at + 2..self.maps.len() {
            let mut later = Intervals::default();
            later.follow(&self.maps[next]);
            later.load(&before.known());
            self.maps[next + 1..].iter().for_each(|map| _ = later.follow(map));
            self.check_prior(&later, way);
        }
    }

    /// An OSD whose copy is made in any epoch asks this one in a later one, and learns the past.
    fn check_learners(&self, teller: &Intervals, at: usize, way: &[Change]) {
        let told = teller.known();
        // The OSD that answers has seen the map of the OSD that asks, and both are in the same interval.
        let asks = (0..=at).filter(|asks| self.maps[*asks].epoch >= told.same_interval_since);
        for (asks, made) in asks.flat_map(|asks| (0..=asks).map(move |made| (asks, made))) {
            let mut learner = Intervals::default();
            learner.load(&PgHistory::default());
            self.maps[made..=asks].iter().for_each(|map| _ = learner.follow(map));
            learner.learn(&told, self.maps[made].epoch);
            self.maps[asks + 1..].iter().for_each(|map| _ = learner.follow(map));
            assert_eq!(
                learner.known(),
                self.intervals.known(),
                "made at epoch {}, asks at {}: {way:?}",
                made + 1,
                asks + 1
            );
        }
    }
}

fn explore(world: &World, way: &mut Vec<Change>, depth: usize) -> usize {
    world.check(way);
    let mut states = 1;
    for change in CHANGES.into_iter().filter(|_| depth > 0) {
        let mut next = world.clone();
        if next.step(change) {
            way.push(change);
            states += explore(&next, way, depth - 1);
            way.pop();
        }
    }
    states
}

#[test]
fn no_write_is_forgotten_in_any_sequence_of_maps() {
    for (min_size, depth) in [(1, 6), (2, 6)] {
        let states = explore(&World::new(min_size), &mut Vec::new(), depth);
        eprintln!("min_size {min_size}: {states} sequences");
        assert!(states > 1_000);
    }
}
