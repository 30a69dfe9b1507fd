//! Simple CRUSH maps: what the testbed's monitor starts with.

use std::collections::BTreeMap;

use carmine_types::OsdId;
use carmine_wire::crushmap::{Bucket, BucketKind, CrushMap, Rule, RuleStep};
use carmine_wire::osdmap::consts::POOL_REPLICATED;

/// Bucket types of Pacific, by number.
const TYPE_NAMES: [&str; 12] =
    ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];
const TYPE_HOST: u16 = 1;
const TYPE_ROOT: u16 = 11;
/// Largest pool size of the rule, as in Ceph's default rule.
const SIZE_MAX: u8 = 10;

/// A map with the given OSDs and weights (16.16, 0x10000 = 1.0): root `default`, hosts below it, OSDs below those,
/// straw2 throughout, Pacific's types and tunables, and rule 0 `replicated_rule`.
///
/// With `per_host` every OSD has a host of its own, `host-0` and up, and replicas go to different hosts. Without, all
/// are on `host-0`, and replicas go to different OSDs.
pub fn build_simple_crush(osds: &[(OsdId, u32)], per_host: bool) -> CrushMap {
    let groups: Vec<&[(OsdId, u32)]> = if per_host { osds.chunks(1).collect() } else { vec![osds] };
    let host_ids: Vec<i32> = (0..groups.len() as i32).map(|n| -2 - n).collect();
    let hosts: Vec<Bucket> = groups
        .iter()
        .zip(&host_ids)
        .map(|(group, id)| straw2(*id, TYPE_HOST, group.iter().map(|(osd, weight)| (osd.0 as i32, *weight))))
        .collect();
    let root = straw2(-1, TYPE_ROOT, hosts.iter().map(|host| (host.id, host.weight)));

    let mut item_names = BTreeMap::from([(-1, "default".to_owned())]);
    item_names.extend(host_ids.iter().enumerate().map(|(n, id)| (*id, format!("host-{n}"))));
    item_names.extend(osds.iter().map(|(osd, _)| (osd.0 as i32, osd.to_string())));
    let choose =
        if per_host { RuleStep::ChooseLeafFirstn(0, TYPE_HOST.into()) } else { RuleStep::ChooseFirstn(0, 0) };
    CrushMap {
        max_devices: osds.iter().map(|(osd, _)| osd.0 as i32 + 1).max().unwrap_or(0),
        buckets: std::iter::once(root).chain(hosts).map(Some).collect(),
        rules: vec![Some(Rule {
            ruleset: 0,
            kind: POOL_REPLICATED,
            min_size: 1,
            max_size: SIZE_MAX,
            steps: vec![RuleStep::Take(-1), choose, RuleStep::Emit],
        })],
        type_names: (0..).zip(TYPE_NAMES.map(str::to_owned)).collect(),
        item_names,
        rule_names: BTreeMap::from([(0, "replicated_rule".to_owned())]),
        ..CrushMap::default()
    }
}

/// The same with all OSDs on one host. With its name replicas go to different hosts, of which others are still to come; without, to
/// different OSDs.
pub fn build_crush_of_host(osds: &[(OsdId, u32)], host: Option<&str>) -> CrushMap {
    let mut crush = build_simple_crush(osds, false);
    if let Some(host) = host {
        crush.item_names.insert(-2, host.to_owned());
        let steps = crush.rules.iter_mut().flatten().flat_map(|rule| &mut rule.steps);
        steps
            .filter(|step| matches!(step, RuleStep::ChooseFirstn(..)))
            .for_each(|step| *step = RuleStep::ChooseLeafFirstn(0, TYPE_HOST.into()));
    }
    crush
}

/// A straw2 bucket that weighs as much as its items.
fn straw2(id: i32, kind_id: u16, items: impl Iterator<Item = (i32, u32)>) -> Bucket {
    let (items, weights): (Vec<i32>, Vec<u32>) = items.unzip();
    let weight = weights.iter().fold(0u32, |sum, weight| sum.saturating_add(*weight));
    Bucket { id, kind_id, hash: 0, weight, items, kind: BucketKind::Straw2 { weights } }
}
