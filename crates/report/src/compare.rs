//! Comparisons: the arms of one run, or runs with each other, pair by pair.

use std::collections::BTreeMap;

use crate::chart::Chart;
use crate::figures::View;

mod chart;
mod duel;
mod verdict;

use chart::chart;
use duel::duels;
use verdict::{METRICS, Verdict, sentence, verdicts};

/// The comparison as a chart for each metric; nothing if there is nothing to compare.
pub(crate) fn charts(view: &View<'_>) -> Vec<Chart> {
    let duels = duels(view);
    let verdicts = verdicts(&duels);
    let mut panels: Vec<&str> = Vec::new();
    for duel in &duels {
        if !panels.contains(&duel.panel.as_str()) {
            panels.push(&duel.panel);
        }
    }
    let of = |panel| (0..METRICS.len()).map(move |metric| (panel, metric));
    let all = panels.iter().flat_map(|panel| of(*panel));
    all.filter_map(|(panel, metric)| chart(view, &duels, &verdicts, panel, metric)).collect()
}

/// One sentence for each metric and pair of arms, over all loads.
pub(crate) fn findings(view: &View<'_>) -> Vec<String> {
    let duels = duels(view);
    let verdicts = verdicts(&duels);
    let mut groups: BTreeMap<(&str, &str, usize), Vec<&Verdict>> = BTreeMap::new();
    for verdict in &verdicts {
        let duel = &duels[verdict.duel];
        groups.entry((&duel.base, &duel.new, verdict.metric)).or_default().push(verdict);
    }
    groups.into_iter().map(|((base, new, metric), found)| sentence(base, new, metric, &found)).collect()
}
