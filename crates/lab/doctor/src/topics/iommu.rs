//! Translation of the addresses that devices use.

use crate::Finding;
use crate::machine::Machine;
use crate::source::TEBIBYTE;

const TOPIC: &str = "IOMMU";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let dir = "sys/kernel/iommu_groups";
    let groups = machine.host.list(dir);
    if groups.is_empty() {
        return vec![Finding::absent(TOPIC, "off, or this machine has none")];
    }
    let kinds: Vec<String> =
        groups.iter().filter_map(|group| machine.host.text(format!("{dir}/{group}/type"))).collect();
    let translated = kinds.iter().filter(|kind| kind.starts_with("DMA")).count();
    if !kinds.is_empty() && translated == 0 {
        return vec![Finding::ok(TOPIC, format!("{} groups, all passed through (identity)", groups.len()))];
    }
    let is = format!("{translated} of {} groups translate every transfer", groups.len());
    vec![
        Finding::warn(TOPIC, is)
            .better("iommu=pt on the kernel's command line, or the IOMMU switched off in the firmware")
            .cost("77 % of the CPU time went into one spinlock of it on nodes with many drives", TEBIBYTE)
            .command("grubby --update-kernel=ALL --args=iommu=pt (Debian: GRUB_CMDLINE_LINUX, update-grub); reboot"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn modes() {
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
        let tree = Tree::new(&[("sys/kernel/iommu_groups/0/type", "identity\n")]);
        assert_eq!(tree.one(examine).severity, Severity::Ok);
        tree.put("sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
        let found = tree.one(examine);
        assert_eq!(found.severity, Severity::Warn);
        assert!(found.is.starts_with("1 of 2") && found.cost.unwrap().contains("77 %"));
    }
}
