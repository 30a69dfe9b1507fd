//! Drives and network interfaces: queues, links, caches, block and frame sizes, temperature.

use carmine_topology::Device;

use crate::Finding;
use crate::finding::{KERNEL, NVME, PCIE, TEBIBYTE, TUNING_GUIDE, bad, info, ok, warn};
use crate::machine::Machine;

/// The store writes no less than this.
const BLOCK_BYTES: i64 = 4096;
/// Drivers whose sensors matter here.
const SENSOR_DRIVERS: [&str; 4] = ["nvme", "coretemp", "k10temp", "drivetemp"];
/// Closer than this to its limit, thousandths of a degree, a device soon throttles.
const MARGIN_MC: i64 = 10_000;
/// Where a sensor shows no limit, this counts as warm.
const WARM_MC: i64 = 75_000;
/// Frames of this size or more are called jumbo.
const JUMBO_BYTES: i64 = 9_000;

/// Translation of the addresses that devices use.
pub(super) fn iommu(machine: &Machine<'_>) -> Option<Finding> {
    let dir = "sys/kernel/iommu_groups";
    let groups = machine.list(dir).len();
    let kinds = machine.list(dir).into_iter().filter_map(|group| machine.text(format!("{dir}/{group}/type")));
    let kinds: Vec<String> = kinds.collect();
    let translated = kinds.iter().filter(|kind| kind.starts_with("DMA")).count();
    let found = if !kinds.is_empty() && translated == 0 {
        ok(format!("{groups} groups, all passed through (identity)"))
    } else {
        warn(format!("{translated} of {groups} groups translate every transfer"))
            .better("iommu=pt on the kernel's command line, or the IOMMU switched off in the firmware")
            .cost("one of its spinlocks took 77 % of the CPU time on nodes with many drives", TEBIBYTE)
            .command("grubby --update-kernel=ALL --args=iommu=pt (Debian: GRUB_CMDLINE_LINUX, update-grub); reboot")
    };
    (groups > 0).then_some(found)
}

/// The kernel's I/O scheduler of each drive.
pub(super) fn scheduler(machine: &Machine<'_>, drive: &Device) -> Option<Finding> {
    let choices = machine.queue(drive, "scheduler").unwrap_or_default();
    // Hypervisors also say so about drives that they know nothing about.
    let rotates = machine.queue(drive, "rotational").as_deref() == Some("1") && !machine.is_virtual();
    Some(match super::chosen(&choices).or((choices == "none").then_some("none"))? {
        "none" => ok("none"),
        other if rotates => info(format!("{other}, on a disk that rotates")),
        other => warn(other)
            .better("none: flash gains nothing from sorting, and each request is cheaper")
            .cost("set before measuring; no figure of its own", TUNING_GUIDE)
            .command(format!("echo none > /{}/queue/scheduler", drive.dir())),
    })
}

/// Several paths to one drive: device-mapper's multipath would be measured with the drive.
pub(super) fn multipath(machine: &Machine<'_>) -> Vec<Finding> {
    let held = machine.drives.iter().filter_map(|drive| {
        let holders = machine.list(format!("{}/holders", drive.dir()));
        let map = holders.into_iter().find(|holder| {
            let uuid = machine.text(format!("sys/block/{holder}/dm/uuid"));
            uuid.is_some_and(|uuid| uuid.starts_with("mpath-"))
        })?;
        let found = warn(format!("held by the multipath device {map}"))
            .on(&drive.name)
            .better("the drive itself: multipathd takes local drives unless told not to")
            .command(format!("multipath -f {map}; then a blacklist in /etc/multipath.conf"));
        Some(found)
    });
    let is_on = machine.text("sys/module/nvme_core/parameters/multipath").as_deref() == Some("Y");
    let own = (is_on && has_nvme(machine)).then(|| {
        info("the NVMe driver's own multipath is on: one more layer for each request")
            .better("off, if no drive has two paths")
            .command("add nvme_core.multipath=N to the kernel's command line; reboot")
    });
    held.chain(own).collect()
}

fn has_nvme(machine: &Machine<'_>) -> bool {
    machine.drives.iter().any(|drive| drive.name.starts_with("nvme"))
}

/// Width and speed of the PCIe link of each drive and interface.
pub(super) fn pcie(machine: &Machine<'_>, device: &Device) -> Option<Finding> {
    let file = |name: &str| machine.hardware.file(&device.dir(), name);
    let read = |name: &str| machine.text(file(name)?);
    let (speed, fastest) = (read("current_link_speed")?, read("max_link_speed")?);
    let (width, widest) = (read("current_link_width")?, read("max_link_width")?);
    // Links of virtual devices read "Unknown".
    let rate = gigatransfers(&speed)?;
    let is = format!("{speed} x{width}");
    if gigatransfers(&fastest).is_none_or(|fastest| rate >= fastest) && width == widest {
        return Some(ok(is));
    }
    let loss = gigabytes(&speed, &width).zip(gigabytes(&fastest, &widest));
    let loss = loss.map_or("the link's share of the device's speed".into(), |(is, could)| {
        format!("at most {is:.1} instead of {could:.1} GB/s")
    });
    // The bus address, such as `0000:01:00.0`.
    let folder = file("current_link_speed");
    let slot = folder.as_ref().and_then(|file| file.parent()?.file_name()?.to_str()).unwrap_or(&device.name);
    let found = warn(format!("{is}; the device can {fastest} x{widest}"))
        .better("a slot with all its lanes; some devices also slow their link down while idle: look again under load")
        .cost(loss, PCIE)
        .command(format!("lspci -vv -s {slot} shows slot and link; another slot, or its speed in the firmware"));
    Some(found)
}

/// GB/s of a link: up to 5 GT/s it sends 8 bits as 10, above that 128 as 130.
fn gigabytes(speed: &str, width: &str) -> Option<f64> {
    let (rate, lanes) = (gigatransfers(speed)?, width.trim().parse::<f64>().ok()?);
    let encoding = if rate > 5.0 { 128.0 / 130.0 } else { 0.8 };
    Some(rate * lanes * encoding / 8.0)
}

/// `16.0 GT/s PCIe` as 16.0.
fn gigatransfers(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Whether a drive acknowledges writes from a cache that a flush must empty.
pub(super) fn write_cache(machine: &Machine<'_>, drive: &Device) -> Option<Finding> {
    Some(match machine.queue(drive, "write_cache")?.as_str() {
        "write through" => ok("write through: acknowledged data is durable, a flush costs nothing"),
        "write back" => {
            let with = if machine.queue(drive, "fua").as_deref() == Some("1") { "with" } else { "without" };
            info(format!("write back, {with} FUA: every commit pays a flush of the drive"))
                .better(
                    "drives with power-loss protection, for which flushes cost nothing; never set by hand on a drive \
                     without it",
                )
                .cost("a flush is answered when all of the drive's cache is on its medium", KERNEL)
                .command(format!(
                    "only if the drive has power-loss protection: echo 'write through' > /{}/queue/write_cache",
                    drive.dir()
                ))
        }
        _ => return None,
    })
}

/// The smallest unit of each drive.
pub(super) fn block_size(machine: &Machine<'_>, drive: &Device) -> Option<Finding> {
    let bytes = |name: &str| machine.queue(drive, name)?.parse::<i64>().ok();
    let logical = bytes("logical_block_size")?;
    let is = format!("{logical} bytes, {} inside the drive", bytes("physical_block_size").unwrap_or(logical));
    Some(if logical > BLOCK_BYTES {
        bad(is).better(format!("at most {BLOCK_BYTES} bytes: the store cannot use this drive"))
    } else if logical == BLOCK_BYTES || !drive.name.starts_with("nvme") {
        ok(is)
    } else {
        info(is)
            .better(format!(
                "{BLOCK_BYTES} bytes if the drive offers them: less work in its own tables; this erases it"
            ))
            .cost("the drive shows it as `Relative Performance` of each of its formats", NVME)
            .command(format!("nvme id-ns -H /dev/{0}; nvme format --lbaf=N /dev/{0}", drive.name))
    })
}

/// Queues of the NVMe driver without interrupts.
pub(super) fn poll_queues(machine: &Machine<'_>) -> Option<Finding> {
    Some(match machine.number("sys/module/nvme/parameters/poll_queues").filter(|_| has_nvme(machine))? {
        0 => ok("none: all queues have interrupts, as Carmine's reactors need them"),
        n => info(format!("{n}; Carmine's reactors take completions by interrupt and use none"))
            .better("0: each poll queue takes the place of an interrupt queue")
            .command("echo options nvme poll_queues=0 > /etc/modprobe.d/nvme.conf; reboot"),
    })
}

/// Sensors of CPUs and drives: a device that is too warm slows itself down.
pub(super) fn temperature(machine: &Machine<'_>) -> Vec<Finding> {
    machine.list("sys/class/hwmon").iter().filter_map(|sensor| sensor_of(machine, sensor)).collect()
}

fn sensor_of(machine: &Machine<'_>, sensor: &str) -> Option<Finding> {
    let dir = format!("sys/class/hwmon/{sensor}");
    let driver =
        machine.text(format!("{dir}/name")).filter(|name| SENSOR_DRIVERS.contains(&name.as_str()))?;
    let number = |file: String| machine.number(format!("{dir}/{file}"));
    let inputs = machine.list(&dir).into_iter().filter_map(|file| {
        let channel = file.strip_suffix("_input")?.to_owned();
        let limit = ["max", "crit"].iter().find_map(|kind| number(format!("{channel}_{kind}")));
        Some((number(file)?, limit.filter(|limit| *limit > 0)))
    });
    let (now, limit) = inputs.max_by_key(|(now, _)| *now)?;
    let is = match limit {
        Some(limit) => format!("{} C, its limit is {} C", now / 1000, limit / 1000),
        None => format!("{} C", now / 1000),
    };
    let found = if now < limit.map_or(WARM_MC, |limit| limit - MARGIN_MC) {
        ok(is)
    } else {
        warn(is)
            .better("cooler: devices near their limit slow down, later points more than earlier ones")
            .cost("a drive above its threshold lowers its own performance until it has cooled down", NVME)
            .command(
                "more air; for a drive: nvme get-feature -f 0x10 -H DEVICE shows the thresholds it holds",
            )
    };
    Some(found.on(format!("{driver} ({sensor})")))
}

/// Frame size of each network interface.
pub(super) fn mtu(machine: &Machine<'_>) -> Vec<Finding> {
    let file = |nic: &Device, name: &str| machine.text(format!("{}/{name}", nic.dir()));
    let number = |nic: &Device, name: &str| file(nic, name)?.parse::<i64>().ok();
    let up = machine.nics.iter().filter(|nic| file(nic, "operstate").as_deref() != Some("down"));
    let judge = |nic: &Device| {
        let mtu = number(nic, "mtu")?;
        let speed = number(nic, "speed").filter(|mbit| *mbit > 0);
        let is = format!("{mtu} bytes{}", speed.map_or(String::new(), |mbit| format!(", {mbit} Mbit/s")));
        let found = if mtu >= JUMBO_BYTES {
            ok(is)
        } else {
            info(format!("{is}; a testbed on one machine does not use it"))
                .better(format!(
                    "{JUMBO_BYTES} bytes on both ends and the switch, once data leaves the machine"
                ))
                .cost("a larger MTU helped; no figure of its own", TUNING_GUIDE)
                .command(format!("ip link set {} mtu {JUMBO_BYTES}", nic.name))
        };
        Some(found.on(&nic.name))
    };
    up.filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn iommu_modes() {
        assert_eq!(Tree::new(&[]).one("IOMMU").severity, Severity::NotPresent);
        let tree = Tree::new(&[("sys/kernel/iommu_groups/0/type", "identity\n")]);
        assert_eq!(tree.one("IOMMU").severity, Severity::Ok);
        tree.put("sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
        let found = tree.one("IOMMU");
        assert_eq!(found.severity, Severity::Warn);
        assert!(found.is.starts_with("1 of 2") && found.cost.unwrap().contains("77 %"));
    }

    #[test]
    fn schedulers() {
        let of = |text| Tree::new(&[("sys/block/nvme0n1/queue/scheduler", text)]).one("I/O scheduler");
        assert_eq!(of("[none] mq-deadline kyber\n").severity, Severity::Ok);
        assert_eq!(of("none\n").severity, Severity::Ok);
        let other = of("none [mq-deadline] kyber bfq\n");
        assert_eq!((other.severity, other.is.as_str()), (Severity::Warn, "mq-deadline"));
        assert_eq!(other.command.unwrap(), "echo none > /sys/block/nvme0n1/queue/scheduler");
        let disk = Tree::new(&[
            ("sys/block/sda/queue/scheduler", "none [bfq]"),
            ("sys/block/sda/queue/rotational", "1"),
        ]);
        assert_eq!(disk.one("I/O scheduler").severity, Severity::Info);
        disk.put("proc/cpuinfo", "flags : hypervisor");
        assert_eq!(disk.one("I/O scheduler").severity, Severity::Warn);
        assert_eq!(Tree::new(&[]).one("I/O scheduler").severity, Severity::NotPresent);
    }

    #[test]
    fn held_drives_are_named() {
        let tree = Tree::new(&[("sys/block/nvme0n1/size", "1")]);
        assert_eq!(tree.one("multipath").severity, Severity::NotPresent);
        tree.put("sys/block/nvme0n1/holders/dm-3/dev", "253:3");
        tree.put("sys/block/dm-3/dm/uuid", "mpath-eui.0001\n");
        let found = tree.one("multipath");
        assert_eq!((found.severity, found.subject.as_deref()), (Severity::Warn, Some("nvme0n1")));
        tree.put("sys/block/dm-3/dm/uuid", "LVM-abc");
        tree.put("sys/module/nvme_core/parameters/multipath", "Y");
        assert_eq!(tree.one("multipath").severity, Severity::Info);
    }

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
            tree.one("PCIe link")
        };
        assert_eq!(of("16.0 GT/s PCIe", "4").severity, Severity::Ok);
        let narrow = of("16.0 GT/s PCIe", "2");
        assert_eq!(narrow.severity, Severity::Warn);
        assert_eq!(narrow.cost.as_deref(), Some("at most 3.9 instead of 7.9 GB/s"));
        assert_eq!(of("8.0 GT/s PCIe", "4").severity, Severity::Warn);
        assert_eq!(of("Unknown", "4").severity, Severity::NotPresent);
        assert_eq!(Tree::new(&[]).one("PCIe link").severity, Severity::NotPresent);
    }

    #[test]
    fn write_cache_modes() {
        let of = |text| Tree::new(&[("sys/block/sda/queue/write_cache", text)]).one("write cache").severity;
        assert_eq!(of("write through\n"), Severity::Ok);
        assert_eq!(of("write back\n"), Severity::Info);
        assert_eq!(of(""), Severity::NotPresent);
    }

    #[test]
    fn block_sizes() {
        let of = |drive: &str, bytes| {
            Tree::new(&[(&format!("sys/block/{drive}/queue/logical_block_size"), bytes)])
                .one("logical block size")
                .severity
        };
        assert_eq!(of("nvme0n1", "4096"), Severity::Ok);
        assert_eq!(of("nvme0n1", "512"), Severity::Info);
        assert_eq!(of("vda", "512"), Severity::Ok);
        assert_eq!(of("vda", "16384"), Severity::Bad);
    }

    #[test]
    fn only_nvme_has_them() {
        let tree = Tree::new(&[("sys/module/nvme/parameters/poll_queues", "2"), ("sys/block/vda/size", "1")]);
        assert_eq!(tree.one("poll queues").severity, Severity::NotPresent);
        tree.put("sys/block/nvme0n1/size", "1");
        assert!(tree.one("poll queues").is.starts_with("2;"));
        tree.put("sys/module/nvme/parameters/poll_queues", "0");
        assert_eq!(tree.one("poll queues").severity, Severity::Ok);
    }

    #[test]
    fn warm_and_cool() {
        assert_eq!(Tree::new(&[]).one("temperature").severity, Severity::NotPresent);
        let tree = Tree::new(&[
            ("sys/class/hwmon/hwmon0/name", "nvme\n"),
            ("sys/class/hwmon/hwmon0/temp1_input", "41850\n"),
            ("sys/class/hwmon/hwmon0/temp1_max", "81850\n"),
            ("sys/class/hwmon/hwmon1/name", "acpitz\n"),
            ("sys/class/hwmon/hwmon1/temp1_input", "99000\n"),
        ]);
        assert_eq!(tree.one("temperature").severity, Severity::Ok);
        tree.put("sys/class/hwmon/hwmon0/temp2_input", "78850\n");
        tree.put("sys/class/hwmon/hwmon0/temp2_crit", "84850\n");
        let warm = tree.one("temperature");
        assert_eq!((warm.severity, warm.is.as_str()), (Severity::Warn, "78 C, its limit is 84 C"));
    }

    #[test]
    fn interfaces_that_are_up() {
        let tree = Tree::new(&[
            ("sys/class/net/eth0/device/vendor", "x"),
            ("sys/class/net/eth0/operstate", "up"),
            ("sys/class/net/eth0/mtu", "1500"),
            ("sys/class/net/eth0/speed", "25000"),
            ("sys/class/net/eth1/device/vendor", "x"),
            ("sys/class/net/eth1/operstate", "down"),
            ("sys/class/net/eth1/mtu", "1500"),
        ]);
        let found = tree.one("MTU");
        assert_eq!(found.severity, Severity::Info);
        assert!(found.is.starts_with("1500 bytes, 25000 Mbit/s"));
        tree.put("sys/class/net/eth0/mtu", "9000");
        assert_eq!(tree.one("MTU").severity, Severity::Ok);
    }
}
