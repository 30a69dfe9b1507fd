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
    let addr = SocketAddr::from(([127, 0, 0, 1], 6800));
    let member = |osd| Member { osd: OsdId(osd), addr, nonce: 1, up_from: Epoch(1) };
    let owners = if is_owner { vec![OsdId(0), OsdId(1)] } else { vec![OsdId(0)] };
    let members = vec![member(0), member(1)];
    let map = Map { epoch: Epoch(7), members, owners, size: 2, min_size: 1, ..Map::default() };
    let own = PgInfo { last_update: at(309), last_epoch_started: STARTED, ..PgInfo::default() };
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
