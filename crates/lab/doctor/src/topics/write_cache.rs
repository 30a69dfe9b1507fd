//! Whether a drive acknowledges writes from a cache that a flush must empty.

use crate::Finding;
use crate::machine::{Device, Machine};
use crate::source::KERNEL;

const TOPIC: &str = "write cache";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let found = machine.drives.iter().map(|drive| judge(machine, drive).on(&drive.name)).collect();
    Finding::or_absent(found, TOPIC, "no drive")
}

fn judge(machine: &Machine<'_>, drive: &Device) -> Finding {
    let fua = machine.host.number(format!("{}/queue/fua", drive.dir)) == Some(1);
    match machine.host.text(format!("{}/queue/write_cache", drive.dir)).as_deref() {
        Some("write through") => {
            Finding::ok(TOPIC, "write through: what is acknowledged is durable, a flush costs nothing")
        }
        Some("write back") => {
            let with = if fua { "with FUA" } else { "without FUA" };
            Finding::info(TOPIC, format!("write back, {with}: every commit pays a flush of the drive"))
                .better("drives with power-loss protection, which take flushes for nothing; never set by hand on a drive without it")
                .cost("a flush is answered when all of the drive's cache is on its medium", KERNEL)
                .command(format!(
                    "only if the drive has power-loss protection: echo 'write through' > /{}/queue/write_cache",
                    drive.dir
                ))
        }
        _ => Finding::absent(TOPIC, "not shown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn modes() {
        let of = |text| Tree::new(&[("sys/block/sda/queue/write_cache", text)]).one(examine).severity;
        assert_eq!(of("write through\n"), Severity::Ok);
        assert_eq!(of("write back\n"), Severity::Info);
        assert_eq!(of(""), Severity::NotPresent);
    }
}
