//! The copy that has to lead.

use std::net::SocketAddr;

use carmine_peering::{Copy, Event, Map, Member, OsdState, Peering, Phase, Reason};
use carmine_pgtypes::{Interval, PgHistory, PgInfo};
use carmine_types::{Epoch, Eversion, OsdId};

const STARTED: Epoch = Epoch(3);

fn at(version: u64) -> Eversion {
    Eversion::new(STARTED.0, version)
}

/// osd.0 leads with a log up to entry 309, and osd.1, which is an owner of the data or not, has `copy`.
fn ask(copy: Copy, is_owner: bool) -> Peering {
    let own = PgInfo { last_update: at(309), last_epoch_started: STARTED, ..PgInfo::default() };
    ask_with(own, copy, if is_owner { &[0, 1] } else { &[0] })
}

/// osd.0 leads with this copy, and osd.1 has `copy`.
fn ask_with(own: PgInfo, copy: Copy, owners: &[u32]) -> Peering {
    let addr = SocketAddr::from(([127, 0, 0, 1], 6800));
    let member = |osd| Member { osd: OsdId(osd), addr, nonce: 1, up_from: Epoch(1) };
    let owners = owners.iter().map(|osd| OsdId(*osd)).collect();
    let members = vec![member(0), member(1)];
    let osds = [OsdState::Up, OsdState::Up, OsdState::Down { lost_at: Epoch(0) }].into();
    let map = Map { epoch: Epoch(7), members, owners, osds, size: 2, min_size: 1, ..Map::default() };
    let mut peering = Peering::new(OsdId(0));
    _ = peering.on(&own, Event::Map(map));
    _ = peering.on(&own, Event::Loaded);
    let attempt = peering.attempt_id().attempt;
    _ = peering.on(&own, Event::Notified { attempt, from: OsdId(1), copy: Ok(copy) });
    peering
}

fn copy(started: Epoch, last_update: Eversion) -> Copy {
    Copy {
        last_update,
        last_epoch_started: started,
        incomplete: false,
        common: Some(at(309)),
        last_backfill: None,
        changed: Vec::new(),
        lease: None,
        history: PgHistory::default(),
    }
}

/// The writes that only it has are kept. To take them back it would need the states before them, which may be nowhere any
/// more (`carmine sim --seed 539`: the block of the other copy had rotted).
#[test]
fn the_longest_log_of_an_interval_leads() {
    let longer = ask(copy(STARTED, at(314)), true);
    assert_eq!(longer.successor(), Some(OsdId(1)));
    assert_eq!(*longer.phase(), Phase::Peering(Reason::LongerLog(OsdId(1))));
    for (last_update, what) in [(at(309), "as long"), (at(305), "shorter")] {
        assert_eq!(ask(copy(STARTED, last_update), true).successor(), None, "{what}");
    }
}

#[test]
fn a_longer_log_leads_only_with_all_data() {
    assert_eq!(ask(copy(STARTED, at(314)), false).successor(), None, "the monitor does not let it lead");
    let incomplete = Copy { incomplete: true, ..copy(STARTED, at(314)) };
    assert_eq!(ask(incomplete, true).successor(), None, "incomplete");
    assert_eq!(ask(copy(Epoch(2), at(314)), true).successor(), None, "of an earlier interval");
}

/// The monitor strikes an owner that is down off its list only for a primary whose copy is whole.
#[test]
fn an_incomplete_primary_lets_a_complete_member_lead_though_an_owner_is_down() {
    let own =
        PgInfo { last_update: at(309), last_epoch_started: STARTED, incomplete: true, ..PgInfo::default() };
    let peering = ask_with(own.clone(), copy(STARTED, at(309)), &[0, 1, 2]);
    assert_eq!(peering.successor(), Some(OsdId(1)));
    assert_eq!(*peering.phase(), Phase::Incomplete(Reason::Interrupted(OsdId(1))));
    let whole = PgInfo { incomplete: false, ..own };
    let waits = ask_with(whole, copy(STARTED, at(309)), &[0, 1, 2]);
    assert_eq!(*waits.phase(), Phase::Down(Reason::WaitsFor(vec![OsdId(2)])));
}

/// osd.0 leads with a copy as good as osd.1's, and the monitor has no maps any more of the epochs 3 to 6.
fn ask_after_a_gap(history: PgHistory, owners: &[u32]) -> Peering {
    let seen = PgHistory { epoch: Epoch(3), same_interval_since: Epoch(3), ..PgHistory::default() };
    let own =
        PgInfo { last_update: at(309), last_epoch_started: STARTED, history: seen, ..PgInfo::default() };
    ask_with(own, Copy { history, ..copy(STARTED, at(309)) }, owners)
}

fn history_with(acting: &[u32]) -> PgHistory {
    let acting = acting.iter().map(|osd| OsdId(*osd)).collect();
    let past = vec![Interval { first: Epoch(4), last: Epoch(5), acting }];
    PgHistory { epoch: Epoch(7), same_interval_since: Epoch(6), past, ..PgHistory::default() }
}

const WAITS: Phase = Phase::Peering(Reason::WaitsUpThru(Epoch(7)));

#[test]
fn a_copy_that_missed_maps_does_not_lead_by_what_it_knows() {
    let blocked = ask_after_a_gap(history_with(&[]), &[1]);
    let why = Reason::MapsMissing { first: Epoch(3), last: Epoch(6) };
    assert_eq!(*blocked.phase(), Phase::Incomplete(why.clone()), "the other one missed some, too");
    assert!(why.to_string().contains("epochs 3 to 6"), "{why}");
    assert_eq!(*ask_after_a_gap(history_with(&[]), &[0, 1]).phase(), WAITS, "it has all data, says the map");
}

#[test]
fn a_member_that_saw_all_maps_tells_who_served_meanwhile() {
    let told = ask_after_a_gap(history_with(&[0, 1]), &[1]);
    assert_eq!((told.phase(), told.intervals().past()), (&WAITS, &history_with(&[0, 1]).past[..]));
    assert_eq!(told.intervals().same_interval_since(), Epoch(6));
    for owners in [&[1][..], &[0, 1]] {
        let waits = ask_after_a_gap(history_with(&[2]), owners);
        assert_eq!(*waits.phase(), Phase::Down(Reason::BlockedBy(vec![OsdId(2)])), "osd.2 served alone");
    }
}
