//! One finding, and the sources that findings quote.

use serde::{Deserialize, Serialize};

/// A Ceph cluster of 68 nodes with 10 NVMe drives each, Quincy.
pub(crate) const TEBIBYTE: &str =
    "ceph.io 2024, a Ceph cluster at 1 TiB/s (Quincy 17.2.7, 68 nodes, 10 NVMe each)";
/// One OSD, and sixty OSDs, with 2 to 16 cores each, Pacific.
pub(crate) const CPU_SCALING: &str = "ceph.io 2022, Ceph OSD CPU scaling (Pacific 16.2.9, EPYC 7742)";
/// Placement of Crimson's reactors.
pub(crate) const CRIMSON_CORES: &str = "ceph.io 2025, Crimson CPU core allocation, part one (2 x Xeon 8276M)";
/// Three nodes that run both OSDs and virtual machines.
pub(crate) const HYPERCONVERGED: &str = "a hyperconverged builder's CPU-set study (3 x EPYC 7543P)";
/// Settings of a small cluster, one by one.
pub(crate) const TUNING_GUIDE: &str = "a tuning guide of a small cluster, measured with rados bench";
/// Linux's own documentation.
pub(crate) const KERNEL: &str = "Linux kernel documentation";
/// The guarantees of drives.
pub(crate) const NVME: &str = "NVM Express base specification";
/// The speed of links: transfers per second, lanes and encoding.
pub(crate) const PCIE: &str = "PCI Express base specification";
/// Measured with this program.
pub(crate) const OWN: &str = "Carmine's own measurements (benches/notebook)";

carmine_types::words! {
    /// How much a finding matters to a measurement.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Severity: "severity" {
        /// This machine does not have it, or does not show it: nothing is known.
        NotPresent = "not_present",
        /// As it should be.
        Ok = "ok",
        /// Worth knowing; neither good nor bad.
        Info = "info",
        /// Costs something, or makes figures unsteady.
        Warn = "warn",
        /// Spoils a measurement.
        Bad = "bad",
    }
}

/// A finding about one topic, on one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The topic, such as `CPU governor`.
    pub topic: String,
    /// The drive, interface or CPU; none for the whole machine.
    pub subject: Option<String>,
    pub severity: Severity,
    /// The present state.
    pub is: String,
    /// A better state; none if there is none.
    pub better: Option<String>,
    /// The known cost of the difference; none if nobody is known to have measured it.
    pub cost: Option<String>,
    /// The source of that figure or statement.
    pub source: Option<String>,
    /// The command that changes it, to be run as root unless it says otherwise.
    pub command: Option<String>,
}

/// Beginnings of findings, one function for each severity.
macro_rules! of_severity {
    ($($(#[$doc:meta])* $name:ident = $severity:ident,)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(is: impl Into<String>) -> Finding {
            Finding::new(Severity::$severity, is)
        }
    )*};
}
of_severity! {
    /// The machine has no such thing: the text says which file or device is missing.
    absent = NotPresent,
    ok = Ok,
    info = Info,
    warn = Warn,
    bad = Bad,
}

impl Finding {
    /// [`crate::examine`] adds the topic.
    fn new(severity: Severity, is: impl Into<String>) -> Finding {
        let (topic, is) = (String::new(), is.into());
        Finding { topic, subject: None, severity, is, better: None, cost: None, source: None, command: None }
    }

    pub(crate) fn on(mut self, subject: impl Into<String>) -> Finding {
        self.subject = Some(subject.into());
        self
    }

    pub(crate) fn better(mut self, better: impl Into<String>) -> Finding {
        self.better = Some(better.into());
        self
    }

    pub(crate) fn cost(mut self, cost: impl Into<String>, source: &str) -> Finding {
        self.cost = Some(cost.into());
        self.source = Some(source.to_owned());
        self
    }

    pub(crate) fn command(mut self, command: impl Into<String>) -> Finding {
        self.command = Some(command.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_survive_json() {
        let finding = warn("b").on("c").better("d").cost("e", "f").command("g");
        let json = serde_json::to_string(&finding).unwrap();
        assert!(json.contains("\"severity\":\"warn\""), "{json}");
        assert_eq!(serde_json::from_str::<Finding>(&json).unwrap(), finding);
        assert!(Severity::Bad > Severity::Warn && Severity::Ok > Severity::NotPresent);
    }
}
