//! The figures of a report: which charts the data allow, and their tables.

mod curve;
mod rows;
mod scaling;
mod timeline;
mod view;

use crate::chart::{Chart, share_axes};
use crate::compare::{self, Compared};
use crate::table::Table;
use timeline::Timeline;
pub(crate) use view::{View, context, slug};

/// Charts that answer one question.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Id of its part of the page.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Remarks that hold for all of them.
    pub(crate) text: Vec<String>,
    pub(crate) charts: Vec<Chart>,
    /// Name and figures of what is not drawn.
    pub(crate) files: Vec<(String, Table)>,
}

/// Charts of what the points measured, in the order of the page; those that are compared share axes. Groups without a
/// chart are left out.
pub(crate) fn groups(view: &View<'_>, compared: &Compared) -> Vec<Group> {
    let (scaling, curves) = (scaling::charts(view), curve::charts(view));
    let bars = if scaling.is_empty() && curves.is_empty() { rows::results(view) } else { Vec::new() };
    let all = [
        ("results", "Results", bars),
        ("scaling", "Scaling", scaling),
        ("compare", "Comparison", compare::charts(view, compared)),
        ("curves", "Latency", curves),
        ("cores", "Per core", rows::per_core(view)),
        ("cpu", "CPU time", rows::cpu_time(view)),
        ("baselines", "Raw baselines", rows::baselines(view)),
    ];
    let group = |(id, title, mut charts): (_, _, Vec<Chart>)| {
        share_axes(&mut charts);
        let text = if id == "compare" { compare::remarks(compared) } else { Vec::new() };
        Group { id, title, text, charts, files: Vec::new() }
    };
    let Timeline { charts, text, files } = timeline::timeline(view);
    let time = Group { id: "time", title: "Second by second", text, charts, files };
    all.into_iter().map(group).chain([time]).filter(|g| !g.charts.is_empty()).collect()
}

/// Sentences for the head of the page: slopes and knees.
pub(crate) use scaling::findings;
