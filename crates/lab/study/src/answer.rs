//! Answers the question of a study from its archive in a few sentences, or says what it would take to answer it.

use std::collections::{BTreeMap, BTreeSet};

use carmine_load::verdict::{LevelCurve, curves, level};
use carmine_stats::{Comparison, NoComparison, Outcome, holm, judge, paired_log_ratios};
use carmine_types::counted;

use crate::archive::{ArchiveError, Point, PointKind, PointResult, Run, RunFile};
use crate::lists::{grouped, tally};
use crate::plan::TOLERANCE;
use crate::run::WINDOW_MIN;

/// The variable of a study, and the axis along which it looks.
struct Subject {
    study: u8,
    /// The axis that the question is about.
    along: &'static str,
    /// Axes of which each combination is asked by itself.
    apart: &'static [&'static str],
    /// The machine that is needed for at least two values of the axis.
    needs: &'static str,
    /// Draws the conclusion from all lines together.
    concludes: fn(&[Line<'_>]) -> Vec<String>,
}

const SUBJECTS: [Subject; 5] = [
    Subject {
        study: 1,
        along: "cpus",
        apart: &["osds", "confine", "workload"],
        needs: "CPUs for two reactors beside the clients', or a cgroup whose quota can be set",
        concludes: last_steps,
    },
    Subject {
        study: 2,
        along: "balance",
        apart: &["store", "workload"],
        needs: "two sockets, or a socket with several L3 caches: here all strategies give the same CPUs",
        concludes: strategies,
    },
    Subject {
        study: 3,
        along: "cpus",
        apart: &["workload", "iodepth"],
        needs: "CPUs for OSDs with one and with two CPUs each, beside the clients'",
        concludes: no_limit,
    },
    Subject {
        study: 4,
        along: "pgs",
        apart: &["workload"],
        needs: "points with two numbers of PGs, and the tool `rados` (or --client own)",
        concludes: last_steps,
    },
    Subject {
        study: 5,
        along: "osds",
        apart: &["workload", "step"],
        needs: "CPUs for two OSDs of two reactors beside the clients'",
        concludes: proportions,
    },
];

/// One combination of the other axes: the values of the axis in the plan's order of size, with what was measured.
struct Line<'a> {
    name: String,
    values: Vec<(String, Vec<Measured<'a>>)>,
}

#[derive(Clone, Copy)]
struct Measured<'a> {
    point: &'a Point,
    result: &'a PointResult,
}

/// Steps that add less than this part no longer matter.
const ENOUGH: f64 = 0.95;

/// The answer of a run that is one of the studies, the most important sentence first; empty for other runs.
///
/// # Errors
/// A file of the archive that can't be read.
pub fn answer(run: &Run) -> Result<Vec<String>, ArchiveError> {
    if run.file.study.is_none() {
        return Ok(Vec::new());
    }
    let results = run.measured()?;
    Ok(answer_of(&run.file, &results.iter().map(|(point, result)| (*point, result)).collect::<Vec<_>>()))
}

/// The same of results that have been read: those of the points that were measured.
pub fn answer_of(file: &RunFile, results: &[(&Point, &PointResult)]) -> Vec<String> {
    let Some(subject) = SUBJECTS.iter().find(|subject| Some(subject.study) == file.study) else {
        return Vec::new();
    };
    let planned = results.iter().filter(|(point, _)| point.kind == PointKind::Point);
    let measured: Vec<Measured<'_>> = planned.map(|(point, result)| Measured { point, result }).collect();
    let mut text = vec![format!("Study {}: {}", subject.study, file.question)];
    text.extend(answered(subject, &measured, file));
    text
}

fn answered(subject: &Subject, measured: &[Measured<'_>], file: &RunFile) -> Vec<String> {
    let lines = lines(subject, measured);
    let mut text = Vec::new();
    if lines.iter().any(|line| line.values.len() > 1) {
        text.extend((subject.concludes)(&lines));
    } else {
        text.push(format!("not measured: needs {}", subject.needs));
    }
    text.extend(lines.iter().map(|line| line.sentence(subject)));
    if subject.study == 2 {
        text.extend(suspicion(&lines));
    }
    text.extend(file.confounds.iter().cloned());
    let marks = marks(measured);
    if !marks.is_empty() {
        text.push(format!("mind: {marks} of {}", counted(measured.len(), "point")));
    }
    if let Some(drift) = file.drift {
        text.push(format!("the first point, run again, gave {:+.1} % IOPS", drift * 100.0));
    }
    if measured.iter().any(|m| m.point.config.float("seconds").unwrap_or(0.0) < WINDOW_MIN.as_secs_f64()) {
        text.push("SMOKE: windows under 10 s show that the study runs; they answer nothing".to_owned());
    }
    text
}

/// Points by the axes that are asked apart, then by the value of the axis.
fn lines<'a>(subject: &Subject, measured: &[Measured<'a>]) -> Vec<Line<'a>> {
    let several =
        |axis: &&&str| measured.iter().map(|m| m.point.config.show(axis)).collect::<BTreeSet<_>>().len() > 1;
    let shown: Vec<&str> = subject.apart.iter().filter(several).copied().collect();
    let mut all: BTreeMap<String, Vec<Measured<'a>>> = BTreeMap::new();
    for one in measured {
        let words = shown.iter().filter_map(|axis| Some(named(axis, &one.point.config.show(axis)?)));
        all.entry(words.collect::<Vec<_>>().join(", ")).or_default().push(*one);
    }
    let line = |(name, points): (String, Vec<Measured<'a>>)| {
        let valued = |one: Measured<'a>| Some((one.point.config.show(subject.along)?, one));
        let mut values = grouped(points.into_iter().filter_map(valued));
        values.sort_by(|a, b| size(&a.0).total_cmp(&size(&b.0)));
        Line { name, values }
    };
    all.into_iter().map(line).filter(|line| !line.values.is_empty()).collect()
}

/// An axis with a value, as people say it.
fn named(axis: &str, value: &str) -> String {
    match axis {
        "workload" | "store" | "confine" | "balance" => value.to_owned(),
        "cpus" if value == "no-limit" => "no limit".to_owned(),
        "cpus" => format!("{value} CPU{}", if value == "1" { "" } else { "s" }),
        "osds" => counted(value.parse().unwrap_or(0), "OSD"),
        "pgs" => counted(value.parse().unwrap_or(0), "PG"),
        "step" => format!("{value} PGs per OSD"),
        axis => format!("{axis} {value}"),
    }
}

/// Words, such as "no-limit", behind all numbers; the strategy `default` is the first.
fn size(value: &str) -> f64 {
    value.parse().unwrap_or(if value == "default" { 0.0 } else { f64::MAX })
}

/// IOPS of the load that gave most: the mean of its repeats.
fn iops(points: &[Measured<'_>]) -> f64 {
    best(points).iter().map(|m| m.result.iops()).sum::<f64>() / best(points).len().max(1) as f64
}

/// The repeats of the point that gave most.
fn best<'a>(points: &[Measured<'a>]) -> Vec<Measured<'a>> {
    let top = points.iter().max_by(|a, b| a.result.iops().total_cmp(&b.result.iops()));
    let same = |m: &&Measured<'_>| top.is_some_and(|top| top.point.config == m.point.config);
    points.iter().filter(same).copied().collect()
}

fn percent(part: f64) -> String {
    format!("{:+.0} %", (part - 1.0) * 100.0)
}

impl Line<'_> {
    /// The first value in IOPS, the others compared with it, and what bounded the last.
    fn sentence(&self, subject: &Subject) -> String {
        let head = if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) };
        let base = self.values.first().map_or(0.0, |(_, points)| iops(points));
        let each = self.values.iter().enumerate().map(|(at, (value, points))| {
            let name = named(subject.along, value);
            let gives = if at == 0 { format!("{base:.0} IOPS") } else { percent(iops(points) / base) };
            format!("{name} {gives}{}", worst(subject, points))
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let last = self.values.last().and_then(|(_, points)| best(points).first().copied());
        let bound = last.and_then(|m| m.result.carmine.verdict.as_ref());
        let bound = bound.map(|limiter| format!("; the last is bounded by {limiter}")).unwrap_or_default();
        head + &each + &bound
    }

    /// Those with a number for a size, and their IOPS.
    fn sized(&self) -> Vec<(&str, f64)> {
        let sized = self.values.iter().filter(|(value, _)| value.parse::<f64>().is_ok());
        sized.map(|(value, points)| (value.as_str(), iops(points))).collect()
    }
}

/// Bandwidth and the longest latency are what `rados bench` is read for, in study 4.
fn worst(subject: &Subject, points: &[Measured<'_>]) -> String {
    if subject.study != 4 {
        return String::new();
    }
    let best = best(points);
    let worst_ms = best.iter().filter_map(|m| m.result.latency()).map(|l| l.max / 1e6).fold(0.0, f64::max);
    let bw = best.iter().map(|m| m.result.bw_bytes() / 1e6).sum::<f64>() / best.len().max(1) as f64;
    format!(" ({bw:.0} MB/s, worst latency {worst_ms:.0} ms)")
}

/// Says at which size each line has nearly reached its highest IOPS.
fn last_steps(lines: &[Line<'_>]) -> Vec<String> {
    let enough = |line: &Line<'_>| {
        let sized = line.sized();
        let most = sized.iter().map(|(_, iops)| *iops).fold(0.0, f64::max);
        let (first, last) = (sized.first()?, sized.last()?);
        let (value, _) = sized.iter().find(|(_, iops)| *iops >= ENOUGH * most)?;
        let level = match value == &last.0 {
            true => "it still rises at the end".to_owned(),
            false if last.1 < ENOUGH * most => {
                format!("{value} is enough; {} gives {} against the best", last.0, percent(last.1 / most))
            }
            false => format!("{value} is enough (more adds less than 5 %)"),
        };
        (sized.len() > 1).then(|| {
            let name = if line.name.is_empty() { String::new() } else { format!("{}: ", line.name) };
            format!("{name}from {} to {} {}; {level}", first.0, last.0, percent(last.1 / first.1))
        })
    };
    lines.iter().filter_map(enough).collect()
}

/// How much of a proportional gain each line has at its largest size.
fn proportions(lines: &[Line<'_>]) -> Vec<String> {
    let share = |line: &Line<'_>| {
        let sized = line.sized();
        let ((first, few), (last, many)) = (sized.first()?, sized.last()?);
        let times = last.parse::<f64>().ok()? / first.parse::<f64>().ok()?;
        (times > 1.0).then(|| {
            let got = many / few;
            format!(
                "{}: {} x the OSDs gave {got:.1} x, {:.0} % of proportional",
                line.name,
                (times * 10.0).round() / 10.0,
                100.0 * got / times
            )
        })
    };
    lines.iter().filter_map(share).collect()
}

/// Whether no limit is better than the best of the limits.
fn no_limit(lines: &[Line<'_>]) -> Vec<String> {
    let against = |line: &Line<'_>| {
        let (_, free) = line.values.iter().find(|(value, _)| value == "no-limit")?;
        let (limit, held) = line.sized().into_iter().min_by(|a, b| b.1.total_cmp(&a.1))?;
        let ratio = iops(free) / held;
        let than = format!("the best limit ({})", named("cpus", limit));
        let word = match ratio {
            less if less < 1.0 - TOLERANCE => "worse than",
            more if more > 1.0 + TOLERANCE => "better than",
            _ => "within 5 % of",
        };
        Some(format!("{}: no limit is {word} {than}: {}", line.name, percent(ratio)))
    };
    let told: Vec<String> = lines.iter().filter_map(against).collect();
    if told.is_empty() {
        vec!["no limit: not measured: needs a second CPU for OSDs".to_owned()]
    } else {
        told
    }
}

/// Compares all points of a line, arm against arm, to find the strategies that differ at all.
fn strategies(lines: &[Line<'_>]) -> Vec<String> {
    let mut told: Vec<(String, Result<Comparison, NoComparison>)> = Vec::new();
    for line in lines {
        let Some(((base, old), others)) = line.values.split_first() else { continue };
        for (value, young) in others {
            let partner = |m: &Measured<'_>| {
                let other = young.iter().find(|other| other.point.pair == m.point.pair)?;
                Some((m.result.iops(), other.result.iops()))
            };
            let (one, other): (Vec<f64>, Vec<f64>) = old.iter().filter_map(partner).unzip();
            told.push((format!("{}: {value} against {base}", line.name), paired_log_ratios(&one, &other)));
        }
    }
    let mut text = vec!["It does not matter here: no strategy differs by more than 5 %.".to_owned()];
    let mut outcomes = Vec::new();
    let tests: Vec<f64> = told.iter().filter_map(|(_, c)| Some(c.as_ref().ok()?.p)).collect();
    let mut adjusted = holm(&tests).into_iter();
    for (name, comparison) in &told {
        let p = comparison.as_ref().ok().and_then(|_| adjusted.next()).unwrap_or(1.0);
        let outcome = judge(comparison, p, TOLERANCE);
        let ratio = comparison.as_ref().map_or_else(
            |e| e.to_string(),
            |c| format!("{} ({} to {})", percent(c.ratio), percent(c.interval.0), percent(c.interval.1)),
        );
        text.push(format!("{name}: {outcome}, IOPS {ratio}"));
        outcomes.push(outcome);
    }
    if outcomes.contains(&Outcome::Different { within: false }) {
        text[0] = "It matters here: some strategies differ by more than the tolerance.".to_owned();
    } else if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Undecided { .. })) {
        text[0] = "Undecided: the pairs do not decide for all strategies; take more --repeats.".to_owned();
    }
    text
}

/// Curves of several stores that level off together were not limited by a store.
fn suspicion(lines: &[Line<'_>]) -> Vec<String> {
    let mut arms: BTreeMap<String, Vec<LevelCurve>> = BTreeMap::new();
    for (value, points) in lines.iter().flat_map(|line| &line.values) {
        let Some(first) = points.first() else { continue };
        let show = |axis: &str| first.point.config.show(axis).unwrap_or_default();
        let top: Vec<&PointResult> = best(points).iter().map(|m| m.result).collect();
        let curve = level_curve(&show("store"), &by_depth(points), &top);
        arms.entry(format!("{}, {value}", show("workload"))).or_default().extend(curve);
    }
    let told = arms.into_iter().filter_map(|(name, levels)| Some((name, curves(&levels)?)));
    told.map(|(name, found)| format!("{name}: suspected {}: {} {}", found.suspect, found.reason, found.next))
        .collect()
}

/// IOPS of the points at each depth, the shallowest first.
fn by_depth(points: &[Measured<'_>]) -> Vec<f64> {
    let mut depths: BTreeMap<u64, Vec<Measured<'_>>> = BTreeMap::new();
    for one in points {
        depths.entry(one.point.config.number("iodepth").unwrap_or(0)).or_default().push(*one);
    }
    depths.values().map(|points| iops(points)).collect()
}

/// An arm whose IOPS level off along its depths, and the CPUs that it uses there, in the results `top`.
pub fn level_curve(arm: &str, iops: &[f64], top: &[&PointResult]) -> Option<LevelCurve> {
    let mean = |of: &dyn Fn(&PointResult) -> Option<f64>| {
        let each: Vec<f64> = top.iter().map(|result| of(result)).collect::<Option<_>>()?;
        Some(each.iter().sum::<f64>() / each.len() as f64)
    };
    Some(LevelCurve {
        arm: arm.to_owned(),
        iops: level(iops)?,
        osd_cpus_used: mean(&|r| Some(r.iops() / r.carmine.iops_per_core.used?))?,
        osd_cpus: mean(&|r| Some(r.iops() / r.carmine.iops_per_core.allocated?))?,
        client_cpus_used: mean(&|r| r.carmine.client_cores_used)?,
        client_cpus: top.first()?.carmine.grid["clients"].as_array()?.len() as f64,
    })
}

/// Words of marks, with how many points have them.
fn marks(measured: &[Measured<'_>]) -> String {
    let words = measured.iter().flat_map(|m| m.result.mark_words()).filter(|word| *word != "SMOKE");
    let mut counts = tally(words);
    counts.sort_unstable();
    counts.into_iter().map(|(word, n)| format!("{word} {n}")).collect::<Vec<_>>().join(", ")
}
