//! Maps that no monitor would make: placement ends, soon, with an error or a short list, and never panics.

use std::collections::BTreeMap;
use std::sync::Arc;

use carmine_crush::print::{PgColumns, pgs_dump, print_map};
use carmine_crush::{CrushError, MapView, WORK_MAX, build_simple_crush, do_rule, pg_mapping};
use carmine_types::{Epoch, NO_OSD, OsdId, PgId, UTime};
use carmine_wire::crushmap::{Bucket, BucketKind, ChooseArg, CrushMap, Rule, RuleStep, Tunables};
use carmine_wire::osdmap::{OsdMap, PgPool};
use proptest::prelude::*;

const ONE: u32 = 0x1_0000;

fn simple(osds: u32) -> CrushMap {
    let osds: Vec<(OsdId, u32)> = (0..osds).map(|osd| (OsdId(osd), ONE)).collect();
    build_simple_crush(&osds, true)
}

fn with_steps(mut map: CrushMap, steps: Vec<RuleStep>) -> CrushMap {
    map.rules[0].as_mut().unwrap().steps = steps;
    map
}

fn run(map: &CrushMap, replicas: usize) -> Result<Vec<i32>, CrushError> {
    do_rule(map, 0, 42, replicas, &[ONE; 64], None)
}

#[test]
fn a_missing_rule_is_named() {
    let error = do_rule(&simple(3), 7, 1, 3, &[], None).unwrap_err();
    assert_eq!(error.to_string(), "crush map has no rule 7");
}

#[test]
fn cycles_end_with_an_error() {
    let mut map = simple(3);
    // Host 0 holds only the root: no way down to an OSD.
    for host in map.buckets.iter_mut().flatten().filter(|b| b.id != -1) {
        host.items = vec![-1];
    }
    assert_eq!(
        run(
            &with_steps(map.clone(), vec![RuleStep::Take(-1), RuleStep::ChooseFirstn(0, 0), RuleStep::Emit]),
            3
        ),
        Err(CrushError::Overworked { limit: WORK_MAX })
    );
    assert_eq!(
        run(&with_steps(map, vec![RuleStep::Take(-1), RuleStep::ChooseLeafIndep(0, 1), RuleStep::Emit]), 3),
        Err(CrushError::Overworked { limit: WORK_MAX })
    );
}

#[test]
fn absurd_tries_end() {
    let mut map = simple(3);
    map.tunables = Tunables { choose_total_tries: u32::MAX, ..Tunables::default() };
    // Ten replicas of three hosts: the last seven can never be found.
    assert_eq!(run(&map, 10), Err(CrushError::Overworked { limit: WORK_MAX }));
    let steps = vec![
        RuleStep::SetChooseTries(i32::MAX),
        RuleStep::SetChooseLeafTries(i32::MAX),
        RuleStep::SetChooseLocalTries(i32::MAX),
        RuleStep::SetChooseLocalFallbackTries(i32::MAX),
        RuleStep::Take(-1),
        RuleStep::ChooseLeafIndep(i32::MAX, 1),
        RuleStep::Emit,
    ];
    assert_eq!(run(&with_steps(map.clone(), steps), 255), Err(CrushError::Overworked { limit: WORK_MAX }));
    for bucket in map.buckets.iter_mut().flatten() {
        bucket.items.clear();
    }
    assert!(run(&map, 3).is_err());
    map.tunables = Tunables::default();
    assert_eq!(run(&map, 3), Ok(vec![]), "empty buckets");
}

#[test]
fn items_that_are_nowhere_give_up() {
    let mut map = simple(3);
    map.buckets[0].as_mut().unwrap().items = vec![-77, 99, i32::MAX, i32::MIN];
    if let BucketKind::Straw2 { weights } = &mut map.buckets[0].as_mut().unwrap().kind {
        *weights = vec![ONE; 4];
    }
    assert_eq!(run(&map, 3), Ok(vec![]));
    let indep = with_steps(map, vec![RuleStep::Take(-1), RuleStep::ChooseLeafIndep(0, 1), RuleStep::Emit]);
    assert_eq!(run(&indep, 3), Ok(vec![NO_OSD; 3]));
    assert_eq!(run(&with_steps(indep.clone(), vec![RuleStep::Take(-9), RuleStep::Emit]), 3), Ok(vec![]));
    assert_eq!(
        run(&with_steps(indep, vec![RuleStep::Take(2), RuleStep::Emit, RuleStep::Emit]), 3),
        Ok(vec![2])
    );
}

#[test]
fn a_pool_whose_rule_does_not_end_has_no_osds() {
    let mut map = OsdMap { epoch: Epoch(1), crush: Arc::new(simple(3)), ..OsdMap::default() };
    map.set_max_osd(3);
    map.osd_state.fill(3);
    map.osd_weight.fill(ONE);
    map.pools.insert(1, PgPool::replicated(3, 1, 4, 0, Epoch(1), UTime::default()));
    assert_eq!(pg_mapping(&map, PgId::new(1, 0)).acting.len(), 3);
    let mut crush = CrushMap::clone(&map.crush);
    crush.tunables.choose_total_tries = u32::MAX;
    map.crush = Arc::new(crush);
    map.osd_weight.fill(0);
    assert!(pg_mapping(&map, PgId::new(1, 0)).acting.is_empty());
    // A view gives up after a few.
    map.pools.get_mut(&1).unwrap().pg_num = 100_000;
    assert_eq!(MapView::new(Arc::new(map)).pgs_of(OsdId(0)).count(), 0);
}

/// A view over pools with billions of PGs keeps only what fits.
#[test]
fn a_view_of_huge_pools_is_small() {
    let mut map = OsdMap { crush: Arc::new(simple(3)), ..OsdMap::default() };
    map.set_max_osd(3);
    map.osd_state.fill(3);
    map.osd_weight.fill(ONE);
    for id in 0..20 {
        map.pools.insert(id, PgPool::replicated(1, 1, u32::MAX - id as u32, 0, Epoch(1), UTime::default()));
    }
    map.pools.insert(99, PgPool::replicated(1, 1, 4, 0, Epoch(1), UTime::default()));
    let view = MapView::new(Arc::new(map));
    assert!(view.mapping(PgId::new(3, 5)).acting.is_empty());
    assert_eq!((view.pgs().count(), view.acting_primary(PgId::new(99, 3)).is_some()), (4, true));
}

fn step() -> impl Strategy<Value = RuleStep> {
    let n = prop_oneof![4 => -3..6i32, 1 => any::<i32>()];
    let kind = prop_oneof![4 => 0..4i32, 1 => any::<i32>()];
    (0..14u32, n, kind, -8..4i32).prop_map(|(op, n, kind, item)| match op {
        0..3 => RuleStep::Take(item),
        3 => RuleStep::ChooseFirstn(n, kind),
        4 => RuleStep::ChooseIndep(n, kind),
        5 | 6 => RuleStep::Emit,
        7 => RuleStep::ChooseLeafFirstn(n, kind),
        8 => RuleStep::ChooseLeafIndep(n, kind),
        9 => RuleStep::SetChooseTries(n),
        10 => RuleStep::SetChooseLeafTries(n),
        11 => RuleStep::SetChooseLocalTries(n),
        12 => RuleStep::SetChooseLocalFallbackTries(n),
        _ => RuleStep::SetChooseLeafVaryR(n),
    })
}

/// A bucket in slot `slot` whose own vectors need not fit its items.
fn bucket(slot: usize) -> impl Strategy<Value = Option<Bucket>> {
    let item = prop_oneof![8 => -8..12i32, 1 => any::<i32>()];
    let weights = || proptest::collection::vec(prop_oneof![Just(0), Just(ONE), any::<u32>()], 0..6);
    let parts = (0..7u8, 0..4u16, proptest::collection::vec(item, 0..6), weights(), weights());
    parts.prop_map(move |(alg, kind_id, items, a, b)| {
        let kind = match alg {
            0 => return None,
            1 => BucketKind::Uniform { item_weight: a.len() as u32 },
            2 => BucketKind::List { weights: a, sums: b },
            3 => BucketKind::Tree { nodes: a.into_iter().chain(b).collect() },
            4 => BucketKind::Straw { weights: a, straws: b },
            _ => BucketKind::Straw2 { weights: a },
        };
        Some(Bucket { id: -1 - slot as i32, kind_id, hash: 0, weight: 0, items, kind })
    })
}

fn crush() -> impl Strategy<Value = CrushMap> {
    let buckets: Vec<_> = (0..6).map(bucket).collect();
    let args = (
        proptest::collection::vec(proptest::collection::vec(any::<u32>(), 0..6), 0..3),
        proptest::collection::vec(any::<i32>(), 0..6),
    );
    (buckets, proptest::collection::vec(step(), 0..8), 0..12i32, any::<[u8; 5]>(), args).prop_map(
        |(buckets, steps, max_devices, t, (weight_sets, ids))| CrushMap {
            max_devices,
            buckets,
            rules: vec![Some(Rule { ruleset: 0, kind: 1, min_size: 0, max_size: 255, steps })],
            tunables: Tunables {
                choose_local_tries: u32::from(t[0]) % 4,
                choose_local_fallback_tries: u32::from(t[1]) % 7,
                choose_total_tries: u32::from(t[2]),
                chooseleaf_descend_once: u32::from(t[3]) & 1,
                chooseleaf_vary_r: t[4],
                chooseleaf_stable: t[3] & 2,
                ..Tunables::default()
            },
            choose_args: BTreeMap::from([(-1, BTreeMap::from([(0, ChooseArg { weight_sets, ids })]))]),
            ..CrushMap::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_map_ends(
        crush in crush(), x: u32, size: u8, weights in proptest::collection::vec(0..=ONE, 0..12), pins: [i32; 4],
    ) {
        let found = do_rule(&crush, 0, x, size.into(), &weights, crush.choose_args.get(&-1));
        if let Ok(osds) = &found {
            prop_assert!(osds.len() <= size.into());
        }
        let mut map = OsdMap::default();
        map.set_max_osd(weights.len() as u32);
        map.osd_state.fill(3);
        map.osd_weight = weights.clone();
        map.primary_affinity = weights;
        let mut pool = PgPool::replicated(size, 1, 2, 0, Epoch(1), UTime::default());
        pool.kind = if x & 1 == 0 { 1 } else { 3 };
        let mut crush = crush;
        crush.rules[0].as_mut().unwrap().kind = pool.kind;
        map.crush = Arc::new(crush);
        map.pools.insert(1, pool);
        let pg = PgId::new(1, 0);
        map.pg_upmap_items.insert(pg, vec![(pins[0], pins[1]), (0, pins[2] & 15)]);
        map.primary_temp.insert(pg, pins[3]);
        map.pg_temp.insert(PgId::new(1, 1), pins.to_vec());
        for ps in 0..3 {
            let mapping = pg_mapping(&map, PgId::new(1, ps));
            prop_assert!(mapping.acting_osds().all(|osd| map.is_up(osd)));
        }
        print_map(&map);
        pgs_dump(&map, None, PgColumns::All);
    }
}
