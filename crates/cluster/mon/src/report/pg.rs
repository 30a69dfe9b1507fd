//! PGs: where they are and in what state, as far as their primaries have said it.

use std::collections::BTreeMap;

use carmine_crush::Mapping;
use carmine_types::{OsdId, PgId};
use carmine_wire::osdmap::OsdMap;
use serde_json::{Value, json};

use super::status::{held, usage};
use super::table::Table;
use super::units::bytes;
use crate::command::View;

/// PGs of all pools.
pub(super) fn total(map: &OsdMap) -> u64 {
    map.pools.values().map(|p| u64::from(p.pg_num)).sum()
}

/// The state of one PG by Ceph's names: `stale` if nobody serves it, `unknown` if its primary has not said yet.
fn state(view: &View<'_>, pg: PgId, mapping: &Mapping) -> String {
    let Some(primary) = mapping.acting_primary else { return "stale".into() };
    match view.stats.pg_state(primary, pg) {
        None => "unknown".into(),
        Some(Some(stuck)) => stuck.into(),
        Some(None) if mapping.acting == mapping.up => "active+clean".into(),
        Some(None) => "active+clean+remapped".into(),
    }
}

/// Every PG and its state.
pub(super) fn states(view: &View<'_>) -> Vec<(PgId, String)> {
    view.placement.pgs().map(|(pg, mapping)| (pg, state(view, pg, mapping))).collect()
}

/// How many PGs are in each state, the most frequent first.
pub(super) fn by_state(view: &View<'_>) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::<String, usize>::new();
    for (_, state) in states(view) {
        *counts.entry(state).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// `32 pgs: 32 active+clean; 0 B data, …`
pub(crate) fn stat_text(view: &View<'_>) -> String {
    let states: Vec<String> =
        by_state(view).iter().map(|(state, count)| format!("{count} {state}")).collect();
    format!(
        "{} pgs: {}; {} data, {}\n",
        total(view.map),
        states.join(", "),
        bytes(held(view).bytes),
        usage(view)
    )
}

/// The same by name.
pub(crate) fn stat_json(view: &View<'_>) -> Value {
    let (total_bytes, used) = view.stats.space();
    let states: Vec<Value> =
        by_state(view).into_iter().map(|(name, num)| json!({ "name": name, "num": num })).collect();
    json!({ "pg_ready": true, "pg_summary": {
        "num_pg_by_state": states, "num_pgs": total(view.map), "num_bytes": held(view).bytes,
        "total_bytes": total_bytes, "total_avail_bytes": total_bytes.saturating_sub(used), "total_used_bytes": used,
    }})
}

fn primary(osd: Option<OsdId>) -> i64 {
    osd.map_or(-1, |osd| i64::from(osd.0))
}

/// `[0,1,2]`
pub(super) fn list(osds: &[i32]) -> String {
    format!("[{}]", osds.iter().map(i32::to_string).collect::<Vec<_>>().join(","))
}

/// A line for each of these PGs.
pub(super) fn lines(view: &View<'_>, pgs: impl IntoIterator<Item = PgId>) -> String {
    let mut table = Table::new("<PG_STAT|<STATE|<UP|UP_PRIMARY|<ACTING|ACTING_PRIMARY");
    for pg in pgs {
        let mapping = view.placement.mapping(pg);
        table.row([
            pg.to_string(),
            state(view, pg, mapping),
            list(&mapping.up),
            primary(mapping.up_primary).to_string(),
            list(&mapping.acting),
            primary(mapping.acting_primary).to_string(),
        ]);
    }
    table.render()
}

/// The same by name.
pub(super) fn objects(view: &View<'_>, pgs: impl IntoIterator<Item = PgId>) -> Value {
    let one = |pg: PgId| {
        let mapping = view.placement.mapping(pg);
        json!({
            "pgid": pg.to_string(), "state": state(view, pg, mapping),
            "up": mapping.up.to_vec(), "acting": mapping.acting.to_vec(),
            "up_primary": primary(mapping.up_primary), "acting_primary": primary(mapping.acting_primary),
        })
    };
    pgs.into_iter().map(one).collect()
}

/// The PG of this name, if it exists.
pub(crate) fn parse(view: &View<'_>, text: &str) -> Option<PgId> {
    let pg: PgId = text.parse().ok()?;
    view.map.pool(pg.pool).filter(|pool| pg.ps < pool.pg_num).map(|_| pg)
}

/// `pg map`.
pub(crate) fn map_text(view: &View<'_>, pg: PgId) -> String {
    let mapping = view.placement.mapping(pg);
    let (up, acting) = (list(&mapping.up), list(&mapping.acting));
    format!("osdmap e{} pg {pg} ({pg}) -> up {up} acting {acting}\n", view.map.epoch)
}

/// The same by name.
pub(crate) fn map_json(view: &View<'_>, pg: PgId) -> Value {
    let mapping = view.placement.mapping(pg);
    json!({
        "epoch": view.map.epoch.0, "raw_pgid": pg.to_string(), "pgid": pg.to_string(),
        "up": mapping.up.to_vec(), "acting": mapping.acting.to_vec(),
    })
}

/// How many PGs each OSD serves.
pub(super) fn per_osd(view: &View<'_>) -> BTreeMap<OsdId, u64> {
    let mut counts = BTreeMap::new();
    for osd in view.placement.pgs().flat_map(|(_, mapping)| mapping.acting_osds()) {
        *counts.entry(osd).or_default() += 1;
    }
    counts
}
