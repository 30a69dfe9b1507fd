//! Profile of the daemon `tuned`.

use crate::Finding;
use crate::machine::Machine;
use crate::source::CPU_SCALING;

const TOPIC: &str = "tuned profile";
/// Profiles that keep CPUs awake and fast.
const FITTING: [&str; 3] = ["network-latency", "latency-performance", "network-throughput"];

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let finding = match machine.host.text("etc/tuned/active_profile") {
        None => Finding::absent(TOPIC, "tuned is not installed"),
        Some(profile) if FITTING.iter().any(|fit| profile.split_whitespace().any(|p| p == *fit)) => {
            Finding::ok(TOPIC, profile)
        }
        Some(profile) => {
            let is = if profile.is_empty() { "none is active".to_owned() } else { profile };
            Finding::warn(TOPIC, is)
                .better("network-latency")
                .cost("the published core-scaling figures were taken with it", CPU_SCALING)
                .command("tuned-adm profile network-latency")
        }
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn profiles() {
        let of = |text| Tree::new(&[("etc/tuned/active_profile", text)]).one(examine).severity;
        assert_eq!(of("network-latency\n"), Severity::Ok);
        assert_eq!((of("balanced\n"), of("")), (Severity::Warn, Severity::Warn));
        assert_eq!(Tree::new(&[]).one(examine).severity, Severity::NotPresent);
    }
}
