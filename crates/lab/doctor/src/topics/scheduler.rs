//! The kernel's I/O scheduler of each drive.

use crate::Finding;
use crate::machine::{Device, Machine};
use crate::source::TUNING_GUIDE;

const TOPIC: &str = "I/O scheduler";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let found = machine.drives.iter().map(|drive| judge(machine, drive).on(&drive.name)).collect();
    Finding::or_absent(found, TOPIC, "no drive")
}

fn judge(machine: &Machine<'_>, drive: &Device) -> Finding {
    let choices = machine.host.text(format!("{}/queue/scheduler", drive.dir)).unwrap_or_default();
    let chosen = choices.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    // Hypervisors say so of drives of which they know nothing.
    let rotates =
        machine.host.number(format!("{}/queue/rotational", drive.dir)) == Some(1) && !machine.is_virtual();
    match chosen.or((choices == "none").then_some("none")) {
        None => Finding::absent(TOPIC, "not shown"),
        Some("none") => Finding::ok(TOPIC, "none"),
        Some(other) if rotates => Finding::info(TOPIC, format!("{other}, on a disk that rotates")),
        Some(other) => Finding::warn(TOPIC, other)
            .better("none: flash has nothing to gain from sorting, and each request is cheaper")
            .cost("set before measuring; no figure of its own", TUNING_GUIDE)
            .command(format!("echo none > /{}/queue/scheduler", drive.dir)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn schedulers() {
        let of = |text| Tree::new(&[("sys/block/nvme0n1/queue/scheduler", text)]).one(examine);
        assert_eq!(of("[none] mq-deadline kyber\n").severity, Severity::Ok);
        assert_eq!(of("none\n").severity, Severity::Ok);
        let other = of("none [mq-deadline] kyber bfq\n");
        assert_eq!((other.severity, other.is.as_str()), (Severity::Warn, "mq-deadline"));
        assert_eq!(other.command.unwrap(), "echo none > /sys/block/nvme0n1/queue/scheduler");
        let disk = Tree::new(&[
            ("sys/block/sda/queue/scheduler", "none [bfq]"),
            ("sys/block/sda/queue/rotational", "1"),
        ]);
        assert_eq!(disk.one(examine).severity, Severity::Info);
        disk.put("proc/cpuinfo", "flags : hypervisor");
        assert_eq!(disk.one(examine).severity, Severity::Warn);
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
    }
}
