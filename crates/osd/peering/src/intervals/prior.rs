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
    pub fn new(past: &[Interval], last_epoch_started: Epoch, map: &Map) -> PriorSet {
        let is_up = |osd: OsdId| map.state_of(osd).is_up();
        let own = map.acting.osds().chain(map.up.osds());
        let prior = since(past, last_epoch_started).flat_map(|interval| may_have_led(interval, map));
        PriorSet {
            probe: sorted(own.chain(prior.filter(|osd| is_up(*osd)))),
            blocked_by: blocked_by(past, last_epoch_started, map, |_, osd| is_up(osd)),
        }
    }
}

/// The OSDs that have the writes of an interval: its acting set. Of one that nobody knows, all that may have led it: a primary
/// serves clients only after the map has said that it was up then.
fn may_have_led(interval: &Interval, map: &Map) -> Vec<OsdId> {
    if !interval.acting.is_empty() {
        return interval.acting.osds().collect();
    }
    let all = (0..map.osds.len() as u32).map(OsdId);
    all.filter(|osd| map.state_of(*osd).up_thru() >= interval.first).collect()
}

/// The OSDs to wait for, given the copies that are here (`has_copy`). One copy of each interval is enough, since every write was on
/// all of them. Of an interval that nobody knows, each OSD that may have led it is needed.
pub(crate) fn blocked_by(
    past: &[Interval],
    last_epoch_started: Epoch,
    map: &Map,
    has_copy: impl Fn(&Interval, OsdId) -> bool,
) -> Vec<OsdId> {
    let exists = |osd: &OsdId| map.state_of(*osd) != OsdState::Gone;
    // The copy of an OSD that was given up counts as found, or else the PG would wait forever.
    let is_found =
        |interval: &Interval, osd: OsdId| has_copy(interval, osd) || map.state_of(osd).is_lost(interval.last);
    let missing = since(past, last_epoch_started).flat_map(|interval| {
        let osds = may_have_led(interval, map);
        let is_enough = !interval.acting.is_empty() && osds.iter().any(|osd| is_found(interval, *osd));
        osds.into_iter().filter(move |osd| !is_enough && !is_found(interval, *osd))
    });
    sorted(missing.filter(exists))
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
    pub(crate) fn new(past: &[Interval], map: &Map) -> Sources {
        let osds = past.iter().flat_map(|interval| interval.acting.osds().map(move |osd| (interval, osd)));
        let others = osds.filter(|(_, osd)| !map.acting.contains(*osd));
        let state = |osd| map.state_of(osd);
        let may_return = |interval: &Interval, osd| {
            state(osd) != OsdState::Gone && !state(osd).is_up() && !state(osd).is_lost(interval.last)
        };
        let up = others.clone().filter(|(_, osd)| state(*osd).is_up());
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
