//! Time that a hypervisor gave to others.

use crate::Finding;
use crate::machine::Machine;

const TOPIC: &str = "steal";
/// More of all CPU time since boot than this shows in measurements.
const STEAL_PERCENT_MAX: f64 = 1.0;

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let stat = machine.host.text("proc/stat").unwrap_or_default();
    let times: Vec<f64> = stat
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .map(|rest| rest.split_whitespace().filter_map(|word| word.parse().ok()).collect())
        .unwrap_or_default();
    if !machine.is_virtual() {
        return vec![Finding::absent(TOPIC, "not a virtual machine")];
    }
    // user nice system idle iowait irq softirq steal; guest time is counted in user already.
    let (Some(steal), all) = (times.get(7), times.iter().take(8).sum::<f64>()) else {
        return vec![Finding::absent(TOPIC, "not shown")];
    };
    let percent = 100.0 * steal / all.max(1.0);
    let is = format!("{percent:.2} % of all CPU time since boot, in a virtual machine");
    vec![if percent > STEAL_PERCENT_MAX {
        Finding::warn(TOPIC, is)
            .better("a host that is not shared: steal differs from minute to minute, figures with it")
    } else {
        Finding::info(TOPIC, format!("{is}; its neighbours can change that"))
            .better("bare metal for figures to publish")
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn only_virtual_machines_are_stolen_from() {
        let tree = Tree::new(&[
            ("proc/stat", "cpu  10 0 10 60 0 0 0 20 0 0\n"),
            ("proc/cpuinfo", "flags : fpu sse4_2\n"),
        ]);
        assert_eq!(tree.one(examine).severity, Severity::NotPresent);
        tree.put("proc/cpuinfo", "flags\t\t: fpu hypervisor sse4_2\n");
        let found = tree.one(examine);
        assert_eq!(found.severity, Severity::Warn);
        assert!(found.is.starts_with("20.00 %"), "{}", found.is);
        tree.put("proc/stat", "cpu  10 0 10 60 0 0 0 0 0 0\n");
        assert_eq!(tree.one(examine).severity, Severity::Info);
    }
}
