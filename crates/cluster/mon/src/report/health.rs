//! `health`: what is wrong, by Ceph's names of checks.

use std::fmt::Write as _;

use carmine_types::{OsdId, PgId, UTime, errno};
use carmine_wire::osdmap::consts::{
    FLAG_NAMES, POOL_BACKFILLFULL, POOL_FULL, POOL_NEARFULL, STATE_BACKFILLFULL, STATE_FULL, STATE_NEARFULL,
};
use serde_json::{Map, Value, json};

use super::table::age;
use super::{autoscale, pg, share, time};
use crate::change::group::BARS;
use crate::change::{Refusal, refuse};
use crate::command::View;
use crate::options::Mute;
use crate::stats::unsigned;

/// Flags that are no complaint: every Pacific cluster has them.
const NORMAL_FLAGS: [&str; 4] = ["sortbitwise", "recovery_deletes", "purged_snapdirs", "pglog_hardlimit"];
/// Lines of detail of one check.
const DETAILS_MAX: usize = 50;
/// A PG is stuck in a state after this time (Ceph's mon_pg_stuck_threshold).
const STUCK_S: u64 = 60;
/// Below the pools with large omaps.
const LARGE_OMAP_HINT: &str = "Search the cluster log for 'Large omap object found' for more details.";

/// OSDs that the check of slow operations names.
const SLOW_OSDS_MAX: usize = 10;

/// One thing that is wrong.
#[derive(Clone)]
struct Check {
    code: &'static str,
    /// Clients cannot do their work.
    is_error: bool,
    summary: String,
    details: Vec<String>,
}

impl Check {
    /// Of how many things it tells: a line that says where to look for more is none.
    fn count(&self) -> u64 {
        let things = self.details.iter().filter(|line| **line != LARGE_OMAP_HINT).count();
        things.max(1) as u64
    }
}

fn checks(view: &View<'_>) -> Vec<Check> {
    let pgs = [unavailable(view), degraded(view), unfound(view), large_omaps(view)];
    let others = [untagged(view), slow(view), unreadable(view)];
    let numbers = pg_numbers(view);
    let single = [flags(view), osd_flags(view), down(view)].into_iter().chain(pgs).chain(others);
    single.flatten().chain(full(view)).chain(damaged(view)).chain(numbers).collect()
}

fn warning(code: &'static str, summary: String, details: Vec<String>) -> Option<Check> {
    (!details.is_empty()).then_some(Check { code, is_error: false, summary, details })
}

fn flags(view: &View<'_>) -> Option<Check> {
    let is_set =
        |(bit, name): &&(u32, &'static str)| view.map.flags & bit != 0 && !NORMAL_FLAGS.contains(name);
    let set: Vec<&str> = FLAG_NAMES.iter().filter(is_set).map(|(_, name)| *name).collect();
    let summary = format!("{} flag(s) set", set.join(","));
    (!set.is_empty()).then_some(Check { code: "OSDMAP_FLAGS", is_error: false, summary, details: Vec::new() })
}

/// Pools whose numbers of PGs are odd, and those of which the autoscaler is to complain.
fn pg_numbers(view: &View<'_>) -> Vec<Check> {
    let pools = || view.map.pools.iter().filter_map(|(id, pool)| Some((view.map.pool_name(*id)?, pool)));
    let odd = pools().filter(|(_, pool)| !pool.pg_num_target.is_power_of_two());
    let odd: Vec<String> = odd
        .map(|(name, pool)| format!("pool '{name}' pg_num {} is not a power of two", pool.pg_num_target))
        .collect();
    let behind = pools().filter(|(_, pool)| pool.pg_num_target > pool.pgp_num_target);
    let behind: Vec<String> = behind
        .map(|(name, pool)| {
            format!("pool {name} pg_num {} > pgp_num {}", pool.pg_num_target, pool.pgp_num_target)
        })
        .collect();
    let [few, many] = autoscale::complaints(view);
    let pools = |lines: &[String], what: &str| format!("{} pools have {what}", lines.len());
    let checks = [
        warning(
            "POOL_PG_NUM_NOT_POWER_OF_TWO",
            format!("{} pool(s) have non-power-of-two pg_num", odd.len()),
            odd,
        ),
        warning("POOL_TOO_FEW_PGS", pools(&few, "too few placement groups"), few),
        warning("POOL_TOO_MANY_PGS", pools(&many, "too many placement groups"), many),
        warning("SMALLER_PGP_NUM", pools(&behind, "pg_num > pgp_num"), behind),
    ];
    checks.into_iter().flatten().collect()
}

/// Flags of single OSDs, of CRUSH nodes and of device classes.
fn osd_flags(view: &View<'_>) -> Option<Check> {
    let (map, mut details) = (view.map, Vec::new());
    let mut note = |what: String, flags: u32| {
        let set: Vec<&str> = BARS.iter().filter(|bar| flags & bar.of_osd != 0).map(|bar| bar.name).collect();
        if !set.is_empty() {
            details.push(format!("{what} has flags {}", set.join(",")));
        }
    };
    map.osds().for_each(|osd| note(osd.to_string(), map.state(osd)));
    for (node, flags) in &map.crush_node_flags {
        let bucket = map.crush.bucket(*node).map(|bucket| i32::from(bucket.kind_id));
        let kind = bucket.and_then(|kind| map.crush.type_names.get(&kind)).map_or("node", String::as_str);
        note(format!("{kind} {}", map.crush.item_name(*node).unwrap_or_default()), *flags);
    }
    for (class, flags) in &map.device_class_flags {
        let name = map.crush.class_names.get(class).map_or("", String::as_str);
        note(format!("device class '{name}'"), *flags);
    }
    let summary = format!(
        "{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set",
        details.len()
    );
    warning("OSD_FLAGS", summary, details)
}

fn down(view: &View<'_>) -> Option<Check> {
    let down = view.map.osds().filter(|osd| view.map.is_in(*osd) && !view.map.is_up(*osd));
    let details: Vec<String> = down.map(|osd| format!("{osd} is down")).collect();
    warning("OSD_DOWN", format!("{} osds down", details.len()), details)
}

fn unavailable(view: &View<'_>) -> Option<Check> {
    let all = pg::states(view).into_iter().filter(|(_, state)| !state.starts_with("active"));
    let details: Vec<String> = all.map(|(pg, state)| format!("pg {pg} is {state}")).collect();
    let summary = format!("Reduced data availability: {} inactive", pgs(details.len()));
    warning("PG_AVAILABILITY", summary, details)
}

/// Objects with too few copies; and PGs that have had too few OSDs for a while, whether they have objects or not.
fn degraded(view: &View<'_>) -> Option<Check> {
    let objects = share::line(&view.stats.held(), "degraded");
    let mut details = Vec::new();
    let degraded = pg::in_state(view, "degraded", |stat| stat.last_undegraded);
    let short = pg::in_state(view, "undersized", |stat| stat.last_fullsized);
    let short: Vec<_> = short.into_iter().filter(|(.., seconds)| *seconds >= STUCK_S).collect();
    let is_short = |id: &PgId| short.iter().any(|(pg, ..)| pg == id);
    for (pg, state, acting, _) in degraded.iter().filter(|(pg, ..)| !is_short(pg)) {
        details.push(format!("pg {pg} is {state}, acting {acting}"));
    }
    for (pg, state, acting, seconds) in &short {
        let since = age(*seconds);
        details.push(format!(
            "pg {pg} is stuck undersized for {since}, current state {state}, last acting {acting}"
        ));
    }
    let count = |count: usize, word: &str| (count > 0).then(|| format!("{} {word}", pgs(count)));
    let parts = [objects, count(degraded.len(), "degraded"), count(short.len(), "undersized")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    warning("PG_DEGRADED", format!("Degraded data redundancy: {}", parts.join(", ")), details)
}

/// `1 pg`, `2 pgs`
fn pgs(count: usize) -> String {
    format!("{count} pg{}", if count == 1 { "" } else { "s" })
}

/// Objects of which no copy is known to be whole, while an OSD that is down may have them.
fn unfound(view: &View<'_>) -> Option<Check> {
    let all = pg::with_any(view, |sum| sum.num_objects_unfound);
    let details = all.iter().map(|(pg, .., count)| format!("pg {pg} has {count} unfound objects")).collect();
    warning("OBJECT_UNFOUND", share::line(&view.stats.held(), "unfound").unwrap_or_default(), details)
}

/// Objects with more omap than is good, as the last deep scrubs saw them.
fn large_omaps(view: &View<'_>) -> Option<Check> {
    let held = view.stats.pools();
    let large = |id: &i64| held.get(id).map_or(0, |sum| unsigned(sum.num_large_omap_objects));
    let pools =
        view.map.pool_names.iter().map(|(id, name)| (large(id), name)).filter(|(count, _)| *count > 0);
    let (mut all, mut details) = (0, Vec::new());
    for (count, name) in pools {
        all += count;
        details.push(format!("{count} large objects found in pool '{name}'"));
    }
    if all > 0 {
        details.push(LARGE_OMAP_HINT.to_owned());
    }
    warning("LARGE_OMAP_OBJECTS", format!("{all} large omap objects"), details)
}

/// Operations of clients that OSDs have not answered for long, in Ceph's words.
fn slow(view: &View<'_>) -> Option<Check> {
    let slow = || view.stats.reports.iter().filter(|(_, report)| report.slow_ops > 0);
    let count: u64 = slow().map(|(_, report)| report.slow_ops).fold(0, u64::saturating_add);
    let slowest_s = slow().map(|(_, report)| report.slowest_s).max()?;
    let osds: Vec<String> = slow().map(|(osd, _)| osd.to_string()).collect();
    let named = osds.iter().take(SLOW_OSDS_MAX).map(String::as_str).collect::<Vec<_>>().join(",");
    let more = if osds.len() > SLOW_OSDS_MAX { "..." } else { "" };
    let who = match osds.as_slice() {
        [one] => format!("{one} has slow ops"),
        _ => format!("daemons [{named}]{more} have slow ops."),
    };
    let summary = format!("{count} slow ops, oldest one blocked for {slowest_s} sec, {who}");
    Some(Check { code: "SLOW_OPS", is_error: false, summary, details: Vec::new() })
}

fn untagged(view: &View<'_>) -> Option<Check> {
    let is_untagged = |id: &i64| view.map.pool(*id).is_some_and(|pool| pool.application_metadata.is_empty());
    let held = view.stats.pools();
    let holds = |id: &i64| held.get(id).is_some_and(|held| held.num_objects > 0);
    let pools = view.map.pool_names.iter().filter(|(id, _)| is_untagged(id) && holds(id));
    let details: Vec<String> =
        pools.map(|(_, name)| format!("application not enabled on pool '{name}'")).collect();
    let summary = format!("{} pool(s) do not have an application enabled", details.len());
    warning("POOL_APP_NOT_ENABLED", summary, details)
}

/// OSDs that could not read their metadata: each has ended itself, or does so when others can do without it.
fn unreadable(view: &View<'_>) -> Option<Check> {
    let damage = view.stats.damage.iter().filter(|(osd, _)| view.map.exists(**osd));
    let details: Vec<String> = damage.map(|(osd, what)| format!("{osd}: {what}")).collect();
    let summary = format!("{} osds cannot read their metadata and have to be replaced", details.len());
    warning("OSD_DAMAGED", summary, details).map(|check| Check { is_error: true, ..check })
}

/// The damage that scrubs have found, and objects of which no copy is known to be whole.
fn damaged(view: &View<'_>) -> Vec<Check> {
    let inconsistent = pg::with_any(view, |sum| sum.num_scrub_errors);
    let errors: u64 = inconsistent.iter().map(|(.., errors)| errors).sum();
    let unfound = pg::with_any(view, |sum| sum.num_objects_unfound).into_iter();
    let mut bad: Vec<_> =
        unfound.map(|(pg, state, acting, n)| (pg, state, format!("{acting}, {n} unfound"))).collect();
    bad.extend(inconsistent.into_iter().map(|(pg, state, acting, _)| (pg, state, acting)));
    let words = ["recovery_unfound", "backfill_unfound", "inconsistent"].map(|word| {
        let count = bad.iter().filter(|(_, state, _)| state.contains(word)).count();
        (count > 0).then(|| format!("{} {word}", pgs(count)))
    });
    let words: Vec<String> = words.into_iter().flatten().collect();
    let lines = bad.iter().map(|(pg, state, acting)| format!("pg {pg} is {state}, acting {acting}"));
    let found = warning("PG_DAMAGED", format!("Possible data damage: {}", words.join(", ")), lines.collect());
    let count = (errors > 0).then(|| Check {
        code: "OSD_SCRUB_ERRORS",
        is_error: true,
        summary: format!("{errors} scrub errors"),
        details: Vec::new(),
    });
    count.into_iter().chain(found.map(|check| Check { is_error: true, ..check })).collect()
}

/// OSDs, then pools, that are full by each of the three degrees; only the highest is an error.
fn full(view: &View<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    let degrees = ["full", "backfillfull", "nearfull"];
    let codes = ["OSD_FULL", "OSD_BACKFILLFULL", "OSD_NEARFULL"];
    let state = |osd: OsdId| match view.map.is_up(osd) && view.map.is_in(osd) {
        true => view.map.osd_state.get(osd.0 as usize).copied().unwrap_or_default(),
        // Its data lies elsewhere.
        false => 0,
    };
    for ((bit, code), word) in
        [STATE_FULL, STATE_BACKFILLFULL, STATE_NEARFULL].into_iter().zip(codes).zip(degrees)
    {
        let osds = view.map.osds().filter(|osd| state(*osd) & bit != 0);
        let details: Vec<String> = osds.map(|osd| format!("{osd} is {word}")).collect();
        let check = warning(code, format!("{} {word} osd(s)", details.len()), details);
        checks.extend(check.map(|check| Check { is_error: bit == STATE_FULL, ..check }));
    }
    let codes = ["POOL_FULL", "POOL_BACKFILLFULL", "POOL_NEARFULL"];
    for ((bit, code), word) in
        [POOL_FULL, POOL_BACKFILLFULL, POOL_NEARFULL].into_iter().zip(codes).zip(degrees)
    {
        let has = |id: &i64| view.map.pool(*id).is_some_and(|pool| pool.flags & bit != 0);
        let names = view.map.pool_names.iter().filter(|(id, _)| has(id));
        let details: Vec<String> =
            names.map(|(_, name)| format!("pool '{name}' is {word} (no space)")).collect();
        let check = warning(code, format!("{} pool(s) {word}", details.len()), details);
        checks.extend(check.map(|check| Check { is_error: bit == POOL_FULL, ..check }));
    }
    checks
}

/// By those that are not muted.
fn word(view: &View<'_>, checks: &[Check]) -> &'static str {
    let heard = || checks.iter().filter(move |check| mute_of(view, check).is_none());
    match heard().next() {
        None => "HEALTH_OK",
        Some(_) if heard().any(|check| check.is_error) => "HEALTH_ERR",
        Some(_) => "HEALTH_WARN",
    }
}

fn mute_of<'a>(view: &'a View<'_>, check: &Check) -> Option<&'a Mute> {
    view.options.mutes.get(check.code).filter(|mute| !mute.is_over(view.now))
}

/// The mute of a check, from now on.
///
/// # Errors
/// ENOENT: there is no such check now, and none is to be waited for.
pub(crate) fn mute(view: &View<'_>, code: &str, until: UTime, is_sticky: bool) -> Result<Mute, Refusal> {
    match checks(view).into_iter().find(|check| check.code == code) {
        Some(check) => Ok(Mute { until, is_sticky, count: check.count(), summary: check.summary }),
        None if is_sticky => Ok(Mute { until, is_sticky, count: 0, summary: String::new() }),
        None => Err(refuse(errno::ENOENT, format!("health alert {code} is not currently raised"))),
    }
}

/// The codes of mutes that have ended: their time is over, or they are not sticky and the check is over or became worse.
pub(crate) fn ended_mutes(view: &View<'_>) -> Vec<String> {
    let checks = checks(view);
    let is_as_it_was = |code: &str, mute: &Mute| {
        checks.iter().any(|check| check.code == code && check.count() <= mute.count)
    };
    let ended =
        |code: &str, mute: &Mute| mute.is_over(view.now) || !mute.is_sticky && !is_as_it_was(code, mute);
    let all = view.options.mutes.iter().filter(|(code, mute)| ended(code, mute));
    all.map(|(code, _)| code.clone()).collect()
}

/// `(muted: CODE CODE(2h))`: those with an end have what is left.
fn muted(view: &View<'_>, checks: &[Check]) -> Option<String> {
    let one = |check: &Check| {
        let left = left(view, mute_of(view, check)?).map(|left| format!("({left})")).unwrap_or_default();
        Some(format!("{}{left}", check.code))
    };
    let codes: Vec<String> = checks.iter().filter_map(one).collect();
    (!codes.is_empty()).then(|| format!("(muted: {})", codes.join(" ")))
}

/// How long a mute goes on, as people write it.
fn left(view: &View<'_>, mute: &Mute) -> Option<String> {
    let left = mute.until.to_unix().saturating_sub(view.now.to_unix()).as_secs();
    let units = [(604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m")];
    // Weeks only from two on, and so on: what is left would else be rounded too far.
    let unit = units.into_iter().find(|(seconds, _)| left >= 2 * seconds);
    let (seconds, name) = unit.unwrap_or((1, "s"));
    (mute.until != UTime::ZERO).then(|| format!("{}{name}", left / seconds))
}

/// One line; with `detail` a line for each check and its parts below.
pub(crate) fn text(view: &View<'_>, detail: bool) -> String {
    let checks = checks(view);
    let mut out = word(view, &checks).to_owned();
    let heard = checks.iter().filter(|check| mute_of(view, check).is_none());
    let parts: Vec<String> = heard.map(|check| check.summary.clone()).chain(muted(view, &checks)).collect();
    if !parts.is_empty() {
        let _ = write!(out, " {}", parts.join("; "));
    }
    out.push('\n');
    for check in checks.iter().filter(|_| detail) {
        let mark = if check.is_error { "ERR" } else { "WRN" };
        if let Some(mute) = mute_of(view, check) {
            let ttl = left(view, mute).map(|left| format!(" ttl {left}")).unwrap_or_default();
            let sticky = if mute.is_sticky { ", STICKY" } else { "" };
            let _ = write!(out, "(MUTED{ttl}{sticky}) ");
        }
        let _ = writeln!(out, "[{mark}] {}: {}", check.code, check.summary);
        for line in check.details.iter().take(DETAILS_MAX) {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

/// The lines of `status`.
pub(super) fn lines(view: &View<'_>) -> Vec<String> {
    let checks = checks(view);
    let (word, muted) = (word(view, &checks).to_owned(), muted(view, &checks));
    let heard = checks.into_iter().filter(|check| mute_of(view, check).is_none());
    let lines = std::iter::once(word).chain(heard.map(|check| check.summary));
    lines.chain(muted).collect()
}

/// `{"status", "checks": {CODE: {"severity", "summary": {"message", "count"}, …}}, "mutes"}`
pub(crate) fn json(view: &View<'_>, detail: bool) -> Value {
    let checks = checks(view);
    let one = |check: &Check| {
        let mut shown = json!({
            "severity": if check.is_error { "HEALTH_ERR" } else { "HEALTH_WARN" },
            "summary": { "message": check.summary, "count": check.count() },
            "muted": mute_of(view, check).is_some(),
        });
        if detail {
            let lines = check.details.iter().take(DETAILS_MAX).map(|line| json!({ "message": line }));
            shown["detail"] = lines.collect();
        }
        (check.code.to_owned(), shown)
    };
    let shown: Map<String, Value> = checks.iter().map(one).collect();
    let mute = |(code, mute): (&String, &Mute)| {
        let mut shown =
            json!({ "code": code, "sticky": mute.is_sticky, "summary": mute.summary, "count": mute.count });
        if mute.until != UTime::ZERO {
            shown["ttl"] = json!(time(mute.until));
        }
        shown
    };
    let mutes: Vec<Value> = view.options.mutes.iter().map(mute).collect();
    json!({ "status": word(view, &checks), "checks": shown, "mutes": mutes })
}
