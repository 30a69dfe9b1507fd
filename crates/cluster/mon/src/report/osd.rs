//! `osd tree`, `osd df`, `osd perf`, `osd metadata` and `osd find`: the CRUSH tree, and what is known of each OSD.

use std::collections::{BTreeMap, BTreeSet};

use carmine_crush::classes;
use carmine_crush::edit::item_named;
use carmine_types::OsdId;
use carmine_wire::crushmap::RuleStep;
use carmine_wire::osdmap::OsdMap;
use serde_json::{Value, json};

use super::dump::{self, joined};
use super::pg;
use super::table::{Table, bytes, ratio};
use crate::command::View;

/// A line of the tree: how deep, which bucket or device, its weight within its parent (16.16).
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) depth: usize,
    pub(super) id: i32,
    pub(super) weight: u32,
}

/// The trees of the CRUSH map to show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trees {
    /// Those that somebody made.
    Real,
    /// The shadows of device classes, too.
    All,
}

/// Walks the CRUSH tree from its roots, parents first.
pub(super) fn walk(map: &OsdMap) -> Vec<Node> {
    walk_trees(map, Trees::Real)
}

/// The same of these trees.
pub(super) fn walk_trees(map: &OsdMap, trees: Trees) -> Vec<Node> {
    let crush = &map.crush;
    let buckets = || crush.buckets.iter().flatten();
    let is_child = |id: i32| buckets().any(|b| b.items.contains(&id));
    let shadows = classes::shadows(crush);
    let is_shown = |id: i32| trees == Trees::All || !shadows.contains(&id);
    let mut roots: Vec<_> = buckets().filter(|b| !is_child(b.id) && is_shown(b.id)).collect();
    roots.sort_by_key(|b| b.id);
    let roots = roots.into_iter();
    let mut stack: Vec<Node> = roots.map(|b| Node { depth: 0, id: b.id, weight: b.weight }).collect();
    stack.reverse();
    let mut out = Vec::new();
    // A map with a cycle has no root on it, so the walk ends; the limit is for maps made by others. A device stands in the shadow of
    // each bucket above it as well.
    let limit = (crush.buckets.len() + 1) * (map.osd_state.len() + 1);
    while let Some(node) = stack.pop() {
        out.push(node);
        if out.len() > limit {
            break;
        }
        if let Some(bucket) = buckets().find(|b| b.id == node.id) {
            let mut children: Vec<_> = bucket.items.iter().enumerate().collect();
            // As Ceph lists them: buckets by name, devices by class and number.
            children.sort_by_key(|(_, item)| match device(**item) {
                Some(osd) => (class(map, **item).to_owned(), osd.0, String::new()),
                None => (String::new(), 0, item_name(map, **item)),
            });
            stack.extend(children.into_iter().rev().map(|(at, item)| Node {
                depth: node.depth + 1,
                id: *item,
                weight: bucket.item_weight(at),
            }));
        }
    }
    out
}

/// A 16.16 weight as Ceph's tables have it.
pub(super) fn five(raw: u32) -> String {
    if raw == 0 { "0".to_owned() } else { format!("{:.5}", weight(raw)) }
}

/// A 16.16 weight as a number.
pub(super) fn weight(raw: u32) -> f64 {
    f64::from(raw) / 65536.0
}

/// The same in JSON, where Ceph writes 1 and not 1.0.
pub(super) fn weight_json(raw: u32) -> Value {
    if raw.is_multiple_of(1 << 16) { json!(raw >> 16) } else { json!(weight(raw)) }
}

/// The class of a device or a shadow bucket; empty if it has none.
pub(super) fn class(map: &OsdMap, item: i32) -> &str {
    classes::class_name(&map.crush, item).unwrap_or_default()
}

pub(super) fn item_name(map: &OsdMap, id: i32) -> String {
    let named = map.crush.item_names.get(&id).cloned();
    named.unwrap_or_else(|| if id >= 0 { format!("osd.{id}") } else { format!("bucket{id}") })
}

/// Number and name of the item's type; devices have type 0.
pub(super) fn item_type(map: &OsdMap, id: i32) -> (i32, String) {
    let kind = map.crush.buckets.iter().flatten().find(|b| b.id == id).map_or(0, |b| i32::from(b.kind_id));
    let name = map.crush.type_names.get(&kind).cloned();
    (kind, name.unwrap_or_else(|| if kind == 0 { "osd".into() } else { format!("type{kind}") }))
}

/// The device of a node, if it is one.
pub(super) fn device(id: i32) -> Option<OsdId> {
    u32::try_from(id).ok().map(OsdId)
}

/// The OSD is in one of these states; in all if none is named. `destroyed` is none of them.
fn is_in_state(map: &OsdMap, osd: OsdId, states: &[&str]) -> bool {
    let up = up_or_down(map, osd);
    let weight = if map.is_in(osd) { "in" } else { "out" };
    states.is_empty() || states.iter().any(|state| *state == up || *state == weight)
}

/// The nodes to show: OSDs in these states, and the buckets above them.
fn shown(map: &OsdMap, from: Option<i32>, states: &[&str]) -> Vec<Node> {
    let nodes = from.map_or_else(|| walk(map), |from| walk_below(map, from));
    kept(nodes, |osd| is_in_state(map, osd, states), states.is_empty())
}

/// Of a walk those of these OSDs, and the buckets above them, or all.
fn kept(nodes: Vec<Node>, is_meant: impl Fn(OsdId) -> bool, all_buckets: bool) -> Vec<Node> {
    let mut kept = Vec::new();
    // From the last: a bucket less deep than what was kept before is above it.
    let mut above = 0;
    for node in nodes.into_iter().rev() {
        let is_kept = match device(node.id) {
            Some(osd) => is_meant(osd),
            None => all_buckets || node.depth < above,
        };
        if is_kept {
            above = node.depth;
            kept.push(node);
        }
    }
    kept.reverse();
    kept
}

pub(super) fn up_or_down(map: &OsdMap, osd: OsdId) -> &'static str {
    if map.is_up(osd) { "up" } else { "down" }
}

/// A line for each node that is [`shown`], indented by depth.
pub(crate) fn tree_text(map: &OsdMap, from: Option<i32>, states: &[&str]) -> String {
    let mut table = Table::new(">ID|CLASS|>WEIGHT|<TYPE NAME|STATUS|REWEIGHT|PRI-AFF");
    for Node { depth, id, weight: raw } in shown(map, from, states) {
        let (indent, raw, name) = ("    ".repeat(depth), five(raw), item_name(map, id));
        table.row(&match device(id) {
            Some(osd) => {
                let (state, share, affinity) =
                    (up_or_down(map, osd), five(map.weight(osd)), five(map.affinity(osd)));
                format!("{id}|{}|{raw}|{indent}{name}|{state}|{share}|{affinity}", class(map, id))
            }
            None => format!("{id}||{raw}|{indent}{} {name}", item_type(map, id).1),
        });
    }
    table.render()
}

/// `{"nodes": […], "stray": []}`
pub(crate) fn tree_json(map: &OsdMap, from: Option<i32>, states: &[&str]) -> Value {
    nodes_json(map, shown(map, from, states))
}

fn nodes_json(map: &OsdMap, nodes: Vec<Node>) -> Value {
    let one = |Node { depth, id, weight: raw }: Node| {
        let (type_id, kind) = item_type(map, id);
        let mut node = json!({ "id": id, "name": item_name(map, id), "type": kind, "type_id": type_id });
        if !class(map, id).is_empty() {
            node["device_class"] = json!(class(map, id));
        }
        // A root has no weights within a parent.
        let weights = if depth > 0 { json!({ "pool_weights": {} }) } else { json!({}) };
        let more = match device(id) {
            Some(osd) => json!({
                "crush_weight": weight_json(raw), "depth": depth, "exists": u8::from(map.exists(osd)),
                "status": up_or_down(map, osd), "reweight": weight_json(map.weight(osd)),
                "primary_affinity": weight_json(map.affinity(osd)),
            }),
            None => json!({ "children": children(map, id) }),
        };
        joined([node, weights, more])
    };
    json!({ "nodes": nodes.into_iter().map(one).collect::<Vec<_>>(), "stray": [] })
}

/// The items of a bucket. Ceph lists them from the last.
fn children(map: &OsdMap, bucket: i32) -> Vec<i32> {
    let bucket = map.crush.buckets.iter().flatten().find(|b| b.id == bucket);
    bucket.into_iter().flat_map(|b| b.items.iter().rev().copied()).collect()
}

/// `osd crush tree`: the same without the states of the OSDs.
pub(crate) fn crush_tree_json(map: &OsdMap, trees: Trees) -> Value {
    let mut tree = nodes_json(map, walk_trees(map, trees));
    for node in tree["nodes"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        node.retain(|key, _| !matches!(key.as_str(), "exists" | "status" | "reweight" | "primary_affinity"));
    }
    tree
}

/// The usage of an OSD, or of all below a bucket.
#[derive(Clone, Copy, Default)]
struct Use {
    total: u64,
    used: u64,
    pgs: u64,
}

impl Use {
    fn of_osd(view: &View<'_>, pgs: &BTreeMap<OsdId, u64>, osd: OsdId) -> Use {
        let (total, used) = view.stats.space_of(osd);
        Use { total, used, pgs: pgs.get(&osd).copied().unwrap_or(0) }
    }

    /// All of a bucket, as far as it is shown. Like Ceph it does not count PGs there.
    fn below(view: &View<'_>, bucket: i32, of: &Part) -> Use {
        let osds = below(view.map, bucket).into_iter().filter(|osd| of.0.contains(osd));
        osds.map(|osd| view.stats.space_of(osd)).fold(Use::default(), |all, (total, used)| Use {
            total: all.total.saturating_add(total),
            used: all.used.saturating_add(used),
            pgs: 0,
        })
    }

    fn utilization(self) -> f64 {
        100.0 * ratio(self.used, self.total)
    }
}

/// Figures of the whole.
struct Summary {
    pgs: BTreeMap<OsdId, u64>,
    all: Use,
    /// Mean utilization, percent.
    mean: f64,
    var_min: f64,
    var_max: f64,
    /// Standard deviation of the utilizations, percent.
    deviation: f64,
}

fn summary(view: &View<'_>, of: &Part) -> Summary {
    let pgs = pg::per_osd(view);
    let uses: Vec<Use> = of.0.iter().map(|osd| Use::of_osd(view, &pgs, *osd)).collect();
    let mut all = Use::default();
    for one in &uses {
        all.total = all.total.saturating_add(one.total);
        all.used = all.used.saturating_add(one.used);
    }
    let mean = all.utilization();
    let vars = || uses.iter().filter(|one| one.total > 0).map(|one| var(*one, mean));
    let squares: f64 = uses.iter().map(|one| (one.utilization() - mean).powi(2)).sum();
    Summary {
        pgs,
        all,
        mean,
        var_min: vars().reduce(f64::min).unwrap_or(0.0),
        var_max: vars().reduce(f64::max).unwrap_or(0.0),
        deviation: (squares / uses.len().max(1) as f64).sqrt(),
    }
}

/// How full an OSD is beside the mean.
fn var(one: Use, mean: f64) -> f64 {
    if mean > 0.0 { one.utilization() / mean } else { 1.0 }
}

/// The OSDs that are shown.
pub(crate) struct Part(BTreeSet<OsdId>);

impl Part {
    pub(crate) fn whole(map: &OsdMap) -> Part {
        Part(map.osds().collect())
    }

    /// Those below a node of the CRUSH tree.
    pub(crate) fn below_node(map: &OsdMap, name: &str) -> Option<Part> {
        Some(Part(below(map, item_named(&map.crush, name)?).into_iter().collect()))
    }

    pub(crate) fn osds(&self) -> impl Iterator<Item = OsdId> {
        self.0.iter().copied()
    }

    /// Those of a pool, below a node of the CRUSH tree, or of a device class.
    pub(crate) fn named(map: &OsdMap, name: &str) -> Option<Part> {
        let of_pool = map.pool_id(name).and_then(|id| map.pool(id)).map(|pool| roots(map, pool.crush_rule));
        let tops = of_pool.or_else(|| Some(vec![item_named(&map.crush, name)?]));
        if let Some(tops) = tops {
            return Some(Part(tops.into_iter().flat_map(|top| below(map, top)).collect()));
        }
        classes::class_of(&map.crush, name)?;
        Some(Part(map.osds().filter(|osd| class(map, osd.0 as i32) == name).collect()))
    }
}

/// The buckets that a rule takes its devices from.
pub(super) fn roots(map: &OsdMap, rule: u8) -> Vec<i32> {
    let rule = map.crush.rules.get(usize::from(rule)).and_then(Option::as_ref);
    let steps = rule.into_iter().flat_map(|rule| &rule.steps);
    steps.filter_map(|step| if let RuleStep::Take(item) = step { Some(*item) } else { None }).collect()
}

/// A node and all below it, the node first.
fn walk_below(map: &OsdMap, top: i32) -> Vec<Node> {
    let mut nodes = walk_trees(map, Trees::All).into_iter().skip_while(|node| node.id != top);
    let Some(first) = nodes.next() else { return Vec::new() };
    let inner = nodes.take_while(|node| node.depth > first.depth);
    let from_it = |node: Node| Node { depth: node.depth - first.depth, ..node };
    [first].into_iter().chain(inner).map(from_it).collect()
}

/// The devices below a bucket, or the device itself.
pub(super) fn below(map: &OsdMap, top: i32) -> Vec<OsdId> {
    walk_below(map, top).into_iter().filter_map(|node| device(node.id)).collect()
}

/// The nodes to show: all of the tree, or its OSDs.
fn nodes(view: &View<'_>, is_tree: bool, of: &Part) -> Vec<Node> {
    let nodes = kept(walk(view.map), |osd| of.0.contains(&osd), false);
    nodes.into_iter().filter(|node| is_tree || node.id >= 0).collect()
}

/// A line for each OSD, and the sums.
pub(crate) fn df_text(view: &View<'_>, is_tree: bool, of: &Part) -> String {
    let Summary { pgs, all, mean, var_min, var_max, deviation } = summary(view, of);
    let name = if is_tree { "|<TYPE NAME" } else { "" };
    let mut table = Table::new(&format!(
        "ID|CLASS|WEIGHT|REWEIGHT|SIZE|RAW USE|DATA|OMAP|META|AVAIL|%USE|VAR|PGS|STATUS{name}"
    ));
    let space = |one: Use| {
        let (total, used, free) =
            (bytes(one.total), bytes(one.used), bytes(one.total.saturating_sub(one.used)));
        format!("{total}|{used}|{used}|{0}|{0}|{free}|{1:.2}", bytes(0), one.utilization())
    };
    for Node { depth, id, weight: raw } in nodes(view, is_tree, of) {
        let kind = if id < 0 { format!("{} ", item_type(view.map, id).1) } else { String::new() };
        let name = format!("{}{kind}{}", "    ".repeat(depth), item_name(view.map, id));
        let raw = five(raw);
        table.row(&match device(id) {
            Some(osd) => {
                let one = Use::of_osd(view, &pgs, osd);
                let (share, state) = (five(view.map.weight(osd)), up_or_down(view.map, osd));
                let (space, var, pgs) = (space(one), var(one, mean), one.pgs);
                format!("{id}|{}|{raw}|{share}|{space}|{var:.2}|{pgs}|{state}|{name}", class(view.map, id))
            }
            None => {
                let below = Use::below(view, id, of);
                format!("{id}||{raw}|-|{}|{:.2}|-||{name}", space(below), var(below, mean))
            }
        });
    }
    table.row(&format!("|||TOTAL|{}", space(all)));
    let lines = table.render();
    format!("{lines}MIN/MAX VAR: {var_min:.2}/{var_max:.2}  STDDEV: {deviation:.2}\n")
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
pub(crate) fn df_json(view: &View<'_>, is_tree: bool, of: &Part) -> Value {
    let summary = summary(view, of);
    let mean = summary.mean;
    let one = |Node { depth, id, weight: raw }: Node| {
        let (type_id, kind) = item_type(view.map, id);
        let used = match device(id) {
            Some(osd) => Use::of_osd(view, &summary.pgs, osd),
            None => Use::below(view, id, of),
        };
        let reweight = device(id).map_or(json!(-1.0), |osd| weight_json(view.map.weight(osd)));
        let node = json!({
            "id": id, "name": item_name(view.map, id), "type": kind, "type_id": type_id, "depth": depth,
            "crush_weight": weight_json(raw), "pool_weights": {}, "var": var(used, mean), "reweight": reweight,
        });
        let more = match device(id) {
            Some(osd) => json!({
                "device_class": class(view.map, id), "status": up_or_down(view.map, osd),
            }),
            None => json!({ "children": children(view.map, id) }),
        };
        joined([figures(used), node, more])
    };
    json!({
        "nodes": nodes(view, is_tree, of).into_iter().map(one).collect::<Vec<_>>(),
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

/// How many PGs wait for each OSD, by what their primaries say.
fn blocked_by(view: &View<'_>) -> BTreeMap<OsdId, u64> {
    let mut counts = BTreeMap::new();
    let told = view.placement.pgs().filter_map(|(pg, at)| view.stats.pg(pg, at.acting_primary?));
    for osd in told.flat_map(|stat| &stat.blocked_by).filter_map(|osd| OsdId::from_item(*osd)) {
        *counts.entry(osd).or_default() += 1;
    }
    counts
}

/// `osd blocked-by`.
pub(crate) fn blocked_by_json(view: &View<'_>) -> Value {
    let one = |(osd, count): (OsdId, u64)| json!({ "id": osd.0, "num_blocked": count });
    let infos: Vec<Value> = blocked_by(view).into_iter().map(one).collect();
    json!({ "pg_ready": true, "osd_blocked_by": { "osd_blocked_by_infos": infos } })
}

/// The same as a table.
pub(crate) fn blocked_by_text(view: &View<'_>) -> String {
    let mut table = Table::new("osd|num_blocked");
    blocked_by(view).into_iter().for_each(|(osd, count)| table.row(&format!("{}|{count}", osd.0)));
    table.render()
}

/// The metadata that an OSD sent, all values as text; only its number if it has not booted since this monitor began.
pub(crate) fn metadata_json(view: &View<'_>, osd: OsdId) -> Value {
    let mut out = json!({ "id": osd.0 });
    for (key, value) in view.stats.metadata(osd) {
        out[key] = json!(value);
    }
    let map = view.map;
    let addrs = [
        ("front_addr", &map.client_addrs),
        ("back_addr", &map.cluster_addrs),
        ("hb_front_addr", &map.hb_front_addrs),
        ("hb_back_addr", &map.hb_back_addrs),
    ];
    for (key, list) in addrs.into_iter().filter(|_| map.is_up(osd)) {
        out[key] = json!(list.get(osd.0 as usize).map(dump::addr_list));
    }
    out
}

/// Address, host and place in the CRUSH tree.
pub(crate) fn find_json(view: &View<'_>, osd: OsdId) -> Value {
    let at = osd.0 as usize;
    let host = view.stats.metadata(osd).find(|(key, _)| *key == "hostname").map_or("", |(_, value)| value);
    json!({
        "osd": osd.0,
        "addrs": dump::addr_vec(view.map.client_addrs.get(at)),
        "osd_fsid": view.map.osd_uuid.get(at).copied().unwrap_or_default().to_string(),
        "host": host,
        "crush_location": location(view.map, osd),
    })
}

/// The buckets above an OSD: `{"host": …, "root": …}`.
fn location(map: &OsdMap, osd: OsdId) -> Value {
    let mut id = i32::try_from(osd.0).unwrap_or(i32::MAX);
    let mut out = json!({});
    let shadows = classes::shadows(&map.crush);
    let buckets = || map.crush.buckets.iter().flatten().filter(|b| !shadows.contains(&b.id));
    // No more steps than there are buckets: a map made by others may have a cycle.
    for _ in &map.crush.buckets {
        let Some(parent) = buckets().find(|b| b.items.contains(&id)) else { break };
        id = parent.id;
        out[item_type(map, id).1] = json!(item_name(map, id));
    }
    out
}

/// Mean latency of the commits of each OSD that is up, nanoseconds.
fn commit_latencies<'a>(view: &'a View<'_>) -> impl Iterator<Item = (OsdId, u64)> + 'a {
    view.stats.reports.iter().map(|(osd, report)| (*osd, report.commit_latency_ns))
}

/// Mean latencies of an OSD.
pub(super) fn perf_stat(ns: u64) -> Value {
    let ms = ns / NS_PER_MS;
    json!({ "commit_latency_ms": ms, "apply_latency_ms": ms, "commit_latency_ns": ns, "apply_latency_ns": ns })
}

/// `osd perf`. A write is applied in memory before it is durable, at no cost that would be told apart: both columns are the same,
/// as with Ceph's BlueStore.
pub(crate) fn perf_json(view: &View<'_>) -> Value {
    let one = |(osd, ns): (OsdId, u64)| json!({ "id": osd.0, "perf_stats": perf_stat(ns) });
    let all: Vec<Value> = commit_latencies(view).map(one).collect();
    json!({ "osdstats": { "osd_perf_infos": all } })
}

/// The same as a table.
pub(crate) fn perf_text(view: &View<'_>) -> String {
    let mut table = Table::new("osd|commit_latency(ms)|apply_latency(ms)");
    for (osd, ns) in commit_latencies(view) {
        let ms = ns / NS_PER_MS;
        table.row(&format!("{}|{ms}|{ms}", osd.0));
    }
    table.render()
}

const NS_PER_MS: u64 = 1_000_000;
