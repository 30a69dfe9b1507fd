//! 4 KiB O_DIRECT random reads at iodepth 32 through the reactor, beside the same reads through `tokio-uring`.
//! Expected: the disk decides the rate (5 µs each at 200 k/s); tokio-uring pays an epoll wait a turn on top.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real time and files

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use carmine_reactor::{Buf, FileOptions, Group, Shard, block_on, sync::oneshot};
use criterion::{Criterion, criterion_group, criterion_main};

const BLOCK_BYTES: usize = 4096;
const FILE_BLOCKS: u64 = 16 << 10;
const IODEPTH: u64 = 32;
const O_DIRECT: i32 = 0x4000;

/// The n-th offset of lane `lane`: a cheap scattered sequence.
fn offset(lane: u64, n: u64) -> u64 {
    (lane.wrapping_add(n * IODEPTH).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % FILE_BLOCKS
        * BLOCK_BYTES as u64
}

fn through_reactor(path: &Path, iterations: u64) -> Duration {
    let path = path.to_path_buf();
    block_on(carmine_benches::reactors(1), async move |shard: Shard| {
        let options = FileOptions { read: true, direct: true, ..FileOptions::default() };
        let file = shard.open(&path, options).await.expect("the file opens");
        let begin = Instant::now();
        let mut lanes = Vec::new();
        for lane in 0..IODEPTH {
            let (tell, told) = oneshot::channel();
            let (file, mut buf) = (file.clone(), shard.buf(BLOCK_BYTES));
            shard.spawn(Group::Client, "read", async move {
                for n in 0..iterations / IODEPTH + 1 {
                    let (result, back) = file.read_at(buf, BLOCK_BYTES, offset(lane, n)).await;
                    assert_eq!(result.expect("a read"), BLOCK_BYTES);
                    buf = back;
                }
                let _ = tell.send(());
            });
            lanes.push(told);
        }
        for told in lanes {
            let _ = told.await;
        }
        begin.elapsed()
    })
    .expect("a reactor starts")
}

fn through_tokio_uring(path: &Path, iterations: u64) -> Duration {
    let path = path.to_path_buf();
    tokio_uring::start(async move {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).custom_flags(O_DIRECT).open(&path).expect("the file opens");
        let file = Rc::new(tokio_uring::fs::File::from_std(file));
        let begin = Instant::now();
        let lanes: Vec<_> = (0..IODEPTH)
            .map(|lane| {
                let file = Rc::clone(&file);
                tokio_uring::spawn(async move {
                    let mut buf = AlignedBlock(Buf::heap(BLOCK_BYTES));
                    for n in 0..iterations / IODEPTH + 1 {
                        let (result, back) = file.read_at(buf, offset(lane, n)).await;
                        assert_eq!(result.expect("a read"), BLOCK_BYTES);
                        buf = back;
                    }
                })
            })
            .collect();
        for lane in lanes {
            lane.await.expect("a lane ends");
        }
        begin.elapsed()
    })
}

/// tokio-uring wants its own buffer traits; O_DIRECT wants alignment, which `Vec` does not promise.
struct AlignedBlock(Buf);

// SAFETY: the heap buffer does not move when the handle does, and is 4096 bytes long, all initialised.
unsafe impl tokio_uring::buf::IoBuf for AlignedBlock {
    fn stable_ptr(&self) -> *const u8 {
        self.0.as_slice().as_ptr()
    }
    fn bytes_init(&self) -> usize {
        BLOCK_BYTES
    }
    fn bytes_total(&self) -> usize {
        BLOCK_BYTES
    }
}

// SAFETY: as above; `set_init` has nothing to record because all bytes are initialised.
unsafe impl tokio_uring::buf::IoBufMut for AlignedBlock {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_slice().as_mut_ptr()
    }
    unsafe fn set_init(&mut self, _: usize) {}
}

fn read(c: &mut Criterion) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let path: PathBuf = dir.path().join("blocks");
    carmine_benches::write_file(&path, FILE_BLOCKS * BLOCK_BYTES as u64).expect("the file is written");
    let mut group = c.benchmark_group("read 4KiB O_DIRECT, iodepth 32");
    group.bench_function("carmine-reactor", |b| b.iter_custom(|n| through_reactor(&path, n)));
    group.bench_function("tokio-uring", |b| b.iter_custom(|n| through_tokio_uring(&path, n)));
    group.finish();
}

criterion_group! {
    name = benches;
    config = carmine_benches::criterion();
    targets = read
}
criterion_main!(benches);
