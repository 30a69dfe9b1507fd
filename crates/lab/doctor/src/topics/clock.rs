//! Where time comes from.

use crate::Finding;
use crate::machine::Machine;
use crate::source::KERNEL;

const TOPIC: &str = "clock source";
/// Read in user space, in some ten nanoseconds.
const FAST: [&str; 3] = ["tsc", "arch_sys_counter", "kvm-clock"];

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let dir = "sys/devices/system/clocksource/clocksource0";
    let finding = match machine.host.text(format!("{dir}/current_clocksource")) {
        None => Finding::absent(TOPIC, "not shown"),
        Some(source) if FAST.contains(&source.as_str()) => Finding::ok(TOPIC, source),
        Some(source) => {
            let others = machine.host.text(format!("{dir}/available_clocksource")).unwrap_or_default();
            let better = FAST.iter().find(|fast| others.split_whitespace().any(|other| other == **fast));
            let finding =
                Finding::warn(TOPIC, format!("{source}: every look at the clock enters the kernel"))
                    .cost("a system call for each time stamp, several for each operation", KERNEL);
            match better {
                Some(fast) => {
                    finding.better(*fast).command(format!("echo {fast} > /{dir}/current_clocksource"))
                }
                None => finding.better("tsc, which the kernel found unstable on this machine: see its log"),
            }
        }
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn sources() {
        let current = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        assert_eq!(Tree::new(&[(current, "tsc\n")]).one(examine).severity, Severity::Ok);
        let tree = Tree::new(&[(current, "hpet\n")]);
        assert!(tree.one(examine).command.is_none());
        tree.put("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n");
        assert!(tree.one(examine).command.unwrap().starts_with("echo tsc "));
    }
}
