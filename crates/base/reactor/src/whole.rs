//! Reads and writes that the block layer gives to a drive in one piece.
//!
//! Only those are polled for; the others use the main ring. A polled request must not wait, and one that must not wait is not
//! split (`bio_set_polled` and `bio_split_rw` in Linux 6.1): a worker thread of the kernel retries it forever.

/// Bytes of a page: of each the kernel makes one segment of a request, in the worst case.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Limits of a drive's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Where a partition begins, in bytes of the drive.
    pub(crate) begin_bytes: u64,
    /// Most bytes of one request.
    pub(crate) bytes_max: u64,
    /// No request crosses a multiple of it; 0: there is none.
    pub(crate) boundary_bytes: u64,
}

impl Whole {
    /// Whether `len` bytes at `off` of one buffer go in one piece.
    pub(crate) fn fits(&self, off: u64, len: usize) -> bool {
        let (begin, len) = (self.begin_bytes.saturating_add(off), len as u64);
        let is_inside = match begin.checked_rem(self.boundary_bytes) {
            Some(behind) => behind.saturating_add(len) <= self.boundary_bytes,
            None => true,
        };
        len <= self.bytes_max && is_inside
    }

    /// The same of several buffers, less their first `skip` bytes. A request has no gap: its parts meet where pages do.
    pub(crate) fn takes_parts<'a>(
        &self,
        off: u64,
        parts: impl ExactSizeIterator<Item = &'a [u8]>,
        skip: usize,
    ) -> bool {
        let is_one = parts.len() == 1;
        let (mut len, mut is_paged) = (0, true);
        for part in parts {
            len += part.len();
            is_paged &= (part.as_ptr() as u64 | part.len() as u64).is_multiple_of(PAGE_BYTES);
        }
        self.fits(off, len.saturating_sub(skip)) && (is_one || is_paged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Whole = Whole { begin_bytes: 1 << 20, bytes_max: 504 << 10, boundary_bytes: 0 };

    /// Requests of 1 MiB hung when they were polled for: the block layer cuts them.
    #[test]
    fn a_request_that_is_cut_is_not_polled_for() {
        assert!(LIMITS.fits(4096, 504 << 10) && !LIMITS.fits(4096, 1 << 20));
        let chunked = Whole { boundary_bytes: 128 << 10, ..LIMITS };
        assert!(chunked.fits(128 << 10, 128 << 10) && !chunked.fits(124 << 10, 8192));
        let odd = Whole { begin_bytes: 4096, ..chunked };
        assert!(odd.fits(124 << 10, 8192) && !odd.fits(120 << 10, 8192), "boundaries are the drive's");
        assert!(!chunked.fits(u64::MAX, usize::MAX));
    }

    #[test]
    fn parts_meet_where_pages_do() {
        let memory = vec![0; 5 * 4096];
        let begin = memory.as_ptr().align_offset(4096);
        let page = |n: usize| &memory[begin + n * 4096..][..4096];
        let takes = |parts: &[&[u8]], skip| LIMITS.takes_parts(0, parts.iter().copied(), skip);
        assert!(takes(&[page(0), page(2)], 0) && takes(&[&page(0)[512..1024]], 0));
        assert!(!takes(&[page(0), &page(2)[..512]], 0) && !takes(&[&page(0)[..512], page(2)], 0));
        let small = Whole { bytes_max: 4096, ..LIMITS };
        let two = [page(0), page(1)];
        assert!(
            small.takes_parts(0, two.iter().copied(), 4096) && !small.takes_parts(0, two.iter().copied(), 0)
        );
    }
}
