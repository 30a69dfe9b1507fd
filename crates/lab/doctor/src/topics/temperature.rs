//! Sensors of CPUs and drives: what is too warm slows itself down.

use crate::Finding;
use crate::machine::Machine;
use crate::source::NVME;

const TOPIC: &str = "temperature";
/// Drivers whose sensors matter here.
const DRIVERS: [&str; 4] = ["nvme", "coretemp", "k10temp", "drivetemp"];
/// Closer than this to its limit, thousandths of a degree, a device soon throttles.
const MARGIN_MC: i64 = 10_000;
/// What is warm where a sensor tells no limit.
const WARM_MC: i64 = 75_000;

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let sensors = machine.host.list("sys/class/hwmon");
    let found = sensors.iter().filter_map(|sensor| judge(machine, sensor)).collect();
    Finding::or_absent(found, TOPIC, "no sensor of a CPU or drive")
}

fn judge(machine: &Machine<'_>, sensor: &str) -> Option<Finding> {
    let dir = format!("sys/class/hwmon/{sensor}");
    let driver = machine.host.text(format!("{dir}/name")).filter(|name| DRIVERS.contains(&name.as_str()))?;
    let number = |file: String| machine.host.number(format!("{dir}/{file}"));
    let inputs = machine.host.list(&dir).into_iter().filter_map(|file| {
        let channel = file.strip_suffix("_input")?.to_owned();
        let limit = ["max", "crit"].iter().find_map(|kind| number(format!("{channel}_{kind}")));
        Some((number(file)?, limit.filter(|limit| *limit > 0)))
    });
    let (now, limit) = inputs.max_by_key(|(now, _)| *now)?;
    let is = match limit {
        Some(limit) => format!("{} C, its limit is {} C", now / 1000, limit / 1000),
        None => format!("{} C", now / 1000),
    };
    let subject = format!("{driver} ({sensor})");
    Some(if now >= limit.map_or(WARM_MC, |limit| limit - MARGIN_MC) {
        Finding::warn(TOPIC, is)
            .on(subject)
            .better("cooler: devices near their limit slow down, later points more than earlier ones")
            .cost("a drive above its threshold lowers its own performance until it has cooled down", NVME)
            .command(
                "more air; for a drive: nvme get-feature -f 0x10 -H DEVICE shows the thresholds it holds",
            )
    } else {
        Finding::ok(TOPIC, is).on(subject)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn warm_and_cool() {
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
        let tree = Tree::new(&[
            ("sys/class/hwmon/hwmon0/name", "nvme\n"),
            ("sys/class/hwmon/hwmon0/temp1_input", "41850\n"),
            ("sys/class/hwmon/hwmon0/temp1_max", "81850\n"),
            ("sys/class/hwmon/hwmon1/name", "acpitz\n"),
            ("sys/class/hwmon/hwmon1/temp1_input", "99000\n"),
        ]);
        assert_eq!(tree.one(examine).severity, Severity::Ok);
        tree.put("sys/class/hwmon/hwmon0/temp2_input", "78850\n");
        tree.put("sys/class/hwmon/hwmon0/temp2_crit", "84850\n");
        let warm = tree.one(examine);
        assert_eq!((warm.severity, warm.is.as_str()), (Severity::Warn, "78 C, its limit is 84 C"));
    }
}
