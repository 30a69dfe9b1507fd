//! Maps: the OSDMap, its incrementals, the MonMap, the CRUSH map. A map that can be decoded must survive being written
//! and read.

use carmine_wire::crushmap::CrushMap;
use carmine_wire::monmap::MonMap;
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::seeds;

/// Folders of test vectors.
const CLUSTERS: &[&str] = &["live-1osd", "live-3osd", "synthetic-8osd", "synthetic-60osd"];
const HISTORIES: &[&str] = &["live-1osd/mon-store", "live-3osd/captured"];

pub(super) fn osdmap(bytes: &[u8]) {
    if let Ok(map) = OsdMap::decode(bytes) {
        assert_eq!(OsdMap::decode(&map.encode()).as_ref(), Ok(&map));
    }
}

pub(super) fn incremental(bytes: &[u8]) {
    let Ok(inc) = Incremental::decode(bytes) else { return };
    let mut map = OsdMap::new(inc.fsid, inc.modified);
    map.epoch = carmine_types::Epoch(inc.epoch.0.wrapping_sub(1));
    let _ = map.apply(&inc);
}

pub(super) fn monmap(bytes: &[u8]) {
    if let Ok(map) = MonMap::decode(bytes) {
        assert_eq!(MonMap::decode(&map.encode()).as_ref(), Ok(&map));
    }
}

pub(super) fn crushmap(bytes: &[u8]) {
    carmine_mon::take_crush(bytes);
    if let Ok(map) = CrushMap::decode(bytes) {
        assert_eq!(CrushMap::decode(&map.encode()).as_ref(), Ok(&map));
    }
}

pub(super) fn osdmap_seeds() -> Vec<Vec<u8>> {
    [seeds::files(CLUSTERS, "osdmap.bin"), seeds::files(HISTORIES, "full.")].concat()
}

pub(super) fn incremental_seeds() -> Vec<Vec<u8>> {
    seeds::files(HISTORIES, "inc.")
}

pub(super) fn monmap_seeds() -> Vec<Vec<u8>> {
    seeds::files(&CLUSTERS[..2], "monmap.bin")
}

pub(super) fn crushmap_seeds() -> Vec<Vec<u8>> {
    seeds::files(CLUSTERS, "crushmap.bin")
}
