//! Frequency governor of each CPU.

use std::collections::BTreeMap;

use crate::Finding;
use crate::machine::Machine;
use crate::source::TUNING_GUIDE;

const TOPIC: &str = "CPU governor";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let dir = "sys/devices/system/cpu";
    let mut by_governor: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cpu in machine.host.list(dir) {
        if let Some(governor) = machine.host.text(format!("{dir}/{cpu}/cpufreq/scaling_governor")) {
            by_governor.entry(governor).or_default().push(cpu);
        }
    }
    if by_governor.is_empty() {
        let why = "no cpufreq: firmware or a hypervisor sets the frequency";
        return vec![Finding::absent(TOPIC, why)];
    }
    by_governor.into_iter().map(|(governor, cpus)| judge(&governor, &cpus)).collect()
}

fn judge(governor: &str, cpus: &[String]) -> Finding {
    let is = format!("{governor} on {} CPUs", cpus.len());
    if governor == "performance" {
        return Finding::ok(TOPIC, is);
    }
    Finding::warn(TOPIC, is)
        .better("performance: the clock does not follow the load, so points of one curve are comparable")
        .cost("power management is switched off before measuring; no figure of its own", TUNING_GUIDE)
        .command("cpupower frequency-set -g performance")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn governors() {
        let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-1")]);
        assert_eq!(tree.one(examine).severity, Severity::NotPresent);
        tree.put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
        assert_eq!(tree.one(examine).severity, Severity::Ok);
        tree.put("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
        let found = tree.find(examine);
        assert_eq!((found.len(), found[1].severity), (2, Severity::Warn));
        assert!(found[1].is.contains("powersave on 1") && found[1].command.is_some());
    }
}
