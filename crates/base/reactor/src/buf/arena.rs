//! The aligned memory that I/O buffers come from: one mapping per shard, cut into size classes on demand.
//!
//! Only the owning shard allocates buffers; any thread may free one. Buffers freed on the shard's thread are reused first, the
//! last one before the others: it is still in the CPU's cache. Other threads have a lock-free queue. A class that runs out carves
//! up another mebibyte of the slice, for good: once a slice is full of small buffers, large ones come from the heap, which is
//! counted.

use crossbeam::queue::ArrayQueue;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::ALIGN;

/// Sizes that the arena hands out.
pub(crate) const CLASSES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes that a class takes from the slice at once.
const SLAB: usize = 1 << 20;

thread_local! {
    static AT_HAND: RefCell<AtHand> = const { RefCell::new(AtHand { slice: 0, free: [const { Vec::new() }; 5] }) };
}

/// Pieces of this thread's newest slice that were freed on this thread.
struct AtHand {
    /// Number of that slice.
    slice: u64,
    free: [Vec<usize>; 5],
}

impl AtHand {
    /// The free pieces of a slice, if they are here.
    fn with<T>(slice: u64, class: usize, act: impl FnOnce(&mut Vec<usize>) -> T) -> Option<T> {
        let act = |own: &RefCell<AtHand>| {
            let mut own = own.borrow_mut();
            (own.slice == slice).then(|| act(&mut own.free[class]))
        };
        // A thread that ends has none.
        AT_HAND.try_with(act).ok().flatten()
    }
}

/// One shard's slice of the process's buffer memory.
pub(crate) struct Slice {
    /// Unique within the process.
    number: u64,
    base: NonNull<u8>,
    len: usize,
    next: AtomicUsize,
    free: [ArrayQueue<usize>; 5],
}

// SAFETY: `base` is only an address; every piece of the mapping is owned by exactly one `Buf` or by one entry of a
// free list, and the free lists and `next` are atomic.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}

impl Slice {
    /// Maps `bytes` (rounded down to mebibytes, at least one) of address space, for a shard of this thread.
    pub(crate) fn new(bytes: usize) -> io::Result<Arc<Slice>> {
        static SLICES: AtomicU64 = AtomicU64::new(1);
        let len = (bytes / SLAB).max(1) * SLAB;
        let base = map(len)?;
        let free = CLASSES.map(|c| ArrayQueue::new(len / c));
        let number = SLICES.fetch_add(1, Ordering::Relaxed);
        AT_HAND.set(AtHand { slice: number, free: Default::default() });
        Ok(Arc::new(Slice { number, base, len, next: AtomicUsize::new(0), free }))
    }

    /// Address and length of the mapping.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.base.as_ptr() as usize, self.len)
    }

    /// Takes a piece of class `class`; `None` when the slice is used up.
    pub(crate) fn pop_piece(&self, class: usize) -> Option<NonNull<u8>> {
        let at_hand = AtHand::with(self.number, class, Vec::pop).flatten();
        let offset = match at_hand.or_else(|| self.free[class].pop()) {
            Some(o) => o,
            None => self.carve(class)?,
        };
        // SAFETY: offsets in the free lists lie inside the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    fn carve(&self, class: usize) -> Option<usize> {
        let start = self.next.fetch_add(SLAB, Ordering::Relaxed);
        if start + SLAB > self.len {
            self.next.fetch_sub(SLAB, Ordering::Relaxed);
            return None;
        }
        let size = CLASSES[class];
        for offset in (start + size..start + SLAB).step_by(size) {
            // The queue has room for every piece of its class.
            let _ = self.free[class].push(offset);
        }
        Some(start)
    }

    /// Gives a piece back.
    fn give(&self, class: usize, ptr: NonNull<u8>) {
        let offset = ptr.as_ptr() as usize - self.base.as_ptr() as usize;
        if AtHand::with(self.number, class, |free| free.push(offset)).is_none() {
            let _ = self.free[class].push(offset);
        }
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length; every Buf holds an Arc, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn map(len: usize) -> io::Result<NonNull<u8>> {
    // One huge page more, so that the slice starts on a 2 MiB boundary and can be backed by huge pages.
    const HUGE: usize = 2 << 20;
    // SAFETY: an anonymous private mapping; no existing memory is touched.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len + HUGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        let e = io::Error::last_os_error();
        return Err(io::Error::new(
            e.kind(),
            format!("cannot map {len} bytes of I/O buffers: {e}; lower the arena size (--osd-memory)"),
        ));
    }
    let start = p as usize;
    let aligned = start.next_multiple_of(HUGE);
    // SAFETY: the parts before and after the aligned range belong to the mapping above and are given back; the
    // advice concerns the range that is kept.
    unsafe {
        if aligned > start {
            libc::munmap(p, aligned - start);
        }
        libc::munmap((aligned + len) as *mut libc::c_void, start + HUGE - aligned);
        libc::madvise(aligned as *mut libc::c_void, len, libc::MADV_HUGEPAGE);
    }
    NonNull::new(aligned as *mut u8).ok_or_else(|| io::Error::other("mmap returned address 0"))
}

/// Where a buffer's memory came from and goes back to.
pub(crate) enum Home {
    /// Class index of an arena slice.
    Arena(Arc<Slice>, u8),
    /// The heap, with this capacity.
    Heap(usize),
}

/// Zeroed, aligned heap memory of `capacity` bytes (a multiple of [`ALIGN`], not 0).
pub(crate) fn heap(capacity: usize) -> NonNull<u8> {
    let layout = layout(capacity);
    // SAFETY: the layout has a size above 0.
    let p = unsafe { alloc_zeroed(layout) };
    NonNull::new(p).unwrap_or_else(|| handle_alloc_error(layout))
}

fn layout(capacity: usize) -> Layout {
    // ALIGN is a power of two; a capacity that overflows isize is an allocation failure like any other.
    Layout::from_size_align(capacity, ALIGN).unwrap_or_else(|_| {
        handle_alloc_error(Layout::from_size_align(ALIGN, ALIGN).unwrap_or(Layout::new::<u8>()))
    })
}

impl Home {
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Home::Arena(_, class) => CLASSES[usize::from(*class)],
            Home::Heap(c) => *c,
        }
    }

    /// Gives the memory back. Called once, by the buffer that owns `ptr`.
    pub(crate) fn release(&self, ptr: NonNull<u8>) {
        match self {
            Home::Arena(slice, class) => slice.give(usize::from(*class), ptr),
            // SAFETY: `ptr` came from `heap` with this capacity and is released once.
            Home::Heap(c) => unsafe { dealloc(ptr.as_ptr(), layout(*c)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(slice: &Slice, class: usize) -> NonNull<u8> {
        slice.pop_piece(class).unwrap()
    }

    #[test]
    fn what_came_back_last_is_taken_first() {
        let slice = Slice::new(SLAB).unwrap();
        let [first, second, third] = [0; 3].map(|class| taken(&slice, class));
        slice.give(0, second);
        slice.give(0, first);
        assert_eq!([0; 2].map(|class| taken(&slice, class)), [first, second]);
        assert!(![first, second, third].contains(&taken(&slice, 0)));
    }

    #[test]
    fn what_other_threads_give_back_is_found() {
        let slice = Slice::new(SLAB).unwrap();
        // The class has one piece, which is all of the slice.
        let address = taken(&slice, 4).as_ptr() as usize;
        assert!(slice.pop_piece(4).is_none());
        let theirs = Arc::clone(&slice);
        std::thread::spawn(move || theirs.give(4, NonNull::new(address as *mut u8).unwrap())).join().unwrap();
        assert_eq!(taken(&slice, 4).as_ptr() as usize, address);
    }

    #[test]
    fn pieces_of_an_older_slice_of_the_thread_are_not_mixed_up() {
        let older = Slice::new(SLAB).unwrap();
        let piece = taken(&older, 4);
        let newer = Slice::new(SLAB).unwrap();
        older.give(4, piece);
        assert_eq!(taken(&older, 4), piece);
        assert!(older.pop_piece(4).is_none());
        assert_ne!(taken(&newer, 4), piece);
    }
}
