//! Starting Ceph's daemons, each confined to its CPUs.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use carmine_testbed::process::restrict_to;
use carmine_testbed::{Daemon, Daemons, Layout, Result, TestbedError};
use carmine_types::OsdId;

use crate::allocator::Allocator;
use crate::plan::PeerPlan;
use crate::programs::Programs;

/// What upstream's packages set beside tcmalloc: 128 MiB of caches of its threads.
const THREAD_CACHE: (&str, &str) = ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "134217728");

/// What daemons are started from.
pub(crate) struct Launch<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) plan: &'a PeerPlan,
    pub(crate) programs: &'a Programs,
    pub(crate) allocator: &'a Allocator,
}

impl Launch<'_> {
    /// Starts the monitor on the client CPUs.
    pub(crate) fn mon(&self, daemons: &mut Daemons) -> Result<()> {
        let mut command = self.command(&self.programs.mon, "a");
        self.go(&mut command, Daemon::Mon, &self.plan.client_cpus().to_vec(), daemons)
    }

    /// Starts an OSD on its CPUs.
    pub(crate) fn osd(&self, id: u32, daemons: &mut Daemons) -> Result<()> {
        let mut command = self.command(&self.programs.osd, &id.to_string());
        if let Some(library) = &self.allocator.preload {
            command.env("LD_PRELOAD", library).env(THREAD_CACHE.0, THREAD_CACHE.1);
        }
        self.go(&mut command, Daemon::Osd(OsdId(id)), &self.plan.osd_cpus(id), daemons)
    }

    /// In the foreground: the process that is started is the one that is recorded.
    fn command(&self, program: &Path, id: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-f", "-i", id, "-c"]).arg(self.layout.ceph_conf()).env_remove("CEPH_ARGS");
        if let Some(lib) = &self.programs.lib {
            command.env("LD_LIBRARY_PATH", lib);
        }
        command
    }

    fn go(&self, command: &mut Command, daemon: Daemon, cpus: &[usize], daemons: &mut Daemons) -> Result<()> {
        let log = self.layout.log(daemon);
        let out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(TestbedError::io("open", &log))?;
        let err = out.try_clone().map_err(TestbedError::io("open", &log))?;
        // A group of its own: Ctrl-C in the terminal does not reach it.
        command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .current_dir(self.layout.run_dir())
            .process_group(0);
        daemons.adopt(daemon, spawn_on(command, cpus)?)
    }
}

/// Starts a command confined to `cpus`: a child inherits the affinity of the thread that starts it, so a thread of its
/// own is confined for it.
///
/// # Errors
/// The CPUs may not be used, or the program does not start.
pub fn spawn_on(command: &mut Command, cpus: &[usize]) -> Result<Child> {
    let program = Path::new(command.get_program()).to_path_buf();
    let start = || {
        restrict_to(cpus)?;
        command.spawn().map_err(TestbedError::io("start", &program))
    };
    std::thread::scope(|scope| scope.spawn(start).join())
        .unwrap_or_else(|_| Err(TestbedError::Failed(format!("cannot start {}", program.display()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_confined_and_its_parent_is_not() {
        let before = std::thread::available_parallelism().unwrap();
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).stdout(Stdio::piped());
        let said = spawn_on(&mut command, &[0]).unwrap().wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout).split_whitespace().last(), Some("0"));
        assert_eq!(std::thread::available_parallelism().unwrap(), before);
    }
}
