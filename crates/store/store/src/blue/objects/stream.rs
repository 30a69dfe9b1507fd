//! [`Stream`]: how an object is being read.

use std::cell::Cell;

/// So many reads, each from where the one before ended, are a stream.
const STREAM_READS: u32 = 3;
/// How an object is being read.
#[derive(Default)]
pub(crate) struct Stream {
    /// Where the last read ended, in bytes.
    next: Cell<u64>,
    /// Reads in a row that began where the one before ended.
    run: Cell<u32>,
    /// Reads in flight.
    reading: Cell<u32>,
}

/// A read of the object is in flight until this is dropped.
pub(crate) struct Reading<'a>(&'a Stream);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.reading.set(self.0.reading.get() - 1);
    }
}

impl Stream {
    /// Notes a read of these bytes.
    pub(crate) fn begin(&self, off: u64, end: u64) -> Reading<'_> {
        let goes_on = self.next.replace(end) == off && off < end;
        self.run.set(if goes_on { self.run.get().saturating_add(1) } else { 1 });
        self.reading.set(self.reading.get() + 1);
        Reading(self)
    }

    /// The object changes: its reads begin anew. True if they followed one another.
    pub(crate) fn end(&self) -> bool {
        self.run.replace(0) >= STREAM_READS
    }

    /// The reads follow one another.
    pub(crate) fn is_stream(&self) -> bool {
        self.run.get() >= STREAM_READS
    }

    /// One reader has one read in flight.
    pub(crate) fn is_alone(&self) -> bool {
        self.reading.get() == 1
    }
}
