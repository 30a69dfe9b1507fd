//! Files and devices, what their first blocks say, and which of their blocks are free.

pub(crate) mod device;
pub(crate) mod join;
pub(crate) mod label;
pub(crate) mod space;
pub(crate) mod wal;

/// Largest single read or write of the device, in blocks: 1 MiB, the largest buffer of the arena.
pub(crate) const IO_BLOCKS_MAX: u64 = 256;
