//! How far drives and network interfaces are from the reactors.

use std::collections::BTreeSet;

use crate::Finding;
use crate::machine::{Device, Machine};
use crate::source::CRIMSON_CORES;

const TOPIC: &str = "NUMA distance";
/// The distance of a node to itself.
const LOCAL: i64 = 10;

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let nodes = machine.topology.as_ref().map_or(0, carmine_topology::Topology::nodes);
    if nodes < 2 {
        return vec![Finding::absent(TOPIC, "one NUMA node: all is equally near")];
    }
    let devices = machine.drives.iter().chain(&machine.nics);
    devices.map(|device| judge(machine, device).on(&device.name)).collect()
}

fn judge(machine: &Machine<'_>, device: &Device) -> Finding {
    let path = device.hardware(&machine.host, "numa_node");
    let node = path.and_then(|path| machine.host.number(path)).filter(|node| *node >= 0);
    let Some(node) = node else {
        return Finding::absent(TOPIC, "the firmware does not say on which node it is");
    };
    let used = nodes_of_reactors(machine);
    let far: Vec<String> = used
        .iter()
        .filter_map(|from| Some((*from, distance(machine, *from, node)?)))
        .filter(|(_, distance)| *distance > LOCAL)
        .map(|(from, distance)| format!("{distance} from node {from}"))
        .collect();
    let is = format!("on node {node}");
    if used.is_empty() {
        return Finding::info(TOPIC, is);
    }
    if far.is_empty() {
        return Finding::ok(TOPIC, format!("{is}, as the reactors are"));
    }
    Finding::info(TOPIC, format!("{is}: {} (itself: {LOCAL})", far.join(", ")))
        .better("reactors on the drive's node, where the plan leaves a choice; measure it with the plan `placement`")
        .cost("no strategy of placing reactors won over all workloads", CRIMSON_CORES)
        .command(format!("carmine up --cpus $(cat /sys/devices/system/node/node{node}/cpulist), as any user"))
}

fn nodes_of_reactors(machine: &Machine<'_>) -> BTreeSet<usize> {
    let cpus = machine.options.reactor_cpus.iter();
    cpus.filter_map(|cpu| Some(machine.topology.as_ref()?.cpu(cpu)?.node)).collect()
}

fn distance(machine: &Machine<'_>, from: usize, to: i64) -> Option<i64> {
    let row = machine.host.text(format!("sys/devices/system/node/node{from}/distance"))?;
    row.split_whitespace().nth(usize::try_from(to).ok()?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use crate::{Options, Severity};

    #[test]
    fn a_drive_of_the_other_socket() {
        let tree = Tree::new(&[
            ("sys/devices/system/cpu/online", "0-1"),
            ("sys/devices/system/node/online", "0-1"),
            ("sys/devices/system/node/node0/cpulist", "0"),
            ("sys/devices/system/node/node1/cpulist", "1"),
            ("sys/devices/system/node/node0/distance", "10 21"),
            ("sys/devices/system/node/node1/distance", "21 10"),
            ("sys/block/nvme0n1/device/numa_node", "1"),
            ("sys/block/nvme1n1/device/numa_node", "-1"),
        ]);
        let with = |cpus: &str| Options { reactor_cpus: cpus.parse().unwrap(), ..tree.options() };
        let far = examine(&Machine::look(&with("0")));
        assert!(far[0].is.contains("21 from node 0"), "{}", far[0].is);
        assert_eq!(far[1].severity, Severity::NotPresent);
        assert_eq!(examine(&Machine::look(&with("1")))[0].severity, Severity::Ok);
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
    }
}
