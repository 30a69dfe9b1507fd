//! The programs' allocator, and one that counts the allocations of each thread, for figures such as allocations per operation.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use libmimalloc_sys as mi;

thread_local! {
    // A thread-local, because an allocator knows no shard. It needs no drop, so it lives as long as the thread.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of the calling thread since it began; 0 in a program without [`Counting`].
pub(crate) fn allocations() -> u64 {
    TAKEN.get()
}

/// One look at the thread's own memory: each is a call.
#[inline]
fn count() {
    TAKEN.with(|taken| taken.set(taken.get().wrapping_add(1)));
}

/// Option of mimalloc: milliseconds until it returns free memory to the kernel. The bindings do not name its options.
const PURGE_DELAY: libc::c_int = 15;

// SAFETY: declared as in mimalloc.h; its options are a C enum, and their values are of type long.
unsafe extern "C" {
    fn mi_option_set(option: libc::c_int, value: libc::c_long);
    #[cfg(test)]
    fn mi_option_get(option: libc::c_int) -> libc::c_long;
}

/// Lets the process keep freed memory for a minute (mimalloc) or for good (the C library's allocator, which RocksDB uses): the
/// next burst of writes needs as much as the last one, and otherwise the kernel would map and zero every page again, with a fault
/// each.
pub fn keep_freed_memory() {
    const PURGE_MS: libc::c_long = 60_000;
    // The C library maps and unmaps longer blocks one by one, and shrinks its heap when more than this is free at its end.
    const MAPPED_BYTES: libc::c_int = 32 << 20;
    const FREE_BYTES: libc::c_int = 256 << 20;
    // SAFETY: these set numbers of the allocators; no memory is involved. A refusal leaves them as they are.
    unsafe {
        mi_option_set(PURGE_DELAY, PURGE_MS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_BYTES);
    }
}

/// Wraps an allocator and counts allocations.
pub struct Counting<A>(pub A);

// SAFETY: everything is passed on as it is to an allocator that keeps the contract, and to count neither allocates nor panics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
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
        count();
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { self.0.realloc(place, layout, new_size) }
    }
}

/// mimalloc. Nearly all allocations need no more than the alignment that every block has: they use its plain functions, since
/// those with an alignment check it each time.
pub struct Mimalloc;

/// Alignment of every block of at least so many bytes; shorter ones are aligned to their length at least.
const BLOCK_ALIGN: usize = 16;

#[inline]
fn is_plain(size: usize, align: usize) -> bool {
    align <= BLOCK_ALIGN && align <= size
}

// SAFETY: mimalloc keeps the contract; a block is given back, or made longer, by functions that take blocks of any alignment,
// and `is_plain` says when a block is aligned as wanted anyway.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: any size is allowed, and a layout's alignment is a power of two.
        unsafe {
            if is_plain(size, align) { mi::mi_malloc(size) } else { mi::mi_malloc_aligned(size, align) }
        }
        .cast()
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, _: Layout) {
        // SAFETY: the caller's promise: the block is this allocator's.
        unsafe { mi::mi_free(place.cast()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as in `alloc`.
        unsafe {
            if is_plain(size, align) { mi::mi_zalloc(size) } else { mi::mi_zalloc_aligned(size, align) }
        }
        .cast()
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (place, align) = (place.cast(), layout.align());
        // SAFETY: as in `alloc` and `dealloc`.
        unsafe {
            match is_plain(size, align) {
                true => mi::mi_realloc(place, size),
                false => mi::mi_realloc_aligned(place, size, align),
            }
        }
        .cast()
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use proptest::prelude::*;

    use super::*;

    /// One test, for the numbers are the process's.
    #[test]
    fn both_allocators_keep_freed_memory() {
        // SAFETY: reads a number of the allocator.
        let delay_ms = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay_ms(), 1_000, "mimalloc's default: has its list of options changed?");
        assert_eq!(mapped_by_a_block_of_8_mib(), 1, "the C library's default");
        keep_freed_memory();
        assert_eq!(delay_ms(), 60_000);
        assert_eq!(mapped_by_a_block_of_8_mib(), 0);
    }

    /// Mappings that the C library makes for it.
    fn mapped_by_a_block_of_8_mib() -> usize {
        // SAFETY: reads numbers of the allocator.
        let mapped = || unsafe { libc::mallinfo2().hblks };
        let before = mapped();
        // SAFETY: the block is freed below, and nothing is read from it or written to it. Without the box the compiler leaves both out.
        let block = std::hint::black_box(unsafe { libc::malloc(8 << 20) });
        assert!(!block.is_null());
        let mapped = mapped() - before;
        // SAFETY: it comes from malloc, and is freed once.
        unsafe { libc::free(block) };
        mapped
    }

    #[test]
    fn memory_is_passed_on_and_each_taking_is_counted() {
        let (heap, small) = (Counting(System), Layout::new::<[u64; 4]>());
        let (large, before) = (Layout::new::<[u64; 64]>(), allocations());
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
        assert_eq!(allocations() - before, 3);
    }

    proptest! {
        #[test]
        fn blocks_are_aligned_as_wanted_and_keep_their_bytes(
            wanted in prop::collection::vec((1usize..5000, 0u32..14, 1usize..5000), 1..40),
        ) {
            let mut blocks = Vec::new();
            for (size, shift, longer) in wanted {
                let layout = Layout::from_size_align(size, 1 << shift)?;
                // SAFETY: every block is used within its layout, and given back with the layout that it has then.
                unsafe {
                    let zeros = Mimalloc.alloc_zeroed(layout);
                    prop_assert!((0..size).all(|at| zeros.add(at).read() == 0));
                    let place = Mimalloc.alloc(layout);
                    place.write_bytes(0xa5, size);
                    let moved = Mimalloc.realloc(place, layout, longer);
                    prop_assert!((0..size.min(longer)).all(|at| moved.add(at).read() == 0xa5));
                    let is_aligned = |block: *mut u8| block.addr().is_multiple_of(layout.align());
                    prop_assert!(is_aligned(zeros) && is_aligned(moved));
                    blocks.push((zeros, layout));
                    blocks.push((moved, Layout::from_size_align(longer, layout.align())?));
                }
            }
            // SAFETY: as above.
            blocks.into_iter().for_each(|(place, layout)| unsafe { Mimalloc.dealloc(place, layout) });
        }
    }
}
