//! The figures of a report: which charts the data allow, and their tables.

mod columns;
mod curve;
mod place;
mod rows;
mod scaling;
mod timeline;
mod view;

use crate::chart::{Chart, share_axes};
use crate::compare::{self, Compared};
use crate::report::{Block, Kind, Part};
pub(crate) use columns::cells;
pub(crate) use curve::suspicions;
pub(crate) use view::{View, context, slug};

/// Charts of what the points measured: first those for the head of the page, then the parts below, in the order of the page.
/// Charts that are compared share axes.
pub(crate) fn charts(view: &View<'_>, compared: &Compared) -> (Vec<Chart>, Vec<Part>) {
    let (mut scaling, curves) = (share_axes(scaling::charts(view)), share_axes(curve::charts(view)));
    let plain = scaling.is_empty() && curves.is_empty();
    let bars = if plain { rows::charts(view, &rows::RESULTS) } else { Vec::new() };
    let (mut per_core, mut cpu) = (share_axes(rows::per_core(view)), rows::charts(view, &[rows::CPU_TIME]));
    let baselines = share_axes(rows::charts(view, &[rows::BASELINES]));
    let comparisons = share_axes(compare::charts(view, compared));
    let mut places = place::charts(view);
    // The head has the first workload: what a core gives, where its time goes, and where the threads run.
    let first = if scaling.is_empty() { &mut per_core } else { &mut scaling };
    let arms = if view.runs.iter().any(|run| run.file().comparison.is_some()) { 2 } else { 1 };
    let head = [take(first, 1), take(&mut cpu, 1), take(&mut places, arms)].concat();
    let parts = vec![
        part("results", "Results", Vec::new(), share_axes(bars)),
        part("scaling", "Scaling", Vec::new(), scaling),
        part("compare", "Comparison", compare::remarks(compared), comparisons),
        part("curves", "Latency", Vec::new(), curves),
        part("cores", "Per core", Vec::new(), per_core),
        part("cpu", "CPU time", Vec::new(), cpu),
        part("baselines", "Raw baselines", Vec::new(), baselines),
        part("places", "Where threads run", Vec::new(), places),
        Part::new("time", "Second by second", timeline::timeline(view)),
    ];
    (head, parts)
}

fn take(charts: &mut Vec<Chart>, count: usize) -> Vec<Chart> {
    charts.drain(..count.min(charts.len())).collect()
}

fn part(id: &str, title: &str, text: Vec<String>, charts: Vec<Chart>) -> Part {
    Part::new(id, title, vec![Block::Text(Kind::Remarks, text), Block::Charts(charts)])
}

/// Sentences for the head of the page: slopes and knees.
pub(crate) use scaling::findings;
