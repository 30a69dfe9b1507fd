//! [`Bytes`]: a shared, read-only range of a buffer.

use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

use super::Buf;

#[derive(Clone, Default)]
enum Owner {
    #[default]
    None,
    Buf(Arc<Buf>),
    Vec(Arc<Vec<u8>>),
}

/// A shared range of a [`Buf`] or of a `Vec<u8>`: cheap to clone, may travel between threads.
#[derive(Clone, Default)]
pub struct Bytes {
    owner: Owner,
    start: usize,
    len: usize,
}

impl Bytes {
    /// No bytes; allocates nothing.
    #[must_use]
    pub const fn new() -> Bytes {
        Bytes { owner: Owner::None, start: 0, len: 0 }
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
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let all: &[u8] = match &self.owner {
            Owner::None => &[],
            Owner::Buf(b) => b.as_slice(),
            Owner::Vec(v) => v,
        };
        &all[self.start..self.start + self.len]
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
        Bytes { owner: self.owner.clone(), start: self.start + from, len: to - from }
    }

    /// Both the address and the length are multiples of `align`: fit for `O_DIRECT`.
    #[must_use]
    pub fn is_aligned(&self, align: usize) -> bool {
        self.len.is_multiple_of(align) && (self.as_slice().as_ptr() as usize).is_multiple_of(align)
    }

    /// There are other handles of the same memory, on any thread.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        match &self.owner {
            Owner::None => false,
            Owner::Buf(b) => Arc::strong_count(b) > 1,
            Owner::Vec(v) => Arc::strong_count(v) > 1,
        }
    }

    /// The bytes, writable, if this is the last handle of their memory.
    #[must_use]
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let all = match &mut self.owner {
            Owner::None => return None,
            Owner::Buf(b) => Arc::get_mut(b)?.as_mut_slice(),
            Owner::Vec(v) => Arc::get_mut(v)?.as_mut_slice(),
        };
        all.get_mut(self.start..self.start + self.len)
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
    fn from(v: Vec<u8>) -> Self {
        let len = v.len();
        if len == 0 {
            return Bytes::new();
        }
        Bytes { owner: Owner::Vec(Arc::new(v)), start: 0, len }
    }
}

impl From<Buf> for Bytes {
    fn from(buf: Buf) -> Self {
        let len = buf.len();
        Bytes { owner: Owner::Buf(Arc::new(buf)), start: 0, len }
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
