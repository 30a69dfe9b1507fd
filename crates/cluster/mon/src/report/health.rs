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
struct Check {
    code: &'static str,
    /// Clients cannot do their work.
    is_error: bool,
    summary: String,
    details: Vec<String>,
}

fn checks(view: &View<'_>) -> Vec<Check> {
    let single = [flags(view), down(view), unavailable(view), untagged(view)];
    single.into_iter().flatten().chain(full_osds(view)).chain(full_pools(view)).collect()
}

fn flags(view: &View<'_>) -> Option<Check> {
    let is_set =
        |(bit, name): &&(u32, &'static str)| view.map.flags & bit != 0 && !NORMAL_FLAGS.contains(name);
    let set: Vec<&str> = FLAG_NAMES.iter().filter(is_set).map(|(_, name)| *name).collect();
    let summary = format!("{} flag(s) set", set.join(","));
    (!set.is_empty()).then_some(Check { code: "OSDMAP_FLAGS", is_error: false, summary, details: Vec::new() })
}

fn down(view: &View<'_>) -> Option<Check> {
    let down: Vec<OsdId> =
        view.map.osds().filter(|osd| view.map.is_in(*osd) && !view.map.is_up(*osd)).collect();
    let details = down.iter().map(|osd| format!("{osd} is down")).collect();
    let summary = format!("{} osds down", down.len());
    (!down.is_empty()).then_some(Check { code: "OSD_DOWN", is_error: false, summary, details })
}

fn unavailable(view: &View<'_>) -> Option<Check> {
    let all = pg::states(view);
    let waiting: Vec<_> = all.iter().filter(|(_, state)| !state.starts_with("active")).collect();
    let details = waiting.iter().map(|(pg, state)| format!("pg {pg} is {state}")).collect();
    let s = if waiting.len() == 1 { "" } else { "s" };
    let summary = format!("Reduced data availability: {} pg{s} inactive", waiting.len());
    (!waiting.is_empty()).then_some(Check { code: "PG_AVAILABILITY", is_error: false, summary, details })
}

fn untagged(view: &View<'_>) -> Option<Check> {
    let is_untagged = |id: &i64| view.map.pool(*id).is_some_and(|pool| pool.application_metadata.is_empty());
    let held = view.stats.pools();
    let holds = |id: &i64| held.get(id).is_some_and(|held| held.objects > 0);
    let pools = view.map.pool_names.iter().filter(|(id, _)| is_untagged(id) && holds(id));
    let details: Vec<String> =
        pools.map(|(_, name)| format!("application not enabled on pool '{name}'")).collect();
    let summary = format!("{} pool(s) do not have an application enabled", details.len());
    (!details.is_empty()).then_some(Check { code: "POOL_APP_NOT_ENABLED", is_error: false, summary, details })
}

fn full_osds(view: &View<'_>) -> impl Iterator<Item = Check> {
    let state = |osd: OsdId| view.map.osd_state.get(osd.0 as usize).copied().unwrap_or_default();
    let kinds = [
        (STATE_FULL, "OSD_FULL", "full"),
        (STATE_BACKFILLFULL, "OSD_BACKFILLFULL", "backfillfull"),
        (STATE_NEARFULL, "OSD_NEARFULL", "nearfull"),
    ];
    kinds.into_iter().filter_map(move |(bit, code, word)| {
        let osds: Vec<OsdId> = view.map.osds().filter(|osd| state(*osd) & bit != 0).collect();
        let details = osds.iter().map(|osd| format!("{osd} is {word}")).collect();
        let summary = format!("{} {word} osd(s)", osds.len());
        (!osds.is_empty()).then_some(Check { code, is_error: bit == STATE_FULL, summary, details })
    })
}

fn full_pools(view: &View<'_>) -> impl Iterator<Item = Check> {
    let kinds = [
        (POOL_FULL, "POOL_FULL", "full"),
        (POOL_BACKFILLFULL, "POOL_BACKFILLFULL", "backfillfull"),
        (POOL_NEARFULL, "POOL_NEARFULL", "nearfull"),
    ];
    kinds.into_iter().filter_map(move |(bit, code, word)| {
        let has = |id: &i64| view.map.pool(*id).is_some_and(|pool| pool.flags & bit != 0);
        let names = view.map.pool_names.iter().filter(|(id, _)| has(id));
        let details: Vec<String> =
            names.map(|(_, name)| format!("pool '{name}' is {word} (no space)")).collect();
        let summary = format!("{} pool(s) {word}", details.len());
        (!details.is_empty()).then_some(Check { code, is_error: bit == POOL_FULL, summary, details })
    })
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
