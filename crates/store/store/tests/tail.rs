//! The end of a log that is gone: what was known to be durable is missed, however much of the end that is.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test damages the file of a store"
)]

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use carmine_store::blue::MountOptions;
use carmine_store::{BlueShared, Kv, MemKv, StoreError};
use common::*;

const BLOCK: usize = 4096;
const WRITES: u64 = 240;

/// A store that ended in a crash, after overwrites that were all acknowledged.
struct Crashed {
    _folder: tempfile::TempDir,
    path: PathBuf,
    kv: Arc<MemKv>,
}

impl Crashed {
    /// Each overwrite is a group of its own; they come over a tenth of a second and more.
    fn new() -> Crashed {
        let folder = tempfile::tempdir().unwrap();
        let (path, kv) = (folder.path().join("block"), Arc::new(MemKv::new()));
        let index = Arc::clone(&kv) as Arc<dyn Kv>;
        on_reactor(async |shard| {
            // Large enough that the log is not trimmed.
            mkfs(&shard, &path, &index, 256 << 20).await;
            let (_, store) = mount(&shard, &path, &index).await;
            for n in 0..WRITES {
                submit(&store, txn([write(&oid((n % 8) as u8), 0, noise(n, BLOCK))])).await.unwrap();
                if n % 8 == 7 {
                    shard.sleep(Duration::from_millis(4)).await;
                }
            }
        });
        kv.crash(0);
        Crashed { _folder: folder, path, kv }
    }

    /// Makes the last `count` groups zeros, and what follows them in their segment; gives how many groups are left.
    fn zero_tail(&self, count: usize) -> usize {
        let groups = groups(&self.path);
        assert!(groups.len() as u64 >= WRITES, "{} groups", groups.len());
        let left = groups.len() - count;
        let file = std::fs::OpenOptions::new().write(true).open(&self.path).unwrap();
        for (at, blocks) in &groups[left..] {
            // A mark may stand behind a group.
            file.write_all_at(&vec![0; (blocks + 1) * BLOCK], *at as u64).unwrap();
        }
        left
    }

    /// A later mount, and what it replays.
    fn mount(&self, accepts_loss: bool) -> Result<u64, StoreError> {
        let kv = Arc::clone(&self.kv) as Arc<dyn Kv>;
        on_reactor(async |shard| {
            let options = MountOptions { accepts_loss, ..MountOptions::default() };
            let shared = BlueShared::mount(&shard, self.path.as_path(), kv, options).await?;
            Ok(shared.replayed().groups)
        })
    }
}

/// Byte and blocks of each group of the newest epoch, in order; of one lane.
fn groups(path: &Path) -> Vec<(usize, usize)> {
    let content = std::fs::read(path).unwrap();
    let number = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
    let length = |at: usize| u32::from_le_bytes(content[at..at + 4].try_into().unwrap());
    let headers = (0..content.len()).step_by(BLOCK).filter(|at| content[*at..].starts_with(b"bluelog\n"));
    let headers: Vec<usize> = headers.collect();
    let epoch = headers.iter().map(|at| number(at + 16)).max().unwrap();
    let is_group = |at: &&usize| number(**at + 16) == epoch && length(**at + 52) > 0;
    let mut groups: Vec<(u64, usize, usize)> = headers
        .iter()
        .filter(is_group)
        .map(|at| (number(at + 24), *at, (72 + length(at + 56) as usize).div_ceil(BLOCK)))
        .collect();
    groups.sort_unstable();
    groups.into_iter().map(|(_, at, blocks)| (at, blocks)).collect()
}

#[test]
fn a_tail_of_the_log_that_was_durable_is_missed() {
    for count in [120, 80] {
        let crashed = Crashed::new();
        crashed.zero_tail(count);
        let error = crashed.mount(false).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("the acknowledged writes of") && text.contains("are lost here"), "{text}");
    }
}

#[test]
fn a_store_without_replicas_goes_on_without_what_is_lost_when_it_is_told_to() {
    let crashed = Crashed::new();
    let left = crashed.zero_tail(100);
    assert!(crashed.mount(false).is_err());
    assert_eq!(crashed.mount(true).unwrap(), left as u64);
    // It is an ordinary store again.
    assert_eq!(crashed.mount(false).unwrap(), 0);
}

#[test]
fn a_log_that_is_whole_is_replayed() {
    let crashed = Crashed::new();
    assert!(crashed.mount(false).unwrap() >= WRITES);
}
