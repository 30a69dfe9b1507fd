//! One finding.

use serde::{Deserialize, Serialize};

/// How much a finding matters to a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// This machine does not have it, or does not show it: nothing is known.
    NotPresent,
    /// As it should be.
    Ok,
    /// Worth knowing; neither good nor bad.
    Info,
    /// Costs something, or makes figures unsteady.
    Warn,
    /// Spoils a measurement.
    Bad,
}

impl Severity {
    /// The word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Severity::NotPresent => "not present",
            Severity::Ok => "ok",
            Severity::Info => "info",
            Severity::Warn => "warn",
            Severity::Bad => "bad",
        }
    }
}

/// What was found about one topic, of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The topic, such as `CPU governor`.
    pub topic: String,
    /// Which drive, interface or CPU; none for the whole machine.
    pub subject: Option<String>,
    pub severity: Severity,
    /// What is.
    pub is: String,
    /// What is better; none if nothing is.
    pub better: Option<String>,
    /// What the difference is known to cost; none if nobody is known to have measured it.
    pub cost: Option<String>,
    /// Who measured or documented that.
    pub source: Option<String>,
    /// The command that changes it, to be run as root if not said otherwise.
    pub command: Option<String>,
}

impl Finding {
    pub(crate) fn new(topic: &str, severity: Severity, is: impl Into<String>) -> Finding {
        Finding {
            topic: topic.to_owned(),
            subject: None,
            severity,
            is: is.into(),
            better: None,
            cost: None,
            source: None,
            command: None,
        }
    }

    /// What was found, or that there is nothing to judge.
    pub(crate) fn or_absent(found: Vec<Finding>, topic: &str, what: &str) -> Vec<Finding> {
        if found.is_empty() { vec![Finding::absent(topic, what)] } else { found }
    }

    pub(crate) fn ok(topic: &str, is: impl Into<String>) -> Finding {
        Finding::new(topic, Severity::Ok, is)
    }

    pub(crate) fn info(topic: &str, is: impl Into<String>) -> Finding {
        Finding::new(topic, Severity::Info, is)
    }

    pub(crate) fn warn(topic: &str, is: impl Into<String>) -> Finding {
        Finding::new(topic, Severity::Warn, is)
    }

    pub(crate) fn bad(topic: &str, is: impl Into<String>) -> Finding {
        Finding::new(topic, Severity::Bad, is)
    }

    /// The machine has no such thing: `what` says which file or device is missing.
    pub(crate) fn absent(topic: &str, what: impl Into<String>) -> Finding {
        Finding::new(topic, Severity::NotPresent, what)
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
        let finding = Finding::warn("a", "b").on("c").better("d").cost("e", "f").command("g");
        let json = serde_json::to_string(&finding).unwrap();
        assert!(json.contains("\"severity\":\"warn\""), "{json}");
        assert_eq!(serde_json::from_str::<Finding>(&json).unwrap(), finding);
        assert!(Severity::Bad > Severity::Warn && Severity::Ok > Severity::NotPresent);
    }
}
