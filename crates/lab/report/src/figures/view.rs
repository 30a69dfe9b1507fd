//! The settings of all runs, and how they are told apart.

use std::collections::BTreeSet;

use carmine_study::archive::{Config, PointResult};
use serde_json::Value;

use crate::chart::{Chart, Plot, Row};
use crate::data::{Axes, LOAD_AXES, PANEL_AXES, RunData, Setting, settings};
use crate::lists::{grouped, joined};
use crate::table::Table;

/// Rows that one chart shows.
const ROWS_MAX: usize = 24;

/// The data that charts are made of.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) runs: &'a [RunData],
    pub(crate) settings: Vec<Setting<'a>>,
    pub(crate) axes: Axes,
}

/// Settings that may stand in one chart.
pub(crate) struct Panel<'a, 'b> {
    /// Workload and what else is never mixed; for titles.
    pub(crate) title: String,
    /// The same as part of an id.
    pub(crate) id: String,
    /// Panels with the same text are compared: those with blocks of one size.
    pub(crate) kind: String,
    pub(crate) settings: Vec<&'b Setting<'a>>,
}

impl Panel<'_, '_> {
    /// A chart of the panel; its axes are those of its kin in panels of the same kind.
    pub(crate) fn chart(
        &self,
        id: &str,
        title: &str,
        plots: Vec<Plot>,
        table: Table,
        remarks: Vec<String>,
    ) -> Chart {
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
        View { runs, settings: settings(runs), axes: Axes::of(&planned) }
    }

    /// Settings by workload, in the order of running.
    pub(crate) fn panels<'b>(&'b self) -> Vec<Panel<'a, 'b>> {
        let titled = |s: &'b Setting<'a>| (self.panel_title(s.config, s.first()), s);
        let panel = |(title, settings): (String, Vec<&'b Setting<'a>>)| {
            let kind = settings[0].config.show("bs_bytes").unwrap_or_default();
            Panel { id: slug(&title), kind, title, settings }
        };
        grouped(self.settings.iter().map(titled)).into_iter().map(panel).collect()
    }

    /// Workload, and what else is never mixed.
    pub(crate) fn panel_title(&self, config: &Config, result: Option<&PointResult>) -> String {
        let workload = config.show("workload");
        let workload = workload.or_else(|| field(&result?.carmine.load, "/rw"));
        let more = PANEL_AXES.into_iter().filter(|a| *a != "workload" && self.axes.tells(a));
        let more = more.filter_map(|axis| crate::data::axis_value(config, axis));
        let words: Vec<String> = workload.into_iter().chain(more).collect();
        if words.is_empty() { "load".into() } else { words.join(", ") }
    }

    /// The name of a setting's run, where there are several.
    fn run(&self, setting: &Setting<'_>) -> &str {
        self.runs.get(setting.run).filter(|_| self.runs.len() > 1).map_or("", |run| run.label.as_str())
    }

    /// A setting's name without these axes; with the run's name where there are several.
    pub(crate) fn name(&self, setting: &Setting<'_>, without: &[&str]) -> String {
        joined([self.run(setting), &self.axes.name(setting.config, without, false)], ": ")
    }

    /// A setting's row in a chart: its name in few words, without the workload, with the mark that spoils it.
    pub(crate) fn row(&self, setting: &Setting<'_>, values: Vec<Option<f64>>) -> Row {
        let name = self.axes.name(setting.config, &PANEL_AXES, true);
        let mark = setting.words.first().filter(|_| !setting.is_clean).map_or("", String::as_str);
        let name = joined([self.run(setting), &name, mark], " · ");
        let name = if name.is_empty() { "all".into() } else { name };
        Row { name, values, interval: None, marked: !setting.is_clean }
    }

    /// The settings that a chart with a row for each can show: of many those where each curve has most IOPS. With a
    /// sentence if some are left out.
    pub(crate) fn rows<'b>(&self, panel: &Panel<'a, 'b>) -> (Vec<&'b Setting<'a>>, Option<String>) {
        if panel.settings.len() <= ROWS_MAX {
            return (panel.settings.clone(), None);
        }
        let named = |setting: &&'b Setting<'a>| (self.name(setting, &LOAD_AXES), *setting);
        let curves = grouped(panel.settings.iter().map(named));
        let mut best: Vec<&Setting> = curves
            .into_iter()
            .filter_map(|(_, settings)| settings.into_iter().reduce(Setting::better))
            .collect();
        best.truncate(ROWS_MAX);
        let (shown, all) = (best.len(), panel.settings.len());
        let all = carmine_types::counted(all, "setting");
        let text =
            format!("The chart shows {shown} of {all}, each curve at its most IOPS; the table has all.");
        (best, Some(text))
    }
}

/// The conditions that every chart states: store, size, durability and flush mode, route of all its settings.
pub(crate) fn context(settings: &[&Setting<'_>]) -> String {
    let all = |name: &str, of: &dyn Fn(&Setting<'_>) -> Option<String>| {
        let values: BTreeSet<String> =
            settings.iter().map(|s| of(s).unwrap_or_else(|| "not recorded".into())).collect();
        let values: Vec<String> = values.into_iter().collect();
        format!("{name} {}", values.join(" / "))
    };
    let parts = [
        all("store", &|s| s.config.show("store").or_else(|| field(&s.first()?.carmine.plan, "/store"))),
        all("size", &|s| {
            s.config.show("pool_size").or_else(|| field(&s.first()?.carmine.plan, "/pool/size"))
        }),
        all("durability:", &|s| {
            let result = &s.first()?.carmine;
            let forced = if result.flush_forced { ", forced" } else { "" };
            result.flush_mode.as_ref().map(|mode| format!("{mode}{forced}"))
        }),
        all("route", &|s| {
            let route = s
                .first()
                .map(|r| &r.carmine)
                .and_then(|r| r.route.clone().or_else(|| field(&r.load, "/route")));
            route.or_else(|| s.config.show("route"))
        }),
    ];
    parts.join(" · ")
}

/// A field of a value of the result; `None` if it is not there.
fn field(value: &Value, path: &str) -> Option<String> {
    value.pointer(path).map(crate::data::text_of).filter(|text| !text.is_empty())
}

/// Text as part of an id or a file name.
pub(crate) fn slug(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    joined(lower.split(|c: char| !c.is_ascii_alphanumeric()), "-")
}
