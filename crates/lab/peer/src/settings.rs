//! The settings of the OSDs: stock, tuned, and what the user asked for on top.

use std::collections::BTreeMap;
use std::path::Path;

use carmine_testbed::drive::{WriteCache, part_at};

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
/// Ceph's own number of op shards for solid-state drives: more than this never helped in its studies.
const SHARDS_MAX: usize = 8;
/// Op threads of an OSD, at least: with fewer, a read that waits in BlueStore leaves the core idle or wakes another thread
/// for every operation. Measured on one core, random reads of 4 KiB: 113 us of CPU each with 1 thread, 76 with 2, 60 with 5.
const THREADS_MIN: usize = 5;
/// Writes below this go through the write-ahead log first where a flush is dear: one flush instead of two.
const DEFERRED_BYTES: u32 = 65_536;

/// Settings of the section `[osd]`, by Ceph's names: the profile's, then the user's over them.
pub(crate) fn osd_settings(plan: &PeerPlan) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    if plan.tuned {
        let tuned = tuned(plan.flavour, plan.cores_per_osd(), plan.dear_flush);
        settings.extend(tuned.map(|(name, value)| (name.to_owned(), value)));
        settings.extend(SUBSYSTEMS.map(|name| (format!("debug_{name}"), "0/0".to_owned())));
    }
    settings.extend(plan.options.clone());
    settings
}

/// Solid-state settings (a virtual disk says that it rotates), op shards and threads that fit the cores, and one flush per
/// small write where the drive has a volatile cache.
fn tuned(flavour: Flavour, cores: usize, dear_flush: bool) -> impl Iterator<Item = (&'static str, String)> {
    let shards = cores.clamp(1, SHARDS_MAX);
    let classic = [
        ("osd_op_num_shards", shards.to_string()),
        ("osd_op_num_threads_per_shard", THREADS_MIN.div_ceil(shards).max(2).to_string()),
    ];
    let deferred = [("bluestore_prefer_deferred_size", DEFERRED_BYTES.to_string())];
    let all = [("bluestore_debug_enforce_settings", "ssd".to_owned())];
    let classic = (flavour == Flavour::Classic).then_some(classic).into_iter().flatten();
    all.into_iter().chain(classic).chain(dear_flush.then_some(deferred).into_iter().flatten())
}

/// Whether a flush of this drive waits for its medium: it has a volatile write cache. False if the kernel does not tell.
pub(crate) fn has_dear_flush(path: &Path) -> bool {
    part_at(path).drive.write_cache == WriteCache::Back
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
        let threads = |cores| tuned(Flavour::Classic, cores, false).nth(2).map(|(_, value)| value);
        assert_eq!([1, 2, 4, 16].map(threads), ["5", "3", "2", "2"].map(|n| Some(n.to_owned())));
        wish.options = [("osd_op_num_threads_per_shard".to_owned(), "1".to_owned())].into();
        let settings = osd_settings(&plan(&wish));
        assert_eq!((settings["osd_op_num_shards"].as_str(), settings["debug_osd"].as_str()), ("4", "0/0"));
        assert_eq!(settings["osd_op_num_threads_per_shard"], "1");
    }
}
