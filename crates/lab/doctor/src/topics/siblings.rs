//! The generator on the other thread of a reactor's core.

use crate::Finding;
use crate::machine::Machine;

const TOPIC: &str = "generator on an OSD's core";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let (reactors, clients) = (&machine.options.reactor_cpus, &machine.options.client_cpus);
    let Some(topology) = machine.topology.as_ref().filter(|_| !reactors.is_empty()) else {
        return vec![Finding::absent(TOPIC, "no testbed was named: give --dir")];
    };
    let same = clients.intersection(reactors);
    if !same.is_empty() {
        return vec![
            Finding::bad(
                TOPIC,
                format!("CPUs {same} run reactors and generators: each is measured with the other"),
            )
            .better("CPUs of their own; per-core figures are left out until then")
            .command("carmine up --client-cpus LIST (or --cpus LIST for the OSDs), as any user"),
        ];
    }
    let core = |cpu: usize| topology.cpu(cpu).map(|c| c.core);
    let busy: Vec<usize> = reactors.iter().filter_map(core).collect();
    let beside: Vec<usize> =
        clients.iter().filter(|cpu| core(*cpu).is_some_and(|core| busy.contains(&core))).collect();
    if beside.is_empty() {
        return vec![Finding::ok(TOPIC, "generators and reactors have cores of their own")];
    }
    vec![
        Finding::warn(TOPIC, format!("generator CPUs {beside:?} are SMT siblings of reactors"))
            .better(
                "generators on other cores: a core is shared by its threads, so that load slows the reactor",
            )
            .command("carmine up --client-cpus LIST, as any user"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::testing::Tree;
    use crate::{Options, Severity};

    /// Four CPUs, two cores: 0 and 2, 1 and 3.
    fn found(reactors: &str, clients: &str) -> Finding {
        let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3")]);
        for cpu in 0..4 {
            let pair = format!("{},{}", cpu % 2, cpu % 2 + 2);
            tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), &pair);
        }
        let list = |text: &str| if text.is_empty() { Default::default() } else { text.parse().unwrap() };
        let options = Options { reactor_cpus: list(reactors), client_cpus: list(clients), ..tree.options() };
        examine(&Machine::look(&options)).remove(0)
    }

    #[test]
    fn siblings_are_known() {
        assert_eq!(found("0", "1").severity, Severity::Ok);
        let beside = found("0", "1-2");
        assert_eq!(beside.severity, Severity::Warn);
        assert!(beside.is.contains("[2]"), "{}", beside.is);
        assert_eq!(found("0-1", "1").severity, Severity::Bad);
        assert_eq!(found("", "1").severity, Severity::NotPresent);
    }
}
