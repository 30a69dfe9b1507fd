//! Several paths to one drive.

use crate::Finding;
use crate::machine::Machine;

const TOPIC: &str = "multipath";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let mut found = mapped(machine);
    let parameter = machine.host.text("sys/module/nvme_core/parameters/multipath");
    if parameter.as_deref() == Some("Y") && machine.drives.iter().any(|d| d.name.starts_with("nvme")) {
        found.push(
            Finding::info(TOPIC, "the NVMe driver's own multipath is on: one more layer for each request")
                .better("off, if no drive has two paths")
                .command("add nvme_core.multipath=N to the kernel's command line; reboot"),
        );
    }
    Finding::or_absent(found, TOPIC, "no drive is used through it")
}

/// Drives that device-mapper's multipath holds: it would be measured with them.
fn mapped(machine: &Machine<'_>) -> Vec<Finding> {
    let held = machine.drives.iter().filter_map(|drive| {
        let holders = machine.host.list(format!("{}/holders", drive.dir));
        let map = holders.into_iter().find(|holder| {
            let uuid = machine.host.text(format!("sys/block/{holder}/dm/uuid"));
            uuid.is_some_and(|uuid| uuid.starts_with("mpath-"))
        })?;
        Some(
            Finding::warn(TOPIC, format!("held by the multipath device {map}"))
                .on(&drive.name)
                .better("the drive itself: multipathd takes local drives unless told not to")
                .command(format!("multipath -f {map}; then a blacklist in /etc/multipath.conf")),
        )
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn held_drives_are_named() {
        let tree = Tree::new(&[("sys/block/nvme0n1/size", "1")]);
        assert_eq!(tree.one(examine).severity, Severity::NotPresent);
        tree.put("sys/block/nvme0n1/holders/dm-3/dev", "253:3");
        tree.put("sys/block/dm-3/dm/uuid", "mpath-eui.0001\n");
        let found = tree.one(examine);
        assert_eq!((found.severity, found.subject.as_deref()), (Severity::Warn, Some("nvme0n1")));
        tree.put("sys/block/dm-3/dm/uuid", "LVM-abc");
        tree.put("sys/module/nvme_core/parameters/multipath", "Y");
        assert_eq!(tree.one(examine).severity, Severity::Info);
    }
}
