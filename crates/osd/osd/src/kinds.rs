//! OSDs that are not Carmine's in the same cluster: a real monitor may give a PG OSDs of both kinds, which cannot replicate to each other.
//! Such a PG serves nobody here and is left unchanged ([`carmine_peering::Reason::MixedKinds`]); the cluster's log says why.

use std::collections::{BTreeMap, BTreeSet};

use carmine_crush::{MapView, Mapping};
use carmine_types::{MonKind, OsdId, PgId};
use carmine_wire::mon_msg::log_level;
use carmine_wire::osdmap::OsdMap;

use crate::config::OsdConfig;
use crate::join;
use crate::shard::OsdShard;

/// The OSDs that are up and are not Carmine's, as this one is. The embedded monitor accepts no others.
pub(crate) fn classic_osds(config: &OsdConfig, map: &OsdMap) -> BTreeSet<OsdId> {
    map.osds().filter(|osd| map.is_up(*osd) && is_classic(config, map, *osd)).collect()
}

/// This OSD, which is up, is not Carmine's: it understands none of the messages between Carmine's OSDs.
pub(crate) fn is_classic(config: &OsdConfig, map: &OsdMap, osd: OsdId) -> bool {
    config.mon_kind == MonKind::Ceph && osd != config.id && !map.is_carmine(osd)
}

/// Those of them that a PG has.
pub(crate) fn classic_of(classic: &BTreeSet<OsdId>, mapping: &Mapping) -> Vec<OsdId> {
    if classic.is_empty() {
        return Vec::new();
    }
    let osds: BTreeSet<OsdId> =
        mapping.acting.iter().chain(&mapping.up).filter_map(|item| OsdId::from_item(*item)).collect();
    osds.intersection(classic).copied().collect()
}

/// Pools with PGs that this OSD shares with classic ones: one of these PGs, and its classic OSDs.
type Mixed = BTreeMap<i64, (PgId, Vec<OsdId>)>;

fn mixed(view: &MapView, own: OsdId, classic: &BTreeSet<OsdId>) -> Mixed {
    let mut pools = Mixed::new();
    if classic.is_empty() {
        return pools;
    }
    for (pg, mapping) in view.pgs_of(own) {
        let others = classic_of(classic, mapping);
        if !others.is_empty() && !pools.contains_key(&pg.pool) {
            pools.insert(pg.pool, (pg, others));
        }
    }
    pools
}

/// Writes a line for each pool that this map mixes and the last one did not (shard 0).
pub(crate) fn report_mixed(osd: &OsdShard, view: &MapView) {
    let own = osd.config.id;
    let pools = mixed(view, own, &classic_osds(&osd.config, view.map()));
    let before = osd.mixed_pools.replace(pools.keys().copied().collect());
    for (pool, (pg, others)) in pools.into_iter().filter(|(pool, _)| !before.contains(pool)) {
        let name = view.map().pool_names.get(&pool).map_or("", String::as_str);
        let others: Vec<String> = others.iter().map(OsdId::to_string).collect();
        let text = format!(
            "pool '{name}' has PGs with OSDs of Carmine and classic ones, such as {pg} with {own} and {}: {own} serves none of these. \
             Give the pool a CRUSH rule for one device class",
            others.join(", ")
        );
        join::write_cluster_log(osd, log_level::ERROR, text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carmine_types::{Epoch, UTime, Uuid};
    use carmine_wire::handshake::features::CARMINE;
    use carmine_wire::osdmap::{OsdXinfo, PgPool};

    use super::*;

    /// osd.0 and osd.1 are Carmine's, osd.2 is classic; a PG of each pool has these OSDs.
    fn view(acting: [&[i32]; 2]) -> MapView {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.epoch = Epoch(1);
        map.set_max_osd(4);
        map.osd_state = vec![3, 3, 3, 1];
        let xinfo = |features| OsdXinfo { features, ..OsdXinfo::default() };
        map.osd_xinfo = vec![xinfo(CARMINE | 1), xinfo(CARMINE | 1), xinfo(1), xinfo(1)];
        for (pool, acting) in (1..).zip(acting) {
            map.pools.insert(pool, PgPool::replicated(2, 1, 1, 0, Epoch(1), UTime::ZERO));
            map.pg_temp.insert(PgId::new(pool, 0), acting.to_vec());
        }
        MapView::new(Arc::new(map))
    }

    #[test]
    fn pgs_with_both_kinds_are_found_where_this_osd_is_one_of_them() {
        let view = view([&[0, 1], &[1, 2]]);
        let config = |own, mon_kind| OsdConfig {
            mon_kind,
            ..OsdConfig::with_defaults(([127, 0, 0, 1], 1).into(), OsdId(own), 1)
        };
        let classic = classic_osds(&config(0, MonKind::Ceph), view.map());
        assert_eq!(classic, [OsdId(2)].into(), "one that is down serves nobody");
        assert!(classic_osds(&config(0, MonKind::Embedded), view.map()).is_empty());
        assert!(classic_osds(&config(2, MonKind::Ceph), view.map()).is_empty(), "it knows what it is");
        let of = |own| mixed(&view, OsdId(own), &classic).into_iter().collect::<Vec<_>>();
        assert_eq!(of(1), [(2, (PgId::new(2, 0), vec![OsdId(2)]))]);
        assert_eq!(of(0), []);
    }
}
