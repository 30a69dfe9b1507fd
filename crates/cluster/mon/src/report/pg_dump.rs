//! `pg dump` and `pg ls`: PGs, pools and OSDs with what is known of them. Sums for a single PG are not: OSDs report what each
//! pool holds.

use std::collections::BTreeMap;

use carmine_types::{OsdId, PgId};
use serde_json::{Map, Value, json};

use super::pg;
use super::status::held;
use super::table::Table;
use crate::command::View;

/// Which PGs are listed.
#[derive(Default)]
pub(crate) struct Filter {
    /// Of this pool only.
    pub(crate) pool: Option<i64>,
    /// In all of these states; empty: whatever their state.
    pub(crate) states: Vec<String>,
    /// Served by this OSD.
    pub(crate) osd: Option<OsdId>,
    /// Whose primary is this OSD.
    pub(crate) primary: Option<OsdId>,
}

/// The PGs that a filter lets through.
fn filtered(view: &View<'_>, filter: &Filter) -> Vec<PgId> {
    let passes = |pg: PgId, state: &str| {
        let mapping = view.placement.mapping(pg);
        filter.pool.is_none_or(|pool| pg.pool == pool)
            && filter.states.iter().all(|wanted| state.split('+').any(|has| has == wanted))
            && filter.osd.is_none_or(|osd| mapping.acting_osds().any(|serves| serves == osd))
            && filter.primary.is_none_or(|osd| mapping.acting_primary == Some(osd))
    };
    pg::states(view).into_iter().filter(|(pg, state)| passes(*pg, state)).map(|(pg, _)| pg).collect()
}

/// A part of the dump, by the name that `pg dump` takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Pgs,
    Pools,
    Osds,
    Sum,
}

impl Part {
    /// Every part.
    pub(crate) const ALL: &[Part] = &[Part::Sum, Part::Pgs, Part::Osds, Part::Pools];

    /// The parts of one word of `pg dump`.
    pub(crate) fn of(word: &str) -> Option<&'static [Part]> {
        Some(match word {
            "all" => Part::ALL,
            "pgs" => &[Part::Pgs],
            "pools" => &[Part::Pools],
            "osds" => &[Part::Osds],
            "sum" | "summary" => &[Part::Sum],
            _ => return None,
        })
    }
}

/// Lines of the PGs that a filter lets through.
pub(crate) fn list_text(view: &View<'_>, filter: &Filter) -> String {
    pg::lines(view, filtered(view, filter))
}

/// The same by name.
pub(crate) fn list_json(view: &View<'_>, filter: &Filter) -> Value {
    json!({ "pg_ready": true, "pg_stats": pg::objects(view, filtered(view, filter)) })
}

/// Tables of the parts, one below the other.
pub(crate) fn text(view: &View<'_>, parts: &[Part]) -> String {
    let one = |part: &Part| match part {
        Part::Pgs => list_text(view, &Filter::default()),
        Part::Pools => pools_text(view),
        Part::Osds => osds_text(view),
        Part::Sum => format!("last_osdmap_epoch {}\n{}", view.map.epoch, pg::stat_text(view)),
    };
    parts.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// The parts by name; all of them together are the `pg_map`.
pub(crate) fn json(view: &View<'_>, parts: &[Part]) -> Value {
    let mut out = Map::new();
    for part in parts {
        match part {
            Part::Pgs => {
                out.insert("pg_stats".into(), pg::objects(view, filtered(view, &Filter::default())));
            }
            Part::Pools => {
                out.insert("pool_stats".into(), pools_json(view));
            }
            Part::Osds => {
                out.insert("osd_stats".into(), osds_json(view));
            }
            Part::Sum => {
                let sum = held(view);
                let (total, used) = view.stats.space();
                out.insert("last_osdmap_epoch".into(), view.map.epoch.0.into());
                out.insert("pg_stats_sum".into(), json!({ "stat_sum": stat_sum(sum.objects, sum.bytes) }));
                out.insert("osd_stats_sum".into(), space(total, used));
            }
        }
    }
    if parts == Part::ALL {
        return json!({ "pg_ready": true, "pg_map": out });
    }
    out.insert("pg_ready".into(), true.into());
    Value::Object(out)
}

fn stat_sum(objects: u64, bytes: u64) -> Value {
    json!({ "num_objects": objects, "num_bytes": bytes })
}

fn space(total: u64, used: u64) -> Value {
    json!({ "kb": total / 1024, "kb_used": used / 1024, "kb_avail": total.saturating_sub(used) / 1024 })
}

/// Objects and bytes of each pool, with its number of PGs.
fn pools(view: &View<'_>) -> Vec<(i64, u32, u64, u64)> {
    let held: BTreeMap<i64, _> = view.stats.pools();
    let one = |(id, pool): (&i64, &carmine_wire::osdmap::PgPool)| {
        let (objects, bytes) = held.get(id).map_or((0, 0), |held| (held.objects, held.bytes));
        (*id, pool.pg_num, objects, bytes)
    };
    view.map.pools.iter().map(one).collect()
}

fn pools_text(view: &View<'_>) -> String {
    let mut table = Table::new("POOLID|PGS|OBJECTS|BYTES");
    for (id, pgs, objects, bytes) in pools(view) {
        table.row([id.to_string(), pgs.to_string(), objects.to_string(), bytes.to_string()]);
    }
    table.render()
}

fn pools_json(view: &View<'_>) -> Value {
    let one = |(id, pgs, objects, bytes)| json!({ "poolid": id, "num_pg": pgs, "stat_sum": stat_sum(objects, bytes) });
    pools(view).into_iter().map(one).collect()
}

fn osds_text(view: &View<'_>) -> String {
    let mut table = Table::new("OSD_STAT|KB_USED|KB_AVAIL|KB_TOTAL|PGS");
    let pgs = pg::per_osd(view);
    for osd in view.map.osds() {
        let (total, used) = view.stats.space_of(osd);
        let kb = [used, total.saturating_sub(used), total].map(|bytes| (bytes / 1024).to_string());
        let serves = pgs.get(&osd).copied().unwrap_or(0);
        table.row([osd.0.to_string()].into_iter().chain(kb).chain([serves.to_string()]));
    }
    table.render()
}

fn osds_json(view: &View<'_>) -> Value {
    let pgs = pg::per_osd(view);
    let one = |osd: OsdId| {
        let (total, used) = view.stats.space_of(osd);
        let mut out = space(total, used);
        out["osd"] = osd.0.into();
        out["num_pgs"] = pgs.get(&osd).copied().unwrap_or(0).into();
        out
    };
    view.map.osds().map(one).collect()
}
