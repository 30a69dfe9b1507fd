//! The copy that has to lead.

use std::net::SocketAddr;

use carmine_peering::{Copy, Event, Map, Member, Peering, Phase, Reason};
use carmine_pgtypes::PgInfo;
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
    let map = Map { epoch: Epoch(7), members, owners, size: 2, min_size: 1, ..Map::default() };
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
