//! How deep an idle CPU sleeps, and how long it takes to wake up.

use crate::Finding;
use crate::machine::Machine;
use crate::source::TEBIBYTE;

const TOPIC: &str = "C-states";
/// A wake-up that takes longer shows in the latency of a drive's read.
const EXIT_US_MAX: i64 = 10;

/// An idle state that may be used.
#[derive(Clone, Debug)]
struct State {
    name: String,
    exit_us: i64,
}

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let dir = "sys/devices/system/cpu/cpu0/cpuidle";
    let states = machine.host.list(dir).into_iter().filter(|name| name.starts_with("state"));
    let enabled = states.filter_map(|state| {
        let path = |file: &str| format!("{dir}/{state}/{file}");
        let is_off = machine.host.number(path("disable")).is_some_and(|off| off != 0);
        let exit_us = machine.host.number(path("latency"))?;
        (!is_off).then(|| State { name: machine.host.text(path("name")).unwrap_or_default(), exit_us })
    });
    vec![match enabled.max_by_key(|state| state.exit_us) {
        None => Finding::absent(TOPIC, "no cpuidle: a hypervisor or the firmware decides"),
        Some(deepest) => judge(&deepest),
    }]
}

fn judge(deepest: &State) -> Finding {
    let State { name, exit_us } = deepest;
    let is = format!("the deepest is {name}, from which a CPU wakes up in {exit_us} us");
    if *exit_us <= EXIT_US_MAX {
        return Finding::ok(TOPIC, is);
    }
    Finding::warn(TOPIC, is)
        .better(format!("nothing deeper than {EXIT_US_MAX} us while measuring; or `up --poll poll`, whose reactors never sleep"))
        .cost("10 to 20 % of a cluster's throughput", TEBIBYTE)
        .command(format!("cpupower idle-set -D {EXIT_US_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn the_deepest_enabled_state_counts() {
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
        let dir = "sys/devices/system/cpu/cpu0/cpuidle";
        let tree = Tree::new(&[]);
        for (n, name, latency) in [(0, "POLL", "0"), (1, "C1", "2"), (2, "C6", "133")] {
            tree.put(&format!("{dir}/state{n}/name"), name);
            tree.put(&format!("{dir}/state{n}/latency"), latency);
        }
        let found = tree.one(examine);
        assert_eq!(found.severity, Severity::Warn);
        assert!(found.is.contains("C6") && found.is.contains("133 us"), "{}", found.is);
        tree.put(&format!("{dir}/state2/disable"), "1\n");
        assert_eq!(tree.one(examine).severity, Severity::Ok);
    }
}
