//! The parts of a study's question that stay open on a machine, known before anything is measured.

use std::collections::BTreeSet;

use carmine_types::counted;
use serde::Serialize;

use super::study::{Subject, line_name, subject};
use crate::archive::{Config, PointKind};
use crate::expand::{Machine, Planned, show_duration};
use crate::lists::{distinct, grouped, joined};
use crate::plan::Plan;
use crate::run::WINDOW_MIN;
use crate::support::REPEATS_MIN;

/// The part of a question that the points of a plan cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NoAnswer {
    /// It is the whole question.
    pub whole: bool,
    /// Each part that is not answered, with what it lacks.
    pub why: Vec<String>,
}

/// The questions of a study that its points leave open; `None` if there are none, or if the plan is not a study.
#[must_use]
pub(crate) fn no_answer(plan: &Plan, points: &[Planned], machine: &Machine) -> Option<NoAnswer> {
    let subject = subject(plan.study)?;
    let mut why = too_short(plan);
    let configs: Vec<&Config> =
        points.iter().filter(|p| p.point.kind == PointKind::Point).map(|p| &p.point.config).collect();
    let open = open_lines(subject, &configs);
    let whole = !why.is_empty() || open.iter().all(|(_, has)| has.is_some());
    if whole && why.is_empty() {
        why.push(format!("it needs {}", subject.needs));
    } else if !whole {
        let lacking = open.into_iter().filter_map(|(line, has)| Some((has?, line)));
        why.extend(grouped(lacking).into_iter().map(|(has, lines)| joined([&*lines.join("; "), &has], ": ")));
        why.extend(one_drive(subject, &configs, machine));
    }
    (!why.is_empty()).then_some(NoAnswer { whole, why })
}

/// Windows and repeats that support no figure.
fn too_short(plan: &Plan) -> Vec<String> {
    let mut why = Vec::new();
    if (plan.repeats as usize) < REPEATS_MIN {
        let repeats = counted(plan.repeats as usize, "repeat");
        why.push(format!("an answer takes {REPEATS_MIN} repeats, and this is {repeats} (--repeats)"));
    }
    if plan.runtime < WINDOW_MIN {
        let (least, is) = (show_duration(WINDOW_MIN), show_duration(plan.runtime));
        why.push(format!("an answer takes windows of {least}, and these have {is} (--runtime)"));
    }
    why
}

/// Each line by its name; with the values that it has, if they are too few for a conclusion.
fn open_lines(subject: &Subject, configs: &[&Config]) -> Vec<(String, Option<String>)> {
    let shown = subject.shown(configs.iter().copied());
    let valued = configs.iter().filter_map(|c| Some((line_name(&shown, c), c.show(subject.along)?)));
    let open = |(line, values): (String, Vec<String>)| {
        let values = distinct(values);
        let along = subject.along;
        let lacks = || format!("of {along} only {}, and it needs {}", values.join(", "), subject.values.1);
        let has = (!(subject.values.0)(&values)).then(lacks);
        (line, has)
    };
    let mut lines: Vec<_> = grouped(valued).into_iter().map(open).collect();
    // Points are in the order in which they run.
    lines.sort_unstable();
    lines
}

/// A word about OSDs that have no drive of their own, where the question is about OSDs.
fn one_drive(subject: &Subject, configs: &[&Config], machine: &Machine) -> Option<String> {
    // The files of all OSDs lie in one folder.
    let drives = machine.drives().or(machine.topology.live.then_some(1))?;
    let crowded = |config: &&&Config| {
        let osds = config.number("osds").unwrap_or(1);
        config.text("store") == Some("blue") && osds > drives as u64
    };
    let osds: BTreeSet<u64> = configs.iter().filter(crowded).filter_map(|c| c.number("osds")).collect();
    let osds: Vec<String> = osds.iter().map(u64::to_string).collect();
    (subject.is_of_osds && !osds.is_empty()).then(|| {
        format!(
            "{} OSDs on {}: where the verdict is DEVICE, how the OSDs scale stays open; give each a drive with --devs",
            osds.join(", "),
            counted(drives, "drive")
        )
    })
}
