//! Counts of the clients' operations answered since this OSD leads the PG.

use std::cell::Cell;

use carmine_wire::pg_stat::ObjectStatSum;

/// Successful operations, and the bytes that they moved.
#[derive(Default)]
pub(crate) struct Served {
    reads: Cell<u64>,
    read_bytes: Cell<u64>,
    writes: Cell<u64>,
    write_bytes: Cell<u64>,
}

impl Served {
    /// Counts a read of this many bytes.
    pub(in crate::pg) fn note_read(&self, bytes: u64) {
        self.reads.set(self.reads.get() + 1);
        self.read_bytes.set(self.read_bytes.get() + bytes);
    }

    /// Counts a write of this many bytes.
    pub(in crate::pg) fn note_write(&self, bytes: u64) {
        self.writes.set(self.writes.get() + 1);
        self.write_bytes.set(self.write_bytes.get() + bytes);
    }

    /// Resets the counts: another OSD leads.
    pub(in crate::pg) fn forget(&self) {
        for count in [&self.reads, &self.read_bytes, &self.writes, &self.write_bytes] {
            count.set(0);
        }
    }

    /// Adds the counts to a PG's statistics.
    pub(in crate::pg) fn add_to(&self, sum: &mut ObjectStatSum) {
        sum.num_read = self.reads.get() as i64;
        sum.num_read_kb = self.read_bytes.get().div_ceil(1024) as i64;
        sum.num_write = self.writes.get() as i64;
        sum.num_write_kb = self.write_bytes.get().div_ceil(1024) as i64;
    }
}
