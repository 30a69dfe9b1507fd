//! PGs: where they are, their statistics as their primaries tell them, and the way of an object to its PG.

use std::borrow::Cow;
use std::collections::BTreeMap;

use carmine_crush::{Mapping, object_hash, stable_mod};
use carmine_types::{OsdId, PgId, UTime};
use carmine_wire::osdmap::{OsdMap, PgPool};
use carmine_wire::pg_stat::{ObjectStatSum, PgStat, state};
use serde_json::{Map, Value, json};

use super::cluster::usage;
use super::dump::{joined, time};
use super::share;
use super::table::{Table, age, bytes};
use crate::command::View;
use crate::stats::{sum_of, unsigned};

/// PGs of all pools.
pub(crate) fn total(map: &OsdMap) -> u64 {
    map.pools.values().map(|p| u64::from(p.pg_num)).sum()
}

/// The state of one PG by Ceph's names: `stale` if nobody serves it, `unknown` if nobody has told of it yet.
pub(crate) fn state(view: &View<'_>, pg: PgId, mapping: &Mapping) -> String {
    let Some(primary) = mapping.acting_primary else { return "stale".into() };
    if !view.stats.reports.contains_key(&primary) {
        return "unknown".into();
    }
    let is_current = |stat: &&PgStat| stat.acting == mapping.acting.as_slice();
    state::words(match view.stats.pg(pg, primary).filter(is_current) {
        Some(stat) if mapping.acting == mapping.up => stat.states() & !state::REMAPPED,
        Some(stat) if stat.is(state::ACTIVE) => stat.states() | state::REMAPPED,
        Some(stat) => stat.states(),
        // Its primary has not told of this interval.
        None => view.stats.last_pg(pg).map_or(0, |last| state::PEERING | last.states() & LASTING),
    })
}

/// States that a new interval does not end by itself.
const LASTING: u64 = state::INCONSISTENT | state::DEGRADED | state::UNDERSIZED;

/// What is known of a PG: what its last primary told of it.
fn stat_of<'a>(view: &'a View<'_>, pg: PgId) -> Cow<'a, PgStat> {
    view.stats.last_pg(pg).map_or_else(|| Cow::Owned(PgStat::default()), Cow::Borrowed)
}

/// The PGs of which a counter is not 0: state, acting set, its value.
pub(super) fn with_any(
    view: &View<'_>,
    counter: fn(&ObjectStatSum) -> i64,
) -> Vec<(PgId, String, String, u64)> {
    let count = |pg| view.stats.last_pg(pg).map_or(0, |stat| unsigned(counter(&stat.stats.sum)));
    let all = view.placement.pgs().map(|(pg, mapping)| (pg, mapping, count(pg)));
    let some = all.filter(|(.., count)| *count > 0);
    some.map(|(pg, mapping, count)| (pg, state(view, pg, mapping), list(&mapping.acting), count)).collect()
}

/// The PGs in this state: state, acting set, and the seconds since they were last not in it, by `since`.
pub(super) fn in_state(
    view: &View<'_>,
    word: &str,
    since: fn(&PgStat) -> UTime,
) -> Vec<(PgId, String, String, u64)> {
    let states = view.placement.pgs().map(|(pg, mapping)| (pg, mapping, state(view, pg, mapping)));
    let some = states.filter(|(.., state)| has(state, word));
    let seconds = |pg| {
        let last = since(&stat_of(view, pg)).to_unix();
        view.now.to_unix().saturating_sub(last).as_secs()
    };
    some.map(|(pg, mapping, state)| (pg, state, list(&mapping.acting), seconds(pg))).collect()
}

/// One of a state's words.
fn has(state: &str, word: &str) -> bool {
    state.split('+').any(|has| has == word)
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
    let held = view.stats.held();
    let shares: String = share::lines(&held).iter().map(|line| format!("; {line}")).collect();
    format!(
        "{} pgs: {}; {} data, {}{shares}\n",
        total(view.map),
        states.join(", "),
        bytes(unsigned(held.num_bytes)),
        usage(view)
    )
}

/// The same by name.
pub(crate) fn stat_json(view: &View<'_>) -> Value {
    let (total_bytes, used) = view.stats.space();
    let states: Vec<Value> =
        by_state(view).into_iter().map(|(name, num)| json!({ "name": name, "num": num })).collect();
    let held = view.stats.held();
    let summary = json!({
        "num_pg_by_state": states, "num_pgs": total(view.map), "num_bytes": held.num_bytes,
        "total_bytes": total_bytes, "total_avail_bytes": total_bytes.saturating_sub(used), "total_used_bytes": used,
        "total_used_raw_bytes": used,
    });
    json!({ "pg_ready": true, "pg_summary": joined([summary, share::json(&held)]) })
}

fn primary(osd: Option<OsdId>) -> i64 {
    osd.map_or(-1, |osd| i64::from(osd.0))
}

/// `[0,1,2]`
pub(super) fn list(osds: &[i32]) -> String {
    format!("[{}]", osds.iter().map(i32::to_string).collect::<Vec<_>>().join(","))
}

/// Columns that all lists of PGs have.
const BRIEF: &str = "PG_STAT|STATE|UP|UP_PRIMARY|ACTING|ACTING_PRIMARY";
/// Those of `pg dump`, and those of `pg ls`.
const DUMP: &str = "PG_STAT|OBJECTS|MISSING_ON_PRIMARY|DEGRADED|MISPLACED|UNFOUND|BYTES|OMAP_BYTES*|OMAP_KEYS*|LOG|DISK_LOG|STATE|\
                    STATE_STAMP|VERSION|REPORTED|UP|UP_PRIMARY|ACTING|ACTING_PRIMARY|LAST_SCRUB|SCRUB_STAMP|LAST_DEEP_SCRUB|\
                    DEEP_SCRUB_STAMP|SNAPTRIMQ_LEN";
const LIST: &str = "<PG|OBJECTS|DEGRADED|MISPLACED|UNFOUND|BYTES|OMAP_BYTES*|OMAP_KEYS*|LOG|<STATE|SINCE|VERSION|REPORTED|UP|\
                    ACTING|SCRUB_STAMP|DEEP_SCRUB_STAMP";
/// What the stars mean.
const OMAP_NOTE: &str = "\n* NOTE: omap statistics are gathered during deep scrub\n";

/// How much is said of each PG.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// State and OSDs.
    Brief,
    Dump,
    List,
}

/// A line for each of these PGs.
pub(super) fn lines(view: &View<'_>, pgs: impl IntoIterator<Item = PgId>, style: Style) -> String {
    let mut table = Table::new(match style {
        Style::Brief => BRIEF,
        Style::Dump => DUMP,
        Style::List => LIST,
    });
    for pg in pgs {
        table.row(&line(view, pg, style));
    }
    let note = if style == Style::Brief { "" } else { OMAP_NOTE };
    format!("{}{note}", table.render())
}

fn line(view: &View<'_>, pg: PgId, style: Style) -> String {
    let mapping = view.placement.mapping(pg);
    let (up, up_primary) = (list(&mapping.up), primary(mapping.up_primary));
    let (acting, acting_primary) = (list(&mapping.acting), primary(mapping.acting_primary));
    let (state, stat) = (state(view, pg, mapping), stat_of(view, pg));
    let sum = &stat.stats.sum;
    let ObjectStatSum { num_objects, num_objects_missing_on_primary, num_objects_degraded, .. } = sum;
    let ObjectStatSum { num_objects_misplaced, num_objects_unfound, num_bytes, .. } = sum;
    let ObjectStatSum { num_omap_bytes, num_omap_keys, .. } = sum;
    let (log, disk_log) = (stat.log_size, stat.ondisk_log_size);
    let (version, reported) = (stat.version, format!("{}:{}", stat.reported_epoch, stat.reported_seq));
    let [(scrub, at), (deep, deep_at)] =
        [stat.last_scrub, stat.last_deep_scrub].map(|stamp| (stamp.version, time(stamp.time)));
    let osds = format!("{up}|{up_primary}|{acting}|{acting_primary}");
    match style {
        Style::Brief => format!("{pg}|{state}|{osds}"),
        Style::Dump => {
            let (stamp, queue) = (time(stat.last_change), stat.snaptrimq_len);
            format!(
                "{pg}|{num_objects}|{num_objects_missing_on_primary}|{num_objects_degraded}|{num_objects_misplaced}|\
                 {num_objects_unfound}|{num_bytes}|{num_omap_bytes}|{num_omap_keys}|{log}|{disk_log}|{state}|{stamp}|\
                 {version}|{reported}|{osds}|{scrub}|{at}|{deep}|{deep_at}|{queue}"
            )
        }
        Style::List => {
            let since = age(view.now.to_unix().saturating_sub(stat.last_change.to_unix()).as_secs());
            format!(
                "{pg}|{num_objects}|{num_objects_degraded}|{num_objects_misplaced}|{num_objects_unfound}|{num_bytes}|\
                 {num_omap_bytes}|{num_omap_keys}|{log}|{state}|{since}|{version}|{reported}|{up}p{up_primary}|\
                 {acting}p{acting_primary}|{at}|{deep_at}"
            )
        }
    }
}

/// The same by name.
pub(super) fn objects(view: &View<'_>, pgs: impl IntoIterator<Item = PgId>) -> Value {
    pgs.into_iter().map(|pg| object(view, pg)).collect()
}

/// All fields of a `pg_stat_t`.
fn object(view: &View<'_>, pg: PgId) -> Value {
    let (mapping, stat) = (view.placement.mapping(pg), stat_of(view, pg));
    let stat = &*stat;
    let place = json!({
        "pgid": pg.to_string(), "state": state(view, pg, mapping),
        "up": mapping.up.to_vec(), "acting": mapping.acting.to_vec(),
        "up_primary": primary(mapping.up_primary), "acting_primary": primary(mapping.acting_primary),
        "mapping_epoch": stat.mapping_epoch.0, "blocked_by": stat.blocked_by,
        "avail_no_missing": [], "object_location_counts": [],
    });
    let versions = json!({
        "version": stat.version.to_string(), "reported_seq": stat.reported_seq,
        "reported_epoch": stat.reported_epoch.0, "log_start": stat.log_start.to_string(),
        "ondisk_log_start": stat.ondisk_log_start.to_string(), "created": stat.created.0,
        "last_epoch_clean": stat.last_epoch_clean.0, "parent": stat.parent.to_string(),
        "parent_split_bits": stat.parent_split_bits, "log_size": stat.log_size,
        "ondisk_log_size": stat.ondisk_log_size,
    });
    let stamps = json!({
        "last_fresh": time(stat.last_fresh), "last_change": time(stat.last_change),
        "last_active": time(stat.last_active), "last_peered": time(stat.last_peered),
        "last_clean": time(stat.last_clean), "last_became_active": time(stat.last_became_active),
        "last_became_peered": time(stat.last_became_peered), "last_unstale": time(stat.last_unstale),
        "last_undegraded": time(stat.last_undegraded), "last_fullsized": time(stat.last_fullsized),
    });
    let (scrub, deep) = (stat.last_scrub, stat.last_deep_scrub);
    let scrubs = json!({
        "last_scrub": scrub.version.to_string(), "last_scrub_stamp": time(scrub.time),
        "last_deep_scrub": deep.version.to_string(), "last_deep_scrub_stamp": time(deep.time),
        "last_clean_scrub_stamp": time(stat.last_clean_scrub_stamp),
    });
    let counts = json!({
        "stats_invalid": stat.stats_invalid, "dirty_stats_invalid": stat.dirty_stats_invalid,
        "omap_stats_invalid": stat.omap_stats_invalid, "hitset_stats_invalid": stat.hitset_stats_invalid,
        "hitset_bytes_stats_invalid": stat.hitset_bytes_stats_invalid,
        "pin_stats_invalid": stat.pin_stats_invalid, "manifest_stats_invalid": stat.manifest_stats_invalid,
        "snaptrimq_len": stat.snaptrimq_len, "stat_sum": stat_sum(&stat.stats.sum),
        "purged_snaps": super::dump::ranges(&stat.purged_snaps),
    });
    joined([place, versions, stamps, scrubs, counts])
}

/// Every counter by name.
fn stat_sum(sum: &ObjectStatSum) -> Value {
    sum.counters().map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<_, _>>().into()
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
            && filter.states.iter().all(|wanted| has(state, wanted))
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
    pub(crate) fn from_word(word: &str) -> Option<Stuck> {
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
        match self {
            Stuck::Inactive => !has(state, "active"),
            Stuck::Unclean => !has(state, "clean"),
            Stuck::Stale => has(state, "stale"),
            Stuck::Undersized => has(state, "undersized"),
            Stuck::Degraded => has(state, "degraded"),
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
        some => lines(view, some, Style::Brief),
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
    pub(crate) fn from_word(word: &str) -> Option<&'static [Part]> {
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
pub(crate) fn list_text(view: &View<'_>, filter: &Filter, style: Style) -> String {
    lines(view, filtered(view, filter), style)
}

/// The same by name.
pub(crate) fn list_json(view: &View<'_>, filter: &Filter) -> Value {
    json!({ "pg_ready": true, "pg_stats": objects(view, filtered(view, filter)) })
}

/// Tables of the parts, one below the other.
pub(crate) fn dump_text(view: &View<'_>, parts: &[Part]) -> String {
    let one = |part: &Part| match part {
        Part::Pgs => list_text(view, &Filter::default(), Style::Dump),
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
                out["version"] = view.map.epoch.0.into();
                out["stamp"] = time(view.now).into();
                out["last_osdmap_epoch"] = view.map.epoch.0.into();
                out["last_pg_scan"] = 0.into();
                out["pg_stats_sum"] = sums(view, |_| true);
                out["osd_stats_sum"] = osd_stat(view, view.map.osds());
            }
        }
    }
    if parts == Part::ALL {
        return json!({ "pg_ready": true, "pg_map": out });
    }
    out["pg_ready"] = true.into();
    out
}

/// The statistics of some PGs together, as Ceph dumps them for a pool.
fn sums(view: &View<'_>, is_meant: impl Fn(PgId) -> bool) -> Value {
    let told = view.stats.pgs.iter().filter(|(pg, _)| is_meant(**pg)).map(|(pg, (_, stat))| (*pg, stat));
    let (log, disk_log) = told.clone().fold((0i64, 0i64), |(log, disk_log), (_, stat)| {
        (log.saturating_add(stat.log_size), disk_log.saturating_add(stat.ondisk_log_size))
    });
    let copies = |(pg, stat): (PgId, &PgStat)| {
        let size = view.map.pool(pg.pool).map_or(0, |pool| u64::from(pool.size));
        unsigned(stat.stats.sum.num_bytes).saturating_mul(size)
    };
    let stored = told.clone().map(copies).fold(0, u64::saturating_add);
    let statfs = statfs(stored);
    let pgs = view.placement.pgs().filter(|(pg, _)| is_meant(*pg));
    let (up, acting) = pgs.fold((0, 0), |(up, acting), (_, mapping)| {
        (up + mapping.up.len(), acting + mapping.acting_osds().count())
    });
    json!({
        "stat_sum": stat_sum(&sum_of(told.map(|(_, stat)| stat.stats.sum))), "store_stats": statfs,
        "log_size": log, "ondisk_log_size": disk_log, "up": up, "acting": acting,
        "num_store_stats": view.stats.reports.len(),
    })
}

/// A `store_statfs_t` of a pool: of its objects' bytes on all OSDs.
fn statfs(stored: u64) -> Value {
    json!({
        "total": 0, "available": 0, "internally_reserved": 0, "allocated": stored, "data_stored": stored,
        "data_compressed": 0, "data_compressed_allocated": 0, "data_compressed_original": 0, "omap_allocated": 0,
        "internal_metadata": 0,
    })
}

fn pools_text(view: &View<'_>) -> String {
    let mut table = Table::new(
        "POOLID|OBJECTS|MISSING_ON_PRIMARY|DEGRADED|MISPLACED|UNFOUND|BYTES|OMAP_BYTES*|OMAP_KEYS*",
    );
    let held = view.stats.pools();
    for id in view.map.pools.keys() {
        let sum = held.get(id).copied().unwrap_or_default();
        let ObjectStatSum { num_objects, num_objects_missing_on_primary, num_objects_degraded, .. } = sum;
        let ObjectStatSum { num_objects_misplaced, num_objects_unfound, num_bytes, .. } = sum;
        let ObjectStatSum { num_omap_bytes, num_omap_keys, .. } = sum;
        table.row(&format!(
            "{id}|{num_objects}|{num_objects_missing_on_primary}|{num_objects_degraded}|{num_objects_misplaced}|\
             {num_objects_unfound}|{num_bytes}|{num_omap_bytes}|{num_omap_keys}"
        ));
    }
    table.render()
}

fn pools_json(view: &View<'_>) -> Value {
    let held = view.stats.pools();
    let one = |(id, pool): (&i64, &PgPool)| {
        let mut out = sums(view, |pg| pg.pool == *id);
        // What clients did is counted across changes of primaries.
        out["stat_sum"] = stat_sum(&held.get(id).copied().unwrap_or_default());
        joined([json!({ "poolid": id, "num_pg": pool.pg_num }), out])
    };
    view.map.pools.iter().map(one).collect()
}

fn osds_text(view: &View<'_>) -> String {
    let mut table = Table::new("OSD_STAT|USED|AVAIL|USED_RAW|TOTAL|PG_SUM|PRIMARY_PG_SUM");
    let pgs = per_osd(view);
    let leads = |osd| view.placement.pgs().filter(|(_, mapping)| mapping.acting_primary == Some(osd)).count();
    for osd in view.map.osds() {
        let (total, used) = view.stats.space_of(osd);
        let [used, free, total] = [used, total.saturating_sub(used), total].map(bytes);
        let serves = pgs.get(&osd).copied().unwrap_or(0);
        table.row(&format!("{}|{used}|{free}|{used}|{total}|{serves}|{}", osd.0, leads(osd)));
    }
    table.render()
}

fn osds_json(view: &View<'_>) -> Value {
    let one = |osd: OsdId| {
        let mut out = osd_stat(view, [osd].into_iter());
        out["osd"] = osd.0.into();
        out["up_from"] = view.map.osd_info.get(osd.0 as usize).map_or(0, |info| info.up_from.0).into();
        out
    };
    view.map.osds().map(one).collect()
}

/// An `osd_stat_t` of some OSDs together.
fn osd_stat(view: &View<'_>, osds: impl Iterator<Item = OsdId>) -> Value {
    let osds: Vec<OsdId> = osds.collect();
    let (total, used) = osds
        .iter()
        .map(|osd| view.stats.space_of(*osd))
        .fold((0u64, 0u64), |all, one| (all.0.saturating_add(one.0), all.1.saturating_add(one.1)));
    let free = total.saturating_sub(used);
    let pgs = per_osd(view);
    let served: u64 = osds.iter().filter_map(|osd| pgs.get(osd)).sum();
    let led = view.stats.pgs.values().filter(|(teller, _)| osds.contains(teller));
    let (queue, trimming) = led.fold((0u64, 0u64), |(queue, trimming), (_, stat)| {
        (queue + u64::from(stat.snaptrimq_len), trimming + u64::from(stat.is(state::SNAPTRIM)))
    });
    let latency_ns =
        osds.iter().filter_map(|osd| view.stats.reports.get(osd)).map(|report| report.commit_latency_ns);
    let latency_ns = latency_ns.max().unwrap_or(0);
    let space = json!({
        "kb": total / 1024, "kb_used": used / 1024, "kb_used_data": used / 1024, "kb_used_omap": 0, "kb_used_meta": 0,
        "kb_avail": free / 1024,
        "statfs": joined([statfs(used), json!({ "total": total, "available": free })]),
    });
    let rest = json!({
        "up_from": 0, "seq": 0, "num_pgs": served, "num_osds": osds.len(), "num_per_pool_osds": osds.len(),
        "num_per_pool_omap_osds": 0, "hb_peers": [], "snap_trim_queue_len": queue, "num_snap_trimming": trimming,
        "num_shards_repaired": 0, "op_queue_age_hist": { "histogram": [], "upper_bound": 1 },
        "perf_stat": super::osd::perf_stat(latency_ns), "alerts": [], "network_ping_times": [],
    });
    joined([space, rest])
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
