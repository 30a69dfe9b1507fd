//! Metadata: the index that keeps it, its keys and its values.

pub(crate) mod checkpoint;
pub(crate) mod codec;
pub(crate) mod dump;
pub(crate) mod extents;
pub(crate) mod index;
pub(crate) mod keys;
pub(crate) mod lookups;
