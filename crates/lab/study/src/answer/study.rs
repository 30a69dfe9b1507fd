//! The answers of the five studies.

use std::collections::{BTreeMap, BTreeSet};

use carmine_stats::mean;
use carmine_types::counted;

use super::placement::{strategies, suspicion};
use super::{Conclusion, Measured, Supported, by_config, sentence};
use crate::archive::{Config, PointResult, RunFile};
use crate::lists::{grouped, joined, tally};
use crate::plan::TOLERANCE;
use crate::repeats::limiter;
use crate::support::{change, mean_iops, percent};

/// The variable of a study, and the axis along which it looks.
pub(super) struct Subject {
    study: u8,
    /// The axis that the question is about.
    pub(super) along: &'static str,
    /// Axes of which each combination is asked by itself.
    apart: &'static [&'static str],
    /// The machine that is needed for at least two values of the axis.
    pub(super) needs: &'static str,
    /// Whether values of the axis are enough for a conclusion, and which are, in words.
    pub(super) values: (fn(&[String]) -> bool, &'static str),
    /// It asks what further OSDs, or an OSD on every drive, give.
    pub(super) is_of_osds: bool,
    /// Draws a conclusion from each line, or from all together; `drift` is the machine's.
    concludes: fn(&[Line<'_>], drift: Option<f64>) -> Vec<Conclusion>,
}

const SUBJECTS: [Subject; 5] = [
    Subject {
        study: 1,
        along: "cpus",
        apart: &["osds", "confine", "workload"],
        needs: "CPUs for two reactors beside the clients', or a cgroup whose quota can be set",
        values: TWO_SIZES,
        is_of_osds: true,
        concludes: last_steps,
    },
    Subject {
        study: 2,
        along: "balance",
        apart: &["store", "workload"],
        needs: "two sockets, or a socket with several L3 caches: here all strategies give the same CPUs",
        values: (|values| values.len() > 1, "two"),
        is_of_osds: false,
        concludes: strategies,
    },
    Subject {
        study: 3,
        along: "cpus",
        apart: &["workload", "iodepth"],
        needs: "CPUs for OSDs with one and with two CPUs each, beside the clients'",
        values: (no_limit_and_a_size, "no-limit and a number"),
        is_of_osds: false,
        concludes: no_limit,
    },
    Subject {
        study: 4,
        along: "pgs",
        apart: &["workload"],
        needs: "points with two numbers of PGs, and the tool `rados` (or --client own)",
        values: TWO_SIZES,
        is_of_osds: false,
        concludes: last_steps,
    },
    Subject {
        study: 5,
        along: "osds",
        apart: &["workload", "step"],
        needs: "CPUs for two OSDs of two reactors beside the clients'",
        values: TWO_SIZES,
        is_of_osds: true,
        concludes: proportions,
    },
];

/// Values between which something is said to rise.
const TWO_SIZES: (fn(&[String]) -> bool, &str) = (|values| sizes(values) > 1, "two numbers");

fn sizes(values: &[String]) -> usize {
    values.iter().filter(|value| value.parse::<f64>().is_ok()).count()
}

fn no_limit_and_a_size(values: &[String]) -> bool {
    values.iter().any(|value| value == "no-limit") && sizes(values) > 0
}

/// One combination of the other axes.
pub(super) struct Line<'a> {
    pub(super) name: String,
    /// The axis of its values.
    along: &'static str,
    /// The values of the axis whose points support a figure, in order of size, with their clean repeats.
    pub(super) values: Vec<(String, Vec<Measured<'a>>)>,
    /// The other values, each with the reason.
    pub(super) refused: Vec<(String, String)>,
}

/// Steps that add less than this part no longer matter.
const ENOUGH: f64 = 0.95;

/// The study with this number.
pub(super) fn subject(study: Option<u8>) -> Option<&'static Subject> {
    SUBJECTS.iter().find(|subject| Some(subject.study) == study)
}

/// The values of these axes, as people say them.
pub(super) fn line_name(shown: &[&str], config: &Config) -> String {
    let words = shown.iter().filter_map(|axis| Some(named(axis, &config.show(axis)?)));
    words.collect::<Vec<_>>().join(", ")
}

impl Subject {
    /// The axes that are asked apart and have several values.
    pub(super) fn shown<'a>(&self, configs: impl Iterator<Item = &'a Config> + Clone) -> Vec<&'static str> {
        let several =
            |axis: &&&str| configs.clone().map(|config| config.show(axis)).collect::<BTreeSet<_>>().len() > 1;
        self.apart.iter().filter(several).copied().collect()
    }

    /// The answer to its question, then the figures that it is of. `drift` is the machine's.
    pub(super) fn answer(&self, points: &[Measured<'_>], file: &RunFile, drift: Option<f64>) -> Vec<String> {
        let lines = self.lines(points);
        let mut conclusions = if lines.iter().any(|line| line.values.len() + line.refused.len() > 1) {
            (self.concludes)(&lines, drift)
        } else {
            vec![Err(format!("not measured: needs {}", self.needs))]
        };
        // The strategies begin with the conclusion from all; elsewhere, what is answered comes first.
        if self.study != 2 {
            conclusions.sort_by_key(Result::is_err);
        }
        let mut text: Vec<String> = conclusions.into_iter().map(sentence).collect();
        if let Some(first) = text.first_mut() {
            *first = format!("Study {}: {} {first}", self.study, file.question);
        }
        text.extend(lines.iter().filter_map(|line| line.sentence(self, drift)));
        if self.study == 2 {
            text.extend(suspicion(&lines));
        }
        text.extend(file.confounds.iter().cloned());
        let marks = marks(points);
        if !marks.is_empty() {
            text.push(format!("mind: {marks} of {}", counted(points.len(), "point")));
        }
        if let Some(drift) = drift {
            text.push(format!("the first point, run again, gave {:+.1} % IOPS", drift * 100.0));
        }
        text
    }

    /// Points by the axes that are asked apart, then by the value of the axis.
    fn lines<'a>(&self, measured: &[Measured<'a>]) -> Vec<Line<'a>> {
        let shown = self.shown(measured.iter().map(|m| &m.point.config));
        let mut all: BTreeMap<String, Vec<(Measured<'a>, Supported<'a>)>> = BTreeMap::new();
        for (first, repeats) in by_config(measured) {
            all.entry(line_name(&shown, &first.point.config)).or_default().push((first, repeats));
        }
        let line = |(name, points): (String, Vec<(Measured<'a>, Supported<'a>)>)| {
            let valued =
                |(first, repeats): (Measured<'a>, _)| Some((first.point.config.show(self.along)?, repeats));
            let mut values = grouped(points.into_iter().filter_map(valued));
            values.sort_by(|a, b| size(&a.0).total_cmp(&size(&b.0)));
            let mut line = Line { name, along: self.along, values: Vec::new(), refused: Vec::new() };
            for (value, loads) in values {
                let (good, bad): (Vec<_>, Vec<_>) = loads.into_iter().partition(Result::is_ok);
                match (good.is_empty(), bad.into_iter().find_map(Result::err)) {
                    (true, Some(why)) => line.refused.push((value, why)),
                    _ => line.values.push((value, good.into_iter().flatten().flatten().collect())),
                }
            }
            line
        };
        all.into_iter().map(line).filter(|line| !line.values.is_empty() || !line.refused.is_empty()).collect()
    }
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

/// IOPS of each repeat of the load that gave most.
fn repeats(points: &[Measured<'_>]) -> Vec<f64> {
    best(points).iter().map(|result| result.iops()).collect()
}

/// The repeats of the load that gave most.
pub(super) fn best<'a>(points: &[Measured<'a>]) -> Vec<&'a PointResult> {
    let loads = grouped(points.iter().map(|m| (m.point.config.asked(), m.result))).into_iter();
    let loads = loads.map(|(_, repeats)| repeats);
    loads.max_by(|a, b| mean_iops(a).total_cmp(&mean_iops(b))).unwrap_or_default()
}

impl Line<'_> {
    /// The IOPS of each value, the changes that are supported, and what bounded the last; `None` if no value has a figure.
    fn sentence(&self, subject: &Subject, drift: Option<f64>) -> Option<String> {
        let (_, base) = self.values.first()?;
        let each = self.values.iter().enumerate().map(|(at, (value, points))| {
            let (name, iops) = (named(self.along, value), mean_iops(&best(points)));
            let against = change(&repeats(base), &repeats(points), drift, TOLERANCE).ok();
            let against = against.filter(|_| at > 0).map(|change| format!(" ({})", percent(change.ratio)));
            let unit = if at == 0 { " IOPS" } else { "" };
            format!("{name} {iops:.0}{unit}{}{}", against.unwrap_or_default(), worst(subject, points))
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let last = self.values.last().map(|(_, points)| best(points)).unwrap_or_default();
        let bound = limiter(last).map(|(limiter, _)| format!("; the last is bounded by {limiter}"));
        let bound = bound.unwrap_or_default();
        let refused = self.reasons();
        let refused = if refused.is_empty() { refused } else { format!("; no figure: {refused}") };
        Some(joined([&*self.name, &(each + &bound + &refused)], ": "))
    }

    /// Those with a number for a size, and the IOPS of their repeats.
    fn sized(&self) -> Vec<(&str, Vec<f64>)> {
        let sized = self.values.iter().filter(|(value, _)| value.parse::<f64>().is_ok());
        sized.map(|(value, points)| (value.as_str(), repeats(points))).collect()
    }

    /// Why values have no figure, with each reason once.
    pub(super) fn reasons(&self) -> String {
        let reasons = grouped(self.refused.iter().map(|(value, why)| (why, named(self.along, value))));
        let reasons: Vec<String> =
            reasons.into_iter().map(|(why, values)| format!("{}: {why}", values.join(", "))).collect();
        reasons.join("; ")
    }

    /// A conclusion with the line's name; one that wants more values than have figures says what they lack.
    fn concluded(&self, conclusion: Option<Conclusion>) -> Conclusion {
        let named = |text: String| joined([&*self.name, &text], ": ");
        let lacking = || match self.reasons() {
            none if none.is_empty() => "needs a second value".to_owned(),
            reasons => reasons,
        };
        conclusion.unwrap_or_else(|| Err(lacking())).map(named).map_err(named)
    }
}

/// Bandwidth and the longest latency are what `rados bench` is read for, in study 4.
fn worst(subject: &Subject, points: &[Measured<'_>]) -> String {
    if subject.study != 4 {
        return String::new();
    }
    let best = best(points);
    let worst_ms = best.iter().filter_map(|r| r.latency()).map(|l| l.max / 1e6).fold(0.0, f64::max);
    let bw = mean(&best.iter().map(|r| r.bw_bytes() / 1e6).collect::<Vec<_>>());
    format!(" ({bw:.0} MB/s, worst latency {worst_ms:.0} ms)")
}

/// Says at which size each line has nearly reached its highest IOPS.
fn last_steps(lines: &[Line<'_>], drift: Option<f64>) -> Vec<Conclusion> {
    let sized = lines.iter().filter(|line| line.values.len() + line.refused.len() > 1);
    sized.map(|line| line.concluded(last_step(&line.sized(), drift))).collect()
}

/// The smallest size from which the best adds too little to matter; `None` of fewer than two sizes.
fn last_step(sized: &[(&str, Vec<f64>)], drift: Option<f64>) -> Option<Conclusion> {
    let ([(first, few), .., (last, many)], enough) = (sized, 1.0 / ENOUGH - 1.0) else { return None };
    let (most_at, most) = sized.iter().min_by(|a, b| mean(&b.1).total_cmp(&mean(&a.1)))?;
    let whole =
        change(few, many, drift, enough).map_or("nothing that is shown".to_owned(), |c| c.to_string());
    for (value, iops) in sized {
        if value != most_at {
            match change(iops, most, drift, enough) {
                Ok(more) if more.is_within => {}
                Ok(more) if more.ratio > 1.0 + enough => continue,
                Ok(more) => return Some(Err(format!("whether {value} is enough: {most_at} gives {more}"))),
                Err(why) => return Some(Err(format!("whether {value} is enough, against {most_at}: {why}"))),
            }
        }
        let fall = change(most, many, drift, enough).ok().filter(|fall| !fall.is_within && fall.ratio < 1.0);
        let level = match fall {
            _ if value == last => "it still rises at the end".to_owned(),
            Some(fall) => format!("{value} is enough; {last} gives {} against the best", percent(fall.ratio)),
            None => format!("{value} is enough (more adds less than 5 %)"),
        };
        return Some(Ok(format!("from {first} to {last} {whole}; {level}")));
    }
    None
}

/// How much of a proportional gain each line has at its largest size.
fn proportions(lines: &[Line<'_>], drift: Option<f64>) -> Vec<Conclusion> {
    let share = |sized: &[(&str, Vec<f64>)]| {
        let [(first, few), .., (last, many)] = sized else { return None };
        let times = last.parse::<f64>().ok()? / first.parse::<f64>().ok()?;
        let got = change(few, many, drift, TOLERANCE);
        Some(got.map(|got| {
            let (low, high) = got.interval;
            format!(
                "{} x the OSDs gave {:.1} x (95 %: {low:.1} to {high:.1}), {:.0} % of proportional",
                (times * 10.0).round() / 10.0,
                got.ratio,
                100.0 * got.ratio / times
            )
        }))
    };
    let sized = lines.iter().filter(|line| line.values.len() + line.refused.len() > 1);
    sized.map(|line| line.concluded(share(&line.sized()))).collect()
}

/// Whether no limit is better than the best of the limits.
fn no_limit(lines: &[Line<'_>], drift: Option<f64>) -> Vec<Conclusion> {
    let against = |line: &Line<'_>| {
        let (_, free) = line.values.iter().find(|(value, _)| value == "no-limit")?;
        let (limit, held) = line.sized().into_iter().min_by(|a, b| mean(&b.1).total_cmp(&mean(&a.1)))?;
        let than = format!("the best limit ({})", named("cpus", limit));
        Some(change(&held, &repeats(free), drift, TOLERANCE).map(|change| {
            let word = match change.ratio {
                _ if change.is_within => "within 5 % of",
                less if less < 1.0 => "worse than",
                _ => "better than",
            };
            format!("no limit is {word} {than}: {change}")
        }))
    };
    let asked = |line: &&Line<'_>| {
        let values =
            line.values.iter().map(|(value, _)| value).chain(line.refused.iter().map(|(value, _)| value));
        values.filter(|value| *value == "no-limit").count() > 0
    };
    let conclusions: Vec<Conclusion> =
        lines.iter().filter(asked).map(|line| line.concluded(against(line))).collect();
    if conclusions.is_empty() {
        return vec![Err("no limit: not measured: needs a second CPU for OSDs".to_owned())];
    }
    conclusions
}

/// Words of marks, with how many points have them.
fn marks(measured: &[Measured<'_>]) -> String {
    let mut counts = tally(measured.iter().flat_map(|m| m.result.mark_words()));
    counts.sort_unstable();
    counts.into_iter().map(|(word, n)| format!("{word} {n}")).collect::<Vec<_>>().join(", ")
}
