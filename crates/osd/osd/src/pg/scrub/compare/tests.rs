use proptest::prelude::*;

use super::*;

const PRIMARY: OsdId = OsdId(1);

fn scanned(n: u8) -> Scanned {
    Scanned {
        oid: ObjectId::head(1, b"", b"", &[b'a' + n]),
        size: 4096 + u64::from(n),
        version: Eversion::new(3, 7),
        user_version: 7,
        mtime: UTime { sec: 5, nsec: 0 },
        attr_names: 1,
        attrs: 2,
        omap: 3,
        omap_size: carmine_pgtypes::OmapSize::default(),
        data: 4,
        stat_error: false,
        read_error: false,
    }
}

/// Members 0.. with the same objects.
fn maps(members: u32, objects: u8) -> BTreeMap<OsdId, Map> {
    let map: Map = (0..objects).map(scanned).map(|object| (object.oid.clone(), object)).collect();
    (0..members).map(|osd| (OsdId(osd), map.clone())).collect()
}

/// Damage that can happen to one copy of an object.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Gone,
    Size,
    Version,
    Name,
    Value,
    Omap,
    Data,
    Unreadable,
    NoMeta,
}

const HARMS: [Harm; 9] = [
    Harm::Gone,
    Harm::Size,
    Harm::Version,
    Harm::Name,
    Harm::Value,
    Harm::Omap,
    Harm::Data,
    Harm::Unreadable,
    Harm::NoMeta,
];

fn harm(maps: &mut BTreeMap<OsdId, Map>, osd: u32, n: u8, harm: Harm) {
    let map = maps.get_mut(&OsdId(osd)).unwrap();
    let oid = scanned(n).oid;
    if matches!(harm, Harm::Gone) {
        map.remove(&oid);
        return;
    }
    let object = map.get_mut(&oid).unwrap();
    match harm {
        Harm::Gone => {}
        Harm::Size => object.size += 1,
        Harm::Version => object.version.version -= 1,
        Harm::Name => object.attr_names += 1,
        Harm::Value => object.attrs += 1,
        Harm::Omap => object.omap += 1,
        Harm::Data => object.data += 1,
        Harm::Unreadable => object.read_error = true,
        Harm::NoMeta => *object = Scanned { stat_error: true, size: 0, ..object.clone() },
    }
}

/// Errors of the object, the wrong copies with theirs, and whose copy is right.
fn errors(maps: &BTreeMap<OsdId, Map>) -> (u64, Vec<(u32, u64)>, Option<u32>) {
    let mut found = compare(PRIMARY, true, maps);
    assert_eq!(found.len(), 1, "{found:?}");
    let Inconsistent { object, wrong, authority } = found.remove(0);
    let copies = object.copies.iter().filter(|(osd, _)| wrong.contains(osd));
    (object.errors, copies.map(|(osd, copy)| (osd.0, copy.errors)).collect(), authority.map(|(osd, _)| osd.0))
}

#[test]
fn each_kind_of_damage_is_named() {
    use copy_errors::{DATA_DIGEST, MISSING, OMAP_DIGEST, READ_ERROR, SIZE, STAT_ERROR};
    use object_errors::{
        ATTR_NAME_MISMATCH, ATTR_VALUE_MISMATCH, DATA_DIGEST_MISMATCH, OMAP_DIGEST_MISMATCH, SIZE_MISMATCH,
    };
    let named = [
        (Harm::Gone, 0, MISSING),
        (Harm::Size, SIZE_MISMATCH, SIZE),
        (Harm::Version, 0, STAT_ERROR),
        (Harm::Name, ATTR_NAME_MISMATCH, 0),
        (Harm::Value, ATTR_VALUE_MISMATCH, 0),
        (Harm::Omap, OMAP_DIGEST_MISMATCH, OMAP_DIGEST),
        (Harm::Data, DATA_DIGEST_MISMATCH, DATA_DIGEST),
        (Harm::Unreadable, 0, READ_ERROR),
        (Harm::NoMeta, 0, STAT_ERROR),
    ];
    for (kind, object, copy) in named {
        let mut maps = maps(3, 2);
        harm(&mut maps, 2, 1, kind);
        assert_eq!(errors(&maps), (object, vec![(2, copy)], Some(1)), "{kind:?}");
    }
}

#[test]
fn a_scrub_that_is_not_deep_says_nothing_of_data() {
    let mut maps = maps(3, 2);
    harm(&mut maps, 0, 0, Harm::Data);
    assert_eq!(compare(PRIMARY, false, &maps), []);
}

#[test]
fn the_readable_copy_is_right_then_the_majority_then_the_primary() {
    // The only one that can be read, against two that agree with each other.
    let mut two_bad = maps(3, 1);
    harm(&mut two_bad, 0, 0, Harm::Unreadable);
    harm(&mut two_bad, 1, 0, Harm::Unreadable);
    assert_eq!(errors(&two_bad).2, Some(2));
    // Two replicas against the primary.
    let mut primary_bad = maps(3, 1);
    harm(&mut primary_bad, 1, 0, Harm::Value);
    assert_eq!(errors(&primary_bad).2, Some(0));
    // Two opinions.
    let mut even = maps(2, 1);
    harm(&mut even, 0, 0, Harm::Value);
    assert_eq!(errors(&even).2, Some(1));
    // No copy at all.
    let mut none = maps(2, 1);
    (0..2).for_each(|osd| harm(&mut none, osd, 0, Harm::Unreadable));
    assert_eq!(errors(&none).2, None);
}

#[test]
fn an_object_that_one_member_has_is_missing_on_the_others() {
    let mut maps = maps(3, 1);
    (0..2).for_each(|osd| harm(&mut maps, osd, 0, Harm::Gone));
    assert_eq!(errors(&maps), (0, vec![(0, copy_errors::MISSING), (1, copy_errors::MISSING)], Some(2)));
}

proptest! {
    #[test]
    fn equal_copies_are_well(members in 1..5u32, objects in 0..6u8, deep: bool) {
        prop_assert_eq!(compare(PRIMARY, deep, &maps(members, objects)), vec![]);
    }

    /// Whatever happens to whichever copies: exactly the objects that were harmed are found, unless all copies were
    /// harmed alike; and the authoritative copy can be read, if any can.
    #[test]
    fn what_was_harmed_is_found(
        members in 2..5u32,
        harms in prop::collection::btree_map((0..5u32, 0..4u8), prop::sample::select(&HARMS[..]), 1..8),
    ) {
        let mut maps = maps(members, 4);
        for ((osd, n), kind) in harms.iter().filter(|((osd, _), _)| *osd < members) {
            harm(&mut maps, *osd, *n, *kind);
        }
        let found = compare(PRIMARY, true, &maps);
        for n in 0..4 {
            let oid = scanned(n).oid;
            let copies: Vec<Option<&Scanned>> = maps.values().map(|map| map.get(&oid)).collect();
            let is_well = copies.iter().all(|copy| *copy == copies[0] && copy.is_none_or(is_readable));
            let told = found.iter().find(|found| found.object.oid == oid);
            prop_assert_eq!(told.is_none(), is_well, "{:?}", copies);
            let Some(told) = told else { continue };
            let readable = copies.iter().flatten().any(|copy| is_readable(copy));
            prop_assert_eq!(told.authority.is_some(), readable);
            if let Some((osd, right)) = &told.authority {
                prop_assert!(is_readable(right) && maps[osd].get(&oid) == Some(right));
                prop_assert!(!told.wrong.contains(osd));
            }
        }
    }
}
