//! The figures of a report: the settings of all runs, how they are distinguished, and which charts the data allow.

mod curves;
mod place;
mod rows;
mod timeline;

use carmine_study::archive::{CarmineResult, Config, PointResult};
use carmine_types::counted;
use serde_json::Value;

use crate::chart::{Chart, Plot, Row, share_axes};
use crate::compare::{self, Compared};
use crate::data::{Axes, LOAD_AXES, PANEL_AXES, RunData, Setting, axis_value, settings, text_of};
use crate::lists::{grouped, joined, sorted};
use crate::report::{Block, Kind, Part};
use crate::table::Table;

pub(crate) use curves::{findings, suspicions};
pub(crate) use rows::cells;

/// Rows that one chart shows.
const ROWS_MAX: usize = 24;

/// Charts of the points' measurements: first those for the head of the page, then the parts below, in the order of the page.
/// Charts that are compared share axes.
pub(crate) fn charts(view: &View<'_>, compared: &Compared) -> (Vec<Chart>, Vec<Part>) {
    let (mut scaling, curves) = (share_axes(curves::scaling(view)), share_axes(curves::latency(view)));
    let plain = scaling.is_empty() && curves.is_empty();
    let bars = if plain { rows::charts(view, &rows::RESULTS) } else { Vec::new() };
    let (mut per_core, mut cpu) =
        (share_axes(rows::per_core(view)), rows::charts(view, &[rows::CPU_TIME, rows::CPU_STAGES]));
    let baselines = share_axes(rows::charts(view, &[rows::BASELINES]));
    let recovery = share_axes(rows::charts(view, &[rows::RECOVERY]));
    let mut places = place::charts(view);
    // The head has the first workload: what a core gives, where its time goes, and where the threads run.
    let first = if scaling.is_empty() { &mut per_core } else { &mut scaling };
    let arms = if view.runs.iter().any(|run| run.file().comparison.is_some()) { 2 } else { 1 };
    let take = |charts: &mut Vec<Chart>, count: usize| charts.drain(..count.min(charts.len())).collect();
    let head: [Vec<Chart>; 3] = [take(first, 1), take(&mut cpu, 1), take(&mut places, arms)];
    let part = |id: &str, title: &str, charts| Part::new(id, title, vec![Block::Charts(charts)]);
    let comparison = vec![
        Block::Text(Kind::Remarks, compare::remarks(compared)),
        Block::Charts(share_axes(compare::charts(view, compared))),
    ];
    let parts = vec![
        part("results", "Results", share_axes(bars)),
        part("recovery", "Recovery", recovery),
        part("scaling", "Scaling", scaling),
        Part::new("compare", "Comparison", comparison),
        part("curves", "Latency", curves),
        part("cores", "Per core", per_core),
        part("cpu", "CPU time", cpu),
        part("baselines", "Raw baselines", baselines),
        part("places", "Where threads run", places),
        Part::new("time", "Second by second", timeline::timeline(view)),
    ];
    (head.concat(), parts)
}

/// The data that charts are made of.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) runs: &'a [RunData],
    pub(crate) settings: Vec<Setting<'a>>,
    pub(crate) axes: Axes,
}

/// Settings that may stand in one chart.
pub(crate) struct Panel<'a, 'b> {
    /// The workload and the other axes that are never mixed; for titles.
    pub(crate) title: String,
    /// A part of the ids of its charts.
    id: String,
    /// Panels with the same text are compared: those with blocks of one size.
    kind: String,
    pub(crate) settings: Vec<&'b Setting<'a>>,
}

impl<'a, 'b> Panel<'a, 'b> {
    fn new(title: String, kind: String, settings: Vec<&'b Setting<'a>>) -> Panel<'a, 'b> {
        Panel { id: slug(&title), title, kind, settings }
    }

    /// A chart of the panel; its axes are those of its kin in panels of the same kind.
    fn chart(&self, id: &str, title: &str, plots: Vec<Plot>, table: Table, remarks: Vec<String>) -> Chart {
        Chart {
            id: format!("{id}-{}", self.id),
            title: format!("{title}: {}", self.title),
            context: context(&self.settings),
            plots,
            table: table.without_empty_columns(),
            remarks,
            family: format!("{id}-{}", self.kind),
        }
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(runs: &'a [RunData]) -> View<'a> {
        let planned: Vec<_> = runs.iter().flat_map(|r| &r.points).filter(|p| p.is_planned()).collect();
        View { runs, settings: settings(runs), axes: Axes::new(&planned) }
    }

    /// Settings by workload, in the order of running.
    pub(crate) fn panels<'b>(&'b self) -> Vec<Panel<'a, 'b>> {
        let titled = |s: &'b Setting<'a>| (self.panel_title(s.config, s.first), s);
        let panel = |(title, settings): (String, Vec<&'b Setting<'a>>)| {
            Panel::new(title, settings[0].config.show("bs_bytes").unwrap_or_default(), settings)
        };
        grouped(self.settings.iter().map(titled)).into_iter().map(panel).collect()
    }

    /// The workload, and the other axes that are never mixed.
    pub(crate) fn panel_title(&self, config: &Config, result: &PointResult) -> String {
        let workload = config.show("workload").unwrap_or_else(|| text_of(&result.carmine.load["rw"]));
        let more = PANEL_AXES.into_iter().filter(|a| *a != "workload" && self.axes.tells(a));
        let more = more.filter_map(|axis| axis_value(config, axis));
        [workload].into_iter().chain(more).collect::<Vec<_>>().join(", ")
    }

    /// The name of a setting's run.
    fn run(&self, setting: &Setting<'_>) -> &str {
        &self.runs[setting.run].label
    }

    /// A setting's name without these axes; with the run's name where there are several.
    pub(crate) fn name(&self, setting: &Setting<'_>, without: &[&str]) -> String {
        joined([self.run(setting), &self.axes.name(setting.config, without, false)], ": ")
    }

    /// A setting's row in a chart: its name in few words, without the workload, with the mark that spoils it.
    fn row(&self, setting: &Setting<'_>, values: Vec<Option<f64>>) -> Row {
        let name = self.axes.name(setting.config, &PANEL_AXES, true);
        let mark = setting.words.first().filter(|_| !setting.is_clean).map_or("", String::as_str);
        let name = joined([self.run(setting), &name, mark], " · ");
        let name = if name.is_empty() { "all".into() } else { name };
        Row { name, values, interval: None, marked: !setting.is_clean }
    }

    /// The settings that a chart with a row for each can show: of many those where each curve has most IOPS. With a
    /// sentence if some are left out.
    fn rows<'b>(&self, panel: &Panel<'a, 'b>) -> (Vec<&'b Setting<'a>>, Option<String>) {
        if panel.settings.len() <= ROWS_MAX {
            return (panel.settings.clone(), None);
        }
        let curves = grouped(panel.settings.iter().map(|s| (self.name(s, &LOAD_AXES), *s))).into_iter();
        let best: Vec<&Setting> = curves.map(|(_, all)| Setting::best(&all)).take(ROWS_MAX).collect();
        let (shown, all) = (best.len(), counted(panel.settings.len(), "setting"));
        let text =
            format!("The chart shows {shown} of {all}, each curve at its most IOPS; the table has all.");
        (best, Some(text))
    }
}

/// The conditions that every chart states: store, size, durability and flush mode, route of all its settings.
pub(crate) fn context(settings: &[&Setting<'_>]) -> String {
    type Of = fn(&Config, &CarmineResult) -> Option<String>;
    let told: [(&str, Of); 4] = [
        ("store", |config, r| config.show("store").or_else(|| field(&r.plan, "/store"))),
        ("size", |config, r| config.show("pool_size").or_else(|| field(&r.plan, "/pool/size"))),
        ("durability:", |_, r| {
            let forced = if r.flush_forced { ", forced" } else { "" };
            (!r.flush_mode.is_empty()).then(|| format!("{}{forced}", r.flush_mode))
        }),
        ("route", |config, r| {
            Some(r.route.clone()).filter(|route| !route.is_empty()).or_else(|| config.show("route"))
        }),
    ];
    let told = told.map(|(name, of)| {
        let value = |s: &&Setting<'_>| of(s.config, &s.first.carmine);
        let values = settings.iter().map(|s| value(s).unwrap_or_else(|| "not recorded".into()));
        format!("{name} {}", sorted(values, " / "))
    });
    told.join(" · ")
}

/// A field of a value of the result; `None` if it is not there.
fn field(value: &Value, path: &str) -> Option<String> {
    value.pointer(path).map(text_of).filter(|text| !text.is_empty())
}

/// Text as part of an id or a file name.
pub(crate) fn slug(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    joined(lower.split(|c: char| !c.is_ascii_alphanumeric()), "-")
}
