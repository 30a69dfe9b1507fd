//! The operations of clients on one pool that a shard has answered since it runs.

use std::cell::Cell;

use carmine_wire::private::PoolIo;

/// Counted by all PGs of the pool.
#[derive(Default)]
pub(crate) struct Served {
    reads: Cell<u64>,
    read_bytes: Cell<u64>,
    writes: Cell<u64>,
    write_bytes: Cell<u64>,
}

impl Served {
    /// A request was answered, with so many bytes.
    pub(super) fn read(&self, bytes: u64) {
        self.reads.set(self.reads.get() + 1);
        self.read_bytes.set(self.read_bytes.get() + bytes);
    }

    /// A request of so many bytes was carried out.
    pub(super) fn wrote(&self, bytes: u64) {
        self.writes.set(self.writes.get() + 1);
        self.write_bytes.set(self.write_bytes.get() + bytes);
    }

    /// The sums.
    pub(crate) fn io(&self) -> PoolIo {
        PoolIo {
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            writes: self.writes.get(),
            write_bytes: self.write_bytes.get(),
        }
    }
}
