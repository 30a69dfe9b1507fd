//! A real monitor: `ceph-mon`, alone in its cluster and without authentication.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Programs, programs};
use crate::daemons::Daemons;
use crate::error::{Result, failed};
use crate::layout::{Daemon, Layout};
use crate::peer::has_state;
use crate::plan::Plan;
use crate::testbed::{Event, StartOptions};

/// A monitor alone starts within a second or two, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at it while it starts.
const PAUSE: Duration = Duration::from_millis(50);

/// The monitor of a folder, and the tools that talk to it.
pub(crate) struct CephMon<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) plan: &'a Plan,
    pub(crate) programs: &'a Programs,
    pub(crate) cancel: &'a AtomicBool,
}

impl CephMon<'_> {
    /// Makes its store.
    ///
    /// # Errors
    /// A program fails; the text has what it said.
    pub(crate) fn make(&self) -> Result<()> {
        self.write_monmap()?;
        self.run_mon(&["--mkfs", "-i", "a", "--monmap"])
    }

    /// Tells the stopped monitor the port of the plan.
    ///
    /// # Errors
    /// As [`CephMon::make`].
    pub(crate) fn change_port(&self) -> Result<()> {
        self.write_monmap()?;
        self.run_mon(&["-i", "a", "--inject-monmap"])
    }

    /// Starts it, and waits until it leads.
    ///
    /// # Errors
    /// It has ended (the text quotes its log), does not lead in time, or the start is cancelled.
    pub(crate) fn start(&self, daemons: &mut Daemons, start: &mut StartOptions<'_>) -> Result<()> {
        daemons.adopt(Daemon::Mon, self.programs.launch(self.layout, self.plan, None, Daemon::Mon)?)?;
        (start.events)(Event::Started(Daemon::Mon));
        let missing = || (!mon_leads(self.layout)).then(|| "the monitor".into());
        daemons.wait(missing, Daemon::Mon, Instant::now() + LIMIT, PAUSE, start)
    }

    /// Runs one of Ceph's programs on the folder's configuration; returns its standard output.
    ///
    /// # Errors
    /// It fails (with what it said), takes too long, or the start is cancelled.
    pub(crate) fn run(&self, program: &Path, words: &[&str], files: &[PathBuf]) -> Result<String> {
        let mut tool = self.programs.tool(program);
        // Making a store is a short life of the daemon, with an admin socket.
        tool.current_dir(self.layout.run_dir())
            .arg("-c")
            .arg(self.layout.ceph_conf())
            .args(words)
            .args(files);
        programs::run(tool, Some(self.cancel))
    }

    /// Runs the monitor's program on the monitor map.
    fn run_mon(&self, words: &[&str]) -> Result<()> {
        self.run(self.programs.at("ceph-mon"), words, &[self.layout.monmap()]).map(drop)
    }

    fn write_monmap(&self) -> Result<()> {
        let addr = format!("[v2:{}]", SocketAddr::new(self.plan.addr.ip(), self.plan.mon_port));
        let mut tool = self.programs.tool(self.programs.at("monmaptool"));
        tool.args(["--create", "--clobber", "--fsid", &self.plan.fsid, "--addv", "a", &addr])
            .args(["--set-min-mon-release", "pacific"])
            .arg(self.layout.monmap());
        programs::run(tool, Some(self.cancel)).map(drop)
    }
}

/// True if the folder's monitor leads.
pub(crate) fn mon_leads(layout: &Layout) -> bool {
    has_state(layout, Daemon::Mon, &json!({"prefix": "mon_status"}), "leader")
}

/// This port of loopback if nobody listens on it now; for 0, any free one.
pub(crate) fn free_port(port: u16) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr());
    Ok(listener.map_err(|e| failed!("cannot find a free port on 127.0.0.1: {e}"))?.port())
}
