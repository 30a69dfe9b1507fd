//! Queues of the NVMe driver without interrupts.

use crate::Finding;
use crate::machine::Machine;

const TOPIC: &str = "poll queues";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let nvme = machine.drives.iter().any(|drive| drive.name.starts_with("nvme"));
    let queues = machine.host.number("sys/module/nvme/parameters/poll_queues").filter(|_| nvme);
    vec![match queues {
        None => Finding::absent(TOPIC, "no NVMe drive"),
        Some(0) => Finding::ok(TOPIC, "none: all queues have interrupts, as Carmine's reactors need them"),
        Some(n) => Finding::info(
            TOPIC,
            format!("{n}; Carmine's reactors take completions by interrupt and use none"),
        )
        .better("0: each poll queue is an interrupt queue less")
        .command("echo options nvme poll_queues=0 > /etc/modprobe.d/nvme.conf; reboot"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn only_nvme_has_them() {
        let tree = Tree::new(&[("sys/module/nvme/parameters/poll_queues", "2"), ("sys/block/vda/size", "1")]);
        assert_eq!(tree.one(examine).severity, Severity::NotPresent);
        tree.put("sys/block/nvme0n1/size", "1");
        assert!(tree.one(examine).is.starts_with("2;"));
        tree.put("sys/module/nvme/parameters/poll_queues", "0");
        assert_eq!(tree.one(examine).severity, Severity::Ok);
    }
}
