//! `carmine model`: from the costs of an operation at one reactor and at two it predicts what more reactors do, checks itself on what
//! it was not fitted to, and says what would prove it wrong. [`crate::support`] decides which repeats count.

mod checks;
#[cfg(test)]
mod tests;

use carmine_load::verdict::Limiter;
use carmine_stats::{CostLaw, Interval, median};
use carmine_testbed::fail_if;
use serde::Serialize;

use crate::archive::{Config, PointResult, Run};
use crate::compare::{Arm, Measured, Refusal, config_name, telling_axes};
use crate::drift::Drift;
use crate::lists::{distinct, grouped};
use crate::plan::TOLERANCE;
use crate::support::{REPEATS_MIN, clean, drift_over, mean_iops, spoilt_by};

pub use checks::{Check, HeldOut};

/// Axes that follow from the number of reactors, and axes that only a load outside the OSDs has.
const OF_SIZE: [&str; 4] = ["reactors", "osd_cpus", "overprovisioned", "step"];
const OF_CLIENT: [&str; 2] = ["jobs", "client_cpus"];

/// What holds if the predictions do.
pub const ASSUMPTIONS: [&str; 6] = [
    "Each reactor has a core of its own, as fast as the measured ones: no SMT sibling works, and the clock does not fall with many cores.",
    "Each added reactor makes an operation dearer by the same time (linear growth), and none makes it cheaper.",
    "Each reactor has the same load as one had here: its own operations in flight, and its part of the PGs.",
    "Memory bandwidth, the L3 cache and the link between sockets are not used up, and all reactors are as near to memory as these were.",
    "The drive has no limit but the one that a baseline measured; without a baseline it has none.",
    "Load from inside the OSD has no sockets: clients over a network cost more.",
];

/// Costs and predictions of all loads of some results.
#[derive(Clone, Debug, Serialize)]
pub struct Model {
    /// Build and machine that the results are from; empty if not known.
    pub origin: String,
    /// The machine's drift while they were measured, a part of 1; `None`: taken from the repeats of each load.
    pub drift: Option<f64>,
    pub assumptions: [&'static str; 6],
    pub lines: Vec<Line>,
    /// Two reactors of each value of an axis, predicted from the growth of its other values.
    pub held_out: Vec<HeldOut>,
    /// What would prove it wrong on a large machine, with the commands.
    pub falsified_by: Vec<String>,
    /// Points without a result, with the reason.
    pub left_out: Vec<String>,
}

/// One load on one testbed, at several numbers of reactors.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    /// The part of the configuration that tells it from the other lines; empty if there is only one.
    pub name: String,
    #[serde(skip)]
    config: Config,
    /// Why there is no prediction; `None` if there is.
    pub no_answer: Option<String>,
    /// Reactor time of an operation, nanoseconds.
    pub law: Option<CostLaw>,
    /// The parts of that time, and the CPU time of the stages if the results have a profile.
    pub parts: Vec<Part>,
    /// What the drive does without an OSD, by the baselines; `None` without one.
    pub drive_limit_iops: Option<f64>,
    pub predictions: Vec<Prediction>,
    /// Two reactors, predicted from one as if nothing were shared.
    pub two_from_one: Option<Check>,
    /// Measured numbers of reactors above two, predicted from one and two.
    pub larger: Vec<Check>,
    /// Measured numbers of reactors above two whose repeats support no figure, with the reason.
    pub unsupported: Vec<String>,
}

/// A part of an operation's cost at one reactor and at two: medians, nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    pub name: String,
    pub one_ns: f64,
    pub two_ns: f64,
}

/// What a number of reactors would do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub reactors: u32,
    pub iops: f64,
    /// Where the mean of three repeats falls with 95 %.
    pub interval: Interval,
    /// IOPS if the cost stayed that of two reactors.
    pub iops_if_flat: f64,
    /// The measured limit of the drive is below what the reactors would do.
    pub is_drive_bound: bool,
}

impl Model {
    /// The model of measured points, for these numbers of reactors.
    ///
    /// # Errors
    /// Results of several builds or machines, or a file that can't be read.
    pub fn new(arm: &Arm, sizes: &[u32]) -> Result<Model, Refusal> {
        let place = |m: &Measured| {
            let origin = &m.result.carmine.origin;
            if origin.is_known() {
                format!("commit {} on {}", origin.build(), origin.host)
            } else {
                String::new()
            }
        };
        let places = distinct(arm.points.iter().map(place));
        let all = places.join("; ");
        fail_if!(
            places.len() > 1,
            "{}: results of several builds or machines: {all}; give those of one",
            arm.name
        );
        let drift = arm.run.as_ref().map(|dir| drift_of_run(&Run::open(dir)?)).transpose()?.flatten();
        let loads = grouped(arm.points.iter().map(|m| ((line_config(m), m.result.carmine.in_process), m)));
        let configs: Vec<&Config> = loads.iter().map(|((config, _), _)| config).collect();
        let telling = telling_axes(&configs);
        let name = |config: &Config, inside: bool| {
            let mixed = loads.iter().any(|((_, other), _)| *other != inside);
            let way = if mixed && inside { " in-process" } else { "" };
            format!("{}{way}", config_name(config, &telling))
        };
        let line = |((config, inside), points): &((Config, bool), Vec<&Measured>)| {
            Line::new(name(config, *inside), config, points, drift, sizes)
        };
        let lines: Vec<Line> = loads.iter().map(line).collect();
        let held_out = checks::held_out(&lines, &telling);
        let falsified_by = checks::falsified_by(&lines);
        let left_out = arm.left_out.clone();
        Ok(Model { origin: all, drift, assumptions: ASSUMPTIONS, lines, held_out, falsified_by, left_out })
    }

    /// The lines that have predictions.
    pub fn answered(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.no_answer.is_none())
    }

    /// Measured numbers of reactors that lie outside their interval.
    pub fn falsified(&self) -> impl Iterator<Item = (&Line, &Check)> {
        self.lines
            .iter()
            .flat_map(|line| line.larger.iter().map(move |check| (line, check)).filter(|(_, c)| !c.holds()))
    }
}

fn drift_of_run(run: &Run) -> Result<Option<f64>, Refusal> {
    let measured = run.measured()?;
    Ok(Drift::from_points(measured.iter().map(|(point, result)| (*point, result)))
        .map(|drift| drift.largest().abs()))
}

/// The configuration of a load without what follows from the number of reactors.
fn line_config(m: &Measured) -> Config {
    let inside = m.result.carmine.in_process;
    m.config.only(|axis| !(OF_SIZE.contains(&axis) || inside && OF_CLIENT.contains(&axis)))
}

/// Limiters under which reactors are the limit, or wait as each of more would: load from outside must keep them busy.
fn is_about_reactors(limiter: Limiter, inside: bool) -> bool {
    limiter == Limiter::Osd || inside && matches!(limiter, Limiter::Qd | Limiter::Wait)
}

/// The words for what keeps a repeat out of the model: its marks, or a limit that is not the reactors'.
fn unfit(m: &Measured) -> Vec<&'static str> {
    let mut words = spoilt_by(&m.config, Some(&m.result));
    let carmine = &m.result.carmine;
    let limiter = carmine.verdict.as_deref().and_then(|word| word.parse().ok()).unwrap_or(Limiter::Unknown);
    let other = Some(limiter.word())
        .filter(|word| !is_about_reactors(limiter, carmine.in_process) && !words.contains(word));
    words.extend(other);
    words.extend(m.config.float("rate_iops").map(|_| "offered rate"));
    words
}

/// Reactors of all OSDs that work for a load: those of one OSD, if the load is inside it.
fn reactors(m: &Measured) -> Option<u32> {
    let osds = if m.result.carmine.in_process { 1 } else { m.config.number("osds").unwrap_or(1) };
    u32::try_from(m.config.number("reactors")?.checked_mul(osds)?).ok().filter(|reactors| *reactors > 0)
}

/// Clean repeats at one number of reactors in the order of time, or why there are too few.
type Size<'a> = (u32, Result<Vec<&'a PointResult>, String>);

fn sizes_of<'a>(points: &[&'a Measured]) -> Vec<Size<'a>> {
    let mut sizes = grouped(points.iter().filter_map(|m| Some((reactors(m)?, *m))));
    sizes.sort_by_key(|(reactors, _)| *reactors);
    let supported = |mut repeats: Vec<&'a Measured>| {
        repeats.sort_by_key(|m| m.result.carmine.origin.started_unix_s);
        Ok(clean(&repeats, |m| unfit(m))?.into_iter().map(|m| &m.result).collect())
    };
    sizes.into_iter().map(|(reactors, repeats)| (reactors, supported(repeats))).collect()
}

/// The repeats at one reactor or at two.
fn fitted<'a>(sizes: &'a [Size<'_>], wanted: u32) -> Result<&'a [&'a PointResult], String> {
    let (_, found) = sizes.iter().find(|(reactors, _)| *reactors == wanted).ok_or_else(|| {
        let measured: Vec<String> = sizes.iter().map(|(reactors, _)| reactors.to_string()).collect();
        format!("it takes points at 1 and at 2 reactors, and there are those at {}", measured.join(", "))
    })?;
    found.as_deref().map_err(|why| format!("at {wanted}: {why}"))
}

/// Reactor time of each repeat's operations, nanoseconds.
fn costs(reactors: u32, repeats: &[&PointResult]) -> Vec<f64> {
    repeats.iter().map(|result| f64::from(reactors) * 1e9 / result.iops()).collect()
}

/// The law of a line. A drift that no run knows is that from the first repeat to the last.
fn law(one: &[&PointResult], two: &[&PointResult], drift: Option<f64>) -> Result<CostLaw, String> {
    let drift = drift.unwrap_or_else(|| drift_over(one).max(drift_over(two)));
    if drift > TOLERANCE {
        let [drift, most] = [drift, TOLERANCE].map(|part| part * 100.0);
        return Err(format!(
            "the machine drifted by {drift:.1} % while it was measured, and more than {most:.0} % is too much"
        ));
    }
    CostLaw::fit(&costs(1, one), &costs(2, two)).map_err(|error| error.to_string())
}

impl Line {
    fn new(name: String, config: &Config, points: &[&Measured], drift: Option<f64>, wanted: &[u32]) -> Line {
        let sizes = sizes_of(points);
        let ends = fitted(&sizes, 1).and_then(|one| Ok((one, fitted(&sizes, 2)?)));
        let found = ends.and_then(|(one, two)| Ok((one, two, law(one, two, drift)?)));
        let mut line = Line { name, config: config.clone(), ..Line::default() };
        let (one, two, law) = match found {
            Ok(found) => found,
            Err(why) => return Line { no_answer: Some(why), ..line },
        };
        line.law = Some(law);
        line.parts = parts(one, two);
        line.drive_limit_iops = drive_limit(one.iter().chain(two));
        line.predictions = wanted.iter().map(|reactors| line.predict(&law, *reactors, REPEATS_MIN)).collect();
        line.two_from_one = Some(Check::new(2, 2e9 / law.one, 2e9 / law.two, None));
        for (reactors, repeats) in sizes.iter().filter(|(reactors, _)| *reactors > 2) {
            match repeats {
                Ok(repeats) => {
                    let predicted = line.predict(&law, *reactors, repeats.len());
                    let interval = Some(predicted.interval);
                    line.larger.push(Check::new(*reactors, predicted.iops, mean_iops(repeats), interval));
                }
                Err(why) => line.unsupported.push(format!("at {reactors}: {why}")),
            }
        }
        line
    }

    /// The law's IOPS, or the drive's if they are less.
    fn predict(&self, law: &CostLaw, reactors: u32, repeats: usize) -> Prediction {
        let limit = self.drive_limit_iops.unwrap_or(f64::INFINITY);
        let (per_ns, (low, high)) = law.rate(reactors, repeats);
        let [iops, low, high, flat] = [per_ns, low, high, f64::from(reactors) / law.cost(reactors.min(2))]
            .map(|per_ns| (per_ns * 1e9).min(limit));
        Prediction {
            reactors,
            iops,
            interval: (low, high),
            iops_if_flat: flat,
            is_drive_bound: per_ns * 1e9 > limit,
        }
    }
}

/// The IOPS of the drive at its best depth. Each result with a baseline says which part of that it reached.
fn drive_limit<'a>(repeats: impl Iterator<Item = &'a &'a PointResult>) -> Option<f64> {
    let limit = |result: &&PointResult| {
        let percent = result.carmine.percent_of_device_limit.filter(|percent| *percent > 0.0)?;
        Some(result.iops() * 100.0 / percent)
    };
    median(&repeats.filter_map(limit).collect::<Vec<f64>>())
}

/// Reactors' time of an operation by its use, that of other threads, and the CPU time of the stages; nanoseconds.
fn parts_of(result: &PointResult) -> Vec<(String, f64)> {
    let carmine = &result.carmine;
    let ops = result.iops() * carmine.client_seconds;
    let per_op = |clock| result.osd_seconds(clock).filter(|_| ops > 0.0).map(|seconds| seconds * 1e9 / ops);
    let of_reactors = [
        ("reactors: work", per_op(|cpu| cpu.busy)),
        ("reactors: idle", per_op(|cpu| Some(cpu.spin? + cpu.sleep?))),
        ("reactors: wait for a CPU", per_op(|cpu| cpu.wait)),
        ("other threads", per_op(|cpu| cpu.alien)),
    ];
    let of_reactors = of_reactors.into_iter().filter_map(|(name, ns)| Some((name.to_owned(), ns?)));
    let stages = carmine.stages.iter().flat_map(|stages| &stages.stages);
    let stages = stages.filter_map(|cost| Some((format!("stage {}", cost.stage.word()), cost.cpu_ns?)));
    of_reactors.chain(stages).collect()
}

/// The parts that all repeats at both numbers of reactors have.
fn parts(one: &[&PointResult], two: &[&PointResult]) -> Vec<Part> {
    let read = |repeats: &[&PointResult]| repeats.iter().map(|result| parts_of(result)).collect::<Vec<_>>();
    let (one, two) = (read(one), read(two));
    let middle = |repeats: &[Vec<(String, f64)>], name: &str| {
        let figure = |parts: &Vec<(String, f64)>| Some(parts.iter().find(|(of, _)| of == name)?.1);
        median(&repeats.iter().map(figure).collect::<Option<Vec<f64>>>()?)
    };
    let names = one.first().into_iter().flatten().map(|(name, _)| name);
    names
        .filter_map(|name| {
            Some(Part { name: name.clone(), one_ns: middle(&one, name)?, two_ns: middle(&two, name)? })
        })
        .collect()
}
