//! A limit of CPU time around this process.

use crate::Finding;
use crate::machine::Machine;
use crate::source::{CPU_SCALING, HYPERCONVERGED};

const TOPIC: &str = "CPU limit (cgroup)";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let mounted = machine.host.exists("sys/fs/cgroup/cgroup.controllers");
    let own = machine.host.text("proc/self/cgroup").unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::")).filter(|_| mounted) else {
        return vec![Finding::absent(TOPIC, "no cgroup of version 2 is mounted")];
    };
    // Every group from ours up to the root may have a limit: the smallest rules.
    let mut limits = Vec::new();
    let mut at = path.trim_matches('/');
    loop {
        let dir = format!("sys/fs/cgroup/{at}");
        limits
            .extend(machine.host.text(format!("{dir}/cpu.max")).and_then(|text| Some((cores(&text)?, dir))));
        match at.rsplit_once('/') {
            Some((above, _)) => at = above,
            None if at.is_empty() => break,
            None => at = "",
        }
    }
    vec![match limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
        None => Finding::ok(TOPIC, "none"),
        Some((cores, dir)) => Finding::warn(TOPIC, format!("{cores:.2} cores, by /{dir}/cpu.max"))
            .better("no limit; confine by CPU lists instead (`up --cpus`)")
            .cost(
                "bursts need many cores for moments, so a hard limit hurts more than averages say; random writes were \
                 best without one",
                &format!("{CPU_SCALING}; {HYPERCONVERGED}"),
            )
            .command(format!("echo max > /{dir}/cpu.max")),
    }]
}

/// `200000 100000` as 2.0; `None` for no limit.
fn cores(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next().and_then(|p| p.parse().ok()).unwrap_or(100_000.0);
    Some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn the_smallest_limit_above_us_rules() {
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
        let tree = Tree::new(&[
            ("sys/fs/cgroup/cgroup.controllers", "cpu"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(tree.one(examine).severity, Severity::Ok);
        tree.put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        let found = tree.one(examine);
        assert_eq!(found.severity, Severity::Warn);
        assert!(found.is.starts_with("1.50 cores, by /sys/fs/cgroup/a/"), "{}", found.is);
    }
}
