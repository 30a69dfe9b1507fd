//! `osd df`: space and PGs of each OSD.

use std::collections::BTreeMap;

use carmine_types::OsdId;
use serde_json::{Value, json};

use super::pg;
use super::table::Table;
use super::tree::{self, Node, device, up_or_down, weight, weight_json};
use super::units::{bytes, ratio};
use crate::command::View;

/// What is shown of an OSD, or of all below a bucket.
#[derive(Clone, Copy, Default)]
struct Use {
    total: u64,
    used: u64,
    pgs: u64,
}

impl Use {
    fn of(view: &View<'_>, pgs: &BTreeMap<OsdId, u64>, osd: OsdId) -> Use {
        let (total, used) = view.stats.space_of(osd);
        Use { total, used, pgs: pgs.get(&osd).copied().unwrap_or(0) }
    }

    fn utilization(self) -> f64 {
        100.0 * ratio(self.used, self.total)
    }
}

/// Figures of the whole.
struct Summary {
    all: Use,
    var_min: f64,
    var_max: f64,
    /// Standard deviation of the utilizations, percent.
    deviation: f64,
}

fn summary(uses: &[Use]) -> Summary {
    let mut all = Use::default();
    for one in uses {
        all.total = all.total.saturating_add(one.total);
        all.used = all.used.saturating_add(one.used);
    }
    let mean = all.utilization();
    let vars: Vec<f64> = uses.iter().filter(|one| one.total > 0).map(|one| var(*one, mean)).collect();
    let squares: f64 = uses.iter().map(|one| (one.utilization() - mean).powi(2)).sum();
    Summary {
        all,
        var_min: vars.iter().copied().reduce(f64::min).unwrap_or(0.0),
        var_max: vars.iter().copied().reduce(f64::max).unwrap_or(0.0),
        deviation: (squares / uses.len().max(1) as f64).sqrt(),
    }
}

/// How full an OSD is beside the mean.
fn var(one: Use, mean: f64) -> f64 {
    if mean > 0.0 { one.utilization() / mean } else { 1.0 }
}

/// The nodes to show: all of the tree, or its OSDs.
fn nodes(view: &View<'_>, is_tree: bool) -> Vec<Node> {
    tree::walk(view.map).into_iter().filter(|node| is_tree || node.id >= 0).collect()
}

/// Columns before the name of a tree's node.
const NAME_AT: usize = 14;

/// A line for each OSD, and the sums.
pub(crate) fn text(view: &View<'_>, is_tree: bool) -> String {
    let pgs = pg::per_osd(view);
    let uses: Vec<Use> = view.map.osds().map(|osd| Use::of(view, &pgs, osd)).collect();
    let summary = summary(&uses);
    let mean = summary.all.utilization();
    let name = if is_tree { "|<TYPE NAME" } else { "" };
    let mut table = Table::new(&format!(
        "ID|CLASS|WEIGHT|REWEIGHT|SIZE|RAW USE|DATA|OMAP|META|AVAIL|%USE|VAR|PGS|STATUS{name}"
    ));
    for Node { depth, id, weight: raw } in nodes(view, is_tree) {
        let name = format!("{}{}", "    ".repeat(depth), tree::item_name(view.map, id));
        let Some(osd) = device(id) else {
            let mut row = vec![id.to_string(), String::new(), format!("{:.5}", weight(raw)), "-".into()];
            row.resize(NAME_AT, String::new());
            row.push(name);
            table.row(row);
            continue;
        };
        let one = Use::of(view, &pgs, osd);
        table.row([
            id.to_string(),
            String::new(),
            format!("{:.5}", weight(raw)),
            format!("{:.5}", weight(view.map.weight(osd))),
            bytes(one.total),
            bytes(one.used),
            bytes(one.used),
            bytes(0),
            bytes(0),
            bytes(one.total.saturating_sub(one.used)),
            format!("{:.2}", one.utilization()),
            format!("{:.2}", var(one, mean)),
            one.pgs.to_string(),
            up_or_down(view.map, osd).to_owned(),
            if is_tree { name } else { String::new() },
        ]);
    }
    let all = summary.all;
    let free = bytes(all.total.saturating_sub(all.used));
    let mut last = vec![String::new(), String::new(), String::new(), "TOTAL".to_owned()];
    last.extend([
        bytes(all.total),
        bytes(all.used),
        bytes(all.used),
        bytes(0),
        bytes(0),
        free,
        format!("{mean:.2}"),
    ]);
    table.row(last);
    format!(
        "{}MIN/MAX VAR: {:.2}/{:.2}  STDDEV: {:.2}\n",
        table.render(),
        summary.var_min,
        summary.var_max,
        summary.deviation
    )
}

fn kb(bytes: u64) -> u64 {
    bytes / 1024
}

fn figures(one: Use) -> Value {
    json!({
        "kb": kb(one.total), "kb_used": kb(one.used), "kb_used_data": kb(one.used), "kb_used_omap": 0,
        "kb_used_meta": 0, "kb_avail": kb(one.total.saturating_sub(one.used)),
        "utilization": one.utilization(), "pgs": one.pgs,
    })
}

/// `{"nodes": […], "stray": [], "summary": {…}}`
pub(crate) fn json(view: &View<'_>, is_tree: bool) -> Value {
    let pgs = pg::per_osd(view);
    let uses: Vec<Use> = view.map.osds().map(|osd| Use::of(view, &pgs, osd)).collect();
    let summary = summary(&uses);
    let mean = summary.all.utilization();
    let one = |Node { depth, id, weight: raw }: Node| {
        let (type_id, kind) = tree::item_type(view.map, id);
        let used = device(id).map_or(Use::default(), |osd| Use::of(view, &pgs, osd));
        let mut node = figures(used);
        node["id"] = json!(id);
        node["name"] = json!(tree::item_name(view.map, id));
        node["type"] = json!(kind);
        node["type_id"] = json!(type_id);
        node["depth"] = json!(depth);
        node["crush_weight"] = weight_json(raw);
        node["pool_weights"] = json!({});
        node["var"] = json!(var(used, mean));
        match device(id) {
            Some(osd) => {
                node["reweight"] = weight_json(view.map.weight(osd));
                node["status"] = json!(up_or_down(view.map, osd));
            }
            None => node["reweight"] = json!(-1.0),
        }
        node
    };
    json!({
        "nodes": nodes(view, is_tree).into_iter().map(one).collect::<Vec<_>>(),
        "stray": [],
        "summary": {
            "total_kb": kb(summary.all.total), "total_kb_used": kb(summary.all.used),
            "total_kb_used_data": kb(summary.all.used), "total_kb_used_omap": 0, "total_kb_used_meta": 0,
            "total_kb_avail": kb(summary.all.total.saturating_sub(summary.all.used)),
            "average_utilization": mean, "min_var": summary.var_min, "max_var": summary.var_max,
            "dev": summary.deviation,
        },
    })
}
