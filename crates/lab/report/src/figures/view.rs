//! The settings of all runs, and how they are told apart.

use std::collections::BTreeSet;

use carmine_study::archive::{Config, PointResult};
use serde_json::Value;

use crate::chart::{Chart, Plot, Row};
use crate::data::{Axes, LOAD_AXES, PANEL_AXES, RunData, Setting, settings};
use crate::lists::grouped;
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
        plot: Plot,
        table: Table,
        remarks: Vec<String>,
    ) -> Chart {
        Chart {
            id: format!("{id}-{}", self.id),
            title: format!("{title}: {}", self.title),
            context: context(&self.settings),
            plot,
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
        let workload = workload.or_else(|| of_load(result?, "rw"));
        let more = PANEL_AXES.into_iter().filter(|a| *a != "workload" && self.axes.tells(a));
        let more = more.filter_map(|axis| crate::data::axis_value(config, axis));
        let words: Vec<String> = workload.into_iter().chain(more).collect();
        if words.is_empty() { "load".into() } else { words.join(", ") }
    }

    /// A setting's name without these axes; with the run's name where there are several.
    pub(crate) fn name(&self, setting: &Setting<'_>, without: &[&str]) -> String {
        let name = self.axes.name(setting.config, without);
        let run = self.runs.get(setting.run).filter(|_| self.runs.len() > 1).map(|r| r.label.clone());
        let words: Vec<String> = run.into_iter().chain(Some(name).filter(|n| !n.is_empty())).collect();
        words.join(": ")
    }

    /// A setting's row in a chart.
    pub(crate) fn row(&self, setting: &Setting<'_>, values: Vec<Option<f64>>) -> Row {
        Row { name: self.row_name(setting), values, interval: None, marked: !setting.is_clean }
    }

    /// The name of a row: in few words, without the workload, with the marks.
    fn row_name(&self, setting: &Setting<'_>) -> String {
        let name = self.axes.short_name(setting.config, &PANEL_AXES);
        let run = self.runs.get(setting.run).filter(|_| self.runs.len() > 1).map(|r| r.label.as_str());
        let mark = setting.words.first().filter(|_| !setting.is_clean).map(String::as_str);
        let words: Vec<&str> =
            run.into_iter().chain([name.as_str()]).chain(mark).filter(|w| !w.is_empty()).collect();
        if words.is_empty() { "all".into() } else { words.join(" · ") }
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
        all("store", &|s| configured(s, "store", &["store"])),
        all("size", &|s| configured(s, "pool_size", &["pool", "size"])),
        all("durability:", &|s| {
            let result = &s.first()?.carmine;
            let forced = if result.flush_forced { ", forced" } else { "" };
            result.flush_mode.as_ref().map(|mode| format!("{mode}{forced}"))
        }),
        all("route", &|s| {
            let route = s.first().and_then(|r| r.carmine.route.clone().or_else(|| of_load(r, "route")));
            route.or_else(|| s.config.show("route"))
        }),
    ];
    parts.join(" · ")
}

/// A value of the configuration, or else of the plan that the testbed was started with.
fn configured(setting: &Setting<'_>, axis: &str, path: &[&str]) -> Option<String> {
    let plan = || {
        let plan = &setting.first()?.carmine.plan;
        let value = path.iter().fold(plan, |value, key| value.get(key).unwrap_or(&Value::Null));
        Some(crate::data::text_of(value)).filter(|t| !t.is_empty())
    };
    setting.config.show(axis).or_else(plan)
}

/// A field of the load as the result has it.
fn of_load(result: &PointResult, field: &str) -> Option<String> {
    result.carmine.load.get(field).map(crate::data::text_of).filter(|t| !t.is_empty())
}

/// Text as part of an id or a file name.
pub(crate) fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => out.push(c),
            _ if out.ends_with('-') || out.is_empty() => {}
            _ => out.push('-'),
        }
    }
    out.trim_end_matches('-').to_owned()
}
