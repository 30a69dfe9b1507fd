//! Changes of the map that begin an interval.

use std::net::SocketAddr;

use carmine_peering::{Event, Map, Member, Peering};
use carmine_pgtypes::PgInfo;
use carmine_types::{Epoch, OsdId};

fn map(epoch: u32, size: usize, min_size: usize) -> Map {
    let addr = SocketAddr::from(([127, 0, 0, 1], 6800));
    let member = |osd| Member { osd: OsdId(osd), addr, nonce: 1, up_from: Epoch(1) };
    let members = [0, 1].map(member).to_vec();
    Map { epoch: Epoch(epoch), members, size, min_size, ..Map::default() }
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
}
