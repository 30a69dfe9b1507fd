//! Making a peer's stores: the monitor's, each OSD's, and the pool. Block files and devices are made as a Carmine testbed makes
//! its own: files written through, devices only if they are blank.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use carmine_types::OsdId;
use nix::libc;

use super::{PeerPlan, Programs, ceph};
use crate::error::{Result, TestbedError, failed, usage};
use crate::files::fresh_uuid;
use crate::layout::Layout;
use crate::plan::POOL_NAME;
use crate::testbed::Event;

/// The pool that is made first, and the only one.
pub(super) const POOL_ID: u32 = 1;
const CHUNK_BYTES: u64 = 4 << 20;
/// Zeros between two syncs: bounds the page cache that mkfs takes.
const SYNC_BYTES: u64 = 256 << 20;
/// The head of a device must be zero for this long; every label and partition table begins there.
const BLANK_BYTES: usize = 1 << 20;

/// A folder's peer while its stores are made.
pub(super) struct Maker<'a> {
    pub(super) layout: &'a Layout,
    pub(super) plan: &'a PeerPlan,
    pub(super) programs: &'a Programs,
    pub(super) cancel: &'a AtomicBool,
}

impl Maker<'_> {
    /// Folders, block files and the monitor's store; nothing runs yet.
    pub(super) fn stores(&self, wipe: bool, events: &mut dyn FnMut(Event)) -> Result<()> {
        let osds = || (0..self.plan.osds()).map(OsdId);
        let folders = osds().map(|id| self.layout.osd_dir(id));
        for dir in folders.chain([self.layout.run_dir(), self.layout.mon_dir()]) {
            fs::create_dir_all(&dir).map_err(TestbedError::io("create", &dir))?;
        }
        for osd in osds() {
            let (path, total_bytes) = (self.layout.block(osd), self.plan.osd_size_bytes);
            match self.plan.devices.get(osd.0 as usize) {
                Some(device) => link_device(device, &path, wipe)?,
                None => make_file(&path, total_bytes, self.plan.sparse, self.cancel, |done_bytes| {
                    events(Event::Mkfs { osd, done_bytes, total_bytes });
                })?,
            }
        }
        self.write_monmap()?;
        self.monitor(&["--mkfs", "-i", "a", "--monmap"])
    }

    fn monmap(&self) -> PathBuf {
        self.layout.dir().join("monmap")
    }

    /// Runs a Ceph program on this peer's configuration.
    fn run(&self, program: &Path, words: &[&str]) -> Result<String> {
        ceph::run(self.tool(program, words), Some(self.cancel))
    }

    fn tool(&self, program: &Path, words: &[&str]) -> Command {
        let mut tool = self.programs.tool(program);
        // Making a store is a short life of the daemon, with an admin socket.
        tool.current_dir(self.layout.run_dir()).arg("-c").arg(self.layout.ceph_conf()).args(words);
        tool
    }

    fn ceph(&self, words: &[&str]) -> Result<String> {
        self.run(&self.programs.ceph, &[&["--connect-timeout", "20"], words].concat())
    }

    /// Runs the monitor's program on the monitor map.
    fn monitor(&self, words: &[&str]) -> Result<()> {
        let mut tool = self.tool(&self.programs.mon, words);
        tool.arg(self.monmap());
        ceph::run(tool, Some(self.cancel)).map(drop)
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
    pub(super) fn move_monitor(&self) -> Result<()> {
        self.write_monmap()?;
        self.monitor(&["-i", "a", "--inject-monmap"])
    }

    /// With the monitor running: registers the OSDs and makes their stores.
    pub(super) fn osds(&self, events: &mut dyn FnMut(Event)) -> Result<()> {
        for flag in ["noscrub", "nodeep-scrub"] {
            self.ceph(&["osd", "set", flag])?;
        }
        for osd in (0..self.plan.osds()).map(OsdId) {
            events(Event::Waiting(format!("the store of {osd}")));
            let (uuid, id) = (fresh_uuid()?, osd.0.to_string());
            let given = self.ceph(&["osd", "new", &uuid])?;
            if given.trim() != id {
                return Err(failed!("the monitor called {osd} by the number {}", given.trim()));
            }
            self.run(&self.programs.osd, &["-i", &id, "--mkfs", "--osd-uuid", &uuid])?;
        }
        Ok(())
    }

    /// With the OSDs running: the pool that clients load.
    pub(super) fn pool(&self) -> Result<()> {
        let pgs = self.plan.pool.pg_num.to_string();
        self.ceph(&["osd", "pool", "create", POOL_NAME, &pgs, &pgs, "replicated"])?;
        self.ceph(&["osd", "pool", "application", "enable", POOL_NAME, "rbd"]).map(drop)
    }
}

/// True if nobody listens on this port of loopback.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A port of loopback on which nobody listens now.
///
/// # Errors
/// There is none.
pub(super) fn free_port() -> Result<u16> {
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
    mut progress: impl FnMut(u64),
) -> Result<()> {
    let mut file = File::create_new(path).map_err(TestbedError::io("create", path))?;
    file.set_len(size_bytes).map_err(TestbedError::io("set the size of", path))?;
    if sparse {
        return Ok(());
    }
    let zeros = vec![0; CHUNK_BYTES as usize];
    let mut done = 0;
    while done < size_bytes {
        if cancel.load(Ordering::Relaxed) {
            return Err(failed!("interrupted"));
        }
        let chunk = CHUNK_BYTES.min(size_bytes - done) as usize;
        file.write_all(&zeros[..chunk]).map_err(TestbedError::io("write zeros to", path))?;
        done += chunk as u64;
        if done.is_multiple_of(SYNC_BYTES) || done == size_bytes {
            file.sync_data().map_err(TestbedError::io("flush", path))?;
            progress(done);
        }
    }
    Ok(())
}

/// Makes `link` point to a block device, which must be blank unless `wipe`; with `wipe` its head is cleared, so that
/// BlueStore takes it for a new one.
///
/// # Errors
/// It is no block device, is not blank, is in use (a mounted one cannot be opened exclusively), or cannot be read.
fn link_device(device: &Path, link: &Path, wipe: bool) -> Result<()> {
    let meta = fs::metadata(device).map_err(TestbedError::io("look at", device))?;
    if !meta.file_type().is_block_device() {
        return Err(usage!("--devs {}: this is no block device", device.display()));
    }
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(device);
    let mut opened = opened.map_err(TestbedError::io("open for itself alone (is it mounted?)", device))?;
    let mut head = vec![0; BLANK_BYTES];
    opened.read_exact(&mut head).map_err(TestbedError::io("read", device))?;
    if head.iter().any(|byte| *byte != 0) {
        if !wipe {
            return Err(usage!(
                "--devs {}: the device is not blank: name another, or take --force-wipe, which destroys what is on it",
                device.display()
            ));
        }
        let cleared = opened.rewind().and_then(|()| opened.write_all(&vec![0; BLANK_BYTES]));
        let cleared = cleared.and_then(|()| opened.sync_all());
        cleared.map_err(TestbedError::io("clear the head of", device))?;
    }
    symlink(device, link).map_err(TestbedError::io("create", link))
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
        make_file(&path, 9 << 20, false, &cancel, |done| last = done).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((last, meta.len()), (9 << 20, 9 << 20));
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) * 512 >= 9 << 20, "it has holes");
        let again = make_file(&path, 9 << 20, false, &cancel, |_| ()).unwrap_err();
        assert!(again.to_string().contains("create"), "{again}");
    }

    #[test]
    fn interrupted_and_no_device() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("block");
        let cancel = AtomicBool::new(true);
        assert!(
            make_file(&path, 9 << 20, false, &cancel, |_| ())
                .unwrap_err()
                .to_string()
                .contains("interrupted")
        );
        let error = link_device(&path, &dir.path().join("link"), true).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("no block device"), "{error}");
    }
}
