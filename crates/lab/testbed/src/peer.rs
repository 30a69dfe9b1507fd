//! A baseline to compare with: a Ceph cluster on loopback, started from its own binaries.
//!
//! One folder holds one peer: a monitor and OSDs, without a manager and without authentication. It gets the same block
//! files, pool, PGs and CPUs as a Carmine testbed, so that the same client can load both. Folder, lock, process records and
//! the guard that ends a failed start are the testbed's own.

mod ceph;
mod conf;
mod plan;
mod status;
mod stores;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use carmine_types::{OsdId, counted};

use crate::daemons::Daemons;
use crate::drive::{WriteCache, part_at};
use crate::error::{Result, TestbedError, failed};
use crate::files;
use crate::folder::{self, Bed, FolderPlan};
use crate::layout::{Daemon, Layout};
use crate::testbed::{Event, StartOptions};

pub use ceph::{Allocator, Flavour, Programs};
pub use plan::{PEER_FORMAT, PeerPlan, PeerWish};
pub use status::{About, Contrast, PeerOsd, PeerStatus, about, status};
use stores::{Maker, free_port, is_free};

/// A monitor alone is there within a second or two, also on a busy machine.
const MON_LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at daemons that start.
const PAUSE: Duration = Duration::from_millis(50);

/// A peer whose folder this command has locked.
pub type Peer = Bed<PeerPlan>;

impl FolderPlan for PeerPlan {
    const FORMAT: u32 = PEER_FORMAT;
    const FILE: &'static str = "peer.json";
    const WHAT: &'static str = "peer";
    const COMMAND: &'static str = "carmine peer";

    fn osds(&self) -> u32 {
        self.plan.spec.osds
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn own_files(&self, layout: &Layout) -> Vec<PathBuf> {
        ["monmap", "mon.a.log"].map(|name| layout.dir().join(name)).to_vec()
    }
}

/// Reads the plan of a folder; `None` if it holds no peer.
///
/// # Errors
/// The plan cannot be read, is damaged, or is of another version.
pub fn load_plan(layout: &Layout) -> Result<Option<PeerPlan>> {
    folder::load(layout)
}

/// Address of the monitor of a plan.
pub fn monitor(plan: &PeerPlan) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, plan.mon_port).into()
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
        plan.mon_port = free_port()?;
        Bed::make(&layout, plan, |peer| {
            conf::write(&peer.layout, &peer.plan, programs)?;
            peer.maker(programs, start.cancel).stores(wipe, start.events)
        })
    }

    fn maker<'a>(&'a self, programs: &'a Programs, cancel: &'a AtomicBool) -> Maker<'a> {
        Maker { layout: &self.layout, plan: &self.plan, programs, cancel }
    }

    /// Starts the daemons, makes what a new peer still lacks, and waits until all PGs are active and clean. If that
    /// fails, all are stopped again; a peer that was new is removed.
    ///
    /// # Errors
    /// The text says what went wrong, with the end of the log where a daemon is to blame.
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
                failed!("{why}\n(the new peer was removed again, with its logs)")
            }
            other => other,
        })
    }

    fn start_daemons(&mut self, programs: &Programs, start: &mut StartOptions<'_>) -> Result<()> {
        let run_dir = self.layout.run_dir();
        fs::create_dir_all(&run_dir).map_err(TestbedError::io("create", &run_dir))?;
        if !is_free(self.plan.mon_port) {
            self.plan.mon_port = free_port()?;
            conf::write(&self.layout, &self.plan, programs)?;
            self.maker(programs, start.cancel).move_monitor()?;
        }
        // A flush waits for the medium if the drive has a volatile write cache.
        let first = self.plan.devices.first().map_or(self.layout.dir(), PathBuf::as_path);
        self.plan.dear_flush = part_at(first).drive.write_cache == WriteCache::Back;
        conf::write(&self.layout, &self.plan, programs)?;
        self.write_plan()?;
        let mut daemons = Daemons::new(&self.layout);
        self.bring_up(programs, &mut daemons, start)?;
        self.plan.complete = true;
        self.write_plan()?;
        files::write_whole(&self.layout.mon_addr(), monitor(&self.plan).to_string().as_bytes())?;
        daemons.keep();
        Ok(())
    }

    fn bring_up(
        &self,
        programs: &Programs,
        daemons: &mut Daemons,
        start: &mut StartOptions<'_>,
    ) -> Result<()> {
        let (layout, plan, maker) = (&self.layout, &self.plan, self.maker(programs, start.cancel));
        let allocator = Allocator::of(programs);
        let end = Instant::now() + start.limit;
        let osds = || (0..plan.osds()).map(OsdId);
        let run = |daemon, daemons: &mut Daemons, start: &mut StartOptions<'_>| {
            daemons.adopt(daemon, programs.launch(layout, plan, &allocator, daemon)?)?;
            (start.events)(Event::Started(daemon));
            Ok(())
        };
        run(Daemon::Mon, daemons, start)?;
        daemons.wait(Daemon::Mon, start, Instant::now() + MON_LIMIT, PAUSE, || {
            (!status::mon_leads(layout)).then(|| "the monitor".into())
        })?;
        if !plan.complete {
            maker.osds(start.events)?;
        }
        osds().try_for_each(|id| run(Daemon::Osd(id), daemons, start))?;
        for id in osds() {
            daemons.wait(Daemon::Osd(id), start, end, PAUSE, || {
                (!status::is_active(layout, id)).then(|| format!("{id} to be up"))
            })?;
        }
        if !plan.complete {
            maker.pool()?;
        }
        let mut left: Vec<u32> = (0..plan.pool.pg_num).collect();
        daemons.wait(Daemon::Osd(OsdId(0)), start, end, PAUSE, || {
            left.retain(|pg| !status::is_clean(layout, plan.osds(), *pg));
            (!left.is_empty()).then(|| {
                format!("{} of {} to be active+clean", left.len(), counted(plan.pool.pg_num as usize, "PG"))
            })
        })
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
        let error = folder::require::<PeerPlan>(&layout).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("carmine peer up --dir"), "{error}");
    }
}
