//! Every sequence of events, up to a bound: messages arrive in any order, twice or too late; OSDs die and come back at any
//! moment; maps change while all of that goes on; transactions are durable when they please. After each step the rules of
//! peering must hold, and from every state a run without further trouble must end with a PG that serves clients.
//!
//! `PEERING_STATES=n` explores so many states of each scenario instead of the default.

mod action;
mod map;
mod net;
mod stored;
mod world;

use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;

use action::{Action, Budget, CALM};
use foldhash::fast::FixedState;
use stored::{CHILD, PARENT};
use world::World;

/// States that a scenario explores unless `PEERING_STATES` says otherwise.
const STATES: usize = 30_000;
/// A run without trouble ends long before this.
const QUIET_STEPS_MAX: usize = 3_000;

/// After so many attempts a primary waits for something that does not come.
const TIMERS_MAX: u32 = 12;

/// The way to the state that is being worked on, printed if it breaks a rule.
#[derive(Default)]
struct Trail {
    /// Parent and action of each state.
    steps: Vec<(usize, Option<Action>)>,
    at: usize,
    quiet: Vec<Action>,
}

impl Drop for Trail {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let (mut at, mut way) = (self.at, Vec::new());
        while let Some((parent, Some(action))) = self.steps.get(at) {
            way.push(*action);
            at = *parent;
        }
        way.reverse();
        eprintln!(
            "PEERING_TRAIL: {way:?}, then in quiet {:?}",
            self.quiet.iter().take(60).collect::<Vec<_>>()
        );
    }
}

struct Explorer {
    trail: Trail,
    /// States from which a quiet run is known to end well.
    quiet: HashSet<u64, FixedState>,
}

fn hash(world: &World) -> u64 {
    FixedState::default().hash_one(world)
}

impl Explorer {
    /// Explores breadth first; gives the number of states, and whether those were all.
    fn explore(first: World) -> (usize, bool) {
        let limit = std::env::var("PEERING_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(STATES);
        let mut explorer = Explorer { trail: Trail::default(), quiet: HashSet::default() };
        let mut seen: HashSet<u64, FixedState> = HashSet::default();
        seen.insert(hash(&first));
        explorer.trail.steps.push((0, None));
        let mut queue = VecDeque::from([(first, 0)]);
        while let Some((world, at)) = queue.pop_front() {
            for action in world.actions() {
                explorer.trail.at = explorer.trail.steps.len();
                explorer.trail.steps.push((at, Some(action)));
                let mut next = world.clone();
                next.step(action);
                if !seen.insert(hash(&next)) {
                    explorer.trail.steps.pop();
                    continue;
                }
                explorer.run_quietly(next.clone());
                queue.push_back((next, explorer.trail.at));
            }
            if seen.len() >= limit {
                return (seen.len(), queue.is_empty());
            }
        }
        (seen.len(), true)
    }

    /// No more trouble: what is under way ends, and the PG serves clients.
    fn run_quietly(&mut self, mut world: World) {
        let mut on_the_way = Vec::new();
        self.trail.quiet.clear();
        world.budget = Budget { timers: 1, ..CALM };
        let mut timers = 0;
        for _ in 0..QUIET_STEPS_MAX {
            let state = hash(&world);
            if self.quiet.contains(&state) {
                self.quiet.extend(on_the_way);
                return;
            }
            on_the_way.push(state);
            let action = world.actions().first().copied();
            timers += u32::from(matches!(action, Some(Action::Timer(_))));
            let Some(action) = action.filter(|_| timers < TIMERS_MAX) else {
                world.check_quiet();
                self.quiet.extend(on_the_way);
                return;
            };
            self.trail.quiet.push(action);
            world.step(action);
            world.budget.timers = 1;
        }
        panic!("the PG never comes to rest");
    }
}

/// A cluster whose PG is active and has this many writes.
fn active(osds: u8, writes: u8) -> World {
    settled(World::new(osds, CALM), writes)
}

fn settled(mut world: World, writes: u8) -> World {
    for write in 0..=writes {
        world.budget = Budget { timers: 9, ..CALM };
        while let Some(action) = world.actions().first().copied() {
            world.step(action);
        }
        world.check_quiet();
        if write < writes {
            world.budget = Budget { writes: 1, ..CALM };
            world.step(Action::Write(0));
        }
    }
    world.with(CALM)
}

fn scenario(name: &str, first: World) {
    let (states, is_all) = Explorer::explore(first);
    eprintln!("{name}: {states} states{}", if is_all { ", all there are" } else { "" });
}

#[test]
fn messages_are_late_or_doubled_when_a_pg_begins() {
    scenario("begin", World::new(2, Budget { writes: 1, late: 1, duplicates: 1, timers: 2, ..CALM }));
}

#[test]
fn members_die_while_they_write() {
    scenario("die", active(2, 1).with(Budget { writes: 1, kills: 2, timers: 2, ..CALM }));
}

#[test]
fn messages_are_late_while_a_member_dies() {
    scenario(
        "late",
        active(2, 0).with(Budget { writes: 1, kills: 1, late: 1, duplicates: 1, timers: 1, ..CALM }),
    );
}

#[test]
fn orders_are_late_while_a_copy_is_repaired() {
    let mut world = active(2, 1);
    world.spoil(1);
    world.budget = Budget { timers: 9, ..CALM };
    while !world.is_activating() {
        let action = world.actions()[0];
        world.step(action);
    }
    scenario("repair", world.with(Budget { kills: 1, late: 1, duplicates: 1, timers: 1, ..CALM }));
}

#[test]
fn an_incomplete_copy_is_asked_to_lead() {
    let mut world = active(2, 1);
    world.spoil(0);
    scenario("lead", world.with(Budget { kills: 1, late: 1, timers: 1, ..CALM }));
}

#[test]
fn a_replica_fails_while_a_copy_moves() {
    let mut world = active(3, 1);
    world.budget.moves = 1;
    world.step(Action::Move([2, 0]));
    world.budget = Budget { timers: 9, ..CALM };
    while !matches!(world.actions()[0], Action::AskTemp(_)) {
        let action = world.actions()[0];
        world.step(action);
    }
    scenario("fails", world.with(Budget { failures: 1, kills: 1, timers: 1, ..CALM }));
}

#[test]
fn a_copy_moves_while_members_die() {
    scenario("move", active(3, 1).with(Budget { kills: 1, moves: 1, timers: 1, ..CALM }));
}

#[test]
fn a_copy_moves_back_and_forth() {
    scenario("back", active(3, 1).with(Budget { writes: 1, moves: 2, late: 1, timers: 1, ..CALM }));
}

#[test]
fn one_of_two_goes_on_alone() {
    let world = settled(World::of_pool(2, 2, 1, CALM), 1);
    scenario("alone", world.with(Budget { writes: 2, kills: 3, timers: 1, ..CALM }));
}

/// The monitor does not have the maps any more that an OSD missed.
#[test]
fn one_of_two_goes_on_alone_while_maps_are_missing() {
    let world = settled(World::of_pool(2, 2, 1, CALM), 1);
    scenario("gaps", world.with(Budget { writes: 1, kills: 3, timers: 1, gaps: 2, ..CALM }));
}

#[test]
fn a_copy_moves_while_maps_are_missing() {
    let world = settled(World::of_pool(3, 2, 1, CALM), 1);
    scenario("moves late", world.with(Budget { writes: 1, kills: 1, moves: 2, timers: 1, gaps: 2, ..CALM }));
}

#[test]
fn two_of_three_go_on() {
    let world = settled(World::of_pool(3, 3, 2, CALM), 1);
    scenario("two", world.with(Budget { writes: 2, kills: 3, timers: 1, ..CALM }));
}

#[test]
fn one_of_three_goes_on_while_a_copy_moves() {
    let world = settled(World::of_pool(3, 2, 1, CALM), 1);
    scenario("moves", world.with(Budget { writes: 1, kills: 2, moves: 1, late: 1, timers: 1, ..CALM }));
}

/// A primary gives up waiting for a push, begins anew and serves a write; then the push arrives.
#[test]
fn a_push_is_late_while_a_copy_recovers() {
    let mut world = settled(World::of_pool(2, 2, 1, CALM), 2);
    world.spoil(1);
    world.budget = Budget { timers: 9, ..CALM };
    while !world.is_recovering() {
        let action = world.actions()[0];
        world.step(action);
    }
    scenario("push", world.with(Budget { writes: 2, late: 1, timers: 1, ..CALM }));
}

/// All of a copy is compared while clients write, and the backfill is interrupted anywhere.
#[test]
fn a_backfill_is_interrupted_while_clients_write() {
    for (osds, size, min_size) in [(2, 2, 1), (3, 3, 2)] {
        let mut world = settled(World::of_pool(osds, size, min_size, CALM), 2);
        world.spoil(1);
        scenario("backfill", world.with(Budget { writes: 2, kills: 2, timers: 1, ..CALM }));
    }
}

/// The monitor drops the acting set that a primary asked for, and data is where CRUSH does not look.
#[test]
fn an_entry_is_dropped_while_a_copy_moves() {
    let world = settled(World::of_pool(4, 2, 1, CALM), 1);
    scenario("drop", world.with(Budget { writes: 1, kills: 1, moves: 1, drops: 2, timers: 1, ..CALM }));
}

/// CRUSH names others in the same map that says that one is up or down.
#[test]
fn one_map_brings_two_changes() {
    let world = settled(World::of_pool(3, 2, 1, CALM), 1);
    scenario("pairs", world.with(Budget { writes: 1, kills: 2, moves: 2, pairs: 2, timers: 1, ..CALM }));
}

/// OSDs come back without the copies that they had.
#[test]
fn stores_are_replaced() {
    for (osds, size, min_size) in [(2, 2, 1), (3, 2, 1), (3, 3, 2)] {
        let world = settled(World::of_pool(osds, size, min_size, CALM), 1);
        scenario("wipe", world.with(Budget { writes: 1, kills: 3, wipes: 2, timers: 1, ..CALM }));
    }
}

#[test]
fn stores_are_replaced_while_copies_move() {
    let world = settled(World::of_pool(3, 2, 1, CALM), 1);
    scenario(
        "wiped moves",
        world.with(Budget { writes: 1, kills: 2, wipes: 1, moves: 2, drops: 1, timers: 1, ..CALM }),
    );
}

/// Members of a PG that is being made die before it serves anybody.
#[test]
fn a_pg_is_made_while_members_die() {
    scenario(
        "made",
        World::of_pool(2, 2, 1, Budget { writes: 1, kills: 2, wipes: 1, late: 1, timers: 2, ..CALM }),
    );
}

/// Each half of a PG, followed by itself.
fn halves(name: &str, world: &World) {
    for half in [PARENT, CHILD] {
        scenario(name, world.clone().follow(half));
    }
}

#[test]
fn a_pg_splits_while_members_die() {
    for (osds, size, min_size) in [(2, 2, 1), (3, 3, 2)] {
        let world = settled(World::of_pool(osds, size, min_size, CALM), 2);
        halves("split", &world.with(Budget { writes: 2, kills: 3, splits: 1, timers: 1, ..CALM }));
    }
}

#[test]
fn messages_are_late_while_a_pg_splits() {
    let budget = Budget { writes: 1, kills: 1, splits: 1, late: 1, duplicates: 1, timers: 1, ..CALM };
    halves("split late", &active(2, 2).with(budget));
}

/// The acting set that a primary asked for names the parent. The child begins where CRUSH puts it.
#[test]
fn a_pg_splits_while_a_copy_moves() {
    let mut world = settled(World::of_pool(3, 2, 1, CALM), 2);
    let budget = Budget { writes: 1, kills: 1, moves: 1, splits: 1, timers: 1, ..CALM };
    halves("split moves", &world.clone().with(budget.clone()));
    world.budget = Budget { moves: 1, timers: 9, ..CALM };
    world.step(Action::Move([2, 1]));
    while !world.has_temp() {
        let action = world.actions()[0];
        world.step(action);
    }
    halves("split moved", &world.with(Budget { kills: 2, moves: 0, ..budget }));
}

/// The OSD that leads the child has no copy, and hears of those elsewhere.
#[test]
fn a_child_begins_where_nobody_has_it() {
    let world = settled(World::of_pool(4, 2, 1, CALM), 2).follow(CHILD);
    let budget = Budget { writes: 1, kills: 1, splits: 1, pairs: 1, timers: 1, ..CALM };
    scenario("split elsewhere", world.with(budget));
}

#[test]
fn a_pg_splits_while_a_copy_is_backfilled() {
    for (osds, size, min_size) in [(2, 2, 1), (3, 3, 2)] {
        let mut world = settled(World::of_pool(osds, size, min_size, CALM), 2);
        world.spoil(1);
        world.budget = Budget { timers: 9, ..CALM };
        while !world.is_recovering() {
            let action = world.actions()[0];
            world.step(action);
        }
        halves("split backfill", &world.with(Budget { writes: 1, kills: 1, splits: 1, timers: 1, ..CALM }));
    }
}

#[test]
fn a_pg_splits_while_maps_are_missing() {
    let world = settled(World::of_pool(2, 2, 1, CALM), 2);
    let budget = Budget { writes: 1, kills: 2, splits: 1, gaps: 2, timers: 1, ..CALM };
    halves("split gaps", &world.with(budget));
}

/// One that is no member any more has the newest write, and it has not split its copy yet when it is asked. The primary knows only that
/// it missed maps.
#[test]
fn a_child_is_asked_for_that_is_a_part_of_its_parent_yet() {
    let mut world = settled(World::of_pool(3, 2, 1, CALM), 3).follow(CHILD);
    world.budget.kills = 1;
    world.step(Action::Kill(0));
    world.run_without(0, |world| !world.is_serving(1));
    world.budget = Budget { writes: 1, kills: 1, splits: 1, pairs: 1, ..CALM };
    for action in [
        Action::Write(1),
        Action::Durable(1),
        Action::Kill(1),
        Action::SplitTo([0, 2]),
        Action::Start(1),
        Action::Boot(1),
    ] {
        world.step(action);
    }
    while world.actions().contains(&Action::SeeMap(2)) {
        world.step(Action::SeeMap(2));
    }
    scenario("split away", world.with(Budget { writes: 1, kills: 1, gaps: 1, timers: 1, ..CALM }));
}

/// One that was down over the split comes back, and the others are gone.
#[test]
fn an_osd_is_down_while_a_pg_splits() {
    for gaps in [0, 1] {
        let mut world = settled(World::of_pool(2, 2, 1, CALM), 2);
        world.budget.kills = 1;
        world.step(Action::Kill(1));
        world.step(Action::MarkDown(1));
        halves("split down", &world.with(Budget { writes: 2, kills: 2, splits: 1, gaps, timers: 1, ..CALM }));
    }
}

#[test]
fn a_pg_splits_that_was_never_active() {
    let budget = Budget { writes: 1, kills: 2, splits: 1, timers: 2, ..CALM };
    halves("split made", &World::of_pool(2, 2, 1, budget));
}

/// A primary is marked down, and its replicas serve without it: it reads nothing that they may have changed.
#[test]
fn a_primary_is_cut_off() {
    let mut world = settled(World::of_pool(3, 3, 2, CALM).with_leases(), 1);
    world.budget.cuts = 1;
    world.step(Action::Cut(0));
    world.run_without(0, |world| !world.waits_for_up_thru());
    scenario("cut", world.with(Budget { writes: 1, kills: 1, cuts: 1, timers: 1, ..CALM }));
}

/// The same while the PG splits, of which that primary does not hear, either.
#[test]
fn a_pg_splits_while_its_primary_is_cut_off() {
    for half in [PARENT, CHILD] {
        let mut world = settled(World::of_pool(3, 3, 2, CALM).with_leases(), 2).follow(half);
        world.budget = Budget { splits: 1, cuts: 1, ..CALM };
        world.step(Action::Split);
        world.step(Action::Cut(0));
        world.run_without(0, |world| !world.waits_for_up_thru());
        scenario("split cut", world.with(Budget { writes: 1, kills: 1, cuts: 1, timers: 1, ..CALM }));
    }
}

#[test]
fn stores_are_replaced_while_a_pg_splits() {
    let world = settled(World::of_pool(3, 2, 1, CALM), 2);
    let budget = Budget { writes: 1, kills: 2, wipes: 1, splits: 1, timers: 1, ..CALM };
    halves("split wipe", &world.with(budget));
}

/// An active PG with one write and a neighbour, in a pool of this size and `min_size`.
fn neighbours(osds: u8, size: u8, min_size: usize) -> World {
    settled(World::of_parts(osds, size, min_size, CALM, true), 1)
}

#[test]
fn a_pg_is_merged() {
    for (osds, size, min_size) in [(2, 2, 1), (3, 3, 2), (3, 2, 1)] {
        let world = neighbours(osds, size, min_size);
        let budget = Budget { writes: 1, kills: 2, merges: 2, timers: 1, ..CALM };
        scenario("merge", world.with(budget));
    }
}

/// Its members have begun the interval in which nobody is served.
#[test]
fn a_pg_is_about_to_be_merged() {
    for (osds, size, min_size) in [(2, 2, 1), (3, 3, 2)] {
        let mut world = neighbours(osds, size, min_size);
        world.budget = Budget { merges: 1, timers: 9, ..CALM };
        world.step(Action::AnnounceMerge);
        while !world.actions().contains(&Action::SayMergeable(0)) {
            let action = world.actions()[0];
            world.step(action);
        }
        let budget = Budget { writes: 1, kills: 1, merges: 2, timers: 1, ..CALM };
        scenario("merge ready", world.with(budget));
    }
}

#[test]
fn a_merge_is_given_up_and_announced_again() {
    let world = neighbours(2, 2, 1);
    scenario("merge twice", world.with(Budget { writes: 1, kills: 1, merges: 3, timers: 1, ..CALM }));
}

#[test]
fn a_pg_is_merged_while_others_are_to_have_it() {
    let world = neighbours(3, 2, 1);
    let budget = Budget { writes: 1, kills: 1, moves: 1, merges: 1, timers: 1, ..CALM };
    scenario("merge moved", world.with(budget));
}

#[test]
fn an_osd_is_down_while_a_pg_is_merged() {
    for gaps in [0, 1] {
        let mut world = neighbours(3, 3, 2);
        world.budget.kills = 1;
        world.step(Action::Kill(2));
        world.step(Action::MarkDown(2));
        world.run_without(2, |world| !world.is_serving(0));
        let budget = Budget { writes: 1, kills: 2, gaps, merges: 1, timers: 1, ..CALM };
        scenario("merge down", world.with(budget));
    }
}

#[test]
fn a_primary_is_cut_off_while_its_pg_is_merged() {
    let mut world = neighbours(3, 3, 2).with_leases();
    world.budget = Budget { merges: 1, cuts: 1, ..CALM };
    world.step(Action::AnnounceMerge);
    scenario("merge cut", world.with(Budget { writes: 1, kills: 1, cuts: 1, timers: 1, ..CALM }));
}

#[test]
fn stores_are_replaced_while_a_pg_is_merged() {
    let world = neighbours(3, 2, 1);
    let budget = Budget { writes: 1, kills: 2, wipes: 1, merges: 1, timers: 1, ..CALM };
    scenario("merge wipe", world.with(budget));
}
