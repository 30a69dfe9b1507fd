//! Which CPUs take the interrupts of drives and network interfaces, and whether reactors sit there.

use carmine_topology::CpuList;

use crate::Finding;
use crate::machine::{Device, Machine};

const TOPIC: &str = "interrupts";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let devices = machine.drives.iter().chain(&machine.nics);
    let found = devices.map(|device| judge(machine, device).on(&device.name)).collect();
    Finding::or_absent(found, TOPIC, "no drive and no interface with hardware")
}

/// An interrupt that has come at least once, and the CPUs that take it.
struct Line {
    irq: String,
    cpus: CpuList,
}

fn judge(machine: &Machine<'_>, device: &Device) -> Finding {
    let lines = lines(machine, device);
    if lines.is_empty() {
        return Finding::absent(TOPIC, "no interrupt of its own has come yet");
    }
    let cpus = lines.iter().fold(CpuList::default(), |all, line| all.union(&line.cpus));
    let is = format!("{} interrupts, on CPUs {cpus}", lines.len());
    let reactors = &machine.options.reactor_cpus;
    if has_queue_for_each_cpu(machine, device) {
        return Finding::ok(
            TOPIC,
            format!("{is}: a queue for each CPU, completions come where they were asked for"),
        );
    }
    let hit = cpus.intersection(reactors);
    if hit.is_empty() {
        return Finding::ok(TOPIC, is);
    }
    let on_reactors = lines.iter().filter(|line| !line.cpus.intersection(reactors).is_empty());
    let irqs: Vec<&str> = on_reactors.map(|line| line.irq.as_str()).collect();
    Finding::warn(TOPIC, format!("{is}; reactors sit on {hit} and lose that time"))
        .better("CPUs without reactors, or reactors elsewhere; it shows as irq and softirq of that CPU in `carmine top`")
        .command(format!(
            "systemctl stop irqbalance; for i in {}; do echo CPU > /proc/irq/$i/smp_affinity_list; done",
            irqs.join(" ")
        ))
}

/// A drive with as many hardware queues as there are CPUs.
fn has_queue_for_each_cpu(machine: &Machine<'_>, device: &Device) -> bool {
    let queues = machine.host.list(format!("{}/mq", device.dir)).len();
    machine.topology.as_ref().is_some_and(|topology| queues >= topology.all().len())
}

fn lines(machine: &Machine<'_>, device: &Device) -> Vec<Line> {
    let interrupts = machine.host.text("proc/interrupts").unwrap_or_default();
    let Some(folder) = device.hardware(&machine.host, "msi_irqs") else { return Vec::new() };
    let irqs = machine.host.list(&folder).into_iter().filter(|irq| has_come(&interrupts, irq));
    let lines = irqs.filter_map(|irq| {
        let file = |name: &str| machine.host.text(format!("proc/irq/{irq}/{name}"));
        let cpus = file("effective_affinity_list").filter(|cpus| !cpus.is_empty());
        let cpus = cpus.or_else(|| file("smp_affinity_list"))?.parse().ok()?;
        Some(Line { irq, cpus })
    });
    lines.collect()
}

/// True if `/proc/interrupts` counts more than zero on some CPU.
fn has_come(interrupts: &str, irq: &str) -> bool {
    let line = interrupts.lines().find_map(|line| line.trim_start().strip_prefix(irq)?.strip_prefix(':'));
    let counts = line.unwrap_or_default().split_whitespace().map_while(|word| word.parse::<u64>().ok());
    counts.sum::<u64>() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use crate::{Options, Severity};

    const INTERRUPTS: &str = "      CPU0 CPU1\n 30:  0  0  PCI-MSIX config\n 31:  0  7  PCI-MSIX virtio1-req.0\n\
                              131: 5 5 other\nLOC: 5 5 timer";

    fn tree() -> Tree {
        Tree::new(&[
            ("proc/interrupts", INTERRUPTS),
            ("sys/devices/system/cpu/online", "0-1"),
            ("sys/block/vda/device/msi_irqs/30", "msix"),
            ("sys/block/vda/device/msi_irqs/31", "msix"),
            ("proc/irq/30/effective_affinity_list", "0"),
            ("proc/irq/31/effective_affinity_list", "1"),
        ])
    }

    fn with_reactors(tree: &Tree, cpus: &str) -> Finding {
        let options = Options { reactor_cpus: cpus.parse().unwrap(), ..tree.options() };
        examine(&Machine::look(&options)).remove(0)
    }

    #[test]
    fn only_interrupts_that_come_count() {
        let tree = tree();
        let apart = with_reactors(&tree, "0");
        assert_eq!((apart.severity, apart.is.as_str()), (Severity::Ok, "1 interrupts, on CPUs 1"));
        let hit = with_reactors(&tree, "1");
        assert_eq!(hit.severity, Severity::Warn);
        assert!(hit.command.unwrap().contains("in 31;"));
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
    }

    #[test]
    fn a_queue_for_each_cpu_is_as_it_should_be() {
        let tree = tree();
        tree.put("proc/interrupts", "30: 3 0 q1\n31: 0 7 q2");
        tree.put("sys/block/vda/mq/0/cpu_list", "0, 1");
        assert_eq!(with_reactors(&tree, "0-1").severity, Severity::Warn, "one queue and its other interrupt");
        tree.put("sys/block/vda/mq/1/cpu_list", "1");
        assert_eq!(with_reactors(&tree, "0-1").severity, Severity::Ok);
    }
}
