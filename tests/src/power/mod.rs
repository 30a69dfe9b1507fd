//! A machine whose power can be cut. Its processes end in the middle of whatever they do, and its two drives lose writes that were not
//! flushed: the one with the testbed's folder (the monitor's state and RocksDB's files, on ext4), and the one with the OSDs' blocks.
//! `kill -9` is weaker: it leaves the page cache and the caches of the drives as they were.

mod drive;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::fs::OFlags;
use tempfile::TempDir;

use crate::{Testbed, kill_nine, run, signal, skip, succeed, target_dir};
use drive::VolatileDrive;

const SYSTEM_BYTES: u64 = 1 << 30;

/// A testbed on two volatile drives.
pub struct Machine {
    // Dropped in this order: the testbed lies on the file system, the file system on a drive.
    bed: Testbed,
    files: Mounted,
    system: VolatileDrive,
    data: VolatileDrive,
}

impl Machine {
    /// A machine whose second drive has `data_bytes`. `None`, by way of [`skip`], where such drives cannot be made.
    ///
    /// # Panics
    /// If no file system can be made on a drive.
    pub fn new(data_bytes: u64) -> Option<Machine> {
        let drive = |size_bytes| {
            let no_drive = |why| {
                skip(format_args!("no volatile drive ({why}): run as root, with /dev/fuse and loop devices"))
            };
            VolatileDrive::new(&target_dir(), size_bytes).map_err(no_drive).ok()
        };
        let (system, data) = (drive(SYSTEM_BYTES)?, drive(data_bytes)?);
        tool("mkfs.ext4", &["-q", system.name()]);
        let files = Mounted::new(system.name());
        Some(Machine { bed: Testbed::inside(files.point.path()), files, system, data })
    }

    /// The testbed, whose folder is on the first drive.
    pub fn bed(&self) -> &Testbed {
        &self.bed
    }

    /// The second drive's block device.
    pub fn device(&self) -> &str {
        self.data.name()
    }

    /// From now on the second drive only claims to flush.
    pub fn ignore_flushes(&self) {
        self.data.ignore_flushes();
    }

    /// Cuts the power of everything at once: no process runs afterwards. Each unflushed sector is kept with the same probability, which
    /// `rng` draws, too. Returns how many sectors each drive lost: that of the data, and that of the file system.
    ///
    /// # Panics
    /// If a process survives.
    pub fn cut_power(&self, rng: &mut Rng) -> [usize; 2] {
        let pids = self.bed.pids();
        // Processes of a machine without power see no errors of its drives, so these are stopped first.
        signal(&pids, "-STOP");
        let kept = [0.0, 0.5, 0.95][rng.usize(..3)];
        let mut keeps = || rng.f64() < kept;
        let lost = [&self.data, &self.system].map(|drive| drive.cut_power(&mut keeps).expect("a file below"));
        kill_nine(&pids);
        lost
    }

    /// Turns the power on again, when nobody has files of the old file system open.
    ///
    /// # Panics
    /// If the file system cannot be mounted.
    pub fn power_on(&self) {
        self.files.unmount();
        self.data.power_on();
        self.system.power_on();
        self.files.mount();
    }
}

/// An ext4 file system on a device.
#[derive(Debug)]
struct Mounted {
    device: String,
    point: TempDir,
}

impl Mounted {
    fn new(device: &str) -> Mounted {
        let point = tempfile::tempdir_in(target_dir()).expect("a folder to mount on");
        let mounted = Mounted { device: device.to_owned(), point };
        mounted.mount();
        mounted
    }

    fn point(&self) -> &str {
        self.point.path().to_str().expect("UTF-8")
    }

    fn mount(&self) {
        tool("mount", &["-t", "ext4", &self.device, self.point()]);
    }

    fn unmount(&self) {
        tool("umount", &[self.point()]);
        // In a mount namespace that was made beside this test it would go on, and the next mount would be the same file system
        // still, with the errors that it met without power.
        let begin = Instant::now();
        while !self.is_free() {
            assert!(begin.elapsed() < LIMIT, "{} is still mounted, in another mount namespace", self.device);
            std::thread::sleep(Duration::from_millis(20));
        }
        // Blocks of the device that were cached before the cut say nothing about the drive.
        tool("blockdev", &["--flushbufs", &self.device]);
    }
}

impl Mounted {
    /// Nobody has the device mounted, here or in another mount namespace.
    fn is_free(&self) -> bool {
        File::options().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(&self.device).is_ok()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(Path::new("umount"), &[self.point()], LIMIT);
    }
}

/// Longest that a tool may need on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn tool(program: &str, args: &[&str]) {
    succeed(run(Path::new(program), args, LIMIT), &format!("{program} {args:?}"));
}
