//! A peer: a folder with a plan, and the Ceph daemons that run by it.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use carmine_testbed::output::json_text;
use carmine_testbed::process::ProcessId;
use carmine_testbed::{
    Daemon, Daemons, Event, FolderLock, Layout, NewFolder, Result, StartOptions, Stopped, TestbedError,
    daemons_of, read_plan, remove_dir, remove_file, stop_all, write_whole,
};
use carmine_types::OsdId;

use crate::allocator::Allocator;
use crate::conf;
use crate::launch::Launch;
use crate::make::{Maker, free_port, is_free};
use crate::plan::{PEER_FORMAT, PeerPlan};
use crate::programs::Programs;
use crate::ready::Waiting;
use crate::settings::has_dear_flush;

/// A monitor alone is there within a second or two, also on a busy machine.
const MON_LIMIT: Duration = Duration::from_secs(60);

/// Where the plan is kept.
fn plan_path(layout: &Layout) -> PathBuf {
    layout.dir().join("peer.json")
}

/// Reads the plan of a folder; `None` if it holds no peer.
///
/// # Errors
/// The plan cannot be read, is damaged, or is of another version.
pub fn load_plan(layout: &Layout) -> Result<Option<PeerPlan>> {
    read_plan(&plan_path(layout), PEER_FORMAT)
}

/// Reads the plan of a folder that must hold a peer.
///
/// # Errors
/// As [`load_plan`], and if there is none.
pub fn require_plan(layout: &Layout) -> Result<PeerPlan> {
    load_plan(layout)?.ok_or_else(|| {
        let dir = layout.dir().display();
        TestbedError::Usage(format!(
            "there is no peer in {dir}: start one with `carmine peer up --dir {dir}`"
        ))
    })
}

/// Address of the monitor of a plan.
pub fn monitor(plan: &PeerPlan) -> std::net::SocketAddr {
    (std::net::Ipv4Addr::LOCALHOST, plan.mon_port).into()
}

fn alive(layout: &Layout, daemon: Daemon) -> Result<bool> {
    Ok(ProcessId::load(&layout.pid_file(daemon))?.is_some_and(|id| id.alive()))
}

/// A peer whose folder this command has locked.
#[derive(Debug)]
pub struct Peer {
    layout: Layout,
    plan: PeerPlan,
    _lock: FolderLock,
}

impl Peer {
    /// Makes the stores of a new peer in an empty or absent folder; [`Peer::start`] completes it.
    ///
    /// # Errors
    /// The folder has other things in it, or a store cannot be made; what was made is removed again.
    pub fn create(
        layout: Layout,
        mut plan: PeerPlan,
        programs: &Programs,
        wipe: bool,
        start: &mut StartOptions<'_>,
    ) -> Result<Self> {
        let NewFolder { layout, lock, existed } = NewFolder::take(&layout, "peer")?;
        plan.mon_port = free_port()?;
        let peer = Self { layout, plan, _lock: lock };
        if let Err(e) = peer.fill(programs, wipe, start) {
            peer.remove_files()?;
            if !existed {
                let _ = fs::remove_dir(peer.layout.dir());
            }
            return Err(e);
        }
        Ok(peer)
    }

    fn fill(&self, programs: &Programs, wipe: bool, start: &mut StartOptions<'_>) -> Result<()> {
        self.write_plan()?;
        conf::write(&self.layout, &self.plan, programs)?;
        self.maker(programs, start.cancel).stores(wipe, start.events)
    }

    fn maker<'a>(&'a self, programs: &'a Programs, cancel: &'a AtomicBool) -> Maker<'a> {
        Maker { layout: &self.layout, plan: &self.plan, programs, cancel }
    }

    fn write_plan(&self) -> Result<()> {
        write_whole(&plan_path(&self.layout), json_text(&self.plan)?.as_bytes())
    }

    /// Opens an existing peer; `None` if the folder holds none.
    ///
    /// # Errors
    /// Another command works on it, or its plan is damaged.
    pub fn open(layout: Layout) -> Result<Option<Self>> {
        if load_plan(&layout)?.is_none() {
            return Ok(None);
        }
        let lock = FolderLock::take(&layout)?;
        let Some(plan) = load_plan(&layout)? else { return Ok(None) };
        Ok(Some(Self { layout, plan, _lock: lock }))
    }

    /// The plan.
    pub fn plan(&self) -> &PeerPlan {
        &self.plan
    }

    /// Paths of its files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes over a revised plan for the next start.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_plan(&mut self, plan: PeerPlan) -> Result<()> {
        self.plan = plan;
        self.write_plan()
    }

    /// Fails unless the peer is whole and nothing of it runs.
    ///
    /// # Errors
    /// What is in the way, and the command that removes it.
    pub fn require_stopped(&self) -> Result<()> {
        let dir = self.layout.dir().display();
        if !self.plan.complete {
            return Err(TestbedError::Failed(format!(
                "{dir}: an earlier `peer up` was interrupted while it made this peer; `carmine peer destroy --dir {dir}` \
                 removes it"
            )));
        }
        self.require_nothing_runs()
    }

    fn require_nothing_runs(&self) -> Result<()> {
        let dir = self.layout.dir().display();
        for daemon in daemons_of(self.plan.osds()) {
            if alive(&self.layout, daemon)? {
                return Err(TestbedError::Usage(format!(
                    "{daemon} of the peer in {dir} already runs; stop it first with `carmine peer down --dir {dir}`"
                )));
            }
        }
        Ok(())
    }

    /// Starts the daemons, makes what a new peer still lacks, and waits until all PGs are active and clean. If that
    /// fails, all are stopped again; a peer that was new is removed.
    ///
    /// # Errors
    /// What went wrong, with the end of the log where a daemon is to blame.
    pub fn start(&mut self, programs: &Programs, start: &mut StartOptions<'_>) -> Result<()> {
        self.require_nothing_runs()?;
        let new = !self.plan.complete;
        let started = self.start_daemons(programs, start);
        if started.is_err() && new {
            self.remove_files()?;
            // Only an empty folder goes.
            let _ = fs::remove_dir(self.layout.dir());
        }
        started.map_err(|error| match error {
            TestbedError::Failed(why) if new => {
                TestbedError::Failed(format!("{why}\n(the new peer was removed again, with its logs)"))
            }
            other => other,
        })
    }

    fn start_daemons(&mut self, programs: &Programs, start: &mut StartOptions<'_>) -> Result<()> {
        fs::create_dir_all(self.layout.run_dir())
            .map_err(TestbedError::io("create", &self.layout.run_dir()))?;
        if !is_free(self.plan.mon_port) {
            self.plan.mon_port = free_port()?;
            conf::write(&self.layout, &self.plan, programs)?;
            self.maker(programs, start.cancel).move_monitor()?;
        }
        let first = self.plan.devices.first().cloned();
        self.plan.dear_flush = has_dear_flush(&first.unwrap_or_else(|| self.layout.dir().to_path_buf()));
        conf::write(&self.layout, &self.plan, programs)?;
        self.write_plan()?;
        let mut daemons = Daemons::new(&self.layout);
        self.bring_up(programs, &mut daemons, start)?;
        self.plan.complete = true;
        self.write_plan()?;
        write_whole(&self.layout.mon_addr(), monitor(&self.plan).to_string().as_bytes())?;
        daemons.keep();
        Ok(())
    }

    fn bring_up(
        &self,
        programs: &Programs,
        daemons: &mut Daemons,
        start: &mut StartOptions<'_>,
    ) -> Result<()> {
        let (layout, plan) = (&self.layout, &self.plan);
        let launch = Launch { layout, plan, programs, allocator: &Allocator::of(programs) };
        let maker = self.maker(programs, start.cancel);
        let end = Instant::now() + start.limit;
        launch.mon(daemons)?;
        (start.events)(Event::Started(Daemon::Mon));
        self.waiting(daemons, start, Instant::now() + MON_LIMIT).mon()?;
        if !plan.complete {
            maker.osds(start.events)?;
        }
        for id in 0..plan.osds() {
            launch.osd(id, daemons)?;
            (start.events)(Event::Started(Daemon::Osd(OsdId(id))));
        }
        self.waiting(daemons, start, end).osds(plan.osds())?;
        if !plan.complete {
            maker.pool()?;
        }
        self.waiting(daemons, start, end).pgs(plan)
    }

    fn waiting<'a, 'b>(
        &'a self,
        daemons: &'a mut Daemons,
        start: &'a mut StartOptions<'b>,
        end: Instant,
    ) -> Waiting<'a, 'b> {
        Waiting { layout: &self.layout, daemons, cancel: start.cancel, events: start.events, end }
    }

    /// Stops all daemons; the data stays.
    ///
    /// # Errors
    /// A record is damaged, or a daemon does not end.
    pub fn stop(&mut self) -> Result<Vec<(Daemon, Stopped)>> {
        stop_all(&self.layout, self.plan.osds())
    }

    /// Stops all daemons and removes what the peer made. Named devices are not touched; a file that it did not make
    /// stays, and so does the folder then.
    ///
    /// # Errors
    /// A daemon does not end, or a file cannot be removed.
    pub fn destroy(mut self) -> Result<()> {
        self.stop()?;
        self.remove_files()?;
        let _ = fs::remove_dir(self.layout.dir());
        Ok(())
    }

    fn remove_files(&self) -> Result<()> {
        let osds = (0..self.plan.osds()).map(|id| self.layout.osd_dir(OsdId(id)));
        for dir in osds.chain([self.layout.mon_dir(), self.layout.run_dir()]) {
            remove_dir(&dir)?;
        }
        let logs = daemons_of(self.plan.osds()).into_iter().map(|daemon| self.layout.log(daemon));
        let others =
            [self.layout.ceph_conf(), self.layout.dir().join("monmap"), self.layout.dir().join("mon.a.log")];
        // The plan goes last but one: until then an interrupted removal can be repeated.
        for file in logs.chain(others).chain([plan_path(&self.layout), self.layout.lock()]) {
            remove_file(&file)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_plan_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        assert!(load_plan(&layout).unwrap().is_none());
        assert!(require_plan(&layout).unwrap_err().is_usage());
    }
}
