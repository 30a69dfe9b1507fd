//! How fast CPUs run, how deep they sleep, and with whom they share their time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use carmine_topology::{ControlGroup, CpuList};

use crate::finding::{
    CPU_SCALING, CRIMSON_CORES, HYPERCONVERGED, KERNEL, TEBIBYTE, TUNING_GUIDE, absent, bad, info, ok, warn,
};
use crate::machine::{Device, Machine};
use crate::{CpuTimes, Finding};

/// 1: boost is off.
const INTEL_BOOST: &str = "sys/devices/system/cpu/intel_pstate/no_turbo";
/// 1: boost is on.
const GENERIC_BOOST: &str = "sys/devices/system/cpu/cpufreq/boost";
/// Profiles of the daemon `tuned` that keep CPUs awake and fast.
const FITTING_PROFILES: [&str; 3] = ["network-latency", "latency-performance", "network-throughput"];
/// A wake-up that takes longer shows in the latency of a drive's read.
const EXIT_US_MAX: i64 = 10;
/// Time given to others since boot, of all CPU time: more than this shows in measurements.
const STEAL_PERCENT_MAX: f64 = 1.0;
/// Other work that takes this part of all CPUs' time shows in measurements; so does a process that takes so much of one CPU.
const OTHERS_MAX: f64 = 0.05;
const PROCESS_MAX: f64 = 0.5;
/// Other work that takes this part of all CPUs' time spoils them.
const OTHERS_SPOIL: f64 = 0.5;
/// Processes that are named, at most, and the part of a CPU below which none is.
const NAMED_MAX: usize = 5;
const NAMED_MIN: f64 = 0.02;

/// Frequency governor of each CPU.
pub(super) fn governor(machine: &Machine<'_>) -> Vec<Finding> {
    let dir = "sys/devices/system/cpu";
    let mut by_governor: BTreeMap<String, usize> = BTreeMap::new();
    for cpu in machine.list(dir) {
        if let Some(governor) = machine.text(format!("{dir}/{cpu}/cpufreq/scaling_governor")) {
            *by_governor.entry(governor).or_default() += 1;
        }
    }
    let judge = |(governor, cpus): (String, usize)| {
        let is = format!("{governor} on {cpus} CPUs");
        if governor == "performance" {
            return ok(is);
        }
        warn(is)
            .better("performance: the clock does not follow the load, so points of one curve are comparable")
            .cost("power management is switched off before measuring; no figure of its own", TUNING_GUIDE)
            .command("cpupower frequency-set -g performance")
    };
    by_governor.into_iter().map(judge).collect()
}

/// Turbo or boost frequencies.
pub(super) fn boost(machine: &Machine<'_>) -> Option<Finding> {
    let intel = machine.number(INTEL_BOOST).map(|off| (off == 0, INTEL_BOOST, "1"));
    let generic = || machine.number(GENERIC_BOOST).map(|on| (on != 0, GENERIC_BOOST, "0"));
    Some(match intel.or_else(generic)? {
        (false, ..) => info("off: figures are lower, and steadier"),
        (true, path, off) => {
            info("on: the clock depends on how many cores work and how warm they are")
                .better("off while figures of different core counts are compared; on for the highest figure")
                .cost("a core's speed varies with the load of its whole package, so results may not be reproducible", KERNEL)
                .command(format!("echo {off} > /{path}"))
        }
    })
}

/// Profile of the daemon `tuned`.
pub(super) fn tuned(machine: &Machine<'_>) -> Option<Finding> {
    let profile = machine.text("etc/tuned/active_profile")?;
    if profile.split_whitespace().any(|p| FITTING_PROFILES.contains(&p)) {
        return Some(ok(profile));
    }
    let found = warn(if profile.is_empty() { "none is active".to_owned() } else { profile })
        .better("network-latency")
        .cost("the published core-scaling figures were taken with it", CPU_SCALING)
        .command("tuned-adm profile network-latency");
    Some(found)
}

/// How deep an idle CPU sleeps, and how long it takes to wake up.
pub(super) fn c_states(machine: &Machine<'_>) -> Option<Finding> {
    let dir = "sys/devices/system/cpu/cpu0/cpuidle";
    let states = machine.list(dir).into_iter().filter(|name| name.starts_with("state"));
    let enabled = states.filter_map(|state| {
        let path = |file: &str| format!("{dir}/{state}/{file}");
        let is_off = machine.number(path("disable")).is_some_and(|off| off != 0);
        let exit_us = machine.number(path("latency"))?;
        (!is_off).then(|| (machine.text(path("name")).unwrap_or_default(), exit_us))
    });
    let (name, exit_us) = enabled.max_by_key(|(_, exit_us)| *exit_us)?;
    let is = format!("the deepest is {name}, from which a CPU wakes up in {exit_us} us");
    if exit_us <= EXIT_US_MAX {
        return Some(ok(is));
    }
    let found = warn(is)
        .better(format!("nothing deeper than {EXIT_US_MAX} us while measuring; or `up --poll poll`, whose reactors never sleep"))
        .cost("10 to 20 % of a cluster's throughput", TEBIBYTE)
        .command(format!("cpupower idle-set -D {EXIT_US_MAX}"));
    Some(found)
}

/// Two threads on one core.
pub(super) fn smt(machine: &Machine<'_>) -> Option<Finding> {
    Some(match machine.number("sys/devices/system/cpu/smt/active")? {
        0 => {
            let control = machine.text("sys/devices/system/cpu/smt/control").unwrap_or_default();
            info(format!("off ({control}): a CPU is a core"))
        }
        _ => info("on: a CPU is half a core while its sibling works")
            .better(
                "reactors on different cores, or no load on their siblings; \
                 `carmine plan` marks siblings, the plan `placement` measures it",
            )
            .command("echo off > /sys/devices/system/cpu/smt/control"),
    })
}

/// CPU time that processes other than this program and its testbed took between two moments.
pub(super) fn other_work(machine: &Machine<'_>, [before, after]: &[CpuTimes; 2]) -> Finding {
    // A CPU's ticks between the two moments.
    let ticks = after.total.saturating_sub(before.total) as f64 / after.cpus.max(1) as f64;
    if ticks < 1.0 {
        return absent("the kernel did not count on between two looks");
    }
    let own = |pid: &u32| machine.options.own_pids.contains(pid);
    let took = |(pid, (command, now)): (&u32, &(String, u64))| {
        // A number may have been given to a new process, which has less. (A thread of the kernel has another name for each work.)
        let then = before.processes.get(pid).map_or(0, |(_, ticks)| *ticks);
        (*pid, command.clone(), now.checked_sub(then).unwrap_or(*now) as f64 / ticks)
    };
    let (ours, mut others): (Vec<_>, Vec<_>) =
        after.processes.iter().map(took).partition(|(pid, ..)| own(pid));
    others.retain(|(.., cores)| *cores >= NAMED_MIN);
    others.sort_by(|a, b| b.2.total_cmp(&a.2));
    let busy = after.busy.saturating_sub(before.busy) as f64 / ticks;
    let cores = (busy - ours.iter().map(|(.., cores)| cores).sum::<f64>()).max(0.0);
    let mut is = format!("{cores:.2} of {} CPUs are busy with it", after.cpus);
    let named = &others[..others.len().min(NAMED_MAX)];
    if !named.is_empty() {
        let names =
            named.iter().map(|(pid, command, cores)| format!("{pid} {command} {:.0} %", cores * 100.0));
        is += &format!(": {} (of one CPU)", names.collect::<Vec<_>>().join(", "));
    }
    if let Some(pressure) = machine.field("proc/pressure/cpu", "some avg10=").filter(|_| cores >= NAMED_MIN) {
        let percent = pressure.split(' ').next().unwrap_or_default();
        is += &format!("; in the last 10 s tasks waited for a CPU {percent} % of the time");
    }
    let share = cores / after.cpus.max(1) as f64;
    let judge = match others.first().map_or(0.0, |(.., cores)| *cores) {
        _ if share >= OTHERS_SPOIL => bad,
        most if share >= OTHERS_MAX || most >= PROCESS_MAX => warn,
        _ => return ok(is),
    };
    let pids = named.iter().map(|(pid, ..)| pid.to_string()).collect::<Vec<_>>().join(" ");
    judge(is).better("nothing else runs while something is measured: wait for its end, or halt it").command(
        match pids.is_empty() {
            true => "top (in the machine's own name space: here no process is seen that works)".into(),
            false => format!(
                "kill -STOP {pids} before the measurement and kill -CONT {pids} after it, as their owner"
            ),
        },
    )
}

/// Time that a hypervisor gave to others.
pub(super) fn steal(machine: &Machine<'_>) -> Option<Finding> {
    let stat = machine.field("proc/stat", "cpu ").filter(|_| machine.is_virtual())?;
    let times: Vec<f64> = stat.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is counted in user already.
    let percent = 100.0 * times.get(7)? / times.iter().take(8).sum::<f64>().max(1.0);
    let is = format!("{percent:.2} % of all CPU time since boot, in a virtual machine");
    Some(if percent > STEAL_PERCENT_MAX {
        warn(is).better("a host that is not shared: steal changes from minute to minute, and figures with it")
    } else {
        info(format!("{is}; its neighbours can change that")).better("bare metal for figures to publish")
    })
}

// Where reactors, generators and devices sit, and which CPUs this process may use.
// Facts of control groups: the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.

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
    let node = machine.hardware(device, "numa_node").and_then(|path| machine.number(path));
    let Some(node) = node.and_then(|node| usize::try_from(node).ok()) else {
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
    let lines = interrupt_lines(machine, device);
    let cpus = lines.iter().fold(CpuList::default(), |all, (_, cpus)| all.union(cpus));
    let is = format!("{} interrupts, on CPUs {cpus}", lines.len());
    let queues = machine.list(format!("{}/mq", device.dir)).len();
    let reactors = &machine.options.reactor_cpus;
    let hit = cpus.intersection(reactors);
    Some(if lines.is_empty() {
        absent("no interrupt of its own has come yet")
    } else if machine.topology.as_ref().is_some_and(|topology| queues >= topology.all().len()) {
        ok(format!("{is}: a queue for each CPU, completions come where they were asked for"))
    } else if hit.is_empty() {
        ok(is)
    } else {
        let on_reactors = lines.iter().filter(|(_, cpus)| !cpus.intersection(reactors).is_empty());
        let irqs: Vec<&str> = on_reactors.map(|(irq, _)| irq.as_str()).collect();
        warn(format!("{is}; reactors sit on {hit} and lose that time"))
            .better("CPUs without reactors, or reactors elsewhere; it shows as irq and softirq of that CPU in `carmine top`")
            .command(format!(
                "systemctl stop irqbalance; for i in {}; do echo CPU > /proc/irq/$i/smp_affinity_list; done",
                irqs.join(" ")
            ))
    })
}

/// The device's interrupts that have come at least once, each with the CPUs that take it.
fn interrupt_lines(machine: &Machine<'_>, device: &Device) -> Vec<(String, CpuList)> {
    let interrupts = machine.text("proc/interrupts").unwrap_or_default();
    let Some(folder) = machine.hardware(device, "msi_irqs") else { return Vec::new() };
    let has_come = |irq: &String| {
        let mut lines = interrupts.lines();
        let line = lines.find_map(|line| line.trim_start().strip_prefix(irq)?.strip_prefix(':'));
        let counts = line.unwrap_or_default().split_whitespace().map_while(|word| word.parse::<u64>().ok());
        counts.sum::<u64>() > 0
    };
    let with_cpus = |irq: String| {
        let file = |name: &str| machine.text(format!("proc/irq/{irq}/{name}"));
        let cpus = file("effective_affinity_list").filter(|cpus| !cpus.is_empty());
        let cpus = cpus.or_else(|| file("smp_affinity_list"))?.parse().ok()?;
        Some((irq, cpus))
    };
    machine.list(&folder).into_iter().filter(has_come).filter_map(with_cpus).collect()
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
            "bursts need many cores for moments, so a hard limit hurts more than averages say; random writes were best \
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

/// CPUs that a cpuset, or who started this process, leaves to it.
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

    #[test]
    fn governors() {
        let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-1")]);
        assert_eq!(tree.one("CPU governor").severity, Severity::NotPresent);
        tree.put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
        assert_eq!(tree.one("CPU governor").severity, Severity::Ok);
        tree.put("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
        let found = tree.find("CPU governor");
        assert_eq!((found.len(), found[1].severity), (2, Severity::Warn));
        assert!(found[1].is.contains("powersave on 1") && found[1].command.is_some());
    }

    #[test]
    fn both_switches() {
        assert_eq!(Tree::new(&[]).one("boost").severity, Severity::NotPresent);
        let intel = Tree::new(&[(INTEL_BOOST, "0\n")]).one("boost");
        assert!(intel.is.starts_with("on") && intel.command.unwrap().starts_with("echo 1 "));
        assert!(Tree::new(&[(INTEL_BOOST, "1\n")]).one("boost").is.starts_with("off"));
        let amd = Tree::new(&[(GENERIC_BOOST, "1\n")]).one("boost");
        assert!(amd.command.unwrap().starts_with("echo 0 "));
    }

    #[test]
    fn profiles() {
        let of = |text| Tree::new(&[("etc/tuned/active_profile", text)]).one("tuned profile").severity;
        assert_eq!(of("network-latency\n"), Severity::Ok);
        assert_eq!((of("balanced\n"), of("")), (Severity::Warn, Severity::Warn));
        assert_eq!(Tree::new(&[]).one("tuned profile").severity, Severity::NotPresent);
    }

    #[test]
    fn the_deepest_enabled_state_counts() {
        assert_eq!(Tree::new(&[]).one("C-states").severity, Severity::NotPresent);
        let dir = "sys/devices/system/cpu/cpu0/cpuidle";
        let tree = Tree::new(&[]);
        for (n, name, latency) in [(0, "POLL", "0"), (1, "C1", "2"), (2, "C6", "133")] {
            tree.put(&format!("{dir}/state{n}/name"), name);
            tree.put(&format!("{dir}/state{n}/latency"), latency);
        }
        let found = tree.one("C-states");
        assert_eq!(found.severity, Severity::Warn);
        assert!(found.is.contains("C6") && found.is.contains("133 us"), "{}", found.is);
        tree.put(&format!("{dir}/state2/disable"), "1\n");
        assert_eq!(tree.one("C-states").severity, Severity::Ok);
    }

    #[test]
    fn on_off_absent() {
        let active = "sys/devices/system/cpu/smt/active";
        assert!(Tree::new(&[(active, "1\n")]).one("SMT").is.starts_with("on"));
        assert!(Tree::new(&[(active, "0\n")]).one("SMT").is.starts_with("off"));
        assert_eq!(Tree::new(&[]).one("SMT").severity, Severity::NotPresent);
    }

    #[test]
    fn a_process_with_a_new_name_has_worked_since_the_first_look_only() {
        let tree = Tree::new(&[]);
        let look = |pid: u32, name: &str, ticks: u64| {
            tree.put("proc/stat", &format!("cpu  {} 0 100 900 0 0 0 0 0 0\ncpu0 1 1\n", 700 + ticks));
            tree.put(
                &format!("proc/{pid}/stat"),
                &format!("{pid} ({name}) R 1 1 1 0 -1 4194304 9 9 9 9 {ticks} 0 9 9 20 0"),
            );
            CpuTimes::read(tree.path()).unwrap()
        };
        let found =
            |looks| find(&Options { cpu_times: Some(looks), ..tree.options() }, "other work").remove(0).is;
        let is = found([look(9, "kworker/0:0-events", 5000), look(9, "kworker/0:0-writeback", 5010)]);
        assert!(is.contains("9 kworker/0:0-writeback 100 %"), "{is}");
        let is = found([look(9, "rustc", 5000), look(9, "cc", 7)]);
        assert!(!is.contains("cc 5007"), "{is}");
    }

    /// Two looks at a tree with two CPUs, 300 ms apart: `ticks` are those that each pid worked.
    fn two_looks(tree: &Tree, ticks: &[(u32, &str, u64)], own_pids: Vec<u32>) -> Finding {
        let look = |after: bool| {
            let spent = |n: u64| if after { n } else { 0 };
            let busy = spent(ticks.iter().map(|(.., n)| n).sum());
            let idle = spent(60) - busy;
            let text =
                format!("cpu  {} 0 100 {} 0 0 0 0 0 0\ncpu0 1 1\ncpu1 1 1\nctxt 5\n", 700 + busy, 900 + idle);
            tree.put("proc/stat", &text);
            for (pid, command, n) in ticks {
                let text =
                    format!("{pid} ({command}) R 1 1 1 0 -1 4194304 9 9 9 9 {} 50 9 9 20 0", 400 + spent(*n));
                tree.put(&format!("proc/{pid}/stat"), &text);
            }
            CpuTimes::read(tree.path()).unwrap()
        };
        let cpu_times = Some([look(false), look(true)]);
        find(&Options { cpu_times, own_pids, ..tree.options() }, "other work").remove(0)
    }

    #[test]
    fn other_work_is_named_with_its_share() {
        let tree = Tree::new(&[(
            "proc/pressure/cpu",
            "some avg10=97.16 avg60=93.79 avg300=1 total=2\nfull avg10=0.00\n",
        )]);
        let found =
            two_looks(&tree, &[(17, "rustc", 30), (18, "my (odd) name", 21), (19, "init", 0)], vec![]);
        assert_eq!(found.severity, Severity::Bad);
        let is = "1.70 of 2 CPUs are busy with it: 17 rustc 100 %, 18 my (odd) name 70 % (of one CPU); \
                  in the last 10 s tasks waited for a CPU 97.16 % of the time";
        assert_eq!(found.is, is);
        assert!(found.better.is_some() && found.command.unwrap().starts_with("kill -STOP 17 18 before"));
    }

    #[test]
    fn the_testbed_is_no_other_work() {
        let tree = Tree::new(&[]);
        let ticks = [(17, "carmine-osd", 30), (18, "cron", 1)];
        let found = two_looks(&tree, &ticks, vec![17]);
        assert_eq!((found.severity, found.command), (Severity::Ok, None));
        assert!(found.is.starts_with("0.03 of 2 CPUs") && !found.is.contains("carmine-osd"), "{}", found.is);
        assert_eq!(two_looks(&tree, &ticks, vec![]).severity, Severity::Bad);
        assert_eq!(
            two_looks(&tree, &[(17, "carmine-osd", 30), (18, "cc", 4)], vec![17]).severity,
            Severity::Warn
        );
        // Work of processes that ended in between, or that cannot be seen.
        let [mut before, mut after] =
            [CpuTimes::read(tree.path()).unwrap(), CpuTimes::read(tree.path()).unwrap()];
        (before.processes, after.processes) = Default::default();
        (after.busy, after.total) = (before.busy + 20, before.total + 60);
        let found =
            find(&Options { cpu_times: Some([before.clone(), after]), ..tree.options() }, "other work")
                .remove(0);
        assert!(found.severity == Severity::Warn && found.command.unwrap().starts_with("top"));
        // The same moment twice, and none at all.
        let same = Some([before.clone(), before]);
        assert_eq!(
            find(&Options { cpu_times: same, ..tree.options() }, "other work")[0].severity,
            Severity::NotPresent
        );
        assert!(tree.find("other work").is_empty() && CpuTimes::read(&tree.path().join("none")).is_none());
    }

    #[test]
    fn only_virtual_machines_are_stolen_from() {
        let tree = Tree::new(&[
            ("proc/stat", "cpu  10 0 10 60 0 0 0 20 0 0\n"),
            ("proc/cpuinfo", "flags : fpu sse4_2\n"),
        ]);
        assert_eq!(tree.one("steal").severity, Severity::NotPresent);
        tree.put("proc/cpuinfo", "flags\t\t: fpu hypervisor sse4_2\n");
        let found = tree.one("steal");
        assert_eq!(found.severity, Severity::Warn);
        assert!(found.is.starts_with("20.00 %"), "{}", found.is);
        tree.put("proc/stat", "cpu  10 0 10 60 0 0 0 0 0 0\n");
        assert_eq!(tree.one("steal").severity, Severity::Info);
    }
}

#[cfg(test)]
mod placement_tests {
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
        assert_eq!((apart.severity, apart.is.as_str()), (Severity::Ok, "1 interrupts, on CPUs 1"));
        let hit = with_reactors(&tree, "1");
        assert_eq!(hit.severity, Severity::Warn);
        assert!(hit.command.unwrap().contains("in 31;"));
        assert_eq!(Tree::new(&[]).one("interrupts").severity, Severity::NotPresent);
    }

    #[test]
    fn a_queue_for_each_cpu_is_as_it_should_be() {
        let tree = tree();
        tree.put("proc/interrupts", "30: 3 0 q1\n31: 0 7 q2");
        tree.put("sys/block/vda/mq/0/cpu_list", "0, 1");
        assert_eq!(with_reactors(&tree, "0-1").severity, Severity::Warn, "one queue and its other interrupt");
        tree.put("sys/block/vda/mq/1/cpu_list", "1");
        assert_eq!(with_reactors(&tree, "0-1").severity, Severity::Ok);
    }

    fn of(tree: &Tree) -> Finding {
        tree.one("CPU limit (cgroup)")
    }

    #[test]
    fn the_smallest_limit_above_us_rules() {
        assert_eq!(of(&Tree::new(&[])).severity, Severity::NotPresent);
        let tree = Tree::new(&[
            ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(of(&tree).severity, Severity::Ok);
        tree.put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        let found = of(&tree);
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
        assert_eq!(of(&tree).severity, Severity::Ok);
        tree.put("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "100000\n");
        tree.put("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "50000\n");
        let found = of(&tree);
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
        assert!(of(&tree).is.starts_with("0.50 cores, by /sys/fs/cgroup/cpu.max"));
        tree.put("proc/self/cgroup", "0::/../elsewhere\n");
        assert!(of(&tree).is.starts_with("0.50 cores"));
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
