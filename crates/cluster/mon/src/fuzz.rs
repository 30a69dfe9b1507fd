//! The decoder of the monitor's state file, and what its opening does with what it found, and CRUSH maps that somebody gives it, over any bytes: none may panic, hang,
//! or allocate by what the bytes claim.

use carmine_crush::check::check;
use carmine_crush::tree::Location;
use carmine_types::{OsdId, UTime, Uuid};
use carmine_wire::EntityAddr;
use carmine_wire::crushmap::CrushMap;
use carmine_wire::osdmap::OsdMap;

use crate::change::tree::Placing;
use crate::change::{Change, OsdAddrs, TreeEdit};
use crate::mon::{GIDS_RESERVED, restored};
use crate::record::{Durable, Reading, Record};
use crate::{InitialCluster, InitialPool};

const NOW: UTime = UTime { sec: 1_700_000_000, nsec: 5 };
const FSID: Uuid = Uuid([3; 16]);

/// Decodes bytes as a state file, and as the numbers and the map of one whose checksums hold.
pub fn decode_state(bytes: &[u8]) {
    open(bytes);
    let Some((generation, rest)) = bytes.split_first_chunk() else { return };
    let Some((next, map)) = rest.split_first_chunk() else { return };
    let numbers = (u64::from_le_bytes(*generation), u64::from_le_bytes(*next));
    open(&file(numbers, map));
}

/// Takes bytes as the CRUSH map of a cluster, as `osd setcrushmap` does, and changes what was taken. Whatever is in force afterwards is a map
/// that could be taken again.
pub fn take_crush(bytes: &[u8]) {
    let Ok(crush) = CrushMap::decode(bytes) else { return };
    let pool = InitialPool { name: "bench".into(), size: 2, min_size: 1, pg_num: 1 };
    let mut map = InitialCluster { fsid: FSID, osds: 2, pool, host: None }.map(NOW);
    let at: Location = [("root".to_owned(), "fuzz".to_owned())].into();
    let lowest = -(crush.buckets.len() as i32);
    let edits = [
        TreeEdit::Whole(Box::new(crush)),
        TreeEdit::ReweightAll,
        TreeEdit::Move { item: lowest, at: at.clone() },
        TreeEdit::Place { osd: OsdId(1), weight: 5, at, how: Placing::Set },
        TreeEdit::Remove { item: lowest, under: None, is_unlink: false },
    ];
    for (n, edit) in edits.into_iter().enumerate() {
        match Change::Tree(edit).plan(&map, NOW) {
            Ok(Some(inc)) => assert_eq!(map.apply(&inc), Ok(())),
            Err(_) if n == 0 => return,
            Ok(None) | Err(_) => {}
        }
        assert_eq!(check(&map.crush), Ok(()));
    }
}

/// As a start of the monitor: the numbers that follow, and the map as clients get it.
fn open(bytes: &[u8]) {
    let Some(content) = Reading::from_bytes(bytes).content else { return };
    assert!(content.generation < u64::MAX && content.next_gid < u64::MAX - GIDS_RESERVED);
    let Ok(map) = restored(&content.map, NOW) else { return };
    assert_eq!(OsdMap::decode(&map.encode()).as_ref(), Ok(&map));
    assert!(map.osds().all(|osd| !map.is_up(osd)), "an OSD is up before it booted");
}

fn file((generation, next): (u64, u64), map: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in [Record::Header { fsid: FSID }, Record::Gid { next }, Record::Map(map.to_vec())] {
        record.encode(Durable { generation, bytes: 0 }, &mut out);
    }
    out
}

/// Good inputs: a state file to which two records were appended, and the numbers and the map of one.
#[must_use]
pub fn state_seeds() -> Vec<Vec<u8>> {
    let pool = InitialPool { name: "bench".into(), size: 1, min_size: 1, pg_num: 8 };
    let mut map = InitialCluster { fsid: FSID, osds: 2, pool, host: None }.map(NOW);
    let mut whole = file((7, 4096), &map.encode());
    let at = |port| EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1).into();
    let addrs = OsdAddrs { client: at(6800), cluster: at(6800), hb_back: at(6801), hb_front: at(6802) };
    let boot = Change::Boot { osd: OsdId(0), uuid: Uuid([4; 16]), addrs };
    if let Ok(Some(booted)) = boot.plan(&map, NOW) {
        // A seed without its OSD is a poorer one; the test below would tell.
        let _ = map.apply(&booted);
    }
    let map = map.encode();
    for record in [Record::Map(map.clone()), Record::Gid { next: 9000 }] {
        record.encode(Durable { generation: 7, bytes: whole.len() as u64 }, &mut whole);
    }
    vec![whole, [&7_u64.to_le_bytes(), &4096_u64.to_le_bytes(), map.as_slice()].concat()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seeds_are_good() {
        let [whole, parts] = state_seeds().try_into().unwrap();
        let content = Reading::from_bytes(&whole).content.unwrap();
        assert_eq!((content.valid_bytes, content.next_gid), (whole.len(), 9000));
        assert_eq!(content.map, parts[16..]);
        assert!(OsdMap::decode(&content.map).unwrap().is_up(OsdId(0)));
        decode_state(&whole);
        decode_state(&parts);
    }

    proptest! {
        #[test]
        fn any_numbers_open_or_are_refused(generation in any::<u64>(), next in any::<u64>(), last in 0..3u64) {
            let map = &state_seeds()[1][16..];
            for numbers in [(generation, next), (u64::MAX - last, next), (generation, u64::MAX - last)] {
                open(&file(numbers, map));
            }
        }
    }
}
