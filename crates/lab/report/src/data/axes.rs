//! Which axes vary, and how their values are written.

use std::collections::{BTreeMap, BTreeSet};

use carmine_study::archive::Config;

use super::Measured;
use crate::units::{bytes, short};

/// Axes along a response-latency curve: how much is asked.
pub(crate) const LOAD_AXES: [&str; 5] = ["iodepth", "rate_iops", "jobs", "arrivals", "client_cpus"];
/// Axes of what is given: a scaling chart runs along them.
pub(crate) const SIZE_AXES: [&str; 4] = ["osds", "reactors", "osds_per_device", "cpus"];
/// Axes whose values are never in one chart.
pub(crate) const PANEL_AXES: [&str; 3] = ["workload", "bs_bytes", "client"];

/// Axes that tell points apart, and those that they share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Axes {
    /// Axes that vary, but for those that follow from workload and size (such as `pgs = 100 * osds`).
    telling: BTreeSet<String>,
    /// Axis and value, the same for all points.
    pub(crate) common: BTreeMap<String, String>,
}

impl Axes {
    /// Axes of the points of the plan.
    pub(crate) fn of(points: &[&Measured]) -> Axes {
        let configs: Vec<&Config> = points.iter().map(|p| &p.point.config).collect();
        let names: BTreeSet<&String> = configs.iter().flat_map(|c| c.0.keys()).collect();
        let mut axes = Axes::default();
        for name in names {
            let values: BTreeSet<Option<String>> = configs.iter().map(|c| c.show(name)).collect();
            if let (1, Some(Some(only))) = (values.len(), values.first()) {
                axes.common.insert(name.clone(), only.clone());
            } else if !is_coupled(name, &configs) {
                axes.telling.insert(name.clone());
            }
        }
        axes
    }

    /// True if points differ in it, and that does not follow from what they are named by.
    pub(crate) fn tells(&self, axis: &str) -> bool {
        self.telling.contains(axis)
    }

    /// A configuration by the axes that vary and are not in `without`; empty if there are none. In brief, axes whose values
    /// are words are told by the value alone.
    pub(crate) fn name(&self, config: &Config, without: &[&str], brief: bool) -> String {
        let word = |axis: &str| config.text(axis).filter(|_| brief).and_then(|_| config.show(axis));
        let told = self.ordered().filter(|axis| !without.contains(axis));
        let words = told.filter_map(|axis| word(axis).or_else(|| axis_value(config, axis)));
        words.collect::<Vec<_>>().join(" · ")
    }

    /// Those first that people name first.
    fn ordered(&self) -> impl Iterator<Item = &str> {
        const FIRST: [&str; 6] = ["workload", "bs_bytes", "store", "osds", "reactors", "cpus"];
        let tells = |axis: &&str| self.telling.contains(*axis);
        let rest = self.telling.iter().map(String::as_str);
        let rest = rest.filter(|axis| !FIRST.contains(axis) && !LOAD_AXES.contains(axis));
        FIRST.into_iter().filter(tells).chain(rest).chain(LOAD_AXES.into_iter().filter(tells))
    }
}

/// A number that workload and size axes determine.
fn is_coupled(axis: &str, configs: &[&Config]) -> bool {
    if SIZE_AXES.contains(&axis) {
        return false;
    }
    let mut seen: BTreeMap<Vec<Option<String>>, Option<String>> = BTreeMap::new();
    configs.iter().all(|config| {
        let size = SIZE_AXES.iter().chain([&"workload"]).map(|a| config.show(a)).collect();
        let value = config.show(axis);
        config.float(axis).is_some() && *seen.entry(size).or_insert_with(|| value.clone()) == value
    })
}

/// An axis' value with its name as people say it: `2 reactors`, `qd 16`, `4K blocks`.
pub(crate) fn axis_value(config: &Config, axis: &str) -> Option<String> {
    let value = config.show(axis)?;
    let number = config.float(axis);
    let count = |noun: &str| format!("{value} {noun}{}", if value == "1" { "" } else { "s" });
    let written = |of: fn(f64) -> String| number.map_or(value.clone(), of);
    Some(match axis {
        "workload" | "store" => value,
        "osds" => count("OSD"),
        "reactors" => count("reactor"),
        "osds_per_device" => format!("{value} per drive"),
        "alien_threads" => count("alien"),
        "jobs" => count("job"),
        "pgs" => count("PG"),
        "iodepth" => format!("qd {value}"),
        "pool_size" => format!("size {value}"),
        "cpus" if number.is_some() => count("CPU"),
        "cpus" => format!("CPUs {value}"),
        "bs_bytes" => format!("{} blocks", written(bytes)),
        "rate_iops" => format!("{} IOPS asked", written(short)),
        _ => match axis.strip_suffix("_bytes") {
            Some(name) => format!("{} {}", name.replace('_', " "), written(bytes)),
            None => format!("{} {value}", axis.replace('_', " ")),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use serde_json::json;

    fn config(value: Value) -> Config {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn values_are_said_as_people_say_them() {
        let c = config(
            json!({"reactors": 1, "osds": 3, "bs_bytes": 65536, "osd_memory_bytes": 1 << 30, "balance": "osd"}),
        );
        let say = |axis| axis_value(&c, axis).unwrap();
        assert_eq!([say("reactors"), say("osds"), say("bs_bytes")], ["1 reactor", "3 OSDs", "64K blocks"]);
        assert_eq!([say("osd_memory_bytes"), say("balance")], ["osd memory 1G", "balance osd"]);
        assert_eq!(axis_value(&c, "pgs"), None);
    }

    #[test]
    fn a_workload_is_named_by_what_ran() {
        let point = |bs: u64| config(json!({"workload": "randread4k", "bs_bytes": bs, "store": "blue"}));
        let (small, large) = (point(4096), point(65536));
        assert_eq!(axis_value(&large, "workload").unwrap(), "randread64k");
        assert!(is_coupled("bs_bytes", &[&small, &large]), "the size is not said twice");
    }

    #[test]
    fn what_follows_from_the_size_does_not_tell_points_apart() {
        let point =
            |osds: u32, pgs: u32, store: &str| config(json!({"osds": osds, "pgs": pgs, "store": store}));
        let configs =
            [point(1, 100, "blue"), point(3, 300, "blue"), point(1, 100, "cyan"), point(3, 300, "cyan")];
        let refs: Vec<&Config> = configs.iter().collect();
        assert!(is_coupled("pgs", &refs));
        assert!(!is_coupled("store", &refs) && !is_coupled("osds", &refs));
        let more = point(3, 600, "cyan");
        assert!(!is_coupled("pgs", &refs.into_iter().chain([&more]).collect::<Vec<_>>()));
    }
}
