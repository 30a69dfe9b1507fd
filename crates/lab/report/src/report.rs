//! A report as data: what the page and the text both show, in the order in which it is read.

use std::path::Path;

use crate::compare;
use crate::conditions;
use crate::data::RunData;
use crate::figures::{self, Group, View};
use crate::flames::{Flames, flames};
use crate::headline;
use crate::points;
use crate::table::Table;

/// Everything that is shown.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) title: String,
    /// Machine, version and time on one line.
    pub(crate) subtitle: String,
    /// What spoils figures, or is missing.
    pub(crate) notices: Vec<String>,
    /// What was found.
    pub(crate) headline: Vec<String>,
    pub(crate) groups: Vec<Group>,
    pub(crate) flames: Flames,
    /// Every point.
    pub(crate) points: Table,
    /// Conditions, in sections.
    pub(crate) sections: Vec<Section>,
}

/// A part of the conditions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) text: Vec<String>,
    pub(crate) table: Option<Table>,
    /// Commands, a plan or a log, as they are.
    pub(crate) verbatim: String,
}

/// Puts the report of runs together; it will be written into the folder `out`.
pub(crate) fn report(runs: &[RunData], out: &Path) -> Report {
    let view = View::new(runs);
    let compared = compare::compared(&view);
    let mut findings = headline::peaks(&view);
    findings.extend(figures::findings(&view));
    findings.extend(compare::findings(&compared));
    findings.extend(headline::drifts(runs));
    Report {
        title: headline::title(runs),
        subtitle: headline::subtitle(runs),
        notices: headline::notices(runs),
        headline: findings,
        groups: figures::groups(&view, &compared),
        flames: flames(runs, out),
        points: points::table(&view),
        sections: conditions::sections(&view),
    }
}
