use super::pool::{PG_NUM_DEFAULT, check_pgs};
use super::*;
use crate::testing::{addrs_of, all_addrs, apply, cluster, now, up};
use carmine_crush::pg_mapping;
use carmine_types::{Epoch, PgId, errno};
use carmine_wire::FEATURES;
use carmine_wire::osdmap::PgPool;
use carmine_wire::osdmap::consts::{FLAG_NOOUT, STATE_AUTOOUT, STATE_EXISTS, WEIGHT_IN};

fn code(map: &OsdMap, change: Change) -> i32 {
    change.plan(map, now()).unwrap_err().code.0
}

#[test]
fn the_first_map() {
    let map = cluster(3);
    assert_eq!((map.epoch, map.max_osd, map.pool_max), (Epoch(1), 3, 1));
    assert_eq!(map.pool_id("bench"), Some(1));
    assert!(map.osds().all(|osd| map.is_in(osd) && !map.is_up(osd)));
    // A client crashes if this vector is shorter than max_osd.
    assert_eq!(map.osd_xinfo.len(), 3);
    assert_eq!(OsdMap::decode(&map.encode()), Ok(map));
}

#[test]
fn an_osd_comes_and_goes() {
    let mut map = cluster(2);
    up(&mut map, 0, 1);
    assert!(map.is_up(OsdId(0)) && !map.is_up(OsdId(1)));
    assert_eq!(map.osd_info[0].up_from, Epoch(2));
    assert_eq!(map.osd_xinfo[0].features, FEATURES);
    let addrs = all_addrs(map.client_addr(OsdId(0)).unwrap());
    let uuid = map.osd_uuid[0];
    // The same again changes nothing; another store under the same number is refused.
    assert!(Change::Boot { osd: OsdId(0), uuid, addrs: addrs.clone() }.plan(&map, now()).unwrap().is_none());
    assert_eq!(
        code(&map, Change::Boot { osd: OsdId(0), uuid: Uuid([7; 16]), addrs: addrs.clone() }),
        errno::EPERM
    );
    assert_eq!(code(&map, Change::Boot { osd: OsdId(9), uuid, addrs }), errno::ENOENT);
    let gone = Change::Down { osd: OsdId(0), addrs: addrs_of(0, 1), is_dead: true };
    let down = |osd, nonce| Change::Down { osd: OsdId(osd), addrs: addrs_of(osd, nonce), is_dead: false };
    assert!(!apply(&mut map, down(0, 9)), "an earlier start");
    assert!(apply(&mut map, gone.clone()));
    assert!(!map.is_up(OsdId(0)) && map.is_in(OsdId(0)), "down, but its PGs wait for it");
    assert_eq!((map.epoch, map.osd_info[0].down_at), (Epoch(3), Epoch(3)));
    assert!(!apply(&mut map, gone), "down already");
    assert_eq!(map.osd_xinfo[0].dead_epoch, Epoch(3));
    assert!(!apply(&mut map, down(99, 1)));
    up(&mut map, 0, 2);
    assert!(apply(&mut map, down(0, 2)));
    assert_eq!(map.osd_xinfo[0].dead_epoch, Epoch(3), "it may live");
}

#[test]
fn up_thru_only_rises_and_only_of_those_that_are_up() {
    let mut map = cluster(3);
    (0..2).for_each(|osd| up(&mut map, osd, 1));
    let ask = |osd, epoch| Change::UpThru { epochs: [(OsdId(osd), Epoch(epoch))].into() };
    assert!(apply(&mut map, ask(0, 3)));
    assert_eq!((map.up_thru(OsdId(0)), map.up_thru(OsdId(1))), (Epoch(3), Epoch(0)));
    for (osd, epoch) in [(0, 3), (0, 2), (2, 3), (99, 3)] {
        assert!(!apply(&mut map, ask(osd, epoch)), "osd.{osd} in {epoch}");
    }
}

#[test]
fn who_is_down_for_long_goes_out_and_comes_back_with_its_weight() {
    let mut map = cluster(4);
    (0..4).for_each(|osd| up(&mut map, osd, 1));
    let out = |osd| Change::AutoOut { osd: OsdId(osd) };
    assert!(!apply(&mut map, out(3)), "it is up");
    assert!(apply(&mut map, Change::Weight { osds: vec![OsdId(3)], weight: 0x8000 }));
    assert!(apply(&mut map, Change::MarkDown { osds: (1..4).map(OsdId).collect() }));
    assert!(apply(&mut map, Change::Flags { set: FLAG_NOOUT, clear: 0 }));
    assert!(!apply(&mut map, out(3)), "noout");
    assert!(apply(&mut map, Change::Flags { set: 0, clear: FLAG_NOOUT }));
    assert!(apply(&mut map, out(3)));
    assert_eq!((map.weight(OsdId(3)), map.state(OsdId(3))), (0, STATE_EXISTS | STATE_AUTOOUT));
    assert!(!apply(&mut map, out(3)), "it is out");
    assert!(apply(&mut map, out(2)));
    assert!(!apply(&mut map, out(1)), "half of all are out");
    up(&mut map, 3, 2);
    assert_eq!((map.weight(OsdId(3)), map.state(OsdId(3)) & STATE_AUTOOUT), (0x8000, 0));
    // An OSD that an operator took out stays out.
    assert!(apply(&mut map, Change::Weight { osds: vec![OsdId(1)], weight: 0 }));
    up(&mut map, 1, 2);
    assert!(!map.is_in(OsdId(1)));
}

#[test]
fn pools_come_and_go() {
    let mut map = cluster(3);
    let create = |name: &str, pg_num| Change::CreatePool {
        name: name.into(),
        pg_num,
        size: None,
        rule: 0,
        values: Vec::new(),
    };
    assert!(apply(&mut map, create("rbd", Some(8))));
    assert!(!apply(&mut map, create("rbd", Some(16))), "it exists: fine, unchanged");
    let pool = map.pool(2).unwrap();
    assert_eq!((pool.size, pool.pg_num, pool.last_change, map.pool_max), (3, 8, Epoch(2), 2));
    assert!(apply(&mut map, Change::EnableApp { pool: "rbd".into(), app: "rbd".into(), force: false }));
    let second = |force| Change::EnableApp { pool: "rbd".into(), app: "x".into(), force };
    assert_eq!(code(&map, second(false)), errno::EPERM);
    assert!(
        apply(&mut map, second(true))
            && apply(&mut map, Change::DisableApp { pool: "rbd".into(), app: "x".into() })
    );
    assert!(map.pool(2).unwrap().application_metadata.contains_key("rbd"));
    let value = |app: &str, key: &str, value: Option<&str>| Change::AppValue {
        pool: "rbd".into(),
        app: app.into(),
        key: key.into(),
        value: value.map(str::to_owned),
    };
    assert!(apply(&mut map, value("rbd", "key", Some("a value"))));
    assert!(!apply(&mut map, value("rbd", "key", Some("a value"))), "unchanged");
    assert_eq!(map.pool(2).unwrap().application_metadata["rbd"]["key"], "a value");
    assert!(apply(&mut map, value("rbd", "key", None)) && !apply(&mut map, value("rbd", "key", None)));
    assert!(map.pool(2).unwrap().application_metadata["rbd"].is_empty());
    assert_eq!(code(&map, value("rgw", "key", Some("v"))), errno::ENOENT);
    assert_eq!(code(&map, value("rbd", "key", Some(&"v".repeat(200)))), errno::EINVAL);
    for n in 0..64 {
        assert!(apply(&mut map, value("rbd", &n.to_string(), Some(""))));
    }
    assert_eq!(code(&map, value("rbd", "one-more", Some(""))), errno::EINVAL);
    assert!(apply(&mut map, Change::DeletePool { pool: 2 }));
    assert!(map.pool(2).is_none() && map.pool_id("rbd").is_none());
    // A number is never given twice: objects of the old pool may still be on disks.
    assert!(apply(&mut map, create("again", None)));
    assert_eq!((map.pool_id("again"), map.pool(3).unwrap().pg_num), (Some(3), PG_NUM_DEFAULT));
}

#[test]
fn osds_get_no_more_pgs_than_the_limit_allows() {
    let map = cluster(2);
    let refused = |name: &str, pg_num, size, limit| {
        let mut next = map.clone();
        let pool = Change::CreatePool {
            name: name.into(),
            pg_num: Some(pg_num),
            size: Some(size),
            rule: 0,
            values: Vec::new(),
        };
        apply(&mut next, pool);
        check_pgs(&map, &next, limit).map_err(|refusal| (refusal.code.0, refusal.text))
    };
    // There are 16 already, and at least three OSDs are counted.
    assert_eq!(refused("p", 512, 1, 250), Ok(()));
    let text = " pg_num 1024 size 1 would mean 1040 total pgs, which exceeds max 750 (mon_max_pg_per_osd 250 * num_in_osds 3)";
    assert_eq!(refused("p", 1024, 1, 250), Err((errno::ERANGE, text.to_owned())));
    assert_eq!(refused("p", 1024, 1, 1_000), Ok(()));
    assert!(refused("p", 65_536, 2, 250).is_err());
    let set = |size, limit| {
        let mut next = map.clone();
        apply(&mut next, Change::SetPool { pool: "bench".into(), size: Some(size), min_size: None });
        check_pgs(&map, &next, limit).map_err(|refusal| refusal.text)
    };
    let text = "pool id 1 pg_num 8 size 3 would mean 24 total pgs, which exceeds max 21 (mon_max_pg_per_osd 7 * num_in_osds 3)";
    assert_eq!((set(3, 8), set(3, 7)), (Ok(()), Err(text.to_owned())));
    assert_eq!(set(1, 1), Ok(()), "fewer copies are always fine");
    let mut other = map.clone();
    apply(&mut other, Change::Weight { osds: vec![OsdId(0)], weight: 0 });
    assert!(check_pgs(&map, &other, 1).is_ok(), "only pools are refused");
}

#[test]
fn there_are_no_more_pgs_than_a_view_places() {
    let mut map = cluster(2);
    let pool = map.pool(1).unwrap().clone();
    map.pools = (1..17).map(|id| (id, PgPool { pg_num_target: 65_536, size: 1, ..pool.clone() })).collect();
    let with_more = |pg_num| {
        let mut next = map.clone();
        next.pools.insert(17, PgPool { pg_num, pg_num_target: pg_num, ..pool.clone() });
        check_pgs(&map, &next, u32::MAX).map_err(|refusal| (refusal.code.0, refusal.text))
    };
    assert_eq!(with_more(0), Ok(()));
    let text = "there would be 1048577 PGs of all pools: OSDs and clients place at most 1048576";
    assert_eq!(with_more(1), Err((errno::ERANGE, text.to_owned())));
}

#[test]
fn bad_wishes_are_refused() {
    let map = cluster(2);
    let pool = |name: &str, pg_num, size| Change::CreatePool {
        name: name.into(),
        pg_num,
        size,
        rule: 0,
        values: Vec::new(),
    };
    assert_eq!(code(&map, pool("", None, None)), errno::EINVAL);
    for odd in ["-x", "a b", "ä", "a/b", &"x".repeat(500)] {
        assert!(pool(odd, None, None).plan(&map, now()).is_ok(), "{odd}");
    }
    for (pg_num, why) in [(0, errno::ERANGE), (1 << 17, errno::ERANGE)] {
        assert_eq!(code(&map, pool("p", Some(pg_num), None)), why);
    }
    assert_eq!(code(&map, pool("p", None, Some(11))), errno::EINVAL);
    assert!(pool("p", None, Some(3)).plan(&map, now()).is_ok(), "more than there are OSDs: undersized");
    assert_eq!(code(&map, pool("p", None, Some(0))), errno::EINVAL);
    let ruled =
        |rule| Change::CreatePool { name: "p".into(), pg_num: None, size: None, rule, values: Vec::new() };
    assert!(ruled(0).plan(&map, now()).is_ok());
    assert_eq!((code(&map, ruled(1)), code(&map, ruled(255))), (errno::ENOENT, errno::ENOENT));
    assert_eq!(
        code(&map, Change::EnableApp { pool: "none".into(), app: "rbd".into(), force: false }),
        errno::ENOENT
    );
    let set = |size, min_size| Change::SetPool { pool: "bench".into(), size, min_size };
    assert_eq!(code(&map, set(Some(11), None)), errno::EINVAL);
    assert_eq!(code(&map, set(None, Some(3))), errno::EINVAL);
    assert!(set(None, Some(2)).plan(&map, now()).unwrap().is_some());
}

fn cluster_up(osds: u32) -> OsdMap {
    let mut map = cluster(osds);
    (0..osds).for_each(|osd| up(&mut map, osd, 1));
    map
}

#[test]
fn a_pool_grows_and_shrinks() {
    let mut map = cluster_up(4);
    let set_size = |map: &mut OsdMap, size| {
        apply(map, Change::SetPool { pool: "bench".into(), size: Some(size), min_size: None })
    };
    let members = |map: &OsdMap| pg_mapping(map, PgId::new(1, 0)).acting.to_vec();
    let before = members(&map);
    assert!(set_size(&mut map, 2));
    let pool = map.pool(1).unwrap();
    assert_eq!((pool.size, pool.min_size, pool.last_change), (2, 1, map.epoch));
    assert_eq!(members(&map), before[..2]);
    assert!(!set_size(&mut map, 2), "it is so already");
    assert!(set_size(&mut map, 4));
    assert_eq!(members(&map), before);
}

#[test]
fn a_pg_goes_where_the_map_says() {
    let mut map = cluster_up(4);
    apply(&mut map, Change::SetPool { pool: "bench".into(), size: Some(2), min_size: None });
    let pg = PgId::new(1, 0);
    let wanted = |map: &OsdMap| pg_mapping(map, pg).wanted.to_vec();
    let before = wanted(&map);
    let others: Vec<u32> = (0..4).filter(|osd| !before.contains(&(*osd as i32))).collect();
    let items = vec![(OsdId(before[1] as u32), OsdId(others[0]))];
    let osds = others.iter().copied().map(OsdId).collect();
    for (upmap, there, end) in [
        (Upmap::Items(items), vec![before[0], others[0] as i32], Upmap::Items(Vec::new())),
        (Upmap::Osds(osds), vec![others[0] as i32, others[1] as i32], Upmap::Osds(Vec::new())),
    ] {
        let wish = |upmap: &Upmap| Change::Upmap { pg, upmap: upmap.clone() };
        assert!(apply(&mut map, wish(&upmap)) && !apply(&mut map, wish(&upmap)), "it is so already");
        assert_eq!(wanted(&map), there);
        assert!(apply(&mut map, wish(&end)) && !apply(&mut map, wish(&end)), "there is none");
        assert_eq!(wanted(&map), before);
    }
}

#[test]
fn osds_are_called_down() {
    let mut map = cluster_up(3);
    let both = Change::MarkDown { osds: vec![OsdId(0), OsdId(2)] };
    assert!(apply(&mut map, both.clone()));
    assert!(!map.is_up(OsdId(0)) && map.is_up(OsdId(1)) && !map.is_up(OsdId(2)));
    assert!(!apply(&mut map, both), "down already");
    assert_eq!(code(&map, Change::MarkDown { osds: vec![OsdId(3)] }), errno::ENOENT);
    up(&mut map, 0, 2);
    assert!(map.is_up(OsdId(0)), "it boots again");
}

#[test]
fn flags_are_set_and_cleared() {
    let mut map = cluster(1);
    let before = map.flags;
    assert!(apply(&mut map, Change::Flags { set: 0x880, clear: 0 }));
    assert_eq!(map.flags, before | 0x880);
    assert!(!apply(&mut map, Change::Flags { set: 0x80, clear: 0 }));
    assert!(apply(&mut map, Change::Flags { set: 0, clear: 0x880 }));
    assert_eq!(map.flags, before);
}

/// Thresholds 0.85, 0.90 and 0.95 as in Ceph.
#[test]
fn the_fullest_osd_decides_what_the_pools_say() {
    use carmine_wire::osdmap::consts::{POOL_BACKFILLFULL, POOL_FULL, POOL_NEARFULL};
    let mut map = cluster(2);
    (0..2).for_each(|osd| up(&mut map, osd, 1));
    let used = |osd, used_bytes| Change::Fullness { osd: OsdId(osd), used_bytes, total_bytes: 100 };
    let flags = |map: &OsdMap| map.pools[&1].flags & (POOL_FULL | POOL_BACKFILLFULL | POOL_NEARFULL);
    assert!(!apply(&mut map, used(0, 84)));
    for (osd, percent, wanted) in [
        (0, 85, POOL_NEARFULL),
        (1, 95, POOL_FULL),
        (0, 91, POOL_FULL),
        (1, 10, POOL_BACKFILLFULL),
        (0, 20, 0),
    ] {
        assert!(apply(&mut map, used(osd, percent)), "osd.{osd} at {percent} %");
        assert_eq!(flags(&map), wanted, "osd.{osd} at {percent} %");
        assert!(!apply(&mut map, used(osd, percent)), "told twice");
        assert!(map.is_up(OsdId(0)) && map.is_up(OsdId(1)));
    }
}

/// As in Ceph: what an OSD said before it died or went out keeps nobody from writing, until it is back.
#[test]
fn a_full_osd_that_is_down_or_out_does_not_count() {
    use carmine_wire::osdmap::consts::POOL_FULL;
    let mut map = cluster_up(3);
    let pool = Change::CreatePool { name: "p".into(), pg_num: None, size: None, rule: 0, values: Vec::new() };
    assert!(apply(&mut map, pool));
    let is_full = |map: &OsdMap| map.pools.values().all(|pool| pool.flags & POOL_FULL != 0);
    let is_free = |map: &OsdMap| map.pools.values().all(|pool| pool.flags & POOL_FULL == 0);
    assert!(apply(&mut map, Change::Fullness { osd: OsdId(1), used_bytes: 97, total_bytes: 100 }));
    assert!(is_full(&map));
    let weight = |weight| Change::Weight { osds: vec![OsdId(1)], weight };
    assert!(apply(&mut map, weight(0)) && is_free(&map), "it is out");
    assert!(apply(&mut map, weight(0x10000)) && is_full(&map), "it is in");
    assert!(apply(&mut map, Change::MarkDown { osds: vec![OsdId(1)] }) && is_free(&map), "it is down");
    up(&mut map, 1, 2);
    assert!(is_full(&map), "it is up, and has not said yet that it has room");
    assert!(apply(&mut map, Change::Fullness { osd: OsdId(1), used_bytes: 1, total_bytes: 100 }));
    assert!(is_free(&map));
}

fn client(nonce: u32) -> EntityAddr {
    EntityAddr { nonce, ..EntityAddr::parse_any("127.0.0.1").unwrap() }
}

fn later(seconds: u32) -> UTime {
    UTime { sec: now().sec + seconds, ..now() }
}

#[test]
fn clients_are_kept_out_until_their_time() {
    let mut map = cluster(1);
    assert!(apply(&mut map, Change::Blocklist { addr: client(1), until: later(10) }));
    assert!(apply(&mut map, Change::Blocklist { addr: client(2), until: later(0) }));
    assert!(!apply(&mut map, Change::Blocklist { addr: client(1), until: later(99) }), "it is there");
    assert!(map.is_blocklisted(&client(1)) && map.is_blocklisted(&client(2)));
    assert!(apply(&mut map, Change::ExpireBlocklist));
    assert_eq!(map.blocklist, [(client(1), later(10))]);
    assert!(!apply(&mut map, Change::ExpireBlocklist));
    assert!(apply(&mut map, Change::Unblocklist { addr: client(1) }));
    assert!(!map.is_blocklisted(&client(1)));
    assert!(!apply(&mut map, Change::ClearBlocklist));
    let refusal = Change::Unblocklist { addr: client(1) }.plan(&map, now()).unwrap_err();
    assert_eq!((refusal.code.0, &*refusal.text), (errno::ENOENT, "127.0.0.1:0/1 isn't blocklisted"));
}

#[test]
fn pools_are_renamed_and_kept() {
    let mut map = cluster_up(2);
    let rename = |from: &str, to: &str| Change::RenamePool { pool: from.into(), to: to.into() };
    assert!(apply(&mut map, rename("bench", "a name/of its own")));
    assert_eq!((map.pool_id("a name/of its own"), map.pool_id("bench")), (Some(1), None));
    assert_eq!(code(&map, rename("bench", "b")), errno::ENOENT);
    assert_eq!(code(&map, rename("a name/of its own", "a name/of its own")), errno::EEXIST);
    assert!(!apply(&mut map, rename("bench", "a name/of its own")), "done before");
    assert!(apply(&mut map, rename("a name/of its own", "bench")));
    let value = |var: &str, value: &str| Change::PoolValue {
        pool: "bench".into(),
        var: var.into(),
        value: value.into(),
    };
    assert!(apply(&mut map, value("nodelete", "1")) && apply(&mut map, value("nosizechange", "true")));
    assert_eq!(code(&map, Change::DeletePool { pool: 1 }), errno::EPERM);
    assert_eq!(
        code(&map, Change::SetPool { pool: "bench".into(), size: Some(1), min_size: None }),
        errno::EPERM
    );
    assert!(apply(&mut map, value("nodelete", "false")) && apply(&mut map, Change::DeletePool { pool: 1 }));
}

#[test]
fn a_quota_makes_a_pool_full() {
    use carmine_wire::osdmap::consts::{POOL_FULL, POOL_FULL_QUOTA};
    use carmine_wire::pg_stat::ObjectStatSum;
    let mut map = cluster_up(2);
    let held = |num_objects| [(1, ObjectStatSum { num_objects, ..ObjectStatSum::default() })].into();
    assert!(quota::due(&map, &held(9)).is_empty());
    let quota = |objects| Change::Quota {
        pool: "bench".into(),
        quota: Quota { objects: Some(objects), bytes: None },
    };
    assert!(apply(&mut map, quota(10)));
    assert!(quota::due(&map, &held(9)).is_empty());
    for news in quota::due(&map, &held(10)) {
        assert!(apply(&mut map, news));
    }
    assert_eq!(map.pool(1).unwrap().flags & (POOL_FULL | POOL_FULL_QUOTA), POOL_FULL | POOL_FULL_QUOTA);
    // An OSD that says how full it is leaves that as it is.
    let roomy = Change::Fullness { osd: OsdId(0), used_bytes: 90, total_bytes: 100 };
    assert!(apply(&mut map, roomy) && map.pool(1).unwrap().flags & POOL_FULL != 0);
    assert!(quota::due(&map, &held(10)).is_empty());
    assert!(apply(&mut map, quota(0)));
    for news in quota::due(&map, &held(10)) {
        assert!(apply(&mut map, news));
    }
    assert_eq!(map.pool(1).unwrap().flags & (POOL_FULL | POOL_FULL_QUOTA), 0);
}

#[test]
fn rules_and_profiles_come_and_go() {
    let mut map = cluster_up(2);
    let create = |name: &str, root: &str, kind: &str| {
        Change::Rule(RuleEdit::Create {
            name: name.into(),
            root: root.into(),
            kind: kind.into(),
            class: None,
        })
    };
    assert!(
        apply(&mut map, create("r", "default", "osd")) && !apply(&mut map, create("r", "default", "osd"))
    );
    assert_eq!(code(&map, create("s", "nothing", "osd")), errno::ENOENT);
    assert_eq!(code(&map, create("s", "default", "tea")), errno::EINVAL);
    let pool = Change::CreatePool { name: "p".into(), pg_num: None, size: None, rule: 1, values: Vec::new() };
    assert!(apply(&mut map, pool));
    let remove = |name: &str| Change::Rule(RuleEdit::Remove { name: name.into() });
    assert_eq!(
        (code(&map, remove("r")), code(&map, remove("replicated_rule"))),
        (errno::EBUSY, errno::EBUSY)
    );
    assert!(apply(&mut map, Change::DeletePool { pool: 2 }));
    let rename = |name: &str, to: &str| Change::Rule(RuleEdit::Rename { name: name.into(), to: to.into() });
    assert!(
        apply(&mut map, rename("r", "s")) && apply(&mut map, remove("s")) && !apply(&mut map, remove("s"))
    );
    let set = |pairs: &[&str], force| Change::SetProfile {
        name: "p".into(),
        profile: profile::filled(pairs),
        force,
    };
    assert!(apply(&mut map, set(&["k=3"], false)) && !apply(&mut map, set(&["k=3"], false)));
    assert_eq!(code(&map, set(&["k=4"], false)), errno::EPERM);
    assert_eq!(code(&map, set(&["plugin=tea"], true)), errno::EIO);
    assert!(
        apply(&mut map, set(&["k=4"], true)) && apply(&mut map, Change::RemoveProfile { name: "p".into() })
    );
}

#[test]
fn noup_keeps_an_osd_down() {
    let mut map = cluster(2);
    assert!(apply(&mut map, Change::Flags { set: 0x20, clear: 0 }));
    let boot = Change::Boot { osd: OsdId(0), uuid: Uuid([1; 16]), addrs: all_addrs(&addrs_of(0, 1)) };
    assert_eq!(code(&map, boot), errno::EAGAIN);
}

#[test]
fn a_new_osd_gets_a_number_and_then_a_place() {
    let mut map = cluster(3);
    (0..3).for_each(|osd| up(&mut map, osd, 1));
    let new = |osd, uuid| Change::NewOsd { osd: OsdId(osd), uuid: Uuid([uuid; 16]) };
    let at =
        |osd| [("host".to_owned(), format!("host-{osd}")), ("root".to_owned(), "default".to_owned())].into();
    let place = |osd| {
        let how = tree::Placing::Add;
        Change::Tree(TreeEdit::Place { osd: OsdId(osd), weight: WEIGHT_IN, at: at(osd), how })
    };
    assert_eq!(code(&map, place(3)), errno::ENOENT);
    assert!(apply(&mut map, new(3, 9)));
    assert!(!apply(&mut map, new(3, 9)), "it is known");
    assert_eq!(code(&map, new(3, 8)), errno::EEXIST);
    assert_eq!(code(&map, new(10_000, 8)), errno::ERANGE);
    assert_eq!((map.max_osd, map.is_up(OsdId(3))), (4, false));
    assert!(apply(&mut map, place(3)));
    assert!(!apply(&mut map, place(3)), "it is there");
    let moves = (0..8).any(|ps| pg_mapping(&map, PgId::new(1, ps)).wanted.contains(&3));
    assert!(moves && map.pg_temp.is_empty(), "it is for the primaries to ask who serves meanwhile");
    assert!(apply(&mut map, Change::Purge { osd: OsdId(3) }));
    assert!(apply(&mut map, new(3, 9)) && apply(&mut map, place(3)), "its number is free again");
}

/// The flags of a group count for its OSDs only.
#[test]
fn osds_are_barred_by_their_own_flags_those_of_their_host_and_of_their_class() {
    use group::{Group, NODOWN, NOIN, NOOUT, NOUP};
    let mut map = cluster(3);
    (0..3).for_each(|osd| up(&mut map, osd, 1));
    assert!(apply(
        &mut map,
        Change::Class(ClassEdit::Set { osds: vec![OsdId(1)], class: Some("fast".into()) })
    ));
    let osd = Group { osds: vec![OsdId(0)], ..Group::default() };
    let class = Group { classes: vec![0], ..Group::default() };
    let host = Group { nodes: vec![-2], ..Group::default() };
    let set = |group: &Group, bits, is_set| Change::Group { group: group.clone(), bits, is_set };
    let held =
        |map: &OsdMap, bar: group::Bar| (0..3).filter(|osd| bar.holds(map, OsdId(*osd))).collect::<Vec<_>>();
    for (group, bar, whom) in [(&osd, NOUP, vec![0]), (&class, NOIN, vec![1]), (&host, NOOUT, vec![0, 1, 2])]
    {
        assert!(apply(&mut map, set(group, bar.of_osd, true)));
        assert!(!apply(&mut map, set(group, bar.of_osd, true)), "it is so already");
        assert_eq!(held(&map, bar), whom, "{}", bar.name);
    }
    assert!(held(&map, NODOWN).is_empty());
    // osd.0 goes down, and does not come back, nor out.
    assert!(apply(&mut map, Change::MarkDown { osds: vec![OsdId(0)] }));
    let boot =
        |osd| Change::Boot { osd: OsdId(osd), uuid: Uuid([1; 16]), addrs: all_addrs(&addrs_of(osd, 2)) };
    assert_eq!(code(&map, boot(0)), errno::EAGAIN);
    assert!(!apply(&mut map, Change::AutoOut { osd: OsdId(0) }));
    assert!(
        apply(&mut map, set(&host, NOOUT.of_osd, false)) && apply(&mut map, set(&osd, NOUP.of_osd, false))
    );
    assert!(apply(&mut map, Change::AutoOut { osd: OsdId(0) }));
    assert!(apply(&mut map, set(&osd, NOIN.of_osd, true)));
    assert!(!map.is_in(OsdId(0)));
}

#[test]
fn osds_leave_the_list_and_its_end_follows() {
    let mut map = cluster(3);
    (0..2).for_each(|osd| up(&mut map, osd, 1));
    let remove = |osd| Change::RemoveOsds { osds: vec![OsdId(osd)] };
    assert_eq!(code(&map, remove(0)), errno::EBUSY);
    assert_eq!(code(&map, Change::MaxOsd { max: 2 }), errno::EBUSY);
    assert_eq!(code(&map, Change::MaxOsd { max: 10_001 }), errno::ERANGE);
    assert!(apply(&mut map, remove(2)) && !apply(&mut map, remove(2)));
    assert!(apply(&mut map, Change::MaxOsd { max: 2 }) && !apply(&mut map, Change::MaxOsd { max: 2 }));
    assert_eq!((map.max_osd, map.osds().count()), (2, 2));
}
