//! Two threads on one core.

use crate::Finding;
use crate::machine::Machine;

const TOPIC: &str = "SMT";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let finding = match machine.host.number("sys/devices/system/cpu/smt/active") {
        None => Finding::absent(TOPIC, "the kernel has no switch for it"),
        Some(0) => {
            let control = machine.host.text("sys/devices/system/cpu/smt/control").unwrap_or_default();
            Finding::info(TOPIC, format!("off ({control}): a CPU is a core"))
        }
        Some(_) => Finding::info(TOPIC, "on: a CPU is half a core when its sibling works")
            .better(
                "reactors on different cores, or no load on their siblings; \
                 `carmine plan` marks siblings, the plan `placement` measures it",
            )
            .command("echo off > /sys/devices/system/cpu/smt/control"),
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn on_off_absent() {
        let active = "sys/devices/system/cpu/smt/active";
        assert!(Tree::new(&[(active, "1\n")]).one(examine).is.starts_with("on"));
        assert!(Tree::new(&[(active, "0\n")]).one(examine).is.starts_with("off"));
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
    }
}
