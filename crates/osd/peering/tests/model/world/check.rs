//! What must be true at every moment, and when nothing happens any more.

use super::*;

impl World {
    /// A PG that became active has equal logs on all members that still follow it, and equal objects where the copy is complete.
    pub(super) fn check_equal(&self, n: u8) {
        let primary = &self.osds[usize::from(n)];
        assert_eq!(
            primary.memory.data,
            primary.memory.replayed(),
            "the primary's objects are those of its log"
        );
        assert!(!primary.disk.incomplete && primary.disk.started == primary.peering.attempt_id().interval.0);
        let map = &self.maps[primary.epoch as usize - 1];
        for osd in primary.peering.acting().osds().skip(1).map(|osd| osd.0 as u8) {
            let replica = &self.osds[usize::from(osd)];
            let is_same =
                replica.is_up && map.up[usize::from(osd)].is_some_and(|(start, _)| start == replica.start);
            if is_same && replica.peering.following() == Some(primary.peering.attempt_id()) {
                let Stored { incomplete, complete_to, backfilled, data, .. } = replica.disk;
                let data = if incomplete { data } else { primary.disk.data };
                let expected = Stored {
                    incomplete,
                    complete_to,
                    backfilled,
                    data,
                    made: replica.disk.made,
                    promised: replica.disk.promised,
                    ..primary.disk.clone()
                };
                assert_eq!(replica.disk, expected, "osd.{osd} has what its primary has");
            }
        }
    }

    /// The invariants of every state.
    pub(super) fn check(&self) {
        let active = || self.osds.iter().filter(|osd| osd.is_up && osd.peering.is_active());
        for (n, osd) in self.osds.iter().enumerate() {
            assert!(
                osd.disk.incomplete || osd.disk.data == osd.disk.replayed(),
                "osd.{n}: a copy that is changed says so"
            );
            assert!(
                !osd.peering.is_active() || !osd.memory.incomplete,
                "osd.{n} leads with an incomplete copy"
            );
        }
        let newest = active().map(|osd| osd.peering.attempt_id().interval).max();
        let leading: Vec<_> =
            active().filter(|osd| Some(osd.peering.attempt_id().interval) == newest).collect();
        assert!(leading.len() <= 1, "two primaries are active in interval {newest:?}");
        let late = active().filter(|osd| Some(osd.peering.attempt_id().interval) != newest);
        late.for_each(|osd| {
            assert!(!osd.is_readable, "{} may read what {newest:?} has changed", osd.peering.me())
        });
        for osd in leading {
            let lost = osd.memory.lacks(self.acked);
            assert!(lost == 0, "acknowledged writes {lost:b} are not in the log of the copy that leads");
        }
    }

    /// Nothing is left to do: the PG serves clients.
    pub(crate) fn check_quiet(&self) {
        let map = &self.maps[self.maps.len() - 1];
        let primary = &self.osds[usize::from(map.acting()[0])];
        // Nobody can tell whether the writes that were on a lost copy only were clients'.
        let waits =
            matches!(primary.peering.phase(), Phase::Incomplete(_) | Phase::Peering(Reason::WaitsForHistory));
        if self.is_wiped && waits {
            return;
        }
        assert!(primary.peering.serves(), "a quiet cluster does not serve: {:#?}", primary.peering);
        assert_eq!(
            self.acked & primary.memory.ids(),
            primary.memory.ids(),
            "clients are told of every write that is kept"
        );
        assert_eq!(primary.memory.lacks(self.acked), 0, "every write that clients were told of is kept");
        assert!(
            map.temp.is_empty() && map.acting() == map.wanted,
            "its OSDs are those that CRUSH names: {map:?}"
        );
        for osd in map.acting() {
            let disk = self.osds[usize::from(osd)].disk.clone();
            let disk = Stored { made: primary.disk.made, promised: primary.disk.promised, ..disk };
            assert_eq!(disk, primary.disk, "osd.{osd} has what its primary has");
        }
    }
}
