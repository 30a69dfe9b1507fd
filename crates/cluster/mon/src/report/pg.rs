//! PGs: where they are, in what state as far as their primaries have said it, and the way of an object to its PG. There are no
//! sums for a single PG: OSDs report what each pool holds.

use std::collections::BTreeMap;

use carmine_crush::{Mapping, object_hash, stable_mod};
use carmine_types::{OsdId, PgId};
use carmine_wire::osdmap::{OsdMap, PgPool};
use carmine_wire::private::PgScrubs;
use serde_json::{Value, json};

use super::cluster::{held, usage};
use super::dump::time;
use super::table::{Table, bytes};
use crate::command::View;

/// PGs of all pools.
pub(crate) fn total(map: &OsdMap) -> u64 {
    map.pools.values().map(|p| u64::from(p.pg_num)).sum()
}

/// The state of one PG by Ceph's names: `stale` if nobody serves it, `unknown` if its primary has not said yet.
pub(crate) fn state(view: &View<'_>, pg: PgId, mapping: &Mapping) -> String {
    let Some(primary) = mapping.acting_primary else { return "stale".into() };
    match view.stats.pg_state(primary, pg) {
        None => "unknown".into(),
        Some(Some(stuck)) => stuck.into(),
        Some(None) => {
            let base = if is_undersized(view, pg, mapping) {
                "active+undersized+degraded"
            } else if mapping.acting == mapping.up {
                "active+clean"
            } else {
                "active+clean+remapped"
            };
            format!("{base}{}", scrub_words(&view.stats.pg_scrubs(Some(primary), pg)))
        }
    }
}

fn is_undersized(view: &View<'_>, pg: PgId, mapping: &Mapping) -> bool {
    let size = view.map.pool(pg.pool).map_or(0, |pool| usize::from(pool.size));
    mapping.acting_osds().count() < size
}

/// The scrub part of a state, at its end: `+scrubbing+deep`.
fn scrub_words(scrubs: &PgScrubs) -> String {
    let words = [
        (scrubs.scrubbing, "+scrubbing"),
        (scrubs.deep, "+deep"),
        (scrubs.errors > 0, "+inconsistent"),
        (scrubs.repair, "+repair"),
    ];
    words.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word).collect()
}

/// The PGs of which scrubs have found errors that are not repaired: state, acting set, number of errors.
pub(super) fn damaged(view: &View<'_>) -> Vec<(PgId, String, String, u64)> {
    let errors = |pg, mapping: &Mapping| view.stats.pg_scrubs(mapping.acting_primary, pg).errors;
    let all = view.placement.pgs().map(|(pg, mapping)| (pg, mapping, errors(pg, mapping)));
    let bad = all.filter(|(.., errors)| *errors > 0);
    bad.map(|(pg, mapping, errors)| (pg, state(view, pg, mapping), list(&mapping.acting), errors)).collect()
}

/// How many objects of a PG are unfound: of each no copy is known to be whole.
fn unfound_of(view: &View<'_>, pg: PgId, mapping: &Mapping) -> u64 {
    mapping.acting_primary.map_or(0, |primary| view.stats.unfound(primary, pg))
}

/// The PGs with unfound objects: state, acting set, number of these objects.
pub(super) fn unfound(view: &View<'_>) -> Vec<(PgId, String, String, u64)> {
    let all = view.placement.pgs().map(|(pg, mapping)| (pg, mapping, unfound_of(view, pg, mapping)));
    let some = all.filter(|(.., count)| *count > 0);
    some.map(|(pg, mapping, count)| (pg, state(view, pg, mapping), list(&mapping.acting), count)).collect()
}

/// Every PG and its state.
pub(crate) fn states(view: &View<'_>) -> Vec<(PgId, String)> {
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

/// A line for each of these PGs; a brief one says nothing of their scrubs.
pub(super) fn lines(view: &View<'_>, pgs: impl IntoIterator<Item = PgId>, is_brief: bool) -> String {
    const BRIEF: &str = "<PG_STAT|<STATE|<UP|UP_PRIMARY|<ACTING|ACTING_PRIMARY";
    let scrubs = if is_brief { "" } else { "|LAST_SCRUB|<SCRUB_STAMP|LAST_DEEP_SCRUB|<DEEP_SCRUB_STAMP" };
    let mut table = Table::new(&format!("{BRIEF}{scrubs}"));
    for pg in pgs {
        let mapping = view.placement.mapping(pg);
        let (up, up_primary) = (list(&mapping.up), primary(mapping.up_primary));
        let (acting, acting_primary) = (list(&mapping.acting), primary(mapping.acting_primary));
        let state = state(view, pg, mapping);
        let row = format!("{pg}|{state}|{up}|{up_primary}|{acting}|{acting_primary}");
        let PgScrubs { last, last_deep, .. } = view.stats.pg_scrubs(mapping.acting_primary, pg);
        let [(last, at), (deep, deep_at)] =
            [last, last_deep].map(|stamp| (stamp.version.to_string(), time(stamp.time)));
        let scrubs = if is_brief { String::new() } else { format!("|{last}|{at}|{deep}|{deep_at}") };
        table.row(&format!("{row}{scrubs}"));
    }
    table.render()
}

/// The same by name.
pub(super) fn objects(view: &View<'_>, pgs: impl IntoIterator<Item = PgId>) -> Value {
    let one = |pg: PgId| {
        let mapping = view.placement.mapping(pg);
        let PgScrubs { last, last_deep, last_clean, errors, .. } =
            view.stats.pg_scrubs(mapping.acting_primary, pg);
        json!({
            "last_scrub": last.version.to_string(), "last_scrub_stamp": time(last.time),
            "last_deep_scrub": last_deep.version.to_string(), "last_deep_scrub_stamp": time(last_deep.time),
            "last_clean_scrub_stamp": time(last_clean),
            "stat_sum": { "num_scrub_errors": errors, "num_objects_unfound": unfound_of(view, pg, mapping) },
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

/// A PG as somebody names it, with a hash that may go beyond the pool's number of PGs, and the PG that such objects are in.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    raw: PgId,
    pg: PgId,
}

/// A PG id of a pool of the map, whatever its hash.
pub(crate) fn parse_raw(view: &View<'_>, text: &str) -> Option<Named> {
    let raw: PgId = text.parse().ok()?;
    let pool = view.map.pool(raw.pool)?;
    Some(Named { raw, pg: PgId { ps: stable_mod(raw.ps, pool.pg_num), ..raw } })
}

/// `pg map`.
pub(crate) fn map_text(view: &View<'_>, Named { raw, pg }: Named) -> String {
    let mapping = view.placement.mapping(pg);
    let (up, acting) = (list(&mapping.up), list(&mapping.acting));
    format!("osdmap e{} pg {raw} ({pg}) -> up {up} acting {acting}\n", view.map.epoch)
}

/// The same by name.
pub(crate) fn map_json(view: &View<'_>, Named { raw, pg }: Named) -> Value {
    let mapping = view.placement.mapping(pg);
    json!({
        "epoch": view.map.epoch.0, "raw_pgid": raw.to_string(), "pgid": pg.to_string(),
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

/// Which PGs are listed.
#[derive(Default)]
pub(crate) struct Filter {
    /// Of this pool only.
    pub(crate) pool: Option<i64>,
    /// In all of these states; empty: whatever their state.
    pub(crate) states: Vec<String>,
    /// PGs that this OSD serves.
    pub(crate) osd: Option<OsdId>,
    /// PGs of which this OSD is the primary.
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
    states(view).into_iter().filter(|(pg, state)| passes(*pg, state)).map(|(pg, _)| pg).collect()
}

/// The reason why a PG is stuck, by the name that `pg dump_stuck` takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    Inactive,
    Unclean,
    Stale,
    Undersized,
    Degraded,
}

impl Stuck {
    pub(crate) fn of(word: &str) -> Option<Stuck> {
        Some(match word {
            "inactive" => Stuck::Inactive,
            "unclean" => Stuck::Unclean,
            "stale" => Stuck::Stale,
            "undersized" => Stuck::Undersized,
            "degraded" => Stuck::Degraded,
            _ => return None,
        })
    }

    fn is_in(self, state: &str) -> bool {
        let has = |word: &str| state.split('+').any(|has| has == word);
        match self {
            Stuck::Inactive => !has("active"),
            Stuck::Unclean => !has("clean"),
            Stuck::Stale => has("stale"),
            Stuck::Undersized => has("undersized"),
            Stuck::Degraded => has("degraded"),
        }
    }
}

fn stuck(view: &View<'_>, stuck: &[Stuck]) -> Vec<PgId> {
    let states = states(view).into_iter();
    states.filter(|(_, state)| stuck.iter().any(|stuck| stuck.is_in(state))).map(|(pg, _)| pg).collect()
}

/// Brief lines of the PGs that are in one of these states; nothing if there is none.
pub(crate) fn stuck_text(view: &View<'_>, states: &[Stuck]) -> String {
    match stuck(view, states) {
        none if none.is_empty() => String::new(),
        some => lines(view, some, true),
    }
}

/// The same by name.
pub(crate) fn stuck_json(view: &View<'_>, states: &[Stuck]) -> Value {
    json!({ "stuck_pg_stats": objects(view, stuck(view, states)) })
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
pub(crate) fn list_text(view: &View<'_>, filter: &Filter, is_brief: bool) -> String {
    lines(view, filtered(view, filter), is_brief)
}

/// The same by name.
pub(crate) fn list_json(view: &View<'_>, filter: &Filter) -> Value {
    json!({ "pg_ready": true, "pg_stats": objects(view, filtered(view, filter)) })
}

/// Tables of the parts, one below the other.
pub(crate) fn dump_text(view: &View<'_>, parts: &[Part]) -> String {
    let one = |part: &Part| match part {
        Part::Pgs => list_text(view, &Filter::default(), false),
        Part::Pools => pools_text(view),
        Part::Osds => osds_text(view),
        Part::Sum => format!("last_osdmap_epoch {}\n{}", view.map.epoch, stat_text(view)),
    };
    parts.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// The parts by name; all of them together are the `pg_map`.
pub(crate) fn dump_json(view: &View<'_>, parts: &[Part]) -> Value {
    let mut out = json!({});
    for part in parts {
        match part {
            Part::Pgs => out["pg_stats"] = objects(view, filtered(view, &Filter::default())),
            Part::Pools => out["pool_stats"] = pools_json(view),
            Part::Osds => out["osd_stats"] = osds_json(view),
            Part::Sum => {
                let sum = held(view);
                let (total, used) = view.stats.space();
                out["last_osdmap_epoch"] = view.map.epoch.0.into();
                out["pg_stats_sum"] = json!({ "stat_sum": stat_sum(sum.objects, sum.bytes) });
                out["osd_stats_sum"] = space(total, used);
            }
        }
    }
    if parts == Part::ALL {
        return json!({ "pg_ready": true, "pg_map": out });
    }
    out["pg_ready"] = true.into();
    out
}

fn stat_sum(objects: u64, bytes: u64) -> Value {
    json!({ "num_objects": objects, "num_bytes": bytes })
}

fn space(total: u64, used: u64) -> Value {
    json!({ "kb": total / 1024, "kb_used": used / 1024, "kb_avail": total.saturating_sub(used) / 1024 })
}

/// Objects and bytes of each pool, with its number of PGs.
fn pools(view: &View<'_>) -> Vec<(i64, u32, u64, u64)> {
    let held = view.stats.pools();
    let one = |(id, pool): (&i64, &PgPool)| {
        let (objects, bytes) = held.get(id).map_or((0, 0), |held| (held.objects, held.bytes));
        (*id, pool.pg_num, objects, bytes)
    };
    view.map.pools.iter().map(one).collect()
}

fn pools_text(view: &View<'_>) -> String {
    let mut table = Table::new("POOLID|PGS|OBJECTS|BYTES");
    for (id, pgs, objects, bytes) in pools(view) {
        table.row(&format!("{id}|{pgs}|{objects}|{bytes}"));
    }
    table.render()
}

fn pools_json(view: &View<'_>) -> Value {
    let one = |(id, pgs, objects, bytes)| json!({ "poolid": id, "num_pg": pgs, "stat_sum": stat_sum(objects, bytes) });
    pools(view).into_iter().map(one).collect()
}

fn osds_text(view: &View<'_>) -> String {
    let mut table = Table::new("OSD_STAT|KB_USED|KB_AVAIL|KB_TOTAL|PGS");
    let pgs = per_osd(view);
    for osd in view.map.osds() {
        let (total, used) = view.stats.space_of(osd);
        let [used, free, total] = [used, total.saturating_sub(used), total].map(|bytes| bytes / 1024);
        let serves = pgs.get(&osd).copied().unwrap_or(0);
        table.row(&format!("{}|{used}|{free}|{total}|{serves}", osd.0));
    }
    table.render()
}

fn osds_json(view: &View<'_>) -> Value {
    let pgs = per_osd(view);
    let one = |osd: OsdId| {
        let (total, used) = view.stats.space_of(osd);
        let mut out = space(total, used);
        out["osd"] = osd.0.into();
        out["num_pgs"] = pgs.get(&osd).copied().unwrap_or(0).into();
        out
    };
    view.map.osds().map(one).collect()
}

/// `osd map`: where an object would be, whether it exists or not.
pub(crate) struct Found<'a> {
    view: &'a View<'a>,
    pool: &'a str,
    /// With its namespace, as `ns/name`.
    object: String,
    /// The PG of the object's whole hash.
    raw: PgId,
    pg: PgId,
}

/// `None` if there is no such pool.
pub(crate) fn find<'a>(view: &'a View<'a>, pool: &'a str, object: &str, nspace: &str) -> Option<Found<'a>> {
    let pool_id = view.map.pool_id(pool)?;
    let hash = object_hash(nspace.as_bytes(), b"", object.as_bytes());
    let pg = PgId::of_hash(pool_id, hash, view.map.pool(pool_id)?.pg_num);
    let object = if nspace.is_empty() { object.to_owned() } else { format!("{nspace}/{object}") };
    Some(Found { view, pool, object, raw: PgId::new(pool_id, hash), pg })
}

impl Found<'_> {
    /// `osdmap e13 pool 'rbd' (1) object 'o' -> pg 1.7fc1f406 (1.6) -> up ([0,1,2], p0) acting ([0,1,2], p0)`
    pub(crate) fn text(&self) -> String {
        let Found { view, pool, object, raw, pg } = self;
        let m = view.placement.mapping(*pg);
        let (up, up_primary) = (list(&m.up), primary(m.up_primary));
        let (acting, acting_primary) = (list(&m.acting), primary(m.acting_primary));
        format!(
            "osdmap e{} pool '{pool}' ({}) object '{object}' -> pg {raw} ({pg}) -> up ({up}, p{up_primary}) \
             acting ({acting}, p{acting_primary})\n",
            view.map.epoch.0, pg.pool
        )
    }

    /// The same by name.
    pub(crate) fn json(&self) -> Value {
        let m = self.view.placement.mapping(self.pg);
        json!({
            "epoch": self.view.map.epoch.0, "pool": self.pool, "pool_id": self.pg.pool, "objname": self.object,
            "raw_pgid": self.raw.to_string(), "pgid": self.pg.to_string(),
            "up": m.up.to_vec(), "up_primary": primary(m.up_primary),
            "acting": m.acting.to_vec(), "acting_primary": primary(m.acting_primary),
        })
    }
}
