//! A drive with a volatile cache: a loop device on the one file of a small FUSE file system.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use carmine_testkit::LoopDevice;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};
use tempfile::TempDir;

/// The unit that a power cut loses or keeps.
const SECTOR_BYTES: usize = 512;
/// Longest write that the kernel sends at once.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// A block device that forgets at a power cut what was not flushed.
#[derive(Debug)]
pub(super) struct VolatileDrive {
    // Dropped in this order: the device lies on the file, the file in the folder.
    device: LoopDevice,
    _session: BackgroundSession,
    served: Served,
    _folder: TempDir,
}

impl VolatileDrive {
    /// A drive of `size_bytes` zeros, whose file lies in a new folder in `parent`.
    ///
    /// # Errors
    /// Root, /dev/fuse or loop devices are missing.
    pub(super) fn new(parent: &Path, size_bytes: u64) -> io::Result<VolatileDrive> {
        let folder = tempfile::tempdir_in(parent)?;
        let media =
            File::options().read(true).write(true).create_new(true).open(folder.path().join("media"))?;
        media.set_len(size_bytes)?;
        let cache = Cache { media, size_bytes, lies: false, is_on: true, durable: HashMap::new() };
        let served = Served(Arc::new(Mutex::new(cache)));
        // The file system's root is a file, so it is mounted on one.
        let file = folder.path().join("drive");
        File::create(&file)?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("carmine-volatile".into())];
        let session = fuser::spawn_mount(served.clone(), &file, &config)?;
        let device = LoopDevice::on(file, SECTOR_BYTES as u32)?;
        Ok(VolatileDrive { device, _session: session, served, _folder: folder })
    }

    /// Name of the block device.
    pub(super) fn name(&self) -> &str {
        self.device.name()
    }

    /// Cuts the power: all requests fail from now on, and of the sectors that were written since the last flush only those stay for
    /// which `keeps` says so. Returns how many were lost.
    ///
    /// # Errors
    /// Those of the file below.
    pub(super) fn cut_power(&self, keeps: &mut dyn FnMut() -> bool) -> io::Result<usize> {
        self.served.lock(|cache| cache.cut_power(keeps))
    }

    /// Answers flushes from now on without making anything durable.
    pub(super) fn ignore_flushes(&self) {
        self.served.lock(|cache| cache.lies = true);
    }

    /// Answers requests again.
    pub(super) fn power_on(&self) {
        self.served.lock(|cache| cache.is_on = true);
    }
}

#[derive(Debug)]
struct Cache {
    /// Durable and cached contents together.
    media: File,
    size_bytes: u64,
    /// Flushes are answered, and do nothing.
    lies: bool,
    is_on: bool,
    /// The durable contents of each sector that was written since the last flush, by its number.
    durable: HashMap<u64, [u8; SECTOR_BYTES]>,
}

impl Cache {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.check_power()?;
        self.media.read_exact_at(out, offset)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_power()?;
        let end = offset + data.len() as u64;
        let sector_bytes = SECTOR_BYTES as u64;
        assert!(
            offset.is_multiple_of(sector_bytes) && end.is_multiple_of(sector_bytes) && end <= self.size_bytes,
            "a block device writes sectors of its own, not {offset}..{end}"
        );
        for sector in offset / sector_bytes..end / sector_bytes {
            if !self.durable.contains_key(&sector) {
                let mut old = [0; SECTOR_BYTES];
                self.media.read_exact_at(&mut old, sector * sector_bytes)?;
                self.durable.insert(sector, old);
            }
        }
        self.media.write_all_at(data, offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check_power()?;
        if !self.lies {
            self.durable.clear();
        }
        Ok(())
    }

    fn check_power(&self) -> io::Result<()> {
        if self.is_on { Ok(()) } else { Err(io::Error::other("the drive has no power")) }
    }

    fn cut_power(&mut self, keeps: &mut dyn FnMut() -> bool) -> io::Result<usize> {
        self.is_on = false;
        let mut lost = 0;
        for (sector, old) in self.durable.drain().filter(|_| !keeps()) {
            self.media.write_all_at(&old, sector * SECTOR_BYTES as u64)?;
            lost += 1;
        }
        Ok(lost)
    }
}

/// The file system: its root is the drive's file.
#[derive(Clone, Debug)]
struct Served(Arc<Mutex<Cache>>);

impl Served {
    fn lock<T>(&self, act: impl FnOnce(&mut Cache) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A smaller limit of the kernel's is as good.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let size = self.lock(|cache| cache.size_bytes);
        let time = UNIX_EPOCH;
        let attr = FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        reply.attr(&Duration::from_secs(3600), &attr);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel must cache nothing: the cache under test is this drive's.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut out = vec![0; size as usize];
        match self.lock(|cache| cache.read(offset, &mut out)) {
            Ok(()) => reply.data(&out),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.lock(|cache| cache.write(offset, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Called at each close, which makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.lock(Cache::flush) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }
}
