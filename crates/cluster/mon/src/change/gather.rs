//! Gathers several changes into one epoch, as Ceph's monitors gather requests until they propose the next map.
//!
//! Each change is judged against the current map with the earlier changes applied. One incremental holds all of
//! them, so a change waits for the next epoch if one incremental cannot express it: an OSD that goes
//! down and boots again would look as if it had only moved.

use std::collections::BTreeSet;

use carmine_types::{OsdId, UTime, errno};
use carmine_wire::osdmap::consts::STATE_UP;
use carmine_wire::osdmap::intervals::union;
use carmine_wire::osdmap::{ApplyError, Incremental, OsdMap};

use super::{Change, Refusal, SnapWish, refuse, temps};
use crate::creating::Creating;

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is a part of the next epoch.
    Gathered,
    /// The map is as wished already, or will be.
    Nothing,
    Refused(Refusal),
    /// It needs an epoch of its own, after this one.
    Later,
}

/// The next epoch, as far as it has come.
pub(crate) struct Gathered<'a> {
    current: &'a OsdMap,
    now: UTime,
    total: Incremental,
    /// The current map with `total` applied. It keeps the current epoch, because the next change leads to the same new epoch.
    map: OsdMap,
    is_empty: bool,
    /// A change of these OSDs waits for the next epoch, so their later changes wait, too, and keep their order.
    waiting: BTreeSet<OsdId>,
    /// Pools whose snapshots are changed: who takes an id reads it from the map afterwards.
    snaps: BTreeSet<i64>,
    /// A change has to wait that may be of anything.
    is_full: bool,
}

impl<'a> Gathered<'a> {
    pub(crate) fn new(current: &'a OsdMap, now: UTime) -> Gathered<'a> {
        Gathered {
            current,
            now,
            total: Incremental::next(current, now),
            map: current.clone(),
            is_empty: true,
            waiting: BTreeSet::new(),
            snaps: BTreeSet::new(),
            is_full: false,
        }
    }

    /// Adds a change, unless `check` has something against what it makes of the map.
    pub(crate) fn add(
        &mut self,
        change: &Change,
        check: impl FnOnce(&OsdMap, &OsdMap) -> Result<(), Refusal>,
    ) -> Outcome {
        let outcome = if self.has_to_wait(change) { Outcome::Later } else { self.try_add(change, check) };
        match (&outcome, change.osd()) {
            (Outcome::Later, Some(osd)) => _ = self.waiting.insert(osd),
            (Outcome::Later, None) if !matches!(change, Change::Snap { .. }) => self.is_full = true,
            _ => {}
        }
        outcome
    }

    fn has_to_wait(&self, change: &Change) -> bool {
        let goes_down = |osd: OsdId| self.current.is_up(osd) && !self.map.is_up(osd);
        let is_of_its_own = match change {
            Change::Boot { osd, .. } => goes_down(*osd),
            Change::Snap { pool, .. } => self.snaps.contains(pool),
            _ => false,
        };
        self.is_full || is_of_its_own || change.osd().is_some_and(|osd| self.waiting.contains(&osd))
    }

    fn try_add(
        &mut self,
        change: &Change,
        check: impl FnOnce(&OsdMap, &OsdMap) -> Result<(), Refusal>,
    ) -> Outcome {
        let inc = match change.plan(&self.map, self.now) {
            Ok(Some(inc)) => inc,
            Ok(None) => return Outcome::Nothing,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        let next = match applied(&self.map, &inc) {
            Ok(next) => next,
            Err(e) => {
                return Outcome::Refused(refuse(errno::EINVAL, format!("the change does not apply: {e}")));
            }
        };
        if let Err(refusal) = check(&self.map, &next) {
            return Outcome::Refused(refusal);
        }
        let mut total = self.total.clone();
        merge(&mut total, inc);
        let map = match applied(self.current, &total) {
            Ok(map) if self.is_empty || is_same(next, &map) => map,
            _ => return Outcome::Later,
        };
        if let Change::Snap { pool, wish } = change
            && !matches!(wish, SnapWish::Purged(_))
        {
            self.snaps.insert(*pool);
        }
        (self.total, self.is_empty) = (total, false);
        self.map = OsdMap { epoch: self.current.epoch, ..map };
        Outcome::Gathered
    }

    /// The next map; `None` if nothing is to be changed. Entries of `pg_temp` are primed if `new` tells which PGs were never active.
    pub(crate) fn finish(mut self, new: Option<&Creating>) -> Option<OsdMap> {
        if self.is_empty {
            return None;
        }
        let next = OsdMap { epoch: self.total.epoch, ..self.map };
        if next.pg_temp.is_empty() && next.primary_temp.is_empty() {
            return Some(next);
        }
        let together = |total: &Incremental| {
            applied(self.current, total).unwrap_or_else(|e| panic!("it applied without the entries: {e}"))
        };
        if let Some(new) = new {
            temps::prime(self.current, &next, &mut self.total, |pg| new.contains(pg));
        }
        let next = together(&self.total);
        temps::clean(self.current, &next, &mut self.total);
        Some(together(&self.total))
    }
}

fn applied(map: &OsdMap, inc: &Incremental) -> Result<OsdMap, ApplyError> {
    let mut next = map.clone();
    next.apply(inc).map(|()| next)
}

/// Whether one change after the other made the same of the map as all together, but for what counts or names the changes of one epoch.
fn is_same(mut next: OsdMap, together: &OsdMap) -> bool {
    next.crush_version = together.crush_version;
    next.new_removed_snaps.clone_from(&together.new_removed_snaps);
    next.new_purged_snaps.clone_from(&together.new_purged_snaps);
    next == *together
}

/// Adds what `inc` does after `total`.
fn merge(total: &mut Incremental, inc: Incremental) {
    let defaults = Incremental::default();
    macro_rules! replace {
        ($($field:ident)*) => {
            $(if inc.$field != defaults.$field { total.$field = inc.$field; })*
        };
    }
    macro_rules! extend {
        ($($field:ident)*) => { $(total.$field.extend(inc.$field);)* };
    }
    for (osd, bits) in inc.new_state {
        let flips = |bits: u32| if bits == 0 { STATE_UP } else { bits };
        let before = total.new_state.get(&osd).map_or(0, |bits| flips(*bits));
        match before ^ flips(bits) {
            0 => _ = total.new_state.remove(&osd),
            both => _ = total.new_state.insert(osd, both),
        }
    }
    for (new, total) in [
        (inc.new_removed_snaps, &mut total.new_removed_snaps),
        (inc.new_purged_snaps, &mut total.new_purged_snaps),
    ] {
        for (pool, snaps) in new {
            let all = total.entry(pool).or_default();
            *all = union(all, &snaps);
        }
    }
    // What is made and then removed is only removed, and the other way round.
    total.old_erasure_code_profiles.retain(|name| !inc.new_erasure_code_profiles.contains_key(name));
    total.new_erasure_code_profiles.retain(|name, _| !inc.old_erasure_code_profiles.contains(name));
    total.old_pg_upmap.retain(|pg| !inc.new_pg_upmap.contains_key(pg));
    total.new_pg_upmap.retain(|pg, _| !inc.old_pg_upmap.contains(pg));
    total.old_pg_upmap_items.retain(|pg| !inc.new_pg_upmap_items.contains_key(pg));
    total.new_pg_upmap_items.retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
    total.old_blocklist.retain(|old| !inc.new_blocklist.iter().any(|(new, _)| new == old));
    total.new_blocklist.retain(|(new, _)| !inc.old_blocklist.contains(new));
    replace! {
        new_pool_max new_flags fullmap crush new_max_osd new_last_up_change new_last_in_change cluster_snapshot
        new_nearfull_ratio new_full_ratio new_backfillfull_ratio new_require_min_compat_client new_require_osd_release
    }
    extend! {
        new_pools new_pool_names old_pools new_up_client new_weight new_pg_temp new_primary_temp new_primary_affinity
        new_erasure_code_profiles old_erasure_code_profiles new_pg_upmap old_pg_upmap new_pg_upmap_items
        old_pg_upmap_items new_hb_back_up new_up_thru new_last_clean_interval new_lost new_blocklist old_blocklist
        new_up_cluster new_uuid new_xinfo new_hb_front_up new_crush_node_flags new_device_class_flags
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::{Epoch, PgId, Uuid};

    use super::*;
    use crate::change::{OsdAddrs, Upmap};
    use crate::testing::{addrs_of, all_addrs, cluster, now, up};

    fn cluster_up(osds: u32) -> OsdMap {
        let mut map = cluster(osds);
        (0..osds).for_each(|osd| up(&mut map, osd, 1));
        map
    }

    /// The next map, and the changes that wait for the one after it.
    fn gathered(map: &OsdMap, changes: Vec<Change>) -> (OsdMap, Vec<Change>) {
        let mut next = Gathered::new(map, now());
        let later = changes.into_iter().filter(|change| match next.add(change, |_, _| Ok(())) {
            Outcome::Refused(refusal) => panic!("{change:?} is refused: {}", refusal.text),
            outcome => outcome == Outcome::Later,
        });
        let later = later.collect();
        let next = next.finish(None).unwrap();
        assert_eq!(next.epoch.0, map.epoch.0 + 1);
        assert_eq!(OsdMap::decode(&next.encode()).as_ref(), Ok(&next));
        (next, later)
    }

    fn down(osd: u32, nonce: u32) -> Change {
        Change::Down { osd: OsdId(osd), addrs: addrs_of(osd, nonce), is_dead: true }
    }

    fn boot(osd: u32, nonce: u32) -> Change {
        let addrs: OsdAddrs = all_addrs(&addrs_of(osd, nonce));
        Change::Boot { osd: OsdId(osd), uuid: Uuid([osd as u8 + 1; 16]), addrs }
    }

    fn who_is_up(map: &OsdMap) -> Vec<u32> {
        map.osds().filter(|osd| map.is_up(*osd)).map(|osd| osd.0).collect()
    }

    #[test]
    fn osds_that_come_go_and_tell_are_in_one_map() {
        let mut map = cluster(4);
        (0..2).for_each(|osd| up(&mut map, osd, 1));
        let up_thru = Change::UpThru { epochs: [(OsdId(1), map.epoch)].into() };
        let full = Change::Fullness { osd: OsdId(1), used_bytes: 97, total_bytes: 100 };
        let (next, later) =
            gathered(&map, vec![boot(2, 1), down(0, 1), up_thru, full, boot(3, 1), boot(3, 1)]);
        assert!(later.is_empty(), "{later:?}");
        assert_eq!(who_is_up(&next), [1, 2, 3]);
        assert_eq!((next.up_thru(OsdId(1)), next.osd_info[3].up_from), (map.epoch, next.epoch));
        assert_eq!(next.osd_xinfo[0].dead_epoch, next.epoch);
    }

    /// Else nobody would see that it was down.
    #[test]
    fn an_osd_is_down_in_one_map_and_boots_in_the_next() {
        let map = cluster_up(3);
        let (next, later) = gathered(&map, vec![down(0, 1), boot(0, 2), down(1, 1), boot(1, 2), down(0, 2)]);
        assert_eq!(who_is_up(&next), [2]);
        assert_eq!(later.len(), 3, "{later:?}");
        let (next, later) = gathered(&next, later);
        assert_eq!(who_is_up(&next), [0, 1, 2]);
        assert!(matches!(later[..], [Change::Down { osd: OsdId(0), .. }]), "it came up in this very map");
        assert_eq!(who_is_up(&gathered(&next, later).0), [1, 2]);
    }

    #[test]
    fn changes_of_one_thing_follow_one_another() {
        let map = cluster_up(3);
        let pool = |name: &str| Change::CreatePool {
            name: name.into(),
            pg_num: Some(4),
            size: Some(1),
            rule: 0,
            values: Vec::new(),
        };
        let app = Change::EnableApp { pool: "b".into(), app: "rbd".into(), force: false };
        let weight = |osd, weight| Change::CrushReweight { osd: OsdId(osd), weight };
        let pg = PgId::new(1, 0);
        let upmap = |osds: &[u32]| Change::Upmap {
            pg,
            upmap: Upmap::Osds(osds.iter().copied().map(OsdId).collect()),
        };
        let addr = addrs_of(0, 7).0[0];
        let until = UTime { sec: now().sec + 9, ..now() };
        let (next, later) = gathered(
            &map,
            vec![
                pool("a"),
                pool("b"),
                app,
                Change::DeletePool { pool: 2 },
                weight(0, 0x8000),
                weight(1, 0x4000),
                upmap(&[2, 1, 0]),
                upmap(&[]),
                Change::Blocklist { addr, until },
                Change::Unblocklist { addr },
                Change::Weight { osds: vec![OsdId(2)], weight: 0 },
                Change::Weight { osds: vec![OsdId(2)], weight: 0x10000 },
            ],
        );
        assert!(later.is_empty(), "{later:?}");
        assert_eq!((next.pool_max, next.pools.len(), next.pool_id("b")), (3, 2, Some(3)));
        assert!(next.pool(3).unwrap().application_metadata.contains_key("rbd"));
        assert_eq!(next.crush_version, map.crush_version + 1, "the CRUSH map was changed once");
        let host = next.crush.buckets.iter().flatten().find(|bucket| bucket.items.contains(&0)).unwrap();
        let place = |osd: i32| host.items.iter().position(|item| *item == osd).unwrap();
        assert_eq!([0, 1].map(|osd| host.item_weight(place(osd))), [0x8000, 0x4000]);
        assert!(next.pg_upmap.is_empty() && next.blocklist.is_empty() && next.is_in(OsdId(2)));
    }

    /// Whoever takes one finds it in the map afterwards.
    #[test]
    fn ids_of_snapshots_come_one_a_map() {
        let map = cluster_up(1);
        let snap = |wish| Change::Snap { pool: 1, wish };
        let (next, later) = gathered(&map, vec![snap(SnapWish::TakeId), snap(SnapWish::TakeId), down(0, 1)]);
        assert_eq!((next.pool(1).unwrap().snap_seq, later.len()), (2, 1));
        assert_eq!(who_is_up(&next), [0; 0], "others need not wait");
        let (next, _) = gathered(&next, later);
        assert_eq!(next.pool(1).unwrap().snap_seq, 3);
    }

    #[test]
    fn nothing_makes_no_map() {
        let map = cluster_up(1);
        let mut next = Gathered::new(&map, now());
        let gone = Change::UpThru { epochs: [(OsdId(7), Epoch(1))].into() };
        assert_eq!(next.add(&gone, |_, _| Ok(())), Outcome::Nothing);
        let refused = next.add(&down(0, 1), |_, _| Err(refuse(errno::ERANGE, "no")));
        assert!(matches!(refused, Outcome::Refused(_)));
        assert!(next.finish(None).is_none());
    }
}
