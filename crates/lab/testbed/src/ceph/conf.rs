//! The `ceph.conf` of a peer and of a testbed with a real monitor, for their daemons and for every client, and the settings of a peer's
//! OSDs: stock, tuned, and the user's.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::path::Path;

use carmine_topology::CpuList;
use carmine_types::{AuthKind, OsdId};

use super::{Flavour, Programs};
use crate::layout::{Daemon, Layout, mon_name};
use crate::peer::PeerPlan;
use crate::plan::{POOL_NAME, Plan};

/// Kinds of connections, each with a mode of its own.
const MODES: [&str; 6] = ["cluster", "service", "client", "mon_cluster", "mon_service", "mon_client"];
/// Log subsystems of Ceph 16 whose levels the tuned profile sets to nothing, in memory too, as Ceph's own
/// performance tests do.
const SUBSYSTEMS: &str = "none context crush buffer timer objecter osd optracker objclass ms mon monc paxos tp auth finisher \
                          heartbeatmap perfcounter asok throttle bluestore bluefs bdev rocksdb";
/// Ceph's own number of op shards for solid-state drives: more than this never helped in its studies.
const SHARDS_MAX: usize = 8;
/// Op threads of an OSD, at least: with fewer, a read that waits in BlueStore leaves the core idle or wakes another thread
/// for every operation. Measured on one core, random reads of 4 KiB: 113 us of CPU each with 1 thread, 76 with 2, 60 with 5.
const THREADS_MIN: usize = 5;
/// Writes below this go through the write-ahead log first where a flush is expensive: one flush instead of two.
const DEFERRED_BYTES: &str = "65536";

/// A file's text.
struct Conf(String);

impl Conf {
    fn put(&mut self, name: &str, value: &dyn Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{name} = {value}");
    }

    /// The section of everybody, and the beginning of that of all monitors.
    fn new(layout: &Layout, plan: &Plan, lib: Option<&Path>) -> Conf {
        let (dir, ip) = (layout.dir().display(), plan.ip_of(Daemon::Mgr));
        let mut conf = Conf(format!(
            "# Written by carmine at every start. Use it as: rados -c THIS_FILE -p {POOL_NAME} ls\n[global]\n"
        ));
        conf.put("fsid", &plan.fsid);
        let of_mons =
            |what: &dyn Fn(u8) -> String| plan.mon_numbers().map(what).collect::<Vec<_>>().join(",");
        conf.put("mon_host", &of_mons(&|mon| format!("[v2:{}]", plan.mon_addr(mon))));
        conf.put("mon_initial_members", &of_mons(&|mon| mon_name(mon).to_string()));
        conf.put("ms_bind_msgr1", &false);
        conf.put("public_addr", &ip);
        conf.put("cluster_addr", &ip);
        plan.networks().for_each(|(name, networks)| conf.put(name, &networks));
        ["cluster", "service", "client"]
            .iter()
            .for_each(|name| conf.put(&format!("auth_{name}_required"), &plan.auth));
        match plan.auth {
            AuthKind::None => conf.put("keyring", &"/dev/null"),
            AuthKind::Cephx => {
                conf.put("keyring", &format!("{dir}/ceph.$name.keyring"));
                conf.put("auth_allow_insecure_global_id_reclaim", &false);
                if plan.auth_ticket_ttl_s > 0 {
                    conf.put("auth_mon_ticket_ttl", &plan.auth_ticket_ttl_s);
                    conf.put("auth_service_ticket_ttl", &plan.auth_ticket_ttl_s);
                }
            }
        }
        MODES.iter().for_each(|service| conf.put(&format!("ms_{service}_mode"), &plan.ms_mode));
        conf.put("run_dir", &format!("{dir}/run"));
        conf.put("crash_dir", &format!("{dir}/run"));
        conf.put("pid_file", &"");
        conf.put("log_file", &format!("{dir}/$name.log"));
        // Relative to the folder that daemons are started in.
        conf.put("chdir", &"");
        conf.put("admin_socket", &"$name.asok");
        if let Some(lib) = lib {
            ["plugin_dir", "erasure_code_dir", "osd_class_dir"]
                .iter()
                .for_each(|name| conf.put(name, &lib.display()));
        }
        conf.put("osd_pool_default_size", &plan.pool.size);
        conf.put("osd_pool_default_min_size", &plan.pool.min_size);
        conf.put("osd_pool_default_pg_autoscale_mode", &"off");
        conf.put("osd_crush_chooseleaf_type", &u8::from(plan.host.is_some()));
        conf.put("osd_crush_initial_weight", &1);
        conf.put("mon_allow_pool_size_one", &true);
        conf.put("mon_warn_on_pool_no_redundancy", &false);
        // There are no keys to reclaim ids with.
        conf.put("mon_warn_on_insecure_global_id_reclaim_allowed", &false);
        conf.put("mon_max_pg_per_osd", &100_000);
        conf.put("\n[mon]\nmon_cluster_log_to_file", &false);
        if plan.auth == AuthKind::Cephx {
            conf.put("keyring", &"$mon_data/keyring");
        }
        // A disk that is nearly full must not stop the monitor of a short test.
        conf.put("mon_data_avail_warn", &2);
        conf.put("mon_data_avail_crit", &1);
        conf
    }

    /// The text, with the sections of each monitor and of clients.
    fn finish(mut self, layout: &Layout, plan: &Plan) -> String {
        for mon in plan.mon_numbers() {
            let (name, daemon) = (mon_name(mon), Daemon::Mon(mon));
            self.put(&format!("\n[mon.{name}]\nmon_data"), &layout.mon_dir(mon).display());
            self.put("log_file", &layout.log(daemon).display());
            self.put("admin_socket", &format!("{daemon}.asok"));
            self.put("public_addr", &plan.ip_of(daemon));
        }
        self.put("\n[client]\nrbd_cache", &false);
        self.put("log_file", &"/dev/null");
        self.put("admin_socket", &"");
        self.0
    }
}

/// The file of a peer, for its next start.
pub(crate) fn of_peer(layout: &Layout, plan: &Plan, peer: &PeerPlan, programs: &Programs) -> String {
    let (dir, mut conf) = (layout.dir().display(), Conf::new(layout, plan, programs.lib.as_deref()));
    conf.put("\n[osd]\nosd_data", &format!("{dir}/osd.$id"));
    conf.put("osd_objectstore", &"bluestore");
    conf.put("osd_memory_target", &plan.osd_memory_bytes);
    conf.put("bluestore_block_create", &true);
    conf.put("bluestore_block_size", &plan.osd_size_bytes);
    for (name, value) in osd_settings(plan, peer) {
        conf.put(&name, &value);
    }
    if peer.flavour == Flavour::Crimson {
        for osd in (0..plan.osds()).map(OsdId) {
            let cpus: CpuList = plan.osd_cpus(osd).into_iter().collect();
            conf.put(&format!("\n[{osd}]\ncrimson_seastar_cpu_cores"), &cpus);
        }
    }
    conf.finish(layout, plan)
}

/// The file of a testbed with a real monitor, for its next start.
pub(crate) fn of_testbed(layout: &Layout, plan: &Plan) -> String {
    let mut conf = Conf::new(layout, plan, None);
    if plan.host.is_none() {
        // Each OSD is a host of the CRUSH map, and all are on this machine.
        conf.put("mon_osd_reporter_subtree_level", &"osd");
    }
    conf.put("mon_osd_down_out_interval", &plan.mon_osd_down_out_interval_s);
    conf.put("mon_osd_prime_pg_temp", &plan.mon_osd_prime_pg_temp);
    // The monitor judges reports of failures by the OSDs' grace.
    conf.put("osd_heartbeat_grace", &plan.osd_heartbeat_grace_s);
    if plan.paxos_propose_interval_s > 0 {
        conf.put("paxos_propose_interval", &plan.paxos_propose_interval_s);
    }
    let dir = layout.dir().display();
    conf.put("\n[mgr]\nlog_file", &format!("{dir}/mgr.log"));
    conf.put("admin_socket", &"mgr.asok");
    conf.put("\n[osd]\nadmin_socket", &format!("{dir}/$name.asok"));
    conf.finish(layout, plan)
}

/// Settings of the section `[osd]`, by Ceph's names: the profile's, then the user's over them.
pub(crate) fn osd_settings(plan: &Plan, peer: &PeerPlan) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut put = |name: &str, value: &str| _ = settings.insert(name.to_owned(), value.to_owned());
    if peer.tuned {
        // A virtual disk claims to rotate.
        put("bluestore_debug_enforce_settings", "ssd");
        if peer.flavour == Flavour::Classic {
            let (shards, threads) = shards_and_threads(plan.cpu.reactors);
            put("osd_op_num_shards", &shards.to_string());
            put("osd_op_num_threads_per_shard", &threads.to_string());
        }
        if peer.dear_flush {
            put("bluestore_prefer_deferred_size", DEFERRED_BYTES);
        }
        SUBSYSTEMS.split(' ').for_each(|name| put(&format!("debug_{name}"), "0/0"));
    }
    peer.options.iter().for_each(|(name, value)| put(name, value));
    settings
}

/// Op shards of an OSD that fit its cores, and threads of each.
fn shards_and_threads(cores: usize) -> (usize, usize) {
    let shards = cores.clamp(1, SHARDS_MAX);
    (shards, THREADS_MIN.div_ceil(shards).max(2))
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
        let settings = |wish: &PeerWish| {
            let plan =
                Plan::new_peer(&settings, wish, &topology, "id", "v".into(), Flavour::Classic).unwrap();
            osd_settings(&plan, plan.peer().unwrap())
        };
        assert!(settings(&wish).is_empty());
        wish.tuned = true;
        assert_eq!([1, 2, 4, 16].map(|cores| shards_and_threads(cores).1), [5, 3, 2, 2]);
        wish.options = [("osd_op_num_threads_per_shard".to_owned(), "1".to_owned())].into();
        let settings = settings(&wish);
        assert_eq!((settings["osd_op_num_shards"].as_str(), settings["debug_osd"].as_str()), ("4", "0/0"));
        assert_eq!(settings["osd_op_num_threads_per_shard"], "1");
    }

    fn conf(flavour: Flavour) -> String {
        let wish = Wish { osds: Some(2), osd_cpus: Some("0-3".parse().unwrap()), ..Wish::default() };
        let own = PeerWish { tuned: true, ..PeerWish::default() };
        let topology = Topology::from_short("1x8x1").unwrap();
        let mut plan = Plan::new_peer(&wish, &own, &topology, "abc", "v".into(), flavour).unwrap();
        plan.mon_port = 1234;
        let programs = Programs { paths: BTreeMap::new(), flavour, lib: Some("/x/lib".into()) };
        let layout = Layout::new(std::path::Path::new("/nowhere/bed")).unwrap();
        of_peer(&layout, &plan, plan.peer().unwrap(), &programs)
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
            "mon_data = /nowhere/bed/mon",
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
