//! The prior set: the OSDs that a primary has to ask before its PG may be active, and those that it must wait for.

use carmine_pgtypes::Interval;
use carmine_types::{Epoch, OsdId};

use crate::{Map, OsdState};

/// The OSDs that may have writes of past intervals, for a replicated PG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorSet {
    /// Those that are up, and the PG's own: each is asked.
    pub probe: Vec<OsdId>,
    /// Those that are down, and of which one must come back, or be given up (`ceph osd lost`): the PG is `down`.
    pub blocked_by: Vec<OsdId>,
}

impl PriorSet {
    /// By the past intervals, the newest `last_epoch_started` of all copies that are known, and the current map.
    #[must_use]
    pub fn of(past: &[Interval], last_epoch_started: Epoch, map: &Map) -> PriorSet {
        let is_up = |osd: OsdId| map.state_of(osd) == OsdState::Up;
        let own = map.members.iter().map(|member| member.osd).chain(map.up.iter().copied());
        let prior = since(past, last_epoch_started).flat_map(|interval| interval.acting.iter().copied());
        PriorSet {
            probe: sorted(own.chain(prior.filter(|osd| is_up(*osd)))),
            blocked_by: blocked_by(past, last_epoch_started, map, is_up),
        }
    }
}

/// The OSDs that must be waited for if only those that `is_asked` names are asked: of each interval one is enough, for
/// every write was on all of them. Of one that nobody knows it names none: whether the PG may be active nevertheless the caller
/// must judge (`Intervals::gap`).
pub(crate) fn blocked_by(
    past: &[Interval],
    last_epoch_started: Epoch,
    map: &Map,
    is_asked: impl Fn(OsdId) -> bool,
) -> Vec<OsdId> {
    let may_come = |interval: &Interval, osd: OsdId| match map.state_of(osd) {
        OsdState::Gone => false,
        OsdState::Down { lost_at } => lost_at <= interval.last,
        OsdState::Up => true,
    };
    // What an OSD has that was given up counts as found, or else the PG waits for ever.
    let is_lost = |interval: &Interval, osd: OsdId| match map.state_of(osd) {
        OsdState::Down { lost_at } => lost_at > interval.last,
        OsdState::Gone | OsdState::Up => false,
    };
    let is_blocked =
        |interval: &&Interval| !interval.acting.iter().any(|osd| is_asked(*osd) || is_lost(interval, *osd));
    let blocked = since(past, last_epoch_started).filter(is_blocked);
    let members = blocked.flat_map(|interval| interval.acting.iter().map(move |osd| (interval, *osd)));
    sorted(members.filter(|(interval, osd)| may_come(interval, *osd)).map(|(_, osd)| osd))
}

/// The OSDs outside the current interval that may have content which its members lost (Ceph: `might_have_unfound`): those
/// that are up, and those that are down and may come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// They can be asked.
    pub up: Vec<OsdId>,
    /// They have to be waited for, unless they are given up (`ceph osd lost`).
    pub down: Vec<OsdId>,
}

impl Sources {
    pub(crate) fn of(past: &[Interval], map: &Map) -> Sources {
        let osds = past.iter().flat_map(|interval| interval.acting.iter().map(move |osd| (interval, *osd)));
        let others = osds.filter(|(_, osd)| !map.is_member(*osd));
        let state = |osd| map.state_of(osd);
        let may_return = |interval: &Interval, osd| matches!(state(osd), OsdState::Down { lost_at } if lost_at <= interval.last);
        let up = others.clone().filter(|(_, osd)| state(*osd) == OsdState::Up);
        let down = others.filter(|(interval, osd)| may_return(interval, *osd));
        Sources { up: sorted(up.map(|(_, osd)| osd)), down: sorted(down.map(|(_, osd)| osd)) }
    }
}

/// Whoever activated the PG in this epoch had all that was written in intervals that had ended.
fn since(past: &[Interval], last_epoch_started: Epoch) -> impl Iterator<Item = &Interval> {
    past.iter().filter(move |interval| interval.last >= last_epoch_started)
}

fn sorted(osds: impl Iterator<Item = OsdId>) -> Vec<OsdId> {
    let mut osds: Vec<OsdId> = osds.collect();
    osds.sort_unstable();
    osds.dedup();
    osds
}
