//! A baseline to compare with: a Ceph cluster on loopback, started from its own binaries.
//!
//! One folder holds one peer: a monitor and OSDs, without a manager and without authentication. It gets the same block
//! files, pool, PGs and CPUs as a Carmine testbed, so that the same client can load both. Folder, lock, process records and
//! the guard that ends a failed start are the testbed's own.

mod ceph;
mod conf;
mod plan;
mod status;

use std::io::{Seek as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carmine_types::{OsdId, counted};
use fs_err::{self as fs, File, os::unix::fs::symlink};

use crate::daemons::Daemons;
use crate::drive::{WriteCache, part_at};
use crate::error::{Result, TestbedError, failed};
use crate::files;
use crate::folder::{self, Bed, FolderPlan};
use crate::layout::{Daemon, Layout};
use crate::plan::{POOL_NAME, Plan};
use crate::slice::{BLANK_BYTES, open_alone};
use crate::testbed::{Event, StartOptions};

pub use ceph::{Allocator, Flavour, Programs};
pub use plan::{PeerPlan, PeerWish};
pub use status::{About, Contrast, PeerOsd, PeerStatus, about, status};

/// A monitor alone is there within a second or two, also on a busy machine.
const MON_LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at daemons that start.
const PAUSE: Duration = Duration::from_millis(50);

/// The pool that is made first, and the only one.
const POOL_ID: u32 = 1;
const CHUNK_BYTES: u64 = 4 << 20;
/// Zeros between two syncs: bounds the page cache that mkfs takes.
const SYNC_BYTES: u64 = 256 << 20;
/// A peer whose folder this command has locked.
pub type Peer = Bed<PeerPlan>;

impl FolderPlan for PeerPlan {
    const FILE: &'static str = "peer.json";
    const WHAT: &'static str = "peer";
    const COMMAND: &'static str = "carmine peer";

    fn base(&self) -> &Plan {
        &self.plan
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
        plan.plan.mon_port = free_port()?;
        Bed::make(&layout, plan, |peer| {
            conf::write(&peer.layout, &peer.plan, programs)?;
            peer.make_folders()?;
            let maker = Maker { layout: &peer.layout, plan: &peer.plan, programs, cancel: start.cancel };
            maker.stores(wipe, start.events)
        })
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
        fs::create_dir_all(self.layout.run_dir())?;
        let moved = !is_free(self.plan.mon_port);
        if moved {
            self.plan.plan.mon_port = free_port()?;
        }
        // A flush waits for the medium if the drive has a volatile write cache.
        let first = self.plan.devices.first().map_or(self.layout.dir(), PathBuf::as_path);
        self.plan.dear_flush = part_at(first).drive.write_cache == WriteCache::Back;
        conf::write(&self.layout, &self.plan, programs)?;
        let maker = Maker { layout: &self.layout, plan: &self.plan, programs, cancel: start.cancel };
        if moved {
            maker.move_monitor()?;
        }
        self.write_plan()?;
        let mut daemons = Daemons::new(&self.layout);
        bring_up(&maker, &mut daemons, start)?;
        self.plan.plan.complete = true;
        self.write_plan()?;
        files::write_whole(&self.layout.mon_addr(), monitor(&self.plan).to_string().as_bytes())?;
        daemons.keep();
        Ok(())
    }
}

/// Starts the daemons and makes what is missing, until all PGs are active and clean.
fn bring_up(maker: &Maker<'_>, daemons: &mut Daemons, start: &mut StartOptions<'_>) -> Result<()> {
    let Maker { layout, plan, programs, .. } = *maker;
    let allocator = Allocator::of(programs);
    let (end, pgs) = (Instant::now() + start.limit, plan.pool.pg_num as usize);
    let osds = || (0..plan.osds()).map(OsdId);
    let run = |daemon, daemons: &mut Daemons, start: &mut StartOptions<'_>| -> Result<()> {
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
        let waits = !left.is_empty();
        waits.then(|| format!("{} of {} to be active+clean", left.len(), counted(pgs, "PG")))
    })
}

/// A folder's peer while its stores are made.
struct Maker<'a> {
    layout: &'a Layout,
    plan: &'a PeerPlan,
    programs: &'a Programs,
    cancel: &'a AtomicBool,
}

impl Maker<'_> {
    /// Block files and the monitor's store; nothing runs yet. A device gets its head cleared with `wipe`, so that BlueStore
    /// takes it for a new one.
    fn stores(&self, wipe: bool, events: &mut dyn FnMut(Event)) -> Result<()> {
        for osd in (0..self.plan.osds()).map(OsdId) {
            let (path, total_bytes) = (self.layout.block(osd), self.plan.osd_size_bytes);
            let Some(device) = self.plan.devices.get(osd.0 as usize) else {
                make_file(&path, total_bytes, self.plan.sparse, self.cancel, &mut |done_bytes| {
                    events(Event::Mkfs { osd, done_bytes, total_bytes });
                })?;
                continue;
            };
            let mut opened = open_alone(device, wipe)?;
            if wipe {
                opened.rewind()?;
                opened.write_all(&[0; BLANK_BYTES])?;
                opened.sync_all()?;
            }
            symlink(device, path)?;
        }
        self.write_monmap()?;
        self.monitor(&["--mkfs", "-i", "a", "--monmap"])
    }

    fn monmap(&self) -> PathBuf {
        self.layout.dir().join("monmap")
    }

    /// Runs a Ceph program on this peer's configuration.
    fn run(&self, program: &Path, words: &[&str], files: &[PathBuf]) -> Result<String> {
        let mut tool = self.programs.tool(program);
        // Making a store is a short life of the daemon, with an admin socket.
        tool.current_dir(self.layout.run_dir())
            .arg("-c")
            .arg(self.layout.ceph_conf())
            .args(words)
            .args(files);
        ceph::run(tool, Some(self.cancel))
    }

    fn ceph(&self, words: &[&str]) -> Result<String> {
        self.run(&self.programs.ceph, &[&["--connect-timeout", "20"], words].concat(), &[])
    }

    /// Runs the monitor's program on the monitor map.
    fn monitor(&self, words: &[&str]) -> Result<()> {
        self.run(&self.programs.mon, words, &[self.monmap()]).map(drop)
    }

    fn write_monmap(&self) -> Result<()> {
        let addr = format!("[v2:127.0.0.1:{}]", self.plan.mon_port);
        let mut tool = self.programs.tool(&self.programs.monmaptool);
        tool.args(["--create", "--clobber", "--fsid", &self.plan.fsid, "--addv", "a", &addr])
            .args(["--set-min-mon-release", "pacific"])
            .arg(self.monmap());
        ceph::run(tool, Some(self.cancel)).map(drop)
    }

    /// Tells the stopped monitor its new address.
    fn move_monitor(&self) -> Result<()> {
        self.write_monmap()?;
        self.monitor(&["-i", "a", "--inject-monmap"])
    }

    /// With the monitor running: registers the OSDs and makes their stores.
    fn osds(&self, events: &mut dyn FnMut(Event)) -> Result<()> {
        for flag in ["noscrub", "nodeep-scrub"] {
            self.ceph(&["osd", "set", flag])?;
        }
        for osd in (0..self.plan.osds()).map(OsdId) {
            events(Event::Waiting(format!("the store of {osd}")));
            let (uuid, id) = (files::fresh_uuid()?, osd.0.to_string());
            let given = self.ceph(&["osd", "new", &uuid])?;
            if given.trim() != id {
                return Err(failed!("the monitor called {osd} by the number {}", given.trim()));
            }
            self.run(&self.programs.osd, &["-i", &id, "--mkfs", "--osd-uuid", &uuid], &[])?;
        }
        Ok(())
    }

    /// With the OSDs running: the pool that clients load.
    fn pool(&self) -> Result<()> {
        let pgs = self.plan.pool.pg_num.to_string();
        self.ceph(&["osd", "pool", "create", POOL_NAME, &pgs, &pgs, "replicated"])?;
        self.ceph(&["osd", "pool", "application", "enable", POOL_NAME, "rbd"]).map(drop)
    }
}

/// True if nobody listens on this port of loopback.
fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A port of loopback on which nobody listens now.
///
/// # Errors
/// There is none.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let addr = listener.map_err(|e| failed!("cannot find a free port on 127.0.0.1: {e}"))?;
    Ok(addr.port())
}

/// Makes a block file and, unless it is to be sparse, writes it full of zeros, so that no write of a test meets an unwritten
/// extent of the file system. `progress` is told the bytes done.
///
/// # Errors
/// The file exists, the disk is full, or it was interrupted.
fn make_file(
    path: &Path,
    size_bytes: u64,
    sparse: bool,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut file = File::create_new(path)?;
    file.set_len(size_bytes)?;
    let zeros = vec![0; CHUNK_BYTES as usize];
    let mut done = 0;
    while !sparse && done < size_bytes {
        if cancel.load(Ordering::Relaxed) {
            return Err(failed!("interrupted"));
        }
        let chunk = CHUNK_BYTES.min(size_bytes - done);
        file.write_all(&zeros[..chunk as usize])?;
        done += chunk;
        if done.is_multiple_of(SYNC_BYTES) || done == size_bytes {
            file.sync_data()?;
            progress(done);
        }
    }
    Ok(())
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

    #[test]
    fn a_file_is_written_through_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("block");
        let cancel = AtomicBool::new(false);
        let mut last = 0;
        make_file(&path, 9 << 20, false, &cancel, &mut |done| last = done).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((last, meta.len()), (9 << 20, 9 << 20));
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) * 512 >= 9 << 20, "it has holes");
        let again = make_file(&path, 9 << 20, false, &cancel, &mut |_| ()).unwrap_err();
        assert!(again.to_string().contains("create"), "{again}");
    }

    #[test]
    fn interrupted_and_no_device() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("block");
        let cancel = AtomicBool::new(true);
        assert!(
            make_file(&path, 9 << 20, false, &cancel, &mut |_| ())
                .unwrap_err()
                .to_string()
                .contains("interrupted")
        );
        let error = open_alone(&path, true).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("no block device"), "{error}");
    }
}
