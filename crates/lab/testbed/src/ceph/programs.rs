//! Ceph's programs: the installed packages or a build of the user's, run as tools or started as daemons.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Result, failed, refuse};
use crate::files::last_lines;
use crate::layout::{Daemon, Layout, mon_name};
use crate::network;
use crate::plan::Plan;
use crate::process::{logged, run_tool, spawn_on};

/// A tool that takes longer has a stuck monitor or disk. A mkfs on a busy disk takes the longest.
const LIMIT: Duration = Duration::from_secs(120);
/// Lines of its errors that are quoted.
const TAIL_LINES: usize = 4;
/// Upstream's packages set this for tcmalloc: 128 MiB for the caches of its threads.
const THREAD_CACHE: (&str, &str) = ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "134217728");
/// A program that is linked with tcmalloc contains this text.
const TCMALLOC_MARK: &[u8] = b"libtcmalloc";
/// tcmalloc as Debian's libgoogle-perftools4 names it.
const TCMALLOC: &str = "libtcmalloc.so.4";
/// Debian's folders of shared libraries.
const LIBRARY_FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
/// Where Debian puts programs, for a `PATH` without them.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/bin", "/usr/sbin"];
/// Programs of a peer and the Debian packages that have them.
const OF_PEER: [(&str, &str); 4] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("ceph", "ceph-common"),
    ("monmaptool", "ceph-base"),
];
/// Those of a real monitor under Carmine's OSDs.
const OF_MON: [(&str, &str); 3] =
    [("ceph-mon", "ceph-mon"), ("ceph-mgr", "ceph-mgr"), ("monmaptool", "ceph-base")];

/// The kind of OSD.
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
    pub(crate) paths: BTreeMap<&'static str, PathBuf>,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Shared libraries and plugins of a build.
    pub(crate) lib: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs of `build` (a folder with `bin/`), or the installed ones.
    ///
    /// # Errors
    /// Some are missing: the text has the line that installs them.
    pub fn find(build: Option<&Path>) -> Result<Self> {
        Self::find_all(build, &OF_PEER)
    }

    /// Finds the installed programs of a monitor.
    ///
    /// # Errors
    /// As [`Programs::find`].
    pub(crate) fn find_mon() -> Result<Self> {
        Self::find_all(None, &OF_MON)
    }

    fn find_all(build: Option<&Path>, packages: &[(&'static str, &str)]) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = match build {
            Some(folder) => vec![folder.join("bin")],
            None => std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from)).collect(),
        };
        let find = |program: &str| folders.iter().map(|dir| dir.join(program)).find(|file| file.is_file());
        let crimson = build.and_then(|_| find("crimson-osd"));
        let flavour = if crimson.is_some() { Flavour::Crimson } else { Flavour::Classic };
        let path_of = |program| crimson.clone().filter(|_| program == "ceph-osd").or_else(|| find(program));
        let paths = packages.iter().filter_map(|(program, _)| Some((*program, path_of(program)?)));
        let paths: BTreeMap<_, _> = paths.collect();
        let missing = packages.iter().filter(|(program, _)| !paths.contains_key(program)).copied();
        let (programs, packages): (Vec<&str>, Vec<&str>) = missing.unzip();
        refuse!(
            build.is_some() && !programs.is_empty(),
            "--peer-build {}: there is no bin/{} in it; name the build folder of a Ceph tree",
            build.unwrap_or(Path::new("")).display(),
            programs.join(", bin/")
        );
        refuse!(
            !packages.is_empty(),
            "this needs Ceph's own programs; as root run:  apt-get install -y --no-install-recommends {} \
             (for a peer also libgoogle-perftools4, the allocator that Debian's build lacks; or name a build with --peer-build)",
            packages.join(" ")
        );
        Ok(Self { paths, flavour, lib: build.map(|folder| folder.join("lib")) })
    }

    /// The path of a program.
    pub(crate) fn at(&self, program: &str) -> &Path {
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
    pub(crate) fn tool(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(lib) = &self.lib {
            command.env("LD_LIBRARY_PATH", lib).env("PYTHONPATH", lib.join("cython_modules/lib.3"));
        }
        command.current_dir("/");
        command
    }

    /// Starts a daemon in the foreground (the process that is started is the one that is recorded), confined to its CPUs:
    /// monitors and the manager to the clients'. OSDs have this allocator.
    pub(crate) fn launch(
        &self,
        layout: &Layout,
        plan: &Plan,
        allocator: Option<&Allocator>,
        daemon: Daemon,
    ) -> Result<Child> {
        let cpus = match daemon {
            Daemon::Mon(_) | Daemon::Mgr => plan.grid.system_cpus().to_vec(),
            Daemon::Osd(id) => plan.osd_cpus(id),
        };
        let (program, words) = line_of(layout, daemon);
        let mut command = logged(self.at(program), &layout.log(daemon))?;
        command.args(words).env_remove("CEPH_ARGS");
        command.envs(self.lib.iter().map(|lib| ("LD_LIBRARY_PATH", lib)));
        if let Some(library) = allocator.and_then(|allocator| allocator.preload.as_ref()) {
            command.env("LD_PRELOAD", library).env(THREAD_CACHE.0, THREAD_CACHE.1);
        }
        // A group of its own: Ctrl-C in the terminal does not reach it.
        command.current_dir(layout.run_dir()).process_group(0);
        network::within(plan, daemon, || spawn_on(&mut command, &cpus))
    }
}

/// The program of one of Ceph's daemons, and its command line after that.
pub(crate) fn line_of(layout: &Layout, daemon: Daemon) -> (&'static str, Vec<OsString>) {
    let (program, id) = match daemon {
        Daemon::Mon(mon) => ("ceph-mon", mon_name(mon).to_string()),
        Daemon::Mgr => ("ceph-mgr", "x".to_owned()),
        Daemon::Osd(id) => ("ceph-osd", id.0.to_string()),
    };
    (program, vec!["-f".into(), "-i".into(), id.into(), "-c".into(), layout.ceph_conf().into()])
}

/// Runs a tool, with all that it starts, and returns its standard output. It is ended when `cancel` is set.
///
/// # Errors
/// It does not start, fails (with what it said), takes too long, or was interrupted.
pub(crate) fn run(tool: Command, cancel: Option<&AtomicBool>) -> Result<String> {
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
    /// Detects how `programs`' OSD allocates: linked, preloaded, or the C library's.
    pub fn detect(programs: &Programs) -> Self {
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
        assert!(error.to_string().contains("interrupted") && begin.elapsed() < Duration::from_secs(50));
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
