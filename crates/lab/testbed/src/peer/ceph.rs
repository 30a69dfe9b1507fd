//! Ceph's programs: the installed packages or a build of the user's, run as tools or started as daemons.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use carmine_topology::{CpuList, OsdRow, Topology};
use carmine_types::OsdId;
use serde::{Deserialize, Serialize};

use crate::error::{Result, failed, refuse, usage};
use crate::files::last_lines;
use crate::folder::{Daemon, Layout};
use crate::plan::{Plan, check_bytes};
use crate::process::{logged, run_tool, spawn_on};
use crate::spec::{Wish, parse_path};

/// A tool answers within this, or its monitor or disk is stuck. A mkfs on a busy disk takes the longest.
const LIMIT: Duration = Duration::from_secs(120);
/// Lines of its errors that are quoted.
const TAIL_LINES: usize = 4;
/// Upstream's packages set this beside tcmalloc: 128 MiB of caches of its threads.
const THREAD_CACHE: (&str, &str) = ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "134217728");
/// This is in a program that is linked with tcmalloc.
const TCMALLOC_MARK: &[u8] = b"libtcmalloc";
/// tcmalloc as Debian's libgoogle-perftools4 names it.
const TCMALLOC: &str = "libtcmalloc.so.4";
/// Debian's folders of shared libraries.
const LIBRARY_FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
/// Where Debian puts programs, for a `PATH` without them.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/bin", "/usr/sbin"];
/// Programs and the Debian packages that have them.
const PACKAGES: [(&str, &str); 4] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("ceph", "ceph-common"),
    ("monmaptool", "ceph-base"),
];

/// Which OSD it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// `ceph-osd`, threads and queues.
    Classic,
    /// `crimson-osd`, a Seastar reactor per core.
    Crimson,
}

/// Ceph's programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// By their names; that of `ceph-osd` may be Crimson's.
    pub(super) paths: BTreeMap<&'static str, PathBuf>,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Shared libraries and plugins of a build.
    pub(super) lib: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs of `build` (a folder with `bin/`), or the installed ones.
    ///
    /// # Errors
    /// Some are missing: the text has the line that installs them.
    pub fn find(build: Option<&Path>) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = match build {
            Some(folder) => vec![folder.join("bin")],
            None => std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from)).collect(),
        };
        let find = |program: &str| folders.iter().map(|dir| dir.join(program)).find(|file| file.is_file());
        let crimson = build.and_then(|_| find("crimson-osd"));
        let flavour = if crimson.is_some() { Flavour::Crimson } else { Flavour::Classic };
        let path_of = |program| crimson.clone().filter(|_| program == "ceph-osd").or_else(|| find(program));
        let paths = PACKAGES.iter().filter_map(|(program, _)| Some((*program, path_of(program)?)));
        let paths: BTreeMap<_, _> = paths.collect();
        let missing = PACKAGES.iter().filter(|(program, _)| !paths.contains_key(program)).copied();
        let (programs, packages): (Vec<&str>, Vec<&str>) = missing.unzip();
        refuse!(
            build.is_some() && !programs.is_empty(),
            "--peer-build {}: there is no bin/{} in it; name the build folder of a Ceph tree",
            build.unwrap_or(Path::new("")).display(),
            programs.join(", bin/")
        );
        refuse!(
            !packages.is_empty(),
            "the peer needs Ceph's own programs; as root run:  apt-get install -y --no-install-recommends {} \
             (and libgoogle-perftools4, the allocator that Debian's build lacks), or name a build with --peer-build",
            packages.join(" ")
        );
        Ok(Self { paths, flavour, lib: build.map(|folder| folder.join("lib")) })
    }

    /// The path of a program.
    pub(super) fn at(&self, program: &str) -> &Path {
        &self.paths[program]
    }

    /// The version line of the OSD.
    ///
    /// # Errors
    /// It does not run.
    pub fn version(&self) -> Result<String> {
        let mut tool = self.tool(self.at("ceph-osd"));
        tool.arg("--version");
        Ok(run(tool, None)?.lines().next().unwrap_or_default().trim().to_owned())
    }

    /// A command with the libraries of the build.
    pub(super) fn tool(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(lib) = &self.lib {
            command.env("LD_LIBRARY_PATH", lib).env("PYTHONPATH", lib.join("cython_modules/lib.3"));
        }
        command.current_dir("/");
        command
    }

    /// Starts a daemon in the foreground (the process that is started is the one that is recorded), confined to its CPUs:
    /// the monitor to the clients'.
    pub(super) fn launch(
        &self,
        layout: &Layout,
        plan: &Plan,
        allocator: &Allocator,
        daemon: Daemon,
    ) -> Result<Child> {
        let (program, id, cpus) = match daemon {
            Daemon::Mon => (self.at("ceph-mon"), "a".to_owned(), plan.grid.system_cpus().to_vec()),
            Daemon::Osd(id) => (self.at("ceph-osd"), id.0.to_string(), plan.osd_cpus(id)),
        };
        let mut command = logged(program, &layout.log(daemon))?;
        command.args(["-f", "-i", &id, "-c"]).arg(layout.ceph_conf()).env_remove("CEPH_ARGS");
        command.envs(self.lib.iter().map(|lib| ("LD_LIBRARY_PATH", lib)));
        if let (Some(library), Daemon::Osd(_)) = (&allocator.preload, daemon) {
            command.env("LD_PRELOAD", library).env(THREAD_CACHE.0, THREAD_CACHE.1);
        }
        // A group of its own: Ctrl-C in the terminal does not reach it.
        spawn_on(command.current_dir(layout.run_dir()).process_group(0), &cpus)
    }
}

/// Runs a tool, with all that it starts; its standard output. It is ended when `cancel` is set.
///
/// # Errors
/// It does not start, fails (with what it said), takes too long, or was interrupted.
pub(super) fn run(tool: Command, cancel: Option<&AtomicBool>) -> Result<String> {
    let name = tool.get_program().display().to_string();
    let mut out = String::new();
    match run_tool(tool, LIMIT, cancel, &mut |line| out += &(line + "\n"))? {
        None => Ok(out),
        Some((how, said)) => {
            Err(failed!("{name} failed: {how}: {}", last_lines(&said, TAIL_LINES).replace('\n', "; ")))
        }
    }
}

/// The OSDs' memory allocator: Debian builds Ceph without tcmalloc, which upstream's packages have.
#[derive(Clone, Debug, Serialize)]
pub struct Allocator {
    /// `tcmalloc (preloaded)`, `tcmalloc (linked)`, or `libc`.
    pub name: String,
    /// The library that is preloaded.
    pub preload: Option<PathBuf>,
    /// Advice for people; empty if nothing is to be done.
    pub advice: String,
}

impl Allocator {
    /// How `programs`' OSD allocates: linked, preloaded, or the C library's.
    pub fn of(programs: &Programs) -> Self {
        let linked = std::fs::read(programs.at("ceph-osd"))
            .is_ok_and(|bytes| bytes.windows(TCMALLOC_MARK.len()).any(|word| word == TCMALLOC_MARK));
        let libraries = LIBRARY_FOLDERS.map(|folder| Path::new(folder).join(TCMALLOC));
        Self::choose(linked, libraries.into_iter().find(|file| file.is_file()))
    }

    fn choose(linked: bool, library: Option<PathBuf>) -> Self {
        let (name, preload, advice) = match (linked, library) {
            (true, _) => ("tcmalloc (linked)", None, ""),
            (false, Some(library)) => ("tcmalloc (preloaded)", Some(library), ""),
            (false, None) => (
                "libc",
                None,
                "this ceph-osd has no tcmalloc, which makes it slower than upstream's builds; as root run:  \
                 apt-get install -y --no-install-recommends libgoogle-perftools4",
            ),
        };
        Self { name: name.into(), preload, advice: advice.into() }
    }
}

// The plan of a peer: that of a testbed, whose reactors are the OSDs' cores, and what only Ceph has.

const OSDS_MAX: u32 = 64;
/// BlueStore refuses to make a file system in less.
const OSD_SIZE_MIN_BYTES: u64 = 512 << 20;
const OSD_MEMORY_DEFAULT_BYTES: u64 = 4 << 30;
/// Ceph's own lower limit of `osd_memory_target`.
const OSD_MEMORY_MIN_BYTES: u64 = 896 << 20;

/// The options of `peer up` that `up` does not have.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct PeerWish {
    /// Folder of a Ceph build (with bin/ and lib/), classic or Crimson, instead of the installed packages
    #[arg(long = "peer-build", value_name = "FOLDER", value_parser = parse_path, help_heading = "Cluster")]
    pub build: Option<PathBuf>,
    /// Settings for solid-state drives, op shards and threads that fit the cores, no debug logs; say it at each `up`
    #[arg(long, help_heading = "Settings")]
    pub tuned: bool,
    /// A setting of the OSDs by Ceph's name, which overrides the profile's; repeatable; say them at each `up`
    #[arg(long = "opt", value_name = "NAME=VALUE", value_parser = parse_option, help_heading = "Settings")]
    pub options: Vec<(String, String)>,
}

/// The part of a plan that only a peer has.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerPlan {
    /// Version line of `ceph-osd`.
    pub version: String,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Folder of the build; the installed packages when absent.
    pub build: Option<PathBuf>,
    /// SSD settings, shards and threads fitted to the cores.
    pub tuned: bool,
    /// A flush of the drive waits for its medium; found out at every start.
    pub dear_flush: bool,
    /// Settings of the OSDs that were asked for, by Ceph's names.
    pub options: BTreeMap<String, String>,
}

/// The settings that are asked for, with a reactor for each core that an OSD gets of `cpus`.
fn divided(wish: &Wish, osds: u32, cpus: Option<&CpuList>) -> Wish {
    let given = cpus.map_or(0, CpuList::len);
    let cores = u16::try_from(given / (osds as usize).max(1)).unwrap_or(u16::MAX);
    Wish { reactors: Some(cores.max(1)), ..wish.clone() }
}

impl PeerPlan {
    /// `stock` or `tuned`.
    pub fn profile(&self) -> &'static str {
        if self.tuned { "tuned" } else { "stock" }
    }
}

impl Plan {
    /// Plans a new peer.
    ///
    /// # Errors
    /// An option that does not fit, by its name.
    pub fn new_peer(
        wish: &Wish,
        own: &PeerWish,
        topology: &Topology,
        fsid: &str,
        version: String,
        flavour: Flavour,
    ) -> Result<Self> {
        let osds = wish.osds.unwrap_or(1);
        refuse!(osds > OSDS_MAX, "--osds {osds}: take 1 to {OSDS_MAX}");
        let memory = wish.osd_memory_bytes.unwrap_or(OSD_MEMORY_DEFAULT_BYTES);
        let wish = Wish { osd_memory_bytes: Some(memory), ..divided(wish, osds, wish.osd_cpus.as_ref()) };
        let plan = Plan::new(&wish, topology, fsid)?;
        check_bytes("--osd-size", plan.osd_size_bytes, OSD_SIZE_MIN_BYTES)?;
        check_bytes("--osd-memory", plan.osd_memory_bytes, OSD_MEMORY_MIN_BYTES)?;
        let (build, tuned, options) = (own.build.clone(), own.tuned, own.options.iter().cloned().collect());
        let peer = PeerPlan { version, flavour, build, tuned, dear_flush: false, options };
        Ok(Self { peer: Some(peer), ..plan })
    }

    /// A peer's plan for the next start: CPU lists and memory stay unless given, the settings (`--tuned`, `--opt`) and the version
    /// are taken anew; what the data depends on may not differ.
    ///
    /// # Errors
    /// An option that does not fit or may not change, by its name.
    pub fn revise_peer(
        &self,
        wish: &Wish,
        own: &PeerWish,
        topology: &Topology,
        version: String,
    ) -> Result<Self> {
        let peer = self.peer()?;
        if let Some(build) = own.build.as_ref().filter(|build| peer.build.as_ref() != Some(*build)) {
            let (new, old) = (build.display(), peer.build.as_ref().map(|old| old.display().to_string()));
            let old = old.unwrap_or_else(|| "the installed packages".into());
            return Err(usage!("--peer-build {new}: this peer was made with {old}; leave the option out"));
        }
        let cpus = wish.osd_cpus.as_ref().or(self.osd_cpus.as_ref());
        let plan = self.revise(&divided(wish, self.osds(), cpus), topology)?;
        check_bytes("--osd-memory", plan.osd_memory_bytes, OSD_MEMORY_MIN_BYTES)?;
        let (tuned, options) = (own.tuned, own.options.iter().cloned().collect());
        Ok(Self { peer: Some(PeerPlan { version, tuned, options, ..peer.clone() }), ..plan })
    }

    /// The part that only a peer has.
    ///
    /// # Errors
    /// This is no peer's plan.
    pub fn peer(&self) -> Result<&PeerPlan> {
        self.peer.as_ref().ok_or_else(|| failed!("this is not the plan of a peer"))
    }

    /// CPUs that a peer's OSD is confined to.
    pub fn osd_cpus(&self, osd: OsdId) -> Vec<usize> {
        self.row(osd).map(OsdRow::reactor_cpus).unwrap_or_default()
    }
}

/// It goes into `ceph.conf` as one line: it must not be able to add another.
fn parse_option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let (name, value) = (name.trim(), value.trim());
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name || value.chars().any(char::is_control) {
        return Err("write a setting as NAME=VALUE on one line, such as osd_op_num_shards=4".into());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    fn build(programs: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        programs.iter().for_each(|p| std::fs::write(dir.path().join("bin").join(p), "").unwrap());
        dir
    }

    #[test]
    fn a_build_with_crimson_is_crimson() {
        let dir = build(&["ceph-mon", "ceph-osd", "crimson-osd", "ceph", "monmaptool"]);
        let programs = Programs::find(Some(dir.path())).unwrap();
        assert_eq!(
            (programs.flavour, programs.at("ceph-osd")),
            (Flavour::Crimson, &*dir.path().join("bin/crimson-osd"))
        );
    }

    #[test]
    fn an_incomplete_build_is_told() {
        let dir = build(&["ceph-mon", "ceph"]);
        let error = Programs::find(Some(dir.path())).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("no bin/ceph-osd"), "{error}");
    }

    fn shell(script: &str, cancel: Option<&AtomicBool>) -> Result<String> {
        let mut tool = Command::new("/bin/sh");
        tool.args(["-c", script]);
        run(tool, cancel)
    }

    #[test]
    fn a_tool_tells_what_it_said() {
        assert_eq!(shell("echo yes", None).unwrap(), "yes\n");
        let error = shell("echo no space >&2; exit 3", None).unwrap_err().to_string();
        assert!(error.contains("no space") && error.contains('3'), "{error}");
    }

    #[test]
    fn an_interrupted_tool_is_ended() {
        let cancel = AtomicBool::new(false);
        let begin = Instant::now();
        let error = std::thread::scope(|scope| {
            // The tool has started a child of its own by then.
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                cancel.store(true, Ordering::Relaxed);
            });
            shell("sleep 60; true", Some(&cancel)).unwrap_err()
        });
        assert!(error.to_string().contains("interrupted") && begin.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_linked_one_needs_no_preload_and_none_is_said() {
        let library = PathBuf::from("/x/libtcmalloc.so.4");
        assert_eq!(Allocator::choose(true, Some(library.clone())).preload, None);
        assert_eq!(Allocator::choose(false, Some(library.clone())).preload, Some(library));
        let none = Allocator::choose(false, None);
        assert!(none.name == "libc" && none.advice.contains("libgoogle-perftools4"));
    }
}

#[cfg(test)]
mod plan_tests {
    use super::*;

    fn machine() -> Topology {
        Topology::from_short("1x8x1").expect("a shape")
    }

    fn list(text: &str) -> Option<CpuList> {
        Some(text.parse().expect("a CPU list"))
    }

    fn plan(wish: &Wish, own: &PeerWish) -> Result<Plan> {
        Plan::new_peer(wish, own, &machine(), "id", "16.2".into(), Flavour::Classic)
    }

    #[test]
    fn cores_are_divided_evenly_among_the_osds() {
        let client_cpus = "6,7".parse().ok();
        let wish = Wish { osds: Some(2), osd_cpus: list("0-5"), client_cpus, ..Wish::default() };
        let plan = plan(&wish, &PeerWish::default()).unwrap();
        assert_eq!(
            (plan.cpu.reactors, plan.osd_cpus(OsdId(0)), plan.osd_cpus(OsdId(1))),
            (3, vec![0, 1, 2], vec![3, 4, 5])
        );
        assert_eq!(
            (plan.pool.size, plan.pool.pg_num, plan.grid.client_cpus().to_string()),
            (2, 128, "6-7".to_owned())
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        type Change = fn(&mut Wish);
        let cases: [(&str, Change); 6] = [
            ("--osds 0", |w| w.osds = Some(0)),
            ("--size 2", |w| w.pool_size = Some(2)),
            ("--pgs 33", |w| w.pgs = Some(33)),
            ("--devs names 2", |w| w.devices = Some(vec!["/dev/a".into(), "/dev/b".into()])),
            ("--osd-size 256M", |w| w.osd_size_bytes = Some(256 << 20)),
            ("--osd-memory 1M", |w| w.osd_memory_bytes = Some(1 << 20)),
        ];
        for (part, change) in cases {
            let mut wish = Wish::default();
            change(&mut wish);
            let error = plan(&wish, &PeerWish::default()).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_restart_changes_cpus_and_settings_but_not_the_data() {
        let options = [("osd_op_num_shards".to_owned(), "2".to_owned())].into();
        let (none, own) = (PeerWish::default(), PeerWish { tuned: true, options, ..PeerWish::default() });
        let cpus = |text| Wish { osd_cpus: list(text), ..Wish::default() };
        let made = plan(&cpus("0"), &own).unwrap();
        let revise = |made: &Plan, wish: Wish| made.revise_peer(&wish, &none, &machine(), "17.1".into());
        let next = revise(&made, cpus("0-3")).unwrap();
        let peer = next.peer().unwrap();
        assert_eq!((next.cpu.reactors, peer.tuned, peer.options.len()), (4, false, 0));
        assert_eq!((made.peer().unwrap().version.as_str(), peer.version.as_str()), ("16.2", "17.1"));
        // Fields that only Carmine has are not written, and not missed.
        let json = serde_json::to_value(&made).unwrap();
        assert!(
            json["osds"] == 1 && ["store", "poll", "tuning"].iter().all(|name| json.get(*name).is_none()),
            "{json}"
        );
        assert_eq!((&json["version"], &json["options"]["osd_op_num_shards"]), (&"16.2".into(), &"2".into()));
        let made: Plan = serde_json::from_value(json).unwrap();
        let same = revise(&made, Wish::default()).unwrap();
        assert_eq!(same.osd_cpus(OsdId(0)), [0]);
        let refused = revise(&made, Wish { pgs: Some(64), ..Wish::default() });
        assert!(refused.unwrap_err().to_string().contains("--pgs 64: this peer was made with 128"));
    }

    #[test]
    fn settings() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_option("osd_op_num_shards=4"), pair("osd_op_num_shards", "4"));
        assert_eq!(parse_option("a=b=c"), pair("a", "b=c"));
        for text in ["=4", "a", "a=1\n[mon]", "osd op=1", "a\n[mon]=1", ""] {
            assert!(parse_option(text).is_err(), "{text}");
        }
    }
}
