//! What is not worth touching.

use crate::Finding;
use crate::machine::Machine;
use crate::source::TUNING_GUIDE;

const TOPIC: &str = "TCP tunables";
/// Kernel defaults of buffer sizes differ with memory; these do not.
const SETTINGS: [(&str, &str); 3] = [("tcp_low_latency", "0"), ("tcp_sack", "1"), ("tcp_timestamps", "1")];

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let dir = "proc/sys/net/ipv4";
    let Some(congestion) = machine.host.text(format!("{dir}/tcp_congestion_control")) else {
        return vec![Finding::absent(TOPIC, "not shown")];
    };
    let touched: Vec<String> = SETTINGS
        .iter()
        .filter_map(|(name, default)| {
            let value = machine.host.text(format!("{dir}/{name}"))?;
            (value != *default).then(|| format!("{name} = {value}"))
        })
        .collect();
    let finding = if touched.is_empty() {
        Finding::info(TOPIC, format!("{congestion}, nothing changed: leave it so"))
    } else {
        Finding::info(TOPIC, format!("changed by hand: {}", touched.join(", ")))
            .better("the kernel's defaults: old tunings are the first thing to remove")
    };
    vec![finding.cost("not worth touching: no effect that could be measured", TUNING_GUIDE)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn old_tunings_are_named() {
        let tree = Tree::new(&[("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n")]);
        assert!(tree.one(examine).better.is_none());
        tree.put("proc/sys/net/ipv4/tcp_timestamps", "0\n");
        let found = tree.one(examine);
        assert!(found.is.contains("tcp_timestamps = 0") && found.better.is_some());
    }
}
