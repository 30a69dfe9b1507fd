//! `osd tree`: the CRUSH tree with the state of its OSDs.

use carmine_types::OsdId;
use carmine_wire::osdmap::OsdMap;
use serde_json::{Value, json};

use super::table::Table;

/// A line of the tree: how deep, which bucket or device, its weight within its parent (16.16).
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) depth: usize,
    pub(super) id: i32,
    pub(super) weight: u32,
}

/// Walks the CRUSH tree from its roots, parents first.
pub(super) fn walk(map: &OsdMap) -> Vec<Node> {
    let crush = &map.crush;
    let buckets = || crush.buckets.iter().flatten();
    let is_child = |id: i32| buckets().any(|b| b.items.contains(&id));
    let roots = buckets().filter(|b| !is_child(b.id));
    let mut stack: Vec<Node> = roots.map(|b| Node { depth: 0, id: b.id, weight: b.weight }).collect();
    stack.reverse();
    let mut out = Vec::new();
    // A map with a cycle has no root on it, so the walk ends; the limit is for maps made by others.
    let limit = crush.buckets.len() + map.osd_state.len() + 1;
    while let Some(node) = stack.pop() {
        out.push(node);
        if out.len() > limit {
            break;
        }
        if let Some(bucket) = buckets().find(|b| b.id == node.id) {
            let children = bucket.items.iter().enumerate().rev();
            stack.extend(children.map(|(at, item)| Node {
                depth: node.depth + 1,
                id: *item,
                weight: bucket.item_weight(at),
            }));
        }
    }
    out
}

/// A 16.16 weight as a number.
pub(super) fn weight(raw: u32) -> f64 {
    f64::from(raw) / 65536.0
}

/// The same in JSON, where Ceph writes 1 and not 1.0.
pub(super) fn weight_json(raw: u32) -> Value {
    if raw.is_multiple_of(1 << 16) { json!(raw >> 16) } else { json!(weight(raw)) }
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

/// What is shown of the tree: OSDs in these states, and the buckets above them.
fn shown(map: &OsdMap, states: &[&str]) -> Vec<Node> {
    let mut kept = Vec::new();
    // From the last: a bucket less deep than what was kept before is above it.
    let mut above = 0;
    for node in walk(map).into_iter().rev() {
        let is_shown = match device(node.id) {
            Some(osd) => is_in_state(map, osd, states),
            None => states.is_empty() || node.depth < above,
        };
        if is_shown {
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
pub(crate) fn text(map: &OsdMap, states: &[&str]) -> String {
    let mut table = Table::new("ID|CLASS|<WEIGHT|<TYPE NAME|STATUS|REWEIGHT|PRI-AFF");
    for Node { depth, id, weight: raw } in shown(map, states) {
        let indent = "    ".repeat(depth);
        let mut row = vec![id.to_string(), String::new(), format!("{:.5}", weight(raw))];
        match device(id) {
            Some(osd) => row.extend([
                format!("{indent}{}", item_name(map, id)),
                up_or_down(map, osd).to_owned(),
                format!("{:.5}", weight(map.weight(osd))),
                format!("{:.5}", weight(map.affinity(osd))),
            ]),
            None => row.push(format!("{indent}{} {}", item_type(map, id).1, item_name(map, id))),
        }
        table.row(row);
    }
    table.render()
}

/// `{"nodes": […], "stray": []}`
pub(crate) fn json(map: &OsdMap, states: &[&str]) -> Value {
    let one = |Node { depth, id, weight: raw }: Node| {
        let (type_id, kind) = item_type(map, id);
        let mut node = json!({ "id": id, "name": item_name(map, id), "type": kind, "type_id": type_id });
        match device(id) {
            Some(osd) => {
                node["crush_weight"] = weight_json(raw);
                node["depth"] = json!(depth);
                node["pool_weights"] = json!({});
                node["exists"] = json!(u8::from(map.exists(osd)));
                node["status"] = json!(up_or_down(map, osd));
                node["reweight"] = weight_json(map.weight(osd));
                node["primary_affinity"] = weight_json(map.affinity(osd));
            }
            None => {
                let bucket = map.crush.buckets.iter().flatten().find(|b| b.id == id);
                node["pool_weights"] = json!({});
                // Ceph lists them from the last.
                node["children"] = bucket.into_iter().flat_map(|b| b.items.iter().rev().copied()).collect();
            }
        }
        node
    };
    json!({ "nodes": shown(map, states).into_iter().map(one).collect::<Vec<_>>(), "stray": [] })
}
