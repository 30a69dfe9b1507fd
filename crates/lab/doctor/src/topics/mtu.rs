//! Frame size of each network interface.

use crate::Finding;
use crate::machine::{Device, Machine};
use crate::source::TUNING_GUIDE;

const TOPIC: &str = "MTU";
/// Frames of this size or more are called jumbo.
const JUMBO_BYTES: i64 = 9_000;

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let up = machine.nics.iter().filter(|nic| {
        machine.host.text(format!("{}/operstate", nic.dir)).is_none_or(|state| state != "down")
    });
    let found = up.filter_map(|nic| Some(judge(machine, nic)?.on(&nic.name))).collect();
    Finding::or_absent(found, TOPIC, "no interface is up; loopback carries 64 KiB frames")
}

fn judge(machine: &Machine<'_>, nic: &Device) -> Option<Finding> {
    let mtu = machine.host.number(format!("{}/mtu", nic.dir))?;
    let speed = machine.host.number(format!("{}/speed", nic.dir)).filter(|mbit| *mbit > 0);
    let is = format!("{mtu} bytes{}", speed.map_or(String::new(), |mbit| format!(", {mbit} Mbit/s")));
    Some(if mtu >= JUMBO_BYTES {
        Finding::ok(TOPIC, is)
    } else {
        Finding::info(TOPIC, format!("{is}; a testbed on one machine does not use it"))
            .better(format!("{JUMBO_BYTES} bytes on both ends and the switch, once data leaves the machine"))
            .cost("a larger MTU helped; no figure of its own", TUNING_GUIDE)
            .command(format!("ip link set {} mtu {JUMBO_BYTES}", nic.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

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
        let found = tree.one(examine);
        assert_eq!(found.severity, Severity::Info);
        assert!(found.is.starts_with("1500 bytes, 25000 Mbit/s"));
        tree.put("sys/class/net/eth0/mtu", "9000");
        assert_eq!(tree.one(examine).severity, Severity::Ok);
    }
}
