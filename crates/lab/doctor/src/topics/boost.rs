//! Turbo or boost frequencies.

use crate::Finding;
use crate::machine::Machine;
use crate::source::KERNEL;

const TOPIC: &str = "boost";
/// 1: off.
const INTEL: &str = "sys/devices/system/cpu/intel_pstate/no_turbo";
/// 1: on.
const GENERIC: &str = "sys/devices/system/cpu/cpufreq/boost";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let intel = machine.host.number(INTEL).map(|off| (off == 0, INTEL, "1"));
    let generic = || machine.host.number(GENERIC).map(|on| (on != 0, GENERIC, "0"));
    let finding = match intel.or_else(generic) {
        None => Finding::absent(TOPIC, "no switch for boost frequencies"),
        Some((false, ..)) => Finding::info(TOPIC, "off: figures are lower, and steadier"),
        Some((true, path, off)) => Finding::info(
            TOPIC,
            "on: the clock depends on how many cores work and how warm they are",
        )
        .better("off while figures of different core counts are compared; on for the highest figure")
        .cost(
            "a core's speed varies with the load of its whole package, so results may not be reproducible",
            KERNEL,
        )
        .command(format!("echo {off} > /{path}")),
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn both_switches() {
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
        let intel = Tree::new(&[(INTEL, "0\n")]).one(examine);
        assert!(intel.is.starts_with("on") && intel.command.unwrap().starts_with("echo 1 "));
        assert!(Tree::new(&[(INTEL, "1\n")]).one(examine).is.starts_with("off"));
        let amd = Tree::new(&[(GENERIC, "1\n")]).one(examine);
        assert!(amd.command.unwrap().starts_with("echo 0 "));
    }
}
