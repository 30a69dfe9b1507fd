//! Whether the kernel lets this process use io_uring.

use crate::Finding;
use crate::machine::Machine;
use crate::source::KERNEL;

const TOPIC: &str = "io_uring";
/// DEFER_TASKRUN came with it.
const KERNEL_MIN: (u32, u32) = (6, 1);

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let Some(release) = machine.host.text("proc/sys/kernel/osrelease") else {
        return vec![Finding::absent(TOPIC, "the kernel's version is not shown")];
    };
    let disabled = machine.host.number("proc/sys/kernel/io_uring_disabled").unwrap_or(0);
    let finding = if version(&release).is_some_and(|have| have < KERNEL_MIN) {
        Finding::bad(TOPIC, format!("kernel {release} is too old"))
            .better(format!("Linux {}.{} or later: reactors do not start here", KERNEL_MIN.0, KERNEL_MIN.1))
    } else if disabled != 0 {
        let who = if disabled == 1 { "for all but a group and root" } else { "for everybody" };
        Finding::bad(TOPIC, format!("switched off {who} (kernel.io_uring_disabled = {disabled})"))
            .better("0: reactors do not start without it")
            .cost("the sysctl refuses io_uring_setup", KERNEL)
            .command("sysctl -w kernel.io_uring_disabled=0")
    } else if is_filtered(machine) {
        Finding::warn(
            TOPIC,
            format!("kernel {release} allows it; this process has a seccomp filter, which may not"),
        )
        .better("no filter: containers forbid io_uring by default")
        .command("start the container with --security-opt seccomp=unconfined")
    } else {
        Finding::ok(TOPIC, format!("allowed, kernel {release}"))
    };
    vec![finding]
}

/// `6.12.3-generic` as (6, 12).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn is_filtered(machine: &Machine<'_>) -> bool {
    let status = machine.host.text("proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn allowed_forbidden_old() {
        let tree = Tree::new(&[("proc/sys/kernel/osrelease", "6.12.3-generic\n")]);
        assert_eq!(tree.one(examine).severity, Severity::Ok);
        tree.put("proc/self/status", "Name:\tx\nSeccomp:\t2\n");
        assert_eq!(tree.one(examine).severity, Severity::Warn);
        tree.put("proc/sys/kernel/io_uring_disabled", "2\n");
        assert!(tree.one(examine).is.contains("everybody"));
        let old = Tree::new(&[("proc/sys/kernel/osrelease", "5.15.0")]);
        assert_eq!(old.one(examine).severity, Severity::Bad);
    }
}
