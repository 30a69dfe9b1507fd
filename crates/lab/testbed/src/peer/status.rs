//! The state of a peer by the admin sockets of its daemons (no manager and no client is needed), and how it describes itself in
//! results.

use std::collections::BTreeMap;
use std::io::{Error, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use carmine_types::OsdId;
use fs_err::{self as fs, File};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Allocator, Flavour, POOL_ID, PeerPlan, Programs, ceph, conf, monitor};
use crate::error::{Result, TestbedError, failed};
use crate::folder;
use crate::layout::{Daemon, Layout};
use crate::status::pid;

/// A daemon that has not answered by then is stuck.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer that is believed.
const ANSWER_MAX: usize = 64 << 20;
/// Entries of CMake's cache that decide how fast the result is.
const CMAKE_ENTRIES: [&str; 5] =
    ["CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "CMAKE_CXX_COMPILER", "ALLOCATOR", "WITH_SEASTAR"];

/// One OSD of a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerOsd {
    /// Its number.
    pub id: u32,
    /// The running process.
    pub pid: Option<i32>,
    /// Up in its own map.
    pub up: bool,
    /// CPUs that it is confined to.
    pub cpus: Vec<usize>,
}

/// A peer now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its folder.
    pub dir: String,
    /// `running`, `stopped`, `degraded` or `incomplete`.
    pub state: String,
    /// Address of the monitor.
    pub mon_addr: String,
    /// Process of the monitor.
    pub mon_pid: Option<i32>,
    /// The OSDs.
    pub osds: Vec<PeerOsd>,
    /// PGs that are active and clean; `None` unless something runs.
    pub pgs_clean: Option<u32>,
    /// Its description.
    pub about: About,
    /// The plan.
    pub plan: PeerPlan,
}

/// The description of a peer in results (`carmine.peer`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// `ceph`.
    pub kind: String,
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
    pub profile: String,
    /// All settings of the OSDs that differ from Ceph's defaults because of the profile or the user.
    pub settings: BTreeMap<String, String>,
    /// `osd_memory_target`, bytes.
    pub osd_memory_bytes: u64,
    /// Work that only one side does.
    pub contrast: Contrast,
}

/// Work that one side does and the other does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contrast {
    /// Work that Carmine does not do.
    pub carmine_does_not: Vec<String>,
    /// Work that this Ceph does not do.
    pub ceph_does_not: Vec<String>,
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
pub fn about(plan: &PeerPlan) -> Result<About> {
    let programs = Programs::find(plan.build.as_deref())?;
    let logs = plan.tuned.then_some("gather debug logs in memory (levels 0/0)");
    Ok(About {
        kind: "ceph".into(),
        version: plan.version.clone(),
        flavour: plan.flavour,
        build: plan.build.clone(),
        build_flags: build_flags(plan.build.as_deref()),
        allocator: Allocator::of(&programs),
        profile: plan.profile().into(),
        settings: conf::osd_settings(plan),
        osd_memory_bytes: plan.osd_memory_bytes,
        contrast: Contrast {
            carmine_does_not: CARMINE.map(str::to_owned).to_vec(),
            ceph_does_not: CEPH.into_iter().chain(logs).map(str::to_owned).collect(),
        },
    })
}

/// Looks at the peer in a folder. Takes no lock and changes nothing.
///
/// # Errors
/// The folder holds none, or a record in it is damaged.
pub fn status(layout: &Layout) -> Result<PeerStatus> {
    let plan = folder::require::<PeerPlan>(layout)?;
    let mon_pid = pid(layout, Daemon::Mon)?;
    let mut osds = Vec::new();
    for id in 0..plan.osds() {
        let pid = pid(layout, Daemon::Osd(OsdId(id)))?;
        let up = pid.is_some() && is_active(layout, OsdId(id));
        osds.push(PeerOsd { id, pid, up, cpus: plan.osd_cpus(id) });
    }
    let runs = mon_pid.is_some() || osds.iter().any(|osd| osd.pid.is_some());
    let is_clean = |pg: &u32| is_clean(layout, plan.osds(), *pg);
    let pgs_clean = runs.then(|| (0..plan.pool.pg_num).filter(is_clean).count() as u32);
    let all_up = mon_pid.is_some() && mon_leads(layout) && osds.iter().all(|osd| osd.up);
    let state = match (plan.complete, runs) {
        (false, _) => "incomplete",
        (true, false) => "stopped",
        (true, true) if all_up && pgs_clean == Some(plan.pool.pg_num) => "running",
        (true, true) => "degraded",
    };
    Ok(PeerStatus {
        dir: layout.dir().display().to_string(),
        state: state.into(),
        mon_addr: monitor(&plan).to_string(),
        mon_pid,
        osds,
        pgs_clean,
        about: about(&plan)?,
        plan,
    })
}

/// True if the monitor leads.
pub(super) fn mon_leads(layout: &Layout) -> bool {
    has_state(layout, Daemon::Mon, &json!({"prefix": "mon_status"}), "leader")
}

/// True if this OSD is up in its own map.
pub(super) fn is_active(layout: &Layout, osd: OsdId) -> bool {
    has_state(layout, Daemon::Osd(osd), &json!({"prefix": "status"}), "active")
}

/// True if one of the OSDs, its primary, says that this PG is active and clean.
pub(super) fn is_clean(layout: &Layout, osds: u32, pg: u32) -> bool {
    let question = json!({"prefix": "pg", "pgid": format!("{POOL_ID}.{pg:x}"), "cmd": "query"});
    (0..osds).any(|id| has_state(layout, Daemon::Osd(OsdId(id)), &question, "active+clean"))
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
    let name = format!("{daemon}.asok");
    let bytes = exchange(&layout.run_dir(), &name, question);
    let bytes = bytes.map_err(TestbedError::io("ask", &layout.run_dir().join(name)))?;
    serde_json::from_slice(&bytes).map_err(|_| {
        let said = String::from_utf8_lossy(bytes.get(..200).unwrap_or(&bytes)).trim().to_owned();
        failed!("{daemon} answered {question} with `{said}`")
    })
}

fn exchange(folder: &Path, name: &str, question: &Value) -> std::io::Result<Vec<u8>> {
    let folder = File::open(folder)?;
    let mut stream = UnixStream::connect(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut text = question.to_string().into_bytes();
    text.push(0);
    stream.write_all(&text)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > ANSWER_MAX {
        return Err(Error::other(format!("an answer of {length} bytes")));
    }
    let mut answer = Vec::new();
    stream.take(length as u64).read_to_end(&mut answer)?;
    Ok(answer)
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
