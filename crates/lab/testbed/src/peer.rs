//! A baseline to compare with: a Ceph cluster on loopback, started from its own binaries.
//!
//! One folder holds one peer: a monitor and OSDs, without a manager and without authentication. It gets the same block
//! files, pool, PGs and CPUs as a Carmine testbed, so that the same client can load both. Folder, lock, process records and
//! the guard that ends a failed start are the testbed's own.

mod about;
mod plan;

use std::io::{self, BufWriter, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carmine_types::OsdId;
use fs_err::{self as fs, File, os::unix::fs::symlink};

use crate::auth::make_keys;
use crate::ceph::{CephMons, choose_ports, conf};
use crate::daemons::Daemons;
use crate::drive::{WriteCache, part_at};
use crate::error::{Result, TestbedError, fail_if, failed};
use crate::files;
use crate::folder::Testbed;
use crate::layout::Daemon;
use crate::plan::POOL_NAME;
use crate::slice::{BLANK_BYTES, open_alone};
use crate::testbed::{Event, StartOptions};

pub use crate::ceph::{Allocator, Flavour, Programs};
use about::is_active;
pub use about::{About, about};
pub(crate) use about::{ask, look};
pub use plan::{PeerPlan, PeerWish};

/// Pause between two looks at daemons that start.
const PAUSE: Duration = Duration::from_millis(50);

/// The pool that is made first, and the only one.
const POOL_ID: u32 = 1;
/// Zeros that are written at once.
const BUFFER_BYTES: usize = 4 << 20;
/// Zeros between two syncs: bounds the page cache that mkfs takes.
const SYNC_BYTES: u64 = 128 << 20;

/// Makes the stores of a new peer; its first start completes it.
///
/// # Errors
/// A store cannot be made.
pub(crate) fn fill(bed: &mut Testbed, wipe: bool, start: &mut StartOptions<'_>) -> Result<()> {
    choose_ports(&mut bed.plan)?;
    bed.make_folders()?;
    let programs = Programs::find(bed.plan.peer()?.build.as_deref())?;
    Maker::new(bed, &programs, start.cancel)?.stores(wipe, start.events)
}

/// Starts the daemons, makes what a new peer still lacks, and waits until all PGs are active and clean. If that
/// fails, all are stopped again; a peer that was new is removed.
///
/// # Errors
/// The text says what went wrong, with the end of the log where a daemon is to blame.
pub(crate) fn start(bed: &mut Testbed, start: &mut StartOptions<'_>) -> Result<SocketAddr> {
    bed.require_nothing_runs()?;
    let new = !bed.plan.complete;
    let started = start_daemons(bed, start);
    if started.is_err() && new {
        bed.folder.remove_files()?;
        // Only an empty folder is removed.
        let _ = fs::remove_dir(bed.layout().dir());
    }
    started.map_err(|error| match error {
        TestbedError::Failed(why) if new => failed!("{why}\n(the new peer was removed again, with its logs)"),
        other => other,
    })
}

fn start_daemons(bed: &mut Testbed, start: &mut StartOptions<'_>) -> Result<SocketAddr> {
    fs::create_dir_all(bed.layout().run_dir())?;
    let moved = choose_ports(&mut bed.plan)?;
    // A flush waits for the medium if the drive has a volatile write cache.
    let first = bed.plan.devices.first().map_or(bed.layout().dir(), PathBuf::as_path);
    let dear_flush = part_at(first).drive.write_cache == WriteCache::Back;
    let programs = Programs::find(bed.plan.peer()?.build.as_deref())?;
    if let Some(peer) = &mut bed.plan.peer {
        peer.dear_flush = dear_flush;
    }
    let maker = Maker::new(bed, &programs, start.cancel)?;
    if moved {
        maker.mon.change_ports()?;
    }
    bed.write_plan()?;
    let mut daemons = Daemons::new(bed.layout());
    bring_up(&maker, &mut daemons, start)?;
    bed.plan.complete = true;
    bed.write_plan()?;
    let mon = bed.plan.mon_addr(0);
    files::write_whole(&bed.layout().mon_addr(), mon.to_string().as_bytes())?;
    daemons.keep();
    Ok(mon)
}

/// Starts the daemons and makes what is missing, until all PGs are active and clean.
fn bring_up(maker: &Maker<'_>, daemons: &mut Daemons, start: &mut StartOptions<'_>) -> Result<()> {
    let CephMons { layout, plan, programs, .. } = maker.mon;
    let allocator = Allocator::detect(programs);
    let end = Instant::now() + start.limit;
    maker.mon.start(&[0], daemons, start)?;
    if !plan.complete {
        maker.osds(start.events)?;
    }
    for daemon in plan.osd_ids().map(Daemon::Osd) {
        daemons.adopt(daemon, programs.launch(layout, plan, Some(&allocator), daemon)?)?;
        (start.events)(Event::Started(daemon));
    }
    for id in plan.osd_ids() {
        let is_up = || (!is_active(layout, id)).then(|| format!("{id} to be up"));
        daemons.wait(is_up, Daemon::Osd(id), end, PAUSE, start)?;
    }
    if !plan.complete {
        maker.pool()?;
    }
    let missing = || look(layout, plan).map_or_else(|e| Some(e.to_string()), |seen| seen.missing(plan, &[]));
    daemons.wait(missing, Daemon::Osd(OsdId(0)), end, PAUSE, start)
}

/// A folder's peer while its stores are made.
struct Maker<'a> {
    mon: CephMons<'a>,
}

impl<'a> Maker<'a> {
    /// Writes the configuration that the programs need.
    fn new(bed: &'a Testbed, programs: &'a Programs, cancel: &'a AtomicBool) -> Result<Self> {
        let (layout, plan) = (bed.layout(), &bed.plan);
        let conf = conf::of_peer(layout, plan, plan.peer()?, programs);
        files::write_whole(&layout.ceph_conf(), conf.as_bytes())?;
        Ok(Self { mon: CephMons { layout, plan, programs, cancel } })
    }

    /// Block files and the monitor's store; nothing runs yet. A device gets its head cleared with `wipe`, so that BlueStore
    /// takes it for a new one.
    fn stores(&self, wipe: bool, events: &mut dyn FnMut(Event)) -> Result<()> {
        for osd in (0..self.mon.plan.osds()).map(OsdId) {
            let (path, total_bytes) = (self.mon.layout.block(osd), self.mon.plan.osd_size_bytes);
            let Some(device) = self.mon.plan.devices.get(osd.0 as usize) else {
                make_file(&path, total_bytes, self.mon.plan.sparse, self.mon.cancel, &mut |done_bytes| {
                    events(Event::of_store(osd, done_bytes, total_bytes));
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
        make_keys(self.mon.layout, self.mon.plan)?;
        self.mon.make()
    }

    fn ceph(&self, words: &[&str]) -> Result<String> {
        let program = self.mon.programs.at("ceph");
        self.mon.run(program, &[&["--connect-timeout", "20"], words].concat(), &[])
    }

    /// With the monitor running: registers the OSDs and makes their stores.
    fn osds(&self, events: &mut dyn FnMut(Event)) -> Result<()> {
        for flag in ["noscrub", "nodeep-scrub"] {
            self.ceph(&["osd", "set", flag])?;
        }
        for osd in (0..self.mon.plan.osds()).map(OsdId) {
            events(Event::Waiting(format!("the store of {osd}")));
            let (uuid, id) = (files::fresh_uuid()?, osd.0.to_string());
            let given = self.ceph(&["osd", "new", &uuid])?;
            let given = given.trim();
            fail_if!(given != id, "the monitor gave {osd} the number {given}");
            self.mon.run(
                self.mon.programs.at("ceph-osd"),
                &["-i", &id, "--mkfs", "--osd-uuid", &uuid],
                &[],
            )?;
        }
        Ok(())
    }

    /// With the OSDs running: the pool that clients load.
    fn pool(&self) -> Result<()> {
        let pgs = self.mon.plan.pool.pg_num.to_string();
        self.ceph(&["osd", "pool", "create", POOL_NAME, &pgs, &pgs, "replicated"])?;
        self.ceph(&["osd", "pool", "application", "enable", POOL_NAME, "rbd"]).map(drop)
    }
}

/// Makes a block file and, unless it is to be sparse, writes it full of zeros, so that no write of a test meets an unwritten
/// extent of the file system. `progress` gets the bytes done.
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
    let file = File::create_new(path)?;
    file.set_len(size_bytes)?;
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
    let mut done = if sparse { size_bytes } else { 0 };
    while done < size_bytes {
        fail_if!(cancel.load(Ordering::Relaxed), "interrupted");
        done += io::copy(&mut io::repeat(0).take(SYNC_BYTES.min(size_bytes - done)), &mut file)?;
        file.flush()?;
        file.get_ref().sync_data()?;
        progress(done);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(error.is_usage() && error.to_string().contains("not a block device"), "{error}");
    }
}
