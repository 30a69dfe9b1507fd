//! Readahead: an object that one reader reads sequentially is read ahead, into a window of its own.
//!
//! A reader with many requests in flight needs no readahead and gets none, because the extra lookups would slow it down.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::rc::Rc;

use carmine_reactor::sync::Notify;
use carmine_reactor::{Bytes, Group as SchedulingGroup};
use carmine_types::ObjectId;
use foldhash::fast::FixedState;
use lru::LruCache;

use crate::blue::meta::extents::Entry;
use crate::blue::objects::onode::Onode;
use crate::blue::shard::Blue;
use crate::{BLOCK_BYTES, StoreError};

/// Windows of a shard; a new one replaces the one used longest ago.
const WINDOWS: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// Blocks of an object that were read ahead; each is returned once.
#[derive(Default)]
struct Window {
    /// The object's block at which `blocks` begins.
    first: u64,
    /// Each with the entry of the block map by which it was read.
    blocks: VecDeque<(Entry, Bytes)>,
    /// Blocks that are being read, after those.
    arriving: Option<(Range<u64>, Rc<Notify>)>,
}

impl Window {
    fn end(&self) -> u64 {
        self.first + self.blocks.len() as u64
    }

    /// Drops blocks before `index`, which the reader has passed.
    fn advance(&mut self, index: u64) {
        let passed = index.saturating_sub(self.first).min(self.blocks.len() as u64);
        self.blocks.drain(..passed as usize);
        self.first += passed;
    }

    fn get(&self, index: u64, entry: Entry) -> Option<Bytes> {
        let (found, bytes) = self.blocks.get(index.checked_sub(self.first)? as usize)?;
        (*found == entry).then(|| bytes.clone())
    }
}

/// The windows of a shard.
pub(crate) struct Readahead {
    windows: RefCell<LruCache<ObjectId, Window, FixedState>>,
    /// Blocks of a window; 0: no readahead.
    window_blocks: u64,
}

impl Readahead {
    /// A readahead with windows of this many bytes.
    pub(crate) fn new(window_bytes: u64) -> Readahead {
        let windows = RefCell::new(LruCache::with_hasher(WINDOWS, FixedState::default()));
        Readahead { windows, window_blocks: window_bytes / BLOCK_BYTES }
    }

    /// A block of the object, if it was read ahead and its entry is still the same.
    pub(crate) fn get(&self, onode: &Onode, index: u64, entry: Entry) -> Option<Bytes> {
        if !onode.stream.is_stream() {
            return None;
        }
        self.windows.borrow_mut().get(&onode.oid)?.get(index, entry)
    }

    /// Drops all windows.
    pub(crate) fn clear(&self) {
        self.windows.borrow_mut().clear();
    }

    /// Drops the window of an object that changes: a freed block may soon hold something else.
    pub(crate) fn forget(&self, onode: &Onode) {
        if onode.stream.interrupt() {
            self.windows.borrow_mut().pop(&onode.oid);
        }
    }

    /// The notification of the range being read ahead, if it overlaps `blocks`.
    fn arriving(&self, onode: &Onode, blocks: &Range<u64>) -> Option<Rc<Notify>> {
        let mut windows = self.windows.borrow_mut();
        let (range, notify) = windows.get(&onode.oid)?.arriving.as_ref()?;
        (range.start < blocks.end && blocks.start < range.end).then(|| Rc::clone(notify))
    }

    /// What to read next when the reader is at `index` of an object with `end` blocks, if it is time to. Half a window at a time,
    /// so that one half is used while the other is read.
    fn plan(&self, onode: &Onode, index: u64, end: u64) -> Option<(Range<u64>, Rc<Notify>)> {
        let mut windows = self.windows.borrow_mut();
        let window = windows.get_or_insert_mut(onode.oid.clone(), Window::default);
        window.advance(index);
        if window.blocks.is_empty() || index < window.first {
            window.blocks.clear();
            window.first = index;
        }
        let half = (self.window_blocks / 2).max(1);
        let range = window.end()..(window.end() + half).min(end);
        if window.arriving.is_some() || window.blocks.len() as u64 > half || range.is_empty() {
            return None;
        }
        let notify = Rc::new(Notify::new());
        window.arriving = Some((range.clone(), Rc::clone(&notify)));
        Some((range, notify))
    }

    /// Stores the blocks of `range` (none if the read failed) and wakes the waiters.
    fn store_arrived(&self, oid: &ObjectId, range: &Range<u64>, blocks: Vec<(Entry, Bytes)>) {
        let mut windows = self.windows.borrow_mut();
        let Some(window) = windows.peek_mut(oid) else { return };
        if window.arriving.take_if(|(arriving, _)| arriving == range).is_none() {
            return; // the range belongs to another window of the object
        }
        if window.end() == range.start {
            window.blocks.extend(blocks);
        }
    }
}

impl Blue {
    /// Waits for blocks of the object that are being read ahead.
    pub(crate) async fn wait_for_readahead(&self, onode: &Onode, blocks: &Range<u64>) {
        while onode.stream.is_stream()
            && let Some(notify) = self.readahead.arriving(onode, blocks)
        {
            notify.notified().await;
        }
    }

    /// Begins to read ahead of a reader at block `index`, if it reads sequentially and is alone.
    pub(crate) fn read_ahead(&self, onode: &Rc<Onode>, index: u64) {
        if self.readahead.window_blocks == 0 || !onode.stream.is_stream() || !onode.stream.is_alone() {
            return;
        }
        let end = onode.state.borrow().meta.size.div_ceil(BLOCK_BYTES);
        let Some(store) = self.rc() else { return };
        let Some((range, notify)) = self.readahead.plan(onode, index, end) else { return };
        let onode = Rc::clone(onode);
        self.shard.spawn(SchedulingGroup::Client, "blue-readahead", async move {
            // The reader will meet the error itself when it gets there.
            let blocks = store.fetch_ahead(&onode, &range).await.unwrap_or_default();
            store.readahead.store_arrived(&onode.oid, &range, blocks);
            notify.notify_all();
        });
    }

    /// Reads the object's blocks `range`, each with its entry; `None` if one of them changed meanwhile.
    async fn fetch_ahead(
        &self,
        onode: &Rc<Onode>,
        range: &Range<u64>,
    ) -> Result<Vec<(Entry, Bytes)>, StoreError> {
        let pin = self.load(&onode.oid, &(range.start * BLOCK_BYTES..range.end * BLOCK_BYTES)).await?;
        // Until this is dropped, blocks freed meanwhile are not reused.
        let _reading = self.begin_read();
        let (entries, sources) = (entries(&pin, range), self.sources(&pin, range));
        let data = self.gather(&pin, sources).await?;
        let block = BLOCK_BYTES as usize;
        let parts = data
            .iter()
            .flat_map(|part| (0..part.len() / block).map(|n| part.slice(n * block..(n + 1) * block)));
        self.count(|stats| stats.readahead_blocks += range.end - range.start);
        if entries != self::entries(&pin, range) {
            return Ok(Vec::new());
        }
        Ok(entries.into_iter().zip(parts).collect())
    }
}

fn entries(onode: &Onode, range: &Range<u64>) -> Vec<Entry> {
    let state = onode.state.borrow();
    range.clone().map(|index| state.entry(index).unwrap_or_default()).collect()
}
