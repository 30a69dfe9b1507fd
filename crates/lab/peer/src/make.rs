//! Making a peer's stores: the monitor's, each OSD's, and the pool.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use carmine_testbed::{Daemon, Event, Layout, POOL_NAME, Result, TestbedError};
use carmine_types::OsdId;

use crate::block::{self, Making};
use crate::command::Tool;
use crate::plan::PeerPlan;
use crate::programs::Programs;

/// The pool that is made first, and the only one.
pub(crate) const POOL_ID: u32 = 1;

fn monmap(layout: &Layout) -> PathBuf {
    layout.dir().join("monmap")
}

/// A folder's peer while its stores are made.
pub(crate) struct Maker<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) plan: &'a PeerPlan,
    pub(crate) programs: &'a Programs,
    pub(crate) cancel: &'a AtomicBool,
}

impl Maker<'_> {
    /// Folders, block files and the monitor's store; nothing runs yet.
    pub(crate) fn stores(&self, wipe: bool, events: &mut dyn FnMut(Event)) -> Result<()> {
        let osds = (0..self.plan.osds()).map(OsdId);
        let folders = osds.clone().map(|id| self.layout.osd_dir(id));
        for dir in folders.chain([self.layout.run_dir(), self.layout.mon_dir()]) {
            fs::create_dir_all(&dir).map_err(TestbedError::io("create", &dir))?;
        }
        for osd in osds {
            self.block(osd, wipe, events)?;
        }
        self.write_monmap()?;
        let mon = self.tool(&self.programs.mon).args(&["--mkfs", "-i", "a", "--monmap"]);
        mon.arg(monmap(self.layout)).run().map(drop)
    }

    fn block(&self, osd: OsdId, wipe: bool, events: &mut dyn FnMut(Event)) -> Result<()> {
        let path = self.layout.osd_dir(osd).join("block");
        if let Some(device) = self.plan.devices.get(osd.0 as usize) {
            return block::link_device(device, &path, wipe);
        }
        let total_bytes = self.plan.osd_size_bytes;
        let making = Making { size_bytes: total_bytes, sparse: self.plan.sparse, cancel: self.cancel };
        block::make_file(&path, &making, |done_bytes| events(Event::Mkfs { osd, done_bytes, total_bytes }))
    }

    /// A Ceph program on this peer's configuration.
    fn tool(&self, program: &std::path::Path) -> Tool<'_> {
        // Making a store is a short life of the daemon, with an admin socket.
        let tool = Tool::new(self.programs, program).within(&self.layout.run_dir());
        tool.arg("-c").arg(self.layout.ceph_conf()).cancelled_by(self.cancel)
    }

    fn ceph(&self, words: &[&str]) -> Result<String> {
        self.tool(&self.programs.ceph).args(&["--connect-timeout", "20"]).args(words).run()
    }

    fn write_monmap(&self) -> Result<()> {
        let addr = format!("[v2:127.0.0.1:{}]", self.plan.mon_port);
        Tool::new(self.programs, &self.programs.monmaptool)
            .args(&["--create", "--clobber", "--fsid", &self.plan.fsid, "--addv", "a", &addr])
            .args(&["--set-min-mon-release", "pacific"])
            .arg(monmap(self.layout))
            .cancelled_by(self.cancel)
            .run()
            .map(drop)
    }

    /// Tells the stopped monitor its new address.
    pub(crate) fn move_monitor(&self) -> Result<()> {
        self.write_monmap()?;
        let mon = self.tool(&self.programs.mon).args(&["-i", "a", "--inject-monmap"]);
        mon.arg(monmap(self.layout)).run().map(drop)
    }

    /// With the monitor running: registers the OSDs and makes their stores.
    pub(crate) fn osds(&self, events: &mut dyn FnMut(Event)) -> Result<()> {
        for flag in ["noscrub", "nodeep-scrub"] {
            self.ceph(&["osd", "set", flag])?;
        }
        for id in 0..self.plan.osds() {
            events(Event::Waiting(format!("the store of {}", Daemon::Osd(OsdId(id)))));
            let uuid = fresh_uuid()?;
            let given = self.ceph(&["osd", "new", &uuid])?;
            if given.trim() != id.to_string() {
                let given = given.trim();
                return Err(TestbedError::Failed(format!(
                    "the monitor called osd.{id} by the number {given}"
                )));
            }
            let id = id.to_string();
            self.tool(&self.programs.osd).args(&["-i", &id, "--mkfs", "--osd-uuid", &uuid]).run()?;
        }
        Ok(())
    }

    /// With the OSDs running: the pool that clients load.
    pub(crate) fn pool(&self) -> Result<()> {
        let pgs = self.plan.pgs.to_string();
        self.ceph(&["osd", "pool", "create", POOL_NAME, &pgs, &pgs, "replicated"])?;
        self.ceph(&["osd", "pool", "application", "enable", POOL_NAME, "rbd"]).map(drop)
    }
}

/// A new random id, from the kernel.
///
/// # Errors
/// There is no `/proc`.
pub fn fresh_uuid() -> Result<String> {
    let path = std::path::Path::new("/proc/sys/kernel/random/uuid");
    Ok(fs::read_to_string(path).map_err(TestbedError::io("read", path))?.trim().to_owned())
}

/// True if nobody listens on this port of loopback.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A port of loopback on which nobody listens now.
///
/// # Errors
/// There is none.
pub(crate) fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|addr| addr.port())
        .map_err(|e| TestbedError::Failed(format!("cannot find a free port on 127.0.0.1: {e}")))
}
