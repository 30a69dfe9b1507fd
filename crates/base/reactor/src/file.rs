//! Files and block devices.

use std::ffi::CString;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;

use carmine_types::IoPath;

use crate::buf::{Buf, Bytes};
use crate::driver::Driver;
use crate::op::{Handle, Lane, Op, OpFuture, Way};
use crate::shard::Shard;
use crate::{io_path, sys};

/// How [`Shard::open`](crate::Shard::open) opens a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Create it if it does not exist (mode 0600).
    pub create: bool,
    /// Truncate it to zero bytes.
    pub truncate: bool,
    /// `O_DIRECT`: offsets, lengths and addresses must be multiples of the device's block size.
    pub direct: bool,
    /// `O_EXCL` without `create`: a block device that is mounted or otherwise in use is refused (EBUSY).
    pub exclusive_device: bool,
    /// How its reads and writes reach the drive; anything but `Block` is for block devices opened with `direct`.
    pub io_path: IoPath,
}

impl FileOptions {
    fn flags(self) -> io::Result<i32> {
        let mut f = match (self.read, self.write) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            (true, false) => libc::O_RDONLY,
            (false, false) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "neither read nor write was asked for",
                ));
            }
        };
        for (wanted, flag) in [
            (self.create, libc::O_CREAT),
            (self.truncate, libc::O_TRUNC),
            (self.direct, libc::O_DIRECT),
            (self.exclusive_device && !self.create, libc::O_EXCL),
        ] {
            if wanted {
                f |= flag;
            }
        }
        Ok(f | libc::O_CLOEXEC)
    }
}

pub(crate) async fn open(shard: &Shard, path: &Path, opts: FileOptions) -> io::Result<File> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot open {}: {e}", path.display()));
    let flags = opts.flags().map_err(named)?;
    let sim = match &mut *shard.inner().driver.borrow_mut() {
        Driver::Sim(s) => Some(s.open(path, opts)),
        Driver::Uring(_) => None,
        Driver::Closed => return Err(named(crate::driver::closed())),
    };
    let handle = match sim {
        Some(h) => Handle::Sim(h.map_err(named)?),
        None => {
            let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|e| named(e.into()))?;
            let out = OpFuture::new(shard, Op::Open { path: c_path, flags }).await;
            let fd = sys::own_fd(out.io().map_err(named)? as i32);
            Handle::Os(fd, way(shard, path, opts.io_path).await.map_err(named)?)
        }
    };
    Ok(File { shard: shard.clone(), handle: Rc::new(handle) })
}

/// Finds the path to a drive, and creates its ring.
async fn way(shard: &Shard, path: &Path, asked: IoPath) -> io::Result<Way> {
    if asked == IoPath::Block {
        return Ok(Way::Plain);
    }
    let path = path.to_owned();
    let (way, _) = shard.alien(0, move || io_path::way(&path, asked)).await?;
    let lane = match way {
        Way::Plain => Lane::Main,
        Way::Polled(_) => Lane::Polled,
        Way::Commands(_) => Lane::Commands,
    };
    shard.inner().driver.borrow_mut().open_lane(lane)?;
    Ok(way)
}

pub(crate) async fn sync_folder(shard: &Shard, path: &Path) -> io::Result<()> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot sync {}: {e}", path.display()));
    let sim = match &mut *shard.inner().driver.borrow_mut() {
        Driver::Sim(s) => Some(s.open_folder(path)),
        Driver::Uring(_) => None,
        Driver::Closed => return Err(named(crate::driver::closed())),
    };
    let handle = match sim {
        Some(h) => Handle::Sim(h),
        None => {
            let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|e| named(e.into()))?;
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
            let out = OpFuture::new(shard, Op::Open { path: c_path, flags }).await;
            Handle::from(sys::own_fd(out.io().map_err(named)? as i32))
        }
    };
    let out = OpFuture::new(shard, Op::SyncFolder { handle: Rc::new(handle) }).await;
    out.io().map(drop).map_err(named)
}

/// An open file; clones share it. It is closed when the last clone is gone and no operation is in flight.
#[derive(Clone)]
pub struct File {
    shard: Shard,
    handle: Rc<Handle>,
}

impl File {
    /// Reads up to `len` bytes at `off` into the start of `buf` and sets the buffer's length to what was read (less
    /// than `len` only at the end of the file).
    ///
    /// # Errors
    /// Those of `pread`, and InvalidInput if `len` is above the buffer's capacity; the buffer comes back in every case.
    pub async fn read_at(&self, buf: Buf, len: usize, off: u64) -> (io::Result<usize>, Buf) {
        if len > buf.capacity() {
            let text = format!("read of {len} bytes into a buffer of {}", buf.capacity());
            return (Err(io::Error::new(io::ErrorKind::InvalidInput, text)), buf);
        }
        if let Err(error) = self.check_blocks(off, len as u64) {
            return (Err(error), buf);
        }
        let mut op = Op::Read { handle: Rc::clone(&self.handle), buf, at: 0, len, off };
        loop {
            let out = OpFuture::new(&self.shard, op).await;
            let result = out.io();
            match (result, out.op) {
                (Err(e), o @ Op::Read { .. }) if e.kind() == io::ErrorKind::Interrupted => op = o,
                // One command carries a limited amount: a short read is not the end of the file.
                (Ok(n), Op::Read { handle, buf, at, len, off })
                    if n > 0 && at + n < len && self.is_commanded() =>
                {
                    op = Op::Read { handle, buf, at: at + n, len, off: off + n as u64 };
                }
                (Ok(n), Op::Read { mut buf, at, .. }) => {
                    buf.set_len(at + n);
                    return (Ok(at + n), buf);
                }
                (Err(e), Op::Read { buf, .. }) => return (Err(e), buf),
                // An operation comes back as what it was.
                (_, o) => op = o,
            }
        }
    }

    /// Writes all of `data`, gathered, at `off`. With `dsync` it is durable when this returns.
    ///
    /// # Errors
    /// Those of `pwrite`; what was written before the error stays written.
    pub async fn write_at(&self, data: Vec<Bytes>, off: u64, dsync: bool) -> io::Result<()> {
        let mut left: usize = data.iter().map(Bytes::len).sum();
        if left == 0 {
            return Ok(());
        }
        self.check_blocks(off, left as u64)?;
        let mut op = Op::Write { handle: Rc::clone(&self.handle), data, skip: 0, off, dsync };
        loop {
            let out = OpFuture::new(&self.shard, op).await;
            let n = match out.io() {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                Err(e) => return Err(e),
            };
            left = left.saturating_sub(n);
            if left == 0 {
                return Ok(());
            }
            op = out.op;
            if let Op::Write { skip, off, .. } = &mut op {
                *skip += n;
                *off += n as u64;
            }
        }
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// Those of `fdatasync`. After one, what is durable is unknown.
    pub async fn fdatasync(&self) -> io::Result<()> {
        loop {
            let out = OpFuture::new(&self.shard, Op::Datasync { handle: Rc::clone(&self.handle) }).await;
            match out.io() {
                // A command lost in a reset of its controller; the block layer would repeat it by itself.
                Err(e) if e.kind() == io::ErrorKind::Interrupted && self.is_commanded() => {}
                result => return result.map(drop),
            }
        }
    }

    /// The path that its reads and writes take.
    #[must_use]
    pub fn io_path(&self) -> IoPath {
        self.handle.way().io_path()
    }

    fn is_commanded(&self) -> bool {
        matches!(self.handle.way(), Way::Commands(_))
    }

    /// Fails if a drive that is commanded does not have these blocks, or if there are none.
    fn check_blocks(&self, off: u64, len: u64) -> io::Result<()> {
        match self.handle.way() {
            Way::Commands(namespace) if !namespace.layout.has(off, len) => {
                let unit = namespace.layout.lba_bytes();
                let text = format!("{len} bytes at {off} are no blocks (of {unit} bytes) of this device");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            _ => Ok(()),
        }
    }

    /// Length in bytes, of a block device too.
    ///
    /// # Errors
    /// Those of `lseek`.
    pub async fn len(&self) -> io::Result<u64> {
        match &*self.handle {
            // Seeking works for files and devices alike; nothing else uses the file's position.
            Handle::Os(fd, _) => std::fs::File::from(fd.as_fd().try_clone_to_owned()?).seek(SeekFrom::End(0)),
            Handle::Sim(h) => match &mut *self.shard.inner().driver.borrow_mut() {
                Driver::Sim(s) => s.file_len(h),
                Driver::Uring(_) | Driver::Closed => Ok(0),
            },
        }
    }

    /// Whether it is a block device. Simulated ones are all files.
    #[must_use]
    pub fn is_device(&self) -> bool {
        match &*self.handle {
            Handle::Os(fd, _) => fd
                .as_fd()
                .try_clone_to_owned()
                .and_then(|fd| std::fs::File::from(fd).metadata())
                .is_ok_and(|metadata| metadata.file_type().is_block_device()),
            Handle::Sim(_) => false,
        }
    }

    /// Discards bytes that are no longer needed: a drive may drop them, a file returns them to its file system. Their content is
    /// undefined until they are written again; writes in flight there at the same time may get lost.
    ///
    /// # Errors
    /// Those of `fallocate` and of the `BLKDISCARD` of a device; Unsupported if there are no discards here.
    pub async fn discard(&self, off: u64, len: u64) -> io::Result<()> {
        if let Handle::Os(fd, Way::Plain | Way::Polled(_)) = &*self.handle
            && self.is_device()
        {
            // The ring has a command for it since Linux 6.12 only.
            let fd = fd.as_fd().try_clone_to_owned()?;
            return self.shard.alien(0, move || sys::discard(&fd, off, len)).await;
        }
        self.forget(off, len, false).await
    }

    /// Lets a drive write zeros by itself, or a file system make a hole: no data is sent to it.
    ///
    /// # Errors
    /// Those of `fallocate`; Unsupported if the drive cannot do it.
    pub async fn write_zeros(&self, off: u64, len: u64) -> io::Result<()> {
        // On a device the kernel makes a "write zeroes" of a punched hole, and an error where it would have to write itself.
        self.forget(off, len, true).await
    }

    async fn forget(&self, mut off: u64, mut len: u64, zeros: bool) -> io::Result<()> {
        if let Way::Commands(namespace) = self.handle.way() {
            self.check_blocks(off, len)?;
            if !namespace.layout.can_forget(zeros) {
                return Err(io::ErrorKind::Unsupported.into());
            }
        }
        loop {
            let op = Op::Discard { handle: Rc::clone(&self.handle), off, len, zeros };
            let done = match OpFuture::new(&self.shard, op).await.io() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                result => result? as u64,
            };
            if !self.is_commanded() || done >= len {
                return Ok(());
            }
            (off, len) = (off + done, len - done);
        }
    }

    /// Sets the length; a longer file reads as zeros there.
    ///
    /// # Errors
    /// Those of `ftruncate`.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        let out = OpFuture::new(&self.shard, Op::SetLen { handle: Rc::clone(&self.handle), len }).await;
        match (out.io(), &*self.handle) {
            // Before Linux 6.9 the ring does not know the operation.
            (Err(e), Handle::Os(fd, _)) if e.raw_os_error() == Some(libc::EINVAL) => {
                std::fs::File::from(fd.as_fd().try_clone_to_owned()?).set_len(len)
            }
            (r, _) => r.map(drop),
        }
    }
}
