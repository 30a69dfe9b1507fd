//! What the sizes of a scaling line count.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::archive::Config;

/// What is added from one size to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Along {
    /// Reactors of all OSDs together.
    Reactors,
    /// CPUs that each OSD may use.
    Cpus,
    /// OSDs.
    Osds,
}

impl Along {
    /// The first that varies, in the order in which people ask; `None` if nothing does.
    pub fn of<'a>(configs: impl Iterator<Item = &'a Config> + Clone) -> Option<Along> {
        let varies = |along: &Along| {
            let sizes = configs.clone().filter_map(|config| along.value(config));
            sizes.map(f64::to_bits).collect::<BTreeSet<u64>>().len() > 1
        };
        [Along::Reactors, Along::Cpus, Along::Osds].into_iter().find(varies)
    }

    /// The size of a configuration; `None` if it has none, such as "no limit" of CPUs.
    pub fn value(self, config: &Config) -> Option<f64> {
        match self {
            Along::Reactors => Some(config.float("reactors")? * config.float("osds").unwrap_or(1.0)),
            Along::Cpus => config.float("cpus"),
            Along::Osds => config.float("osds"),
        }
    }

    /// The word for one of them.
    pub fn unit(self) -> &'static str {
        match self {
            Along::Reactors => "reactor",
            Along::Cpus => "CPU",
            Along::Osds => "OSD",
        }
    }

    /// What an axis of a chart says.
    pub fn title(self) -> &'static str {
        match self {
            Along::Reactors => "reactors (all OSDs)",
            Along::Cpus => "CPUs allowed",
            Along::Osds => "OSDs",
        }
    }
}
