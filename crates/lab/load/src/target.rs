//! Targets of a load: named objects. A pool of a cluster, over Carmine's own client; and a file or block device without an OSD:
//! what the drive itself gives to a reactor.

use std::cell::Cell;
use std::fmt::Display;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{
    Access, BYTES_IN_FLIGHT, Client, ClientError, OPS_IN_FLIGHT, OPS_IN_FLIGHT_MAX, Options, Pool,
};
use carmine_reactor::sync::Notify;
use carmine_reactor::{File, FileOptions, Payload, Shard};
use carmine_types::FlushMode;
use thiserror::Error;

use crate::job::{JobSetup, run_job};
use crate::pattern::Geometry;
use crate::spec::LoadSpec;

/// Operations beside those of the workers: statting and prefilling.
const OPS_MORE: usize = 64;
/// A running testbed answers within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// An operation that failed, with the target's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TargetError(pub String);

/// Named objects that can be read and written: a pool of a cluster, the PGs of one reactor, or a bare store.
pub trait Target {
    /// Reads up to `len` bytes; short at the end of the object, empty if there is none.
    fn read(&self, object: &str, off: u64, len: u64) -> impl Future<Output = Result<Payload, TargetError>>;

    /// Writes; resolves when the write is acknowledged.
    fn write(&self, object: &str, off: u64, data: Payload) -> impl Future<Output = Result<(), TargetError>>;

    /// Size of an object, `None` if it does not exist.
    fn stat(&self, object: &str) -> impl Future<Output = Result<Option<u64>, TargetError>>;
}

/// Connects a client of its own for one job of `spec`. Operations have no limit of time: they wait for their PG as
/// Ceph's do, and the load's end abandons them.
async fn connect(shard: &Shard, access: &Access, pool: &str, spec: &LoadSpec) -> Result<Pool, ClientError> {
    let ops = (spec.iodepth as usize + OPS_MORE).max(OPS_IN_FLIGHT);
    let bytes = (spec.longest_bytes() as usize).saturating_mul(ops);
    let options = Options {
        route: spec.route,
        connect_timeout: CONNECT_TIMEOUT,
        ops_in_flight: ops.min(OPS_IN_FLIGHT_MAX),
        bytes_in_flight: bytes.max(BYTES_IN_FLIGHT),
        ..Options::default()
    };
    Client::connect(shard, access, options).await?.wait_pool(pool).await
}

impl Target for Pool {
    async fn read(&self, object: &str, off: u64, len: u64) -> Result<Payload, TargetError> {
        match Pool::read(self, object, off, len).await {
            Err(error) if error.is_not_found() => Ok(Payload::new()),
            other => other.map_err(failed),
        }
    }

    async fn write(&self, object: &str, off: u64, data: Payload) -> Result<(), TargetError> {
        Pool::write(self, object, off, data).await.map(drop).map_err(failed)
    }

    async fn stat(&self, object: &str) -> Result<Option<u64>, TargetError> {
        match Pool::stat(self, object).await {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(|stat| Some(stat.size)).map_err(failed),
        }
    }
}

/// Connects and runs one job against a pool.
pub async fn run_cluster_job(shard: &Shard, access: &Access, pool: &str, setup: JobSetup) {
    let pool = connect(shard, access, pool, &setup.spec).await;
    run_dealt_job(shard, pool, setup).await;
}

/// Runs one job on the objects that are dealt to it; without a target it ends with this error.
pub async fn run_dealt_job<T: Target + 'static>(
    shard: &Shard,
    target: Result<T, impl Display>,
    setup: JobSetup,
) {
    match target {
        Ok(target) => {
            let geometry = Geometry::dealt(&setup.spec, setup.job);
            run_job(shard, Rc::new(target), geometry, setup).await;
        }
        Err(error) => setup.abort(&error.to_string()),
    }
}

/// Objects of a load laid end to end on a device or file. Writes are made durable as the store `blue` does it in the same
/// flush mode: with `flush` a lone write by itself, many with one flush that covers all that were there before it.
pub struct DeviceTarget {
    shard: Shard,
    file: File,
    object_bytes: u64,
    writable: bool,
    mode: FlushMode,
    writing: Cell<u32>,
    /// Flushes that have begun, and the last of them that has ended well.
    flushes_begun: Cell<u64>,
    flushes_done: Cell<u64>,
    is_flushing: Cell<bool>,
    flushed: Notify,
}

impl DeviceTarget {
    /// Opens `path` past the page cache. Without `writable` nothing is ever written: every object counts as there.
    ///
    /// # Errors
    /// It can't be opened, or its file system takes no direct I/O.
    pub async fn open(
        shard: &Shard,
        path: &Path,
        object_bytes: u64,
        writable: bool,
        mode: FlushMode,
    ) -> Result<DeviceTarget, TargetError> {
        let options = FileOptions { read: true, write: writable, direct: true, ..FileOptions::default() };
        let file = shard.open(path, options).await.map_err(failed)?;
        Ok(DeviceTarget {
            shard: shard.clone(),
            file,
            object_bytes,
            writable,
            mode,
            writing: Cell::default(),
            flushes_begun: Cell::default(),
            flushes_done: Cell::default(),
            is_flushing: Cell::default(),
            flushed: Notify::new(),
        })
    }

    /// Where the object begins: its index is the last part of its name.
    fn offset(&self, object: &str) -> Result<u64, TargetError> {
        let index = object.rsplit('.').next().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let offset = index.and_then(|index| index.checked_mul(self.object_bytes));
        offset.ok_or_else(|| TargetError(format!("{object} is not an object of a load")))
    }

    /// Waits for a flush that begins after this call.
    async fn flush(&self) -> Result<(), TargetError> {
        let wanted = self.flushes_begun.get() + 1;
        while self.flushes_done.get() < wanted {
            if self.is_flushing.replace(true) {
                self.flushed.notified().await;
                continue;
            }
            let number = self.flushes_begun.get() + 1;
            self.flushes_begun.set(number);
            let result = self.file.fdatasync().await;
            self.is_flushing.set(false);
            if result.is_ok() {
                self.flushes_done.set(number);
            }
            self.flushed.notify_all();
            result.map_err(|e| TargetError(format!("flush: {e}")))?;
        }
        Ok(())
    }
}

fn failed(error: impl Display) -> TargetError {
    TargetError(error.to_string())
}

impl Target for DeviceTarget {
    async fn read(&self, object: &str, off: u64, len: u64) -> Result<Payload, TargetError> {
        let len = usize::try_from(len).map_err(failed)?;
        let (read, buf) = self.file.read_at(self.shard.buf(len), len, self.offset(object)? + off).await;
        read.map_err(failed)?;
        Ok(Payload::from(buf.freeze()))
    }

    async fn write(&self, object: &str, off: u64, data: Payload) -> Result<(), TargetError> {
        if !self.writable {
            return Err(TargetError("this device is only read".into()));
        }
        let at = self.offset(object)? + off;
        let durable = match self.mode {
            FlushMode::Flush => self.writing.get() == 0,
            FlushMode::Dsync => true,
            FlushMode::None => false,
        };
        self.writing.set(self.writing.get() + 1);
        let written = self.file.write_at(data.chunks().to_vec(), at, durable).await;
        self.writing.set(self.writing.get() - 1);
        written.map_err(failed)?;
        if durable || self.mode == FlushMode::None { Ok(()) } else { self.flush().await }
    }

    /// Of a file that is written first, nothing is there; of a device that is only read, everything.
    async fn stat(&self, _object: &str) -> Result<Option<u64>, TargetError> {
        Ok((!self.writable).then_some(self.object_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_reactor::{Config, block_on};

    #[test]
    #[allow(clippy::disallowed_methods, reason = "makes the file that the target opens")]
    fn objects_lie_end_to_end_and_devices_that_are_only_read_stay_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scratch");
        std::fs::write(&path, vec![0u8; 64 << 10]).unwrap();
        block_on(Config::default(), async |shard: Shard| {
            let target = DeviceTarget::open(&shard, &path, 16 << 10, true, FlushMode::Flush).await.unwrap();
            assert_eq!(target.stat("bench.16384.00000000").await, Ok(None));
            let mut block = shard.buf(4096);
            block.fill(7);
            let data = Payload::from(block.freeze());
            let (one, two) = ("bench.16384.00000001", "bench.16384.00000002");
            target.write(one, 4096, data.clone()).await.unwrap();
            target.write(two, 0, data).await.unwrap();
            assert_eq!(target.read(one, 4096, 4096).await.unwrap().to_vec(), vec![7; 4096]);
            assert!(target.read("rubbish", 0, 4096).await.is_err());
            let reader = DeviceTarget::open(&shard, &path, 16 << 10, false, FlushMode::None).await.unwrap();
            assert_eq!(reader.stat(one).await, Ok(Some(16 << 10)));
            assert!(reader.write(one, 0, Payload::new()).await.is_err());
        })
        .unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let written: Vec<usize> = (0..16).filter(|n| bytes[n * 4096] == 7).collect();
        assert_eq!(written, [5, 8]);
    }
}
