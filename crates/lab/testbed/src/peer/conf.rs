//! The peer's `ceph.conf`, for its daemons and for every client, and the settings of its OSDs: stock, tuned, and the user's.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use carmine_topology::CpuList;

use super::{Flavour, PeerPlan, Programs};
use crate::error::Result;
use crate::files::write_whole;
use crate::layout::Layout;
use crate::plan::POOL_NAME;

/// Services that must talk in crc mode: checksums on, no encryption.
const CRC_MODES: [&str; 6] = ["cluster", "service", "client", "mon_cluster", "mon_service", "mon_client"];
/// Log subsystems of Ceph 16 whose levels the tuned profile sets to nothing, in memory too, as Ceph's own
/// performance tests do.
const SUBSYSTEMS: &str = "none context crush buffer timer objecter osd optracker objclass ms mon monc paxos tp auth finisher \
                          heartbeatmap perfcounter asok throttle bluestore bluefs bdev rocksdb";
/// Ceph's own number of op shards for solid-state drives: more than this never helped in its studies.
const SHARDS_MAX: usize = 8;
/// Op threads of an OSD, at least: with fewer, a read that waits in BlueStore leaves the core idle or wakes another thread
/// for every operation. Measured on one core, random reads of 4 KiB: 113 us of CPU each with 1 thread, 76 with 2, 60 with 5.
const THREADS_MIN: usize = 5;
/// Writes below this go through the write-ahead log first where a flush is dear: one flush instead of two.
const DEFERRED_BYTES: u32 = 65_536;

/// Writes the file for the next start.
pub(super) fn write(layout: &Layout, plan: &PeerPlan, programs: &Programs) -> Result<()> {
    write_whole(&layout.ceph_conf(), text(layout, plan, programs).as_bytes())
}

fn text(layout: &Layout, plan: &PeerPlan, programs: &Programs) -> String {
    let dir = layout.dir().display();
    let mut text = format!(
        "# Written by carmine at every start. Use it as: rados -c THIS_FILE -p {POOL_NAME} ls\n[global]\n"
    );
    // Writing to a String does not fail.
    let mut put = |name: &str, value: &dyn Display| _ = writeln!(text, "{name} = {value}");
    put("fsid", &plan.fsid);
    put("mon_host", &format!("[v2:127.0.0.1:{}]", plan.mon_port));
    put("mon_initial_members", &"a");
    put("ms_bind_msgr1", &false);
    put("public_addr", &"127.0.0.1");
    put("cluster_addr", &"127.0.0.1");
    ["cluster", "service", "client"].iter().for_each(|name| put(&format!("auth_{name}_required"), &"none"));
    put("keyring", &"/dev/null");
    CRC_MODES.iter().for_each(|service| put(&format!("ms_{service}_mode"), &"crc"));
    put("run_dir", &format!("{dir}/run"));
    put("crash_dir", &format!("{dir}/run"));
    put("pid_file", &"");
    put("log_file", &format!("{dir}/$name.log"));
    // Relative to the folder that daemons are started in.
    put("chdir", &"");
    put("admin_socket", &"$name.asok");
    if let Some(lib) = &programs.lib {
        ["plugin_dir", "erasure_code_dir", "osd_class_dir"].iter().for_each(|name| put(name, &lib.display()));
    }
    put("osd_pool_default_size", &plan.pool.size);
    put("osd_pool_default_min_size", &plan.pool.size.div_ceil(2));
    put("osd_pool_default_pg_autoscale_mode", &"off");
    put("osd_crush_chooseleaf_type", &0);
    put("osd_crush_initial_weight", &1);
    put("mon_allow_pool_size_one", &true);
    put("mon_warn_on_pool_no_redundancy", &false);
    put("mon_max_pg_per_osd", &100_000);
    put("\n[mon]\nmon_data", &format!("{dir}/mon"));
    put("log_file", &format!("{dir}/mon.log"));
    put("admin_socket", &"mon.asok");
    put("mon_cluster_log_to_file", &false);
    // A disk that is nearly full must not stop the monitor of a short test.
    put("mon_data_avail_warn", &2);
    put("mon_data_avail_crit", &1);
    put("\n[osd]\nosd_data", &format!("{dir}/osd.$id"));
    put("osd_objectstore", &"bluestore");
    put("osd_memory_target", &plan.osd_memory_bytes);
    put("bluestore_block_create", &true);
    put("bluestore_block_size", &plan.osd_size_bytes);
    for (name, value) in osd_settings(plan) {
        put(&name, &value);
    }
    if plan.flavour == Flavour::Crimson {
        for osd in 0..plan.osds() {
            let cpus: CpuList = plan.osd_cpus(osd).into_iter().collect();
            put(&format!("\n[osd.{osd}]\ncrimson_seastar_cpu_cores"), &cpus);
        }
    }
    put("\n[client]\nrbd_cache", &false);
    put("log_file", &"/dev/null");
    put("admin_socket", &"");
    text
}

/// Settings of the section `[osd]`, by Ceph's names: the profile's, then the user's over them.
pub(super) fn osd_settings(plan: &PeerPlan) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    if plan.tuned {
        let tuned = tuned(plan.flavour, plan.cores_per_osd(), plan.dear_flush);
        settings.extend(tuned.map(|(name, value)| (name.to_owned(), value)));
        settings.extend(SUBSYSTEMS.split(' ').map(|name| (format!("debug_{name}"), "0/0".to_owned())));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wish;
    use crate::peer::PeerWish;
    use carmine_topology::Topology;

    #[test]
    fn stock_is_stock_and_the_user_has_the_last_word() {
        let topology = Topology::from_short("1x8x1").unwrap();
        let settings = Wish { osd_cpus: Some("0-3".parse().unwrap()), ..Wish::default() };
        let mut wish = PeerWish::default();
        let plan =
            |wish: &PeerWish| PeerPlan::new(&settings, wish, &topology, "id", "v", Flavour::Classic).unwrap();
        assert!(osd_settings(&plan(&wish)).is_empty());
        wish.tuned = true;
        let threads = |cores| tuned(Flavour::Classic, cores, false).nth(2).map(|(_, value)| value);
        assert_eq!([1, 2, 4, 16].map(threads), ["5", "3", "2", "2"].map(|n| Some(n.to_owned())));
        wish.options = [("osd_op_num_threads_per_shard".to_owned(), "1".to_owned())].into();
        let settings = osd_settings(&plan(&wish));
        assert_eq!((settings["osd_op_num_shards"].as_str(), settings["debug_osd"].as_str()), ("4", "0/0"));
        assert_eq!(settings["osd_op_num_threads_per_shard"], "1");
    }

    fn conf(flavour: Flavour) -> String {
        let wish = Wish { osds: Some(2), osd_cpus: Some("0-3".parse().unwrap()), ..Wish::default() };
        let own = PeerWish { tuned: true, ..PeerWish::default() };
        let topology = Topology::from_short("1x8x1").unwrap();
        let mut plan = PeerPlan::new(&wish, &own, &topology, "abc", "v", flavour).unwrap();
        plan.plan.mon_port = 1234;
        let at = || "/x/bin/y".into();
        let programs = Programs {
            mon: at(),
            osd: at(),
            ceph: at(),
            monmaptool: at(),
            flavour,
            lib: Some("/x/lib".into()),
        };
        text(&Layout::new(std::path::Path::new("/nowhere/bed")).unwrap(), &plan, &programs)
    }

    #[test]
    fn everything_stays_in_the_folder_and_on_loopback() {
        let text = conf(Flavour::Classic);
        for line in [
            "fsid = abc",
            "mon_host = [v2:127.0.0.1:1234]",
            "auth_cluster_required = none",
            "ms_mon_client_mode = crc",
            "log_file = /nowhere/bed/$name.log",
            "osd_data = /nowhere/bed/osd.$id",
            "mon_cluster_log_to_file = false",
            "admin_socket = $name.asok",
            "admin_socket = mon.asok",
            "osd_pool_default_size = 2",
            "osd_op_num_shards = 2",
            "osd_class_dir = /x/lib",
            "rbd_cache = false",
        ] {
            assert!(text.lines().any(|l| l == line), "no line `{line}` in:\n{text}");
        }
        assert!(!text.contains("/var/") && !text.contains("crimson"));
    }

    #[test]
    fn crimson_is_told_its_cores() {
        let text = conf(Flavour::Crimson);
        assert!(text.contains("[osd.1]\ncrimson_seastar_cpu_cores = 2-3\n"), "{text}");
        assert!(!text.contains("osd_op_num_shards"), "{text}");
    }
}
