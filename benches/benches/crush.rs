//! Placement in a map of 60 OSDs (a host each, straw2, size 3): object name → PG, and one
//! PG → OSDs. Carmine maps PGs once an epoch and looks them up after that; only object → PG is on the path of an op.
//! Expected: tens of ns for object → PG, 5 to 15 µs for CRUSH, nearly all of it hashing.

use std::hint::black_box;
use std::sync::Arc;

use carmine_crush::{Placement, build_simple_crush, pg_mapping};
use carmine_types::{Epoch, OsdId, PgId, UTime, Uuid};
use carmine_wire::osdmap::consts::{STATE_EXISTS, STATE_UP, WEIGHT_IN};
use carmine_wire::osdmap::{OsdMap, PgPool};
use criterion::{Criterion, criterion_group, criterion_main};

const OSDS: u32 = 60;
const PGS: u32 = 2048;
const POOL: i64 = 1;

fn map() -> OsdMap {
    let osds: Vec<_> = (0..OSDS).map(|osd| (OsdId(osd), WEIGHT_IN)).collect();
    let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
    map.set_max_osd(OSDS);
    map.osd_state.fill(STATE_EXISTS | STATE_UP);
    map.osd_weight.fill(WEIGHT_IN);
    map.crush = Arc::new(build_simple_crush(&osds, true));
    map.pools.insert(POOL, PgPool::replicated(3, 2, PGS, 0, Epoch(1), UTime::ZERO));
    assert_eq!(pg_mapping(&map, PgId::new(POOL, 5)).acting.len(), 3, "the map places its PGs");
    map
}

fn placement(c: &mut Criterion) {
    let map = map();
    let mut group = c.benchmark_group("crush/60 OSDs");
    group.bench_function("object to PG", |b| {
        b.iter(|| map.object_pg(POOL, b"", b"", black_box(b"bench.0000000000000017")));
    });
    let mut ps = 0;
    group.bench_function("PG to OSDs", |b| {
        b.iter(|| {
            ps = (ps + 1) % PGS;
            pg_mapping(&map, PgId::new(POOL, black_box(ps)))
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = carmine_benches::criterion();
    targets = placement
}
criterion_main!(benches);
