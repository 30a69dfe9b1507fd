//! Real monitors: one `ceph-mon` or several.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use carmine_types::AuthKind;
use serde_json::json;

use super::{Programs, programs};
use crate::daemons::Daemons;
use crate::error::{Result, failed};
use crate::layout::{Daemon, Layout, mon_name};
use crate::peer::ask;
use crate::plan::Plan;
use crate::testbed::{Event, StartOptions};

/// A monitor alone starts within a second or two, even on a busy machine; several elect a leader within seconds.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at them while they start.
const PAUSE: Duration = Duration::from_millis(50);
/// Port of a monitor that has an address of its own: the usual one.
const OWN_PORT: u16 = 3300;
/// State of the monitor of a quorum that leads it, and of the others.
pub(crate) const LEADER: &str = "leader";
const PEON: &str = "peon";

/// The monitors of a folder, and the tools that talk to them.
pub(crate) struct CephMons<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) plan: &'a Plan,
    pub(crate) programs: &'a Programs,
    pub(crate) cancel: &'a AtomicBool,
}

impl CephMons<'_> {
    /// Makes their stores.
    ///
    /// # Errors
    /// A program fails; the text has what it said.
    pub(crate) fn make(&self) -> Result<()> {
        let keyring = self.layout.mon_keyring().display().to_string();
        let keys = ["--keyring", &keyring];
        let keys = if self.plan.auth == AuthKind::Cephx { &keys[..] } else { &[] };
        self.give_monmap(&[keys, &["--mkfs", "--monmap"]].concat())
    }

    /// Tells the stopped monitors the ports of the plan.
    ///
    /// # Errors
    /// As [`CephMons::make`].
    pub(crate) fn change_ports(&self) -> Result<()> {
        self.give_monmap(&["--inject-monmap"])
    }

    /// Starts these monitors, and waits until each is in the quorum.
    ///
    /// # Errors
    /// One has ended (the text quotes its log) or is not in the quorum in time, or the start is cancelled.
    pub(crate) fn start(
        &self,
        mons: &[u8],
        daemons: &mut Daemons,
        start: &mut StartOptions<'_>,
    ) -> Result<()> {
        for mon in mons.iter().copied().map(Daemon::Mon) {
            daemons.adopt(mon, self.programs.launch(self.layout, self.plan, None, mon)?)?;
            (start.events)(Event::Started(mon));
        }
        let end = Instant::now() + LIMIT;
        for mon in mons {
            let missing = || (!is_in_quorum(self.layout, *mon)).then(|| self.name(*mon));
            daemons.wait(missing, Daemon::Mon(*mon), end, PAUSE, start)?;
        }
        Ok(())
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

    /// A monitor, for people.
    fn name(&self, mon: u8) -> String {
        if self.plan.mons == 1 {
            "the monitor".into()
        } else {
            format!("{} to be in the quorum", Daemon::Mon(mon))
        }
    }

    /// Writes the monitor map, and runs the program of each monitor with it: the file's name is the last word.
    fn give_monmap(&self, words: &[&str]) -> Result<()> {
        self.write_monmap()?;
        self.plan.mon_numbers().try_for_each(|mon| {
            let name = mon_name(mon).to_string();
            let words = [&["-i", &name], words].concat();
            self.run(self.programs.at("ceph-mon"), &words, &[self.layout.monmap()]).map(drop)
        })
    }

    fn write_monmap(&self) -> Result<()> {
        let mut tool = self.programs.tool(self.programs.at("monmaptool"));
        tool.args(["--create", "--clobber", "--fsid", &self.plan.fsid]);
        for mon in self.plan.mon_numbers() {
            let addr = format!("[v2:{}]", self.plan.mon_addr(mon));
            tool.args(["--addv", &mon_name(mon).to_string(), &addr]);
        }
        tool.args(["--set-min-mon-release", "pacific"]).arg(self.layout.monmap());
        programs::run(tool, Some(self.cancel)).map(drop)
    }
}

/// What a monitor says it is: `leader`, `peon`, `probing`, `electing`, …; `None` if it says nothing.
pub(crate) fn mon_state(layout: &Layout, mon: u8) -> Option<String> {
    let status = ask(layout, Daemon::Mon(mon), &json!({"prefix": "mon_status"})).ok()?;
    status["state"].as_str().map(str::to_owned)
}

/// True for the state of a monitor that is in the quorum.
pub(crate) fn is_of_quorum(state: &str) -> bool {
    [LEADER, PEON].contains(&state)
}

fn is_in_quorum(layout: &Layout, mon: u8) -> bool {
    mon_state(layout, mon).is_some_and(|state| is_of_quorum(&state))
}

/// Gives each monitor of a plan the port that it had if nobody listens there now, else another one; true if one is new.
/// With an address of its own each has the same.
///
/// # Errors
/// No port is free.
pub(crate) fn choose_ports(plan: &mut Plan) -> Result<bool> {
    if plan.namespaces {
        return Ok(plan.set_mon_ports(&vec![OWN_PORT; plan.mons.into()]));
    }
    let ip = plan.addr.ip();
    // All are held until the last is chosen, so that none is chosen twice.
    let mut held = Vec::new();
    for mon in plan.mon_numbers() {
        let any = SocketAddr::new(ip, if mon == 0 { plan.addr.port() } else { 0 });
        let last = Some(plan.mon_addr(mon)).filter(|addr| addr.port() > 0).unwrap_or(any);
        let listener = TcpListener::bind(last).or_else(|_| TcpListener::bind(any));
        held.push(listener.map_err(|e| failed!("cannot find a free port on {ip}: {e}"))?);
    }
    let ports = held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<Result<Vec<_>>>()?;
    Ok(plan.set_mon_ports(&ports))
}
