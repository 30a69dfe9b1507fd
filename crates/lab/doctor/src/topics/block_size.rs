//! The smallest unit of each drive.

use crate::Finding;
use crate::machine::{Device, Machine};
use crate::source::NVME;

const TOPIC: &str = "logical block size";
/// What the store writes at least.
const BLOCK_BYTES: i64 = 4096;

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let found = machine.drives.iter().map(|drive| judge(machine, drive).on(&drive.name)).collect();
    Finding::or_absent(found, TOPIC, "no drive")
}

fn judge(machine: &Machine<'_>, drive: &Device) -> Finding {
    let bytes = |name: &str| machine.host.number(format!("{}/queue/{name}", drive.dir));
    let Some(logical) = bytes("logical_block_size") else {
        return Finding::absent(TOPIC, "not shown");
    };
    let physical = bytes("physical_block_size").unwrap_or(logical);
    let is = format!("{logical} bytes, {physical} inside the drive");
    if logical > BLOCK_BYTES {
        return Finding::bad(TOPIC, is)
            .better(format!("at most {BLOCK_BYTES} bytes: the store cannot use this drive"));
    }
    if logical == BLOCK_BYTES || !drive.name.starts_with("nvme") {
        return Finding::ok(TOPIC, is);
    }
    Finding::info(TOPIC, is)
        .better(format!(
            "{BLOCK_BYTES} bytes where the drive offers it: less work in its own tables; this erases it"
        ))
        .cost("the drive tells it: `Relative Performance` of each of its formats", NVME)
        .command(format!("nvme id-ns -H /dev/{0}; nvme format --lbaf=N /dev/{0}", drive.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn sizes() {
        let of = |drive: &str, bytes| {
            Tree::new(&[(&format!("sys/block/{drive}/queue/logical_block_size"), bytes)])
                .one(examine)
                .severity
        };
        assert_eq!(of("nvme0n1", "4096"), Severity::Ok);
        assert_eq!(of("nvme0n1", "512"), Severity::Info);
        assert_eq!(of("vda", "512"), Severity::Ok);
        assert_eq!(of("vda", "16384"), Severity::Bad);
    }
}
