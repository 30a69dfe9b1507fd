//! An allocator that counts what each thread takes, for figures such as allocations per operation.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    // An allocator knows no shard. There is nothing to drop, so it is there for as long as the thread.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of the calling thread since it began; 0 in a program without [`Counting`].
pub(crate) fn taken() -> u64 {
    TAKEN.get()
}

/// Another allocator, with a count.
pub struct Counting<A>(pub A);

// SAFETY: everything is passed on as it is to an allocator that keeps the contract, and to count neither allocates nor panics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get().wrapping_add(1));
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.dealloc(place, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get().wrapping_add(1));
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        TAKEN.set(TAKEN.get().wrapping_add(1));
        // SAFETY: the caller's promise.
        unsafe { self.0.realloc(place, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn memory_is_passed_on_and_each_taking_is_counted() {
        let (heap, small) = (Counting(System), Layout::new::<[u64; 4]>());
        let (large, before) = (Layout::new::<[u64; 64]>(), taken());
        // SAFETY: every place is used within its layout, and given back with the layout that it has then.
        unsafe {
            let place = heap.alloc(small);
            place.write(7);
            let place = heap.realloc(place, small, large.size());
            assert_eq!(place.read(), 7);
            heap.dealloc(place, large);
            let zeros = heap.alloc_zeroed(large);
            assert!((0..large.size()).all(|at| zeros.add(at).read() == 0));
            heap.dealloc(zeros, large);
        }
        assert_eq!(taken() - before, 3);
    }
}
