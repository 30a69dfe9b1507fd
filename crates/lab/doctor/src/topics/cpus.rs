//! The speed of CPUs, the depth of their sleep, and the other users of their time.

use std::collections::BTreeMap;

use crate::finding::{CPU_SCALING, KERNEL, TEBIBYTE, TUNING_GUIDE, absent, bad, info, ok, warn};
use crate::machine::Machine;
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
/// Other work that takes this part of all CPUs' time shows in measurements; so does a process that takes this part of one CPU.
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
            .better("performance: the clock rate ignores the load, so points of one curve are comparable")
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
            info("on: the clock rate depends on how many cores work and how warm they are")
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
        return absent("the kernel's counts did not advance between two looks");
    }
    let own = |pid: &u32| machine.options.own_pids.contains(pid);
    let took = |(pid, (command, now)): (&u32, &(String, u64))| {
        // A number may have been given to a new process, which has less. (A thread of the kernel is renamed for each piece of work.)
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
    judge(is).better("nothing else runs while something is measured: wait until it ends, or stop it").command(
        match pids.is_empty() {
            true => "top (in the machine's own PID name space: no busy process is visible here)".into(),
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
