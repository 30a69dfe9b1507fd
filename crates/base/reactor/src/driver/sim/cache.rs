//! Drives' own caches: what a power cut takes away, file by file. As [`Tape`](super::Tape) has it, but for one node at a time
//! and for as long as one likes: what is durable is folded into the content.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::disk::{Content, FileName};
use super::tape::{Fate, sectors};
use super::world::{Key, World};
use crate::driver::mix;
use crate::op::Op;

enum Change {
    Bytes(u64, Vec<u8>),
    Len(u64),
}

struct Pending {
    change: Change,
    /// When it was done, by [`Caches::clock`].
    done_at: Option<u64>,
    durable: bool,
    /// The operation failed or was never tried.
    void: bool,
    number: u64,
}

/// The cache in front of one file.
struct Cache {
    durable: Content,
    pending: Vec<Pending>,
    /// The file itself may vanish until its folder is flushed.
    made_at: Option<u64>,
}

enum Running {
    Change(FileName, u64),
    Flush(FileName, u64),
}

/// The caches of all files.
#[derive(Default)]
pub(super) struct Caches {
    files: BTreeMap<FileName, Cache>,
    running: BTreeMap<(Key, u32), Running>,
    clock: u64,
}

impl Change {
    fn apply(&self, content: &mut Content, fate: Fate) {
        match (self, fate) {
            (_, Fate::Absent) => {}
            (Change::Len(len), _) => content.set_len(*len),
            (Change::Bytes(off, data), _) => {
                sectors(data, fate).for_each(|(at, sector)| content.put(off + at, sector));
            }
        }
    }
}

impl Cache {
    /// Folds what is durable, and all before it is, into the content.
    fn fold(&mut self) {
        let settled = self.pending.iter().take_while(|p| p.durable || p.void).count();
        for pending in self.pending.drain(..settled).filter(|p| !p.void) {
            pending.change.apply(&mut self.durable, Fate::Whole);
        }
    }
}

impl Caches {
    pub(super) fn new(files: &BTreeMap<FileName, Content>) -> Caches {
        let cache =
            |content: &Content| Cache { durable: content.clone(), pending: Vec::new(), made_at: None };
        let files = files.iter().map(|(name, content)| (name.clone(), cache(content))).collect();
        Caches { files, ..Caches::default() }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(super) fn made(&mut self, file: FileName) {
        let made_at = Some(self.tick());
        self.files.insert(file, Cache { durable: Content::default(), pending: Vec::new(), made_at });
    }

    /// A drive was given an operation.
    pub(super) fn began(&mut self, key: (Key, u32), file: &FileName, op: &Op) {
        let number = self.tick();
        let change = match op {
            Op::Write { data, skip, off, .. } => {
                Change::Bytes(*off, data.iter().flat_map(|b| b.iter().copied()).skip(*skip).collect())
            }
            Op::SetLen { len, .. } => Change::Len(*len),
            Op::Discard { off, len, .. } => {
                Change::Bytes(*off, vec![0; usize::try_from(*len).unwrap_or(usize::MAX)])
            }
            Op::Datasync { .. } | Op::SyncFolder { .. } => {
                self.running.insert(key, Running::Flush(file.clone(), number));
                return;
            }
            _ => return,
        };
        if let Some(cache) = self.files.get_mut(file) {
            cache.pending.push(Pending { change, done_at: None, durable: false, void: false, number });
            self.running.insert(key, Running::Change(file.clone(), number));
        }
    }

    /// It is done; or it failed, or was never tried, and changed nothing.
    pub(super) fn note_end(&mut self, key: (Key, u32), good: bool, dsync: bool) {
        let Some(running) = self.running.remove(&key) else { return };
        let now = self.tick();
        match running {
            Running::Change(file, number) => {
                let Some(cache) = self.files.get_mut(&file) else { return };
                if let Some(pending) = cache.pending.iter_mut().find(|p| p.number == number) {
                    pending.done_at = Some(now);
                    pending.durable = good && dsync;
                    pending.void = !good;
                }
                cache.fold();
            }
            Running::Flush(..) if !good => {}
            Running::Flush(file, began) => {
                let is_covered = |at: Option<u64>| at.is_some_and(|at| at < began);
                if let Some(cache) = self.files.get_mut(&file) {
                    cache.pending.iter_mut().for_each(|p| p.durable |= is_covered(p.done_at));
                    cache.fold();
                }
                let (node, folder) = &file;
                let inside = self.files.iter_mut().filter(|((n, path), _)| {
                    n == node && path.parent().map(Path::to_path_buf) == Some(PathBuf::from(folder))
                });
                for (_, cache) in inside {
                    cache.made_at = cache.made_at.filter(|at| *at >= began);
                }
            }
        }
    }

    /// The operations of a node that has ended were never tried.
    pub(super) fn forget_node(&mut self, node: u32) {
        let gone: Vec<_> = self.running.keys().filter(|(key, _)| key.node == node).copied().collect();
        gone.into_iter().for_each(|key| self.note_end(key, false, false));
    }

    /// A power cut: the content of each file of this node, `None` for one that is no more.
    fn cut(&mut self, node: &str, seed: u64) -> Vec<(FileName, Option<Content>)> {
        let mut left = Vec::new();
        let names: Vec<FileName> = self.files.keys().filter(|(n, _)| n == node).cloned().collect();
        for (name, n) in names.into_iter().zip(0u64..) {
            let Some(mut cache) = self.files.remove(&name) else { continue };
            let random = |number: u64| mix(seed ^ mix(number.wrapping_mul(31) ^ n));
            if cache.made_at.is_some_and(|at| random(at).is_multiple_of(2)) {
                left.push((name, None));
                continue;
            }
            for pending in cache.pending.drain(..).filter(|p| !p.void) {
                let fate = if pending.durable { Fate::Whole } else { Fate::draw(random(pending.number)) };
                pending.change.apply(&mut cache.durable, fate);
            }
            cache.made_at = None;
            left.push((name.clone(), Some(cache.durable.clone())));
            self.files.insert(name, cache);
        }
        left
    }
}

impl World {
    /// From now on drives have caches. The present content of the files is durable.
    pub(crate) fn give_caches(&mut self) {
        self.caches = Some(Caches::new(self.disks.files()));
    }

    /// The files of a node, which has ended, become what its drives have without their caches.
    pub(crate) fn lose_caches(&mut self, node: &str, seed: u64) {
        let left = self.caches.as_mut().map(|caches| caches.cut(node, seed)).unwrap_or_default();
        for (file, content) in left {
            self.disks.put_file(file, content);
        }
    }
}
