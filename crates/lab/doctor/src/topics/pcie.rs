//! Width and speed of the PCIe link of each drive and interface.

use crate::Finding;
use crate::machine::{Device, Machine};
use crate::source::PCIE;

const TOPIC: &str = "PCIe link";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let devices = machine.drives.iter().chain(&machine.nics);
    let found = devices.filter_map(|device| Some(judge(machine, device)?.on(&device.name))).collect();
    Finding::or_absent(found, TOPIC, "no device tells its link (virtual, or not PCIe)")
}

fn judge(machine: &Machine<'_>, device: &Device) -> Option<Finding> {
    let read = |name: &str| machine.host.text(device.hardware(&machine.host, name)?);
    let (speed, fastest) = (read("current_link_speed")?, read("max_link_speed")?);
    let (width, widest) = (read("current_link_width")?, read("max_link_width")?);
    // Links of virtual devices read "Unknown".
    gigatransfers(&speed)?;
    let is = format!("{speed} x{width}");
    let slower = gigatransfers(&speed) < gigatransfers(&fastest) || width != widest;
    Some(if slower {
        Finding::warn(TOPIC, format!("{is}; the device can {fastest} x{widest}"))
            .better("a slot with all its lanes; some devices also slow their link down while idle: look again under load")
            .cost(loss(&speed, &width, &fastest, &widest), PCIE)
            .command(format!("lspci -vv -s {} shows slot and link; another slot, or its speed in the firmware", slot(machine, device)))
    } else {
        Finding::ok(TOPIC, is)
    })
}

/// The bus address, such as `0000:01:00.0`.
fn slot(machine: &Machine<'_>, device: &Device) -> String {
    let folder = device.hardware(&machine.host, "current_link_speed");
    let name = folder.as_deref().and_then(std::path::Path::parent).and_then(std::path::Path::file_name);
    name.map_or_else(|| device.name.clone(), |name| name.to_string_lossy().into_owned())
}

fn loss(speed: &str, width: &str, fastest: &str, widest: &str) -> String {
    match gigabytes(speed, width).zip(gigabytes(fastest, widest)) {
        Some((is, could)) => format!("at most {is:.1} instead of {could:.1} GB/s"),
        None => "the link's share of the device's speed".into(),
    }
}

/// What a link carries in a second: up to 5 GT/s 8 bits take 10, above 128 take 130.
fn gigabytes(speed: &str, width: &str) -> Option<f64> {
    let (rate, lanes) = (gigatransfers(speed)?, width.trim().parse::<f64>().ok()?);
    let encoding = if rate > 5.0 { 128.0 / 130.0 } else { 0.8 };
    Some(rate * lanes * encoding / 8.0)
}

/// `16.0 GT/s PCIe` as 16.0.
fn gigatransfers(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn narrow_links() {
        let of = |speed: &str, width: &str| {
            let dir = "sys/block/nvme0n1/device/device";
            let tree = Tree::new(&[]);
            tree.put(&format!("{dir}/current_link_speed"), speed);
            tree.put(&format!("{dir}/max_link_speed"), "16.0 GT/s PCIe");
            tree.put(&format!("{dir}/current_link_width"), width);
            tree.put(&format!("{dir}/max_link_width"), "4");
            // The class device that `device` links to is inside the hardware's folder.
            std::fs::rename(tree.path().join(dir), tree.path().join("pci")).unwrap();
            std::fs::create_dir_all(tree.path().join("pci/nvme0")).unwrap();
            let link = tree.path().join("sys/block/nvme0n1/device");
            std::fs::remove_dir(&link).unwrap();
            std::os::unix::fs::symlink("../../../pci/nvme0", link).unwrap();
            tree.one(examine)
        };
        assert_eq!(of("16.0 GT/s PCIe", "4").severity, Severity::Ok);
        let narrow = of("16.0 GT/s PCIe", "2");
        assert_eq!(narrow.severity, Severity::Warn);
        assert_eq!(narrow.cost.as_deref(), Some("at most 3.9 instead of 7.9 GB/s"));
        assert_eq!(of("8.0 GT/s PCIe", "4").severity, Severity::Warn);
        assert_eq!(of("Unknown", "4").severity, Severity::NotPresent);
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
    }
}
