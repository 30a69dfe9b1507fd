//! The state of a peer, read from the admin sockets of its daemons (this needs no manager and no client), and its description in results.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use carmine_types::OsdId;
use fs_err::{self as fs, File};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Allocator, Flavour, POOL_ID, PeerPlan, Programs};
use crate::ceph::{LEADER, conf, mon_state, programs};
use crate::error::{Result, fail_if, failed};
use crate::layout::{Daemon, Layout};
use crate::plan::Plan;
use crate::status::Probe;

/// A daemon that has not answered by then is stuck.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer that is accepted.
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

const CARMINE: [&str; 4] = [
    "authenticate (cephx)",
    "erasure coding, compression",
    "schedule clients against recovery by QoS (mClock, wpq priorities)",
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
        allocator: Allocator::detect(&programs),
        profile: peer.profile(),
        settings: conf::osd_settings(plan, peer),
        osd_memory_bytes: plan.osd_memory_bytes,
        contrast: [
            ("carmine_does_not", CARMINE.to_vec()),
            ("ceph_does_not", CEPH.into_iter().chain(logs).collect()),
        ]
        .into(),
    })
}

/// Looks at a running peer once. Its daemons report no epoch here, so 1 stands for any.
///
/// # Errors
/// The monitor does not lead.
pub(crate) fn look(layout: &Layout, plan: &Plan) -> Result<Probe> {
    fail_if!(mon_state(layout, 0).as_deref() != Some(LEADER), "it does not lead");
    let osds = (0..plan.osds()).map(OsdId).filter(|osd| is_active(layout, *osd));
    let answer = |osd| {
        let clean = (0..plan.pool.pg_num).filter(|pg| is_clean(layout, osd, *pg)).count();
        (osd, Ok(json!({"epoch": 1, "pgs": {"total": clean, "active": clean, "clean": clean}})))
    };
    let up = osds.map(answer).collect();
    Ok(Probe { epoch: 1, up, pgs: plan.pool.pg_num.into(), ..Probe::default() })
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

/// True if the daemon answers the question with this state.
fn has_state(layout: &Layout, daemon: Daemon, question: &Value, state: &str) -> bool {
    ask(layout, daemon, question).is_ok_and(|answer| answer["state"] == state)
}

/// Asks a daemon by its admin socket; the answer as JSON. The socket lies in the folder in which daemons are started: its path
/// may have 107 bytes only, so neither side names the folder. A question ends in a zero byte, an answer begins with its length
/// (4 bytes, big endian).
///
/// # Errors
/// It does not listen (yet), does not answer in time, or its answer is not JSON: mostly an error of its own.
pub(crate) fn ask(layout: &Layout, daemon: Daemon, question: &Value) -> Result<Value> {
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

/// How the programs were built, as far as that can be found out: for a package its version, for a build folder what CMake wrote
/// down.
fn build_flags(build: Option<&Path>) -> BTreeMap<String, String> {
    let Some(folder) = build else {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f=${Version}", "ceph-osd"]);
        let version = programs::run(query, None).ok().filter(|version| !version.is_empty());
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

    /// Runs a daemon that answers one question with `answer`; returns the result, and the question that it got.
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
        let result = ask(&layout, Daemon::MON, &serde_json::json!({"prefix": "status"}));
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
