//! Maps for tests.

use carmine_types::{OsdId, UTime, Uuid};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::{EntityAddr, EntityAddrVec};

use crate::change::gather::{Gathered, Outcome};
use crate::change::{Change, OsdAddrs};
use crate::creating::Creating;
use crate::{InitialCluster, InitialPool};

pub(crate) fn now() -> UTime {
    UTime { sec: 1_700_000_000, nsec: 5 }
}

/// A fresh cluster with as many replicas as OSDs.
pub(crate) fn cluster(osds: u32) -> OsdMap {
    let pool = InitialPool { name: "bench".into(), size: osds as u8, min_size: 1, pg_num: 8 };
    InitialCluster { fsid: Uuid([3; 16]), osds, pool, host: None }.map(now())
}

/// Applies a change; false if there was nothing to change.
pub(crate) fn apply(map: &mut OsdMap, change: Change) -> bool {
    let mut next = Gathered::new(map, now());
    match next.add(&change, |_, _| Ok(())) {
        Outcome::Gathered => {}
        Outcome::Nothing => return false,
        other => panic!("{change:?}: {other:?}"),
    }
    let next = next.finish(Some(&Creating::default())).unwrap();
    // The map must survive encoding, because clients decode it.
    assert_eq!(OsdMap::decode(&next.encode()).as_ref(), Ok(&next));
    *map = next;
    true
}

/// A made-up address.
pub(crate) fn addrs_of(osd: u32, nonce: u32) -> EntityAddrVec {
    EntityAddr::msgr2(format!("127.0.0.1:{}", 6800 + osd).parse().unwrap(), nonce).into()
}

/// One address for everything.
pub(crate) fn all_addrs(addrs: &EntityAddrVec) -> OsdAddrs {
    let [client, cluster, hb_back, hb_front] = [(); 4].map(|()| addrs.clone());
    OsdAddrs { client, cluster, hb_back, hb_front }
}

/// Boots an OSD at its made-up address.
pub(crate) fn up(map: &mut OsdMap, osd: u32, nonce: u32) {
    let addrs = all_addrs(&addrs_of(osd, nonce));
    assert!(apply(map, Change::Boot { osd: OsdId(osd), uuid: Uuid([osd as u8 + 1; 16]), addrs }));
}
