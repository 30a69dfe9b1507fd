//! Changes of the map that begin an interval, and what an OSD remembers of those before.

use std::net::SocketAddr;

use carmine_peering::{
    AttemptId, Effect, Event, Map, Member, Order, OsdState, Peering, Phase, Reason, Recovery, Then,
};
use carmine_pgtypes::{Interval, OsdSet, PgHistory, PgInfo};
use carmine_types::{Epoch, Errno, ObjectId, OsdId, errno};

fn map(epoch: u32, size: usize, min_size: usize) -> Map {
    let addr = SocketAddr::from(([127, 0, 0, 1], 6800));
    let member = |osd| Member { osd: OsdId(osd), addr, nonce: 1, up_from: Epoch(1) };
    let members = [0, 1].map(member).to_vec();
    let (acting, up) = ([0, 1].map(OsdId).into(), [0, 1].map(OsdId).into());
    Map { epoch: Epoch(epoch), acting, members, up, size, min_size, ..Map::default() }
}

/// An attempt that decided by the old min_size that one complete copy is enough must not serve under the new one.
/// (`carmine sim --seed 40`: clients were to be served beside a recovery with too few complete copies.)
#[test]
fn another_size_or_min_size_is_another_interval() {
    let mut peering = Peering::new(OsdId(0));
    let mut interval_after = |map| {
        _ = peering.on(&PgInfo::default(), Event::Map(map));
        peering.attempt_id().interval.0
    };
    assert_eq!(interval_after(map(5, 2, 1)), 5);
    assert_eq!(interval_after(map(6, 2, 1)), 5, "nothing changed");
    assert_eq!(interval_after(map(7, 2, 2)), 7, "min_size");
    assert_eq!(interval_after(map(8, 3, 2)), 8, "size");
    assert_eq!(interval_after(map(9, 3, 2)), 8);
    let other_up = |epoch| Map { up: [0, 2].map(OsdId).into(), ..map(epoch, 3, 2) };
    assert_eq!(interval_after(other_up(10)), 10, "CRUSH names another OSD, which is to be recovered");
    assert_eq!(interval_after(other_up(11)), 10);
}

/// The features of an OSD change with its boot, but a monitor may say so later.
#[test]
fn a_pg_with_an_osd_of_another_kind_serves_nobody_until_it_has_none() {
    let (mut peering, own) = (Peering::new(OsdId(0)), PgInfo::default());
    let mixed = |epoch| Map { classic: vec![OsdId(1)], ..map(epoch, 2, 1) };
    _ = peering.on(&own, Event::Map(map(5, 2, 1)));
    _ = peering.on(&own, Event::Loaded);
    assert!(matches!(peering.phase(), Phase::Peering(_)));
    _ = peering.on(&own, Event::Map(mixed(6)));
    assert_eq!(*peering.phase(), Phase::Down(Reason::MixedKinds(vec![OsdId(1)])));
    let fx = peering.on(&own, Event::Map(mixed(7)));
    assert!(!fx.list.iter().any(|effect| matches!(effect, Effect::Query { .. })), "{:?}", fx.list);
    _ = peering.on(&own, Event::Map(map(8, 2, 1)));
    assert!(matches!(peering.phase(), Phase::Peering(_)));
    // A replica in such a PG answers no primary.
    let (mut replica, acting) = (Peering::new(OsdId(1)), [0, 1].map(OsdId).into());
    _ = replica.on(&own, Event::Map(Map { classic: vec![OsdId(0)], ..map(5, 2, 1) }));
    _ = replica.on(&own, Event::Loaded);
    let attempt = AttemptId { interval: Epoch(5), attempt: 1 };
    let query = Event::Ordered { attempt, epoch: Epoch(5), order: Order::Query { acting } };
    assert_eq!(replica.on(&own, query).then, Then::Refuse(Errno(errno::EAGAIN)));
}

/// One with both kinds has served nobody; one with classic OSDs only may have, and they have to answer.
#[test]
fn intervals_of_both_kinds_are_no_past() {
    let up = [OsdState::Up { up_thru: Epoch(20) }; 4];
    let interval = |epoch, acting: [u32; 2], classic: &[u32]| {
        let addr = SocketAddr::from(([127, 0, 0, 1], 6800));
        let member = |osd| Member { osd: OsdId(osd), addr, nonce: 1, up_from: Epoch(1) };
        let members = acting.map(member).to_vec();
        let classic = classic.iter().copied().map(OsdId).collect();
        let acting: OsdSet = acting.map(OsdId).into();
        let up_set = acting.clone();
        Map {
            epoch: Epoch(epoch),
            acting,
            members,
            up: up_set,
            osds: up.into(),
            classic,
            size: 2,
            min_size: 1,
            ..Map::default()
        }
    };
    let own = PgInfo::default();
    let past = |before: Map| {
        let mut peering = Peering::new(OsdId(0));
        _ = peering.on(&own, Event::Map(before));
        _ = peering.on(&own, Event::Loaded);
        _ = peering.on(&own, Event::Map(interval(6, [0, 1], &[])));
        peering.intervals().past().len()
    };
    assert_eq!(past(interval(5, [0, 2], &[2])), 0);
    assert_eq!(past(interval(5, [2, 0], &[2])), 0);
    assert_eq!(past(interval(5, [2, 3], &[2, 3])), 1);
    assert_eq!(past(interval(5, [1, 0], &[])), 1);
}

#[test]
fn an_osd_that_crush_names_follows_the_primary_before_it_is_a_member() {
    let attempt = AttemptId { interval: Epoch(5), attempt: 1 };
    for (up, before, after) in [
        ([0, 2], Phase::Replica { active: false }, Phase::Replica { active: true }),
        ([0, 1], Phase::Stray, Phase::Stray),
    ] {
        let (mut peering, mut own) = (Peering::new(OsdId(2)), PgInfo::default());
        _ = peering.on(&own, Event::Map(Map { up: up.map(OsdId).into(), ..map(5, 2, 1) }));
        _ = peering.on(&own, Event::Loaded);
        assert_eq!(*peering.phase(), before);
        let mut carried_out = |own: &PgInfo, order| {
            let activates = matches!(order, Order::Activate { .. });
            match peering.on(own, Event::Ordered { attempt, epoch: Epoch(5), order }).then {
                Then::CarryOut { generation, .. } => {
                    peering.on(own, Event::CarriedOut { generation, activates }).then == Then::Answer
                }
                _ => false,
            }
        };
        let acting = [0, 1].map(OsdId).into();
        assert!(carried_out(&own, Order::Query { acting }), "both say what they have");
        own.last_epoch_started = Epoch(5);
        let is_served = before != Phase::Stray;
        assert_eq!(carried_out(&own, Order::Activate { last_epoch_started: Epoch(5) }), is_served);
        assert_eq!(*peering.phase(), after);
    }
}

/// The copy of osd.0, which was down while osd.1 served clients alone.
fn was_away() -> PgInfo {
    let past = vec![Interval { first: Epoch(4), last: Epoch(5), acting: [OsdId(1)].into() }];
    let history =
        PgHistory { epoch: Epoch(7), same_interval_since: Epoch(6), last_epoch_clean: Epoch(3), past };
    PgInfo { last_epoch_started: Epoch(3), history, ..PgInfo::default() }
}

fn alone(epoch: u32, lost_at: u32) -> Map {
    let mut map = map(epoch, 2, 1);
    map.members.truncate(1);
    (map.acting, map.up) = ([OsdId(0)].into(), [OsdId(0)].into());
    let (up, down) = (Epoch(7), Epoch(4));
    map.osds =
        [OsdState::Up { up_thru: up }, OsdState::Down { lost_at: Epoch(lost_at), up_thru: down }].into();
    map
}

#[test]
fn a_primary_waits_for_an_osd_that_may_have_served_without_it() {
    let own = was_away();
    let mut peering = Peering::new(OsdId(0));
    _ = peering.on(&own, Event::Map(alone(7, 0)));
    _ = peering.on(&own, Event::Loaded);
    assert_eq!(*peering.phase(), Phase::Down(Reason::BlockedBy(vec![OsdId(1)])));
    assert_eq!(peering.state(Default::default()), "down");
    _ = peering.on(&own, Event::Map(alone(8, 5)));
    assert!(matches!(peering.phase(), Phase::Down(_)), "what it had before its end is given up only");
    _ = peering.on(&own, Event::Map(alone(9, 8)));
    assert!(matches!(peering.phase(), Phase::Peering(_)), "the other one was given up");
}

#[test]
fn a_primary_need_not_wait_for_writes_of_which_its_copy_has_seen_more() {
    let own = PgInfo { last_epoch_started: Epoch(6), ..was_away() };
    let mut peering = Peering::new(OsdId(0));
    _ = peering.on(&own, Event::Map(alone(7, 0)));
    _ = peering.on(&own, Event::Loaded);
    assert!(matches!(peering.phase(), Phase::Peering(_)));
}

#[test]
fn a_member_writes_down_intervals_at_once_and_epochs_now_and_then() {
    let mut peering = Peering::new(OsdId(0));
    let mut own = PgInfo::default();
    assert_eq!(peering.unwritten(&own), None, "it is not loaded");
    _ = peering.on(&own, Event::Map(map(5, 2, 1)));
    _ = peering.on(&own, Event::Loaded);
    let history = peering.unwritten(&own).expect("an interval began");
    assert_eq!((history.epoch, history.same_interval_since), (Epoch(5), Epoch(5)));
    own.history = history;
    for epoch in 6..45 {
        _ = peering.on(&own, Event::Map(map(epoch, 2, 1)));
        assert_eq!(peering.unwritten(&own), None, "a map of the same interval");
    }
    _ = peering.on(&own, Event::Map(map(45, 2, 1)));
    assert_eq!(peering.unwritten(&own).map(|history| history.epoch), Some(Epoch(45)));
    let (acting, up, members) = ([OsdId(1)].into(), [OsdId(1)].into(), map(46, 2, 1).members[1..].to_vec());
    let elsewhere = Map { acting, members, up, ..map(46, 2, 1) };
    _ = peering.on(&own, Event::Map(elsewhere));
    assert_eq!(peering.unwritten(&own), None, "it is no member");
}

/// Those that served before may have what is unfound: they are remembered until it is found.
#[test]
fn the_past_is_not_forgotten_while_an_object_is_unfound() {
    let unfound = vec![ObjectId::head(1, b"", b"", b"a")];
    let mut own = PgInfo { last_epoch_started: Epoch(6), unfound, ..was_away() };
    let mut peering = Peering::new(OsdId(0));
    _ = peering.on(&own, Event::Map(Map { size: 1, ..alone(7, 0) }));
    let effects = peering.on(&own, Event::Loaded);
    let written = effects.list.into_iter().find_map(|effect| match effect {
        Effect::WriteInfo { attempt, info } => Some((attempt, info)),
        _ => None,
    });
    let (attempt, info) = written.expect("it starts");
    own = info;
    _ = peering.on(&own, Event::InfoWritten { attempt });
    assert!(peering.is_active() && !peering.intervals().past().is_empty());
    assert_eq!(peering.state(Recovery::RecoveryUnfound), "active+recovery_unfound+degraded");
    own.unfound.clear();
    _ = peering.on(&own, Event::Map(Map { size: 1, ..alone(8, 0) }));
    assert!(peering.intervals().past().is_empty());
    assert_eq!(peering.state(Recovery::Idle), "active+clean");
}
