//! Daemons by version, host and place: `osd versions`, `osd count-metadata`, `node ls`, `osd info`, `osd numa-status`,
//! `osd utilization` and `osd crush tree`.

use std::collections::BTreeMap;

use carmine_crush::print;
use carmine_types::OsdId;
use carmine_wire::osdmap::OsdMap;
use serde_json::{Value, json};

use super::osd::{Node, Trees, class, device, five, item_name, item_type, walk, walk_trees};
use super::table::Table;
use super::{cluster, dump, pg};
use crate::command::View;

/// Kinds of daemons that tools ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mon,
    Osd,
    /// Managers and metadata servers: there are none.
    None,
}

/// Daemons by the value of a key of their metadata: `{"VALUE": 3}`.
pub(crate) fn count(view: &View<'_>, kind: Kind, key: &str) -> Value {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut add =
        |value: Option<&str>| *counts.entry(value.unwrap_or("unknown").to_owned()).or_default() += 1;
    match kind {
        Kind::Mon => add(cluster::mon_metadata_json(view, true).get(key).and_then(Value::as_str)),
        Kind::Osd => view.map.osds().for_each(|osd| add(metadata_value(view, osd, key))),
        Kind::None => {}
    }
    json!(counts)
}

/// A value of the metadata that an OSD reported.
fn metadata_value<'a>(view: &'a View<'_>, osd: OsdId, key: &str) -> Option<&'a str> {
    view.stats.metadata(osd).find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// Daemons of one kind by host.
pub(crate) fn by_host(view: &View<'_>, kind: Kind) -> Value {
    let mut hosts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    match kind {
        Kind::Mon => {
            let own = cluster::mon_metadata_json(view, true);
            hosts.insert(own["hostname"].as_str().unwrap_or_default().to_owned(), vec![json!("a")]);
        }
        Kind::Osd => {
            for osd in view.map.osds() {
                let host = metadata_value(view, osd, "hostname").unwrap_or_default();
                hosts.entry(host.to_owned()).or_default().push(json!(osd.0));
            }
        }
        Kind::None => {}
    }
    json!(hosts)
}

/// `osd info`, of one OSD or of all.
pub(crate) fn info_json(map: &OsdMap, osd: Option<OsdId>) -> Value {
    match osd {
        Some(osd) => dump::osd(map, osd),
        None => map.osds().map(|osd| dump::osd(map, osd)).collect(),
    }
}

/// The lines that `osd dump` has for them.
pub(crate) fn info_text(map: &OsdMap, osd: Option<OsdId>) -> String {
    osd.map_or_else(|| map.osds().map(|osd| print::osd(map, osd)).collect(), |osd| print::osd(map, osd))
}

/// `osd numa-status`: an OSD's cores may be of several nodes, so none has an affinity as Ceph means it.
pub(crate) fn numa_json(view: &View<'_>) -> Value {
    let one = |osd: OsdId| json!({ "osd": osd.0, "host": metadata_value(view, osd, "hostname").unwrap_or_default() });
    view.map.osds().map(one).collect()
}

/// The same as a table.
pub(crate) fn numa_text(view: &View<'_>) -> String {
    let mut table = Table::new("OSD|<HOST|NETWORK|STORAGE|AFFINITY|<CPUS");
    for osd in view.map.osds() {
        table.row(&format!(
            "{}|{}|-|-|-|-",
            osd.0,
            metadata_value(view, osd, "hostname").unwrap_or_default()
        ));
    }
    table.render()
}

/// How evenly PGs lie on the OSDs that are in.
pub(crate) struct Spread {
    mean: f64,
    deviation: f64,
    /// The deviation if each PG chose its OSDs at random.
    expected: f64,
    least: (OsdId, u64),
    most: (OsdId, u64),
}

impl Spread {
    /// Counts the PGs of each OSD; `None` if no OSD is in.
    pub(crate) fn measure(view: &View<'_>) -> Option<Spread> {
        let pgs = pg::per_osd(view);
        let inside = view.map.osds().filter(|osd| view.map.is_in(*osd));
        let counts: Vec<(OsdId, u64)> =
            inside.map(|osd| (osd, pgs.get(&osd).copied().unwrap_or_default())).collect();
        let osds = counts.len() as f64;
        let mean = counts.iter().map(|(_, pgs)| *pgs).sum::<u64>() as f64 / osds;
        let squares: f64 = counts.iter().map(|(_, pgs)| (*pgs as f64 - mean).powi(2)).sum();
        Some(Spread {
            mean,
            deviation: (squares / osds).sqrt(),
            expected: (mean * (1.0 - 1.0 / osds)).sqrt(),
            least: *counts.iter().min_by_key(|(_, pgs)| *pgs)?,
            most: *counts.iter().max_by_key(|(_, pgs)| *pgs)?,
        })
    }

    /// `osd utilization`, by name.
    pub(crate) fn json(&self) -> Value {
        let Spread { mean, deviation, expected, least, most } = self;
        json!({
            "avg_pgs": mean, "std_dev": deviation, "expected_baseline_std_dev": expected, "min_osd": least.0.0,
            "min_osd_pgs": least.1, "max_osd": most.0.0, "max_osd_pgs": most.1,
        })
    }

    /// `osd utilization`, in lines.
    pub(crate) fn text(&self) -> String {
        let Spread { mean, deviation, expected, .. } = self;
        let share = |pgs: u64| if *mean > 0.0 { pgs as f64 / mean } else { 0.0 };
        let one = |word: &str, (osd, pgs): (OsdId, u64)| {
            format!("{word} {osd} with {pgs} pgs ({} * mean)\n", share(pgs))
        };
        let head = format!("avg {mean}\nstddev {deviation} (expected baseline {expected})\n");
        head + &one("min", self.least) + &one("max", self.most)
    }
}

/// Names of the items of a bucket; none are below an OSD. `None`: there is no such item.
pub(crate) fn below(map: &OsdMap, name: &str) -> Option<Vec<String>> {
    let node = walk(map).into_iter().find(|node| item_name(map, node.id) == name)?;
    let bucket = map.crush.buckets.iter().flatten().find(|bucket| bucket.id == node.id);
    Some(bucket.into_iter().flat_map(|bucket| &bucket.items).map(|id| item_name(map, *id)).collect())
}

/// `osd crush tree`: buckets and OSDs without their states.
pub(crate) fn crush_tree_text(map: &OsdMap, trees: Trees) -> String {
    let mut table = Table::new(">ID|CLASS|>WEIGHT|<TYPE NAME");
    for Node { depth, id, weight: raw } in walk_trees(map, trees) {
        let kind = if device(id).is_some() { String::new() } else { format!("{} ", item_type(map, id).1) };
        table.row(&format!(
            "{id}|{}|{}|{}{kind}{}",
            class(map, id),
            five(raw),
            "    ".repeat(depth),
            item_name(map, id)
        ));
    }
    table.render()
}
