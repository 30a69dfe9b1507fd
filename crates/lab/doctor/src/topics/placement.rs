//! The places of reactors, generators and devices, and the CPUs that this process may use.
//! Facts of control groups: the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.

use std::collections::BTreeSet;
use std::path::Path;

use carmine_topology::{ControlGroup, CpuList, Device};

use crate::Finding;
use crate::finding::{CPU_SCALING, CRIMSON_CORES, HYPERCONVERGED, OWN, absent, bad, info, ok, warn};
use crate::machine::Machine;

/// The distance of a node to itself.
const LOCAL: i64 = 10;
/// Length of a period of CPU time where its file does not say, microseconds.
const PERIOD_US: f64 = 100_000.0;

/// The generator on the other thread of a reactor's core.
pub(super) fn siblings(machine: &Machine<'_>) -> Option<Finding> {
    let (reactors, clients) = (&machine.options.reactor_cpus, &machine.options.client_cpus);
    let topology = machine.topology.as_ref().filter(|_| !reactors.is_empty())?;
    let core = |cpu: usize| topology.cpu(cpu).map(|c| c.core);
    let busy: Vec<usize> = reactors.iter().filter_map(core).collect();
    let beside: Vec<usize> =
        clients.iter().filter(|cpu| core(*cpu).is_some_and(|core| busy.contains(&core))).collect();
    let same = clients.intersection(reactors);
    Some(if !same.is_empty() {
        bad(format!("CPUs {same} run reactors and generators: each is measured with the other"))
            .better("CPUs of their own; per-core figures are left out until then")
            .command("carmine up --client-cpus LIST (or --cpus LIST for the OSDs), as any user")
    } else if !beside.is_empty() {
        warn(format!("generator CPUs {beside:?} are SMT siblings of reactors"))
            .better("generators on other cores: threads share their core, so that load slows the reactor")
            .command("carmine up --client-cpus LIST, as any user")
    } else {
        ok("generators and reactors have cores of their own")
    })
}

/// How far drives and network interfaces are from the reactors.
pub(super) fn numa(machine: &Machine<'_>, device: &Device) -> Option<Finding> {
    let topology = machine.topology.as_ref().filter(|topology| topology.nodes() > 1)?;
    let Some(node) = device.node else {
        return Some(absent("the firmware does not say on which node it is"));
    };
    let node_of = |cpu| Some(topology.cpu(cpu)?.node);
    let used: BTreeSet<usize> = machine.options.reactor_cpus.iter().filter_map(node_of).collect();
    let far = used.iter().filter_map(|from| {
        let row = machine.text(format!("sys/devices/system/node/node{from}/distance"))?;
        let distance = row.split_whitespace().nth(node)?.parse::<i64>().ok()?;
        (distance > LOCAL).then(|| format!("{distance} from node {from}"))
    });
    let far: Vec<String> = far.collect();
    let is = format!("on node {node}");
    Some(if used.is_empty() {
        info(is)
    } else if far.is_empty() {
        ok(format!("{is}, as the reactors are"))
    } else {
        info(format!("{is}: {} (itself: {LOCAL})", far.join(", ")))
            .better("reactors on the drive's node, where the plan leaves a choice; measure it with the plan `placement`")
            .cost("no strategy of placing reactors won over all workloads", CRIMSON_CORES)
            .command(format!("carmine up --cpus $(cat /sys/devices/system/node/node{node}/cpulist), as any user"))
    })
}

/// Which CPUs take the interrupts of drives and network interfaces, and whether reactors sit there.
pub(super) fn interrupts(machine: &Machine<'_>, device: &Device) -> Option<Finding> {
    let (lines, cpus) = (machine.hardware.interrupts(&device.dir()), &device.interrupts);
    let is = format!("{}, on CPUs {cpus}", carmine_types::counted(lines.len(), "interrupt"));
    let reactors = &machine.options.reactor_cpus;
    let hit = cpus.intersection(reactors);
    Some(if lines.is_empty() {
        absent("no interrupt of its own has come yet")
    } else if device.queue_per_cpu {
        ok(format!("{is}: a queue for each CPU, so completions arrive on the CPU that asked for them"))
    } else if hit.is_empty() {
        ok(is)
    } else {
        let on_reactors = lines.iter().filter(|(_, cpus)| !cpus.intersection(reactors).is_empty());
        let irqs: Vec<&str> = on_reactors.map(|(irq, _)| irq.as_str()).collect();
        info(format!("{is}; reactors sit on {hit}"))
            .better(
                "measure both: on CPUs without reactors where these are full (irq and softirq of that CPU in `carmine \
                 top`), on the reactors' own for latency at a small iodepth",
            )
            .cost(
                "elsewhere, reads at iodepth 1 took 1.3 times as long; at iodepth 64 there was no difference",
                OWN,
            )
            .command(format!(
                "systemctl stop irqbalance; for i in {}; do echo CPU > /proc/irq/$i/smp_affinity_list; done",
                irqs.join(" ")
            ))
    })
}

/// A limit of a group: cores, its file below the root, and the text that lifts it, written into that file.
type Limit = (f64, String, &'static str);

/// The CPU time that control groups leave to this process.
pub(super) fn cpu_limit(machine: &Machine<'_>) -> Option<Finding> {
    let [mounts, own] =
        ["mountinfo", "cgroup"].map(|name| machine.text(format!("proc/self/{name}")).unwrap_or_default());
    let groups = ControlGroup::own(&mounts, &own, "cpu");
    groups.first()?;
    // Every group from ours up to the root may have a limit: the smallest rules.
    let limit = |group: &ControlGroup| {
        group.upwards().filter_map(|dir| limit(machine, group.version, dir)).collect::<Vec<_>>()
    };
    let limits = groups.iter().flat_map(limit);
    let Some((cores, file, none)) = limits.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Some(ok("none"));
    };
    let found = warn(format!("{cores:.2} cores, by /{file}"))
        .better("no limit; confine by CPU lists instead (`up --cpus`)")
        .cost(
            "bursts need many cores for moments, so a hard limit hurts more than averages suggest; random writes were best \
             without one",
            &format!("{CPU_SCALING}; {HYPERCONVERGED}"),
        )
        .command(format!("echo {none} > /{file}"));
    Some(found)
}

fn limit(machine: &Machine<'_>, version: u8, folder: &Path) -> Option<Limit> {
    let (name, none) = if version == 2 { ("cpu.max", "max") } else { ("cpu.cfs_quota_us", "-1") };
    let folder = folder.strip_prefix("/").unwrap_or(folder);
    let file = folder.join(name);
    let text = machine.text(&file)?;
    let mut words = text.split_whitespace();
    // `max` and -1 are no limit.
    let quota_us = words.next()?.parse::<f64>().ok().filter(|quota| *quota > 0.0)?;
    let period_us =
        words.next().map(str::to_owned).or_else(|| machine.text(folder.join("cpu.cfs_period_us")));
    let period_us = period_us.and_then(|us| us.parse().ok()).unwrap_or(PERIOD_US);
    Some((quota_us / period_us, file.display().to_string(), none))
}

/// CPUs that a cpuset, or the starter of this process, leaves to it.
pub(super) fn allowed_cpus(machine: &Machine<'_>) -> Option<Finding> {
    let allowed: CpuList = machine.field("proc/self/status", "Cpus_allowed_list:")?.parse().ok()?;
    let online: CpuList = machine.text("sys/devices/system/cpu/online")?.parse().ok()?;
    let usable = allowed.intersection(&online);
    Some(if usable == online {
        ok(format!("all that are online: {online}"))
    } else {
        info(format!("{usable}, while {online} are online: a cpuset, or taskset"))
            .better("all, or a testbed that is planned for these (it is: `carmine plan` shows them)")
            .command("for a cgroup: echo LIST > its cpuset.cpus; for one process: taskset -apc LIST PID")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tree, find};
    use crate::{Options, Severity};

    /// Four CPUs, two cores: 0 and 2, 1 and 3.
    fn found(reactors: &str, clients: &str) -> Finding {
        let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3")]);
        for cpu in 0..4 {
            let pair = format!("{},{}", cpu % 2, cpu % 2 + 2);
            tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), &pair);
        }
        let list = |text: &str| if text.is_empty() { Default::default() } else { text.parse().unwrap() };
        let options = Options { reactor_cpus: list(reactors), client_cpus: list(clients), ..tree.options() };
        find(&options, "generator on an OSD's core").remove(0)
    }

    #[test]
    fn siblings_are_known() {
        assert_eq!(found("0", "1").severity, Severity::Ok);
        let beside = found("0", "1-2");
        assert_eq!(beside.severity, Severity::Warn);
        assert!(beside.is.contains("[2]"), "{}", beside.is);
        assert_eq!(found("0-1", "1").severity, Severity::Bad);
        assert_eq!(found("", "1").severity, Severity::NotPresent);
    }

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
        let far = find(&with("0"), "NUMA distance");
        assert!(far[0].is.contains("21 from node 0"), "{}", far[0].is);
        assert_eq!(far[1].severity, Severity::NotPresent);
        assert_eq!(find(&with("1"), "NUMA distance")[0].severity, Severity::Ok);
        assert_eq!(Tree::new(&[]).one("NUMA distance").severity, Severity::NotPresent);
    }

    const INTERRUPTS: &str = "      CPU0 CPU1\n 30:  0  0  PCI-MSIX config\n 31:  0  7  PCI-MSIX virtio1-req.0\n\
                              131: 5 5 other\nLOC: 5 5 timer";

    fn tree() -> Tree {
        Tree::new(&[
            ("proc/interrupts", INTERRUPTS),
            ("sys/devices/system/cpu/online", "0-1"),
            ("sys/block/vda/device/msi_irqs/30", "msix"),
            ("sys/block/vda/device/msi_irqs/31", "msix"),
            ("proc/irq/30/effective_affinity_list", "0"),
            ("proc/irq/31/effective_affinity_list", "1"),
        ])
    }

    fn with_reactors(tree: &Tree, cpus: &str) -> Finding {
        let options = Options { reactor_cpus: cpus.parse().unwrap(), ..tree.options() };
        find(&options, "interrupts").remove(0)
    }

    #[test]
    fn only_interrupts_that_come_count() {
        let tree = tree();
        let apart = with_reactors(&tree, "0");
        assert_eq!((apart.severity, apart.is.as_str()), (Severity::Ok, "1 interrupt, on CPUs 1"));
        let hit = with_reactors(&tree, "1");
        assert_eq!(hit.severity, Severity::Info);
        assert!(hit.command.unwrap().contains("in 31;"));
        assert_eq!(Tree::new(&[]).one("interrupts").severity, Severity::NotPresent);
    }

    #[test]
    fn a_queue_for_each_cpu_is_as_it_should_be() {
        let tree = tree();
        tree.put("proc/interrupts", "30: 3 0 q1\n31: 0 7 q2");
        tree.put("sys/block/vda/mq/0/cpu_list", "0, 1");
        assert_eq!(with_reactors(&tree, "0-1").severity, Severity::Info, "one queue and its other interrupt");
        tree.put("sys/block/vda/mq/1/cpu_list", "1");
        assert_eq!(with_reactors(&tree, "0-1").severity, Severity::Ok);
    }

    fn cpu_limit(tree: &Tree) -> Finding {
        tree.one("CPU limit (cgroup)")
    }

    #[test]
    fn the_smallest_limit_above_us_rules() {
        assert_eq!(cpu_limit(&Tree::new(&[])).severity, Severity::NotPresent);
        let tree = Tree::new(&[
            ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(cpu_limit(&tree).severity, Severity::Ok);
        tree.put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        let found = cpu_limit(&tree);
        assert_eq!(
            (found.severity, found.is.as_str()),
            (Severity::Warn, "1.50 cores, by /sys/fs/cgroup/a/cpu.max")
        );
    }

    /// As on a host with both versions: CPU time is limited by version 1, version 2 has no controller.
    #[test]
    fn version_1_beside_version_2() {
        let tree = Tree::new(&[
            (
                "proc/self/mountinfo",
                "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                 34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
            ),
            ("proc/self/cgroup", "3:cpuset:/x\n1:cpu,cpuacct:/pod/one\n0::/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/pod/one/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/pod/one/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(cpu_limit(&tree).severity, Severity::Ok);
        tree.put("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "100000\n");
        tree.put("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "50000\n");
        let found = cpu_limit(&tree);
        assert_eq!((found.severity, &found.is[..10]), (Severity::Warn, "2.00 cores"));
        assert_eq!(
            found.command.as_deref(),
            Some("echo -1 > /sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us")
        );
    }

    #[test]
    fn a_container_is_mounted_as_the_root() {
        let tree = Tree::new(&[
            ("proc/self/mountinfo", "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
            ("proc/self/cgroup", "0::/docker/abc\n"),
            ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ]);
        assert!(cpu_limit(&tree).is.starts_with("0.50 cores, by /sys/fs/cgroup/cpu.max"));
        tree.put("proc/self/cgroup", "0::/../elsewhere\n");
        assert!(cpu_limit(&tree).is.starts_with("0.50 cores"));
    }

    #[test]
    fn cpus_that_are_taken_away() {
        let of = |allowed: &str| {
            let status = format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n");
            let tree =
                Tree::new(&[("proc/self/status", &status), ("sys/devices/system/cpu/online", "0-3\n")]);
            tree.one("allowed CPUs")
        };
        assert_eq!(of("0-63").severity, Severity::Ok);
        let some = of("1-2");
        assert_eq!(some.severity, Severity::Info);
        assert!(some.is.starts_with("1-2, while 0-3"), "{}", some.is);
        assert_eq!(Tree::new(&[]).one("allowed CPUs").severity, Severity::NotPresent);
    }
}
