//! The figures of a report: which charts the data allow, and their tables.

mod baselines;
mod cores;
mod cpu;
mod curve;
mod scaling;
mod timeline;
mod view;

use crate::chart::{Chart, share_axes};
pub(crate) use view::{View, context, slug};

/// Charts of what the points measured, in the order of the page; those that are compared share axes.
pub(crate) fn charts(view: &View<'_>) -> Vec<Chart> {
    let mut charts = scaling::charts(view);
    charts.extend(crate::compare::charts(view));
    charts.extend(curve::charts(view));
    charts.extend(cores::charts(view));
    charts.extend(cpu::charts(view));
    charts.extend(baselines::charts(view));
    share_axes(&mut charts);
    charts.extend(timeline::charts(view));
    charts
}

/// Sentences for the head of the page: slopes and knees.
pub(crate) use scaling::findings;
