//! Selects the peers that an OSD watches: those that it shares PGs with, its neighbours by number, and some more if these are
//! few, so that every OSD has several watchers.

use std::collections::BTreeSet;

use carmine_crush::MapView;
use carmine_types::OsdId;

/// Least number of peers, if there are that many others (Ceph's osd_heartbeat_min_peers).
const PEERS_MIN: usize = 10;

/// The peers of an OSD; while it is not up, its neighbours by number.
pub(super) fn select(view: &MapView, own: OsdId) -> BTreeSet<OsdId> {
    let map = view.map();
    let members = view.pgs_of(own).flat_map(|(_, mapping)| mapping.acting.iter().chain(&mapping.up));
    let mut peers: BTreeSet<OsdId> = members.filter_map(|item| OsdId::from_item(*item)).collect();
    peers.retain(|osd| *osd != own && map.is_up(*osd));
    // From the next number on, wrapping around.
    let up = || map.osds().filter(|osd| map.is_up(*osd));
    let ring: Vec<OsdId> = up().filter(|osd| *osd > own).chain(up().filter(|osd| *osd < own)).collect();
    peers.extend(ring.first().into_iter().chain(ring.last()));
    for osd in ring {
        if peers.len() >= PEERS_MIN {
            break;
        }
        peers.insert(osd);
    }
    peers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carmine_crush::build_simple_crush;
    use carmine_types::{Epoch, UTime, Uuid};
    use carmine_wire::osdmap::{OsdMap, PgPool};

    use super::*;

    fn view(osds: u32, up: impl Fn(u32) -> bool, pgs: u32) -> MapView {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.epoch = Epoch(1);
        map.set_max_osd(osds);
        let weights: Vec<_> = (0..osds).map(|osd| (OsdId(osd), 0x10000)).collect();
        map.crush = Arc::new(build_simple_crush(&weights, true));
        map.osd_weight.iter_mut().for_each(|weight| *weight = 0x10000);
        map.osd_state = (0..osds).map(|osd| if up(osd) { 3 } else { 1 }).collect();
        map.pools.insert(1, PgPool::replicated(3, 1, pgs, 0, Epoch(1), UTime::ZERO));
        MapView::new(Arc::new(map))
    }

    fn numbers(view: &MapView, own: u32) -> Vec<u32> {
        select(view, OsdId(own)).into_iter().map(|osd| osd.0).collect()
    }

    #[test]
    fn neighbours_and_some_more() {
        let many = view(40, |osd| osd != 6, 0);
        assert_eq!(numbers(&many, 5), [4, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(numbers(&many, 39), [0, 1, 2, 3, 4, 5, 7, 8, 9, 38]);
        assert_eq!(numbers(&many, 6), [5, 7, 8, 9, 10, 11, 12, 13, 14, 15], "it is down itself");
        assert_eq!(numbers(&view(3, |_| true, 0), 1), [0, 2]);
        assert_eq!(numbers(&view(1, |_| true, 8), 0), [0; 0]);
    }

    #[test]
    fn all_who_share_pgs() {
        let view = view(40, |_| true, 2048);
        let shared: BTreeSet<OsdId> =
            view.pgs_of(OsdId(5)).flat_map(|(_, mapping)| mapping.acting_osds()).collect();
        assert!(shared.len() > 30, "{shared:?}");
        assert!(shared.iter().all(|osd| *osd == OsdId(5) || select(&view, OsdId(5)).contains(osd)));
    }
}
