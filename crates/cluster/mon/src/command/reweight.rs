//! `osd reweight-by-pg`, `osd reweight-by-utilization` and their dry runs: OSDs that have more than their share get lower weights, and
//! those that have less and were made lighter get heavier again. The rule and the answers are those of Ceph 16's manager.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use carmine_crush::MapView;
use carmine_crush::tree::weight_of;
use carmine_types::{OsdId, errno};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::osdmap::consts::WEIGHT_IN;
use serde_json::{Value, json};

use super::{Answer, Known, Outcome, View, either, is_set, read, texts, write};
use crate::change::pool::pool_of;
use crate::change::{Change, Refusal, refuse};
use crate::report::table::general;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write(
        "osd reweight-by-utilization oload:CephInt? max_change:CephFloat? max_osds:CephInt? no_increasing:(--no-increasing)?",
        "give lower weights to OSDs that are fuller than others",
        |c, v| by_utilization(c, v, Mode::Change),
    ),
    read(
        "osd test-reweight-by-utilization oload:CephInt? max_change:CephFloat? max_osds:CephInt? no_increasing:(--no-increasing)?",
        "show what osd reweight-by-utilization would do",
        |c, v| by_utilization(c, v, Mode::Show),
    ),
    write(
        "osd reweight-by-pg oload:CephInt? max_change:CephFloat? max_osds:CephInt? pools:CephPoolname+?",
        "give lower weights to OSDs that have more PGs than others, of all pools or of these",
        |c, v| by_pg(c, v, Mode::Change),
    ),
    read(
        "osd test-reweight-by-pg oload:CephInt? max_change:CephFloat? max_osds:CephInt? pools:CephPoolname+?",
        "show what osd reweight-by-pg would do",
        |c, v| by_pg(c, v, Mode::Show),
    ),
];

/// Ceph's defaults: percent of the mean above which an OSD has too much, largest change of a weight, OSDs that are changed.
const LOAD_PERCENT: i64 = 120;
const CHANGE_MAX: f64 = 0.05;
const OSDS_MAX: i64 = 4;
/// PGs for each OSD, and bytes, below which nothing is said about a share.
const PGS_MIN: u64 = 10;
const BYTES_MIN: u64 = 100 << 20;
const USED_BYTES_MIN: u64 = 5 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Show,
    Change,
}

/// The numbers of a command.
struct Limits {
    load_percent: i64,
    change_max: f64,
    osds_max: usize,
    may_increase: bool,
}

impl Limits {
    fn parse(command: &Value) -> Result<Limits, Refusal> {
        let bad = |name: &str, value: &Value| {
            refuse(errno::EINVAL, format!("{name} {value}: not a fitting number"))
        };
        let float = |name: &str, default: f64| match command.get(name) {
            None => Ok(default),
            Some(value) => {
                let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
                number.filter(|number| number.is_finite()).ok_or_else(|| bad(name, value))
            }
        };
        let int = |name: &str, default: i64| match command.get(name) {
            None => Ok(default),
            Some(value) => {
                value.as_i64().or_else(|| value.as_str()?.parse().ok()).ok_or_else(|| bad(name, value))
            }
        };
        let (load_percent, osds_max) = (int("oload", LOAD_PERCENT)?, int("max_osds", OSDS_MAX)?);
        let change_max = float("max_change", CHANGE_MAX)?;
        if change_max <= 0.0 {
            return Err(refuse(
                errno::EINVAL,
                format!("max_change {} must be positive", general(change_max, 6)),
            ));
        }
        let Some(osds_max) = usize::try_from(osds_max).ok().filter(|osds| *osds > 0) else {
            return Err(refuse(errno::EINVAL, format!("max_osds {osds_max} must be positive")));
        };
        if load_percent <= 100 {
            return Err(failed(
                errno::EINVAL,
                "You must give a percentage higher than 100. The reweighting threshold will be calculated as \
                 <average-utilization> times <input-percentage>. For example, an argument of 200 would reweight OSDs which are \
                 twice as utilized as the average OSD.",
            ));
        }
        Ok(Limits { load_percent, change_max, osds_max, may_increase: !is_set(command, "no_increasing") })
    }
}

/// Both commands call themselves so where they fail.
fn failed(code: i32, text: impl Into<String>) -> Refusal {
    refuse(code, format!("{}\nFAILED reweight-by-pg", text.into()))
}

/// How much each OSD has, by its size, and the mean.
struct Loads {
    mean: f64,
    of_osds: Vec<(OsdId, f64)>,
}

/// A new weight (16.16) of an OSD.
struct Step {
    osd: OsdId,
    from: u32,
    to: u32,
}

fn by_utilization(command: &Value, view: &View<'_>, mode: Mode) -> Outcome {
    let limits = Limits::parse(command)?;
    let (total, used) = view.stats.space();
    let osds = view.stats.reports.len().max(1) as u64;
    let too_little = |bytes: u64, what: &str| {
        failed(
            errno::EDOM,
            format!("Refusing to reweight: we only have {} kb {what}across all osds!", bytes >> 10),
        )
    };
    if total / osds < BYTES_MIN {
        return Err(too_little(total, ""));
    }
    if used < USED_BYTES_MIN {
        return Err(too_little(used, "used "));
    }
    let share = |osd: OsdId| match view.stats.space_of(osd) {
        (0, _) => None,
        (total, used) => Some((osd, used as f64 / total as f64)),
    };
    let of_osds = view.map.osds().filter_map(share).collect();
    reweight(command, view, mode, &limits, Loads { mean: used as f64 / total as f64, of_osds }, None)
}

fn by_pg(command: &Value, view: &View<'_>, mode: Mode) -> Outcome {
    let limits = Limits::parse(command)?;
    let id = |name: &&str| {
        let found = pool_of(view.map, name).map(|(id, _)| id);
        found.map_err(|_| refuse(errno::ENOENT, format!("pool '{name}' does not exist")))
    };
    let pools = texts(command, "pools").iter().map(id).collect::<Result<BTreeSet<i64>, Refusal>>()?;
    let pools = Some(pools).filter(|pools| !pools.is_empty());
    let pgs = pgs_by_osd(view.placement, pools.as_ref());
    let (copies, osds) = (pgs.values().sum::<u64>(), pgs.len() as u64);
    if osds == 0 || copies / osds < PGS_MIN {
        let text = format!("Refusing to reweight: we only have {copies} PGs across {osds} osds!");
        return Err(failed(errno::EDOM, text));
    }
    let weight = |osd: OsdId| f64::from(weight_of(&view.map.crush, osd.0 as i32)) / f64::from(WEIGHT_IN);
    let sum: f64 = pgs.keys().map(|osd| weight(*osd)).sum();
    let load = |(osd, pgs): (&OsdId, &u64)| {
        Some((*osd, *pgs as f64 / Some(weight(*osd)).filter(|weight| *weight > 0.0)?))
    };
    let of_osds = pgs.iter().filter_map(load).collect();
    let mean = if sum > 0.0 { copies as f64 / sum } else { 0.0 };
    reweight(command, view, mode, &limits, Loads { mean, of_osds }, pools.as_ref())
}

/// PGs that each OSD should have.
fn pgs_by_osd(placement: &MapView, pools: Option<&BTreeSet<i64>>) -> BTreeMap<OsdId, u64> {
    let mut pgs = BTreeMap::new();
    for (_, mapping) in placement.pgs().filter(|(pg, _)| pools.is_none_or(|pools| pools.contains(&pg.pool))) {
        for osd in mapping.wanted.iter().filter_map(|osd| OsdId::from_item(*osd)) {
            *pgs.entry(osd).or_default() += 1;
        }
    }
    pgs
}

/// The new weights: those that are furthest from the mean come first.
fn steps(map: &OsdMap, limits: &Limits, Loads { mean, of_osds }: &Loads) -> Vec<Step> {
    let mut sorted = of_osds.clone();
    sorted.sort_by(|(_, a), (_, b)| (b - mean).abs().total_cmp(&(a - mean).abs()));
    let change_max = (limits.change_max * f64::from(WEIGHT_IN)) as u32;
    let step = |(osd, load): (OsdId, f64)| {
        let from = map.weight(osd);
        let fitting = (mean / load * f64::from(from)) as u32;
        let to = if load >= overload(limits, *mean) {
            fitting.max(from.saturating_sub(change_max))
        } else if limits.may_increase && load <= *mean {
            fitting.min(from.saturating_add(change_max)).min(WEIGHT_IN).max(from)
        } else {
            from
        };
        (from != to).then_some(Step { osd, from, to })
    };
    sorted.into_iter().filter(|(osd, _)| map.is_in(*osd)).filter_map(step).take(limits.osds_max).collect()
}

fn overload(limits: &Limits, mean: f64) -> f64 {
    mean * limits.load_percent as f64 / 100.0
}

fn reweight(
    command: &Value,
    view: &View<'_>,
    mode: Mode,
    limits: &Limits,
    loads: Loads,
    pools: Option<&BTreeSet<i64>>,
) -> Outcome {
    let steps = steps(view.map, limits, &loads);
    let mut next = view.map.clone();
    for step in &steps {
        if let Some(weight) = next.osd_weight.get_mut(step.osd.0 as usize) {
            *weight = step.to;
        }
    }
    let moves = Moves::between(view.placement, &MapView::new(Arc::new(next)), pools);
    let json = || {
        json!({
            "overload_min": limits.load_percent, "max_change": limits.change_max, "max_change_osds": limits.osds_max,
            "average_utilization": loads.mean, "overload_utilization": overload(limits, loads.mean),
            "reweights": steps.iter().map(step_json).collect::<Vec<_>>(), "utilization": moves.json(),
        })
    };
    let answer = either(command, json, || text(limits, &loads, &steps, &moves))?;
    let Answer::Done { data, .. } = answer else { return Ok(answer) };
    if mode == Mode::Show || steps.is_empty() {
        return Ok(Answer::Done { status: "no change".to_owned(), data });
    }
    let weights = steps.iter().map(|step| (step.osd, step.to)).collect();
    Ok(Answer::ChangeAndTell { change: Change::Weights { weights }, data })
}

fn weight(raw: u32) -> f64 {
    f64::from(raw) / f64::from(WEIGHT_IN)
}

fn step_json(step: &Step) -> Value {
    json!({ "osd": step.osd.0, "weight": weight(step.from), "new_weight": weight(step.to) })
}

fn text(limits: &Limits, loads: &Loads, steps: &[Step], moves: &Moves) -> String {
    let mut out = moves.text();
    let _ = write!(
        out,
        "\noload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {:.4}\noverload_utilization {:.4}\n",
        limits.load_percent,
        general(limits.change_max, 6),
        limits.osds_max,
        loads.mean,
        overload(limits, loads.mean)
    );
    for step in steps {
        let _ = writeln!(out, "{} weight {:.4} -> {:.4}", step.osd, weight(step.from), weight(step.to));
    }
    out
}

/// How many PGs each OSD that serves has before and after a change, and how many copies move.
struct Moves {
    moved: u64,
    total: u64,
    by_osd: Vec<(OsdId, u64, u64)>,
}

impl Moves {
    fn between(before: &MapView, after: &MapView, pools: Option<&BTreeSet<i64>>) -> Moves {
        let is_meant = |pool: i64| pools.is_none_or(|pools| pools.contains(&pool));
        let (mut moved, mut total) = (0, 0);
        for (pg, mapping) in before.pgs().filter(|(pg, _)| is_meant(pg.pool)) {
            let wanted = &after.mapping(pg).wanted;
            total += mapping.wanted.len() as u64;
            moved += wanted.iter().filter(|osd| !mapping.wanted.contains(osd)).count() as u64;
        }
        let (old, new) = (pgs_by_osd(before, pools), pgs_by_osd(after, pools));
        let count = |pgs: &BTreeMap<OsdId, u64>, osd: OsdId| pgs.get(&osd).copied().unwrap_or_default();
        let map = before.map();
        let serving = map.osds().filter(|osd| map.is_up(*osd) && map.is_in(*osd));
        let by_osd = serving.map(|osd| (osd, count(&old, osd), count(&new, osd))).collect();
        Moves { moved, total, by_osd }
    }

    fn mean(&self) -> f64 {
        if self.by_osd.is_empty() { 0.0 } else { self.total as f64 / self.by_osd.len() as f64 }
    }

    /// Standard deviations: before, after, and that of PGs which lie at random.
    fn deviations(&self) -> [f64; 3] {
        let (mean, osds) = (self.mean(), self.by_osd.len().max(1) as f64);
        let deviation = |pgs: fn(&(OsdId, u64, u64)) -> u64| {
            let squares: f64 = self.by_osd.iter().map(|osd| (pgs(osd) as f64 - mean).powi(2)).sum();
            (squares / osds).sqrt()
        };
        [deviation(|osd| osd.1), deviation(|osd| osd.2), (mean * (1.0 - 1.0 / osds)).sqrt()]
    }

    /// Those that have the fewest and the most PGs before.
    fn extremes(&self) -> Option<[&(OsdId, u64, u64); 2]> {
        Some([self.by_osd.iter().min_by_key(|osd| osd.1)?, self.by_osd.iter().rev().max_by_key(|osd| osd.1)?])
    }

    fn json(&self) -> Value {
        let [before, after, expected] = self.deviations();
        let mut out = json!({
            "moved_pgs": self.moved, "total_pgs": self.total, "avg_pgs": self.mean(), "std_dev": before,
            "expected_baseline_std_dev": expected, "new_std_dev": after,
        });
        for (word, (osd, old, new)) in ["min", "max"].into_iter().zip(self.extremes().into_iter().flatten()) {
            out[format!("{word}_osd")] = json!(osd.0);
            out[format!("{word}_osd_pgs")] = json!(old);
            out[format!("new_{word}_osd_pgs")] = json!(new);
        }
        out
    }

    fn text(&self) -> String {
        let six = |value: f64| general(value, 6);
        let ([before, after, expected], mean) = (self.deviations(), self.mean());
        let percent = if self.total > 0 { 100.0 * self.moved as f64 / self.total as f64 } else { 0.0 };
        let mut out = format!(
            "moved {} / {} ({}%)\navg {}\nstddev {} -> {} (expected baseline {})\n",
            self.moved,
            self.total,
            six(percent),
            six(mean),
            six(before),
            six(after),
            six(expected)
        );
        let share = |pgs: u64| six(if mean > 0.0 { pgs as f64 / mean } else { 0.0 });
        for (word, (osd, old, new)) in ["min", "max"].into_iter().zip(self.extremes().into_iter().flatten()) {
            let _ = writeln!(
                out,
                "{word} {osd} with {old} -> {new} pgs ({} -> {} * mean)",
                share(*old),
                share(*new)
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cluster;

    fn loads(of_osds: &[f64]) -> Loads {
        let of_osds = (0..).map(OsdId).zip(of_osds.iter().copied()).collect();
        Loads { mean: 223.0, of_osds }
    }

    #[test]
    fn weights_and_lines_are_those_of_a_real_cluster() {
        let limits = Limits { load_percent: 101, change_max: 0.05, osds_max: 4, may_increase: true };
        let steps = steps(&cluster(3), &limits, &loads(&[232.0, 231.0, 206.0]));
        let new: Vec<(OsdId, f64)> = steps.iter().map(|step| (step.osd, weight(step.to))).collect();
        assert_eq!(new, [(OsdId(0), 0.961_196_899_414_062_5), (OsdId(1), 0.965_362_548_828_125)]);
        let by_osd = vec![(OsdId(0), 232, 228), (OsdId(1), 231, 223), (OsdId(2), 206, 209)];
        let moves = Moves { moved: 15, total: 669, by_osd };
        let text = "moved 15 / 669 (2.24215%)\navg 223\nstddev 12.0277 -> 8.58293 (expected baseline 12.1929)\n\
            min osd.2 with 206 -> 209 pgs (0.923767 -> 0.93722 * mean)\n\
            max osd.0 with 232 -> 228 pgs (1.04036 -> 1.02242 * mean)\n";
        assert_eq!(moves.text(), text);
        assert_eq!(moves.json()["new_max_osd_pgs"], 228);
        // Neither out nor without PGs.
        let mut map = cluster(3);
        map.osd_weight[0] = 0;
        let steps = super::steps(&map, &limits, &loads(&[232.0, 0.0, 206.0]));
        assert!(steps.is_empty());
    }
}
