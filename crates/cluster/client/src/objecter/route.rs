//! Which reactor of an OSD owns which PG.

use carmine_types::{Epoch, PgId};
use carmine_wire::private::RouteReply;
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// Lane of a session: 0 is the OSD's public address, reactor N has lane N + 1.
pub(super) type LaneIndex = usize;

/// The lane of the public address.
pub(super) const PUBLIC: LaneIndex = 0;

/// What is known about an OSD's reactors.
pub(super) enum Route {
    /// One lane for everything: single route, or an OSD that does not tell.
    Single,
    /// Not told yet: operations wait.
    Unknown,
    /// Told by the OSD.
    Known(RouteTable),
}

/// The answer to a Route message.
pub(super) struct RouteTable {
    /// Port of each reactor.
    pub(super) ports: Vec<u16>,
    /// Map that the answer is good for: a PG that is missing in it may appear later.
    epoch: Epoch,
    lanes: HashMap<PgId, LaneIndex, FixedState>,
}

impl RouteTable {
    /// `None` if the OSD names no reactors. `asked` is the client's map when it asked.
    pub(super) fn new(reply: RouteReply, asked: Epoch) -> Option<RouteTable> {
        let reactors = reply.reactors.len();
        if reactors == 0 {
            return None;
        }
        let known = reply.pgs.into_iter().map(|(pg, shard)| (pg, usize::from(shard)));
        let lanes = known.filter(|(_, shard)| *shard < reactors).map(|(pg, shard)| (pg, shard + 1)).collect();
        Some(RouteTable { ports: reply.reactors, epoch: reply.epoch.max(asked), lanes })
    }
}

impl Route {
    /// The lane for operations on `pg` while the map is of `epoch`; `None`: the OSD has to be asked (again) first.
    pub(super) fn lane(&self, pg: PgId, epoch: Epoch) -> Option<LaneIndex> {
        match self {
            Route::Single => Some(PUBLIC),
            Route::Unknown => None,
            Route::Known(table) => match table.lanes.get(&pg) {
                Some(lane) => Some(*lane),
                // A new pool or a new member of the PG: it was dealt to a reactor after we asked.
                None if table.epoch < epoch => None,
                None => Some(PUBLIC),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(asked: u32) -> Route {
        let pgs = vec![(PgId::new(1, 0), 0), (PgId::new(1, 1), 1), (PgId::new(1, 2), 9)];
        let reply = RouteReply { epoch: Epoch(5), reactors: vec![7001, 7002], pgs };
        Route::Known(RouteTable::new(reply, Epoch(asked)).unwrap())
    }

    #[test]
    fn each_pg_has_the_lane_of_its_reactor() {
        let route = table(4);
        assert_eq!(route.lane(PgId::new(1, 0), Epoch(5)), Some(1));
        assert_eq!(route.lane(PgId::new(1, 1), Epoch(9)), Some(2));
        // Dealt to a reactor that does not exist: as if unknown.
        assert_eq!(route.lane(PgId::new(1, 2), Epoch(5)), Some(PUBLIC));
    }

    #[test]
    fn an_unknown_pg_is_asked_for_once_per_map() {
        let route = table(4);
        assert_eq!(route.lane(PgId::new(2, 0), Epoch(5)), Some(PUBLIC));
        assert_eq!(route.lane(PgId::new(2, 0), Epoch(6)), None);
        assert_eq!(table(6).lane(PgId::new(2, 0), Epoch(6)), Some(PUBLIC));
        assert_eq!(Route::Unknown.lane(PgId::new(1, 0), Epoch(1)), None);
        assert_eq!(Route::Single.lane(PgId::new(1, 0), Epoch(1)), Some(PUBLIC));
    }
}
