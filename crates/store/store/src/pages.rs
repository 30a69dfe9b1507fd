//! The pages of an object of an in-memory store.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use carmine_reactor::{Buf, Bytes, Payload};
use carmine_types::crc32c;

use crate::BLOCK_BYTES;

/// Bytes of a page.
pub(crate) const PAGE: usize = BLOCK_BYTES as usize;
/// Pages of a chunk.
const CHUNK: u64 = 64;

/// Shared by clones until one of them changes it.
type Chunk = Rc<[Option<Page>; CHUNK as usize]>;

/// The content of a page. Clones share it.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) bytes: Bytes,
    /// Its checksum, if it was written with the page or computed by a read.
    crc: Cell<Option<u32>>,
}

impl Page {
    fn new(buf: Buf) -> Page {
        Page { bytes: buf.freeze(), crc: Cell::new(None) }
    }

    /// The whole page, with its checksum, which every answer needs.
    pub(crate) fn payload(&self) -> Payload {
        let crc = self.crc.get().unwrap_or_else(|| crc32c::raw(crc32c::SEED, &self.bytes));
        self.crc.set(Some(crc));
        let data = Payload::from(self.bytes.clone()).with_crc(crc);
        debug_assert!(data.is_as_known(), "the checksum of another page");
        data
    }

    /// Its memory, for writing: a new one if a read or another object holds the old one, with the old content unless all of it
    /// will be overwritten.
    fn make_writable(&mut self, overwritten: bool) -> &mut [u8] {
        if self.bytes.is_shared() {
            let mut buf = Buf::heap(PAGE);
            if !overwritten {
                buf.copy_from_slice(&self.bytes);
            }
            self.bytes = buf.freeze();
        }
        self.bytes.get_mut().unwrap_or_default()
    }
}

/// Pages by number; a missing page reads as zeros. A clone has next to no memory of its own.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    chunks: Vec<Option<Chunk>>,
    count: u64,
    /// Pages written only in part: see [`crate::Store::in_part`].
    parts: BTreeSet<u64>,
}

/// Pages on their way to another shard. They share the contents of pages with clones, and nothing else.
pub(crate) struct SentPages {
    chunks: Vec<Option<Box<[Option<Page>; CHUNK as usize]>>>,
    count: u64,
    parts: BTreeSet<u64>,
}

impl From<Pages> for SentPages {
    fn from(Pages { chunks, count, parts }: Pages) -> SentPages {
        let chunks = chunks.into_iter().map(|chunk| chunk.map(|chunk| Box::new(Rc::unwrap_or_clone(chunk))));
        SentPages { chunks: chunks.collect(), count, parts }
    }
}

impl From<SentPages> for Pages {
    fn from(SentPages { chunks, count, parts }: SentPages) -> Pages {
        Pages { chunks: chunks.into_iter().map(|chunk| chunk.map(Rc::from)).collect(), count, parts }
    }
}

impl Pages {
    /// Number of pages.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn get(&self, page: u64) -> Option<&Page> {
        let chunk = self.chunks.get((page / CHUNK) as usize)?.as_ref()?;
        chunk.get((page % CHUNK) as usize)?.as_ref()
    }

    /// A page from `page` on such that all pages before it are missing, found without a long search.
    pub(crate) fn skip_missing(&self, page: u64) -> u64 {
        match self.chunks.get((page / CHUNK) as usize) {
            None => u64::MAX,
            Some(None) => (page / CHUNK + 1) * CHUNK,
            Some(Some(_)) if self.get(page).is_some() => page,
            Some(Some(_)) => page + 1,
        }
    }

    /// Copies `data[part]` into a page, from byte `within` on. Pages still held by a read or another object are replaced, others
    /// written in place.
    pub(crate) fn write(&mut self, page: u64, within: usize, data: &Payload, part: Range<usize>) {
        let (len, number) = (part.len(), page);
        let index = (page / CHUNK) as usize;
        if index >= self.chunks.len() {
            self.chunks.resize_with(index + 1, || None);
        }
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let chunk = chunk.get_or_insert_with(|| Rc::new([const { None }; CHUNK as usize]));
        let Some(slot) = Rc::make_mut(chunk).get_mut((page % CHUNK) as usize) else { return };
        self.count += u64::from(slot.is_none());
        if len == PAGE && !self.parts.is_empty() {
            self.parts.remove(&number);
        }
        let page = slot.get_or_insert_with(|| Page::new(Buf::heap(PAGE)));
        if let Some(out) = page.make_writable(len == PAGE).get_mut(within..within + len) {
            copy_range(data, part.start, out);
        }
        page.crc.set(data.known_crc().filter(|_| data.len() == PAGE && len == PAGE));
    }

    /// Makes a part of a page zeros.
    pub(crate) fn clear(&mut self, page: u64, from: usize, to: usize) {
        if from >= to {
            return;
        }
        let chunk = self.chunks.get_mut((page / CHUNK) as usize).and_then(Option::as_mut);
        if let Some(Some(page)) = chunk.and_then(|chunk| Rc::make_mut(chunk).get_mut((page % CHUNK) as usize))
        {
            if let Some(out) = page.make_writable(false).get_mut(from..to) {
                out.fill(0);
            }
            page.crc.set(None);
        }
    }

    /// Marks a page as written only in part, until it is written whole or removed. A missing page stays missing.
    pub(crate) fn set_part(&mut self, page: u64) {
        if self.get(page).is_some() {
            self.parts.insert(page);
        }
    }

    /// The pages among these that were written only in part.
    pub(crate) fn parts(&self, pages: Range<u64>) -> impl Iterator<Item = u64> {
        // `BTreeSet::range` panics if the ends are the wrong way round.
        let end = pages.end.max(pages.start);
        self.parts.range(pages.start..end).copied()
    }

    /// Drops the pages from `first` to `end` (exclusive).
    pub(crate) fn remove(&mut self, first: u64, end: u64) {
        self.parts.retain(|page| !(first..end).contains(page));
        let end = end.min(self.chunks.len() as u64 * CHUNK);
        for page in first..end {
            let chunk = self.chunks.get_mut((page / CHUNK) as usize).and_then(Option::as_mut);
            if let Some(slot) = chunk.and_then(|chunk| Rc::make_mut(chunk).get_mut((page % CHUNK) as usize)) {
                self.count -= u64::from(slot.take().is_some());
            }
        }
        // No chunks are needed after the last remaining page.
        if end == self.chunks.len() as u64 * CHUNK {
            self.chunks.truncate(first.div_ceil(CHUNK) as usize);
        }
    }
}

/// Copies `data[skip..]` into all of `out`.
fn copy_range(data: &Payload, mut skip: usize, out: &mut [u8]) {
    let mut rest = out;
    for bytes in data {
        let part = bytes.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(bytes.len());
        let n = part.len().min(rest.len());
        let (to, tail) = rest.split_at_mut(n);
        to.copy_from_slice(part.get(..n).unwrap_or_default());
        rest = tail;
        if rest.is_empty() {
            return;
        }
    }
}
