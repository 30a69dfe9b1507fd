//! Gather lists and message headers of entries that wait in a submission ring. The kernel reads them while it is entered, and never
//! later.

use crate::driver::uring::MAX_IOVECS;

/// Message headers of one chunk.
const HEADERS: usize = 64;

/// Memory at stable addresses for the satellites of entries.
pub(super) struct Scratch {
    iovecs: Pool<libc::iovec>,
    headers: Pool<libc::msghdr>,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { iovecs: Pool::new(MAX_IOVECS), headers: Pool::new(HEADERS) }
    }

    /// Lets the next entries reuse the memory. `unsent`, the number of entries that the kernel does not have yet, must be 0,
    /// because they may point here.
    pub(super) fn reset(&mut self, unsent: u32) {
        debug_assert_eq!(unsent, 0, "scratch memory is reset under {unsent} entries that were not submitted");
        self.iovecs.reset();
        self.headers.reset();
    }

    /// A gather list of `parts` without their first `skip` bytes; at most what the kernel takes at once.
    pub(super) fn gather<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
        skip: usize,
    ) -> (*const libc::iovec, u32) {
        let most = parts.clone().count().min(MAX_IOVECS);
        let list = self.iovecs.lend(most);
        let (mut n, mut skip) = (0, skip);
        for part in parts {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            if n == most {
                break;
            }
            let rest = &part[skip..];
            skip = 0;
            list[n] = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
            n += 1;
        }
        (list.as_ptr(), n as u32)
    }

    /// A message header for a gather list.
    pub(super) fn header(&mut self, (list, n): (*const libc::iovec, u32)) -> *const libc::msghdr {
        let header = self.headers.lend(1);
        header[0].msg_iov = list.cast_mut();
        header[0].msg_iovlen = n as usize;
        header.as_ptr()
    }
}

/// Values at stable addresses, in chunks.
struct Pool<T> {
    chunks: Vec<Box<[T]>>,
    chunk_len: usize,
    chunk: usize,
    used: usize,
}

impl<T: Zero> Pool<T> {
    fn new(chunk_len: usize) -> Pool<T> {
        Pool { chunks: Vec::new(), chunk_len, chunk: 0, used: 0 }
    }

    fn reset(&mut self) {
        (self.chunk, self.used) = (0, 0);
    }

    /// `n` (at most `chunk_len`) values that stay where they are, and are nobody else's until `reset`.
    fn lend(&mut self, n: usize) -> &mut [T] {
        let n = n.min(self.chunk_len);
        if self.used + n > self.chunk_len {
            self.chunk += 1;
            self.used = 0;
        }
        while self.chunks.len() <= self.chunk {
            self.chunks.push(vec![T::zero(); self.chunk_len].into_boxed_slice());
        }
        let from = self.used;
        self.used += n;
        &mut self.chunks[self.chunk][from..from + n]
    }
}

/// Types for which zeros are a value.
trait Zero: Copy {
    fn zero() -> Self;
}

impl Zero for libc::iovec {
    fn zero() -> Self {
        libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }
    }
}

impl Zero for libc::msghdr {
    fn zero() -> Self {
        // SAFETY: msghdr is plain data; zeros mean "no name, no data, no control".
        unsafe { std::mem::zeroed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "under 1 entries")]
    fn memory_of_unsent_entries_is_not_reset() {
        Scratch::new().reset(1);
    }
}
