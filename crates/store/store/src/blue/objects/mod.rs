//! Objects in memory: onodes, their cache, and what transactions do to them.

pub(crate) mod apply;
pub(crate) mod cache;
pub(crate) mod clone;
pub(crate) mod dirty;
pub(crate) mod fetch;
pub(crate) mod omap;
pub(crate) mod onode;
pub(crate) mod reads;
