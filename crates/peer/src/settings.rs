//! The settings of the OSDs: stock, tuned, and what the user asked for on top.

use std::collections::BTreeMap;

use crate::plan::PeerPlan;
use crate::programs::Flavour;

/// Log subsystems of Ceph 16 whose levels the tuned profile sets to nothing, in memory too, as Ceph's own
/// performance tests do.
const SUBSYSTEMS: [&str; 24] = [
    "none",
    "context",
    "crush",
    "buffer",
    "timer",
    "objecter",
    "osd",
    "optracker",
    "objclass",
    "ms",
    "mon",
    "monc",
    "paxos",
    "tp",
    "auth",
    "finisher",
    "heartbeatmap",
    "perfcounter",
    "asok",
    "throttle",
    "bluestore",
    "bluefs",
    "bdev",
    "rocksdb",
];
/// Ceph's own number of op shards and threads for solid-state drives: more than this never helped in its studies.
const SHARDS_MAX: usize = 8;

/// Settings of the section `[osd]`, by Ceph's names: the profile's, then the user's over them.
pub(crate) fn osd_settings(plan: &PeerPlan) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    if plan.tuned {
        settings
            .extend(tuned(plan.flavour, plan.cores_per_osd()).map(|(name, value)| (name.to_owned(), value)));
        settings.extend(SUBSYSTEMS.map(|name| (format!("debug_{name}"), "0/0".to_owned())));
    }
    settings.extend(plan.options.clone());
    settings
}

/// Solid-state settings (a virtual disk says that it rotates), and no more shards and threads than the cores can use.
fn tuned(flavour: Flavour, cores: usize) -> impl Iterator<Item = (&'static str, String)> {
    let classic = [
        ("osd_op_num_shards", cores.clamp(1, SHARDS_MAX).to_string()),
        ("osd_op_num_threads_per_shard", "2".to_owned()),
        ("ms_async_op_threads", cores.clamp(1, 3).to_string()),
        ("osd_enable_op_tracker", "false".to_owned()),
    ];
    let all = [("bluestore_debug_enforce_settings", "ssd".to_owned())];
    let classic = (flavour == Flavour::Classic).then_some(classic);
    all.into_iter().chain(classic.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PeerWish;
    use carmine_topology::Topology;

    #[test]
    fn stock_is_stock_and_the_user_has_the_last_word() {
        let topology = Topology::from_short("1x8x1").unwrap();
        let mut wish = PeerWish { cpus: Some("0-3".parse().unwrap()), ..PeerWish::default() };
        let plan = |wish: &PeerWish| PeerPlan::new(wish, &topology, "id", "v", Flavour::Classic).unwrap();
        assert!(osd_settings(&plan(&wish)).is_empty());
        wish.tuned = true;
        wish.options = [("osd_op_num_threads_per_shard".to_owned(), "1".to_owned())].into();
        let settings = osd_settings(&plan(&wish));
        assert_eq!((settings["osd_op_num_shards"].as_str(), settings["debug_osd"].as_str()), ("4", "0/0"));
        assert_eq!(settings["osd_op_num_threads_per_shard"], "1");
    }
}
