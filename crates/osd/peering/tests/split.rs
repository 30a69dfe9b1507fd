//! The split of a PG: what its copies refuse until they are split, and what the child takes over.

use std::net::SocketAddr;

use carmine_peering::{
    AttemptId, Event, Lease, Map, Member, Order, OsdState, Peering, Phase, Then, resize_is_due,
};
use carmine_pgtypes::{Interval, PgHistory, PgInfo};
use carmine_types::{Epoch, Errno, OsdId, errno};

/// The epoch of the map that splits the PG.
const SPLIT: u32 = 7;

/// A map in which these OSDs have served clients since epoch 4.
fn map(epoch: u32, osds: &[u32], pg_num: u32) -> Map {
    let addr = SocketAddr::from(([127, 0, 0, 1], 6800));
    let member = |osd: &u32| Member { osd: OsdId(*osd), addr, nonce: 1, up_from: Epoch(1) };
    let members = osds.iter().map(member).collect();
    let acting: Vec<OsdId> = osds.iter().copied().map(OsdId).collect();
    let (acting, up) = (acting.clone().into(), acting.into());
    let osds = [OsdState::Up { up_thru: Epoch(4) }; 3].into();
    Map { epoch: Epoch(epoch), acting, members, up, osds, size: 2, min_size: 1, pg_num, ..Map::default() }
}

/// A copy of one PG of four, as it was written down in epoch 5.
fn own() -> PgInfo {
    let history = PgHistory {
        epoch: Epoch(5),
        same_interval_since: Epoch(4),
        last_epoch_clean: Epoch(2),
        past: vec![interval(2, 3, &[1, 2])],
    };
    PgInfo { pg_num: 4, last_epoch_started: Epoch(4), made: Epoch(1), history, ..PgInfo::default() }
}

fn interval(first: u32, last: u32, acting: &[u32]) -> Interval {
    let acting: Vec<OsdId> = acting.iter().copied().map(OsdId).collect();
    Interval { first: Epoch(first), last: Epoch(last), acting: acting.into() }
}

/// The PG on osd.1 after these maps.
fn after(own: &PgInfo, maps: impl IntoIterator<Item = Map>) -> Peering {
    let mut peering = Peering::new(OsdId(1));
    maps.into_iter().for_each(|map| drop(peering.on(own, Event::Map(map))));
    peering
}

/// The history of a child whose parent has seen these maps and is loaded, or not, and which has seen those itself.
fn inherited(is_loaded: bool, parent: &[Map], child: &[Map]) -> PgHistory {
    let own = own();
    let mut parent = after(&own, parent.to_vec());
    if is_loaded {
        _ = parent.on(&own, Event::Loaded);
    }
    let mut peering = after(&PgInfo::default(), child.to_vec());
    let history = peering.inherit(&parent, &own);
    // It is as if it had been there since then.
    _ = peering.on(&PgInfo { history: history.clone(), pg_num: 8, ..own }, Event::Loaded);
    assert_eq!(peering.intervals().known(), history);
    history
}

#[test]
fn a_child_knows_the_intervals_of_its_parent_until_the_split() {
    let before = [5, 6].map(|epoch| map(epoch, &[0, 1], 4));
    let since = [map(SPLIT, &[0, 1], 8), map(SPLIT + 1, &[1], 8)];
    let past = vec![interval(2, 3, &[1, 2]), interval(4, 6, &[0, 1])];
    let known = |epoch| PgHistory {
        epoch: Epoch(epoch),
        same_interval_since: Epoch(epoch),
        last_epoch_clean: Epoch(2),
        past: past.clone(),
    };
    assert_eq!(inherited(true, &before, &since[..1]), known(SPLIT));
    // Its parent could not be read before a later map had come. The map in between is one in which nobody served.
    let all = [&before[..], &since[..]].concat();
    assert_eq!(inherited(false, &all, &since), known(SPLIT + 1));
    assert_eq!(inherited(false, &before, &since), known(SPLIT + 1));
}

#[test]
fn a_child_does_not_know_what_was_while_maps_are_missing() {
    let now = [map(SPLIT + 2, &[0, 1], 8)];
    for is_loaded in [true, false] {
        let past = inherited(is_loaded, &[map(5, &[0, 1], 4)], &now).past;
        assert_eq!(past[1..], [interval(4, 5, &[0, 1]), interval(6, SPLIT + 1, &[])]);
    }
    // The parent has seen none since its start.
    let past = inherited(false, &now, &now).past;
    assert_eq!(past[1..], [interval(4, SPLIT + 1, &[])]);
}

#[test]
#[should_panic(expected = "the interval in which the PG was split is known")]
fn the_parent_is_split_before_it_follows_the_map_of_the_split() {
    let maps = [map(6, &[0, 1], 4), map(SPLIT, &[0, 1], 8)];
    inherited(true, &maps, &maps[1..]);
}

#[test]
fn a_child_keeps_the_promise_of_its_parent() {
    let own = own();
    let mut parent = after(&own, [map(6, &[0, 1], 4)]);
    let promise = Lease { holder: OsdId(0), interval: Epoch(4), until_ns: 9 };
    parent.promise(promise);
    let mut child = after(&PgInfo::default(), [map(SPLIT, &[1], 8)]);
    _ = child.inherit(&parent, &own);
    assert_eq!(child.promised_lease(), Some(promise));
}

#[test]
fn a_copy_that_was_split_answers_no_primary_from_before() {
    let own = PgInfo { pg_num: 8, split: Epoch(SPLIT), ..own() };
    let mut peering = after(&own, [map(6, &[0, 1], 4), map(SPLIT, &[0, 1], 8)]);
    _ = peering.on(&own, Event::Loaded);
    let mut asked_at = |epoch, interval| {
        let attempt = AttemptId { interval: Epoch(interval), attempt: 1 };
        let order = Order::Query { acting: map(epoch, &[0, 1], 8).acting };
        peering.on(&own, Event::Ordered { attempt, epoch: Epoch(epoch), order }).then
    };
    assert_eq!(asked_at(SPLIT - 1, 4), Then::Refuse(Errno(errno::EAGAIN)));
    assert!(matches!(asked_at(SPLIT, SPLIT), Then::CarryOut { .. }));
}

/// Its children need the record of before. In a pool that has shrunk nobody does.
#[test]
fn a_copy_that_is_to_be_split_keeps_its_record() {
    for (pg_num, is_written) in [(4, true), (8, false), (2, true)] {
        let own = own();
        let mut peering = after(&own, [map(6, &[0, 1], 4)]);
        _ = peering.on(&own, Event::Loaded);
        _ = peering.on(&own, Event::Map(map(SPLIT, &[1], pg_num)));
        assert_eq!(matches!(peering.phase(), Phase::Down(_)), pg_num != 4);
        assert_eq!(peering.unwritten(&own).is_some(), is_written, "pg_num {pg_num}");
    }
}

#[test]
fn a_copy_is_split_once_by_maps_after_its_last_split() {
    let own = PgInfo { split: Epoch(SPLIT), ..own() };
    let is_due = |pg_num, epoch| resize_is_due(&own, pg_num, Epoch(epoch));
    assert!(is_due(8, SPLIT + 1) && is_due(2, SPLIT + 1));
    assert!(!is_due(2, SPLIT - 1), "an OSD that starts follows old maps again");
    assert!(!is_due(4, SPLIT + 1) && !is_due(0, SPLIT + 1), "there is nothing to do");
    assert!(!resize_is_due(&PgInfo::default(), 8, Epoch(9)), "it is not noted how many there were");
}
