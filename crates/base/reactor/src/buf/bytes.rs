//! [`Bytes`]: a shared, read-only range of a buffer.

use std::ops::{Bound, Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use carmine_types::crc32c::{self, BLOCK_BYTES, SEED};

use super::Buf;

/// The memory of some [`Bytes`].
enum Memory {
    Buf(Buf),
    Vec(Vec<u8>),
    Blocks(Box<Blocks>),
}

/// Whole blocks, and the checksum of each.
struct Blocks {
    buf: Buf,
    crcs: Vec<u32>,
}

/// A shared range of a [`Buf`] or of a `Vec<u8>`: cheap to clone, may travel between threads.
#[derive(Clone)]
pub struct Bytes {
    /// `None` if there are no bytes.
    memory: Option<Arc<Memory>>,
    /// The first byte: `len` bytes from here on are initialised and lie in the memory, which stays where it is and is not written to
    /// while there is more than one handle.
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory may travel between threads, and it is only read where it is shared.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// No bytes; allocates nothing.
    #[must_use]
    pub const fn new() -> Bytes {
        Bytes { memory: None, ptr: NonNull::dangling(), len: 0 }
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `ptr` says so, and the memory lives as long as this handle.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// A part of it, sharing the memory.
    ///
    /// # Panics
    /// If the range is not inside, like slicing does.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Bytes {
        let from = match range.start_bound() {
            Bound::Included(n) => *n,
            Bound::Excluded(n) => n + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(n) => n + 1,
            Bound::Excluded(n) => *n,
            Bound::Unbounded => self.len,
        };
        assert!(from <= to && to <= self.len, "Bytes::slice({from}..{to}) of {} bytes", self.len);
        // SAFETY: `from <= len`, so this is in the same memory or just behind it.
        let ptr = unsafe { self.ptr.add(from) };
        Bytes { memory: self.memory.clone(), ptr, len: to - from }
    }

    /// Both the address and the length are multiples of `align`: fit for `O_DIRECT`.
    #[must_use]
    pub fn is_aligned(&self, align: usize) -> bool {
        self.len.is_multiple_of(align) && (self.ptr.as_ptr() as usize).is_multiple_of(align)
    }

    /// There are other handles of the same memory, on any thread.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| Arc::strong_count(memory) > 1)
    }

    /// The bytes, writable, if this is the last handle of their memory and the checksums of its blocks are not kept.
    #[must_use]
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let all = match Arc::get_mut(self.memory.as_mut()?)? {
            Memory::Buf(buf) => buf.as_mut_slice(),
            Memory::Vec(vec) => vec.as_mut_slice(),
            Memory::Blocks(_) => return None,
        };
        let start = self.ptr.as_ptr() as usize - all.as_ptr() as usize;
        all.get_mut(start..start + self.len)
    }

    /// All of `buf`, blocks of 4096 bytes of which the caller knows the checksums ([`SEED`]): they are trusted, and every slice
    /// of whole blocks keeps those of its blocks. An empty list means that they are not known.
    ///
    /// # Panics
    /// If this is not one checksum for each block.
    #[inline]
    #[must_use]
    pub fn with_block_crcs(buf: Buf, crcs: Vec<u32>) -> Bytes {
        if crcs.is_empty() { buf.freeze() } else { Bytes::of_blocks(buf, crcs) }
    }

    fn of_blocks(buf: Buf, crcs: Vec<u32>) -> Bytes {
        assert_eq!(crcs.len() * BLOCK_BYTES, buf.len(), "a checksum for each block");
        debug_assert!(buf.chunks(BLOCK_BYTES).map(|block| crc32c::raw(SEED, block)).eq(crcs.iter().copied()));
        let (ptr, len) = (buf.ptr(), buf.len());
        Bytes { memory: Some(Arc::new(Memory::Blocks(Box::new(Blocks { buf, crcs })))), ptr, len }
    }

    /// The checksums of its blocks of 4096 bytes, if it consists of whole ones and they were computed.
    #[must_use]
    pub fn block_crcs(&self) -> Option<&[u32]> {
        let Memory::Blocks(blocks) = &**self.memory.as_ref()? else { return None };
        let start = self.ptr.as_ptr() as usize - blocks.buf.ptr().as_ptr() as usize;
        let are_whole = start.is_multiple_of(BLOCK_BYTES) && self.len.is_multiple_of(BLOCK_BYTES);
        are_whole.then(|| blocks.crcs.get(start / BLOCK_BYTES..(start + self.len) / BLOCK_BYTES))?
    }

    /// CRC-32C in Ceph's convention (`seed` is the running value; no inversion at either end).
    #[must_use]
    pub fn crc32c(&self, seed: u32) -> u32 {
        match self.block_crcs() {
            Some(crcs) => crcs.iter().copied().fold(seed, crc32c::combine_block),
            None => crc32c::raw(seed, self),
        }
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::new()
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(mut v: Vec<u8>) -> Self {
        let len = v.len();
        match NonNull::new(v.as_mut_ptr()) {
            Some(ptr) if len > 0 => Bytes { memory: Some(Arc::new(Memory::Vec(v))), ptr, len },
            _ => Bytes::new(),
        }
    }
}

impl From<Buf> for Bytes {
    #[inline]
    fn from(buf: Buf) -> Self {
        let (ptr, len) = (buf.ptr(), buf.len());
        Bytes { memory: Some(Arc::new(Memory::Buf(buf))), ptr, len }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Bytes {}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A slice of whole blocks knows their checksums, another one knows none; the checksum of either is that of its bytes.
        #[test]
        fn known_checksums_are_those_of_the_blocks(
            blocks in 1..6usize, from in 0..6usize, len in 0..6usize, shift in prop_oneof![Just(0usize), 1..BLOCK_BYTES],
        ) {
            let bytes: Vec<u8> = (0..blocks * BLOCK_BYTES).map(|at| ((at / 7) ^ at) as u8).collect();
            let mut buf = Buf::heap(bytes.len());
            buf.copy_from_slice(&bytes);
            let crcs = bytes.chunks(BLOCK_BYTES).map(|block| crc32c::raw(SEED, block)).collect();
            let mut all = Bytes::with_block_crcs(buf, crcs);
            let range = (from * BLOCK_BYTES + shift).min(bytes.len())..((from + len) * BLOCK_BYTES + shift).min(bytes.len());
            let range = range.start..range.end.max(range.start);
            let slice = all.slice(range.clone());
            let are_whole = range.start % BLOCK_BYTES == 0 && range.end % BLOCK_BYTES == 0;
            let known = are_whole.then(|| bytes[range.clone()].chunks(BLOCK_BYTES).map(|block| crc32c::raw(SEED, block)).collect());
            prop_assert_eq!(slice.block_crcs().map(<[u32]>::to_vec), known);
            prop_assert_eq!(&slice[..], &bytes[range.clone()]);
            prop_assert_eq!(slice.crc32c(7), crc32c::raw(7, &bytes[range]));
            drop(slice);
            prop_assert_eq!(all.get_mut(), None, "bytes under known checksums must not change");
        }
    }

    #[test]
    fn no_checksums_are_as_good_as_unknown_ones() {
        assert_eq!(Bytes::with_block_crcs(Buf::heap(100), Vec::new()).block_crcs(), None);
    }
}
