//! Files and block devices.
use std::io;
use std::rc::Rc;
use crate::buf::{Buf, Bytes};

/// How [`Shard::open`](crate::Shard::open) opens a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Create it if it does not exist (mode 0600).
    pub create: bool,
    /// Cut it to no bytes.
    pub truncate: bool,
    /// `O_DIRECT`: offsets, lengths and addresses must be multiples of the device's block size.
    pub direct: bool,
    /// `O_EXCL` without `create`: a block device that is mounted or otherwise in use is refused (EBUSY).
    pub exclusive_device: bool,
}

/// An open file; clones share it.
#[derive(Clone)]
pub struct File { _p: Rc<()> }
#[allow(unused_variables, missing_docs, clippy::unimplemented, clippy::unused_async)]
impl File {
    pub async fn read_at(&self, buf: Buf, len: usize, off: u64) -> (io::Result<usize>, Buf) { unimplemented!() }
    pub async fn write_at(&self, data: Vec<Bytes>, off: u64, dsync: bool) -> io::Result<()> { unimplemented!() }
    pub async fn fdatasync(&self) -> io::Result<()> { unimplemented!() }
    pub async fn len(&self) -> io::Result<u64> { unimplemented!() }
    pub async fn set_len(&self, len: u64) -> io::Result<()> { unimplemented!() }
}
