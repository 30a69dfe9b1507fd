//! The decision of an attempt: which copies have to answer, which of them leads, and which serve with it.

use std::net::SocketAddr;

use carmine_peering::intervals::gap;
use carmine_peering::{
    Copy, Effect, Event, Level, Map, Member, Order, OsdState, Peering, Phase, Place, Reason, Recovery, Task,
    Then, Trouble,
};
use carmine_pgtypes::{Interval, PgHistory, PgInfo};
use carmine_types::{Epoch, Errno, Eversion, OsdId, errno};

const STARTED: Epoch = Epoch(3);
/// The epoch of the map in these tests.
const NOW: Epoch = Epoch(7);
const WAITS_UP_THRU: Phase = Phase::Peering(Reason::WaitsUpThru(NOW));

fn at(version: u64) -> Eversion {
    Eversion::new(STARTED.0, version)
}

fn ids(osds: &[u32]) -> Vec<OsdId> {
    osds.iter().map(|osd| OsdId(*osd)).collect()
}

fn up(up_thru: u32) -> OsdState {
    OsdState::Up { up_thru: Epoch(up_thru) }
}

fn down(up_thru: u32, lost_at: u32) -> OsdState {
    OsdState::Down { lost_at: Epoch(lost_at), up_thru: Epoch(up_thru) }
}

/// The map of a pool of two, with four OSDs that are up. Two of them are the PG's.
fn map(acting: &[u32], crush: &[u32], min_size: usize) -> Map {
    let addr = SocketAddr::from(([127, 0, 0, 1], 6800));
    let member = |osd| Member { osd, addr, nonce: 1, up_from: Epoch(1) };
    let members = ids(acting).into_iter().map(member).collect();
    let osds = [up(0); 4].into();
    let (acting, up) = (ids(acting).into(), ids(crush).into());
    Map { epoch: NOW, acting, members, up, osds, size: 2, min_size, ..Map::default() }
}

fn with_osds<const N: usize>(map: Map, osds: [OsdState; N]) -> Map {
    Map { osds: osds.into(), ..map }
}

/// The copy of the primary, which is osd.0.
fn own() -> PgInfo {
    PgInfo { last_update: at(309), last_epoch_started: STARTED, ..PgInfo::default() }
}

fn copy(started: Epoch, last_update: Eversion) -> Copy {
    let info = PgInfo { last_update, last_epoch_started: started, made: Epoch(1), ..PgInfo::default() };
    Copy { info, common: Some(last_update.min(at(309))), changed: Vec::new(), lease: None }
}

fn with(mut copy: Copy, change: impl FnOnce(&mut PgInfo)) -> Copy {
    change(&mut copy.info);
    copy
}

/// The answer of an OSD that has no copy.
fn no_copy() -> Copy {
    Copy { common: None, ..with(copy(Epoch(0), Eversion::default()), |info| info.made = NOW) }
}

/// An attempt of osd.0 to lead.
struct Lead {
    peering: Peering,
    own: PgInfo,
    /// In this order.
    asked: Vec<u32>,
    effects: Vec<Effect>,
}

impl Lead {
    fn begin(own: PgInfo, map: Map) -> Lead {
        let mut lead = Lead { peering: Peering::new(OsdId(0)), own, asked: Vec::new(), effects: Vec::new() };
        lead.on(Event::Map(map));
        lead.on(Event::Loaded);
        lead
    }

    /// All that are asked answer: those that are not listed have no copy.
    fn new(own: PgInfo, map: Map, copies: &[(u32, Copy)]) -> Lead {
        let mut lead = Lead::begin(own, map);
        lead.answer_all(copies);
        lead
    }

    fn answer_all(&mut self, copies: &[(u32, Copy)]) {
        let mut answered = 0;
        while let Some(osd) = self.asked.get(answered).copied() {
            let copy = copies.iter().find(|(from, _)| *from == osd);
            self.answer(osd, copy.map_or_else(no_copy, |(_, copy)| copy.clone()));
            answered += 1;
        }
    }

    fn answer(&mut self, osd: u32, copy: Copy) {
        let attempt = self.attempt();
        self.on(Event::Notified { attempt, from: OsdId(osd), copy: Ok(copy) });
    }

    fn attempt(&self) -> u64 {
        self.peering.attempt_id().attempt
    }

    fn on(&mut self, event: Event) -> Then {
        let attempt = self.attempt();
        let effects = self.peering.on(&self.own, event);
        if self.attempt() != attempt {
            self.asked.clear();
        }
        for effect in &effects.list {
            match effect {
                Effect::Query { to, .. } => self.asked.push(to.0),
                // The shell changes the info in memory when it submits the write.
                Effect::WriteInfo { info, .. } => self.own = info.clone(),
                _ => {}
            }
        }
        self.effects.extend(effects.list);
        effects.then
    }

    fn phase(&self) -> &Phase {
        self.peering.phase()
    }

    fn wanted(&self) -> Option<Vec<OsdId>> {
        self.peering.wanted_acting()
    }

    fn asks_for_up_thru(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::WantUpThru(_)))
    }

    fn wrote_info(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::WriteInfo { .. }))
    }

    fn serves(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Serve(_)))
    }

    /// The replicas, and whether they were activated as whole.
    fn activated(&self) -> Vec<(u32, bool)> {
        let activation = |effect: &Effect| match effect {
            Effect::Activate { to, is_whole, .. } => Some((to.0, *is_whole)),
            _ => None,
        };
        self.effects.iter().filter_map(activation).collect()
    }

    /// A replica marks its copy and gets what only the primary can give it before.
    fn repair(&mut self, osd: u32) -> Then {
        let (attempt, from) = (self.attempt(), OsdId(osd));
        let then = self.on(Event::Done { task: Task::Mark, attempt, from, result: Ok(()) });
        self.on(Event::Done { task: Task::Push, attempt, from, result: Ok(()) });
        then
    }

    /// The next map, by which the primary was up in its interval.
    fn next_map(&mut self, map: Map, epoch: u32) {
        let mut osds = map.osds.to_vec();
        osds[0] = up(NOW.0);
        self.on(Event::Map(Map { epoch: Epoch(epoch), osds: osds.into(), ..map }));
    }

    /// From the map that shows the primary's `up_thru` until it serves clients.
    fn serve(&mut self, map: Map) {
        self.next_map(map, NOW.0 + 1);
        let attempt = self.attempt();
        self.on(Event::InfoWritten { attempt });
        for (osd, _) in self.activated() {
            self.on(Event::Done { task: Task::Activate, attempt, from: OsdId(osd), result: Ok(()) });
        }
        assert!(self.peering.is_active() && self.serves(), "{:?}", self.phase());
    }
}

/// osd.0 leads, and osd.1 has this copy.
fn ask(own: PgInfo, copy: Copy) -> Lead {
    Lead::new(own, map(&[0, 1], &[0, 1], 1), &[(1, copy)])
}

/// The writes that only it has are kept. To take them back it would need the states before them, which may be nowhere any
/// more (`carmine sim --seed 539`: the block of the other copy had rotted).
#[test]
fn the_longest_log_of_an_interval_leads() {
    let longer = ask(own(), copy(STARTED, at(314)));
    assert_eq!(longer.wanted(), Some(ids(&[1, 0])));
    assert_eq!(*longer.phase(), Phase::Peering(Reason::WaitsForActing(ids(&[1, 0]))));
    for (last_update, what) in [(at(309), "as long"), (at(305), "shorter")] {
        assert_eq!(ask(own(), copy(STARTED, last_update)).wanted(), None, "{what}");
    }
}

#[test]
fn a_longer_log_leads_only_with_all_data_of_the_newest_interval() {
    let incomplete = with(copy(STARTED, at(314)), |info| info.incomplete = true);
    for (copy, what) in [(incomplete, "incomplete"), (copy(Epoch(2), at(314)), "of an earlier interval")] {
        let lead = ask(own(), copy);
        assert_eq!(lead.wanted(), None, "{what}");
        assert_eq!(*lead.phase(), Phase::Peering(Reason::Repairs(OsdId(1))), "{what}: it follows");
    }
    let older = PgInfo { last_update: at(314), last_epoch_started: Epoch(2), ..own() };
    assert_eq!(ask(older, copy(STARTED, at(309))).wanted(), Some(ids(&[1, 0])), "osd.1 was activated later");
    let as_long = PgInfo { last_epoch_started: Epoch(2), ..own() };
    assert_eq!(ask(as_long, copy(STARTED, at(309))).wanted(), None, "both end in the same entry");
}

#[test]
fn an_incomplete_primary_asks_for_a_complete_member() {
    let incomplete = || PgInfo { incomplete: true, ..own() };
    let peer = || copy(STARTED, at(309));
    assert_eq!(ask(incomplete(), peer()).wanted(), Some(ids(&[1])), "one is enough, this one is recovered");
    let both = map(&[0, 1], &[0, 1], 2);
    let lead = Lead::new(incomplete(), both, &[(1, peer())]);
    assert_eq!(lead.wanted(), Some(ids(&[1, 0])), "without this one there are too few");
    let three = Map { size: 3, ..map(&[0, 1, 2], &[0, 2, 1], 1) };
    let lead = Lead::new(incomplete(), three, &[(1, peer()), (2, peer())]);
    assert_eq!(lead.wanted(), Some(ids(&[2, 1])), "of equal copies that which CRUSH names first");
    for (copy, what) in [
        (with(peer(), |info| info.incomplete = true), "incomplete, too"),
        (copy(Epoch(2), at(305)), "it lacks what was written when the newest interval began"),
    ] {
        assert_eq!(*ask(incomplete(), copy).phase(), Phase::Incomplete(Reason::AllIncomplete), "{what}");
    }
}

/// osd.1 has no room to be repaired, and its copy has all that clients were told of: it leads without the writes that only the
/// others have.
#[test]
fn a_full_copy_leads_as_it_is() {
    let mut lead = ask(own(), copy(STARTED, at(305)));
    let may_lead = |effect: &Effect| matches!(effect, Effect::Repair { may_lead: true, .. });
    assert!(lead.effects.iter().any(may_lead), "{:?}", lead.effects);
    let (attempt, from) = (lead.attempt(), OsdId(1));
    lead.on(Event::Done { task: Task::Mark, attempt, from, result: Err(Trouble::Full) });
    assert_eq!(lead.wanted(), Some(ids(&[1, 0])));

    let full = PgInfo { last_update: at(305), ..own() };
    let mut follower = Peering::new(OsdId(1));
    _ = follower.on(&full, Event::Map(map(&[0, 1], &[0, 1], 1)));
    _ = follower.on(&full, Event::Loaded);
    let attempt = lead.peering.attempt_id();
    let mut ordered = |order| follower.on(&full, Event::Ordered { attempt, epoch: NOW, order }).then;
    assert!(matches!(ordered(Order::Query { acting: ids(&[0, 1]).into() }), Then::CarryOut { .. }));
    let repair = Order::Repair { has_room: false, complete_to: at(305), last_backfill: None };
    assert_eq!(ordered(repair), Then::Refuse(Errno(errno::ENOSPC)));
    let leads = Map { epoch: Epoch(8), ..map(&[1, 0], &[0, 1], 1) };
    _ = follower.on(&full, Event::Map(leads));
    let attempt = follower.attempt_id().attempt;
    let longer = Copy { common: Some(at(305)), ..copy(STARTED, at(309)) };
    _ = follower.on(&full, Event::Notified { attempt, from: OsdId(0), copy: Ok(longer) });
    assert_eq!(
        *follower.phase(),
        Phase::Peering(Reason::Repairs(OsdId(0))),
        "it does not give the lead back"
    );
}

/// The monitor hears of `up_thru` only from a primary that will serve: an interval that it does not lead counts for nobody.
#[test]
fn up_thru_is_asked_for_after_it_is_decided_who_leads() {
    let mut lead = Lead::begin(own(), map(&[0, 1], &[0, 1], 1));
    assert!(!lead.asks_for_up_thru(), "osd.1 has not answered");
    lead.answer(1, copy(STARTED, at(309)));
    assert!(lead.asks_for_up_thru());
    assert_eq!(*lead.phase(), WAITS_UP_THRU);
    assert!(!ask(own(), copy(STARTED, at(314))).asks_for_up_thru(), "osd.1 is to lead");
}

// Strays.

/// The history of osd.0, which knows that these may have served clients in the epochs 4 and 5.
fn after(acting: &[u32]) -> PgHistory {
    let past = vec![Interval { first: Epoch(4), last: Epoch(5), acting: ids(acting).into() }];
    PgHistory { epoch: NOW, same_interval_since: Epoch(6), past, ..PgHistory::default() }
}

fn own_after(acting: &[u32]) -> PgInfo {
    PgInfo { history: after(acting), ..own() }
}

#[test]
fn an_osd_that_served_before_is_asked_and_leads_though_it_is_no_member() {
    let mut lead = Lead::begin(own_after(&[2]), map(&[0, 1], &[0, 1], 1));
    assert_eq!(lead.asked, [1, 2]);
    lead.answer(1, copy(STARTED, at(309)));
    assert_eq!(*lead.phase(), Phase::Peering(Reason::AsksReplicas), "osd.2 may have more");
    lead.answer(2, copy(Epoch(4), at(311)));
    assert_eq!(
        lead.wanted(),
        Some(ids(&[2, 0])),
        "and one that CRUSH names, as far as the pool's size allows"
    );
}

#[test]
fn a_stray_that_tells_of_its_copy_is_asked_once() {
    let incomplete = PgInfo { incomplete: true, ..own() };
    let mut lead = Lead::new(incomplete, map(&[0, 1], &[0, 1], 1), &[]);
    assert_eq!(*lead.phase(), Phase::Incomplete(Reason::AllIncomplete));
    lead.on(Event::StrayFound(OsdId(3)));
    assert_eq!(lead.asked, [1, 3]);
    let attempt = lead.attempt();
    lead.on(Event::StrayFound(OsdId(3)));
    lead.on(Event::StrayFound(OsdId(1)));
    assert_eq!(lead.attempt(), attempt, "it is asked already");
    lead.answer_all(&[(3, copy(STARTED, at(309)))]);
    assert_eq!(lead.wanted(), Some(ids(&[3, 1])), "osd.3 will see what osd.1 lacks");
}

#[test]
fn a_stray_does_not_disturb_an_active_primary() {
    let map = map(&[0, 1], &[0, 1], 1);
    let mut lead = Lead::new(own(), map.clone(), &[(1, copy(STARTED, at(309)))]);
    lead.serve(map);
    lead.on(Event::StrayFound(OsdId(3)));
    assert!(lead.peering.is_active());
}

#[test]
fn a_stray_serves_while_a_member_lacks_everything() {
    let lead = Lead::new(own_after(&[0, 2]), map(&[0, 1], &[0, 1], 2), &[(2, copy(STARTED, at(309)))]);
    assert_eq!(lead.wanted(), Some(ids(&[0, 2])));
    let lead = Lead::new(own_after(&[0, 2]), map(&[0, 1], &[0, 1], 2), &[]);
    assert_eq!(lead.wanted(), None, "nobody has a copy: the members get one before clients are served");
    let lead = Lead::new(own_after(&[0, 2]), map(&[0, 3], &[0, 1], 2), &[]);
    assert_eq!(lead.wanted(), Some(ids(&[0, 1])), "of those that lack all the ones that CRUSH names");
}

// Copies that are gone.

#[test]
fn a_copy_that_was_made_later_is_no_witness() {
    let ask = |copy| Lead::new(own_after(&[2]), map(&[0, 1], &[0, 1], 1), &[(2, copy)]);
    let forgotten = Phase::Incomplete(Reason::Forgotten(ids(&[2])));
    let empty = |made| with(no_copy(), |info| info.made = Epoch(made));
    assert_eq!(*ask(empty(5)).phase(), forgotten, "its store is another one than in the interval");
    assert!(!ask(empty(5)).asks_for_up_thru());
    for (copy, what) in [
        (empty(4), "it was there, and nobody activated it"),
        (with(empty(4), |info| info.incomplete = true), "nor when it was to be repaired"),
        (with(copy(STARTED, at(309)), |info| info.made = Epoch(5)), "it has been activated since"),
    ] {
        assert_ne!(*ask(copy).phase(), forgotten, "{what}");
    }
    let one_is_left =
        Lead::new(own_after(&[2, 3]), map(&[0, 1], &[0, 1], 1), &[(2, empty(5)), (3, empty(4))]);
    assert_ne!(*one_is_left.phase(), forgotten, "osd.3 has all that was written");
    let newer = PgInfo { last_epoch_started: Epoch(6), ..own_after(&[2]) };
    let lead = Lead::new(newer, map(&[0, 1], &[0, 1], 1), &[(2, empty(5))]);
    assert_ne!(*lead.phase(), forgotten, "this copy was activated after the interval");
}

#[test]
fn what_a_lost_osd_had_counts_as_found() {
    let lead = |osd_2| {
        let map = with_osds(map(&[0, 1], &[0, 1], 1), [up(0), up(0), osd_2]);
        Lead::new(own_after(&[2]), map, &[(1, copy(STARTED, at(309)))])
    };
    let blocked = Phase::Down(Reason::BlockedBy(ids(&[2])));
    assert_eq!(*lead(down(4, 0)).phase(), blocked);
    assert_eq!(
        *lead(down(4, 5)).phase(),
        blocked,
        "what it had before the end of the interval is given up only"
    );
    assert_eq!(*lead(down(4, 6)).phase(), WAITS_UP_THRU);
    assert_eq!(*lead(OsdState::Gone).phase(), WAITS_UP_THRU, "it was purged");
}

/// An operator who stops the OSD and gives it up lets the PG go on without what it forgot.
#[test]
fn an_osd_that_forgot_is_given_up_like_one_that_is_down() {
    let map = map(&[0, 1], &[0, 1], 1);
    let mut lead = Lead::new(own_after(&[2]), map.clone(), &[(1, copy(STARTED, at(309)))]);
    assert_eq!(*lead.phase(), Phase::Incomplete(Reason::Forgotten(ids(&[2]))));
    lead.on(Event::Map(Map { epoch: Epoch(8), ..with_osds(map.clone(), [up(0), up(0), down(4, 0)]) }));
    lead.answer_all(&[(1, copy(STARTED, at(309)))]);
    assert_eq!(*lead.phase(), Phase::Down(Reason::BlockedBy(ids(&[2]))));
    lead.on(Event::Map(Map { epoch: Epoch(9), ..with_osds(map, [up(0), up(0), down(4, 8)]) }));
    lead.answer_all(&[(1, copy(STARTED, at(309)))]);
    assert_eq!(*lead.phase(), WAITS_UP_THRU);
}

#[test]
fn too_few_members_are_peered_after_the_prior_set_was_asked() {
    let alone = map(&[0], &[0], 2);
    let mut lead = Lead::begin(own_after(&[0, 2]), alone.clone());
    assert_eq!((lead.phase(), &lead.asked[..]), (&Phase::Peering(Reason::AsksReplicas), &[2][..]));
    lead.answer_all(&[]);
    assert_eq!(*lead.phase(), Phase::Peered(Reason::TooFew { found: 1, min_size: 2 }));
    assert!(!lead.asks_for_up_thru(), "the interval serves nobody");
    let lead = Lead::new(own_after(&[0, 2]), alone.clone(), &[(2, copy(STARTED, at(309)))]);
    assert_eq!(lead.wanted(), Some(ids(&[0, 2])), "with a stray's copy there are enough");
    let lead = Lead::new(own_after(&[2]), with_osds(alone, [up(0), up(0), down(4, 0)]), &[]);
    assert_eq!(*lead.phase(), Phase::Down(Reason::BlockedBy(ids(&[2]))), "that comes first");
}

// Maps that are gone.

/// osd.0, whose copy is as good as osd.1's, saw the map of epoch 3 last, and the monitor does not have the next ones any more.
fn lead_after_a_gap(history: PgHistory, osds: [OsdState; 3], copies: &[(u32, Copy)]) -> Lead {
    let seen = PgHistory { epoch: Epoch(3), same_interval_since: Epoch(3), ..PgHistory::default() };
    let peer = with(copy(STARTED, at(309)), |info| info.history = history);
    let copies: Vec<_> = [(1, peer)].into_iter().chain(copies.iter().cloned()).collect();
    let map = with_osds(map(&[0, 1], &[0, 1], 1), osds);
    Lead::new(PgInfo { history: seen, ..own() }, map, &copies)
}

#[test]
fn a_member_that_saw_all_maps_tells_who_served_meanwhile() {
    let lead = |acting: &[u32], osd_2| {
        let has_more = (2, copy(Epoch(4), at(311)));
        lead_after_a_gap(after(acting), [up(0), up(0), osd_2], &[has_more])
    };
    // Though osd.2 may have led, by its up_thru.
    let told = lead(&[0, 1], down(4, 0));
    assert_eq!((told.phase(), told.peering.intervals().past()), (&WAITS_UP_THRU, &after(&[0, 1]).past[..]));
    assert_eq!(told.peering.intervals().same_interval_since(), Epoch(6));
    let waits = lead(&[2], down(2, 0));
    assert_eq!(*waits.phase(), Phase::Down(Reason::BlockedBy(ids(&[2]))), "osd.2 served alone");
    let asks = lead(&[2], up(2));
    assert_eq!((&asks.asked[..], asks.wanted()), (&[1, 2][..], Some(ids(&[2, 0]))), "it is asked then");
}

/// A primary serves clients only after the map says that it was up in its interval: of the epochs that nobody knows each OSD that
/// may have led has to answer.
#[test]
fn if_nobody_saw_all_maps_all_that_may_have_led_meanwhile_must_answer() {
    let lead = |osd_2| lead_after_a_gap(after(&[]), [up(0), up(0), osd_2], &[]);
    let blocked = Phase::Down(Reason::BlockedBy(ids(&[2])));
    assert_eq!(*lead(down(3, 0)).phase(), blocked);
    let says = |lead: &Lead| {
        let gap = Effect::Log(Level::Error, Reason::Gap(Epoch(3), Epoch(6)));
        lead.effects.iter().filter(|effect| **effect == gap).count()
    };
    let mut waits = lead(down(3, 0));
    waits.on(Event::Timer { attempt: waits.attempt() });
    waits.answer_all(&[]);
    assert_eq!((says(&waits), says(&lead(up(3)))), (1, 0), "it is said once, where it matters");
    assert_eq!(*lead(down(3, 6)).phase(), blocked, "it was given up before the end");
    for (osd_2, asked, what) in [
        (down(2, 0), &[1][..], "it has not led then"),
        (down(3, 7), &[1], "it was given up"),
        (up(2), &[1], "it has not led then"),
        (up(3), &[1, 2], "it says that it has nothing"),
    ] {
        let lead = lead(osd_2);
        assert_eq!((lead.phase(), &lead.asked[..]), (&WAITS_UP_THRU, asked), "{what}");
    }
    let gap = gap(lead(up(2)).peering.intervals().past(), STARTED);
    assert_eq!(gap, Some((Epoch(3), Epoch(6))), "who served is still not known");
}

/// What was written before a copy was activated is in it, whoever served.
#[test]
fn a_gap_before_the_newest_activation_does_not_matter() {
    let peer = with(copy(STARTED, at(309)), |info| info.last_epoch_started = Epoch(7));
    let seen = PgHistory { epoch: Epoch(3), same_interval_since: Epoch(3), ..PgHistory::default() };
    let map = with_osds(map(&[0, 1], &[0, 1], 1), [up(0), up(0), down(4, 0)]);
    let lead = Lead::new(PgInfo { history: seen, ..own() }, map, &[(1, peer)]);
    assert_eq!(*lead.phase(), WAITS_UP_THRU);
}

// New copies.

fn new_copy() -> PgInfo {
    PgInfo { made: NOW, ..PgInfo::default() }
}

#[test]
fn a_new_copy_does_not_lead_before_it_is_told_of_the_past() {
    let map = map(&[0, 1], &[0, 1], 1);
    let mut lead = Lead::new(new_copy(), map.clone(), &[]);
    assert_eq!(*lead.phase(), Phase::Peering(Reason::WaitsForHistory));
    assert!(!lead.asks_for_up_thru());
    lead.on(Event::Timer { attempt: lead.attempt() });
    lead.answer_all(&[]);
    assert_eq!(*lead.phase(), Phase::Peering(Reason::WaitsForHistory));
    let history = PgHistory {
        epoch: NOW,
        same_interval_since: NOW,
        last_epoch_clean: Epoch(1),
        ..PgHistory::default()
    };
    lead.on(Event::Created(history.clone()));
    // Both logs are empty.
    lead.answer_all(&[(1, Copy { common: Some(Eversion::default()), ..no_copy() })]);
    assert_eq!(*lead.phase(), WAITS_UP_THRU, "the monitor says that nobody served before");
    let served = PgHistory { past: after(&[2]).past, ..history };
    let mut lead = Lead::new(new_copy(), with_osds(map, [up(0), up(0), down(4, 0)]), &[]);
    lead.on(Event::Created(served));
    lead.answer_all(&[]);
    assert_eq!(*lead.phase(), Phase::Down(Reason::BlockedBy(ids(&[2]))), "osd.2 served meanwhile");
}

/// The OSD that CRUSH now names leads a pool of size one at once: nobody has told it where the PG was.
#[test]
fn a_new_copy_in_memory_asks_all_osds_before_it_begins_anew() {
    let map = Map { size: 1, is_volatile: true, ..map(&[0], &[0], 1) };
    let forgotten = Lead::new(new_copy(), map.clone(), &[]);
    assert_eq!(forgotten.asked, [1, 2, 3]);
    assert_eq!(*forgotten.phase(), WAITS_UP_THRU, "nobody remembers the PG");
    let moved = Lead::new(
        new_copy(),
        map.clone(),
        &[(2, with(copy(STARTED, at(309)), |info| info.history = after(&[2])))],
    );
    assert_eq!(moved.wanted(), Some(ids(&[2])));
    let mut lead = Lead::begin(new_copy(), with_osds(map, [up(0), up(0), down(4, 0), OsdState::Gone]));
    assert_eq!(lead.asked, [1]);
    lead.on(Event::Notified { attempt: lead.attempt(), from: OsdId(1), copy: Err(Trouble::OtherMap) });
    assert_eq!(*lead.phase(), Phase::Peering(Reason::OtherMap(OsdId(1))));
}

#[test]
fn a_new_copy_learns_the_past_from_one_that_was_activated() {
    let map = with_osds(map(&[0, 1], &[0, 1], 1), [up(0), up(0), down(4, 0)]);
    let lead = |history| {
        let peer = with(copy(STARTED, at(309)), |info| info.history = history);
        Lead::new(new_copy(), map.clone(), &[(1, peer)])
    };
    assert_eq!(lead(after(&[1])).wanted(), Some(ids(&[1, 0])));
    assert_eq!(*lead(after(&[2])).phase(), Phase::Down(Reason::BlockedBy(ids(&[2]))));
    // osd.1 saw the map of epoch 4 last, and this copy that of epoch 7 first.
    let old = PgHistory { epoch: Epoch(4), same_interval_since: Epoch(3), ..PgHistory::default() };
    let gap = lead(old);
    assert_eq!(gap.wanted(), Some(ids(&[1, 0])), "osd.2 has not led since epoch 5");
    let [unknown] = gap.peering.intervals().past() else { panic!("{:?}", gap.peering.intervals()) };
    assert_eq!((unknown.first, unknown.last, unknown.acting.len()), (Epoch(5), Epoch(6), 0));
}

/// It is no longer a new PG that the monitor makes.
#[test]
fn a_copy_that_knows_the_past_is_not_made_again() {
    let mut lead = Lead::new(own_after(&[2]), with_osds(map(&[0], &[0], 1), [up(0), up(0), down(4, 0)]), &[]);
    let blocked = Phase::Down(Reason::BlockedBy(ids(&[2])));
    assert_eq!(*lead.phase(), blocked);
    let history = PgHistory { epoch: NOW, last_epoch_clean: Epoch(1), ..PgHistory::default() };
    lead.on(Event::Created(history));
    assert_eq!(*lead.phase(), blocked);
}

// Acting sets that the primary asked for.

/// In `pg_temp`: CRUSH names osd.2 in place of osd.1, and osd.2 has nothing.
fn backfills(min_size: usize) -> (Map, Lead) {
    let map = map(&[0, 1], &[0, 2], min_size);
    let lead = Lead::new(own(), map.clone(), &[(1, copy(STARTED, at(309)))]);
    (map, lead)
}

#[test]
fn an_osd_that_crush_names_is_recovered_beside_clients_before_it_is_a_member() {
    let (map, mut lead) = backfills(2);
    assert_eq!((lead.wanted(), &lead.asked[..]), (None, &[1, 2][..]));
    let repairs = |effect: &Effect| match effect {
        Effect::Repair { to, keeps_place, may_lead, .. } => Some((to.0, *keeps_place, *may_lead)),
        _ => None,
    };
    assert_eq!(lead.effects.iter().filter_map(repairs).collect::<Vec<_>>(), [(2, true, false)]);
    assert_eq!(lead.repair(2), Then::PushUndone, "the rest comes beside clients");
    lead.serve(map);
    assert_eq!(lead.activated(), [(1, true), (2, false)]);
    let recovers = Effect::Recover { to: OsdId(2), place: Place::default() };
    assert!(lead.effects.contains(&recovers), "{:?}", lead.effects);
    assert!(lead.effects.contains(&Effect::Serve(ids(&[1, 2]))));
    assert_eq!((lead.wanted(), lead.peering.is_clean()), (None, false), "osd.2 lacks objects");
}

#[test]
fn the_primary_asks_for_what_crush_names_when_all_are_whole() {
    let (map, mut lead) = backfills(2);
    lead.repair(2);
    lead.serve(map);
    let attempt = lead.attempt();
    lead.on(Event::Done { task: Task::Recover, attempt, from: OsdId(2), result: Ok(()) });
    assert_eq!(lead.wanted(), Some(ids(&[0, 2])));
    assert_eq!(lead.peering.state(Recovery::Idle), "active+clean+remapped");
    // Now they serve: nothing is asked for any more.
    let settled = self::map(&[0, 2], &[0, 2], 2);
    lead.on(Event::Map(Map { epoch: Epoch(9), ..settled }));
    lead.answer_all(&[(2, copy(NOW, at(309)))]);
    assert_eq!((lead.wanted(), lead.phase()), (None, &Phase::Peering(Reason::WaitsUpThru(Epoch(9)))));
}

#[test]
fn another_serves_as_long_as_crush_names_too_few() {
    let map = map(&[0, 1], &[0], 2);
    let mut lead = Lead::new(own(), map.clone(), &[(1, copy(STARTED, at(309)))]);
    lead.serve(map);
    assert_eq!((lead.wanted(), lead.peering.is_clean()), (None, true));
    assert_eq!(lead.peering.state(Recovery::Idle), "active+clean+remapped");
}

/// Only members acknowledge what clients are told of by the rules of past intervals.
#[test]
fn an_osd_that_crush_names_does_not_count_for_min_size() {
    let map = map(&[0, 1], &[0, 2], 2);
    // Equal to the primary's, by an entry that both logs have forgotten; osd.1 lacks a few.
    let equal = Copy { common: None, ..copy(STARTED, at(309)) };
    let mut lead = Lead::new(own(), map.clone(), &[(1, copy(STARTED, at(305))), (2, equal)]);
    assert_eq!(lead.wanted(), None);
    assert_eq!(lead.repair(1), Then::Push, "osd.1 gets all before clients are served");
    lead.serve(map);
    assert_eq!(lead.activated(), [(1, true), (2, true)]);
    assert!(!lead.peering.recovers());
}

/// A map that tells of other OSDs wakes the attempt up; the primary's start is not durable by that.
#[test]
fn a_lone_primary_does_not_serve_before_its_start_is_durable() {
    let map = map(&[0], &[0], 1);
    let mut lead = Lead::new(own(), map.clone(), &[]);
    assert_eq!(*lead.phase(), WAITS_UP_THRU);
    lead.next_map(map.clone(), 8);
    assert!(lead.wrote_info());
    let attempt = lead.attempt();
    for epoch in 9..12 {
        lead.next_map(map.clone(), epoch);
        assert!(
            !lead.serves() && !lead.peering.is_active(),
            "the store has not written it, at epoch {epoch}"
        );
    }
    assert_eq!(lead.attempt(), attempt, "the attempt goes on");
    lead.on(Event::InfoWritten { attempt });
    assert!(lead.serves() && lead.peering.is_active());
}

/// Copies that are made for OSDs that are no members are more than the pool asks for.
#[test]
fn a_pg_is_degraded_by_what_its_members_lack() {
    for (acting, up, state) in [
        (&[0, 1][..], [0, 2], "active+remapped+backfilling"),
        (&[0], [2, 3], "active+undersized+degraded+remapped+backfilling"),
    ] {
        let map = map(acting, &up, 1);
        let mut lead = Lead::new(own(), map.clone(), &[(1, copy(STARTED, at(309)))]);
        up.iter().filter(|osd| **osd > 1).for_each(|osd| drop(lead.repair(*osd)));
        lead.serve(map);
        assert_eq!(lead.peering.state(Recovery::Backfilling), state);
    }
}

/// An entry with CRUSH's OSDs in another order would stay for ever, and the PG remapped.
#[test]
fn an_entry_that_differs_by_its_order_is_ended() {
    let map = Map { size: 3, ..map(&[0, 2, 1], &[0, 1, 2], 1) };
    let copies = [1, 2].map(|osd| (osd, copy(STARTED, at(309))));
    let mut lead = Lead::new(own(), map.clone(), &copies);
    assert_eq!(*lead.phase(), WAITS_UP_THRU, "it is good enough to serve");
    lead.serve(map);
    assert_eq!(lead.wanted(), Some(ids(&[0, 1, 2])));
}

/// A query came between the activation of the other copy and its end: what the primary of that time knew is not known to it.
#[test]
fn a_new_copy_learns_from_one_that_was_never_seen_clean() {
    let history = PgHistory { last_epoch_clean: Epoch(0), ..after(&[1]) };
    let told = with(copy(STARTED, Eversion::default()), |info| info.history = history);
    let map = map(&[0, 1], &[0, 1], 1);
    let mut lead = Lead::new(new_copy(), map.clone(), &[(1, told)]);
    assert_eq!(*lead.phase(), WAITS_UP_THRU);
    lead.serve(map);
    assert!(lead.serves());
}
