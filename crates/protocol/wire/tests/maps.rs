//! Maps of real clusters (Ceph 16.2.15): every byte is understood, and written back the same.
#![allow(clippy::disallowed_methods)] // a test reads its files

use std::fs;
use std::path::{Path, PathBuf};

use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid};
use carmine_wire::crushmap::CrushMap;
use carmine_wire::monmap::{MonInfo, MonMap};
use carmine_wire::osdmap::{ApplyError, Incremental, OsdMap, PgPool, consts};
use carmine_wire::{DecodeError, EntityAddr};
use proptest::prelude::*;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn data(name: &str) -> Vec<u8> {
    let path = path(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All stored files of that kind, by the start of their name.
fn files(start: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start)) {
                found.push((entry.clone(), fs::read(&entry).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "no {start} files");
    found
}

#[test]
fn full_maps_round_trip() {
    for (path, bytes) in files("osdmap").into_iter().chain(files("full.")) {
        let map = OsdMap::decode(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(map.encode(), bytes, "{}", path.display());
        assert_eq!(map.crc().to_le_bytes(), bytes[bytes.len() - 4..]);
        let sections = [&map.section, &map.client_section, &map.osd_section];
        assert!(sections.iter().all(|s| s.tail.is_empty()), "{}: unknown bytes", path.display());
        assert!(map.pools.values().all(|pool| pool.section.tail.is_empty()), "{}", path.display());
    }
}

#[test]
fn incrementals_round_trip() {
    for (path, bytes) in files("inc.") {
        let inc = Incremental::decode(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(inc.encode(), bytes, "{}", path.display());
        let sections = [&inc.section, &inc.client_section, &inc.osd_section];
        assert!(sections.iter().all(|s| s.tail.is_empty()), "{}: unknown bytes", path.display());
        for embedded in [&inc.fullmap].into_iter().filter(|b| !b.is_empty()) {
            assert_eq!(&OsdMap::decode(embedded).unwrap().encode(), embedded);
        }
    }
}

#[test]
fn crush_maps_round_trip() {
    for (path, bytes) in files("crushmap") {
        let map = CrushMap::decode(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(map.tail.is_empty(), "{}: unknown bytes", path.display());
        assert_eq!(map.encode(), bytes, "{}", path.display());
    }
}

#[test]
fn mon_maps_round_trip() {
    for (path, bytes) in files("monmap") {
        let map = MonMap::decode(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(map.encode(), bytes, "{}", path.display());
        assert_eq!((map.epoch, map.ranks.as_slice()), (Epoch(1), &["a".to_owned()][..]));
        assert!(map.section.tail.is_empty() && map.mons["a"].section.tail.is_empty());
        // Our own map is the same but for the time of the last change.
        let mut own = MonMap::single(map.fsid, map.created, "a", map.mons["a"].addrs.clone());
        own.last_changed = map.last_changed;
        assert_eq!(own.encode(), bytes);
    }
}

#[test]
fn older_mon_maps_are_read() {
    let mut map = MonMap::decode(&data("live-1osd/monmap.bin")).unwrap();
    for version in [6, 7, 8] {
        map.section.version = version;
        map.mons.values_mut().for_each(|mon: &mut MonInfo| mon.section.version = version - 3);
        let read = MonMap::decode(&map.encode()).unwrap();
        assert_eq!(read.mons["a"].addrs, map.mons["a"].addrs);
        assert_eq!(read.encode(), map.encode());
    }
}

/// Two clusters' histories: each incremental leads to a map with the checksum it names, and to the full map of its
/// epoch where there is one.
#[test]
fn incrementals_lead_from_map_to_map() {
    for (folder, last, fulls) in [("live-1osd/mon-store", 11, 11), ("live-3osd/captured", 25, 15)] {
        let (mut map, mut compared) = (OsdMap::default(), 0);
        for epoch in 1..=last {
            let inc = Incremental::decode(&data(&format!("{folder}/inc.{epoch}.bin"))).unwrap();
            map.apply(&inc).unwrap();
            let name = format!("{folder}/full.{epoch}.bin");
            if path(&name).exists() {
                let full = data(&name);
                assert_eq!(map, OsdMap::decode(&full).unwrap(), "{name}");
                assert_eq!(map.encode(), full, "{name}");
                compared += 1;
            }
            assert_eq!(map.crc(), inc.full_crc, "{folder}, epoch {epoch}");
        }
        assert_eq!(compared, fulls);
    }
}

#[test]
fn an_incremental_that_does_not_fit_is_refused() {
    let map = OsdMap::decode(&data("live-3osd/osdmap.bin")).unwrap();
    let mut inc = Incremental::next(&map, map.modified);
    inc.epoch = Epoch(22);
    let error = inc.applied(&map).unwrap_err();
    assert_eq!(error.to_string(), "incremental map 22 applies to epoch 21, but the map at hand is epoch 20");
    inc.epoch = Epoch(21);
    inc.new_weight.insert(OsdId(3), 0);
    assert_eq!(
        inc.applied(&map).unwrap_err(),
        ApplyError::NoSuchOsd { epoch: 21, osd: OsdId(3), max_osd: 3 }
    );
    inc.new_max_osd = i32::MAX;
    assert!(matches!(inc.applied(&map), Err(ApplyError::Wire(DecodeError::BadValue { .. }))));
    inc.fsid = Uuid([7; 16]);
    assert!(matches!(inc.applied(&map), Err(ApplyError::WrongCluster { .. })));
}

#[test]
fn osds_come_and_go() {
    let map = OsdMap::decode(&data("live-3osd/osdmap.bin")).unwrap();
    let now = UTime { sec: map.modified.sec + 1, nsec: 0 };
    let mut inc = Incremental::next(&map, now);
    inc.mark_down(OsdId(1));
    inc.new_weight.insert(OsdId(1), consts::WEIGHT_OUT);
    inc.new_pg_temp.insert(PgId::new(1, 3), vec![2, 0]);
    inc.new_blocklist.push((EntityAddr::msgr2("10.0.0.1:0".parse().unwrap(), 5), now));
    let down = inc.applied(&map).unwrap();
    assert!(map.is_up(OsdId(1)) && !down.is_up(OsdId(1)) && down.exists(OsdId(1)));
    assert!(!down.is_in(OsdId(1)));
    assert_eq!(down.osd_info[1].down_at, Epoch(21));
    assert_eq!(down.osd_xinfo[1].down_stamp, now);
    assert_eq!(OsdMap::decode(&down.encode()).unwrap(), *down);

    let mut inc = Incremental::next(&down, now);
    inc.new_up_client.insert(OsdId(1), map.client_addrs[0].clone());
    inc.new_weight.insert(OsdId(1), consts::WEIGHT_IN);
    inc.new_pg_temp.insert(PgId::new(1, 3), Vec::new());
    inc.old_blocklist.push(down.blocklist[0].0);
    let up = inc.applied(&down).unwrap();
    assert!(up.is_up(OsdId(1)) && up.is_in(OsdId(1)));
    assert_eq!(up.osd_info[1].up_from, Epoch(22));
    assert_eq!(up.client_addr(OsdId(1)), Some(&map.client_addrs[0]));
    assert!(up.pg_temp.is_empty() && up.blocklist.is_empty());

    let mut inc = Incremental::next(&up, now);
    inc.new_state.insert(OsdId(1), consts::STATE_EXISTS | consts::STATE_UP);
    inc.old_pools.insert(1);
    let gone = inc.applied(&up).unwrap();
    assert_eq!((gone.state(OsdId(1)), gone.osds().count()), (0, 2));
    assert!(gone.pools.is_empty() && gone.osd_uuid[1].is_nil());
}

#[test]
fn a_wrong_checksum_is_an_error() {
    let mut full = data("live-3osd/osdmap.bin");
    let mut inc = data("live-1osd/mon-store/inc.6.bin");
    full[40] ^= 1;
    inc[40] ^= 1;
    assert!(matches!(OsdMap::decode(&full), Err(DecodeError::BadCrc { what: "osdmap", .. })));
    assert!(matches!(Incremental::decode(&inc), Err(DecodeError::BadCrc { .. })));
}

/// A newer Ceph adds fields at the end of sections: they are skipped, kept, and written back.
#[test]
fn newer_sections_are_skipped_and_kept() {
    let mut map = OsdMap::decode(&data("live-3osd/osdmap.bin")).unwrap();
    for section in [&mut map.client_section, &mut map.osd_section, &mut map.section] {
        section.version += 3;
        section.tail = b"from the future".to_vec();
    }
    for pool in map.pools.values_mut() {
        pool.section.version += 1;
        pool.section.tail = vec![1, 2, 3];
    }
    let bytes = map.encode();
    let read = OsdMap::decode(&bytes).unwrap();
    assert_eq!(read, map);
    assert_eq!(read.encode(), bytes);
    // ... but not if the writer says that it must be understood.
    map.client_section.compat = 10;
    assert!(matches!(OsdMap::decode(&map.encode()), Err(DecodeError::TooNew { .. })));
    map.client_section.compat = 1;
    map.client_section.version = 8;
    assert!(matches!(OsdMap::decode(&map.encode()), Err(DecodeError::TooOld { .. })));
}

#[test]
fn a_short_pool_of_an_older_writer_is_read() {
    let mut map = OsdMap::decode(&data("live-3osd/osdmap.bin")).unwrap();
    for version in [27, 28] {
        let pool = map.pools.get_mut(&1).unwrap();
        pool.section.version = version;
        let bytes = map.encode();
        let read = OsdMap::decode(&bytes).unwrap();
        assert_eq!(read.pools[&1].pg_num_target, 8);
        assert_eq!(read.encode(), bytes);
    }
}

#[test]
fn crush_maps_that_stop_early_are_read() {
    use carmine_wire::crushmap::Extent;
    let whole = CrushMap::decode(&data("live-3osd/crushmap.bin")).unwrap();
    for extent in [
        Extent::Names,
        Extent::Tries,
        Extent::DescendOnce,
        Extent::VaryR,
        Extent::StrawCalc,
        Extent::Algs,
        Extent::Stable,
        Extent::Classes,
    ] {
        let bytes = CrushMap { extent, ..whole.clone() }.encode();
        let read = CrushMap::decode(&bytes).unwrap();
        assert_eq!((read.extent, read.encode()), (extent, bytes));
    }
}

#[test]
fn absurd_sizes_are_refused() {
    let mut crush = data("live-3osd/crushmap.bin");
    crush[4..8].copy_from_slice(&i32::MAX.to_le_bytes());
    assert!(CrushMap::decode(&crush).is_err());
    let mut crush = data("live-3osd/crushmap.bin");
    crush[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(CrushMap::decode(&crush).is_err());
    let map = OsdMap { max_osd: 1 << 30, ..OsdMap::default() };
    assert!(OsdMap::decode(&map.encode()).is_err());
}

/// Everything a pool can carry.
fn pool() -> impl Strategy<Value = PgPool> {
    use carmine_wire::osdmap::{PoolOpt, PoolSnap};
    let opt = prop_oneof![
        "[a-z]{0,8}".prop_map(PoolOpt::Text),
        any::<i64>().prop_map(PoolOpt::Int),
        (-1e9..1e9f64).prop_map(PoolOpt::Float)
    ];
    let small = (1..200u8, 0..4u8, 1..10_000u32, any::<u64>(), any::<[i64; 3]>(), any::<[u32; 7]>());
    (
        small,
        proptest::collection::btree_map(0..25i32, opt, 0..4),
        proptest::collection::btree_map("[a-z]{1,5}", Just(Default::default()), 0..3),
        proptest::collection::vec(any::<(u64, u64)>(), 0..4),
        proptest::collection::btree_map(any::<u64>(), "[a-z]{0,9}", 0..3),
    )
        .prop_map(|((size, rule, pg_num, flags, tiers, more), opts, applications, removed, snaps)| {
            let now = UTime { sec: more[0], nsec: more[1] };
            let mut pool = PgPool::replicated(size, size / 2, pg_num, rule, Epoch(more[2]), now);
            (pool.flags, pool.opts, pool.application_metadata) = (flags, opts, applications);
            [pool.tier_of, pool.read_tier, pool.write_tier] = tiers;
            pool.snaps =
                snaps.into_iter().map(|(id, name)| (id, PoolSnap { snapid: id, stamp: now, name })).collect();
            pool.removed_snaps = removed;
            pool.hit_set_params.raw.tail = vec![2, 1, 1, 0, 0, 0, 0];
            (pool.stripe_width, pool.last_force_op_resend) = (more[3], Epoch(more[4]));
            (pool.pg_num_target, pool.last_pg_merge_meta.ready_epoch) = (more[5], Epoch(more[6]));
            pool
        })
}

fn pg_lists() -> impl Strategy<Value = std::collections::BTreeMap<PgId, Vec<i32>>> {
    let pg = any::<(i64, u32)>().prop_map(|(pool, ps)| PgId::new(pool, ps));
    proptest::collection::btree_map(pg, proptest::collection::vec(any::<i32>(), 0..5), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn made_up_maps_round_trip(
        pools in proptest::collection::btree_map(any::<i64>(), pool(), 0..3),
        pins in pg_lists(),
        temps in pg_lists(),
        osds in 0..9u32,
        socks: Vec<(std::net::SocketAddr, u32)>,
        ratios: [f32; 3],
        flags in proptest::collection::btree_map(any::<i32>(), any::<u32>(), 0..3),
    ) {
        prop_assume!(ratios.iter().all(|ratio| !ratio.is_nan()));
        let mut map = OsdMap::new(Uuid([3; 16]), UTime { sec: 1, nsec: 2 });
        map.set_max_osd(osds);
        map.pools = pools.clone();
        map.pg_upmap = pins.clone();
        map.pg_temp = temps.clone();
        map.pg_upmap_items =
            pins.iter().map(|(pg, osds)| (*pg, osds.iter().map(|o| (*o, o ^ 1)).collect())).collect();
        map.primary_temp = temps.keys().map(|pg| (*pg, pg.ps as i32)).collect();
        map.blocklist =
            socks.iter().map(|(sock, n)| (EntityAddr::msgr2(*sock, *n), UTime::default())).collect();
        map.client_addrs.iter_mut().zip(&map.blocklist).for_each(|(a, (addr, _))| a.0.push(*addr));
        [map.full_ratio, map.nearfull_ratio, map.backfillfull_ratio] = ratios;
        map.crush_node_flags = flags.clone();
        let bytes = map.encode();
        let read = OsdMap::decode(&bytes)?;
        prop_assert_eq!(&read, &map);
        prop_assert_eq!(read.encode(), bytes);

        let mut inc = Incremental::next(&map, map.modified);
        (inc.new_pools, inc.new_pg_upmap, inc.new_pg_temp) = (pools, pins, temps);
        (inc.new_blocklist, inc.new_crush_node_flags) = (map.blocklist.clone(), flags);
        inc.crush = map.crush.encode();
        inc.full_crc = 0x1234;
        let bytes = inc.encode();
        let read = Incremental::decode(&bytes)?;
        prop_assert_eq!(&read, &inc);
        prop_assert_eq!(read.encode(), bytes);
        let next = inc.applied(&map)?;
        prop_assert_eq!(&OsdMap::decode(&next.encode())?, &*next);
    }
}

/// Real bytes to break: every kind of map.
fn victims() -> Vec<Vec<u8>> {
    let names = ["live-3osd/osdmap.bin", "live-1osd/mon-store/inc.6.bin", "live-1osd/mon-store/inc.7.bin"];
    let more = ["live-3osd/crushmap.bin", "live-1osd/monmap.bin", "live-1osd/mon-store/full.11.bin"];
    names.into_iter().chain(more).map(data).collect()
}

/// Puts the right checksums into a broken map, so that the damage reaches the fields.
fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..2 {
        let place = bytes.len().saturating_sub(4);
        let crc = match (OsdMap::decode(&bytes), Incremental::decode(&bytes)) {
            (Err(DecodeError::BadCrc { what: "osdmap", computed, .. }), _) => Some((place, computed)),
            (_, Err(DecodeError::BadCrc { computed, .. })) => Some((place.saturating_sub(4), computed)),
            _ => None,
        };
        if let Some(field) = crc.and_then(|(at, crc)| Some((bytes.get_mut(at..at + 4)?, crc))) {
            field.0.copy_from_slice(&field.1.to_le_bytes());
        }
    }
    bytes
}

/// Decodes as everything; what decodes must encode, and decode to the same again.
fn try_all(bytes: &[u8], base: &OsdMap) {
    if let Ok(map) = OsdMap::decode(bytes) {
        let again = map.encode();
        assert_eq!(OsdMap::decode(&again).map(|map| map.encode()), Ok(again));
    }
    if let Ok(inc) = Incremental::decode(bytes) {
        let again = inc.encode();
        assert_eq!(Incremental::decode(&again).map(|inc| inc.encode()), Ok(again));
        let mut base = base.clone();
        (base.fsid, base.epoch) = (inc.fsid, Epoch(inc.epoch.0.wrapping_sub(1)));
        if let Ok(next) = inc.applied(&base) {
            assert!(OsdMap::decode(&next.encode()).is_ok());
        }
    }
    if let Ok(map) = CrushMap::decode(bytes) {
        let again = map.encode();
        assert_eq!(CrushMap::decode(&again).map(|map| map.encode()), Ok(again));
    }
    if let Ok(map) = MonMap::decode(bytes) {
        let again = map.encode();
        assert_eq!(MonMap::decode(&again).map(|map| map.encode()), Ok(again));
    }
}

#[test]
fn every_truncation_and_every_flipped_byte_is_survived() {
    let base = OsdMap::decode(&data("live-3osd/osdmap.bin")).unwrap();
    for bytes in victims() {
        for len in 0..bytes.len() {
            try_all(&bytes[..len], &base);
        }
        for at in 0..bytes.len() {
            for value in [0, 0x7f, 0xff, bytes[at] ^ 1] {
                let mut broken = bytes.clone();
                broken[at] = value;
                try_all(&mended(broken), &base);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn broken_maps_never_panic(
        which in 0..6usize,
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<u32>(), 1..5usize), 1..8),
    ) {
        let base = OsdMap::decode(&data("live-3osd/osdmap.bin"))?;
        let mut bytes = victims().swap_remove(which);
        for (at, value, len) in cuts {
            let at = at.index(bytes.len());
            let end = (at + len.min(4)).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        try_all(&mended(bytes), &base);
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        try_all(&bytes, &OsdMap::default());
    }
}
