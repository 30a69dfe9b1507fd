//! `health`: what is wrong, by Ceph's names of checks.

use std::fmt::Write as _;

use carmine_types::OsdId;
use carmine_wire::osdmap::consts::{
    FLAG_NAMES, POOL_BACKFILLFULL, POOL_FULL, POOL_NEARFULL, STATE_BACKFILLFULL, STATE_FULL, STATE_NEARFULL,
};
use serde_json::{Map, Value, json};

use super::pg;
use crate::command::View;

/// Flags that are no complaint: every Pacific cluster has them.
const NORMAL_FLAGS: [&str; 4] = ["sortbitwise", "recovery_deletes", "purged_snapdirs", "pglog_hardlimit"];
/// Lines of detail of one check.
const DETAILS_MAX: usize = 50;

/// One thing that is wrong.
#[derive(Clone)]
struct Check {
    code: &'static str,
    /// Clients cannot do their work.
    is_error: bool,
    summary: String,
    details: Vec<String>,
}

fn checks(view: &View<'_>) -> Vec<Check> {
    let single = [flags(view), down(view), unavailable(view), degraded(view), untagged(view)];
    single.into_iter().flatten().chain(full(view)).chain(damaged(view)).collect()
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

fn down(view: &View<'_>) -> Option<Check> {
    let down = view.map.osds().filter(|osd| view.map.is_in(*osd) && !view.map.is_up(*osd));
    let details: Vec<String> = down.map(|osd| format!("{osd} is down")).collect();
    warning("OSD_DOWN", format!("{} osds down", details.len()), details)
}

fn unavailable(view: &View<'_>) -> Option<Check> {
    let all = pg::states(view).into_iter().filter(|(_, state)| !state.starts_with("active"));
    let details: Vec<String> = all.map(|(pg, state)| format!("pg {pg} is {state}")).collect();
    let s = if details.len() == 1 { "" } else { "s" };
    let summary = format!("Reduced data availability: {} pg{s} inactive", details.len());
    warning("PG_AVAILABILITY", summary, details)
}

fn degraded(view: &View<'_>) -> Option<Check> {
    let all = pg::states(view).into_iter().filter(|(_, state)| state.contains("undersized"));
    let details: Vec<String> = all.map(|(pg, state)| format!("pg {pg} is {state}")).collect();
    let s = if details.len() == 1 { "" } else { "s" };
    let summary = format!("Degraded data redundancy: {} pg{s} undersized", details.len());
    warning("PG_DEGRADED", summary, details)
}

fn untagged(view: &View<'_>) -> Option<Check> {
    let is_untagged = |id: &i64| view.map.pool(*id).is_some_and(|pool| pool.application_metadata.is_empty());
    let held = view.stats.pools();
    let holds = |id: &i64| held.get(id).is_some_and(|held| held.objects > 0);
    let pools = view.map.pool_names.iter().filter(|(id, _)| is_untagged(id) && holds(id));
    let details: Vec<String> =
        pools.map(|(_, name)| format!("application not enabled on pool '{name}'")).collect();
    let summary = format!("{} pool(s) do not have an application enabled", details.len());
    warning("POOL_APP_NOT_ENABLED", summary, details)
}

/// The damage that scrubs have found.
fn damaged(view: &View<'_>) -> Vec<Check> {
    let damaged = pg::damaged(view);
    let errors: u64 = damaged.iter().map(|(.., errors)| errors).sum();
    let lines =
        damaged.into_iter().map(|(pg, state, acting, _)| format!("pg {pg} is {state}, acting {acting}"));
    let details: Vec<String> = lines.collect();
    let s = if details.len() == 1 { "" } else { "s" };
    let summary = format!("Possible data damage: {} pg{s} inconsistent", details.len());
    let found = warning("PG_DAMAGED", summary, details).into_iter();
    let count = Check {
        code: "OSD_SCRUB_ERRORS",
        is_error: true,
        summary: format!("{errors} scrub errors"),
        details: Vec::new(),
    };
    found.flat_map(|check| [count.clone(), Check { is_error: true, ..check }]).collect()
}

/// OSDs, then pools, that are full by each of the three degrees; only the highest is an error.
fn full(view: &View<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    let degrees = ["full", "backfillfull", "nearfull"];
    let codes = ["OSD_FULL", "OSD_BACKFILLFULL", "OSD_NEARFULL"];
    let state = |osd: OsdId| view.map.osd_state.get(osd.0 as usize).copied().unwrap_or_default();
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

fn word(checks: &[Check]) -> &'static str {
    match checks {
        [] => "HEALTH_OK",
        _ if checks.iter().any(|check| check.is_error) => "HEALTH_ERR",
        _ => "HEALTH_WARN",
    }
}

/// One line; with `detail` a line for each check and its parts below.
pub(crate) fn text(view: &View<'_>, detail: bool) -> String {
    let checks = checks(view);
    let mut out = word(&checks).to_owned();
    let summaries: Vec<&str> = checks.iter().map(|check| check.summary.as_str()).collect();
    if !summaries.is_empty() {
        let _ = write!(out, " {}", summaries.join("; "));
    }
    out.push('\n');
    for check in checks.iter().filter(|_| detail) {
        let mark = if check.is_error { "ERR" } else { "WRN" };
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
    std::iter::once(word(&checks).to_owned()).chain(checks.into_iter().map(|check| check.summary)).collect()
}

/// `{"status", "checks": {CODE: {"severity", "summary": {"message", "count"}, …}}, "mutes"}`
pub(crate) fn json(view: &View<'_>, detail: bool) -> Value {
    let checks = checks(view);
    let one = |check: &Check| {
        let mut shown = json!({
            "severity": if check.is_error { "HEALTH_ERR" } else { "HEALTH_WARN" },
            "summary": { "message": check.summary, "count": check.details.len().max(1) },
            "muted": false,
        });
        if detail {
            let lines = check.details.iter().take(DETAILS_MAX).map(|line| json!({ "message": line }));
            shown["detail"] = lines.collect();
        }
        (check.code.to_owned(), shown)
    };
    let shown: Map<String, Value> = checks.iter().map(one).collect();
    json!({ "status": word(&checks), "checks": shown, "mutes": [] })
}
