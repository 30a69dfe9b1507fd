use super::*;
use crate::change::Change;
use crate::testing::{apply, cluster, up};

/// A cluster whose pool is created in its first map, followed from there on, with all of its maps.
struct World {
    map: OsdMap,
    creating: Creating,
    history: History,
}

impl World {
    fn new(osds: u32) -> World {
        let map = cluster(osds);
        let mut creating = Creating::default();
        creating.follow(None, &map);
        World { map, creating, history: History::default() }
    }

    /// Makes the next map.
    fn change(&mut self, change: impl FnOnce(&mut OsdMap)) {
        let before = self.map.clone();
        change(&mut self.map);
        assert_eq!(self.map.epoch.0, before.epoch.0 + 1);
        self.creating.follow(Some(&before), &self.map);
        self.history.note(before.epoch, before.encode().into());
        let restored = Creating::restored(&self.history, &self.map);
        assert_eq!(restored, self.creating, "a monitor that starts anew knows as much");
    }

    fn apply(&mut self, change: Change) {
        self.change(|map| assert!(apply(map, change)));
    }

    fn up(&mut self, osd: u32, nonce: u32) {
        self.change(|map| up(map, osd, nonce));
    }

    fn down(&mut self, osd: u32) {
        self.apply(Change::MarkDown { osds: vec![OsdId(osd)] });
    }

    /// The next order for an OSD that has got none.
    fn order(&self, osd: u32) -> Option<PgCreate> {
        let (order, _) = self.creating.next_order(OsdId(osd), CreateWish::since(Epoch(0)), &self.map)?;
        Some(order)
    }
}

fn new_pool(name: &str) -> Change {
    Change::CreatePool { name: name.into(), pg_num: Some(4), size: Some(1), rule: 0, values: Vec::new() }
}

#[test]
fn a_primary_is_ordered_to_create_its_pgs_once() {
    let mut world = World::new(2);
    assert_eq!((world.order(0), world.order(1)), (None, None), "nobody is up");
    world.up(0, 1);
    let order = world.order(0).unwrap();
    assert_eq!((order.epoch, order.pgs.len()), (Epoch(2), 8));
    let stamp = world.map.pool(1).unwrap().create_time;
    assert!(order.pgs.values().all(|created| *created == (Epoch(1), stamp)));
    let (history, past) = &order.histories[&PgId::new(1, 0).into()];
    assert_eq!((history.epoch_created, history.epoch_pool_created), (Epoch(1), Epoch(1)));
    assert_eq!((history.same_interval_since, history.same_primary_since), (Epoch(2), Epoch(2)));
    assert_eq!((past.first, past.last, past.intervals.len()), (Epoch(1), Epoch(1), 0));
    // It has got them; those of a pool that is created later come alone.
    let (_, wish) = world.creating.next_order(OsdId(0), CreateWish::since(Epoch(0)), &world.map).unwrap();
    assert_eq!(world.creating.next_order(OsdId(0), wish, &world.map), None);
    world.apply(new_pool("later"));
    let (order, wish) = world.creating.next_order(OsdId(0), wish, &world.map).unwrap();
    assert!(!order.pgs.is_empty() && order.pgs.keys().all(|spg| spg.pgid.pool == 2));
    assert!(order.histories.values().all(|(history, past)| {
        history.same_interval_since == Epoch(3) && *past == PastIntervals::default()
    }));
    assert_eq!(world.creating.next_order(OsdId(0), wish, &world.map), None);
}

#[test]
fn an_order_has_no_more_than_so_many_pgs() {
    let mut world = World::new(1);
    world.up(0, 1);
    let pool =
        Change::CreatePool { name: "p".into(), pg_num: Some(2_048), size: None, rule: 0, values: Vec::new() };
    world.apply(pool);
    let (mut wish, mut all) = (CreateWish::since(Epoch(0)), Vec::new());
    while let Some((order, next)) = world.creating.next_order(OsdId(0), wish, &world.map) {
        assert!(order.pgs.len() <= PGS_MAX);
        all.extend(order.pgs.into_keys());
        wish = next;
    }
    assert_eq!(all.len(), 8 + 2_048, "each comes once");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8 + 2_048);
}

/// Who created a PG and died before the monitor heard of it is in the next one's order, if it may have served clients.
#[test]
fn past_intervals_name_those_that_may_have_served() {
    let mut world = World::new(2);
    world.up(0, 1);
    world.down(0);
    world.up(1, 1);
    let past = |world: &World, osd: u32| {
        let order = world.order(osd).unwrap();
        let (history, past) = order.histories.values().next().unwrap().clone();
        let intervals = past.intervals.iter();
        let served: Vec<_> =
            intervals.map(|past| (past.first.0, past.last.0, past.acting.first().unwrap().osd)).collect();
        (history.same_interval_since.0, served)
    };
    assert_eq!(past(&world, 1), (4, vec![]), "osd.0 never said that it was up");
    world.apply(Change::UpThru { epochs: [(OsdId(1), Epoch(4))].into() });
    world.down(1);
    world.up(0, 2);
    assert_eq!(past(&world, 0), (7, vec![(4, 5, 1)]));
    // Fewer members than are needed serve nobody, whoever was up.
    world.apply(Change::SetPool { pool: "bench".into(), size: None, min_size: Some(2) });
    world.apply(Change::UpThru { epochs: [(OsdId(0), Epoch(8))].into() });
    world.up(1, 2);
    let (since, served) = past(&world, pg_mapping(&world.map, PgId::new(1, 0)).acting_primary.unwrap().0);
    assert_eq!((since, served), (10, vec![(4, 5, 1)]));
}

#[test]
fn a_pool_is_created_when_all_its_pgs_were_active() {
    let mut world = World::new(1);
    world.up(0, 1);
    (0..7).for_each(|ps| world.creating.remove(PgId::new(1, ps)));
    assert!(world.creating.created_pools(&world.map).is_empty());
    world.creating.remove(PgId::new(1, 7));
    assert_eq!(world.creating.created_pools(&world.map), [1]);
    world.apply(Change::PoolCreated { pool: 1 });
    assert_eq!(world.map.pool(1).unwrap().flags & POOL_CREATING, 0);
    assert!(world.creating.is_empty() && world.creating.created_pools(&world.map).is_empty());
    world.apply(new_pool("p"));
    assert_eq!(world.creating.pgs.len(), 4);
    world.apply(Change::DeletePool { pool: 2 });
    assert!(world.creating.is_empty());
}
