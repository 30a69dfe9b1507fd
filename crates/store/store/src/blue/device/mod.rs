//! Files and devices, what their first blocks say, and which of their blocks are free.

pub(crate) mod data;
pub(crate) mod join;
pub(crate) mod label;
pub(crate) mod references;
pub(crate) mod space;
pub(crate) mod wal;

/// Largest single read or write of the device, in blocks: 1 MiB, the largest buffer of the arena.
pub(crate) const IO_BLOCKS_MAX: u64 = 256;

/// Block numbers are stored in five bytes.
pub(crate) const BLOCKS_MAX: u64 = 1 << 40;

/// Blocks that one piece of a block map covers: 256 KiB of object. A 4 KiB overwrite rewrites one piece, about 600
/// bytes, whatever the size of the object.
pub(crate) const PIECE_BLOCKS: usize = 64;
