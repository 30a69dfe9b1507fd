//! The state of a peer by the admin sockets of its daemons (no manager and no client is needed), and its description in results.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use carmine_topology::CpuList;
use carmine_types::OsdId;
use fs_err::{self as fs, File};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Allocator, Flavour, POOL_ID, PeerPlan, Programs, ceph};
use crate::error::{Result, fail_if, failed};
use crate::folder::{Daemon, Layout};
use crate::plan::{POOL_NAME, Plan};
use crate::status::Probe;

/// A daemon that has not answered by then is stuck.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer that is believed.
const ANSWER_MAX: u32 = 64 << 20;
/// Entries of CMake's cache that decide how fast the result is.
const CMAKE_ENTRIES: [&str; 5] =
    ["CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "CMAKE_CXX_COMPILER", "ALLOCATOR", "WITH_SEASTAR"];

/// The description of a peer in results (`carmine.peer`).
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// `ceph`.
    pub kind: &'static str,
    /// The version line of its OSD.
    pub version: String,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Folder of the build; the installed packages when absent.
    pub build: Option<PathBuf>,
    /// How it was built, as far as that can be found out.
    pub build_flags: BTreeMap<String, String>,
    /// The OSDs' memory allocator.
    pub allocator: Allocator,
    /// `stock` or `tuned`.
    pub profile: &'static str,
    /// All settings of the OSDs that differ from Ceph's defaults because of the profile or the user.
    pub settings: BTreeMap<String, String>,
    /// `osd_memory_target`, bytes.
    pub osd_memory_bytes: u64,
    /// Work that only one side does: `carmine_does_not` and `ceph_does_not`.
    pub contrast: BTreeMap<&'static str, Vec<&'static str>>,
}

const CARMINE: [&str; 9] = [
    "authenticate (cephx)",
    "scrub",
    "snapshots, clones, erasure coding, compression",
    "enforce min_size",
    "heartbeats between OSDs; it stays up until its process ends",
    "schedule clients against recovery by QoS (mClock, wpq priorities)",
    "track operations for dump_historic_ops",
    "keep statistics per PG for a manager",
    "cache data in `blue`: every read goes to the device and is checked against its CRC",
];

const CEPH: [&str; 4] = [
    "authenticate (auth none)",
    "scrub (noscrub and nodeep-scrub are set)",
    "report to a manager (none runs): no balancer, no PG autoscaler",
    "check the CRC of data that it reads from its cache",
];

/// Describes a peer.
///
/// # Errors
/// Its programs are gone.
pub fn about(plan: &Plan, peer: &PeerPlan) -> Result<About> {
    let programs = Programs::find(peer.build.as_deref())?;
    let logs = peer.tuned.then_some("gather debug logs in memory (levels 0/0)");
    Ok(About {
        kind: "ceph",
        version: peer.version.clone(),
        flavour: peer.flavour,
        build: peer.build.clone(),
        build_flags: build_flags(peer.build.as_deref()),
        allocator: Allocator::of(&programs),
        profile: peer.profile(),
        settings: osd_settings(plan, peer),
        osd_memory_bytes: plan.osd_memory_bytes,
        contrast: [
            ("carmine_does_not", CARMINE.to_vec()),
            ("ceph_does_not", CEPH.into_iter().chain(logs).collect()),
        ]
        .into(),
    })
}

/// Looks at a running peer once. Its daemons tell no epoch here: 1 stands for any.
///
/// # Errors
/// The monitor does not lead.
pub(crate) fn look(layout: &Layout, plan: &Plan) -> Result<Probe> {
    fail_if!(!mon_leads(layout), "it does not lead");
    let osds = (0..plan.osds()).map(OsdId).filter(|osd| is_active(layout, *osd));
    let answer = |osd| {
        let clean = (0..plan.pool.pg_num).filter(|pg| is_clean(layout, osd, *pg)).count();
        (osd, Ok(json!({"epoch": 1, "pgs": {"total": clean, "active": clean, "clean": clean}})))
    };
    Ok(Probe { epoch: 1, up: osds.map(answer).collect(), pgs: plan.pool.pg_num.into(), ratios: None })
}

/// True if the monitor leads.
pub(super) fn mon_leads(layout: &Layout) -> bool {
    has_state(layout, Daemon::Mon, &json!({"prefix": "mon_status"}), "leader")
}

/// True if this OSD is up in its own map.
pub(super) fn is_active(layout: &Layout, osd: OsdId) -> bool {
    has_state(layout, Daemon::Osd(osd), &json!({"prefix": "status"}), "active")
}

/// True if this OSD is the PG's primary, and says that it is active and clean.
fn is_clean(layout: &Layout, osd: OsdId, pg: u32) -> bool {
    let question = json!({"prefix": "pg", "pgid": format!("{POOL_ID}.{pg:x}"), "cmd": "query"});
    has_state(layout, Daemon::Osd(osd), &question, "active+clean")
}

fn has_state(layout: &Layout, daemon: Daemon, question: &Value, state: &str) -> bool {
    ask(layout, daemon, question).is_ok_and(|answer| answer["state"] == state)
}

/// Asks a daemon by its admin socket; the answer as JSON. The socket lies in the folder in which daemons are started: its path
/// may have 107 bytes only, so neither side names the folder. A question ends in a zero byte, an answer begins with its length
/// (4 bytes, big endian).
///
/// # Errors
/// It does not listen (yet), does not answer in time, or answers something else than JSON: an error of its own, mostly.
fn ask(layout: &Layout, daemon: Daemon, question: &Value) -> Result<Value> {
    let folder = File::open(layout.run_dir())?;
    let mut stream = UnixStream::connect(format!("/proc/self/fd/{}/{daemon}.asok", folder.as_raw_fd()))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(format!("{question}\0").as_bytes())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    fail_if!(length > ANSWER_MAX, "{daemon} has an answer of {length} bytes");
    let mut answer = Vec::new();
    stream.take(length.into()).read_to_end(&mut answer)?;
    serde_json::from_slice(&answer).map_err(|_| {
        let said = String::from_utf8_lossy(answer.get(..200).unwrap_or(&answer)).trim().to_owned();
        failed!("{daemon} answered {question} with `{said}`")
    })
}

/// How the programs were built, as far as that can be found out: of a package its version, of a build folder what CMake wrote
/// down.
fn build_flags(build: Option<&Path>) -> BTreeMap<String, String> {
    let Some(folder) = build else {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f=${Version}", "ceph-osd"]);
        let version = ceph::run(query, None).ok().filter(|version| !version.is_empty());
        return version.map(|v| ("debian_package".to_owned(), v.trim().to_owned())).into_iter().collect();
    };
    cmake_entries(&fs::read_to_string(folder.join("CMakeCache.txt")).unwrap_or_default())
}

/// `NAME:TYPE=VALUE`, one a line.
fn cmake_entries(text: &str) -> BTreeMap<String, String> {
    let entries = text.lines().filter_map(|line| line.split_once('='));
    let entries = entries.map(|(name, value)| (name.split(':').next().unwrap_or(name), value.trim()));
    let known = entries.filter(|(name, _)| CMAKE_ENTRIES.contains(name));
    known.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

// The peer's `ceph.conf`, for its daemons and for every client, and the settings of its OSDs: stock, tuned, and the user's.

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
const DEFERRED_BYTES: &str = "65536";

/// The file's text for the next start.
pub(super) fn text(layout: &Layout, plan: &Plan, peer: &PeerPlan, programs: &Programs) -> String {
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
    for (name, value) in osd_settings(plan, peer) {
        put(&name, &value);
    }
    if peer.flavour == Flavour::Crimson {
        for osd in (0..plan.osds()).map(OsdId) {
            let cpus: CpuList = plan.osd_cpus(osd).into_iter().collect();
            put(&format!("\n[{osd}]\ncrimson_seastar_cpu_cores"), &cpus);
        }
    }
    put("\n[client]\nrbd_cache", &false);
    put("log_file", &"/dev/null");
    put("admin_socket", &"");
    text
}

/// Settings of the section `[osd]`, by Ceph's names: the profile's, then the user's over them.
pub(super) fn osd_settings(plan: &Plan, peer: &PeerPlan) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut put = |name: &str, value: &str| _ = settings.insert(name.to_owned(), value.to_owned());
    if peer.tuned {
        // A virtual disk says that it rotates.
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
    use std::os::unix::net::UnixListener;

    /// A daemon that answers one question with `answer`; the question that it got.
    fn daemon(layout: &Layout, answer: Vec<u8>) -> std::thread::JoinHandle<Vec<u8>> {
        std::fs::create_dir_all(layout.run_dir()).unwrap();
        let folder = File::open(layout.run_dir()).unwrap();
        let name = "mon.asok";
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = Vec::new();
            let mut byte = [1];
            while stream.read_exact(&mut byte).is_ok() && byte != [0] {
                question.push(byte[0]);
            }
            stream.write_all(&answer).unwrap();
            question
        })
    }

    fn answered(answer: &[u8], length: u32) -> (Result<Value>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let layout = Layout::new(&dir.path().join("deep/".repeat(40))).unwrap();
        let asked = daemon(&layout, [&length.to_be_bytes()[..], answer].concat());
        let result = ask(&layout, Daemon::Mon, &serde_json::json!({"prefix": "status"}));
        (result, asked.join().unwrap())
    }

    #[test]
    fn question_and_answer() {
        let (answer, question) = answered(b"{\"state\":\"active\"}", 18);
        assert_eq!(answer.unwrap()["state"], "active");
        assert_eq!(question, b"{\"prefix\":\"status\"}");
    }

    #[test]
    fn nonsense_is_an_error() {
        let (answer, _) = answered(b"ERROR: no such pg", 17);
        assert!(answer.unwrap_err().to_string().contains("no such pg"));
        assert!(answered(b"{", u32::MAX).0.unwrap_err().to_string().contains("4294967295"));
    }

    #[test]
    fn cmakes_cache() {
        let text = "# a comment\nCMAKE_BUILD_TYPE:STRING=RelWithDebInfo\nALLOCATOR:STRING=tcmalloc\nOTHER:BOOL=ON\nodd\n";
        let found = cmake_entries(text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found["CMAKE_BUILD_TYPE"].as_str(), found["ALLOCATOR"].as_str()),
            ("RelWithDebInfo", "tcmalloc")
        );
    }
}

#[cfg(test)]
mod conf_tests {
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
        text(&layout, &plan, plan.peer().unwrap(), &programs)
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
