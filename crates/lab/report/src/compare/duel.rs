//! Who is compared with whom, and what came out.

use std::collections::BTreeSet;

use carmine_stats::{Comparison, Outcome, holm, judge};
use carmine_study::archive::Config;
use carmine_study::compare::{
    Arm, Difference, Judgement, Measured, Refusal, Row, arm_of_run, arms_of_run, compare, differing_axes,
    pair_up,
};

use crate::data::{PANEL_AXES, RunData, words};
use crate::figures::View;
use crate::lists::distinct;

/// Differences up to this part count as equal.
pub(crate) const TOLERANCE: f64 = 0.05;

/// One figure of two arms with the same load.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) base: String,
    pub(crate) new: String,
    /// Workload: what is never mixed in a chart.
    pub(crate) panel: String,
    /// What else both have in common, of what varies in the report.
    pub(crate) name: String,
    /// Words such as SHARED that any of the points has.
    pub(crate) words: String,
    /// With p and outcome after Holm's correction over the report.
    pub(crate) row: Row,
    /// Place of its configuration in the order of running.
    order: usize,
}

/// All comparisons of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compared {
    pub(crate) lines: Vec<Line>,
    /// Why arms were not compared.
    pub(crate) refused: Vec<String>,
    /// Settings in which arms differ, each once.
    pub(crate) differences: Vec<Difference>,
    /// What to mind, each once.
    pub(crate) warnings: Vec<String>,
}

/// Compares the runs with the first of them, or the arms of the only run with its first.
pub(crate) fn compared(view: &View<'_>) -> Compared {
    let mut compared = Compared::default();
    for arms in arms(view.runs) {
        match arms.and_then(|(base, new)| Ok((compare(&base, &new, TOLERANCE)?, base, new))) {
            Ok((judgement, base, new)) => compared.add(view, judgement, &base, &new),
            Err(refusal) => compared.refused.push(refusal.to_string()),
        }
    }
    correct(&mut compared.lines);
    compared
}

type Arms = Result<(Arm, Arm), Refusal>;

fn arms(runs: &[RunData]) -> Vec<Arms> {
    match runs {
        [] => Vec::new(),
        [only] => arms_within(only),
        [first, others @ ..] => others.iter().map(|new| between(first, new)).collect(),
    }
}

fn arms_within(run: &RunData) -> Vec<Arms> {
    let names = run.file().comparison.iter().flat_map(|c| &c.arms);
    let names: Vec<&str> = names.map(String::as_str).collect();
    let Some((base, others)) = names.split_first() else { return Vec::new() };
    others.iter().map(|new| arms_of_run(&run.run, Some((base, new)))).collect()
}

fn between(base: &RunData, new: &RunData) -> Arms {
    let (old, young) = (arm_of_run(&base.run)?, arm_of_run(&new.run)?);
    Ok((Arm { name: base.label.clone(), ..old }, Arm { name: new.label.clone(), ..young }))
}

impl Compared {
    fn add(&mut self, view: &View<'_>, judgement: Judgement, base: &Arm, new: &Arm) {
        let (old, young): (Vec<&Measured>, Vec<&Measured>) =
            (base.points.iter().collect(), new.points.iter().collect());
        let axes = differing_axes(&old, &young);
        let groups = pair_up((&base.name, &old), (&new.name, &young), &axes).unwrap_or_default();
        for row in judgement.rows {
            let Some(group) = groups.iter().find(|g| g.name == row.config) else { continue };
            let Some((first, _)) = group.pairs.first() else { continue };
            let of = |m: &&Measured| words(&m.result, false);
            let words: BTreeSet<String> = group.pairs.iter().flat_map(|(a, b)| [a, b]).flat_map(of).collect();
            self.lines.push(Line {
                base: base.name.clone(),
                new: new.name.clone(),
                panel: view.panel_title(&first.config, Some(&first.result)),
                name: name(view, &first.config, &axes),
                words: words.into_iter().collect::<Vec<_>>().join(" "),
                row,
                order: view.settings.iter().position(|s| *s.config == first.config).unwrap_or(usize::MAX),
            });
        }
        self.lines.sort_by_key(|line| line.order);
        self.differences = distinct(self.differences.drain(..).chain(judgement.differences));
        self.warnings = distinct(self.warnings.drain(..).chain(judgement.warnings));
    }
}

fn name(view: &View<'_>, config: &Config, axes: &BTreeSet<&str>) -> String {
    let without: Vec<&str> = axes.iter().copied().chain(PANEL_AXES).collect();
    view.axes.short_name(config, &without)
}

/// Each comparison was corrected for itself; a report with several is corrected as one.
fn correct(lines: &mut [Line]) {
    let decidable = || |line: &Line| line.row.comparison.map(|c: Comparison| c.p);
    let p: Vec<f64> = lines.iter().filter_map(decidable()).collect();
    let mut adjusted = holm(&p).into_iter();
    for line in lines {
        let Some(comparison) = line.row.comparison else { continue };
        line.row.adjusted_p = adjusted.next().unwrap_or(1.0);
        line.row.outcome = judge(&Ok(comparison), line.row.adjusted_p, TOLERANCE);
        let worse = (comparison.ratio < 1.0) == line.row.more_is_better;
        line.row.accepted = !(worse && line.row.outcome == Outcome::Different { within: false });
    }
}
