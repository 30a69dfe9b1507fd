//! What the doctor should know of a testbed.

use carmine_doctor::{Finding, Options, Place, examine};
use carmine_testbed::{Layout, Plan, Wish};
use carmine_topology::{CpuList, Topology};
use carmine_types::{OsdId, StoreKind};
use serde_json::Value;

use carmine_testbed::drive::facts;

/// Fields of a plan that are no options, or differ from testbed to testbed anyway.
const NO_OPTIONS: [&str; 6] = ["format", "made_by", "fsid", "complete", "mon_port", "grid"];

/// Findings about the machine and this testbed.
pub(crate) fn findings_of(layout: &Layout, plan: &Plan) -> Vec<Finding> {
    examine(&options(layout, plan))
}

pub(super) fn options(layout: &Layout, plan: &Plan) -> Options {
    let reactors = plan.grid.osds.iter().flat_map(|row| row.reactor_cpus());
    Options {
        reactor_cpus: reactors.collect::<CpuList>(),
        client_cpus: plan.client_cpus(),
        drives: drives(layout, plan),
        places: places(layout, plan),
        build: Some(super::build()),
        changed: changed(plan),
        ..Options::default()
    }
}

/// Devices under data, log and database of the stores; none for stores in memory, or if the kernel does not tell.
fn drives(layout: &Layout, plan: &Plan) -> Vec<String> {
    let stores: Vec<_> = (0..plan.osds()).filter_map(|id| facts::of(layout, plan, OsdId(id))).collect();
    let mut names: Vec<String> = stores.iter().flat_map(|store| store.nodes()).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Block files that are not written through still need their room.
fn places(layout: &Layout, plan: &Plan) -> Vec<Place> {
    let in_files = plan.store == StoreKind::Blue && plan.devices.is_empty();
    let all_bytes = plan.osd_size_bytes.saturating_mul(u64::from(plan.osds()));
    let needed_bytes = if in_files && plan.sparse { all_bytes } else { 0 };
    vec![Place { folder: layout.dir().to_path_buf(), needed_bytes }]
}

/// Options that are not their defaults: name, value, default.
fn changed(plan: &Plan) -> Vec<(String, String, String)> {
    let default = Topology::detect().ok().and_then(|t| Plan::new(&Wish::default(), &t, &plan.fsid).ok());
    let Some(default) = default else { return Vec::new() };
    let json = |plan: &Plan| serde_json::to_value(plan).unwrap_or_default();
    let mut out = Vec::new();
    compare("", &json(plan), &json(&default), &mut out);
    out
}

fn compare(name: &str, is: &Value, default: &Value, out: &mut Vec<(String, String, String)>) {
    match (is, default) {
        (Value::Object(is), Value::Object(default)) => {
            for (key, value) in is.iter().filter(|(key, _)| !NO_OPTIONS.contains(&key.as_str())) {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                compare(&name, value, default.get(key).unwrap_or(&Value::Null), out);
            }
        }
        (is, default) if is != default => out.push((name.to_owned(), is.to_string(), default.to_string())),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(wish: &Wish) -> Plan {
        Plan::new(wish, &Topology::detect().unwrap(), "f").unwrap()
    }

    #[test]
    fn only_what_was_asked_for_is_changed() {
        assert_eq!(changed(&plan(&Wish::default())), []);
        let wish = Wish { poll: Some("sleep".into()), alien_threads: Some(5), ..Wish::default() };
        let names: Vec<String> = changed(&plan(&wish)).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["alien_threads", "poll"]);
    }

    #[test]
    fn a_sparse_testbed_needs_its_room_later() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        let of = |sparse| places(&layout, &plan(&Wish { sparse, ..Wish::default() }))[0].needed_bytes;
        assert_eq!((of(true), of(false)), (4 << 30, 0));
    }
}
