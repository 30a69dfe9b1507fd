//! [`Buf`]: one owner, aligned, may travel between threads.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::arena::{self, CLASSES, Home, Slice};
use super::{ALIGN, Bytes};

/// A unique buffer, aligned to [`ALIGN`] bytes. Dereferences to the first [`len`](Buf::len) bytes.
///
/// Its content after allocation is whatever was there before (never uninitialised memory). It may be dropped on any
/// thread and then goes home to the shard that it came from.
pub struct Buf {
    ptr: NonNull<u8>,
    len: usize,
    home: Home,
}

// SAFETY: a Buf is the only owner of its memory, and its home may be used from any thread.
unsafe impl Send for Buf {}
// SAFETY: shared access only reads.
unsafe impl Sync for Buf {}

impl Buf {
    /// A buffer of length `len` from `slice`, or from the heap; the flag says whether it was the heap.
    pub(crate) fn from_slice(slice: &Arc<Slice>, len: usize) -> (Buf, bool) {
        for (class, size) in CLASSES.iter().enumerate() {
            if len <= *size {
                match slice.pop_piece(class) {
                    Some(ptr) => {
                        return (Buf { ptr, len, home: Home::Arena(Arc::clone(slice), class as u8) }, false);
                    }
                    None => break,
                }
            }
        }
        (Buf::heap(len), true)
    }

    /// A zeroed buffer from the heap: for tests and for callers without a shard.
    #[must_use]
    pub fn heap(len: usize) -> Buf {
        let capacity = len.max(1).next_multiple_of(ALIGN);
        Buf { ptr: arena::heap(capacity), len, home: Home::Heap(capacity) }
    }

    /// Bytes in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.home.capacity()
    }

    /// Sets the length; the content between the old and the new length is unspecified but initialised.
    ///
    /// # Panics
    /// If `n` is above the capacity.
    #[inline]
    pub fn set_len(&mut self, n: usize) {
        assert!(n <= self.capacity(), "Buf::set_len({n}) above its capacity of {} bytes", self.capacity());
        self.len = n;
    }

    /// The bytes in use.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len <= capacity`, the memory is initialised (mmap and alloc_zeroed give zeros) and owned by self.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes in use, writable.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// All of the capacity, writable.
    #[must_use]
    pub fn full_mut(&mut self) -> &mut [u8] {
        // SAFETY: all of the capacity is initialised and owned by self.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.capacity()) }
    }

    /// The first byte, for operation descriptors and shared ranges.
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Makes it shared and read-only.
    #[inline]
    #[must_use]
    pub fn freeze(self) -> Bytes {
        self.into()
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        self.home.release(self.ptr);
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} of {} bytes)", self.len, self.capacity())
    }
}
