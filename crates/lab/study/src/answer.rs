//! Answers the question of a plan from its archive in a few sentences, or says that there is no answer, and why: [`crate::support`]
//! decides which points may speak.

mod before;
mod placement;
mod study;

use std::collections::BTreeSet;
use std::time::Duration;

use carmine_types::counted;

use crate::archive::{ArchiveError, Chart, Point, PointKind, PointResult, Run, RunFile};
use crate::drift::Drift;
use crate::lists::{grouped, joined};
use crate::plan::TOLERANCE;
use crate::search::Search;
use crate::support::{REPEATS_MIN, clean, spoilt_by};

pub use before::NoAnswer;
pub(crate) use before::no_answer;
pub use placement::level_curve;

#[derive(Clone, Copy)]
struct Measured<'a> {
    point: &'a Point,
    result: &'a PointResult,
}

/// A sentence that answers the question, or why there is none.
type Conclusion = Result<String, String>;

/// The answer of a run, the most important sentence first. A run about scaling that is no study has its answer in
/// [`crate::scaling`], and none here.
///
/// # Errors
/// A file of the archive that can't be read.
pub fn answer(run: &Run) -> Result<Vec<String>, ArchiveError> {
    let results = run.measured()?;
    Ok(answer_of(&run.file, &results.iter().map(|(point, result)| (*point, result)).collect::<Vec<_>>()))
}

/// The same of results that have been read: those of the points that were measured.
pub fn answer_of(file: &RunFile, results: &[(&Point, &PointResult)]) -> Vec<String> {
    let drift = Drift::from_points(results.iter().copied()).map(|drift| drift.largest());
    let planned = results.iter().filter(|(point, _)| point.kind == PointKind::Point);
    let measured: Vec<Measured<'_>> = planned.map(|(point, result)| Measured { point, result }).collect();
    match (study::subject(file.study), file.search_p99_ms) {
        (Some(subject), _) => subject.answer(&measured, file, drift),
        (None, Some(p99_ms)) => search_answer(&measured, Duration::from_secs_f64(p99_ms / 1e3), drift),
        (None, None) if file.chart == Chart::Scaling => Vec::new(),
        (None, None) => vec![plan_answer(&measured)],
    }
}

/// A conclusion as a sentence.
fn sentence(conclusion: Conclusion) -> String {
    conclusion.unwrap_or_else(|why| format!("no answer: {why}"))
}

/// The rate that each search has found, then the steps of all.
fn search_answer(measured: &[Measured<'_>], target: Duration, drift: Option<f64>) -> Vec<String> {
    let repeats = measured.iter().map(|m| m.point.repeat).collect::<BTreeSet<_>>().len();
    let curves = measured.iter().map(|m| {
        let point = m.point;
        let repeat = if repeats > 1 { format!("repeat {}", point.repeat + 1) } else { String::new() };
        let curve = point.curve.as_deref().filter(|name| *name != "all").unwrap_or_default();
        (joined([point.arm.as_deref().unwrap_or_default(), curve, &repeat], ", "), (point, m.result))
    });
    let (mut answers, mut steps) = (Vec::new(), Vec::new());
    for (name, points) in grouped(curves) {
        let named = |text: String| joined([&*name, &text], ": ");
        let search = Search::from_points(points.into_iter(), target);
        let found = search.as_ref().ok_or_else(|| "the capacity was not measured".to_owned());
        let found = found.and_then(|search| search.found(drift, TOLERANCE));
        answers.push(named(sentence(found.map(|found| found.to_string()))));
        steps.extend(search.iter().flat_map(Search::steps).map(named));
    }
    answers.into_iter().chain(steps).collect()
}

/// Whether the points of a plan without a question of its own support figures.
fn plan_answer(measured: &[Measured<'_>]) -> String {
    let points = by_config(measured);
    let refused: Vec<&String> = points.iter().filter_map(|(_, repeats)| repeats.as_ref().err()).collect();
    let all = counted(points.len(), "setting");
    match (points.len() - refused.len(), refused.first()) {
        (_, None) if points.is_empty() => "no answer: no point was measured".to_owned(),
        (_, None) => {
            format!("{all}, each with {REPEATS_MIN} clean repeats or more; the report has the figures")
        }
        (0, Some(why)) => format!("no answer: no setting has repeats that support a figure: {why}"),
        (clean, Some(why)) => {
            format!(
                "{clean} of {all} have {REPEATS_MIN} clean repeats or more; of the others there is no answer: {why}"
            )
        }
    }
}

/// The clean repeats of each configuration; an error says why they support no figure.
type Supported<'a> = Result<Vec<Measured<'a>>, String>;

fn by_config<'a>(measured: &[Measured<'a>]) -> Vec<(Measured<'a>, Supported<'a>)> {
    let configs = grouped(measured.iter().map(|m| (m.point.config.asked(), *m))).into_iter();
    let supported = |(_, repeats): (_, Vec<Measured<'a>>)| {
        (repeats[0], clean(&repeats, |m| spoilt_by(&m.point.config, Some(m.result))))
    };
    configs.map(supported).collect()
}
