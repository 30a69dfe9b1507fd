//! The writes of a preconditioning: past the page cache, through a reactor of their own.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use carmine_reactor::{Bytes, Config, File, FileOptions, Group, PollPolicy, Shard, block_on};

use crate::error::{Result, failed, usage};

/// Bytes of a sequential write, and of a buffer of random bytes.
const PIECE_BYTES: u64 = 1 << 20;
/// Sequential writes in flight.
const SEQUENTIAL_DEPTH: u32 = 8;
/// Random writes in flight.
const RANDOM_DEPTH: u32 = 32;
/// Buffers of random bytes, so that a drive that looks for equal data finds little.
const BUFFERS: usize = 16;
/// How often progress is told and the end looked for.
const LOOK: Duration = Duration::from_millis(50);
/// The first bytes of a device tell whether there is anything on it.
const BLANK_BYTES: usize = 64 << 10;
const ARENA_BYTES: usize = 64 << 20;

/// A drive that nobody else uses.
pub(super) struct Drive {
    shard: Shard,
    file: File,
    path: PathBuf,
    size_bytes: u64,
    data: Rc<[Bytes]>,
}

/// Work that the writers of one phase share.
struct Work {
    /// Number of the next write.
    next: Cell<u64>,
    /// Number after the last.
    end: u64,
    done: Cell<u64>,
    halt: Cell<bool>,
    writers: Cell<u32>,
    error: RefCell<Option<io::Error>>,
}

/// Runs `work` with a drive, on a reactor of its own.
///
/// # Errors
/// A drive that is no block device, in use, or not blank without `wipe`.
pub(super) fn with_drive<R>(
    device: &Path,
    wipe: bool,
    work: impl AsyncFnOnce(&Drive) -> Result<R>,
) -> Result<R> {
    let config = Config {
        name: "precondition".into(),
        poll: PollPolicy::Sleep,
        alien_threads: 0,
        arena_bytes_per_shard: ARENA_BYTES,
        ..Config::default()
    };
    block_on(config, async move |shard: Shard| {
        let drive = Drive::open(&shard, device, wipe).await?;
        work(&drive).await
    })
    .map_err(|e| failed!("cannot start a reactor: {e}"))?
}

impl Drive {
    async fn open(shard: &Shard, path: &Path, wipe: bool) -> Result<Self> {
        let error = |e: io::Error| failed!("cannot precondition {}: {e}", path.display());
        let options = FileOptions {
            read: true,
            write: true,
            direct: true,
            exclusive_device: true,
            ..FileOptions::default()
        };
        let file = shard.open(path, options).await.map_err(error)?;
        if !file.is_device() {
            return Err(usage!("--devs {}: this is no block device", path.display()));
        }
        let size_bytes = file.len().await.map_err(error)?;
        let (read, buf) = file.read_at(shard.buf(BLANK_BYTES), BLANK_BYTES, 0).await;
        let found = read.map_err(error)?;
        if !wipe && buf.iter().take(found).any(|byte| *byte != 0) {
            return Err(failed!(
                "{} is not blank: name another device, or take --force-wipe, which destroys what is on it",
                path.display()
            ));
        }
        let data = (0..BUFFERS).map(|_| random_bytes(shard)).collect();
        Ok(Self { shard: shard.clone(), file, path: path.to_owned(), size_bytes, data })
    }

    /// Its capacity.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Writes `total_bytes` from the beginning on, over and over, until `stop`; tells `progress` the bytes done.
    pub(super) async fn sequential(
        &self,
        total_bytes: u64,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let pieces = (self.size_bytes / PIECE_BYTES).max(1);
        let work = self.start(SEQUENTIAL_DEPTH, PIECE_BYTES, total_bytes / PIECE_BYTES, move |n| n % pieces);
        self.finish(&work, stop, &mut |work| progress(work.done.get() * PIECE_BYTES)).await
    }

    /// Writes blocks of `bs_bytes` at random for `time`, or until `stop`; returns their IOPS.
    pub(super) async fn random_round(
        &self,
        bs_bytes: u64,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<f64> {
        let blocks = (self.size_bytes / bs_bytes).max(1);
        let shard = self.shard.clone();
        let started = Instant::now();
        let work = self.start(RANDOM_DEPTH, bs_bytes, u64::MAX, move |_| shard.random_u64() % blocks);
        self.finish(&work, &|| started.elapsed() >= time || stop(), &mut |_| ()).await?;
        Ok(work.done.get() as f64 / started.elapsed().as_secs_f64())
    }

    /// Starts `depth` writers; `block_of` gives the place of each write in units of its size.
    fn start(
        &self,
        depth: u32,
        bytes: u64,
        end: u64,
        block_of: impl Fn(u64) -> u64 + Clone + 'static,
    ) -> Rc<Work> {
        let work = Rc::new(Work {
            next: Cell::new(0),
            end,
            done: Cell::new(0),
            halt: Cell::new(false),
            writers: Cell::new(depth),
            error: RefCell::new(None),
        });
        for _ in 0..depth {
            let (file, data, work, block_of) =
                (self.file.clone(), Rc::clone(&self.data), Rc::clone(&work), block_of.clone());
            self.shard.spawn(Group::Admin, "precondition", async move {
                while let Some(number) = work.take() {
                    let buffer = &data[number as usize % data.len()];
                    let write =
                        file.write_at(vec![buffer.slice(..bytes as usize)], block_of(number) * bytes, false);
                    match write.await {
                        Ok(()) => work.done.set(work.done.get() + 1),
                        Err(e) => {
                            work.halt.set(true);
                            work.error.borrow_mut().get_or_insert(e);
                        }
                    }
                }
                work.writers.set(work.writers.get() - 1);
            });
        }
        work
    }

    /// Waits for the writers, and for the drive to have it all.
    async fn finish(&self, work: &Work, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&Work)) -> Result<()> {
        while work.writers.get() > 0 {
            self.shard.sleep(LOOK).await;
            tell(work);
            if stop() {
                work.halt.set(true);
            }
        }
        let error = work.error.borrow_mut().take();
        let flushed = self.file.fdatasync().await;
        error
            .map_or(flushed, Err)
            .map_err(|e| failed!("cannot write to {} while preconditioning it: {e}", self.path.display()))
    }
}

impl Work {
    fn take(&self) -> Option<u64> {
        let number = self.next.get();
        if self.halt.get() || number >= self.end {
            return None;
        }
        self.next.set(number + 1);
        Some(number)
    }
}

/// Incompressible data.
fn random_bytes(shard: &Shard) -> Bytes {
    let mut buf = shard.buf(PIECE_BYTES as usize);
    for word in buf.chunks_exact_mut(8) {
        word.copy_from_slice(&shard.random_u64().to_le_bytes());
    }
    buf.freeze()
}
