//! Protections of the kernel against leaks of the processor.

use crate::Finding;
use crate::machine::Machine;
use crate::source::KERNEL;

const TOPIC: &str = "kernel mitigations";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let dir = "sys/devices/system/cpu/vulnerabilities";
    let leaks = machine.host.list(dir);
    if leaks.is_empty() {
        return vec![Finding::absent(TOPIC, "the kernel lists none")];
    }
    let states: Vec<(String, String)> = leaks
        .into_iter()
        .filter_map(|leak| Some((machine.host.text(format!("{dir}/{leak}"))?, leak)))
        .collect();
    let with = |prefix: &str| -> Vec<&str> {
        states.iter().filter(|(state, _)| state.starts_with(prefix)).map(|(_, leak)| leak.as_str()).collect()
    };
    let (active, open) = (with("Mitigation"), with("Vulnerable"));
    if active.is_empty() && open.is_empty() {
        return vec![Finding::ok(TOPIC, "none is needed on this processor")];
    }
    let none = |list: Vec<&str>| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    vec![
        Finding::info(TOPIC, format!("active: {}; open: {}", none(active), none(open)))
            .better(
                "the same on every machine that is compared; switched off only where nobody else's code runs",
            )
            .cost(
                "system calls and interrupts cost more with them; how much depends on the processor",
                KERNEL,
            )
            .command("add mitigations=off to the kernel's command line; reboot"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn active_and_open() {
        let dir = "sys/devices/system/cpu/vulnerabilities";
        let tree = Tree::new(&[(&format!("{dir}/meltdown"), "Not affected\n")]);
        assert_eq!(tree.one(examine).severity, Severity::Ok);
        tree.put(&format!("{dir}/spectre_v2"), "Mitigation: Retpolines\n");
        tree.put(&format!("{dir}/mds"), "Vulnerable: no microcode\n");
        assert_eq!(tree.one(examine).is, "active: spectre_v2; open: mds");
    }
}
